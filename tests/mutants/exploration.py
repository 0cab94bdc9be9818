"""Exploration that is wrong: numbers drawn once, twice, outside of the graph or never."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlweave import ops
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import FloatBox, IntBox
from rlweave.testing.checks.findings import Cause
from tests.mutants import bools, floats, mutant


class EpsilonGreedyActions(Component):
    """With probability epsilon a random action, else the best; and the probability of what was drawn."""

    def __init__(self) -> None:
        super().__init__("epsilon-greedy")

    @graph_fn(returns=2)
    def sample_and_log_prob(self, q_values: Any, epsilon: Any) -> Any:
        rows, count = q_values.shape[:-1], q_values.shape[-1]
        lots = self._lots(rows)
        best = ops.argmax(q_values, -1)
        actions = ops.where(lots < epsilon, self._random_actions(rows, count, lots), best)
        chance = epsilon / count + ops.where(ops.equal(actions, best), 1.0 - epsilon, 0.0)
        return actions, ops.log(ops.maximum(chance, 1e-8))

    def _lots(self, rows: Any) -> Any:
        return ops.random.uniform(rows)

    def _random_actions(self, rows: Any, count: int, lots: Any) -> Any:
        return ops.random.randint(rows, 0, count)


class ExploresForAllAtOnce(EpsilonGreedyActions):
    """SB3's DQN.predict: one number decides for all environments of a batch whether they explore."""

    def _lots(self, rows: Any) -> Any:
        return ops.zeros(rows) + ops.random.uniform(())


class ExploresByAnotherDistribution(EpsilonGreedyActions):
    """autonomous-learning-library #233: randn() was compared with epsilon in place of rand()."""

    def _lots(self, rows: Any) -> Any:
        return ops.random.normal(rows)


class OneNumberForTwoDecisions(EpsilonGreedyActions):
    """mujoco_playground #349 in small: the number that says whether to explore says which action it is, too."""

    def _random_actions(self, rows: Any, count: int, lots: Any) -> Any:
        return ops.astype(lots * count, "int32")


class RandomActions(Component):
    """With probability epsilon a random action, else the best."""

    def __init__(self) -> None:
        super().__init__("random-actions")

    @graph_fn
    def explore(self, q_values: Any, epsilon: Any) -> Any:
        rows = q_values.shape[:-1]
        drawn = ops.random.randint(rows, 0, self._end(q_values.shape[-1]))
        return ops.where(ops.random.uniform(rows) < epsilon, drawn, ops.argmax(q_values, -1))

    def _end(self, count: int) -> int:
        return count


class NeverTheLastAction(RandomActions):
    """simple_dqn #11 first wrote the other mistake: randint() of Python includes its upper bound, that of NumPy not."""

    def _end(self, count: int) -> int:
        return count - 1


class ActionNoise(Component):
    """Independent noise on actions."""

    def __init__(self) -> None:
        super().__init__("action-noise")

    @graph_fn
    def explore(self, actions: Any) -> Any:
        return ops.clip(actions + 0.2 * self._noise(actions), -1.0, 1.0)

    def _noise(self, actions: Any) -> Any:
        return ops.random.normal(actions.shape)


class NoiseSharedByEnvironments(ActionNoise):
    """SB3 #33 and #1618: one noise process served all environments of a vector."""

    def _noise(self, actions: Any) -> Any:
        return ops.random.normal(actions.shape[1:])


class StartStates(Component):
    """Random positions and velocities around those that are given."""

    def __init__(self) -> None:
        super().__init__("start-states")

    @graph_fn(returns=2)
    def sample(self, positions: Any, velocities: Any) -> Any:
        noise = ops.random.normal(positions.shape)
        return positions + 0.1 * noise, velocities + 0.1 * self._second(noise)

    def _second(self, noise: Any) -> Any:
        return ops.random.normal(noise.shape)


class StartStatesOfOneKey(StartStates):
    """mujoco_playground #349: positions and velocities were drawn with one key, and moved together."""

    def _second(self, noise: Any) -> Any:
        return noise


