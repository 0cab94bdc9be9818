"""PPO's whole update with the Nature network, four minibatches of 64: through the component graph / hand-written.

Both do the same arithmetic on post-processed rows: the clipped loss of policy, value and entropy on a shared trunk,
gradients clipped to a global norm of 0.5, Adam. By hand on JAX it is the faster of two: a loop over one jitted step,
and one program with the steps written out. Pixels are bytes on the device; indices are drawn beforehand by hand.
"""

from __future__ import annotations

import numpy as np
from alternating import compare

from rlweave.agents.ppo import PPO, PPOGraph
from rlweave.graph import api, build
from rlweave.spaces import IntBox

ROWS, MINIBATCHES, ACTIONS, LR, NORM, CLIP = 256, 4, 6, 2.5e-4, 0.5, 0.1
STATE = IntBox(0, 256, shape=(84, 84, 4), dtype="uint8", layout="channels_last")
STRIDES = (4, 2, 1)
COUNTER = "ppo/optimizer/steps"


class Update(PPOGraph):
    """One pass over post-processed rows."""

    @api
    def learn(self, rows):
        self._epoch(rows)


def build_graph(backend):
    """The executor, and rows as NumPy."""
    settings = {"rollout_steps": ROWS, "epochs": 1, "minibatches": MINIBATCHES, "clip": CLIP, "lr": LR}
    settings |= {"entropy_coefficient": 0.01, "max_grad_norm": NORM}
    agent = PPO(STATE, IntBox(ACTIONS), settings, backend=backend)
    space = agent.rows_space().with_batch_rank(ROWS)
    executor = build(Update(**agent.graph_arguments()), {**agent.input_spaces(), "rows": space}, backend=backend)
    rows = space.sample(ROWS, rng=0)
    rows["log_probs"] = np.full(ROWS, -np.log(ACTIONS), np.float32)
    for name in ("values", "advantages", "value_targets"):
        rows[name] = np.random.default_rng(1).normal(size=ROWS).astype(np.float32)
    return executor, rows


def weights_of(executor):
    """Kernels and biases: convolutions, dense layer, head of the policy, head of the value function."""
    weights = executor.get_weights("ppo")
    names = [f"ppo/policy/network/image/conv2d-{i}" for i in range(3)]
    names += ["ppo/policy/network/image/dense", "ppo/policy/head", "ppo/value-function/head"]
    return [(weights[f"{name}/kernel"], weights[f"{name}/bias"]) for name in names]


def torch_peer(layers, rows):
    """The hand-written eager torch update."""
    import torch
    from torch.nn import functional

    params = []
    for kernel, bias in layers:
        array = torch.tensor(np.ascontiguousarray(kernel.transpose(3, 2, 0, 1) if kernel.ndim == 4 else kernel))
        params += [array.contiguous(memory_format=torch.channels_last) if kernel.ndim == 4 else array]
        params += [torch.tensor(bias)]
    for p in params:
        p.requires_grad_()
    m, v = [torch.zeros_like(p) for p in params], [torch.zeros_like(p) for p in params]
    step = torch.zeros(())
    data = {key: torch.from_numpy(np.asarray(value)) for key, value in rows.items()}
    data["actions"] = data["actions"].long()

    def loss_of(batch):
        x = (batch["observations"].float() / 255.0).permute(0, 3, 1, 2)
        for i, stride in enumerate(STRIDES):
            x = functional.conv2d(x, params[2 * i], params[2 * i + 1], stride=stride).relu_()
        x = x.permute(0, 2, 3, 1).reshape(x.shape[0], -1)
        x = torch.addmm(params[7], x, params[6]).relu_()
        logs = torch.log_softmax(torch.addmm(params[9], x, params[8]), -1)
        values = torch.addmm(params[11], x, params[10])[:, 0]
        chosen = logs.gather(-1, batch["actions"][:, None])[:, 0]
        adv = batch["advantages"]
        adv = (adv - adv.mean()) / (adv.std(unbiased=False) + 1e-8)
        ratio = (chosen - batch["log_probs"]).exp()
        policy = -torch.min(ratio * adv, ratio.clamp(1 - CLIP, 1 + CLIP) * adv).mean()
        entropy = -(logs.exp() * logs).sum(-1).mean()
        return policy + 0.25 * (values - batch["value_targets"]).square().mean() - 0.01 * entropy

    def update():
        for indices in torch.randperm(ROWS).reshape(MINIBATCHES, -1):
            grads = torch.autograd.grad(loss_of({key: x.index_select(0, indices) for key, x in data.items()}), params)
            with torch.no_grad():
                norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
                if not norm.item() <= NORM:
                    grads = torch._foreach_mul(grads, NORM / norm)
                step.add_(1)
                torch._fused_adam_(
                    params, grads, m, v, [], [step] * len(params), lr=LR, beta1=0.9, beta2=0.999, weight_decay=0.0,
                    eps=1e-8, amsgrad=False, maximize=False,
                )  # fmt: skip

    return [update]


