"""SAC on Pendulum-v1 with one environment and an update per step: rlweave against SBX (JAX) and Stable-Baselines3.

All have the defaults of Stable-Baselines3: networks of two relu layers of 256, twin critics, a learned temperature,
batches of 256, learning from step 100 on, Adam at 3e-4, target critics that follow at .005. Contestants train side by
side: each piece that is timed is 250 steps with 250 updates, and pieces alternate. The first pieces, in which JAX
compiles, are on nobody's clock.
"""

from __future__ import annotations

import argparse
import functools
import sys

from alternating import alternating, one_thread, report, row

one_thread()

# of which TensorFlow Probability, a part of SBX, would want tf_keras, which would replace the TensorFlow that is there
sys.modules["tensorflow"] = None

import torch  # noqa: E402

torch.set_num_threads(1)

ENV, PIECE, STARTS, BATCH = "Pendulum-v1", 250, 100, 256
LR, CAPACITY, DISCOUNT, TAU = 3e-4, 1_000_000, 0.99, 0.005


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
                "agent": {
                    "acting_backend": acting_backend,
                    "discount": DISCOUNT,
                    "memory_capacity": CAPACITY,
                    "batch_size": BATCH,
                    "samples_per_step": BATCH,
                    "learning_starts": STARTS,
                    "lr": LR,
                    "temperature_lr": LR,
                    "tau": TAU,
                },
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


CONTESTANTS = {
    "rlweave jax": functools.partial(Rlweave, "jax", "numpy"),
    "SBX": functools.partial(Baselines, "sbx"),
    "jax acts as well": functools.partial(Rlweave, "jax", None),
    "rlweave torch": functools.partial(Rlweave, "torch", "numpy"),
    "Stable-Baselines3": functools.partial(Baselines, "stable_baselines3"),
    "torch acts as well": functools.partial(Rlweave, "torch", None),
}
#: Ours, the peer, and what the ratio of their speeds should reach; ours acts on NumPy unless said.
COMPARISONS = (
    ("rlweave jax", "SBX", 1.2),
    ("jax acts as well", "SBX", None),
    ("rlweave torch", "Stable-Baselines3", 1.3),
    ("torch acts as well", "Stable-Baselines3", None),
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
