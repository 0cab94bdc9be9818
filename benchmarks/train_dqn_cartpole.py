"""DQN on CartPole-v1 with one environment: environment steps per second with learning on, against Stable-Baselines3.

All have the defaults of Stable-Baselines3: two relu layers of 64, no dueling, double or prioritized learning, batches
of 32 for every 4 steps, learning from step 100 on, a target network that is copied every 10,000 steps, and random
actions that fall to 5 % within the first tenth. Contestants train side by side: each piece that is timed is 1,000 steps
with 250 updates, and pieces alternate. The first 1,000 steps, in which JAX compiles, are on nobody's clock.

Final returns are those of greedy episodes after the training; so few steps leave all of them far from 500.
"""

from __future__ import annotations

import argparse
import functools
import statistics

from alternating import alternating, judged, one_thread, report, row

one_thread()

import torch  # noqa: E402

from rlweave.envs import evaluate, make_env  # noqa: E402

torch.set_num_threads(1)

ENV, PIECE, STEPS, STARTS, BATCH, EVERY = "CartPole-v1", 1_000, 20_000, 100, 32, 4
LR, CAPACITY, TARGET_INTERVAL, MAX_GRAD_NORM, DISCOUNT = 1e-4, 1_000_000, 10_000, 10.0, 0.99
EPSILON, EXPLORING = 0.05, STEPS // 10
EVALUATION_EPISODES = 20
#: Final returns of 5 seeds differ by chance; so much less counts as no worse.
RETURN_TOLERANCE = 0.1


def final_return(act, seed):
    """Mean return of greedy episodes; `act` maps observations (B, 4) to actions (B,)."""
    factory = functools.partial(make_env, ENV, EVALUATION_EPISODES)
    return evaluate(lambda observations, _: act(observations), factory, EVALUATION_EPISODES, 10_000 + seed).mean_return


class Rlweave:
    """rlweave, by the same trainer that the command line uses; a call trains a piece."""

    def __init__(self, seed, backend, acting_backend):
        from rlweave.algorithms.registry import get_algorithm

        spec = get_algorithm("dqn")
        config = spec.config_class.from_data(
            {
                "env": ENV,
                "backend": backend,
                "seed": seed,
                "steps": STEPS,
                "evaluate_every": 0,
                "checkpoint_every": 0,
                "agent": {
                    "acting_backend": acting_backend,
                    "dueling": False,
                    "double": False,
                    "prioritized": False,
                    "n_step": 1,
                    "discount": DISCOUNT,
                    "memory_capacity": CAPACITY,
                    "batch_size": BATCH,
                    "samples_per_step": BATCH / EVERY,
                    "learning_starts": STARTS,
                    "target_update_interval": TARGET_INTERVAL,
                    "epsilon": {"type": "linear", "start": 1.0, "end": EPSILON, "steps": EXPLORING},
                    "lr": LR,
                    "max_grad_norm": MAX_GRAD_NORM,
                },
            }
        )
        self.trainer, self.goal = spec.make_trainer(config, None), 0

    def __call__(self):
        """A piece."""
        self.goal += PIECE
        self.trainer.run_to(self.goal)

    def counted(self):
        """Environment steps and gradient steps."""
        counters = self.trainer.plan.counters
        return counters.env_steps_sampled, counters.gradient_steps

    def result(self, seed):
        """The final return."""
        agent = self.trainer.agent
        result = final_return(lambda observations: agent.get_actions(observations, explore=False), seed)
        self.trainer.close()
        return result


class Baselines:
    """Stable-Baselines3; a call trains a piece."""

    def __init__(self, seed):
        from stable_baselines3 import DQN

        self.model = model = DQN(
            "MlpPolicy",
            ENV,
            learning_rate=LR,
            buffer_size=CAPACITY,
            learning_starts=STARTS,
            batch_size=BATCH,
            gamma=DISCOUNT,
            train_freq=EVERY,
            gradient_steps=1,
            target_update_interval=TARGET_INTERVAL,
            max_grad_norm=MAX_GRAD_NORM,
            seed=seed,
            device="cpu",
            verbose=0,
        )
        # its schedule is over the steps of one `learn`, and here these are many
        model.exploration_schedule = lambda _: max(EPSILON, 1 - (1 - EPSILON) * model.num_timesteps / EXPLORING)

    def __call__(self):
        """A piece."""
        self.model.learn(PIECE, reset_num_timesteps=False)

    def counted(self):
        """Environment steps and gradient steps."""
        return self.model.num_timesteps, self.model._n_updates

    def result(self, seed):
        """The final return."""
        return final_return(lambda observations: self.model.predict(observations, deterministic=True)[0], seed)


CONTESTANTS = {
    "rlweave jax": functools.partial(Rlweave, backend="jax", acting_backend="numpy"),
    "rlweave torch": functools.partial(Rlweave, backend="torch", acting_backend="numpy"),
    "Stable-Baselines3": Baselines,
    "jax acts as well": functools.partial(Rlweave, backend="jax", acting_backend=None),
    "torch acts as well": functools.partial(Rlweave, backend="torch", acting_backend=None),
}
#: Ours, and what the ratio of its speed to that of Stable-Baselines3 should reach; acting is on NumPy unless said.
BARS = {"rlweave jax": 3.0, "rlweave torch": 1.5, "jax acts as well": None, "torch acts as well": None}
PEER = "Stable-Baselines3"


def rows(seeds, steps):
    """All comparisons."""
    seconds = {name: [] for name in CONTESTANTS}
    returns = {name: [] for name in CONTESTANTS}
    for seed in range(seeds):
        made = {name: make(seed) for name, make in CONTESTANTS.items()}
        for name, taken in alternating(made, steps // PIECE - 1).items():
            seconds[name] += taken
        for name, contestant in made.items():
            env_steps, updates = contestant.counted()
            assert env_steps == steps, (name, env_steps)
            assert abs(updates - (steps - STARTS) // EVERY) <= 1, (name, updates)
            returns[name].append(contestant.result(seed))
        print(f"final returns, seed {seed}: " + ", ".join(f"{name} {own[-1]:.1f}" for name, own in returns.items()))
    found = [row(f"{ours} / {PEER}, steps/s", seconds, ours, PEER, bar, PIECE) for ours, bar in BARS.items()]
    for ours in ("rlweave jax", "rlweave torch"):
        mine, other = statistics.mean(returns[ours]), statistics.mean(returns[PEER])
        means = {"ours": round(mine, 1), "peer": round(other, 1)}
        found.append(
            {"case": f"{ours} / {PEER}, final return", **means, **judged([mine / other], 1 - RETURN_TOLERANCE)}
        )
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each contestant (default: 5)")
    parser.add_argument("--quick", action="store_true", help="one seed, 5,000 steps")
    arguments = parser.parse_args()
    table = rows(1, 5_000) if arguments.quick else rows(arguments.seeds, STEPS)
    print()
    report("train_dqn_cartpole", table, "learning on, one environment, no evaluation on the clock; one thread")
