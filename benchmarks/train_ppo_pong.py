"""PPO on Pong with learning on: environment steps per second of rlweave on torch, of Stable-Baselines3, and on JAX.

All have 8 environments with the standard preprocessing (each by its own means: ALE's vector environment; AtariWrapper
and VecFrameStack), rollouts of 128 steps, 4 epochs of 4 minibatches of 256, the Nature network with one trunk, and
equal hyper-parameters; each piece that is timed is one rollout and one update, 1,024 steps. Pieces alternate. All have
two threads. rlweave on torch acts on ONNX Runtime where it is installed.

Acting only: stepping and acting together, by alternating sampling, against the slower of the two alone. In all three
the environments have one core and the network, with what is in Python, another: the only division of two cores in which
the two can overlap. Each part of the environments has one thread, all on that core; the network has one thread. This
row is wall time whatever the clock, and says nothing on a machine that others use.
"""

from __future__ import annotations

import argparse
import os
import time

from pong_training import ENV, NUM_ENVS, THREADS, make_baselines_env, make_trainer, set_threads, train_to

set_threads()

from alternating import alternating, report, row  # noqa: E402

STEPS, EPOCHS, MINIBATCHES, LR = 128, 4, 4, 2.5e-4
PIECE = STEPS * NUM_ENVS


class Rlweave:
    """rlweave, by the same trainer that the command line uses."""

    def __init__(self, backend, acting_backend):
        self.trainer = make_trainer(
            "ppo",
            backend,
            **{
                "steps": 1 << 40,
                "agent.acting_backend": acting_backend,
                "agent.lr": LR,
                # rlweave halves the squared error of values, the other does not
                "agent.value_coefficient": 1.0,
            },
        )
        agent = self.trainer.config.agent
        assert (agent.rollout_steps, agent.epochs, agent.minibatches) == (STEPS, EPOCHS, MINIBATCHES)
        self.steps = 0

    def __call__(self):
        """A rollout and an update."""
        self.steps += PIECE
        train_to(self.trainer, self.steps)

    def counted(self):
        """Environment steps and gradient steps."""
        counters = self.trainer.plan.counters
        return counters.env_steps_sampled, counters.gradient_steps


class Baselines:
    """Stable-Baselines3."""

    def __init__(self):
        from stable_baselines3 import PPO

        self.model = PPO(
            "CnnPolicy",
            make_baselines_env(seed=0),
            learning_rate=LR,
            n_steps=STEPS,
            batch_size=PIECE // MINIBATCHES,
            n_epochs=EPOCHS,
            gamma=0.99,
            gae_lambda=0.95,
            clip_range=0.1,
            ent_coef=0.01,
            vf_coef=0.5,
            max_grad_norm=0.5,
            policy_kwargs={"optimizer_kwargs": {"eps": 1e-5}},
            seed=0,
            device="cpu",
            verbose=0,
        )

    def __call__(self):
        """A rollout and an update."""
        self.model.learn(PIECE, reset_num_timesteps=False)

    def counted(self):
        """Environment steps and gradient steps."""
        states = self.model.policy.optimizer.state.values()
        return self.model.num_timesteps, max(int(state["step"]) for state in states)


def training_rows(rounds):
    """Rows with learning on."""
    from rlweave.backends import is_installed

    acting = "onnx" if is_installed("onnx") else None
    contestants = {
        "rlweave torch": Rlweave("torch", acting),
        "Stable-Baselines3": Baselines(),
        "rlweave JAX": Rlweave("jax", acting),
    }
    seconds = alternating(contestants, rounds)
    expected = (rounds + 1) * PIECE, (rounds + 1) * EPOCHS * MINIBATCHES
    for name, contestant in contestants.items():
        assert contestant.counted() == expected, (name, contestant.counted(), expected)
    for name in ("rlweave torch", "rlweave JAX"):
        contestants[name].trainer.close()
    return [
        row("rlweave torch / Stable-Baselines3", seconds, "rlweave torch", "Stable-Baselines3", 1.3, PIECE),
        row("rlweave JAX / rlweave torch", seconds, "rlweave JAX", "rlweave torch", 0.7, PIECE),
    ]


def acting_rows(rounds):
    """Rows without learning."""
    from rlweave.backends import is_installed

    sets = {"steps": 1 << 40, "agent.acting_backend": "onnx" if is_installed("onnx") else None, "threads": 1}
    own_core, core_of_envs = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, {own_core})  # this thread and those that it begins, but for the environments'
    sets |= {"env_options.num_threads": 1, "env_options.thread_affinity_offset": core_of_envs}
    by_turns, alone = (make_trainer("ppo", "torch", alternating_sampling=turns, **sets) for turns in (True, False))
    (worker,) = alone.parts.workers
    observations, actions = worker.observations(), worker.env.sample_actions()

    def network():
        for _ in range(STEPS):
            alone.agent.act(observations)

    def environment():
        for _ in range(STEPS):
            worker.env.step(actions)

    pieces = {"together": by_turns.parts.workers[0].sample, "network": network, "environment": environment}
    seconds = alternating(pieces, rounds, time.perf_counter)
    for trainer in (by_turns, alone):
        trainer.close()
    seconds["slower"] = [max(pair) for pair in zip(seconds["network"], seconds["environment"], strict=True)]
    case = "acting: environment and network / the slower of them alone"
    return [row(case, seconds, "together", "slower", 0.8, PIECE)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="pieces of each contestant (default: 7)")
    parser.add_argument("--quick", action="store_true", help="two rounds")
    arguments = parser.parse_args()
    count = 2 if arguments.quick else arguments.rounds
    table = [*training_rows(count), *acting_rows(3 * count)]
    note = f"{ENV}, learning on, {THREADS} threads; each piece {PIECE} steps and an update"
    note += "; acting only: wall time, one core for the environments and one for the network in all three parts"
    report("train_ppo_pong", table, note)
