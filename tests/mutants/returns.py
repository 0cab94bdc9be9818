"""Returns and advantages that are wrong: ends of episodes, bootstrap values, steps that are one off."""

from __future__ import annotations

from typing import Any

from rlweave import ops
from rlweave.graph import Component, graph_fn
from rlweave.testing.checks.findings import Cause
from tests.mutants import flags, floats, mutant, steps

DISCOUNT, LAMBDA = 0.99, 0.95

# -- generalized advantage estimation --------------------------------------------------------------------------------


class Advantages(Component):
    """Generalized advantage estimation by a loop over time."""

    def __init__(self) -> None:
        super().__init__("advantages")

    @graph_fn(differentiable=False, looks_ahead=True)
    def estimate(self, rewards: Any, values: Any, next_values: Any, terminated: Any, truncated: Any) -> Any:
        bootstrap = self._bootstrap(values, next_values, terminated, truncated)
        errors = self._rewards(rewards) + DISCOUNT * bootstrap - values
        ended = self._ended(terminated, truncated)

        def step(following: Any, at: Any) -> Any:
            error, end = at
            advantage = error + ops.where(end, 0.0, DISCOUNT * LAMBDA * following)
            return advantage, advantage

        _, advantages = ops.scan(step, ops.zeros_like(errors[0]), (errors, ended), reverse=True)
        return advantages

    def _rewards(self, rewards: Any) -> Any:
        return rewards

    def _bootstrap(self, values: Any, next_values: Any, terminated: Any, truncated: Any) -> Any:
        return ops.where(terminated, 0.0, next_values)

    def _ended(self, terminated: Any, truncated: Any) -> Any:
        return ops.logical_or(terminated, truncated)


class TruncationTakenForTermination(Advantages):
    """CleanRL #198 and #457: terminated and truncated were joined to one done, and nothing was bootstrapped."""

    def _bootstrap(self, values: Any, next_values: Any, terminated: Any, truncated: Any) -> Any:
        return ops.where(self._ended(terminated, truncated), 0.0, next_values)


class TerminalStatesBootstrap(Advantages):
    """What ghliu/pytorch-ddpg #11 and SB3 #1864 suspected: the value after a terminal step is part of its target."""

    def _bootstrap(self, values: Any, next_values: Any, terminated: Any, truncated: Any) -> Any:
        return next_values


class AdvantagesRunOnAfterTruncation(Advantages):
    """skrl #224 and #449: truncated steps were no boundary, so that advantages leaked into the episode before."""

    def _ended(self, terminated: Any, truncated: Any) -> Any:
        return terminated


class BootstrapFromTheStateBefore(Advantages):
    """EmbodiChain #612: a time limit was bootstrapped with the value of the state that was acted on."""

    def _bootstrap(self, values: Any, next_values: Any, terminated: Any, truncated: Any) -> Any:
        return ops.where(terminated, 0.0, ops.where(truncated, values, next_values))


class BootstrapFromTheNextEpisode(Advantages):
    """envpool #33 and #194: what is observed after the last step is the reset, and the final observation is lost."""

    def _bootstrap(self, values: Any, next_values: Any, terminated: Any, truncated: Any) -> Any:
        following = ops.concat([values[1:], next_values[-1:]], axis=0)
        return ops.where(terminated, 0.0, following)


class LastStepBootstrapsFromItself(Advantages):
    """XLRON #50: the last row of every chunk was bootstrapped with its own value in place of the next one's."""

    def _bootstrap(self, values: Any, next_values: Any, terminated: Any, truncated: Any) -> Any:
        following = ops.concat([next_values[:-1], values[-1:]], axis=0)
        return ops.where(terminated, 0.0, following)


class EndsAreOneStepLate(Advantages):
    """ "fixed off by one bug", says Baselines' discount_with_dones: the done of the wrong step cut the sum."""

    def _ended(self, terminated: Any, truncated: Any) -> Any:
        ended = ops.logical_or(terminated, truncated)
        return ops.concat([ops.zeros_like(ended[:1]), ended[:-1]], axis=0)


class RewardOfTheStepBefore(Advantages):
    """SuperSuit #116 was such a stagger, of observations against actions; here the reward comes a row late."""

    def _rewards(self, rewards: Any) -> Any:
        return ops.concat([ops.zeros_like(rewards[:1]), rewards[:-1]], axis=0)


