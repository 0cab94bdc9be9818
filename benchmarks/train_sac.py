"""SAC on Pendulum-v1 with one environment and an update per step: against SBX, Stable-Baselines3 and plain JAX.

All have the defaults of Stable-Baselines3: networks of two relu layers of 256, twin critics, a learned temperature,
batches of 256, learning from step 100 on, Adam at 3e-4, target critics that follow at .005. Contestants train side by
side: each piece that is timed is 250 steps with 250 updates, and pieces alternate. The first pieces, in which JAX
compiles, are on nobody's clock.

With environment and memory in the graph the peer is the same program written by hand in JAX: both step Pendulum in ops,
keep transitions in a ring, and learn in the same call.
"""

from __future__ import annotations

import argparse
import functools
import sys

from alternating import alternating, one_thread, report, row

one_thread()

# of which TensorFlow Probability, a part of SBX, would want tf_keras, which would replace the TensorFlow that is there
sys.modules["tensorflow"] = None

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)

ENV, PIECE, STARTS, BATCH = "Pendulum-v1", 250, 100, 256
LR, CAPACITY, DISCOUNT, TAU = 3e-4, 1_000_000, 0.99, 0.005
#: Of Pendulum: torques are in [-MAX_TORQUE, MAX_TORQUE], and an episode has LIMIT steps.
MAX_TORQUE, LIMIT = 2.0, 200
AGENT = {
    "discount": DISCOUNT,
    "memory_capacity": CAPACITY,
    "batch_size": BATCH,
    "samples_per_step": BATCH,
    "learning_starts": STARTS,
    "lr": LR,
    "temperature_lr": LR,
    "tau": TAU,
}


class Rlweave:
    """rlweave, by the same trainer that the command line uses; a call trains a piece."""

    def __init__(self, backend, acting_backend):
        from rlweave.algorithms.registry import get_algorithm

        spec = get_algorithm("sac")
        config = spec.config_class.from_data(
            {
                "env": ENV,
                "backend": backend,
                "steps": 1 << 40,
                "evaluate_every": 0,
                "checkpoint_every": 0,
                "agent": {**AGENT, "acting_backend": acting_backend},
            }
        )
        self.trainer, self.goal = spec.make_trainer(config, None), STARTS
        self.trainer.run_to(STARTS)

    def __call__(self):
        """A piece."""
        self.goal += PIECE
        self.trainer.run_to(self.goal)

    def updates(self):
        """Gradient steps since learning started."""
        return self.trainer.plan.counters.gradient_steps


class Baselines:
    """Stable-Baselines3, or SBX, which is called alike; a call trains a piece."""

    def __init__(self, module):
        import importlib

        self.model = importlib.import_module(module).SAC(
            "MlpPolicy",
            ENV,
            learning_rate=LR,
            buffer_size=CAPACITY,
            learning_starts=STARTS,
            batch_size=BATCH,
            gamma=DISCOUNT,
            tau=TAU,
            train_freq=1,
            gradient_steps=1,
            ent_coef="auto",
            seed=0,
            verbose=0,
            **({"device": "cpu"} if module == "stable_baselines3" else {}),
        )
        self.model.learn(STARTS)

    def __call__(self):
        """A piece."""
        self.model.learn(PIECE, reset_num_timesteps=False)

    def updates(self):
        """Gradient steps since learning started."""
        return self.model._n_updates


class Fused:
    """rlweave with environment and memory in the graph; a call trains a piece."""

    def __init__(self):
        from rlweave.agents.sac import FusedSAC
        from rlweave.envs.in_graph import Pendulum

        self.agent = FusedSAC(Pendulum(1, LIMIT), AGENT).build()

    def __call__(self):
        """A piece: metrics and episodes."""
        return self.agent.train(PIECE)

    def updates(self):
        """Gradient steps of the critics."""
        return int(self.agent.executor.get_weights()["sac/critics-optimizer/steps"])


class HandWritten:
    """The same program in plain JAX, with the same results on the host; a call trains a piece."""

    def __init__(self):
        self.state = first_state(jax.random.key(0))
        collect, self.train = jax.jit(collected, donate_argnums=0), jax.jit(trained, donate_argnums=0)
        self.state = collect(self.state)

    def __call__(self):
        """A piece: metrics and episodes."""
        self.state, metrics, record = self.train(self.state)
        record = {name: np.asarray(array) for name, array in record.items()}
        ended = record["truncated"]
        episodes = list(zip(record["returns"][ended].tolist(), record["steps"][ended].tolist(), strict=True))
        return {name: float(value) for name, value in metrics.items()}, episodes

    def updates(self):
        """Gradient steps of the critics."""
        return int(self.state["moments"]["critics"][0].count)


OPTIMIZER = optax.adam(LR)


