"""What a replay memory holds: transitions, or sequences of steps for networks with a memory of their own."""

from __future__ import annotations

from typing import Any

from rlweave.agents.sequences import SequenceAccumulator, sequence_space
from rlweave.components import NStepAccumulator
from rlweave.errors import ConfigError
from rlweave.spaces import BoolBox, Dict, FloatBox, Space


class TransitionRecords:
    """Transitions over up to `n_step` steps.

    Args:
        config: Settings of the agent.

    Attributes:
        capacity: Records that the memory keeps.
        in_batch: Records in the batch of an update.
        trained_steps: Transitions of a record that are trained on.
    """

    def __init__(self, config: Any) -> None:
        self.config = config
        self.capacity, self.in_batch, self.trained_steps = config.memory_capacity, config.batch_size, 1

    def space(self, observation_space: Space, action_space: Space, recurrent_space: Space) -> Space:
        """Space of one record, without ranks.

        `rewards` is the discounted sum over the steps, `discounts` is discount^(steps used).

        Args:
            observation_space: Of one observation.
            action_space: Of one action as the agent learns from it.
            recurrent_space: Of the recurrent state of one environment.
        """
        return Dict(
            observations=observation_space,
            actions=action_space,
            rewards=FloatBox(),
            terminated=BoolBox(),
            discounts=FloatBox(),
            next_observations=observation_space,
        )

    def accumulator(self, num_envs: int) -> NStepAccumulator | SequenceAccumulator:
        """What makes records of the steps of environments."""
        return NStepAccumulator(self.config.n_step, self.config.discount, num_envs)


class SequenceRecords(TransitionRecords):
    """Sequences of `burn_in + unroll` steps; see `SequenceAccumulator`.

    Args:
        config: Settings of the agent.

    Raises:
        ConfigError: A batch is not made of whole sequences, or they overlap by more than there is.
    """

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        if config.batch_size % config.unroll:
            raise ConfigError(
                "a batch of recurrent networks is made of whole sequences",
                where="batch_size",
                received=f"{config.batch_size} transitions, with sequences of {config.unroll} (unroll)",
                fix=f"choose a multiple of {config.unroll}",
            )
        if config.overlap >= config.unroll:
            raise ConfigError(
                "neighbouring sequences share more than a sequence has",
                where="overlap",
                received=f"overlap={config.overlap}, unroll={config.unroll}",
                fix=f"choose less than {config.unroll}",
            )
        self.trained_steps, self.in_batch = config.unroll, config.batch_size // config.unroll
        self.capacity = max(config.memory_capacity // (config.unroll - config.overlap), 1)  # each brings so many steps

    def space(self, observation_space: Space, action_space: Space, recurrent_space: Space) -> Space:
        """Space of one sequence; see `sequence_space`."""
        length = self.config.burn_in + self.config.unroll
        return sequence_space(observation_space, action_space, recurrent_space, length)

    def accumulator(self, num_envs: int) -> NStepAccumulator | SequenceAccumulator:
        return SequenceAccumulator(self.config.burn_in, self.config.unroll, self.config.overlap, num_envs)