class RewardOfTheNextStep(Advantages):
    """RLlib #5731 was one step off in this direction: the target of row t was made of what belongs to row t + 1."""

    def _rewards(self, rewards: Any) -> Any:
        return ops.concat([rewards[1:], ops.zeros_like(rewards[:1])], axis=0)


# -- V-trace ---------------------------------------------------------------------------------------------------------


class VTraceTargets(Component):
    """V-trace: value targets, and advantages for the policy gradient."""

    def __init__(self) -> None:
        super().__init__("vtrace")

    @graph_fn(differentiable=False, looks_ahead=True, returns=2)
    def estimate(
        self,
        target_log_probs: Any,
        behaviour_log_probs: Any,
        rewards: Any,
        values: Any,
        next_values: Any,
        terminated: Any,
        truncated: Any,
    ) -> Any:
        ratios = self._ratios(target_log_probs, behaviour_log_probs)
        ended = ops.logical_or(terminated, truncated)
        bootstrap = ops.where(terminated, 0.0, next_values)
        deltas = ratios * (rewards + DISCOUNT * bootstrap - values)

        def step(following: Any, at: Any) -> Any:
            delta, ratio, end = at
            correction = delta + ops.where(end, 0.0, DISCOUNT * ratio * following)
            return correction, correction

        _, corrections = ops.scan(step, ops.zeros_like(deltas[0]), (deltas, ratios, ended), reverse=True)
        targets = values + corrections
        following = self._following(targets, next_values, ended)
        advantages = ratios * (rewards + DISCOUNT * ops.where(terminated, 0.0, following) - values)
        return targets, advantages

    def _ratios(self, target_log_probs: Any, behaviour_log_probs: Any) -> Any:
        return ops.minimum(ops.exp(target_log_probs - behaviour_log_probs), 1.0)

    def _following(self, targets: Any, next_values: Any, ended: Any) -> Any:
        following = ops.concat([targets[1:], next_values[-1:]], axis=0)
        return ops.where(ended, next_values, following)


class VTraceOneStepOff(VTraceTargets):
    """asi #1975: a trace was advanced with the importance ratio of a neighbouring step."""

    def _ratios(self, target_log_probs: Any, behaviour_log_probs: Any) -> Any:
        ratios = ops.minimum(ops.exp(target_log_probs - behaviour_log_probs), 1.0)
        return ops.concat([ops.ones_like(ratios[:1]), ratios[:-1]], axis=0)


class VTraceOfTheNextTrajectory(VTraceTargets):
    """TorchRL #4209: at a truncated step the advantage took the target of the next trajectory's first step."""

    def _following(self, targets: Any, next_values: Any, ended: Any) -> Any:
        return ops.concat([targets[1:], next_values[-1:]], axis=0)


# -- n steps ---------------------------------------------------------------------------------------------------------


class ThreeStepReturns(Component):
    """Sums of three rewards, and the value of what they led to; shorter where the episode or the rows end."""

    def __init__(self) -> None:
        super().__init__("n-step")

    @graph_fn(differentiable=False, looks_ahead=True)
    def estimate(self, rewards: Any, next_values: Any, terminated: Any, truncated: Any) -> Any:
        bootstrap = ops.where(terminated, 0.0, next_values)
        ended = ops.logical_or(terminated, truncated)
        returns = rewards + DISCOUNT * bootstrap
        for _ in range(2):
            following = ops.concat([returns[1:], bootstrap[-1:]], axis=0)
            last = ops.concat([ended[:-1], ops.ones_like(ended[-1:])], axis=0)
            returns = rewards + DISCOUNT * ops.where(self._stops(ended, last), bootstrap, following)
        return returns

    def _stops(self, ended: Any, last: Any) -> Any:
        return last


class ThreeStepReturnsAcrossEpisodes(ThreeStepReturns):
    """FastTD3 #6, ChainerRL #442: windows of n steps ran into the episode that came next in the memory."""

    def _stops(self, ended: Any, last: Any) -> Any:
        return ops.concat([ops.zeros_like(ended[:-1]), ops.ones_like(ended[-1:])], axis=0)


class RunningReturn(Component):
    """The discounted sum of what an episode has brought so far, for each environment, from rollout to rollout."""

    def __init__(self) -> None:
        super().__init__("running-return")

    @graph_fn(returns=2)
    def call(self, rewards: Any, terminated: Any, truncated: Any, state: Any) -> Any:
        def step(total: Any, at: Any) -> Any:
            reward, ended = at
            total = DISCOUNT * total + self._counted(reward)
            return self._after(total, ended), total

        last, totals = ops.scan(step, state, (rewards, ops.logical_or(terminated, truncated)))
        return totals, last

    def _counted(self, reward: Any) -> Any:
        return reward

    def _after(self, total: Any, ended: Any) -> Any:
        return ops.where(ended, 0.0, total)


