"""Evolution strategies (Salimans et al. 2017, arXiv:1703.03864): learning from returns of perturbed policies alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from rlweave import graph, ops
from rlweave.agents.agent import AgentConfig, Batch, GivesGradients, Metrics
from rlweave.agents.networks import IMAGE_NETWORK_HELP
from rlweave.components import Policy
from rlweave.components.network import mlp
from rlweave.extras.evolution import EvolutionStrategy, NoiseTable
from rlweave.extras.policy_variants import PolicyVariants
from rlweave.graph import Component, api, graph_fn
from rlweave.graph.assembly import InputSpace
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


class ESGraph(Component):
    """The component graph of evolution strategies.

    Args:
        policy: The policy in the centre.
        noise: The shared noise.
        evolution: Perturbations, and their weights in the gradient.
        optimizer: Moves the policy.
        weight_decay: Pull of the weights to 0, as the gradient of weight_decay / 2 * |weights|^2.
    """

    def __init__(
        self,
        policy: Policy,
        noise: NoiseTable,
        evolution: EvolutionStrategy,
        optimizer: Component,
        weight_decay: float,
        scope: str = "es",
    ) -> None:
        super().__init__(scope)
        self.policy, self.perturbed = policy, PolicyVariants(policy, "perturbed")
        self.noise, self.evolution, self.optimizer = noise, evolution, optimizer
        self.weight_decay = weight_decay

    @api(static=("explore",))
    def act(self, observations: Any, explore: bool = True) -> Any:
        """Actions of the policy in the centre, and their log-probabilities, for observations (B, ...)."""
        return self.policy.act(observations, explore=explore)

    @api
    def perturb(self, offsets: Any, signs: Any) -> None:
        """Gives each perturbed policy the weights of the centre + sign * sigma * noise at its offset."""
        variables = self.policy.variables()
        noise = self.noise.rows(offsets, length=_size(variables))
        self.perturbed.assign(self._by_path(self.evolution.perturb(self._flat(variables), noise, signs), variables))

    @api
    def act_perturbed(self, observations: Any) -> Any:
        """The likeliest action of each perturbed policy for its observation, (P, ...)."""
        actions, _ = self.perturbed.act(observations, explore=False)
        return actions

    @api
    def update(self, offsets: Any, returns: Any) -> None:
        """One step along the estimated gradient, from the returns (n, 2) of mirrored pairs with noise at `offsets`."""
        graph.metrics(self.optimizer.apply(self.gradients(offsets, returns), self.policy.variables()))

    @api
    def gradients(self, offsets: Any, returns: Any) -> Any:
        """The estimated gradient of what is minimized, by variable path."""
        variables = self.policy.variables()
        ascent = self.noise.combine(offsets, self.evolution.weights(returns), length=_size(variables))
        return self._by_path(self._descent(ascent, self._flat(variables)), variables)

    @api
    def apply(self, gradients: Any) -> None:
        """One optimizer step with given gradients, by variable path."""
        graph.metrics(self.optimizer.apply(gradients, self.policy.variables()))

    @graph_fn(differentiable=False)
    def _descent(self, ascent: Any, weights: Any) -> Any:
        return self.weight_decay * weights - ascent

    @graph_fn(differentiable=False)
    def _flat(self, variables: Any) -> Any:
        """All weights as one vector, in the order of their paths: the same in every process."""
        return ops.concat([ops.reshape(cell.value, (-1,)) for _, cell in sorted(variables.items())], axis=0)

    @graph_fn(differentiable=False)
    def _by_path(self, vectors: Any, variables: Any) -> Any:
        """Vectors (..., D) cut into arrays (..., *shape) by path."""
        parts, begin = {}, 0
        leading = tuple(vectors.shape[:-1])
        for path, cell in sorted(variables.items()):
            shape = tuple(cell.shape)
            size = int(np.prod(shape))
            parts[path] = ops.reshape(vectors[..., begin : begin + size], (*leading, *shape))
            begin += size
        return parts


def _size(variables: Any) -> int:
    """How many numbers the variables hold."""
    return sum(int(np.prod(variable.space.shape)) for variable in variables)


class Generation:
    """Mirrored pairs of perturbed policies (members), each of which plays one episode in one of a few environments.

    The first members begin at once, one per environment; where one has finished, the next one begins. After the last
    member, what is played in an environment does not count.

    Args:
        offsets: Where the noise of each pair begins, int32 (n,). Member 2 i has the sign +1 of pair i, 2 i + 1 has -1.
        num_envs: Environments, and so members that play at a time; at most 2 n.
    """

    def __init__(self, offsets: npt.NDArray[np.int32], num_envs: int) -> None:
        self.offsets = offsets
        self.returns = np.full((len(offsets), 2), np.nan, np.float32)
        self._members = np.arange(num_envs)
        self._playing = np.ones(num_envs, np.bool_)
        self._next = num_envs

    @property
    def complete(self) -> bool:
        """Whether all members have played."""
        return not self._playing.any()

    def playing(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """Offset and sign of the member in each environment, (num_envs,) twice."""
        return self.offsets[self._members // 2], np.where(self._members % 2, -1.0, 1.0).astype(np.float32)

    def finish(self, index: int, episode_return: float) -> bool:
        """Notes the episode that ended in the environment of an index.

        Returns:
            Whether another member plays there now.
        """
        if not self._playing[index]:
            return False
        self.returns.reshape(-1)[self._members[index]] = episode_return
        if self._next == self.returns.size:
            self._playing[index] = False
            return False
        self._members[index] = self._next
        self._next += 1
        return True


class ES(GivesGradients):
    """Evolution strategies for discrete, multi-discrete, box and nested action spaces.

    Policies take their likeliest actions; exploration is in the weights. One perturbed policy acts in each environment
    (see `perturb` and `act_perturbed`).

    Args:
        observation_space: Space of one observation.
        action_space: Space of one action.
        config: `ESConfig` or its data.
        num_envs: Environments, and so perturbed policies that act at a time.
        backend: As in `Agent`; "numpy" can learn, too, because nothing is differentiated.
        seed: As in `Agent`.

    Raises:
        ConfigError: There is a recurrent layer.
    """

    name: ClassVar[str] = "es"
    no_single_steps: ClassVar[tuple[str, str] | None] = (
        "evolution strategies learn from the returns of whole episodes, each played by one perturbed policy",
        "play a generation with perturb() and act_perturbed(), as rlweave.extras.es does, and pass its "
        "offsets and returns to update()",
    )
    no_recurrent_networks: ClassVar[tuple[str, str] | None] = (
        "perturbed policies carry no state from step to step",
        "use layers without a state, such as dense, or an algorithm that takes recurrent networks, such as PPO",
    )
    config_class = ESConfig
    config: ESConfig
    acting_methods: ClassVar[tuple[str, ...]] = ("act", "perturb", "act_perturbed")

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        config: ESConfig | Mapping[str, Any] | None = None,
        *,
        num_envs: int = 1,
        backend: str = "jax",
        seed: int = 0,
    ) -> None:
        super().__init__(observation_space, action_space, config, backend=backend, seed=seed)
        self.num_envs = num_envs

    def arguments(self) -> dict[str, Any]:
        return {"num_envs": self.num_envs}

    def make_root(self) -> ESGraph:
        config = self.config
        return ESGraph(
            policy=Policy(
                **self.encoder_arguments(),
                action_space=self.action_space,
                initializer="orthogonal",
                mask_leaf=config.mask_leaf,
            ),
            noise=NoiseTable(config.noise_size, config.noise_seed),
            evolution=EvolutionStrategy(config.sigma),
            optimizer=Component.from_spec({**config.optimizer, "learning_rate": config.lr}),
            weight_decay=config.weight_decay,
        )

    def input_spaces(self) -> dict[str, InputSpace]:
        return self.acting_spaces() | {
            "act_perturbed.observations": self.observation_space.with_batch_rank(self.num_envs),
            "perturb.offsets": IntBox(add_batch_rank=self.num_envs),
            "signs": FloatBox(add_batch_rank=self.num_envs),
            "offsets": IntBox(add_batch_rank=True),
            "returns": FloatBox(shape=(2,), add_batch_rank=True),
            "gradients": lambda root: root.policy.variables(),
        }

    # -- acting --------------------------------------------------------------------------------------------------

    def choose_actions(
        self, observations: Any, carried: dict[str, Any], explore: bool, preprocess: bool
    ) -> tuple[Any, dict[str, Any], Any]:
        """Actions of the policy in the centre: the likeliest ones, or drawn from its distribution to explore."""
        actions, _, after = self.acting.act(observations, explore=explore)
        return actions, {}, after

    def draw_offsets(self, generator: np.random.Generator, pairs: int) -> npt.NDArray[np.int32]:
        """Where in the table of noise the perturbations of mirrored pairs begin, (pairs,)."""
        length = sum(int(weights.size) for weights in self.get_weights().values())
        return generator.integers(0, self.config.noise_size - length, pairs, np.int32, endpoint=True)

    def perturb(self, generation: Generation) -> None:
        """Gives each perturbed policy the weights of the member that plays in its environment."""
        self.acting.perturb(*generation.playing())

    def act_perturbed(self, observations: Any) -> Any:
        """The action of each perturbed policy for the observation of its environment, (num_envs, ...)."""
        self.check_masks(observations)
        return self.env_actions(self.acting.act_perturbed(observations))

    # -- learning ------------------------------------------------------------------------------------------------

    def learn(self, batch: Batch) -> Metrics:
        """One step along the gradient that a generation gives.

        Args:
            batch: Dict of arrays, a row per mirrored pair: `offsets`, int32 (n,), where their noise begins;
                `returns`, float32 (n, 2), of the episodes at centre + sigma * noise and centre - sigma * noise.
        """
        returns = np.asarray(batch["returns"], np.float32)
        _, learned = self.executor.update(batch["offsets"], returns, with_metrics=True)
        self._copy_to_acting()
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
