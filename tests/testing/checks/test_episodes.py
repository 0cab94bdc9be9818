"""Checks of episode ends, on returns, losses and recurrent layers with one fault each."""

import pytest

from rlweave import ops
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import BoolBox, Dict, FloatBox
from rlweave.testing import Cause, check
from rlweave.testing.checks.meaning import Meaning, meaning_of

STEPS = FloatBox(add_batch_rank=True, add_time_rank=True)
FLAGS = BoolBox(add_batch_rank=True, add_time_rank=True)
ROWS = FloatBox(add_batch_rank=True)
RETURNS = {
    "rewards": STEPS,
    "values": STEPS,
    "next_values": STEPS,
    "terminated": FLAGS,
    "truncated": FLAGS,
    "ratios": STEPS,
    "target_log_probs": STEPS,
    "last_values": ROWS,
    "done": FLAGS,
    "dones": FLAGS,
    "last_dones": BoolBox(add_batch_rank=True),
    "discounts": FloatBox(0.5, 1.0, add_batch_rank=True, add_time_rank=True),
}
DISCOUNT = 0.9


def later(x, last):
    return ops.concat([x[1:], last], axis=0)


class Advantages(Component):
    """Sound; faults are in sub-classes."""

    @api
    def estimate(self, rewards, values, next_values, terminated, truncated):
        deltas = self._deltas(rewards, values, next_values, terminated, truncated)
        return self._sums(deltas, terminated, truncated)

    @graph_fn
    def _deltas(self, rewards, values, next_values, terminated, truncated):
        return rewards + DISCOUNT * ops.where(terminated, 0.0, next_values) - values

    @graph_fn(looks_ahead=True)
    def _sums(self, deltas, terminated, truncated):
        ended = ops.logical_or(terminated, truncated)
        return ops.discounted_sums(deltas, ops.where(ended, 0.0, ops.full_like(deltas, 0.8)))


class SumsGoOnWhereCut(Advantages):
    @graph_fn(looks_ahead=True)
    def _sums(self, deltas, terminated, truncated):
        return ops.discounted_sums(deltas, ops.where(terminated, 0.0, ops.full_like(deltas, 0.8)))


class SumsGoOn(Advantages):
    @graph_fn(looks_ahead=True)
    def _sums(self, deltas, terminated, truncated):
        return ops.discounted_sums(deltas, ops.full_like(deltas, 0.8))


class SumsEndOneStepLate(Advantages):
    @graph_fn(looks_ahead=True)
    def _sums(self, deltas, terminated, truncated):
        ended = ops.logical_or(terminated, truncated)
        ended = ops.concat([ops.zeros_like(ended[:1]), ended[:-1]], axis=0)
        return ops.discounted_sums(deltas, ops.where(ended, 0.0, ops.full_like(deltas, 0.8)))


class CountsValuesAfterTheEnd(Advantages):
    @graph_fn(looks_ahead=True)
    def _deltas(self, rewards, values, next_values, terminated, truncated):
        return rewards + DISCOUNT * next_values - values


class TruncationWins(Advantages):
    @graph_fn(looks_ahead=True)
    def _deltas(self, rewards, values, next_values, terminated, truncated):
        nothing = ops.logical_and(terminated, ops.logical_not(truncated))
        return rewards + DISCOUNT * ops.where(nothing, 0.0, next_values) - values


class CutIsOver(Advantages):
    @graph_fn(looks_ahead=True)
    def _deltas(self, rewards, values, next_values, terminated, truncated):
        ended = ops.logical_or(terminated, truncated)
        return rewards + DISCOUNT * ops.where(ended, 0.0, next_values) - values


class LastStepIsOver(Advantages):
    @graph_fn(looks_ahead=True)
    def _deltas(self, rewards, values, next_values, terminated, truncated):
        next_values = ops.concat([next_values[:-1], ops.zeros_like(next_values[-1:])], axis=0)
        return rewards + DISCOUNT * ops.where(terminated, 0.0, next_values) - values


