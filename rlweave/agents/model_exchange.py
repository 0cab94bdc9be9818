"""What agents offer besides: their model, which is what acts and nothing else, written and taken."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rlweave.agents.model_files import Model, read_model, require_equal, write_model
from rlweave.errors import CheckpointError, ExecutionError
from rlweave.graph import GraphExecutor
from rlweave.graph.specs import computation
from rlweave.spaces import Space


class ModelExchange:
    """The side of an agent that gives models away and takes them."""

    name: ClassVar[str]
    config: Any
    observation_space: Space
    action_space: Space
    env_steps: int
    #: Names (below the root) of the components that a model holds, those that there are.
    model_parts: ClassVar[tuple[str, ...]] = ("policy", "normalization")
    #: Plain data on the environment that the agent is made for, which models hold; None where it is not known.
    made_for: dict[str, Any] | None = None

    @property
    @abstractmethod
    def executor(self) -> GraphExecutor:
        """The graph that learns."""

    @abstractmethod
    def _after_import(self) -> None:
        """What follows new weights from elsewhere."""

    def arguments(self) -> dict[str, Any]:
        """Further arguments of the constructor, as plain data."""
        return {}

    def export_model(self, path: str | Path) -> Path:
        """Writes what acts into a directory, and nothing else; see `rlweave.agents.model_files`."""
        return write_model(path, self.model())

    def model(self) -> Model:
        """What acts: its weights by path below the root, and plain data that says what they belong to."""
        root = self.executor.root
        weights: dict[str, np.ndarray] = {}
        for prefix in self.model_parts:
            weights.update(self.executor.get_weights(f"{root.path}/{prefix}"))
        below = len(root.path) + 1
        description = {
            "agent": self.name,
            "settings": self.config.to_data(),
            "arguments": self.arguments(),
            "observation_space": self.observation_space.to_json(),
            "action_space": self.action_space.to_json(),
            "components": self._acting_components(),
            "env_steps": self.env_steps,
            "environment": self.made_for,
        }
        return Model({path[below:]: value for path, value in weights.items()}, description)

    def _acting_components(self) -> dict[str, Any]:
        """What acting computes from the weights, see `rlweave.graph.specs.computation`."""
        parts = self.executor.root.sub_components()
        return {
            path: described
            for part in parts
            if part.scope in self.model_parts
            for path, described in computation(part).items()
        }

    def import_model(self, path: str | Path, *, check_settings: bool = True) -> None:
        """Takes the weights of a model, on any backend; nothing in it is executed.

        Memory, optimizer, counters and value function of this agent stay as they are; a target network begins anew
        with the weights.

        Args:
            path: A directory that `export_model` wrote.
            check_settings: Whether what the agent computes from the weights has to be what the model's did: layers,
                activations, distributions, normalization. False takes them on purpose, if only they have the shapes.

        Raises:
            CheckpointError: Missing or damaged files, a model of another agent or other spaces, or of components that
                differ. Then nothing has changed.
        """
        self.take_model(read_model(path), path, check_settings=check_settings)

    def take_model(self, model: Model, where: str | Path, *, check_settings: bool = True) -> None:
        """As `import_model`, of a model that was read already.

        Args:
            model: The model.
            where: Where it comes from, for errors.
            check_settings: As in `import_model`.
        """
        weights, description = model
        fix = "make the agent as the model's was, which model.json describes"
        for key, mine in (
            ("agent", self.name),
            ("observation_space", self.observation_space.to_json()),
            ("action_space", self.action_space.to_json()),
        ):
            require_equal(mine, description.get(key), f"the model has another {key}", where, fix)
        if check_settings:
            either = f"{fix}; check_settings=False takes weights of the same shapes all the same"
            what = "weights of the model mean something else in this agent"
            require_equal(self._acting_components(), description.get("components"), what, where, either)
        root = self.executor.root.path
        try:
            self.executor.set_weights({f"{root}/{name}": value for name, value in weights.items()})
        except ExecutionError as error:
            raise CheckpointError(
                "the model does not fit the agent", where=str(where), received=str(error), fix=fix
            ) from error
        self._after_import()
