"""The server of workers that only step environments: rows belong together, whoever is fast, slow, or dies."""

from functools import partial

import gymnasium
import numpy as np
import pytest

from rlweave.algorithms.environment_worker import EnvironmentWorker
from rlweave.algorithms.inference_server import ANSWERS, ITEMS, Rows, Serve
from rlweave.algorithms.rollout_workers import TrajectoryWorker, TransitionWorker
from rlweave.components import NStepAccumulator
from rlweave.envs import make_env
from rlweave.errors import PlanError
from rlweave.flow import NOT_READY, FakeClock, LocalEngine, ParallelRollouts, ReportMetrics, Stream, Union, WorkerGroup
from tests.flow.fakes import SimulatedEngine

STEPS = 4


class Numbered(gymnasium.Env):
    """Observations are (number, episode, step), and rewards say all of it; episodes take number + 2 steps."""

    observation_space = gymnasium.spaces.Box(0, 1000, (3,), np.float32)
    action_space = gymnasium.spaces.Box(0, 1e6, (), np.float32)

    def __init__(self, number):
        self.number, self.episode, self.at = number, -1, 0

    def observe(self):
        return np.array([self.number, self.episode, self.at], np.float32)

    def reset(self, seed=None, options=None):
        self.episode, self.at = self.episode + 1, 0
        return self.observe(), {}

    def step(self, action):
        assert action == code_of(self.observe()), "actions are those chosen for this very observation"
        self.at += 1
        ended = self.at == self.number + 2
        return self.observe(), float(action), ended, False, {}

    def get_state(self):
        return [self.number, self.episode, self.at]

    def set_state(self, state):
        self.number, self.episode, self.at = state


def code_of(observation):
    number, episode, at = np.moveaxis(np.asarray(observation), -1, 0)
    return 10_000 * number + 100 * episode + at


class Agent:
    """Acts by the code of the observation; its recurrent state is the environment's number, and the steps so far."""

    recurrent = True

    def __init__(self):
        self.env_steps = 0
        self.batches = []

    def initial_state(self, rows):
        return {"number": np.full(rows, -1.0), "steps": np.zeros(rows)}

    def act(self, observations, state, episode_start):
        self.batches.append(observations[:, 0].astype(int).tolist())
        state = {name: np.where(episode_start, first, state[name]) for name, first in (("number", -1), ("steps", 0))}
        following = {"number": observations[:, 0], "steps": state["steps"] + 1}
        actions = code_of(observations).astype(np.float32)
        return actions, {"recurrent_state": state} if self.carries else {}, following

    carries = True

    def env_actions(self, actions):
        return actions

    def count_steps(self, steps):
        self.env_steps += steps


def make_worker(numbers):
    return EnvironmentWorker(make_env([partial(Numbered, number) for number in numbers]), 0)


def served(agent, workers, batch_size, wait=None, in_rounds=False, rule="stop", rows=2, transitions=False):
    """A plan whose items are what a server collects from workers with so many environments each."""
    group = WorkerGroup([partial(make_worker, range(rows * n, rows * n + rows)) for n in range(workers)])
    collecting = [TrajectoryWorker(agent, Rows(rows, n), STEPS) for n in range(workers)]
    if transitions:
        accumulator = partial(NStepAccumulator, 2, 0.5, rows)
        collecting = [TransitionWorker(agent, Rows(rows, n), 1, accumulator) for n in range(workers)]
    offers = ParallelRollouts(group).on_error(rule, first_delay=2.0, attempts=2).gather_async()
    serve = Serve(offers.port, agent, collecting, batch_size, wait, in_rounds)
    answered = Stream(serve.outputs[ANSWERS]).reply(group, "act")
    return ReportMetrics(Union(Stream(serve.outputs[ITEMS]), answered, output=ITEMS), group)


