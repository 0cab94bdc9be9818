"""Agents that are wrong, each with one thing overridden."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlweave import graph, ops
from rlweave.agents.a2c import A2C, A2CGraph
from rlweave.agents.agent import Agent
from rlweave.agents.dqn import DQN, DQNGraph
from rlweave.agents.ppo import PPO, PPOGraph
from rlweave.agents.sac import SAC, SACGraph
from rlweave.agents.td3 import TD3, DeterministicGraph
from rlweave.components import ActorCriticLoss, EpsilonGreedy, SoftPolicyLoss, Temperature
from rlweave.graph import api, graph_fn
from rlweave.testing.checks.findings import Cause
from tests.mutants import Mutant

# -- on policy -------------------------------------------------------------------------------------------------------


class RatioOfOneGraph(PPOGraph):
    def _loss(self, rows: Any) -> Any:
        log_probs, entropies, values = self._predictions(rows)
        old = graph.stop_gradient(log_probs)
        loss, metrics = self.loss.loss(log_probs, old, rows["advantages"], values, rows["value_targets"], entropies)
        graph.metrics(metrics)
        return loss


class PPOWithRatiosOfOne(PPO):
    """higgsfield #20, tensorforce #312: old log-probabilities were computed by the policy that is being trained."""

    graph_class = RatioOfOneGraph


class NormalizingWhileActingGraph(PPOGraph):
    @api(static=("explore", "preprocess"))
    def act(
        self,
        observations: Any,
        recurrent_state: Any = (),
        episode_start: Any = None,
        explore: bool = True,
        preprocess: bool = True,
    ) -> Any:
        seen = self._normalized(observations) if preprocess else observations
        acted = self.acting.act(seen, recurrent_state, episode_start, explore=explore)
        self.normalization.update(observations)
        return acted


class PPOThatNormalizesWhileItEvaluates(PPO):
    """rl-baselines3-zoo #275: statistics of observations moved while a policy was evaluated."""

    graph_class = NormalizingWhileActingGraph


class PolicyOnlyGraph(PPOGraph):
    def trained(self) -> Any:
        return self.policy.variables()


class PPOWithoutItsValueFunction(PPO):
    """dreamer-pytorch #79, genrl #315: an optimizer had been given other parameters than those it was to train."""

    graph_class = PolicyOnlyGraph


class PPOThatStoresClippedActions(PPO):
    """Tianshou #312, RLlib #8889: clipped actions were stored beside the log-probabilities of those before."""

    def act(self, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any], Any]:
        actions, stored, after = super().act(*args, **kwargs)
        return np.clip(actions, -1.0, 1.0), stored, after


class PPOThatNeverResetsItsMemory(PPO):
    """Tianshou #486, IsaacLab #3837: the recurrent state went on where a new episode began."""

    def act(
        self, observations: Any, recurrent_state: Any = (), episode_start: Any = None, *args: Any, **kwargs: Any
    ) -> tuple[Any, dict[str, Any], Any]:
        never = None if episode_start is None else np.zeros_like(episode_start)
        return super().act(observations, recurrent_state, never, *args, **kwargs)


class PPOThatForgetsItsOptimizer(PPO):
    """dreamerv3-torch #38: a checkpoint held the model, and the optimizer's moments began at zero again."""

    def state_dict(self, memory: bool = True) -> dict[str, np.ndarray]:
        return {path: value for path, value in super().state_dict(memory).items() if "optimizer" not in path}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        super().load_state_dict({**self.executor.state_dict(), **state})


class TerminalBootstrapGraph(A2CGraph):
    def _estimates(self, batch: Any, observations: Any, values: Any, next_values: Any) -> Any:
        never, ended = self._flags(batch["terminated"], batch["truncated"])
        return super()._estimates({**batch, "terminated": never, "truncated": ended}, observations, values, next_values)

    @graph_fn(returns=2)
    def _flags(self, terminated: Any, truncated: Any) -> Any:
        return ops.zeros_like(terminated), ops.logical_or(terminated, truncated)


