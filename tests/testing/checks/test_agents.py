"""`check_agent`: agents with one fault each, and the library's own."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TransformObservation

from rlweave import graph, ops
from rlweave.agents.a2c import A2C, A2CGraph
from rlweave.agents.dqn import DQN, DQNGraph
from rlweave.agents.ppo import PPO, PPOGraph
from rlweave.agents.sac import SAC
from rlweave.agents.td3 import TD3, DeterministicGraph
from rlweave.components import GeneralizedAdvantageEstimation, Temperature
from rlweave.errors import ConfigError
from rlweave.graph import api, graph_fn
from rlweave.testing import Cause, check_agent

pytest.importorskip("torch")

SMALL = {"network": [{"type": "dense", "units": 8, "activation": "tanh"}]}


class NoBootstrap(GeneralizedAdvantageEstimation):
    @graph_fn(differentiable=False, looks_ahead=True, returns=2)
    def estimate(self, rewards, values, next_values, terminated, truncated):
        ended = ops.logical_or(terminated, truncated)
        return super().estimate(rewards, values, next_values, ended, ended)


class CutsAsEnds(PPO):
    def graph_arguments(self):
        return super().graph_arguments() | {"advantages": NoBootstrap(0.99, 0.95)}


class EndlessReturns(GeneralizedAdvantageEstimation):
    @graph_fn(differentiable=False, looks_ahead=True, returns=2)
    def estimate(self, rewards, values, next_values, terminated, truncated):
        ended = ops.logical_or(terminated, truncated)
        return super().estimate(rewards, values, next_values, ops.zeros_like(terminated), ended)


class IgnoresEnds(PPO):
    def graph_arguments(self):
        return super().graph_arguments() | {"advantages": EndlessReturns(0.99, 0.95)}


class PolicyOnly(PPOGraph):
    def trained(self):
        return self.policy.variables()


class ForgetsTheCritic(PPO):
    graph_class = PolicyOnly


class LossUpsideDown(DQNGraph):
    def learn(self, records, weights):
        loss, errors = self._loss(records, weights)
        graph.metrics(self.optimizer.step(self._negative(loss), self.policy.variables()))
        return loss, errors

    @graph_fn
    def _negative(self, loss):
        return -loss


class Climbs(DQN):
    graph_class = LossUpsideDown


class TrainsTheTarget(DQNGraph):
    def learn(self, records, weights):
        result = super().learn(records, weights)
        self._drift()
        return result

    @api
    def _drift(self):
        self._push(self.target_policy.variables(trainable=None))

    @graph_fn
    def _push(self, variables):
        for variable in variables:
            variable.assign(variable.value + 0.01)


class MovesItsTarget(DQN):
    graph_class = TrainsTheTarget


class TurnedPriorities(DQNGraph):
    @api(static=("batch_size",))
    def update(self, batch_size):
        records, indices, weights = self.memory.sample(batch_size)
        loss, errors = self.learn(records, weights)
        self.memory.update_priorities(indices, self._turned(errors))
        return loss

    @graph_fn(mixes_batch=True)
    def _turned(self, errors):
        return ops.flip(errors, 0)


class PrioritiesTurned(DQN):
    graph_class = TurnedPriorities


class CountsTwice(DQN):
    def collect(self, env_id, step):
        super().collect(env_id, step)
        self.env_steps += bool(step["terminated"])


class HalfSaved(DQN):
    def state_dict(self, memory=True):
        return {**super().state_dict(memory), "dqn/optimizer/steps": np.zeros((), np.int32)}


class LearnsWhereItLooks(PPO):
    def act(self, observations, *arguments, explore=True, **keywords):
        if not explore:
            self.count_steps(len(observations))
        return super().act(observations, *arguments, explore=explore, **keywords)


class WrongLogProbs(PPO):
    def act(self, *arguments, **keywords):
        actions, stored, after = super().act(*arguments, **keywords)
        return actions, {**stored, "log_probs": stored["log_probs"] - 0.1}, after


class OutOfSpace(A2C):
    def env_actions(self, actions):
        return super().env_actions(actions) * 2.0


class Overrun(SAC):
    """Actions beyond the bounds, which a run of steps refuses before anything else is seen."""

    def env_actions(self, actions):
        return super().env_actions(actions) * 2.0


class Narrow(SAC):
    def env_actions(self, actions):
        return super().env_actions(actions) * 0.5


class OneMemory(A2C):
    def act(self, observations, recurrent_state=(), episode_start=None, *arguments, **keywords):
        ended = None if episode_start is None else np.zeros_like(episode_start)
        return super().act(observations, recurrent_state, ended, *arguments, **keywords)


class NoMemory(A2C):
    def act(self, observations, recurrent_state=(), episode_start=None, *arguments, **keywords):
        begins = None if episode_start is None else np.ones_like(episode_start)
        return super().act(observations, recurrent_state, begins, *arguments, **keywords)


class PolicyDownhillGraph(DeterministicGraph):
    @graph_fn
    def _policy_loss(self, values):
        return ops.mean(values[:, 0])


class PolicyDownhill(TD3):
    graph_class = PolicyDownhillGraph


class AdvantagesUpsideDownGraph(A2CGraph):
    def _loss(self, rows):
        return super()._loss({**rows, "advantages": self._negative(rows["advantages"])})

    @graph_fn
    def _negative(self, advantages):
        return -advantages


class AdvantagesUpsideDown(A2C):
    graph_class = AdvantagesUpsideDownGraph


class TurnedTemperature(Temperature):
    @graph_fn
    def _loss(self, log_probs):
        return -super()._loss(log_probs)


class TemperatureUpsideDown(SAC):
    def graph_arguments(self):
        return super().graph_arguments() | {"temperature": TurnedTemperature(-1.0, 1.0)}


class RewardsOfOtherEnvironments(A2C):
    """A rollout (B, T) that is reshaped, and not transposed, to (T, B)."""

    def observed(self):
        batch = super().observed()
        return {**batch, "rewards": batch["rewards"].T.reshape(batch["rewards"].shape)}


class ResetObservations(A2C):
    """What follows the last step of an episode is the first observation of the next one."""

    def observed(self):
        batch = super().observed()
        following = np.concatenate([batch["observations"][1:], batch["next_observations"][-1:]])
        return {**batch, "next_observations": following}


class SeededWhereItActs(DQN):
    def act(self, *arguments, **keywords):
        self.acting.reseed(3)
        return super().act(*arguments, **keywords)


RECURRENT = {"network": [{"type": "gru", "units": 4}]}

FAULTS = [
    (CutsAsEnds, "CartPole-v1", Cause.TRUNCATION_AS_TERMINATION),
    (IgnoresEnds, "CartPole-v1", Cause.TERMINATION_IGNORED),
    (ForgetsTheCritic, "CartPole-v1", Cause.WEIGHTS_STAY),
    (Climbs, "CartPole-v1", Cause.LOSS_STAYS),
    (MovesItsTarget, "CartPole-v1", Cause.WRONG_WEIGHTS_MOVE),
    (PrioritiesTurned, "CartPole-v1", Cause.PRIORITY_OF_ANOTHER_ROW),
    (CountsTwice, "CartPole-v1", Cause.COUNTED_TWICE),
    (HalfSaved, "CartPole-v1", Cause.RESUME_DIFFERS),
    (LearnsWhereItLooks, "CartPole-v1", Cause.EVALUATION_LEARNS),
    (WrongLogProbs, "CartPole-v1", Cause.PROBABILITIES_DIFFER),
    (PolicyDownhill, "Pendulum-v1", Cause.LOSS_SIGN),
    (AdvantagesUpsideDown, "CartPole-v1", Cause.LOSS_SIGN),
    (TemperatureUpsideDown, "Pendulum-v1", Cause.LOSS_SIGN),
    (RewardsOfOtherEnvironments, "CartPole-v1", Cause.WRONG_STEP),
    (ResetObservations, "CartPole-v1", Cause.WRONG_BOOTSTRAP),
    (SeededWhereItActs, "CartPole-v1", Cause.NOT_RANDOM),
]


@pytest.mark.parametrize(("agent", "env", "cause"), FAULTS, ids=lambda x: getattr(x, "__name__", ""))
def test_a_fault_of_an_agent_is_found(agent, env, cause):
    report = check_agent(agent, env, SMALL, functions=False)
    assert cause in {finding.cause for finding in report}, str(report)


@pytest.mark.parametrize(("agent", "cause"), [(OneMemory, Cause.STATE_NOT_RESET), (NoMemory, Cause.UNUSED_INPUT)])
def test_a_fault_of_a_memory_is_found(agent, cause):
    report = check_agent(agent, "CartPole-v1", RECURRENT, functions=False)
    assert cause in {finding.cause for finding in report}, str(report)


@pytest.mark.parametrize("agent", [Overrun, Narrow])
def test_actions_beyond_and_far_within_their_bounds_are_found(agent):
    report = check_agent(agent, "Pendulum-v1", SMALL, functions=False)
    assert {finding.cause for finding in report} == {Cause.ACTION_OUTSIDE}, str(report)


AGENTS = [
    ("ppo", "CartPole-v1"),
    ("a2c", "CartPole-v1"),
    ("dqn", "CartPole-v1"),
    ("sac", "Pendulum-v1"),
]


@pytest.mark.parametrize(("algorithm", "env"), AGENTS)
def test_no_false_alarm_on_agents_of_the_library(algorithm, env):
    report = check_agent(algorithm, env, functions=False)
    assert report.ok, str(report)
    assert len(report.done) > 12


MORE_AGENTS = [
    ("impala", "CartPole-v1"),
    ("appo", "CartPole-v1"),
    ("td3", "Pendulum-v1"),
    ("ddpg", "Pendulum-v1"),
    ("pqn", "CartPole-v1"),
    ("ppo", "Pendulum-v1"),
    ("dqn", "rlweave/GridWorld-v0"),
]
THOROUGH = pytest.mark.thorough
#: A3C's agent is A2C's, and other recurrent ones follow below.
REPEATED = [("ppo", "rlweave/CueRecall-v0"), ("dqn", "rlweave/CueRecall-v0"), ("a3c", "CartPole-v1")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "env"), [*MORE_AGENTS, *(pytest.param(*agent, marks=THOROUGH) for agent in REPEATED)]
)
def test_no_false_alarm_on_more_agents_of_the_library(algorithm, env):
    report = check_agent(algorithm, env, functions=False)
    assert report.ok, str(report)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "env"),
    [
        pytest.param(*agent, marks=() if agent == ("dqn", "CartPole-v1") else THOROUGH)
        for agent in (*AGENTS, *MORE_AGENTS, *REPEATED)
    ],
)
def test_no_false_alarm_on_functions_of_agents_of_the_library(algorithm, env):
    report = check_agent(algorithm, env)
    assert report.ok, str(report)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "env", "settings"),
    [
        ("ppo", "CartPole-v1", {"network": [{"type": "lstm", "units": 8}]}),
        pytest.param("dqn", "CartPole-v1", {"network": [{"type": "lstm", "units": 8}]}, marks=THOROUGH),
        pytest.param("ppo", "rlweave/MaskedRecall-v0", {}, marks=THOROUGH),
        pytest.param("pqn", "CartPole-v1", {"network": [{"type": "lstm", "units": 8}]}, marks=THOROUGH),
        ("dqn", "rlweave/MaskedRecall-v0", {}),
        pytest.param(
            "ppo",
            "CartPole-v1",
            {"epochs": 3, "minibatches": 3, "normalize_observations": True},
            marks=THOROUGH,
        ),
        ("ppo", "CartPole-v1", {"normalize_observations": True, "normalize_rewards": True, "value_clip": 0.2}),
        ("ppo", "CartPole-v1", {"acting_backend": "numpy"}),
        ("dqn", "CartPole-v1", {"target_update_interval": 1, "memory_place": "graph"}),
        ("sac", "Pendulum-v1", {"learn_temperature": False, "tau": 1.0, "n_step": 3, "prioritized": True}),
        ("td3", "Pendulum-v1", {"policy_delay": 3}),
        ("appo", "CartPole-v1", {"off_policy_correction": "none"}),
    ],
)
def test_no_false_alarm_with_other_settings(algorithm, env, settings):
    named = {f"agent.{name}": value for name, value in settings.items()}
    report = check_agent(algorithm, env, named, functions=False)
    assert report.ok, str(report)


def zeros(space):
    """The value of a space in which all numbers are 0."""
    if isinstance(space, spaces.Dict):
        return {key: zeros(child) for key, child in space.items()}
    return np.zeros(space.shape, space.dtype)


class FewObservations(gymnasium.Env):
    """Two actions, the second of which is right.

    Args:
        observation_space: What it shows are zeros of it.
        length: Of its episodes.
    """

    action_space = spaces.Discrete(2)

    def __init__(self, observation_space, length=1):
        self.observation_space, self.length, self.step_number = observation_space, length, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = 0
        return zeros(self.observation_space), {}

    def step(self, action):
        self.step_number += 1
        reward = float(action + 0.1 * self.np_random.normal())
        return zeros(self.observation_space), reward, self.step_number >= self.length, False, {}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
@pytest.mark.parametrize(
    ("observations", "length"),
    [
        (spaces.Box(0, 0, (1,)), 1),  # a bandit
        (spaces.Box(-1, 1, (2,)), 4),  # always the same
        (spaces.Box(-1, 1, (0,)), 4),  # nothing at all
        (spaces.Dict(kind=spaces.Discrete(1), zero=spaces.Box(-1, 1, (0,)), none=spaces.Dict()), 4),
    ],
    ids=str,
)
def test_no_false_alarm_where_there_is_little_to_see(algorithm, observations, length):
    report = check_agent(algorithm, lambda: FewObservations(observations, length), functions=False)
    assert report.ok, str(report)


@pytest.mark.slow
def test_no_false_alarm_where_a_leaf_is_empty():
    observations = spaces.Dict(zero=spaces.Box(-1, 1, (0,)), cart=spaces.Box(-np.inf, np.inf, (4,)))

    def make():
        show = lambda seen: {"zero": np.zeros(0, np.float32), "cart": seen}  # noqa: E731
        return TransformObservation(gymnasium.make("CartPole-v1"), show, observations)

    report = check_agent("ppo", make, functions=False)
    assert report.ok, str(report)


def test_an_algorithm_without_a_single_agent_is_refused():
    with pytest.raises(ConfigError, match="single steps"):
        check_agent("es", "CartPole-v1")
