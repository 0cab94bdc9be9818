"""Evolution strategies (Salimans et al. 2017, arXiv:1703.03864): learning from returns of perturbed policies alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from rlweave.agents.agent import Agent, AgentConfig, Batch, Metrics
from rlweave.agents.es_graph import ESGraph
from rlweave.agents.generation import Generation
from rlweave.agents.networks import IMAGE_NETWORK_HELP
from rlweave.agents.trajectories import add_axis, first_row, is_single
from rlweave.components import EvolutionStrategy, NoiseTable, Policy
from rlweave.components.network import mlp
from rlweave.errors import ConfigError, ExecutionError
from rlweave.graph import Component
from rlweave.graph.building import InputSpace
from rlweave.settings.config import setting
from rlweave.settings.ranges import NOT_NEGATIVE
from rlweave.spaces import FloatBox, IntBox, Space


class ESConfig(AgentConfig):
    """Settings of evolution strategies."""

    default_network: ClassVar[list[dict[str, Any]]] = mlp([32, 32], "tanh")
    network: list[dict[str, Any]] | None = setting(
        None, "layers of the policy; null: two dense tanh layers of 32, or none behind the default image network"
    )
    image_network: list[dict[str, Any]] | None = setting(None, IMAGE_NETWORK_HELP)
    pairs: int = setting(32, "mirrored pairs of perturbed policies per generation, over all workers", ge=1)
    sigma: float = setting(0.05, "standard deviation of the perturbations of weights", gt=0)
    weight_decay: float = setting(
        0.005, "pull of the weights to 0: the gradient of weight_decay / 2 * |weights|^2", ge=0
    )
    noise_size: int = setting(
        2**22, "numbers in the table of noise, which each process holds once (4 bytes each)", ge=1
    )
    noise_seed: int = setting(0, "seed of the table of noise, the same for all processes", ge=0)
    optimizer: dict[str, Any] = setting({"type": "adam"}, "optimizer spec, learning rate apart")
    lr: float | dict[str, Any] = setting(0.01, "learning rate, or a schedule over generations", within=NOT_NEGATIVE)


class ES(Agent):
    """Evolution strategies for discrete, multi-discrete, box and nested action spaces.

    A policy is asked for its likeliest actions only; what explores are its weights. A population of `slots` members
    acts at a time, one in each environment (see `place` and `act_population`).

    Args:
        state_space: Space of one observation.
        action_space: Space of one action.
        config: `ESConfig` or its data.
        slots: Members that act at a time.
        backend: As in `Agent`; "numpy" can learn, too, because nothing is differentiated.
        seed: As in `Agent`.

    Raises:
        ConfigError: There is a recurrent layer.
    """

    name: ClassVar[str] = "es"
    config_class = ESConfig
    config: ESConfig
    acting_methods: ClassVar[tuple[str, ...]] = ("act", "perturb", "act_population")

    def __init__(
        self,
        state_space: Space,
        action_space: Space,
        config: ESConfig | Mapping[str, Any] | None = None,
        *,
        slots: int = 1,
        backend: str = "jax",
        seed: int = 0,
    ) -> None:
        super().__init__(state_space, action_space, config, backend=backend, seed=seed)
        if self.recurrent:
            raise ConfigError(
                "the members of a population carry no state from step to step",
                where="network",
                received=str(self.config.network),
                fix="use layers without a state, such as dense",
            )
        self.slots = slots

    def arguments(self) -> dict[str, Any]:
        return {"slots": self.slots}

    def make_root(self) -> ESGraph:
        config = self.config
        return ESGraph(
            policy=Policy(
                config.network,
                self.action_space,
                image_network=config.image_network or None,
                state_space=self.state_space,
                initializer="orthogonal",
                mask_leaf=config.mask_leaf,
            ),
            noise=NoiseTable(config.noise_size, config.noise_seed),
            evolution=EvolutionStrategy(config.sigma),
            optimizer=Component.from_spec({**config.optimizer, "learning_rate": config.lr}),
            weight_decay=config.weight_decay,
        )

    def input_spaces(self) -> dict[str, InputSpace]:
        return {
            "states": self.state_space.with_batch_rank(),
            "act_population.states": self.state_space.with_batch_rank(self.slots),
            "perturb.offsets": IntBox(add_batch_rank=self.slots),
            "signs": FloatBox(add_batch_rank=self.slots),
            "offsets": IntBox(add_batch_rank=True),
            "returns": FloatBox(shape=(2,), add_batch_rank=True),
            "gradients": lambda root: root.policy.variables(),
        }

    # -- acting --------------------------------------------------------------------------------------------------

    def get_actions(
        self, states: Any, env_ids: Sequence[Any] | None = None, explore: bool = True, preprocess: bool = True
    ) -> Any:
        """Actions of the policy in the centre: the likeliest ones, or drawn from its distribution to explore."""
        single = is_single(self.state_space, states)
        batch = add_axis(states) if single else states
        self.check_masks(batch)
        actions, _ = self.actor.act(batch, explore=explore)
        actions = self.env_actions(actions)
        return first_row(actions) if single else actions

    def draw_offsets(self, generator: np.random.Generator, pairs: int) -> npt.NDArray[np.int32]:
        """Where in the table of noise the perturbations of mirrored pairs begin, (pairs,)."""
        length = sum(int(weights.size) for weights in self.get_weights().values())
        return generator.integers(0, self.config.noise_size - length, pairs, np.int32, endpoint=True)

    def place(self, generation: Generation) -> None:
        """Gives each slot of the population the weights of the member that plays in it."""
        self.actor.perturb(*generation.placed())

    def act_population(self, states: Any) -> Any:
        """The action of the member in each slot for its observation, (slots, ...)."""
        self.check_masks(states)
        return self.env_actions(self.actor.act_population(states))

    def observe(
        self,
        state: Any,
        action: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        next_state: Any = None,
        env_id: Any = 0,
    ) -> None:
        """Nothing can be learned from single steps.

        Raises:
            ExecutionError: Always.
        """
        raise ExecutionError(
            "evolution strategies learn from the returns of whole episodes, each played by one perturbed policy",
            where="es.observe",
            fix="play a generation with place() and act_population(), as rlweave.algorithms does, and pass its "
            "offsets and returns to update()",
        )

    # -- learning ------------------------------------------------------------------------------------------------

    def update(self, batch: Batch | None = None) -> Metrics:
        """One step along the gradient that a generation gives.

        Args:
            batch: Dict of arrays, a row per mirrored pair: `offsets`, int32 (n,), where their noise begins;
                `returns`, float32 (n, 2), of the episodes at centre + sigma * noise and centre - sigma * noise.

        Raises:
            ExecutionError: There is no batch.
        """
        if batch is None:
            raise ExecutionError("there is no generation to learn from", where="es.update", fix="pass a batch")
        returns = np.asarray(batch["returns"], np.float32)
        _, learned = self.executor.update(batch["offsets"], returns, with_metrics=True)
        self._copy_to_actor()
        metrics = {
            "population_return": float(returns.mean()),
            "population_return_max": float(returns.max()),
            "population_return_std": float(returns.std()),
            **learned,
        }
        return {**self._checked(metrics), "gradient_steps": 1}

    def postprocess(self, batch: Batch) -> Batch:
        """Nothing is to be added."""
        return batch

    def compute_gradients(self, batch: Batch) -> dict[str, np.ndarray]:
        """The estimated gradient (of what is minimized), by variable path."""
        gradients: dict[str, np.ndarray] = self.executor.gradients(batch["offsets"], batch["returns"])
        return gradients

    def apply_gradients(self, gradients: Mapping[str, np.ndarray]) -> None:
        self.executor.apply(dict(gradients))
        self._copy_to_actor()