class NoisyLayer(Component):
    """A layer with noise on its weights, as in NoisyNet."""

    def __init__(self) -> None:
        super().__init__("noisy")

    def create_variables(self, inputs: Any) -> None:
        shape = (inputs.shape[-1], 3)
        self.kernel = self.variable("kernel", shape, "standard_normal")
        self.spread = self.variable("spread", shape, 0.5)

    @graph_fn
    def explore(self, inputs: Any) -> Any:
        return ops.matmul(inputs, self.kernel.value + self.spread.value * self._noise(self.kernel.shape))

    def _noise(self, shape: Any) -> Any:
        return ops.random.normal(shape)


class NoiseThatStays(NoisyLayer):
    """Dopamine #189: every call used the same random key, so that the noise was a constant."""

    def create_variables(self, inputs: Any) -> None:
        super().create_variables(inputs)
        self.drawn = self.variable("drawn", self.kernel.shape, "standard_normal", trainable=False)

    def _noise(self, shape: Any) -> Any:
        return self.drawn.value


class NoisyPolicy(Component):
    """A layer whose weights are noisy while it explores."""

    def __init__(self) -> None:
        super().__init__("noisy-policy")

    def create_variables(self, inputs: Any) -> None:
        self.kernel = self.variable("kernel", (inputs.shape[-1], 3), "standard_normal")

    @api(static=("explore",))
    def call(self, inputs: Any, explore: bool = True) -> Any:
        return self._noisy(inputs) if self._is_noisy(explore) else self._plain(inputs)

    def _is_noisy(self, explore: bool) -> bool:
        return explore

    @graph_fn
    def _noisy(self, inputs: Any) -> Any:
        return ops.matmul(inputs, self.kernel.value + 0.1 * ops.random.normal(self.kernel.shape))

    @graph_fn
    def _plain(self, inputs: Any) -> Any:
        return ops.matmul(inputs, self.kernel.value)


class NoiseInEvaluation(NoisyPolicy):
    """Coach #368, Tianshou #304: exploration noise was added in evaluations, too, whose results did not repeat."""

    def _is_noisy(self, explore: bool) -> bool:
        return True


class DriftingNoise(Component):
    """Ornstein-Uhlenbeck noise; its state is zero where an episode starts."""

    def __init__(self) -> None:
        super().__init__("drift")

    @graph_fn(returns=2)
    def explore(self, actions: Any, state: Any, episode_start: Any) -> Any:
        before = self._before(state, ops.expand_dims(episode_start, -1))
        after = 0.85 * before + 0.2 * ops.random.normal(actions.shape)
        return ops.clip(actions + after, -1.0, 1.0), after

    def _before(self, state: Any, start: Any) -> Any:
        return ops.where(start, 0.0, state)


class DriftOverEpisodes(DriftingNoise):
    """Stable-Baselines #805: in a vector of environments the noise was not reset where a single episode ended."""

    def _before(self, state: Any, start: Any) -> Any:
        return state


# -- what is outside of the graph ------------------------------------------------------------------------------------


class HostNoise(Component):
    """Noise that is made on the host."""

    def __init__(self) -> None:
        super().__init__("host-noise", device="host")

    @graph_fn(host=True, differentiable=False)
    def explore(self, actions: Any) -> Any:
        return np.clip(actions + np.float32(0.2) * self._noise(actions), -1.0, 1.0)

    def _noise(self, actions: Any) -> Any:
        return ops.random.normal(actions.shape)


class HostNoiseOfItsOwnGenerator(HostNoise):
    """SB3's action noise draws from NumPy's global state, which no saved model holds."""

    def __init__(self) -> None:
        super().__init__()
        self._generator = np.random.default_rng(0)

    def _noise(self, actions: Any) -> Any:
        return self._generator.normal(size=actions.shape).astype(np.float32)


class GraphNoise(Component):
    """Noise on observations."""

    def __init__(self) -> None:
        super().__init__("graph-noise")

    @graph_fn
    def explore(self, observations: Any) -> Any:
        return observations + self._noise(observations)

    def _noise(self, observations: Any) -> Any:
        return 0.1 * ops.random.normal(observations.shape)


class NoiseFrozenByCompilation(GraphNoise):
    """TensorFlow #24610 documents it: NumPy's random numbers in a traced function are drawn once, at the trace."""

    def _noise(self, observations: Any) -> Any:
        return np.asarray(0.1 * np.random.normal(size=observations.shape), np.float32)  # noqa: NPY002