class A2CThatBootstrapsAfterTermination(A2C):
    """minimalRL #32: the done mask was missing, and a terminal state had a value."""

    graph_class = TerminalBootstrapGraph


class NoTruncationGraph(A2CGraph):
    def _estimates(self, batch: Any, observations: Any, values: Any, next_values: Any) -> Any:
        ended = self._ended(batch["terminated"], batch["truncated"])
        return super()._estimates({**batch, "terminated": ended}, observations, values, next_values)

    @graph_fn
    def _ended(self, terminated: Any, truncated: Any) -> Any:
        return ops.logical_or(terminated, truncated)


class A2CThatTakesTruncationForTermination(A2C):
    """CleanRL #198 and #457: terminations and truncations were or'd together."""

    graph_class = NoTruncationGraph


class LastRewardGraph(A2CGraph):
    def _rewards(self, batch: Any) -> Any:
        return self._until_the_end(batch["rewards"], batch["terminated"])

    @graph_fn
    def _until_the_end(self, rewards: Any, terminated: Any) -> Any:
        return ops.where(terminated, 0.0, rewards)


class A2CWithoutTheLastReward(A2C):
    """Tianshou #135: by its formula the reward of a terminal step was multiplied with zero."""

    graph_class = LastRewardGraph


class PunishedEntropy(ActorCriticLoss):
    @graph_fn(returns=2)
    def _loss(self, log_probs: Any, advantages: Any, values: Any, returns: Any, entropies: Any, mask: Any) -> Any:
        loss, metrics = super()._loss(log_probs, advantages, values, returns, entropies, mask)
        return loss + 2.0 * self.entropy_coefficient * ops.mean(entropies), metrics


class A2CThatLowersItsEntropy(A2C):
    """OpenSpiel #962: the entropy was added to the loss of A2C."""

    def graph_arguments(self) -> dict[str, Any]:
        loss = PunishedEntropy(self.config.value_coefficient, self.config.entropy_coefficient)
        return {**super().graph_arguments(), "loss": loss}


# -- deep Q-learning -------------------------------------------------------------------------------------------------


class DQNWhoseTargetIsTheOnlineNetwork(DQN):
    """RL-Adventure #32, easy-rl #117, rlevo #182: the target network had the weights of the one that is trained."""

    def _after_update(self) -> None:
        self.executor.sync_target()


class WrongRowsGraph(DQNGraph):
    @api(static=("batch_size",))
    def update(self, batch_size: int) -> Any:
        records, indices, weights = self.memory.sample(batch_size)
        loss, td_errors = self.learn(records, weights)
        self.memory.update_priorities(self._neighbours(indices), td_errors)
        return loss

    @graph_fn(differentiable=False)
    def _neighbours(self, indices: Any) -> Any:
        return ops.roll(indices, 1, 0)


class DQNThatConfusesPriorities(DQN):
    """RLHive #296, RLlib #6534: priorities were written to rows of other records."""

    graph_class = WrongRowsGraph


class OneLot(EpsilonGreedy):
    @graph_fn(flatten=True)
    def _explore(self, q_values: Any, epsilon: Any) -> Any:
        return ops.random.uniform(()) < epsilon[""]


class DQNThatExploresEverywhereAtOnce(DQN):
    """SB3's DQN.predict: one number decides for all environments of a batch whether they explore."""

    def graph_arguments(self) -> dict[str, Any]:
        return {**super().graph_arguments(), "exploration": OneLot(action_space=self.action_space)}


class UphillGraph(DQNGraph):
    def learn(self, records: Any, weights: Any) -> Any:
        loss, td_errors = self._loss(records, weights)
        graph.metrics(self.optimizer.step(self._uphill(loss), self.policy.variables()))
        return loss, td_errors

    @graph_fn
    def _uphill(self, loss: Any) -> Any:
        return -loss


class DQNThatClimbsItsLoss(DQN):
    """rl4co #186: the critic's loss had the wrong sign."""

    graph_class = UphillGraph


class BackwardSyncGraph(DQNGraph):
    @api
    def sync_target(self) -> None:
        self.policy.sync(self.target_policy)