def first_state(key):
    """Networks (the twin critics stacked), moments of Adam, environment, ring and random key."""
    keys = iter(jax.random.split(key, 8))

    def layer(inputs, outputs, stacked=(), gain=2.0):
        kernel = jax.random.normal(next(keys), (*stacked, inputs, outputs)) * (gain / inputs) ** 0.5
        return kernel, jnp.zeros((*stacked, 1, outputs) if stacked else outputs)

    networks = {
        "policy": [layer(3, 256), layer(256, 256), layer(256, 2, gain=1.0)],
        "critics": [layer(4, 256, (2,)), layer(256, 256, (2,)), layer(256, 1, (2,), gain=1.0)],
        "log_alpha": jnp.zeros(()),
    }
    return {
        "networks": networks,
        "target": jax.tree.map(jnp.copy, networks["critics"]),
        "moments": {name: OPTIMIZER.init(params) for name, params in networks.items()},
        "environment": (first_physics(next(keys)), jnp.zeros(1, jnp.int32), jnp.zeros(1)),
        "ring": (jnp.zeros((CAPACITY, 10)), jnp.int32(0), jnp.int32(0)),
        "key": next(keys),
    }


def first_physics(key):
    """Angle and speed of an episode that begins."""
    return jax.random.uniform(key, (1, 2), minval=-1.0, maxval=1.0) * jnp.array([jnp.pi, 1.0])


def observed(physics):
    """What the environment shows."""
    return jnp.stack([jnp.cos(physics[:, 0]), jnp.sin(physics[:, 0]), physics[:, 1]], axis=-1)


def environment_step(environment, actions, key):
    """A step of Pendulum; an ended episode is followed by the next one."""
    physics, steps, returns = environment
    angle, speed = physics.T
    torque = jnp.clip(MAX_TORQUE * actions[:, 0], -MAX_TORQUE, MAX_TORQUE)
    from_top = (angle + jnp.pi) % (2 * jnp.pi) - jnp.pi
    rewards = -(from_top**2 + 0.1 * speed**2 + 0.001 * torque**2)
    speed = jnp.clip(speed + 0.05 * (15.0 * jnp.sin(angle) + 3.0 * torque), -8.0, 8.0)
    moved = jnp.stack([angle + 0.05 * speed, speed], axis=-1)
    steps, returns = steps + 1, returns + rewards
    truncated = steps >= LIMIT
    begun = jnp.where(truncated[:, None], first_physics(key), moved)
    environment = begun, jnp.where(truncated, 0, steps), jnp.where(truncated, 0.0, returns)
    record = {"truncated": truncated, "returns": returns, "steps": steps}
    return environment, observed(moved), rewards, record


def drawn(policy, observations, key):
    """Actions in [-1, 1] of the squashed normal policy, and their log-densities in units of the environment."""
    x = observations
    for kernel, bias in policy[:-1]:
        x = jax.nn.relu(x @ kernel + bias)
    kernel, bias = policy[-1]
    mean, log_std = jnp.split(x @ kernel + bias, 2, axis=-1)
    log_std = jnp.clip(log_std, -20.0, 4.0)
    noise = jax.random.normal(key, mean.shape)
    u = mean + jnp.exp(log_std) * noise
    log_slopes = 2.0 * (jnp.log(2.0) - u - jax.nn.softplus(-2.0 * u))
    log_probs = -0.5 * noise**2 - log_std - 0.5 * jnp.log(2.0 * jnp.pi) - log_slopes
    return jnp.tanh(u), log_probs.sum(-1) - jnp.log(MAX_TORQUE)


def values_of(critics, observations, actions):
    """Values by each critic, (2, B)."""
    x = jnp.concatenate([observations, actions], axis=-1)
    for kernel, bias in critics[:-1]:
        x = jax.nn.relu(x @ kernel + bias)
    kernel, bias = critics[-1]
    return (x @ kernel + bias)[..., 0]


def act_and_store(state):
    """A step of the environment, whose transition is stored."""
    key, act_key, environment_key = jax.random.split(state["key"], 3)
    observations = observed(state["environment"][0])
    actions, _ = drawn(state["networks"]["policy"], observations, act_key)
    environment, next_observations, rewards, record = environment_step(state["environment"], actions, environment_key)
    rest = jnp.stack([rewards, jnp.zeros(1), jnp.full(1, DISCOUNT)], axis=-1)  # reward, terminated, discount
    row = jnp.concatenate([observations, actions, next_observations, rest], axis=-1)
    ring, position, filled = state["ring"]
    ring = jax.lax.dynamic_update_slice(ring, row, (position, 0))
    ring = ring, (position + 1) % CAPACITY, jnp.minimum(filled + 1, CAPACITY)
    return {**state, "key": key, "environment": environment, "ring": ring}, record