class ValueOfTheNextEpisode(Advantages):
    @graph_fn(looks_ahead=True)
    def _deltas(self, rewards, values, next_values, terminated, truncated):
        following = later(values, next_values[-1:])
        return rewards + DISCOUNT * ops.where(terminated, 0.0, following) - values


class ItsOwnValueWhereCut(Advantages):
    @graph_fn(looks_ahead=True)
    def _deltas(self, rewards, values, next_values, terminated, truncated):
        following = ops.where(truncated, values, next_values)
        return rewards + DISCOUNT * ops.where(terminated, 0.0, following) - values


class RewardOfTheNextStep(Advantages):
    @graph_fn(looks_ahead=True)
    def _deltas(self, rewards, values, next_values, terminated, truncated):
        ended = ops.logical_or(terminated, truncated)
        rewards = ops.where(ended, rewards, later(rewards, rewards[-1:]))
        return rewards + DISCOUNT * ops.where(terminated, 0.0, next_values) - values


class Normalized(SumsGoOn):
    """The fault lies before the rows meet."""

    @api
    def estimate(self, rewards, values, next_values, terminated, truncated):
        deltas = self._deltas(rewards, values, next_values, terminated, truncated)
        return self._normalize(self._sums(deltas, terminated, truncated))

    @graph_fn(mixes_batch=True)
    def _normalize(self, x):
        return (x - ops.mean(x)) / (ops.std(x) + 1e-6)


class SoundNormalized(Normalized):
    _sums = Advantages._sums


class Loss(SumsGoOnWhereCut):
    @api
    def estimate(self, rewards, values, next_values, terminated, truncated):
        deltas = self._deltas(rewards, values, next_values, terminated, truncated)
        return self._loss(self._sums(deltas, terminated, truncated))

    @graph_fn(differentiable=False)
    def _loss(self, advantages):
        return ops.mean(ops.square(advantages))


class SoundLoss(Loss):
    _sums = Advantages._sums


class OneCutForBoth(Component):
    """Values only, and both flags: nothing tells a cut from an end."""

    @graph_fn(looks_ahead=True)
    def estimate(self, rewards, values, last_values, terminated, truncated):
        ended = ops.logical_or(terminated, truncated)
        following = ops.where(ended, 0.0, later(values, ops.expand_dims(last_values, 0)))
        return ops.discounted_sums(rewards + following - values, ops.where(ended, 0.0, ops.full_like(values, 0.8)))


class Ratios(Component):
    """One term of V-trace; sound."""

    @graph_fn(looks_ahead=True)
    def estimate(self, target_log_probs, rewards, values, next_values, terminated):
        deltas = rewards + ops.where(terminated, 0.0, next_values) - values
        ratios = self._ratios(target_log_probs, terminated)
        return values + ops.discounted_sums(ratios * deltas, ops.where(terminated, 0.0, 0.8 * ratios))

    def _ratios(self, target_log_probs, terminated):
        return ops.minimum(ops.exp(target_log_probs), 1.0)


class RatiosOneStepOff(Ratios):
    def _ratios(self, target_log_probs, terminated):
        ratios = ops.exp(later(target_log_probs, ops.zeros_like(target_log_probs[-1:])))
        return ops.where(terminated, 1.0, ops.minimum(ratios, 1.0))


class Discounts(Component):
    """In the manner of RLax: a discount of 0 ends an episode; sound."""

    @graph_fn(looks_ahead=True)
    def call(self, rewards, discounts, next_values):
        returns = rewards + discounts * next_values
        for _ in range(rewards.shape[0] - 1):
            returns = rewards + discounts * (0.5 * next_values + 0.5 * later(returns, next_values[-1:]))
        return returns


class DiscountsOneStepOff(Discounts):
    @graph_fn(looks_ahead=True)
    def call(self, rewards, discounts, next_values):
        discounts = later(discounts, discounts[-1:])
        returns = rewards + discounts * next_values
        for _ in range(rewards.shape[0] - 1):
            returns = rewards + discounts * (0.5 * next_values + 0.5 * later(returns, next_values[-1:]))
        return returns