def check_columns(item):
    """Checks that each column is of one environment, without a gap, with its own recurrent state."""
    assert item["observations"].shape[:2] == (STEPS, 2)
    for column in range(2):
        before, after = item["observations"][:, column], item["next_observations"][:, column]
        ended = item["terminated"][:, column]
        assert (before[:, 0] == before[0, 0]).all()
        np.testing.assert_array_equal(item["actions"][:, column], code_of(before))
        np.testing.assert_array_equal(item["rewards"][:, column], code_of(before))
        np.testing.assert_array_equal(after, before + np.array([0, 0, 1]))
        np.testing.assert_array_equal(ended, after[:, 2] == before[0, 0] + 2)
        np.testing.assert_array_equal(before[1:][~ended[:-1]], after[:-1][~ended[:-1]])
        state = item["initial_state"]
        assert state["steps"][column] == before[0, 2]
        assert state["number"][column] == (before[0, 0] if before[0, 2] else -1)


@pytest.mark.parametrize("batch_size", [2, 4, 6])
@pytest.mark.parametrize("seconds", [None, (1.0, 1.0, 1.0), (1.0, 2.5, 7.0)], ids=["local", "alike", "unlike"])
def test_rows_of_a_trajectory_are_those_of_one_environment(batch_size, seconds):
    agent, clock = Agent(), FakeClock()
    engine = LocalEngine() if seconds is None else SimulatedEngine(clock, seconds.__getitem__)
    plan = served(agent, 3, batch_size).start(engine, clock)
    ends = {}
    for _, envelope in zip(range(30), plan.items(), strict=False):
        check_columns(envelope.payload)
        where = code_of(envelope.payload["observations"][0]).tolist()
        assert ends.get(envelope.source, where) == where, "a worker's next trajectory begins where the last one ended"
        last = envelope.payload["next_observations"][-1]
        ended = envelope.payload["terminated"][-1]
        ends[envelope.source] = code_of(np.where(ended[:, None], last * [1, 1, 0] + [0, 1, 0], last)).tolist()
    assert set(ends) == {f"parallel_rollouts/{number}" for number in range(3)}
    assert plan.counters.env_steps_sampled + serve_of(plan)._uncounted == 30 * 2 * STEPS
    assert max(map(len, agent.batches)) == batch_size
    assert sorted(agent.batches[-1]) == agent.batches[-1], "rows are in the order of the workers"
    if seconds is None:
        assert {len(batch) for batch in agent.batches} == {batch_size}


def test_who_is_late_is_not_waited_for_longer_than_the_limit():
    clock = FakeClock()
    agent = Agent()
    plan = served(agent, 2, 4, wait=1.5).start(SimulatedEngine(clock, (1.0, 10.0).__getitem__), clock)
    items = [envelope for _, envelope in zip(range(12), plan.items(), strict=False)]
    sources = [envelope.source for envelope in items]
    assert sources.count("parallel_rollouts/0") >= 3 * sources.count("parallel_rollouts/1") > 0
    assert {len(batch) for batch in agent.batches} == {2, 4}
    for envelope in items:
        check_columns(envelope.payload)


def test_in_rounds_who_is_ready_waits_for_the_others():
    agent, clock = Agent(), FakeClock()
    plan = served(agent, 3, 2, in_rounds=True).start(SimulatedEngine(clock, (1.0, 2.0, 5.0).__getitem__), clock)
    sources = [envelope.source for _, envelope in zip(range(12), plan.items(), strict=False)]
    assert sources == [f"parallel_rollouts/{number}" for number in range(3)] * 4
    assert {len(batch) for batch in agent.batches} > {2}, "after a round all are acted for at once"


def test_transitions_of_a_batch_are_one_item():
    agent = Agent()
    agent.carries = False
    plan = served(agent, 2, 4, transitions=True).start()
    items = [envelope.payload for _, envelope in zip(range(9), plan.items(), strict=False)]
    assert [item.num_steps for item in items] == [4] * 9
    rows = np.concatenate([item["observations"] for item in items if item.data])
    codes = code_of(rows).tolist()
    assert len(set(codes)) == len(codes) >= 9 * 4 - 4, "each step begins one transition; the last may not be complete"
    after = np.concatenate([item["next_observations"] for item in items if item.data])
    np.testing.assert_array_equal(after[:, :2], rows[:, :2])


