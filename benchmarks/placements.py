"""What placements cost: environment steps per second of a training / of the same written by hand as loops.

Both have the same agents and environments, and learning is on; so the ratio is what plans, operators, engines and
counters take. `local` steps environments in this process, `environments_apart` each in a process of its own, `fused`
calls the graph that has them, `single_learner_coarse` has two actors of Ray that act with agents of their own,
`multi_learner` two that learn together. Pieces alternate. Time is wall time, which says nothing on a machine that
others use; `BENCHMARK_CLOCK=cpu` counts this process alone, enough for `local` and `fused`. The bar is .95. `lag` is
the mean number of updates that what is trained on is behind, of ours.

    python benchmarks/placements.py [--placements local fused] [--tasks ppo-cartpole] [--rounds 5]

The last line is JSON.
"""

# ruff: noqa: E402 (threads are set before libraries are imported)

from __future__ import annotations

import argparse
import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"

import gymnasium
import numpy as np
import ray
from alternating import alternating, report, row

from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.environments import make_training_envs
from rlweave.algorithms.multi_learner import rank_config
from rlweave.algorithms.placement import acting_config, set_threads, worker_seed
from rlweave.algorithms.registry import get_algorithm
from rlweave.algorithms.rollout_workers import acting_state, build_acting
from rlweave.flow.collective_gloo import GlooCollective, open_store
from rlweave.tree import tree_map

BAR, WORKERS = 0.95, 2
IMAGES = [
    {"type": "conv2d", "filters": 16, "kernel_size": 8, "stride": 4, "activation": "relu"},
    {"type": "conv2d", "filters": 32, "kernel_size": 4, "stride": 2, "activation": "relu"},
]
PPO = {"num_envs": 8, "agent.rollout_steps": 64, "agent.epochs": 4, "agent.minibatches": 4}
#: Settings, and environment steps of a piece.
TASKS = {
    "ppo-cartpole": ({**PPO, "env": "CartPole-v1"}, 4096),
    "ppo-pong-shaped": (
        {
            **PPO,
            "env": "placements:PongShaped",
            "image_layout": "channels_last",
            "agent.epochs": 1,
            "agent.image_network": IMAGES,
            "agent.network": [{"type": "dense", "units": 256, "activation": "relu"}],
        },
        1024,
    ),
    "dqn-cartpole": (
        {
            "env": "CartPole-v1",
            "num_envs": 4,
            "agent.n_step": 1,
            "agent.batch_size": 32,
            "agent.samples_per_step": 8.0,
            "agent.learning_starts": 500,
            "agent.memory_capacity": 10_000,
        },
        4096,
    ),
}
#: Of a hand-written loop with a learner in this process: where its own environments are.
LOOPED = {"local": "local", "environments_apart": "environments_apart", "single_learner_coarse": "local"}
ON_RAY = ("single_learner_coarse", "multi_learner")


class PongShaped(gymnasium.Env):
    """Images of Pong's size, which cost nothing; episodes of 200 steps."""

    def __init__(self, **_):
        self.observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(6)
        self.images = np.random.default_rng(0).integers(0, 256, (8, 84, 84, 4), np.uint8)
        self.clock = 0

    def reset(self, *, seed=None, options=None):
        """Begins an episode."""
        super().reset(seed=seed)
        self.clock = 0
        return self.images[0], {}

    def step(self, action):
        """The next image."""
        self.clock += 1
        return self.images[self.clock % 8], float(action == self.clock % 6), self.clock >= 200, False, {}


def config_of(task, placement):
    """The algorithm and settings of a case."""
    algorithm = get_algorithm(task.split("-")[0])
    sets = {**TASKS[task][0], "backend": "torch", "placement": placement, "evaluate_every": 0, "steps": 1 << 40}
    if placement == "fused":
        sets["backend"] = "jax"
    else:
        sets["agent.acting_backend"] = "onnx" if "pong" in task else "numpy"
    if placement in ON_RAY:
        sets |= {"engine": "ray", "object_store_mb": 128, "worker_cpus": 0.5}
        sets |= {"placement.learners" if placement == "multi_learner" else "placement.workers": WORKERS}
    return algorithm, resolve_config(algorithm.config_class, sets=sets)


class Training:
    """Ours: a trainer, as the command line makes it."""

    def __init__(self, task, placement):
        algorithm, config = config_of(task, placement)
        self.trainer = algorithm.make_trainer(config)
        self.goal, self.piece = 0, TASKS[task][1]

    def __call__(self):
        """A piece."""
        self.goal += self.piece
        self.trainer.plan.advance(lambda counters: counters.env_steps_sampled >= self.goal)

    @property
    def env_steps(self):
        """Environment steps so far."""
        return self.trainer.env_steps

    def lag(self):
        """Mean lag in updates."""
        lags = self.trainer.plan.report().train_lag
        return sum(lag * count for lag, count in lags.items()) / max(1, sum(lags.values()))

    def close(self):
        """Ends it."""
        self.trainer.close()