class DQNThatIsSetBackToItsTarget(DQN):
    """MADDPG_Multi_UAV_Roundup #10: the networks were moved to the target networks in place of the other way round."""

    graph_class = BackwardSyncGraph


class DQNThatBeginsToExploreAgain(DQN):
    """pfrl #183, tensorpack #1094, SB3 #1629: after loading, the share of random actions was that of the beginning."""

    def load_counters(self, counters: Mapping[str, int]) -> None:
        super().load_counters({**counters, "env_steps": 0})


class DQNThatStoresNoDones(DQN):
    """MorvanZhou's DQN (#200), navneet-nmk/pytorch-rl #2: the memory did not know where episodes ended."""

    def insert(self, records: Any) -> None:
        discounts = np.where(records["terminated"], np.float32(self.config.discount), records["discounts"])
        super().insert({**records, "terminated": np.zeros_like(records["terminated"]), "discounts": discounts})


# -- continuous actions ----------------------------------------------------------------------------------------------


class AlwaysDueGraph(DeterministicGraph):
    @graph_fn(differentiable=False)
    def _is_due(self) -> Any:
        updates = self.updates.value + self.policy_delay
        self.updates.assign(updates)
        return updates % self.policy_delay == 0


class TD3WithoutDelay(TD3):
    """Mava #1154 and #1208: the counter went in steps of the delay, so that the policy was updated every time."""

    graph_class = AlwaysDueGraph


class SACThatScalesActionsTwice(SAC):
    """PettingZoo #1432: SuperSuit's scale_actions applied its factor to the bounds and to the actions within them."""

    def env_actions(self, actions: Any) -> Any:
        return super().env_actions(actions) * self.action_space.high


class SACThatDoesNotScaleActions(SAC):
    """Tianshou #771 asks about it: actions squashed to [-1, 1] go into a larger box as they are."""

    def env_actions(self, actions: Any) -> Any:
        return actions


class SACWithATargetThatStays(SAC):
    """thesouther/MARL #8: the target network was loaded from itself."""

    def graph_arguments(self) -> dict[str, Any]:
        return super().graph_arguments() | {"tau": 0.0}


class OpenTemperature(Temperature):
    @graph_fn
    def alpha(self) -> Any:
        return ops.exp(self.log_alpha.value)


class OpenPolicyLoss(SoftPolicyLoss):
    @graph_fn
    def loss(self, log_probs: Any, values: Any, alpha: Any) -> Any:
        return ops.mean(alpha * log_probs - ops.min(values, axis=-1))


class OpenAlphaGraph(SACGraph):
    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.policy_loss = OpenPolicyLoss()

    def learn(self, records: Any, weights: Any) -> Any:
        alpha = self.temperature.alpha()
        targets = self._targets(records, graph.stop_gradient(alpha))
        values = self.critics.call(records["observations"], records["actions"])
        loss = self.loss.loss(values, targets, weights)
        self.optimizers["critics"].step(loss, self.critics.variables())
        actions, log_probs = self.fresh_actions(records["observations"])
        actor_loss = self.policy_loss.loss(log_probs, self.critics.call(records["observations"], actions), alpha)
        self.optimizers["policy"].step(actor_loss, self.policy.variables() + self.temperature.variables())
        self.target_critics.sync(self.critics, self.tau)
        return loss, self.loss.sizes(values, targets)


class SACWhosePolicyMovesAlpha(SAC):
    """softlearning #60, which SB3 quotes: without a detach other losses change the temperature."""

    graph_class = OpenAlphaGraph

    def graph_arguments(self) -> dict[str, Any]:
        temperature = OpenTemperature(self._default_target_entropy(), self.config.temperature)
        return super().graph_arguments() | {"temperature": temperature}


SMALL = [{"type": "dense", "units": 16, "activation": "tanh"}]
RECURRENT = [{"type": "lstm", "units": 8}]
ROLLOUTS = {"rollout_steps": 16, "network": SMALL}
PPO_SETTINGS = {**ROLLOUTS, "epochs": 2, "minibatches": 2}
REPLAY = {"network": SMALL, "memory_capacity": 500, "learning_starts": 32, "batch_size": 16}