def jax_peer(layers, rows):
    """The hand-written JAX updates: a loop over a jitted step, and one program."""
    import jax
    import jax.numpy as jnp
    import optax
    from jax import lax

    params = [(jnp.array(kernel), jnp.array(bias)) for kernel, bias in layers]
    optimizer = optax.chain(optax.clip_by_global_norm(NORM), optax.adam(LR))
    data = {key: jnp.array(value) for key, value in rows.items()}

    def loss_of(p, batch):
        x = batch["observations"].astype(jnp.float32) / 255.0
        for (kernel, bias), stride in zip(p[:3], STRIDES, strict=True):
            x = lax.conv_general_dilated(x, kernel, (stride,) * 2, "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = jax.nn.relu(x + bias)
        x = jax.nn.relu(x.reshape(x.shape[0], -1) @ p[3][0] + p[3][1])
        logs = jax.nn.log_softmax(x @ p[4][0] + p[4][1])
        values = (x @ p[5][0] + p[5][1])[:, 0]
        chosen = jnp.take_along_axis(logs, batch["actions"][:, None], -1)[:, 0]
        adv = batch["advantages"]
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        ratio = jnp.exp(chosen - batch["log_probs"])
        policy = -jnp.minimum(ratio * adv, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * adv).mean()
        entropy = -(jnp.exp(logs) * logs).sum(-1).mean()
        return policy + 0.25 * jnp.square(values - batch["value_targets"]).mean() - 0.01 * entropy

    def step(p, state, data, indices):
        grads = jax.grad(loss_of)(p, {key: x[indices] for key, x in data.items()})
        updates, state = optimizer.update(grads, state, p)
        return optax.apply_updates(p, updates), state

    def program(p, state, data, key):
        for indices in jax.random.permutation(key, ROWS).reshape(MINIBATCHES, -1):
            p, state = step(p, state, data, indices)
        return p, state

    jitted, whole = jax.jit(step, donate_argnums=(0, 1)), jax.jit(program, donate_argnums=(0, 1))
    boxes = [[jax.tree.map(jnp.copy, params), optimizer.init(params)] for _ in range(2)]
    rng, key = np.random.default_rng(0), jax.random.key(0)

    def in_a_loop():
        for indices in rng.permutation(ROWS).reshape(MINIBATCHES, -1):
            boxes[0][:] = jitted(*boxes[0], data, indices)
        jax.block_until_ready(boxes[0])

    def in_one_program():
        boxes[1][:] = whole(*boxes[1], data, key)
        jax.block_until_ready(boxes[1])

    return [in_a_loop, in_one_program]


def rows():
    """A row for each backend: the least ratio to what is hand-written."""
    found = []
    for backend in ("torch", "jax"):
        executor, data = build_graph(backend)
        peers = (torch_peer if backend == "torch" else jax_peer)(weights_of(executor), data)
        on_device = {key: executor.backend.from_numpy(np.asarray(value)) for key, value in data.items()}

        def ours(executor=executor, on_device=on_device):
            executor.learn(on_device, as_numpy=False)
            executor.get_weights(COUNTER)  # waits for the update

        name = f"{backend} PPO update, Nature network, {MINIBATCHES} minibatches of {ROWS // MINIBATCHES}"
        compared = [compare(name, ours, peer, 0.95, rounds=11, target=0.3) for peer in peers]
        found.append(min(compared, key=lambda row: row["ratio"]))
    return found
