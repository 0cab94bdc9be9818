"""Updates with Adam, inputs on the device: through the component graph / hand-written. Double-DQN, and all of PPO's.

Both do the same arithmetic: Q and target Q, double-DQN target, Huber loss, gradients clipped to a global norm of 10,
Adam; both hand out the loss as an array of the framework. Updates run in both. The rows of PPO are in
`ppo_conv_update.py`.
"""

from __future__ import annotations

from alternating import compare, one_thread, report

one_thread()

import numpy as np  # noqa: E402
import ppo_conv_update  # noqa: E402

from rlweave import graph  # noqa: E402
from rlweave.components import Adam, DQNLoss, QPolicy  # noqa: E402
from rlweave.graph import Component, api, build  # noqa: E402
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox  # noqa: E402

BATCH, ACTIONS, DISCOUNT, LR, NORM = 32, 4, 0.99, 1e-3, 10.0
MLP = [{"type": "dense", "units": 64, "activation": "relu"}] * 2
CONV = [
    {"type": "conv2d", "filters": 32, "kernel_size": 8, "stride": 4, "activation": "relu"},
    {"type": "conv2d", "filters": 64, "kernel_size": 4, "stride": 2, "activation": "relu"},
    {"type": "conv2d", "filters": 64, "kernel_size": 3, "stride": 1, "activation": "relu"},
    {"type": "flatten"},
    {"type": "dense", "units": 512, "activation": "relu"},
]


class DoubleDQN(Component):
    """The update alone."""

    def __init__(self, policy):
        super().__init__("dqn")
        self.policy = policy
        self.target_policy = policy.copy("target-policy", trainable=False)
        self.loss = DQNLoss(DISCOUNT, n_step=1, double=True, huber_delta=1.0)
        self.optimizer = Adam(LR, max_grad_norm=NORM)

    @api
    def update(self, batch):
        online_next = graph.stop_gradient(self.policy.q_values(batch["next_observations"]))
        loss, _ = self.loss.td_loss(
            self.policy.q_values(batch["observations"]),
            batch["actions"],
            batch["rewards"],
            batch["terminated"],
            self.target_policy.q_values(batch["next_observations"]),
            online_next,
        )
        self.optimizer.step(loss, self.policy.variables())
        return loss


def build_graph(backend, conv):
    """The executor, and a batch as NumPy."""
    state = FloatBox(shape=(84, 84, 4), layout="channels_last") if conv else FloatBox(shape=(4,))
    space = Dict(
        observations=state, actions=IntBox(ACTIONS), rewards=FloatBox(), terminated=BoolBox(), next_observations=state
    )
    if conv:
        policy = QPolicy(None, IntBox(ACTIONS), image_network=CONV, observation_space=state)
    else:
        policy = QPolicy(MLP, IntBox(ACTIONS), observation_space=state)
    executor = build(DoubleDQN(policy), {"batch": space.with_batch_rank()}, backend=backend)
    return executor, space.with_batch_rank().sample(BATCH, rng=0)


def by_suffix(executor):
    """Kernels and biases of the policy in the order of its layers."""
    weights = executor.get_weights("dqn/policy")
    names = sorted({path.rpartition("/")[0] for path in weights}, key=lambda p: ("head" in p, p))
    return [(weights[f"{name}/kernel"], weights[f"{name}/bias"]) for name in names]


