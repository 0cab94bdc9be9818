"""Updates of several passes over a rollout, each in minibatches of its own order: those of PPO, APPO and PQN."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeVar

import numpy as np

from rlweave import graph
from rlweave.agents.agent import AgentConfig, Batch, Metrics, ReplicatedConfig
from rlweave.agents.minibatches import RowMinibatches
from rlweave.agents.rollout_agent import RolloutAgent, minibatches_of
from rlweave.backends import get_backend
from rlweave.components.network import is_recurrent
from rlweave.errors import ConfigError
from rlweave.graph import Component, api
from rlweave.graph.assembly import InputSpace
from rlweave.settings.config import setting
from rlweave.spaces import IntBox, Space, Tuple


class EpochsConfig(ReplicatedConfig):
    """Settings of such updates."""

    rollout_steps: int = setting(128, "steps of each environment between two updates", ge=1, unit="steps")
    epochs: int = setting(10, "passes over the rollout in an update", ge=1)
    minibatches: int | None = setting(
        None, "minibatches in each pass; null: as many as have about 64 rows; recurrent networks: at most 4", ge=1
    )


EpochsConfigT = TypeVar("EpochsConfigT", bound=AgentConfig)


def fill_minibatches(config: EpochsConfigT, num_envs: int) -> EpochsConfigT:
    """The settings with a number of minibatches: a divisor of what is cut, rows or, if recurrent, whole sequences.

    Args:
        config: Settings, an `EpochsConfig`; a number that they have stays.
        num_envs: Environments whose rollouts make one update.
    """
    own: Any = config
    if own.minibatches is not None:
        return config
    count = minibatches_of(is_recurrent(own.network)).default_count(own.rollout_steps, num_envs)
    return config.model_copy(update={"minibatches": count})


class EpochsGraph(Component):
    """Such an update; stands before the class that says what rows are (`_rows`), and what a step on them is (`_step`).

    Args:
        epochs: Passes over a rollout.
        in_parts: An update is a method for each of its parts, between which ranks meet, or devices.
        arguments: Those of the other class.
    """

    minibatches: RowMinibatches
    #: One optimizer step on rows.
    _step: Any

    def __init__(self, *, epochs: int, in_parts: bool = False, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.epochs, self.in_parts = epochs, in_parts

    def offers(self, method: str) -> bool:
        """An update is one method, or some."""
        parts = ("begin_update", "shuffled", "update_on", "end_update")
        return method not in (("update",) if self.in_parts else parts)

    @api
    def update(self, batch: Any) -> Any:
        """Learns from a rollout (T, B, ...): targets once, then epochs x minibatches of optimizer steps."""
        rows = self._rows(batch)
        graph.repeat(self.epochs, lambda: self._epoch(rows))
        self._after_epochs(batch)

    # -- the same in parts ---------------------------------------------------------------------------------------

    @api
    def begin_update(self, batch: Any) -> Any:
        """The rows that an update on a rollout (T, B, ...) learns from."""
        return self._rows(batch)

    @api
    def shuffled(self, rows: Any) -> Any:
        """Indices (M, size) of the minibatches of a pass, and what each of them has to know of all ranks, (M,)."""
        indices = self.minibatches.shuffled(self._column(rows))
        return indices, self._moments_of_ranks(rows, indices)

    @api
    def update_on(self, rows: Any, indices: Any, moments: Any) -> None:
        """One optimizer step on the minibatch of some indices; see `shuffled`."""
        self._step({**self.minibatches.take(rows, indices), "moments": moments})

    @api
    def end_update(self, batch: Any) -> None:
        """What comes after all epochs."""
        self._after_epochs(batch)

    # -- what the algorithm says ---------------------------------------------------------------------------------

    @abstractmethod
    def _rows(self, batch: Any) -> Any:
        """What is learned from, of a rollout (T, B, ...)."""

    @abstractmethod
    def _column(self, rows: Any) -> Any:
        """An array of the rows, by which they are counted."""

    def _moments_of_ranks(self, rows: Any, indices: Any) -> Any:
        """What minibatches have to know of those of other ranks; () for nothing."""
        return ()

    def _after_epochs(self, batch: Any) -> None:
        """What comes after all epochs."""

    def _epoch(self, rows: Any) -> None:
        def step(carry: Any, indices: Any) -> Any:
            self._step(self.minibatches.take(rows, indices))
            return carry, None

        graph.scan(step, (), self.minibatches.shuffled(self._column(rows)))


class EpochsAgent(RolloutAgent):
    """The agent's side of such updates."""

    learns_in_ranks = True
    config: Any  # an EpochsConfig, with a number of minibatches

    def complete_settings(self) -> None:
        super().complete_settings()
        self.config = fill_minibatches(self.config, self.num_envs)
        rows = self.config.rollout_steps * self.num_envs
        if self.recurrent and self.num_envs % self.config.minibatches:
            raise ConfigError(
                "minibatches of recurrent networks are whole sequences, and cannot be cut equally",
                where="minibatches",
                received=f"{self.num_envs} environments into {self.config.minibatches}",
                fix=f"choose a divisor of {self.num_envs}, or another num_envs",
            )
        if rows % self.config.minibatches:
            raise ConfigError(
                "the rollout cannot be cut into equal minibatches",
                where="minibatches",
                received=f"{rows} rows ({self.config.rollout_steps} steps x {self.num_envs} environments) "
                f"into {self.config.minibatches}",
                fix=f"choose a divisor of {rows}",
            )

    def epochs_arguments(self) -> dict[str, Any]:
        """Arguments of the root component that say how it passes over a rollout."""
        config = self.config
        minibatches = self.minibatch_class(config.minibatches)
        return {"minibatches": minibatches, "epochs": config.epochs, "in_parts": self.in_parts}

    @property
    def _trajectories_per_batch(self) -> int | bool:
        return self.num_envs

    @property
    def in_parts(self) -> bool:
        """Whether it loops over minibatches itself: ranks, and devices of several programs, do not meet in a loop."""
        return self.share is not None or (self.replicas is not None and not get_backend(self.backend).spreads)

    def moments_space(self) -> Space:
        """Space of what a minibatch has to know of those of other ranks."""
        return Tuple()

    def input_spaces(self) -> dict[str, InputSpace]:
        if not self.in_parts:
            return super().input_spaces()
        steps, envs = self.config.rollout_steps, self.num_envs
        rows = self.rows_space(steps, envs)
        size = self.minibatch_class.pieces(steps, envs) // self.config.minibatches
        indices = IntBox(shape=(size,))
        parts = {"indices": indices, "moments": self.moments_space(), "shuffled.rows": rows, "update_on.rows": rows}
        return super().input_spaces() | parts

    def _update_on(self, batch: Batch) -> Metrics:
        if not self.in_parts:
            return super()._update_on(batch)
        executor = self.executor
        rows, first = executor.begin_update(batch, as_numpy=False, with_metrics=True)
        found: dict[str, list[float]] = {}
        for _ in range(self.config.epochs):
            indices, moments = executor.shuffled(rows)
            for k in range(self.config.minibatches):
                own = tuple(moment[k, ...] for moment in moments)
                for name, value in executor.update_on(rows, indices[k], own, with_metrics=True)[1].items():
                    found.setdefault(name, []).append(value)
        executor.end_update(batch)
        return first | {name: float(np.mean(values)) for name, values in found.items()}

    def learned_from(self, steps: int) -> dict[str, int]:
        config = self.config
        return {"gradient_steps": config.epochs * config.minibatches, "trained_samples": config.epochs * steps}