def learn(state):
    """An update on a batch that is drawn evenly."""
    key, slot_key, next_key, fresh_key = jax.random.split(state["key"], 4)
    ring, _, filled = state["ring"]
    slots = jax.random.randint(slot_key, (BATCH,), 0, jnp.maximum(filled, 1))
    rows = ring[slots]
    observations, actions, next_observations = rows[:, :3], rows[:, 3:4], rows[:, 4:7]
    rewards, terminated, discounts = rows[:, 7:].T
    networks, moments = dict(state["networks"]), dict(state["moments"])
    alpha = jnp.exp(networks["log_alpha"])
    next_actions, next_log_probs = drawn(networks["policy"], next_observations, next_key)
    next_values = values_of(state["target"], next_observations, next_actions).min(0) - alpha * next_log_probs
    targets = rewards + discounts * jnp.where(terminated > 0, 0.0, next_values)

    def critic_loss(critics):
        return 0.5 * ((targets - values_of(critics, observations, actions)) ** 2).sum(0).mean()

    def policy_loss(policy):
        fresh, log_probs = drawn(policy, observations, fresh_key)
        values = values_of(networks["critics"], observations, fresh)
        return (alpha * log_probs - values.min(0)).mean(), log_probs

    def temperature_loss(log_alpha):
        return -(log_alpha * (log_probs + jnp.log(MAX_TORQUE) - 1.0)).mean()

    def step(name, gradients):
        updates, moments[name] = OPTIMIZER.update(gradients, moments[name])
        networks[name] = optax.apply_updates(networks[name], updates)

    loss, gradients = jax.value_and_grad(critic_loss)(networks["critics"])
    step("critics", gradients)
    (actor_loss, log_probs), gradients = jax.value_and_grad(policy_loss, has_aux=True)(networks["policy"])
    step("policy", gradients)
    step("log_alpha", jax.grad(temperature_loss)(networks["log_alpha"]))
    target = optax.incremental_update(networks["critics"], state["target"], TAU)
    metrics = {"loss": loss, "policy_loss": actor_loss, "temperature": alpha, "entropy": -log_probs.mean()}
    return {**state, "networks": networks, "moments": moments, "target": target, "key": key}, metrics


def collected(state):
    """Steps without updates, until there is an update after each."""
    return jax.lax.scan(lambda state, _: (act_and_store(state)[0], None), state, length=STARTS + 1)[0]


def trained(state):
    """A piece: the state after it, mean metrics of its updates, and where episodes ended."""

    def iteration(state, _):
        # in this order, and with one array for the ring, as XLA copies what it may write before it is read
        state, metrics = learn(state)
        state, record = act_and_store(state)
        return state, (metrics, record)

    state, (metrics, record) = jax.lax.scan(iteration, state, length=PIECE)
    return state, jax.tree.map(jnp.mean, metrics), record


CONTESTANTS = {
    "rlweave jax": functools.partial(Rlweave, "jax", "numpy"),
    "SBX": functools.partial(Baselines, "sbx"),
    "jax acts as well": functools.partial(Rlweave, "jax", None),
    "rlweave torch": functools.partial(Rlweave, "torch", "numpy"),
    "Stable-Baselines3": functools.partial(Baselines, "stable_baselines3"),
    "torch acts as well": functools.partial(Rlweave, "torch", None),
    "fused jax": Fused,
    "written by hand": HandWritten,
}
#: Ours, the peer, and what the ratio of their speeds should reach; ours acts on NumPy unless said.
COMPARISONS = (
    ("rlweave jax", "SBX", 1.2),
    ("jax acts as well", "SBX", None),
    ("rlweave torch", "Stable-Baselines3", 1.3),
    ("torch acts as well", "Stable-Baselines3", None),
    ("fused jax", "written by hand", 0.97),
)


def rows(rounds):
    """All comparisons."""
    made = {name: make() for name, make in CONTESTANTS.items()}
    seconds = alternating(made, rounds)
    expected = (rounds + 1) * PIECE
    for name, contestant in made.items():
        assert abs(contestant.updates() - expected) <= 1, (name, contestant.updates(), expected)
        if isinstance(contestant, Rlweave):
            contestant.trainer.close()
    return [row(f"{ours} / {peer}, steps/s", seconds, ours, peer, bar, PIECE) for ours, peer, bar in COMPARISONS]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="pieces of each contestant (default: 15)")
    parser.add_argument("--quick", action="store_true", help="three rounds")
    arguments = parser.parse_args()
    table = rows(3 if arguments.quick else arguments.rounds)
    print()
    report("train_sac", table, f"{ENV}, learning on, one thread; each piece {PIECE} steps and as many updates")
