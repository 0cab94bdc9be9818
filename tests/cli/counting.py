"""A trainer that counts steps instead of learning: fast, exact, and enough for the command line.

Run as a program, it is `rlweave` with the algorithm `counting` added.
"""

import sys
import time
from pathlib import Path

import numpy as np

from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.registry import register_algorithm
from rlweave.envs import Episode, Evaluation
from rlweave.errors import EnvError
from rlweave.runs import checkpoint
from rlweave.settings.config import Config, setting


class AgentConfig(Config):
    lr: float = setting(0.5, "size of a step", gt=0)
    hidden: tuple[int, ...] = setting((64, 64), "units of each layer", unit="units")


class CountingConfig(TrainConfig):
    steps: int = setting(100, "length of the training", unit="environment steps")
    backend: str = setting("numpy", "what computes")
    report_every: int = setting(10, "distance of two reports", unit="environment steps")
    checkpoint_every: int = setting(50, "distance of two checkpoints", unit="environment steps")
    pause: float = setting(0.0, "rest before each report", unit="seconds")
    fail_at: int = setting(-1, "step at which the environment breaks", unit="environment steps")
    agent: AgentConfig = setting(AgentConfig(), "the agent")


class CountingTrainer:
    def __init__(self, config, run):
        self.config, self.run, self.env_steps, self.closed = config, run, 0, False

    def train(self):
        while self.env_steps < self.config.steps:
            time.sleep(self.config.pause)
            self.env_steps += self.config.report_every
            if self.env_steps == self.config.fail_at:
                raise EnvError("the environment broke", where="env 3, step 7")
            if self.env_steps % self.config.checkpoint_every == 0:
                self.save()
            row = {"env_steps_sampled": self.env_steps, "loss": 1.0 / self.env_steps}
            if self.env_steps >= 20:
                row["episode_return"] = self.env_steps * self.config.agent.lr
            yield row

    def evaluate(self, episodes, seed):
        rng = np.random.default_rng(seed)
        returns = [float(self.env_steps + r) for r in rng.integers(0, 3, episodes)]
        return Evaluation(tuple(Episode(0, value, 5, True) for value in returns))

    def save(self):
        weights = {"w": np.full(3, self.env_steps)}
        return checkpoint.save_checkpoint(
            self.run.checkpoints, self.env_steps, weights, {"env_steps": self.env_steps}, keep=5
        )

    def restore(self, path: Path):
        _, meta = checkpoint.load_checkpoint(path)
        self.env_steps = meta["env_steps"]

    load_model = restore

    def draw(self, method=None):
        return "<svg xmlns='http://www.w3.org/2000/svg'/>"

    def code(self, method):
        return f"def {method}(state, x):\n    return x\n"

    def explain(self):
        return "1. Composition: 1 component\n"

    def draw_plan(self):
        return "<svg xmlns='http://www.w3.org/2000/svg'><title>Plan</title></svg>"

    def close(self):
        self.closed = True


COUNTING = Algorithm(
    "counting",
    "counts steps",
    CountingConfig,
    trainer=CountingTrainer,
    presets={"CartPole-v1": {"agent": {"lr": 2.0}}},
    needs_gradients=False,
)

if __name__ == "__main__":
    from rlweave.cli import main

    register_algorithm(COUNTING)
    main(sys.argv[1:])