class Annealed(Component):
    """Actions with noise that becomes smaller."""

    def __init__(self) -> None:
        super().__init__("annealed")

    @graph_fn
    def explore(self, actions: Any, time_step: Any) -> Any:
        return ops.clip(actions + self._deviation(time_step) * ops.random.normal(actions.shape), -1.0, 1.0)

    def _deviation(self, time_step: Any) -> Any:
        return 0.3 * ops.clip(1.0 - ops.astype(time_step, "float32") / 100.0, 0.1, 1.0)


#: What a training script lowers as it goes.
SETTINGS = {"deviation": 0.3}


class AnnealedByAGlobal(Annealed):
    """As in TensorFlow #24610: what a traced function reads from outside stays as it was at the trace."""

    def _deviation(self, time_step: Any) -> Any:
        return SETTINGS["deviation"]


ENVIRONMENTS = 4


class HostDrift(Component):
    """Drifting noise that keeps its state, for a fixed number of environments."""

    def __init__(self) -> None:
        super().__init__("host-drift", device="host")

    def create_variables(self, actions: Any) -> None:
        self.state = self.variable("state", (ENVIRONMENTS, *actions.shape), 0.0, trainable=False)

    @graph_fn(host=True, differentiable=False, spaces="_spaces")
    def explore(self, actions: Any) -> Any:
        return np.clip(actions + self._drifted(ops.random.normal(actions.shape)), -1.0, 1.0)

    def _drifted(self, noise: Any) -> Any:
        after = np.float32(0.85) * self.state.value + np.float32(0.2) * noise
        self.state.assign(after)
        return after

    def _spaces(self, actions: Any) -> Any:
        return actions


class DriftKeptInAnAttribute(HostDrift):
    """pfrl #183, tensorpack #1094: the explorer's state was no part of what is saved, and exploration began anew."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, Any] = {}

    def _drifted(self, noise: Any) -> Any:
        before = self._kept.get("state", np.float32(0.0))
        self._kept["state"] = np.float32(0.85) * before + np.float32(0.2) * noise
        return self._kept["state"]


_ACTIONS = {"actions": floats(2, low=-1.0, high=1.0)}
_VALUES = {"q_values": floats(3), "epsilon": FloatBox(low=0.05, high=0.95)}

MUTANTS = (
    mutant(EpsilonGreedyActions, ExploresForAllAtOnce, Cause.DRAWN_ONCE, _VALUES),
    mutant(EpsilonGreedyActions, ExploresByAnotherDistribution, Cause.WRONG_FREQUENCIES, _VALUES),
    mutant(EpsilonGreedyActions, OneNumberForTwoDecisions, Cause.WRONG_FREQUENCIES, _VALUES),
    mutant(RandomActions, NeverTheLastAction, Cause.NEVER_CHOSEN, _VALUES),
    mutant(ActionNoise, NoiseSharedByEnvironments, Cause.DRAWN_ONCE, _ACTIONS),
    mutant(StartStates, StartStatesOfOneKey, Cause.DRAWN_TWICE, {"positions": floats(2), "velocities": floats(2)}),
    mutant(NoisyLayer, NoiseThatStays, Cause.NOT_RANDOM, {"inputs": floats(4)}),
    mutant(
        NoisyPolicy,
        NoiseInEvaluation,
        Cause.EVALUATION_DRAWS,
        {"inputs": floats(4)},
        static={"call": {"explore": False}},
    ),
    mutant(
        DriftingNoise,
        DriftOverEpisodes,
        Cause.STATE_NOT_RESET,
        {**_ACTIONS, "state": floats(2, low=-1.0, high=1.0), "episode_start": bools()},
    ),
    mutant(HostNoise, HostNoiseOfItsOwnGenerator, Cause.RANDOMNESS_OUTSIDE, _ACTIONS),
    mutant(GraphNoise, NoiseFrozenByCompilation, Cause.RANDOMNESS_OUTSIDE, {"observations": floats(3)}),
    mutant(Annealed, AnnealedByAGlobal, Cause.RANDOMNESS_OUTSIDE, {**_ACTIONS, "time_step": IntBox(0, 100)}),
    mutant(
        HostDrift,
        DriftKeptInAnAttribute,
        Cause.INCOMPLETE_STATE,
        {"actions": FloatBox(-1.0, 1.0, shape=(2,), add_batch_rank=ENVIRONMENTS)},
        batch_sizes=(ENVIRONMENTS,),
    ),
)