class EvaluationOfClippedRewards(RunningReturn):
    """SB3's evaluate_policy warns of it: behind a wrapper that clips rewards, the returns reported are clipped, too."""

    def _counted(self, reward: Any) -> Any:
        return ops.clip(reward, -1.0, 1.0)


class RunningReturnOfSeveralEpisodes(RunningReturn):
    """Gymnasium #760: NormalizeReward kept its running return over a reset."""

    def _after(self, total: Any, ended: Any) -> Any:
        return total


class EpisodeLengths(Component):
    """Which step of its episode each step is, counted from 1, from rollout to rollout."""

    def __init__(self) -> None:
        super().__init__("episode-lengths")

    @graph_fn(returns=2)
    def call(self, terminated: Any, truncated: Any, state: Any) -> Any:
        def step(count: Any, ended: Any) -> Any:
            count = count + 1.0
            return self._after(count, ended), count

        last, counts = ops.scan(step, state, ops.logical_or(terminated, truncated))
        return counts, last

    def _after(self, count: Any, ended: Any) -> Any:
        return ops.where(ended, 0.0, count)


class ResetCountsAsAStep(EpisodeLengths):
    """Gymnasium #1451: the step that only resets was counted with the steps of the next episode."""

    def _after(self, count: Any, ended: Any) -> Any:
        return ops.where(ended, 1.0, count)


_STEPS = {
    "rewards": steps(),
    "values": steps(),
    "next_values": steps(),
    "terminated": flags(),
    "truncated": flags(),
}
_LOG_PROBS = {"target_log_probs": steps(low=-3.0, high=0.0), "behaviour_log_probs": steps(low=-3.0, high=0.0)}
_WINDOW = {name: space for name, space in _STEPS.items() if name != "values"}

MUTANTS = (
    mutant(Advantages, TruncationTakenForTermination, Cause.TRUNCATION_AS_TERMINATION, _STEPS),
    mutant(Advantages, TerminalStatesBootstrap, Cause.TERMINATION_IGNORED, _STEPS),
    mutant(Advantages, AdvantagesRunOnAfterTruncation, Cause.CROSSES_EPISODES, _STEPS),
    mutant(Advantages, BootstrapFromTheStateBefore, Cause.WRONG_BOOTSTRAP, _STEPS),
    mutant(Advantages, BootstrapFromTheNextEpisode, Cause.WRONG_BOOTSTRAP, _STEPS),
    mutant(Advantages, LastStepBootstrapsFromItself, Cause.WRONG_BOOTSTRAP, _STEPS),
    mutant(Advantages, EndsAreOneStepLate, Cause.CROSSES_EPISODES, _STEPS),
    mutant(Advantages, RewardOfTheStepBefore, Cause.LOOKS_BACK, _STEPS),
    mutant(Advantages, RewardOfTheNextStep, Cause.CROSSES_EPISODES, _STEPS),
    mutant(VTraceTargets, VTraceOneStepOff, Cause.LOOKS_BACK, {**_LOG_PROBS, **_STEPS}),
    mutant(VTraceTargets, VTraceOfTheNextTrajectory, Cause.CROSSES_EPISODES, {**_LOG_PROBS, **_STEPS}),
    mutant(ThreeStepReturns, ThreeStepReturnsAcrossEpisodes, Cause.CROSSES_EPISODES, _WINDOW),
    mutant(
        RunningReturn,
        RunningReturnOfSeveralEpisodes,
        Cause.CROSSES_EPISODES,
        {"rewards": steps(), "terminated": flags(), "truncated": flags(), "state": floats()},
    ),
    mutant(
        RunningReturn,
        EvaluationOfClippedRewards,
        Cause.REWARD_IGNORED,
        {"rewards": steps(), "terminated": flags(), "truncated": flags(), "state": floats()},
    ),
    mutant(
        EpisodeLengths,
        ResetCountsAsAStep,
        Cause.COUNTED_TWICE,
        {"terminated": flags(), "truncated": flags(), "state": floats(low=0.0, high=10.0)},
    ),
)