def torch_peer(layers, batch, conv):
    """The hand-written eager torch update."""
    import torch
    from torch.nn import functional

    params = []
    for kernel, bias in layers:
        array = kernel.transpose(3, 2, 0, 1) if kernel.ndim == 4 else kernel
        params += [torch.tensor(np.ascontiguousarray(array)), torch.tensor(bias)]
    if conv:
        params = [p.contiguous(memory_format=torch.channels_last) if p.ndim == 4 else p for p in params]
    target = [p.clone() for p in params]
    for p in params:
        p.requires_grad_()
    m, v = [torch.zeros_like(p) for p in params], [torch.zeros_like(p) for p in params]
    step = torch.zeros(())
    steps = [step] * len(params)
    strides = [4, 2, 1]

    def q(p, x):
        if conv:
            x = x.permute(0, 3, 1, 2)
            for i in range(3):
                x = functional.conv2d(x, p[2 * i], p[2 * i + 1], stride=strides[i]).relu_()
            x = x.permute(0, 2, 3, 1).reshape(x.shape[0], -1)
            rest = p[6:]
        else:
            rest = p
        for i in range(0, len(rest) - 2, 2):
            x = torch.addmm(rest[i + 1], x, rest[i]).relu_()
        return torch.addmm(rest[-1], x, rest[-2])

    data = {key: torch.from_numpy(value) for key, value in batch.items()}
    data["actions"] = data["actions"].long()

    def update():
        with torch.no_grad():
            best = q(params, data["next_observations"]).argmax(-1, keepdim=True)
            bootstrap = q(target, data["next_observations"]).gather(-1, best)[:, 0]
            goal = data["rewards"] + DISCOUNT * torch.where(data["terminated"], 0.0, bootstrap)
        chosen = q(params, data["observations"]).gather(-1, data["actions"][:, None])[:, 0]
        loss = functional.huber_loss(chosen, goal)
        grads = torch.autograd.grad(loss, params)
        with torch.no_grad():
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
            if not norm.item() <= NORM:
                grads = torch._foreach_mul(grads, NORM / norm)
            step.add_(1)
            torch._fused_adam_(
                params, grads, m, v, [], steps, lr=LR, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-8,
                amsgrad=False, maximize=False,
            )  # fmt: skip
        return loss.detach()

    return update


def jax_peer(layers, batch, conv):
    """The hand-written JAX update, jitted, with donated state."""
    import jax
    import jax.numpy as jnp
    import optax
    from jax import lax

    params = [(jnp.array(kernel), jnp.array(bias)) for kernel, bias in layers]
    target = jax.tree.map(jnp.copy, params)
    optimizer = optax.chain(optax.clip_by_global_norm(NORM), optax.adam(LR))
    state = optimizer.init(params)
    strides = [4, 2, 1]

    def q(p, x):
        index = 0
        if conv:
            for index in range(3):
                x = lax.conv_general_dilated(
                    x, p[index][0], (strides[index],) * 2, "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
                )
                x = jax.nn.relu(x + p[index][1])
            x = x.reshape(x.shape[0], -1)
            index = 3
        for kernel, bias in p[index:-1]:
            x = jax.nn.relu(x @ kernel + bias)
        return x @ p[-1][0] + p[-1][1]

    def loss_of(p, target, data):
        rows = jnp.arange(BATCH)
        best = q(p, data["next_observations"]).argmax(-1)
        bootstrap = q(target, data["next_observations"])[rows, best]
        goal = lax.stop_gradient(data["rewards"] + DISCOUNT * jnp.where(data["terminated"], 0.0, bootstrap))
        return optax.huber_loss(q(p, data["observations"])[rows, data["actions"]], goal).mean()

    def step(p, state, target, data):
        loss, grads = jax.value_and_grad(loss_of)(p, target, data)
        updates, state = optimizer.update(grads, state, p)
        return optax.apply_updates(p, updates), state, loss

    jitted = jax.jit(step, donate_argnums=(0, 1))
    data = {key: jnp.array(value) for key, value in batch.items()}
    box = [params, state]

    def update():
        box[0], box[1], loss = jitted(box[0], box[1], target, data)
        return loss.block_until_ready()

    return update


def rows():
    """All cases."""
    found = []
    for backend in ("torch", "jax"):
        for conv in (False, True):
            executor, batch = build_graph(backend, conv)
            peer = (torch_peer if backend == "torch" else jax_peer)(by_suffix(executor), batch, conv)
            data = {key: executor.backend.from_numpy(value) for key, value in batch.items()}
            if backend == "jax":
                ours = lambda e=executor, d=data: e.update(d, as_numpy=False).block_until_ready()  # noqa: E731
            else:
                import torch

                torch.set_num_threads(1)
                ours = lambda e=executor, d=data: e.update(d, as_numpy=False)  # noqa: E731
            first_ours, first_peer = float(ours()), float(peer())
            for _ in range(3):
                np.testing.assert_allclose(first_ours, first_peer, rtol=1e-3, atol=1e-4)
                first_ours, first_peer = float(ours()), float(peer())
            name = f"{backend} {'conv' if conv else 'MLP 64-64'}, batch {BATCH}"
            rounds, target = (21, 0.2) if conv else (81, 0.02)  # many short ones: the machine's speed changes
            found.append(compare(name, ours, peer, 0.97, rounds=rounds, target=target))
    return [*found, *ppo_conv_update.rows()]


if __name__ == "__main__":
    report("graph_update", rows(), "updates run in both; one thread, one core; inputs on the device")
