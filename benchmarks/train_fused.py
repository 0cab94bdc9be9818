"""PPO on CartPole with everything in one program: through the component graph / written by hand in JAX.

Both step the same environments in ops, and learn in the same call: 128 steps, GAE, 4 epochs of 4 minibatches, an MLP
64-64 (tanh) each for policy and values, Adam with clipped gradients. Environment steps per second with updates
running, compilation apart. On torch the same graph runs eagerly, step by step, and (`--torch`, slow to compile) with
compiled bodies; both are reported only.
"""

from __future__ import annotations

import sys
import time

from alternating import compare, one_thread, report

one_thread()

import numpy as np  # noqa: E402

from rlweave.agents.fused_ppo import FusedPPO  # noqa: E402
from rlweave.envs.in_graph import CartPole  # noqa: E402

STEPS, EPOCHS, MINIBATCHES, DISCOUNT, LAMBDA, CLIP, LR = 128, 4, 4, 0.99, 0.95, 0.2, 3e-4
VALUE_COEFFICIENT, MAX_GRAD_NORM, LIMIT = 0.5, 0.5, 500
BAR = 0.97
CONFIG = {
    "network": [{"type": "dense", "units": 64, "activation": "tanh"}] * 2,
    "rollout_steps": STEPS,
    "epochs": EPOCHS,
    "minibatches": MINIBATCHES,
    "discount": DISCOUNT,
    "gae_lambda": LAMBDA,
    "clip": CLIP,
    "lr": LR,
    "value_coefficient": VALUE_COEFFICIENT,
    "max_grad_norm": MAX_GRAD_NORM,
}


def hand_written(num_envs):
    """`train(state) -> (state, metrics, record)`, jitted, and a first state."""
    import jax
    import jax.numpy as jnp
    import optax

    optimizer = optax.chain(optax.clip_by_global_norm(MAX_GRAD_NORM), optax.adam(LR))
    minibatch = STEPS * num_envs // MINIBATCHES

    def mlp(params, x):
        for kernel, bias in params[:-1]:
            x = jnp.tanh(x @ kernel + bias)
        kernel, bias = params[-1]
        return x @ kernel + bias

    def init(key, outputs):
        sizes = (4, 64, 64, outputs)
        keys = jax.random.split(key, 3)
        return [
            (jax.nn.initializers.orthogonal()(k, (a, b)), jnp.zeros(b))
            for k, a, b in zip(keys, sizes, sizes[1:], strict=False)
        ]

    def start(key):
        return jax.random.uniform(key, (num_envs, 4), minval=-0.05, maxval=0.05)

    def env_step(carry, actions, key):
        physics, elapsed, returns = carry
        x, v, angle, spin = physics.T
        force = jnp.where(actions == 1, 10.0, -10.0)
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        push = (force + 0.05 * spin**2 * sin) / 1.1
        spin_rate = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        acceleration = push - 0.05 * spin_rate * cos / 1.1
        moved = jnp.stack(
            [x + 0.02 * v, v + 0.02 * acceleration, angle + 0.02 * spin, spin + 0.02 * spin_rate], axis=-1
        )
        terminated = (jnp.abs(moved[:, 0]) > 2.4) | (jnp.abs(moved[:, 2]) > 12 * 2 * np.pi / 360)
        elapsed, returns = elapsed + 1, returns + 1.0
        truncated = (elapsed >= LIMIT) & ~terminated
        ended = terminated | truncated
        after = jnp.where(ended[:, None], start(key), moved)
        record = {"terminated": terminated, "truncated": truncated, "returns": returns, "steps": elapsed}
        return (after, jnp.where(ended, 0, elapsed), jnp.where(ended, 0.0, returns)), moved, record

    def act_and_step(params, carry, key):
        act_key, env_key = jax.random.split(key)
        observations = carry[0]
        logits = mlp(params["policy"], observations)
        actions = jax.random.categorical(act_key, logits)
        log_probs = jnp.take_along_axis(jax.nn.log_softmax(logits), actions[:, None], axis=-1)[:, 0]
        carry, next_observations, record = env_step(carry, actions, env_key)
        return carry, (
            {"observations": observations, "actions": actions, "log_probs": log_probs},
            next_observations,
            record,
        )

    def advantages_of(params, rows, next_observations, record):
        values = mlp(params["values"], rows["observations"])[..., 0]
        next_values = mlp(params["values"], next_observations)[..., 0]
        deltas = 1.0 + DISCOUNT * jnp.where(record["terminated"], 0.0, next_values) - values
        decays = jnp.where(record["terminated"] | record["truncated"], 0.0, DISCOUNT * LAMBDA)

        def back(following, x):
            delta, decay = x
            advantage = delta + decay * following
            return advantage, advantage

        _, advantages = jax.lax.scan(back, jnp.zeros(num_envs), (deltas, decays), reverse=True)
        return advantages, advantages + values

    def loss_of(params, rows):
        logs = jax.nn.log_softmax(mlp(params["policy"], rows["observations"]))
        log_probs = jnp.take_along_axis(logs, rows["actions"][:, None], axis=-1)[:, 0]
        entropy = -(jnp.exp(logs) * logs).sum(-1).mean()
        values = mlp(params["values"], rows["observations"])[:, 0]
        advantages = rows["advantages"]
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        log_ratios = log_probs - rows["log_probs"]
        ratios = jnp.exp(log_ratios)
        clipped = jnp.clip(ratios, 1 - CLIP, 1 + CLIP)
        policy_loss = -jnp.minimum(ratios * advantages, clipped * advantages).mean()
        value_loss = 0.5 * ((values - rows["targets"]) ** 2).mean()
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": (ratios - 1 - log_ratios).mean(),
            "clip_fraction": (jnp.abs(ratios - 1) > CLIP).mean(),
        }
        return policy_loss + VALUE_COEFFICIENT * value_loss, metrics

    def train(state):
        params, moments, env, key = state
        key, rollout_key, shuffle_key = jax.random.split(key, 3)
        env, (rows, next_observations, record) = jax.lax.scan(
            lambda carry, k: act_and_step(params, carry, k), env, jax.random.split(rollout_key, STEPS)
        )
        advantages, targets = advantages_of(params, rows, next_observations, record)
        rows = {**rows, "advantages": advantages, "targets": targets}
        rows = jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), rows)

        def step(carry, indices):
            params, moments = carry
            chosen = jax.tree.map(lambda x: x[indices], rows)
            gradients, metrics = jax.grad(loss_of, has_aux=True)(params, chosen)
            updates, moments = optimizer.update(gradients, moments, params)
            return (optax.apply_updates(params, updates), moments), metrics

        def epoch(carry, k):
            order = jax.random.permutation(k, STEPS * num_envs)[: MINIBATCHES * minibatch]
            return jax.lax.scan(step, carry, order.reshape(MINIBATCHES, minibatch))

        (params, moments), metrics = jax.lax.scan(epoch, (params, moments), jax.random.split(shuffle_key, EPOCHS))
        return (params, moments, env, key), jax.tree.map(jnp.mean, metrics), record

    key = jax.random.key(0)
    keys = jax.random.split(key, 4)
    params = {"policy": init(keys[0], 2), "values": init(keys[1], 1)}
    env = start(keys[2]), jnp.zeros(num_envs, jnp.int32), jnp.zeros(num_envs)
    return jax.jit(train, donate_argnums=0), (params, optimizer.init(params), env, keys[3])