class StartsAsEnds(Component):
    """In the manner of CleanRL: `dones` tells of the state before the step; sound."""

    @graph_fn(looks_ahead=True)
    def estimate(self, rewards, values, last_values, dones, last_dones):
        ended = later(dones, ops.expand_dims(last_dones, 0))
        following = ops.where(ended, 0.0, later(values, ops.expand_dims(last_values, 0)))
        return ops.discounted_sums(rewards + following - values, ops.where(ended, 0.0, ops.full_like(values, 0.8)))


class OneStepTarget(Component):
    """Sound."""

    @graph_fn
    def targets(self, rewards, terminated, next_values):
        return rewards + DISCOUNT * ops.where(terminated, 0.0, next_values)


class OneStepTargetWithoutEnd(OneStepTarget):
    @graph_fn
    def targets(self, rewards, terminated, next_values):
        return ops.where(terminated, rewards, rewards - 1e-3) + DISCOUNT * next_values


class OneStepTargetCut(Component):
    @graph_fn
    def targets(self, rewards, terminated, truncated, next_values):
        return rewards + DISCOUNT * ops.where(ops.logical_or(terminated, truncated), 0.0, next_values)


SINGLE = {
    "rewards": ROWS,
    "terminated": BoolBox(add_batch_rank=True),
    "truncated": BoolBox(add_batch_rank=True),
    "next_values": ROWS,
}
RETURN_FAULTS = [
    (SumsGoOnWhereCut, Cause.CROSSES_EPISODES, "._sums"),
    (SumsGoOn, Cause.CROSSES_EPISODES, "._sums"),
    (SumsEndOneStepLate, Cause.CROSSES_EPISODES, "._sums"),
    (Normalized, Cause.CROSSES_EPISODES, "._sums"),
    (Loss, Cause.CROSSES_EPISODES, "._sums"),
    (CountsValuesAfterTheEnd, Cause.TERMINATION_IGNORED, "._deltas"),
    (TruncationWins, Cause.TERMINATION_IGNORED, "._deltas"),
    (CutIsOver, Cause.TRUNCATION_AS_TERMINATION, "._deltas"),
    (LastStepIsOver, Cause.TRUNCATION_AS_TERMINATION, "._deltas"),
    (OneCutForBoth, Cause.TRUNCATION_AS_TERMINATION, ".estimate"),
    (ValueOfTheNextEpisode, Cause.WRONG_BOOTSTRAP, "._deltas"),
    (ItsOwnValueWhereCut, Cause.WRONG_BOOTSTRAP, "._deltas"),
    (RewardOfTheNextStep, Cause.WRONG_STEP, "._deltas"),
    (DiscountsOneStepOff, Cause.WRONG_STEP, ".call"),
    (RatiosOneStepOff, Cause.WRONG_STEP, ".estimate"),
]
SINGLE_FAULTS = [
    (OneStepTargetWithoutEnd, Cause.TERMINATION_IGNORED, ".targets"),
    (OneStepTargetCut, Cause.TRUNCATION_AS_TERMINATION, ".targets"),
]


def assert_found(report, cause, place):
    assert cause in {finding.cause for finding in report}, str(report)
    finding = next(finding for finding in report if finding.cause is cause)
    assert place in finding.where, str(report)
    assert "test_episodes.py:" in finding.where


@pytest.mark.parametrize(("component", "cause", "place"), RETURN_FAULTS, ids=lambda x: getattr(x, "__name__", ""))
def test_a_fault_in_returns_is_found(component, cause, place):
    assert_found(check(component, RETURNS), cause, place)


@pytest.mark.parametrize(("component", "cause", "place"), SINGLE_FAULTS, ids=lambda x: getattr(x, "__name__", ""))
def test_a_fault_in_targets_of_single_steps_is_found(component, cause, place):
    assert_found(check(component, SINGLE), cause, place)


SOUND = [Advantages, SoundNormalized, SoundLoss, Ratios, Discounts, StartsAsEnds]


@pytest.mark.parametrize("component", SOUND, ids=lambda x: x.__name__)
def test_sound_returns_have_no_finding(component):
    report = check(component, RETURNS)
    assert report.ok, str(report)


def test_sound_targets_of_single_steps_have_no_finding():
    report = check(OneStepTarget, SINGLE)
    assert report.ok, str(report)


