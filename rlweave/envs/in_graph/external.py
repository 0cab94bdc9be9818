"""`ExternalEnvironment`: environments outside of the graph behind the methods of those inside."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlweave import graph
from rlweave.envs.vector_env import VectorEnv
from rlweave.errors import EnvError
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Space


class ExternalEnvironment(Component):
    """A vector environment (Gymnasium, sub-processes, ...) as a component: host nodes step it.

    It has the methods of `GraphEnvironment`, so that an `EnvironmentStepper` takes either. But its state is
    no part of the graph's state (checkpoints do not have it), its random numbers are its own, and a compiled program
    cannot call it. A rollout is therefore no scan but T times the policy's program with a step on the host in between.

    Args:
        env: The vector environment. The caller closes it, and does not step or reset it meanwhile.
        scope: Name within the owner.

    Raises:
        EnvError: It is no `VectorEnv`.

    Attributes:
        observation_space: Of one observation, without ranks.
        action_space: Of one action, without ranks.
        num_envs: N.
    """

    #: A stepper unrolls its steps.
    on_host = True

    def __init__(self, env: VectorEnv, scope: str = "environment") -> None:
        super().__init__(scope)
        if not isinstance(env, VectorEnv):
            raise EnvError(
                "an external environment is one of rlweave's vector environments",
                where=scope,
                received=type(env).__name__,
                fix="make_env(env, num_envs), which takes Gymnasium's environments and vector environments",
            )
        self.env, self.num_envs = env, env.num_envs
        self.observation_space: Space = env.observation_space
        self.action_space: Space = env.action_space

    def create_variables(self) -> None:
        """Lengths and returns of the episodes so far; writing them keeps the order of the steps."""
        self.episode_steps = self.variable("episode_steps", (self.num_envs,), trainable=False, dtype="int32")
        self.episode_returns = self.variable("episode_returns", (self.num_envs,), trainable=False)

    @api
    def reset(self) -> Any:
        """Begins new episodes everywhere, and returns their first observations, nested (N, ...)."""
        return graph.batch_rank(self._reset())

    @api
    def observations(self) -> Any:
        """The observations to act on, nested (N, ...); of an environment that was not reset yet, after a reset."""
        return graph.batch_rank(self._observations())

    @api
    def step(self, actions: Any) -> Any:
        """Steps every environment; arguments and result are those of `GraphEnvironment.step`.

        Raises:
            EnvError: An environment failed, or has rows that are no transitions (a foreign vector environment that
                resets in the next step).
        """
        return graph.batch_rank(self._step(actions))

    @graph_fn(host=True, differentiable=False, spaces="_observation_space", returns=1)
    def _reset(self) -> Any:
        self.episode_steps.assign(np.zeros(self.num_envs, np.int32))
        self.episode_returns.assign(np.zeros(self.num_envs, np.float32))
        return self.env.reset()

    @graph_fn(host=True, differentiable=False, spaces="_observation_space", returns=1)
    def _observations(self) -> Any:
        steps = self.episode_steps.value
        if not steps.any() and not self.env.has_started:
            self.env.reset()
        # written, so that no read is moved before the step
        self.episode_steps.assign(steps)
        return self.env.observations

    @graph_fn(host=True, differentiable=False, spaces="_step_space", returns=1)
    def _step(self, actions: Any) -> Any:
        result = self.env.step(actions)
        if not result.valid.all():
            raise EnvError(
                "a row of a step is no transition, and a rollout in the graph cannot leave it out",
                where=self.path,
                received=f"environment {int(np.argmin(result.valid))} was reset in a step of its own",
                fix="make_env without autoreset='next_step', or a worker outside of the graph",
            )
        steps, returns = self.episode_steps.value + 1, self.episode_returns.value + result.rewards
        self.episode_steps.assign(np.where(result.episode_start, 0, steps).astype(np.int32))
        self.episode_returns.assign(np.where(result.episode_start, 0, returns).astype(np.float32))
        return {
            "next_observations": result.next_observations,
            "rewards": result.rewards,
            "terminated": result.terminated,
            "truncated": result.truncated,
            "episode_returns": returns.astype(np.float32),
            "episode_steps": steps.astype(np.int32),
        }

    def _observation_space(self) -> Space:
        return self.observation_space.with_batch_rank(self.num_envs)

    def _step_space(self, actions: Space) -> Space:
        fields = {
            "next_observations": self.observation_space,
            "rewards": FloatBox(),
            "terminated": BoolBox(),
            "truncated": BoolBox(),
            "episode_returns": FloatBox(),
            "episode_steps": IntBox(),
        }
        return Dict(fields).with_batch_rank(self.num_envs)