class HandWritten:
    """The peer, with the same results on the host as `FusedPPO.train`: metrics and episodes."""

    def __init__(self, num_envs):
        self.train_program, self.state = hand_written(num_envs)

    def train(self):
        self.state, metrics, record = self.train_program(self.state)
        record = {name: np.asarray(array) for name, array in record.items()}
        ended = record["terminated"] | record["truncated"]
        episodes = list(zip(record["returns"][ended].tolist(), record["steps"][ended].tolist(), strict=True))
        return {name: float(value) for name, value in metrics.items()}, episodes


def agent_of(num_envs, backend, **options):
    """A fused agent, built."""
    return FusedPPO(CartPole(num_envs, LIMIT), CONFIG, backend=backend).build(options)


def steps_to_learn(train, steps_per_call, wanted=400.0, limit=2_000_000):
    """Environment steps until the last episodes of a call have a mean return that is wanted."""
    for call in range(1, limit // steps_per_call):
        episodes = train()[1]
        if episodes and np.mean([episode_return for episode_return, _ in episodes]) >= wanted:
            return call * steps_per_call
    return None


def rows():
    """All cases."""
    found = []
    for num_envs in (4, 64, 2048):
        agent, peer = agent_of(num_envs, "jax"), HandWritten(num_envs)
        steps = STEPS * num_envs
        seconds = {}
        for name, train in (("ours", agent.train), ("peer", peer.train)):
            begin = time.perf_counter()
            train()
            seconds[name] = time.perf_counter() - begin
        learned = [steps_to_learn(train, steps) for train in (agent.train, peer.train)] if num_envs == 64 else ["", ""]
        rounds = 21 if num_envs < 1000 else 9  # seconds each
        row = compare(f"JAX, {num_envs} envs", agent.train, peer.train, BAR, rounds=rounds, target=0.3)
        found.append(
            {
                **row,
                "ours_steps_per_s": round(steps / row["ours_us"] * 1e6),
                "peer_steps_per_s": round(steps / row["peer_us"] * 1e6),
                "first_call_s": f"{seconds['ours']:.1f} / {seconds['peer']:.1f}",
                "steps_to_return_400": f"{learned[0]} / {learned[1]}",
            }
        )
    if "--torch" in sys.argv[1:]:
        found.append(torch_row())
    return found


def torch_row(num_envs=64):
    """Compiled bodies against eager torch, reported."""
    import torch

    torch.set_num_threads(1)
    eager = agent_of(num_envs, "torch")
    begin = time.perf_counter()
    compiled = agent_of(num_envs, "torch", torch_compile=True, rng="portable")
    compiled.train()
    seconds = time.perf_counter() - begin
    row = compare(f"torch, {num_envs} envs: compiled / eager", compiled.train, eager.train, None, rounds=5, target=0.1)
    steps = STEPS * num_envs
    return {
        **row,
        "ours_steps_per_s": round(steps / row["ours_us"] * 1e6),
        "peer_steps_per_s": round(steps / row["peer_us"] * 1e6),
        "first_call_s": f"{seconds:.1f}",
    }


if __name__ == "__main__":
    report("train_fused", rows(), "PPO iterations with learning on; one thread, one core; compilation apart")