class Steps:
    """A hand-written worker: environments, and the agent that acts in them."""

    def __init__(self, agent, env, rollout_steps, seed):
        self.agent, self.env, self.length = agent, env, rollout_steps
        self.observations, self.state = env.reset(seed), agent.initial_state(env.num_envs)
        self.start = np.ones(env.num_envs, np.bool_)

    def step(self):
        """One step of every environment, as columns."""
        observations = self.observations
        actions, extra, self.state = self.agent.act(observations, self.state, self.start)
        result = self.env.step(self.agent.env_actions(actions))
        self.observations, self.start = result.observations, result.episode_start
        return {
            "observations": observations, "actions": actions, **extra, "rewards": result.rewards,
            "terminated": result.terminated, "truncated": result.truncated,
            "next_observations": result.next_observations,
        }  # fmt: skip

    def rollout(self):
        """A rollout (T, B, ...)."""
        arrays = None
        for index in range(self.length):
            columns = self.step()
            if arrays is None:
                arrays = tree_map(lambda x: np.empty((self.length, *x.shape), x.dtype), columns)
            for name, column in columns.items():
                arrays[name][index] = column
        return arrays

    def transitions(self, steps):
        """Transitions of so many vector steps, (steps x B, ...)."""
        rows = [self.step() for _ in range(steps)]
        records = {name: np.concatenate([row[name] for row in rows]) for name in rows[0] if name != "truncated"}
        discount = np.float32(self.agent.config.discount)
        return {**records, "discounts": np.full(len(records["rewards"]), discount)}


def learn(loop, batch, counted):
    """Counts, stores and updates; of a loop or a rank.

    Args:
        loop: Has `agent`, `config`, `env_steps` and `trained`.
        batch: A rollout, or transitions.
        counted: Environment steps that the agent counts: those of all.
    """
    agent, own = loop.agent, loop.config.agent
    loop.env_steps += batch["rewards"].size
    agent.count_steps(counted)
    if "truncated" in batch:  # a rollout
        agent.update(batch)
        return
    agent.insert(batch)
    beyond = loop.env_steps - own.learning_starts
    while beyond >= 0 and loop.trained + own.batch_size <= own.samples_per_step * beyond:
        agent.update()
        loop.trained += own.batch_size


class Loop:
    """By hand, in one process."""

    def __init__(self, task, placement):
        algorithm, config = config_of(task, placement)
        with_workers = config.model_copy(update={"placement": type(config.placement)(name=LOOPED[placement])})
        (self.env,) = make_training_envs(with_workers.model_copy(update={"engine": "local"}), 0)
        self.agent = algorithm.make_agent(config, self.env, config.seed)
        set_threads(config, self.agent)
        self.agent.build()
        self.ppo, self.piece, self.env_steps = task.startswith("ppo"), TASKS[task][1], 0
        self.worker = Steps(self.agent, self.env, getattr(config.agent, "rollout_steps", 0), config.seed)
        self.config, self.trained = config, 0

    def __call__(self):
        """A piece."""
        goal = self.env_steps + self.piece
        while self.env_steps < goal:
            batch = self.worker.rollout() if self.ppo else self.worker.transitions(1)
            learn(self, batch, batch["rewards"].size)

    def close(self):
        """Ends it."""
        self.env.close()


class FusedLoop:
    """By hand: calls of the graph."""

    def __init__(self, task, placement):
        algorithm, config = config_of(task, placement)
        self.agent, self.piece = algorithm.parts(config).agent, TASKS[task][1]
        self.agent.build()

    def __call__(self):
        """A piece."""
        goal = self.agent.env_steps + self.piece
        while self.agent.env_steps < goal:
            self.agent.train()

    @property
    def env_steps(self):
        """Environment steps so far."""
        return self.agent.env_steps

    def close(self):
        """Ends it."""