def agent(right: type[Agent], wrong: type[Agent], cause: Cause, env: str, settings: Mapping[str, Any]) -> Mutant:
    """A mutant of an agent."""
    return Mutant(wrong.__name__, wrong, right, cause, env, settings)


CARTPOLE, PENDULUM = "CartPole-v1", "Pendulum-v1"

MUTANTS = (
    agent(PPO, PPOWithRatiosOfOne, Cause.UNUSED_INPUT, CARTPOLE, PPO_SETTINGS),
    agent(
        PPO,
        PPOThatNormalizesWhileItEvaluates,
        Cause.EVALUATION_LEARNS,
        CARTPOLE,
        {**PPO_SETTINGS, "normalize_observations": True},
    ),
    agent(PPO, PPOWithoutItsValueFunction, Cause.WEIGHTS_STAY, CARTPOLE, PPO_SETTINGS),
    agent(PPO, PPOThatStoresClippedActions, Cause.PROBABILITIES_DIFFER, PENDULUM, PPO_SETTINGS),
    agent(
        PPO,
        PPOThatNeverResetsItsMemory,
        Cause.STATE_NOT_RESET,
        CARTPOLE,
        {**PPO_SETTINGS, "network": RECURRENT, "minibatches": 1},
    ),
    agent(PPO, PPOThatForgetsItsOptimizer, Cause.RESUME_DIFFERS, CARTPOLE, PPO_SETTINGS),
    agent(A2C, A2CThatBootstrapsAfterTermination, Cause.TERMINATION_IGNORED, CARTPOLE, ROLLOUTS),
    agent(A2C, A2CThatTakesTruncationForTermination, Cause.TRUNCATION_AS_TERMINATION, CARTPOLE, ROLLOUTS),
    agent(A2C, A2CWithoutTheLastReward, Cause.REWARD_IGNORED, CARTPOLE, ROLLOUTS),
    agent(A2C, A2CThatLowersItsEntropy, Cause.ENTROPY_SIGN, CARTPOLE, ROLLOUTS),
    agent(DQN, DQNWhoseTargetIsTheOnlineNetwork, Cause.WRONG_WEIGHTS_MOVE, CARTPOLE, REPLAY),
    agent(DQN, DQNThatConfusesPriorities, Cause.PRIORITY_OF_ANOTHER_ROW, CARTPOLE, REPLAY),
    agent(DQN, DQNThatExploresEverywhereAtOnce, Cause.DRAWN_ONCE, CARTPOLE, {**REPLAY, "epsilon": 0.5}),
    agent(DQN, DQNThatClimbsItsLoss, Cause.LOSS_STAYS, CARTPOLE, REPLAY),
    agent(
        DQN,
        DQNThatIsSetBackToItsTarget,
        Cause.WRONG_WEIGHTS_MOVE,
        CARTPOLE,
        {**REPLAY, "target_update_interval": 40},
    ),
    agent(DQN, DQNThatBeginsToExploreAgain, Cause.RESUME_DIFFERS, CARTPOLE, REPLAY),
    agent(DQN, DQNThatStoresNoDones, Cause.TERMINATION_IGNORED, CARTPOLE, REPLAY),
    agent(TD3, TD3WithoutDelay, Cause.WRONG_WEIGHTS_MOVE, PENDULUM, REPLAY),
    agent(SAC, SACThatScalesActionsTwice, Cause.ACTION_OUTSIDE, PENDULUM, REPLAY),
    agent(SAC, SACThatDoesNotScaleActions, Cause.ACTION_OUTSIDE, PENDULUM, REPLAY),
    agent(SAC, SACWithATargetThatStays, Cause.WEIGHTS_STAY, PENDULUM, REPLAY),
    agent(SAC, SACWhosePolicyMovesAlpha, Cause.WRONG_WEIGHTS_MOVE, PENDULUM, {**REPLAY, "learn_temperature": False}),
)
