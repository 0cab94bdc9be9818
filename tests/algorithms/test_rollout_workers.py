"""Workers: rollouts hold each environment's own transitions in order, and nothing else."""

import numpy as np
import pytest

from rlweave.agents.sequences import SequenceAccumulator
from rlweave.algorithms.rollout_workers import TrajectoryWorker, TransitionWorker
from rlweave.components import NStepAccumulator
from rlweave.envs import Episode, StepResult


class CountingEnv:
    """Environment b gives the observations 100 b, 100 b + 1, ...; each episode takes `lengths[b]` steps.

    With `skip`, a step after an episode's end is a reset row of that environment, as in foreign NEXT_STEP vectors.
    """

    def __init__(self, lengths, skip=False):
        self.lengths, self.num_envs, self.skip = np.array(lengths), len(lengths), skip
        self.closed = False

    def reset(self, seed=None):
        self.seed = seed
        self.clock = np.zeros(self.num_envs, np.int64)  # transitions so far
        self.inside = np.zeros(self.num_envs, np.int64)
        self.pending = np.zeros(self.num_envs, bool)
        return self.observe()

    def observe(self):
        return (100.0 * np.arange(self.num_envs) + self.clock).astype(np.float32)[:, None]

    def step(self, actions):
        valid = ~self.pending
        self.pending[:] = False
        self.clock += valid
        self.inside += valid
        ended = valid & (self.inside == self.lengths)
        following = self.observe()
        following[ended] += 0.5  # a final observation
        episodes = tuple(
            Episode(int(b), float(self.lengths[b]), int(self.lengths[b]), True) for b in np.flatnonzero(ended)
        )
        self.inside[ended] = 0
        start = ~valid if self.skip else ended
        if self.skip:
            self.pending = ended.copy()
        rewards = np.where(valid, self.clock, -1000.0).astype(np.float32)
        return StepResult(
            self.observe(),
            rewards,
            ended,
            np.zeros_like(ended),
            following,
            valid,
            start,
            ({},) * self.num_envs,
            episodes,
        )

    def begin_step(self, actions):
        self.actions = actions

    def finish_step(self):
        return self.step(self.actions)

    def close(self):
        self.closed = True


class Agent:
    recurrent = False

    def __init__(self):
        self.steps = 0

    def initial_state(self, num_envs):
        return ()

    def act(self, observations, recurrent_state, episode_start):
        return observations[:, 0].astype(np.int32), {"log_probs": -observations[:, 0]} if self.pairs else {}, ()

    pairs = True

    def env_actions(self, actions):
        return actions

    def count_steps(self, steps):
        self.steps += steps


@pytest.mark.parametrize("skip", [False, True])
def test_trajectories_hold_the_next_transitions_of_each_environment(skip):
    worker = TrajectoryWorker(Agent(), CountingEnv([2, 3, 100], skip), 4)
    columns = [[], [], []]
    for _ in range(10):
        batch = worker.sample()
        assert batch["observations"].shape == (4, 3, 1)
        for b in range(3):
            env = int(batch["observations"][0, b, 0]) // 100
            assert skip or env == b
            columns[env] += list(
                zip(
                    batch["observations"][:, b, 0].tolist(),
                    batch["next_observations"][:, b, 0].tolist(),
                    batch["rewards"][:, b].tolist(),
                    batch["terminated"][:, b].tolist(),
                    batch["actions"][:, b].tolist(),
                    batch["log_probs"][:, b].tolist(),
                    strict=True,
                )
            )
    for b, length in enumerate([2, 3, 100]):
        for t in range(len(columns[b])):
            ended = (t + 1) % length == 0
            state = 100.0 * b + t
            assert columns[b][t] == (state, state + 1 + 0.5 * ended, t + 1, ended, int(state), -state)


class RecurrentAgent(Agent):
    """Its state counts the steps of the episode; its actions are the state after the step."""

    recurrent = True

    def initial_state(self, num_envs):
        return {"count": np.zeros((num_envs, 1), np.float32)}

    def act(self, observations, recurrent_state, episode_start):
        after = np.where(episode_start[:, None], 0, recurrent_state["count"]) + 1
        extra = {"recurrent_state": recurrent_state, "episode_start": episode_start}
        if self.pairs:
            extra["log_probs"] = -observations[:, 0]
        return after[:, 0].astype(np.int32), extra, {"count": after}


@pytest.mark.parametrize("skip", [False, True])
def test_recurrent_state_starts_anew_with_each_episode_of_its_environment(skip):
    lengths = [2, 3, 100]
    worker = TrajectoryWorker(RecurrentAgent(), CountingEnv(lengths, skip), 4)
    for _ in range(5):
        batch = worker.sample()
        assert batch.per_trajectory == {"initial_state"}
        for b in range(3):
            env, position = divmod(int(batch["observations"][0, b, 0]), 100)
            inside = (position + np.arange(4)) % lengths[env]
            np.testing.assert_array_equal(batch["actions"][:, b], inside + 1)
            np.testing.assert_array_equal(batch["episode_start"][:, b], inside == 0)
            if inside[0]:  # where an episode starts the state before does not matter
                assert batch["initial_state"]["count"][b, 0] == inside[0]
    worker.start()
    batch = worker.sample()
    assert batch["episode_start"][0].all()
    np.testing.assert_array_equal(batch["initial_state"]["count"], 0)