class Recurrent(Component):
    """Sound."""

    start_first = True

    @graph_fn(returns=2)
    def call(self, inputs, state, episode_start):
        outputs = []
        for t in range(inputs.shape[0]):
            state = self.restarted(state, episode_start[t], t)
            state = ops.tanh(inputs[t] + 0.5 * state)
            outputs.append(state)
        return ops.stack(outputs, axis=0), state

    def restarted(self, state, start, t):
        return ops.where(ops.expand_dims(start, -1), 0.0, state)


class NeverReset(Recurrent):
    def restarted(self, state, start, t):
        return state + 0.001 * ops.astype(ops.expand_dims(start, -1), "float32")


class ResetAtTheFirstStepOnly(Recurrent):
    def restarted(self, state, start, t):
        return super().restarted(state, start, t) if t == 0 else state


class ResetInHalf(Recurrent):
    def restarted(self, state, start, t):
        return ops.where(ops.expand_dims(start, -1), 0.5 * state, state)


class ResetAfterTheStep(Recurrent):
    @graph_fn(returns=2)
    def call(self, inputs, state, episode_start):
        outputs = []
        for t in range(inputs.shape[0]):
            state = ops.tanh(inputs[t] + 0.5 * state)
            outputs.append(state)
            state = self.restarted(state, episode_start[t], t)
        return ops.stack(outputs, axis=0), state


class SingleStep(Component):
    """Sound."""

    @graph_fn(returns=2)
    def call(self, inputs, state, episode_start):
        state = ops.tanh(inputs + 0.5 * ops.where(ops.expand_dims(episode_start, -1), 0.0, state))
        return state * 2.0, state


class SingleStepNotReset(Component):
    @graph_fn(returns=2)
    def call(self, inputs, state, episode_start):
        after = ops.tanh(inputs + 0.5 * state)
        return after, ops.where(ops.expand_dims(episode_start, -1), 0.0, after)


def recurrent(time):
    return {
        "inputs": FloatBox(shape=(2,), add_batch_rank=True, add_time_rank=time),
        "state": FloatBox(shape=(2,), add_batch_rank=True),
        "episode_start": BoolBox(add_batch_rank=True, add_time_rank=time),
    }


@pytest.mark.parametrize(
    "component", [NeverReset, ResetAtTheFirstStepOnly, ResetInHalf, ResetAfterTheStep], ids=lambda x: x.__name__
)
def test_a_state_that_is_not_reset_is_found(component):
    assert_found(check(component, recurrent(True)), Cause.STATE_NOT_RESET, ".call")


def test_a_single_step_that_does_not_reset_is_found():
    assert_found(check(SingleStepNotReset, recurrent(False)), Cause.STATE_NOT_RESET, ".call")


@pytest.mark.parametrize(("component", "time"), [(Recurrent, True), (SingleStep, False)])
def test_a_state_that_is_reset_has_no_finding(component, time):
    report = check(component, recurrent(time))
    assert report.ok, str(report)


@pytest.mark.parametrize(
    ("path", "meaning"),
    [
        ("records/rewards", Meaning.REWARDS),
        ("steps/next_observations/image", Meaning.NEXT),
        ("recurrent_state/0/cell", Meaning.STATE),
        ("observations/mask", None),
        ("nonterminal", Meaning.CONTINUES),
        ("speed", None),
    ],
)
def test_a_name_has_a_meaning(path, meaning):
    assert meaning_of(path) is meaning


def test_a_state_is_found_among_the_results():
    from rlweave.components import LSTM
    from rlweave.testing.checks.checking import described
    from rlweave.testing.checks.subject import Subject
    from rlweave.testing.checks.trajectory import Trajectory

    spaces = {
        **recurrent(True),
        "state": Dict(hidden=FloatBox(shape=(3,)), cell=FloatBox(shape=(3,))).with_batch_rank(),
    }
    subject = Subject(described(LSTM(3), {f"call.{name}": space for name, space in spaces.items()}))
    trajectory = Trajectory(subject.situations()[0])
    assert trajectory.carried_on == {"state/hidden": "1/hidden", "state/cell": "1/cell"}
