"""Small batches of made-up experience for agents of any space."""

import numpy as np

from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Tuple

NESTED_OBSERVATIONS = Dict(
    position=FloatBox(shape=(3,)),
    image=IntBox(0, 256, shape=(8, 8, 1), dtype="uint8", layout="channels_last"),
    choice=IntBox(4),
    flags=BoolBox(shape=(2,)),
    nothing=Dict(),
    pair=Tuple(FloatBox(), FloatBox(shape=(0,))),
)
NESTED_ACTIONS = Dict(
    steer=FloatBox(-1.0, 1.0, shape=(2,)),
    gear=IntBox(3),
    switches=IntBox(high=[2, 3]),
    lamp=BoolBox(),
)
SMALL = [{"type": "dense", "units": 8, "activation": "tanh"}]
SMALL_CONV = [{"type": "conv2d", "filters": 4, "kernel_size": 3, "activation": "relu"}, {"type": "flatten"}]


def rollout(agent, seed=0):
    """A batch (T, B, ...) as PPO and PQN take it, with actions of the agent itself."""
    rng = np.random.default_rng(seed)
    steps, envs = agent.config.rollout_steps, agent.num_envs
    space = agent.observation_space.with_batch_rank().with_time_rank()
    observations, next_observations = space.sample((steps, envs), rng=rng), space.sample((steps, envs), rng=rng)
    rows = [agent.act(row(observations, t)) for t in range(steps)]
    return {
        "observations": observations,
        "next_observations": next_observations,
        "actions": stacked([actions for actions, _, _ in rows]),
        **{name: np.stack([extra[name] for _, extra, _ in rows]) for name in rows[0][1]},
        "rewards": rng.normal(size=(steps, envs)).astype(np.float32),
        "terminated": rng.random((steps, envs)) < 0.1,
        "truncated": rng.random((steps, envs)) < 0.1,
    }


def transitions(agent, rows, seed=0):
    """Records (N, ...) as DQN takes them."""
    return agent.record_space().with_batch_rank().sample(rows, rng=np.random.default_rng(seed))


def row(structure, index):
    """One time step of nested arrays."""
    if isinstance(structure, dict):
        return {key: row(value, index) for key, value in structure.items()}
    if isinstance(structure, tuple):
        return tuple(row(value, index) for value in structure)
    return structure[index]


def stacked(items):
    """Nested arrays stacked along a new first axis."""
    first = items[0]
    if isinstance(first, dict):
        return {key: stacked([item[key] for item in items]) for key in first}
    if isinstance(first, tuple):
        return tuple(stacked([item[i] for item in items]) for i in range(len(first)))
    return np.stack(items)