class RemoteSteps:
    """By hand: an actor with environments and an agent that only acts."""

    def __init__(self, task, number):
        algorithm, config = config_of(task, "single_learner_coarse")
        own = acting_config(config)
        (self.env,) = make_training_envs(config, number)
        self.agent = algorithm.make_agent(own, self.env, worker_seed(config, number))
        build_acting(self.agent)
        set_threads(own, self.agent)
        self.steps = Steps(self.agent, self.env, getattr(config.agent, "rollout_steps", 0), config.seed)
        self.vector_steps = max(1, getattr(config, "steps_per_item", 1) // (config.num_envs // WORKERS))

    def sample(self, weights):
        """A rollout, or transitions."""
        if weights is not None:
            self.agent.set_weights(weights["weights"])
            self.agent.env_steps = weights["env_steps"]
        return self.steps.rollout() if self.steps.length else self.steps.transitions(self.vector_steps)


class RemoteLoop(Loop):
    """By hand: two actors that act; PPO waits for both, DQN takes what comes."""

    def __init__(self, task, placement):
        super().__init__(task, placement)
        actor = ray.remote(num_cpus=0.5)(RemoteSteps)
        self.actors = [actor.remote(task, number) for number in range(WORKERS)]
        self.pending = {}

    def ask(self, actor, weights):
        """Asks for an item."""
        self.pending[actor.sample.remote(weights)] = actor

    def __call__(self):
        """A piece."""
        goal = self.env_steps + self.piece
        while self.env_steps < goal:
            if self.ppo:
                weights = ray.put(acting_state(self.agent))
                parts = ray.get([actor.sample.remote(weights) for actor in self.actors])
                batch = tree_map(lambda *each: np.concatenate(each, axis=1), *parts)
                learn(self, batch, batch["rewards"].size)
                continue
            if not self.pending:
                for actor in self.actors:
                    self.ask(actor, ray.put(acting_state(self.agent)))
            (first, *_), _ = ray.wait(list(self.pending))
            actor, item = self.pending.pop(first), ray.get(first)
            learn(self, item, item["rewards"].size)
            self.ask(actor, ray.put(acting_state(self.agent)))

    def close(self):
        """Ends the actors."""
        super().close()
        for actor in self.actors:
            ray.kill(actor)


class Rank:
    """By hand: an actor that acts and learns, and meets the other in every gradient."""

    def __init__(self, task, number):
        algorithm, config = config_of(task, "multi_learner")
        own = rank_config(config)
        (self.env,) = make_training_envs(own, number)
        self.agent = algorithm.make_agent(own, self.env, config.seed)
        set_threads(own, self.agent)
        self.config, self.number, self.env_steps, self.trained = own, number, 0, 0
        self.steps = Steps(self.agent, self.env, getattr(own.agent, "rollout_steps", 0), config.seed)

    def open(self):
        """The address where both meet."""
        self.store, port = open_store()
        return f"127.0.0.1:{port}"

    def join(self, address):
        """Meets."""
        self.agent.join(GlooCollective(self.number, WORKERS, getattr(self, "store", address)))
        self.agent.build()

    def run(self, steps):
        """Acts and learns for so many steps of its own."""
        goal = self.env_steps + steps
        while self.env_steps < goal:
            batch = self.steps.rollout() if self.steps.length else self.steps.transitions(1)
            learn(self, batch, batch["rewards"].size * WORKERS)
        return self.env_steps


class RankLoop:
    """By hand: two actors that learn as one."""

    def __init__(self, task, placement):
        actor = ray.remote(num_cpus=0.5)(Rank)
        self.ranks, self.piece, self.env_steps = [actor.remote(task, n) for n in range(WORKERS)], TASKS[task][1], 0
        address = ray.get(self.ranks[0].open.remote())
        ray.get([rank.join.remote(address) for rank in self.ranks])

    def __call__(self):
        """A piece."""
        self.env_steps = WORKERS * ray.get([rank.run.remote(self.piece // WORKERS) for rank in self.ranks])[0]

    def close(self):
        """Ends the actors."""
        for rank in self.ranks:
            ray.kill(rank)


HANDS = {
    "local": Loop,
    "environments_apart": Loop,
    "fused": FusedLoop,
    "single_learner_coarse": RemoteLoop,
    "multi_learner": RankLoop,
}


def compared(task, placement, rounds):
    """The row of a case."""
    print(f"{task}, {placement}", flush=True)
    ours, hand = Training(task, placement), HANDS[placement](task, placement)
    try:
        seconds = alternating({"rlweave": ours, "by hand": hand}, rounds)
        pieces = (rounds + 1) * ours.piece
        for contestant in (ours, hand):
            assert pieces <= contestant.env_steps < 1.1 * pieces, (contestant, contestant.env_steps, pieces)
        lag = round(ours.lag(), 2)
    finally:
        ours.close()
        hand.close()
    return {**row(f"{task}, {placement}", seconds, "rlweave", "by hand", BAR, ours.piece), "lag": lag}


def main():
    """Prints a table, and one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--placements", nargs="+", choices=HANDS, default=list(HANDS))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--rounds", type=int, default=5, help="pieces of each contestant (default: 5)")
    options = parser.parse_args()
    rows = [
        compared(task, placement, options.rounds)
        for placement in options.placements
        for task in options.tasks
        if placement != "fused" or task != "ppo-pong-shaped"  # its environment is not written in ops
    ]
    report("placements", rows, "learning on; the agents and environments are the same")


if __name__ == "__main__":
    main()