@pytest.mark.parametrize("skip", [False, True])
def test_sequences_of_recurrent_agents_hold_the_state_that_was_acted_from(skip):
    lengths, agent = [2, 5], RecurrentAgent()
    agent.pairs = False
    worker = TransitionWorker(agent, CountingEnv(lengths, skip), 3, lambda: SequenceAccumulator(1, 4, 0, len(lengths)))
    seen = [0, 0]
    for batch in (worker.sample() for _ in range(12)):
        for i in range(len(batch.data.get("rewards", ()))):
            rows = {name: value[i] for name, value in batch.data.items() if name != "initial_state"}
            b, t = divmod(int(rows["observations"][1, 0]), 100)
            inside = (t + np.arange(-1, 4)) % lengths[b]
            real = rows["mask"]
            np.testing.assert_array_equal(rows["actions"][real], (inside + 1)[real])
            np.testing.assert_array_equal(rows["episode_start"][real], (inside == 0)[real])
            if real.all() and inside[0]:
                assert batch["initial_state"]["count"][i, 0] == inside[0]
            seen[b] += 1
    assert min(seen) >= 6


def test_a_new_start_forgets_what_is_ahead_and_takes_the_seed():
    env = CountingEnv([2, 100], skip=True)
    worker = TrajectoryWorker(Agent(), env, 4)
    worker.sample()
    worker.start(seed=5)
    assert env.seed == 5
    observations = worker.sample()["observations"][..., 0]
    assert sorted(observations[0].tolist()) == [0, 100] or observations[0].tolist() == [100, 104]


class WatchedEnv(CountingEnv):
    """Knows when each transition (environment, number) was made; counts vector steps."""

    def __init__(self, lengths):
        super().__init__(lengths, skip=True)
        self.now, self.made = 0, {}

    def observe(self):
        return (100_000.0 * np.arange(self.num_envs) + self.clock).astype(np.float32)[:, None]

    def step(self, actions):
        self.now += 1
        before, result = self.clock.copy(), super().step(actions)
        self.made.update({(int(b), int(before[b])): self.now for b in np.flatnonzero(result.valid)})
        return result


@pytest.mark.parametrize("agent", [Agent, RecurrentAgent])
def test_no_environment_gets_ahead_without_bound(agent):
    """One of them has twice the transitions of another, for ever."""
    steps, env = 4, WatchedEnv([1, 2, 10_000])
    worker = TrajectoryWorker(agent(), env, steps)
    for _ in range(300):
        for state in worker.sample()["observations"][..., 0].ravel().tolist():
            age = env.now - env.made.pop(divmod(int(state), 100_000))
            assert age <= 4 * steps
        assert len(env.made) < 2 * steps * env.num_envs, "what waits is bounded"


def test_rollouts_are_arrays_of_their_own():
    worker = TrajectoryWorker(Agent(), CountingEnv([100]), 3)
    first = worker.sample()
    kept = first["observations"].copy()
    worker.sample()
    np.testing.assert_array_equal(first["observations"], kept)


def test_episodes_are_reported_once():
    worker = TrajectoryWorker(Agent(), CountingEnv([2, 3]), 6)
    worker.sample()
    lengths = sorted(episode.length for episode in worker.episode_stats())
    assert lengths == [2, 2, 2, 3, 3]
    assert worker.episode_stats() == []


@pytest.mark.parametrize("skip", [False, True])
def test_transitions_count_environment_steps_and_stop_at_episode_ends(skip):
    agent = Agent()
    agent.pairs = False
    env = CountingEnv([2, 5], skip)
    worker = TransitionWorker(agent, env, 2, lambda: NStepAccumulator(3, 0.5, 2))
    batches = [worker.sample() for _ in range(8)]
    assert sum(batch.num_steps for batch in batches) == agent.steps == int(env.clock.sum())
    rows = [batch.data for batch in batches if batch.data]
    observations = np.concatenate([data["observations"][:, 0] for data in rows])
    following = np.concatenate([data["next_observations"][:, 0] for data in rows])
    discounts = np.concatenate([data["discounts"] for data in rows])
    terminated = np.concatenate([data["terminated"] for data in rows])
    assert terminated.any()
    for state, after, discount, ended in zip(observations, following, discounts, terminated, strict=True):
        b, t = divmod(int(state), 100)
        length = [2, 5][b]
        left = length - t % length
        used = min(3, left)
        assert ended == (left <= 3)
        assert after == state + used + 0.5 * ended
        assert discount == (0.0 if ended else 0.5**used)
