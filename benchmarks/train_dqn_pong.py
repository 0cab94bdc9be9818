"""DQN on Pong with learning on: environment steps per second of rlweave on torch against Stable-Baselines3.

Both have 8 environments with the standard preprocessing (each by its own means: ALE's vector environment; AtariWrapper
and VecFrameStack), the Nature network, a memory of 20,000 transitions drawn from evenly, a batch of 32 for every 4
steps, Adam, and equal hyper-parameters. Each piece that is timed is 256 steps with 64 updates; pieces alternate.

The second row is the memory: bytes for each transition, those of two stacks of four frames over ours.
"""

from __future__ import annotations

import argparse

from pong_training import ENV, NUM_ENVS, THREADS, make_baselines_env, make_trainer, set_threads, train_to

set_threads()

from alternating import alternating, judged, report, row  # noqa: E402

CAPACITY, BATCH, STARTS, PIECE, LR, EPSILON = 20_000, 32, 512, 256, 1e-4, 0.1
UPDATES = PIECE // 4


class Rlweave:
    """rlweave, by the same trainer that the command line uses."""

    def __init__(self):
        self.trainer = make_trainer(
            "dqn",
            "torch",
            **{
                "steps": 1 << 40,
                "agent.memory_capacity": CAPACITY,
                "agent.batch_size": BATCH,
                "agent.learning_starts": STARTS,
                "agent.target_update_interval": 1_000,
                "agent.epsilon": EPSILON,
                "agent.lr": LR,
                "agent.optimizer": {"type": "adam"},
                "agent.max_grad_norm": 10.0,
            },
        )
        self.steps = STARTS
        train_to(self.trainer, self.steps)
        self.before = self.trainer.plan.counters.gradient_steps

    def __call__(self):
        """A piece."""
        self.steps += PIECE
        train_to(self.trainer, self.steps)

    def updates(self):
        """Gradient steps since learning started."""
        return self.trainer.plan.counters.gradient_steps - self.before

    def bytes_per_transition(self):
        """Those of all arrays of the memory."""
        executor = self.trainer.agent.executor
        cells = [cell for path, cell in executor.store.cells.items() if path.startswith("dqn/memory/")]
        return sum(cell.value.nbytes for cell in cells) / CAPACITY


class Baselines:
    """Stable-Baselines3."""

    def __init__(self):
        from stable_baselines3 import DQN

        self.model = DQN(
            "CnnPolicy",
            make_baselines_env(seed=0),
            learning_rate=LR,
            buffer_size=CAPACITY,
            learning_starts=0,
            batch_size=BATCH,
            gamma=0.99,
            train_freq=1,  # a step of all environments
            gradient_steps=NUM_ENVS // 4,
            target_update_interval=1_000,
            exploration_initial_eps=EPSILON,
            exploration_final_eps=EPSILON,
            max_grad_norm=10.0,
            seed=0,
            device="cpu",
            verbose=0,
        )
        self.model.learning_starts = STARTS
        self.model.learn(STARTS, reset_num_timesteps=False)
        self.before = self.model._n_updates

    def __call__(self):
        """A piece."""
        self.model.learn(PIECE, reset_num_timesteps=False)

    def updates(self):
        """Gradient steps since learning started."""
        return self.model._n_updates - self.before


def rows(rounds):
    """All rows."""
    contestants = {"rlweave torch": Rlweave(), "Stable-Baselines3": Baselines()}
    seconds = alternating(contestants, rounds)
    expected = (rounds + 1) * UPDATES
    for name, contestant in contestants.items():
        assert abs(contestant.updates() - expected) <= NUM_ENVS, (name, contestant.updates(), expected)
    ours = contestants["rlweave torch"]
    held, stacks = ours.bytes_per_transition(), 2 * 4 * 84 * 84
    ours.trainer.close()
    return [
        row("rlweave torch / Stable-Baselines3", seconds, "rlweave torch", "Stable-Baselines3", 1.2, PIECE),
        {
            "case": "bytes per transition: two stacks / rlweave",
            "ours": round(held),
            "peer": stacks,
            **judged([stacks / held], 1 / 0.55),
        },
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="pieces of each contestant (default: 15)")
    parser.add_argument("--quick", action="store_true", help="three rounds")
    arguments = parser.parse_args()
    table = rows(3 if arguments.quick else arguments.rounds)
    report(
        "train_dqn_pong", table, f"{ENV}, learning on, {THREADS} threads; each piece {PIECE} steps, {UPDATES} updates"
    )