@pytest.mark.parametrize("in_rounds", [False, True])
def test_a_worker_that_dies_is_rows_less_until_it_is_back(in_rounds):
    agent, clock = Agent(), FakeClock()
    engine = SimulatedEngine(clock)
    plan = served(agent, 3, 6, rule="replace", in_rounds=in_rounds).start(engine, clock)
    items = plan.items()
    for _ in range(4):
        next(items)
    for _ in range(7):
        plan.step()
    engine.crash(plan._context.actors(plan.graph.groups()[0])[1])
    agent.batches.clear()
    for _ in range(12):
        check_columns(next(items).payload)
    assert plan.counters.replacements == {"parallel_rollouts": 1}
    assert 4 in map(len, agent.batches), "the others went on meanwhile"
    assert agent.batches[-1] == list(range(6))
    under_way = sum(slot._steps for slot in serve_of(plan)._slots)
    waiting = sum(item.payload.num_steps for item in serve_of(plan)._made) + serve_of(plan)._uncounted
    held = sum(item.payload.num_steps for _, _, item in serve_of(plan)._round)
    assert agent.env_steps == plan.counters.env_steps_sampled + under_way + waiting + held


def serve_of(plan):
    return next(node for node in plan.graph.nodes if isinstance(node, Serve))


@pytest.mark.parametrize("in_rounds", [False, True])
def test_a_worker_that_is_given_up_is_rows_less_for_ever(in_rounds):
    agent, clock = Agent(), FakeClock()
    engine = SimulatedEngine(clock)
    plan = served(agent, 3, 6, rule="replace", in_rounds=in_rounds).start(engine, clock)
    items = plan.items()
    next(items)
    make, engine.create_actors = engine.create_actors, lambda *_: 1 / 0
    engine.crash(plan._context.actors(plan.graph.groups()[0])[1])
    later = [next(items).source for _ in range(12)]
    assert make is not None
    assert set(later[-8:]) == {"parallel_rollouts/0", "parallel_rollouts/2"}
    assert agent.batches[-1] == [0, 1, 4, 5]


def test_a_round_is_whole_when_the_last_one_missing_is_given_up():
    agent, clock = Agent(), FakeClock()
    engine = SimulatedEngine(clock, (1.0, 100.0, 1.0).__getitem__)
    plan = served(agent, 3, 2, rule="replace", in_rounds=True).start(engine, clock)
    engine.create_actors = lambda *_: 1 / 0
    while len(serve_of(plan)._round) < 2:  # 0 and 2 wait for 1
        if plan.pull() is NOT_READY:
            plan.wait()
    engine.crash(plan._context.actors(plan.graph.groups()[0])[1])
    for call in (request.call for request in serve_of(plan)._gather._requested):
        call.lose()
    sources = [envelope.source for _, envelope in zip(range(4), plan.items(), strict=False)]
    assert sources == ["parallel_rollouts/0", "parallel_rollouts/2"] * 2


def test_what_fails_at_the_server_names_it_and_the_workers():
    agent = Agent()
    agent.act = lambda *_: 1 / 0
    with pytest.raises(PlanError, match=r"(?s)'serve' failed: ZeroDivisionError.*parallel_rollouts/0#0, parallel_roll"):
        next(served(agent, 2, 4).start().items())


@pytest.mark.parametrize("in_rounds", [False, True])
@pytest.mark.parametrize("steps", range(1, 60, 7))
def test_cut_and_resumed_equals_uncut(steps, in_rounds):
    def make():
        agent = Agent()
        return agent, served(agent, 3, 4, in_rounds=in_rounds).start()

    def next_items(plan):
        return [envelope.payload.data for _, envelope in zip(range(9), plan.items(), strict=False)]

    agent, plan = make()
    for _ in range(steps):
        plan.step()
    saved, workers = plan.state_dict(), plan.ask_workers("state_dict")
    expected = next_items(plan)
    other, resumed = make()
    resumed.load_state_dict(saved)
    resumed.ask_workers("load_state_dict", [(state, 0) for state in workers])
    np.testing.assert_equal(next_items(resumed), expected)
    assert other.batches == agent.batches[len(agent.batches) - len(other.batches) :]
    assert resumed.counters.env_steps_sampled == plan.counters.env_steps_sampled
