"""What the benchmarks of training on Pong share: equal threads for everybody, trainers, environments."""

from __future__ import annotations

import os

#: RLWEAVE_PONG_THREADS=1 where others use the cores as well: threads that wait for each other would be measured.
THREADS = int(os.environ.get("RLWEAVE_PONG_THREADS", "2"))
NUM_ENVS = 8
ENV = "ALE/Pong-v5"


def set_threads():
    """Gives all libraries their threads; call it before frameworks are imported."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(THREADS)
    if THREADS == 1:
        flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()
    import torch

    torch.set_num_threads(THREADS)


def make_trainer(algorithm, backend, **sets):
    """A trainer of rlweave with the published settings of Pong, as the command line makes it."""
    from rlweave.algorithms.config import resolve_config
    from rlweave.algorithms.registry import get_algorithm

    spec = get_algorithm(algorithm)
    common = {"env": ENV, "backend": backend, "num_envs": NUM_ENVS, "evaluate_every": 0, "checkpoint_every": 0}
    common |= {"env_options.num_threads": THREADS, "threads": THREADS if backend == "torch" else None}
    config = resolve_config(spec.config_class, presets=spec.preset_of(ENV), sets={**common, **sets})
    return spec.make_trainer(config, None)


def train_to(trainer, steps):
    """Runs the plan of a trainer to so many environment steps."""
    for _ in trainer.plan.run(until=lambda counters: counters.env_steps_sampled >= steps):
        pass


def make_baselines_env(seed):
    """The environments of Stable-Baselines3 as its users make them: AtariWrapper, a DummyVecEnv, four frames."""
    import ale_py
    import gymnasium
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    gymnasium.register_envs(ale_py)
    # the wrapper skips frames itself; sticky actions as the id has them
    env = make_atari_env(ENV, n_envs=NUM_ENVS, seed=seed, env_kwargs={"frameskip": 1})
    return VecFrameStack(env, 4)
