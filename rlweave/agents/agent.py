"""`Agent`: the interface of all algorithms, independent of how they are executed."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np

from rlweave.agents.acting import ActingChoice, choose_acting
from rlweave.agents.kept_memory import KeepsMemory
from rlweave.agents.model_exchange import ModelExchange
from rlweave.agents.networks import with_networks
from rlweave.agents.stepping import ActsAndObserves
from rlweave.backends import get_backend
from rlweave.components.action_boundary import ActionBoundary
from rlweave.components.action_leaves import ANY_KIND
from rlweave.components.leaf_encoding import check_observations
from rlweave.components.network import is_recurrent
from rlweave.components.ranks import Ranks, Share
from rlweave.errors import ConfigError, ExecutionError
from rlweave.graph import Component, GraphExecutor, build
from rlweave.graph.assembly import InputSpace
from rlweave.settings.config import Config, setting
from rlweave.settings.ranges import FINITE, Range
from rlweave.spaces import BoolBox, Space, Tuple

Batch = Any
Metrics = dict[str, Any]

#: The `acting_backend` that is chosen by measuring.
AUTO = "auto"


class AgentConfig(Config):
    """Settings that all agents share."""

    numbers: ClassVar[Range] = FINITE
    """They are part of models, which are strict JSON."""
    normalizes_layers: ClassVar[bool] = False
    """Whether the default image network has layer normalization."""

    acting_backend: str | None = setting(
        None,
        "what computes actions: numpy, onnx (ONNX Runtime), torch, jax or tensorflow; null: the backend that learns; "
        "auto: the fastest of numpy, onnx and that one, measured when training starts (another machine, or day, may "
        "choose another, whose exploration draws other random numbers)",
    )
    mask_leaf: str | None = setting(
        None, "leaf of the observation that says which actions are allowed, such as action_mask; null: all are"
    )
    device: str | dict[str, str] | None = setting(
        None, "where the learning graph is: a device (cuda:0, cpu:1), or devices by component path; null: the default"
    )
    rng: Literal["fast", "portable"] = setting(
        "fast",
        "random numbers of the graph: fast, each framework's own; portable, slower, the same numbers on every backend",
    )


class ReplicatedConfig(AgentConfig):
    """Settings of agents whose update can be split over devices."""

    replicas: int | list[str] | None = setting(
        None, "devices (or how many) over which the batch of an update is split; null: one"
    )


class Agent(ActsAndObserves, ModelExchange, KeepsMemory):
    """An algorithm as a component graph, behind one API.

    The graph is made by `build`, or at the first use. Acting may run on another backend than learning
    (`config.acting_backend`): then the acting graph has a store of its own, and weights travel as NumPy by path.

    Args:
        observation_space: Space of one observation, without ranks.
        action_space: Space of one action, without ranks.
        config: Settings; the defaults of `config_class` when None.
        backend: "numpy" (acting only), "torch", "jax" or "tensorflow".
        seed: Seeds weights and exploration.
    """

    config_class: ClassVar[type[AgentConfig]]
    name: ClassVar[str]
    #: Which kinds of leaves actions may have, see `action_leaves`.
    action_kinds: ClassVar[frozenset[str]] = ANY_KIND
    #: Why its networks carry no state from step to step, and what to do instead; None: they may.
    no_recurrent_networks: ClassVar[tuple[str, str] | None] = None
    #: Whether its update is that of one batch where several agents learn from parts of it, see `join`.
    learns_in_ranks: ClassVar[bool] = False
    #: Its part in an update of several ranks; None: it learns alone.
    share: Share | None = None

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        config: AgentConfig | Mapping[str, Any] | None = None,
        *,
        backend: str = "jax",
        seed: int = 0,
    ) -> None:
        self.observation_space, self.action_space = observation_space.strip_ranks(), action_space.strip_ranks()
        if config is None:
            config = self.config_class()
        elif isinstance(config, Mapping):
            config = self.config_class.from_data(config)
        if not isinstance(config, self.config_class):
            raise ConfigError(
                "the configuration is of another agent",
                where=type(self).__name__,
                received=type(config).__name__,
                fix=f"pass a {self.config_class.__name__}",
            )
        self.config: Any = with_networks(config, self.observation_space)
        check_observations(self.observation_space, self.name)
        self._boundary = ActionBoundary(self.action_space, self.name, self.action_kinds)
        self.backend, self.seed = backend, seed
        self._executor: GraphExecutor | None = None
        self._acting: GraphExecutor | None = None
        #: Whether the acting executor's weights are stale; `acting` copies them before it acts.
        self._acting_is_behind = False
        self._acting_paths: tuple[str, ...] = ()
        #: How many observations are acted on at once; `acting_backend="auto"` measures with so many.
        self.acting_batch_size = 1
        #: What `acting_backend="auto"` measured and chose; None before, and where a backend is named.
        self.acting_choice: ActingChoice | None = None
        self.env_steps = 0
        #: Environment steps at which the training pauses next, to report, evaluate or save.
        self.pauses_at: float = math.inf
        network = getattr(self.config, "network", None)
        #: Whether the networks carry a state from step to step; a layer such as an LSTM in `network` makes them.
        self.recurrent = is_recurrent(network)
        if self.recurrent and self.no_recurrent_networks is not None:
            what, fix = self.no_recurrent_networks
            raise ConfigError(what, where=f"{self.name}, network", received=repr(network), fix=fix)
        self.complete_settings()
        self.forget_steps()

    def complete_settings(self) -> None:
        """Fills in settings that are open, and checks them against each other.

        Raises:
            ConfigError: They contradict each other.
        """

    # -- the graph -----------------------------------------------------------------------------------------------

    @abstractmethod
    def make_root(self) -> Component:
        """The root component of the agent's graph."""

    def encoder_arguments(self) -> dict[str, Any]:
        """Arguments of policies, critics and value functions that say how observations are encoded."""
        config = self.config
        return {
            "network": config.network,
            "image_network": config.image_network or None,
            "observation_space": self.observation_space,
        }

    @abstractmethod
    def input_spaces(self) -> dict[str, InputSpace]:
        """Spaces of the root's API inputs: `acting_spaces`, and those of learning."""

    def acting_spaces(self) -> dict[str, InputSpace]:
        """Spaces of what acting takes: observations, and what is carried from step to step."""
        observations = {"observations": self.observation_space.with_batch_rank()}
        if not self.carries_state:
            return {**observations}
        carried = {"recurrent_state": self.recurrent_space.with_batch_rank()}
        return {**observations, **carried, "episode_start": BoolBox(add_batch_rank=True)}

    #: API methods that an acting graph needs.
    acting_methods: ClassVar[tuple[str, ...]] = ("act",)
    #: API methods that the agent of a worker elsewhere needs; None: those of acting.
    worker_methods: ClassVar[tuple[str, ...] | None] = None
    #: Prefixes (below the root) of the variables that acting (or else a worker elsewhere) needs.
    acting_prefixes: tuple[str, ...] = ("policy",)

    @property
    def static_arguments(self) -> dict[str, dict[str, Any]]:
        """Static arguments by API method that are known beforehand, so that these variants are traced by the build."""
        return {}

    def check_components(self) -> None:
        """Composes the components and builds nothing of them: a setting that they refuse is an error here.

        Raises:
            BackendError: There is no such backend to act on.
            RlweaveError: They refuse a setting, such as a layer of an unknown type.
        """
        self.make_root()
        if self.config.acting_backend not in (None, AUTO):
            get_backend(self.config.acting_backend)

    def build(self, options: Mapping[str, Any] | None = None) -> Self:
        """Builds the graphs.

        Args:
            options: Further arguments of `rlweave.graph.build` (mode, rng, device, ...).
        """
        options = dict(options or {})
        root = self.make_root()
        if self.share is not None:
            self._refuse_eager(options)
            Ranks(self.share).connect(root)
        options.setdefault("static", self.static_arguments)
        options.setdefault("device", self.config.device)
        options.setdefault("replicas", self.replicas)
        options.setdefault("rng", self.config.rng)
        self._executor = build(root, self.input_spaces(), backend=self.backend, seed=self.seed, **options)
        self._note_empty_memory()
        acting, measured = self.config.acting_backend, None
        if acting == AUTO:
            measure = self.acting_methods[0], self.input_spaces(), self.acting_batch_size
            self.acting_choice, measured = choose_acting(self._executor, self.make_acting, *measure)
            acting = self.acting_choice.backend
            self.config = self.config.model_copy(update={"acting_backend": acting})
        if acting is None or acting == self.backend:
            self._acting = self._executor
        else:
            self._acting = self.make_acting(acting) if measured is None else measured
            self._copy_to_acting()
        return self

    def join(self, collective: Any) -> None:
        """Has it learn as one of several ranks: an update is that of one agent on the batches of all.

        Gradients are averaged over the rows of all ranks before they are clipped, and so are statistics of
        observations, rewards and advantages. Ranks begin with equal weights, and keep them, bit for bit; call `learn`
        on all of them at the same time.

        Args:
            collective: Of this rank, see `rlweave.flow.Collective`.

        Raises:
            ConfigError: An update of this agent is more than a mean over rows, or it is built already.
        """
        why = self._no_ranks()
        if why is not None:
            raise ConfigError(
                f"{self.name} cannot learn in several ranks: {why[0]}",
                where=f"{self.name}, multi_learner",
                received=f"{collective.size} ranks",
                fix=why[1],
            )
        self.share = Share(collective)

    @property
    def replicas(self) -> int | list[str] | None:
        """The devices over which an update is split, or how many; None: it is not."""
        chosen: int | list[str] | None = getattr(self.config, "replicas", None)  # a setting of those who can
        return chosen

    def _refuse_eager(self, options: Mapping[str, Any]) -> None:
        """Refuses a mode whose API methods are traced while they run: ranks do not meet in what is traced."""
        if options.get("mode", "compiled") != "compiled":
            raise ConfigError(
                "an agent that learns as one of several ranks runs compiled",
                where=f"{self.name}.build",
                received=f"mode={options['mode']!r}",
                fix="leave the mode out; debug an agent that learns alone",
            )

    def is_of_all_ranks(self, path: str) -> bool:
        """Whether a variable is equal on all ranks: not so random states, memories, and what belongs to a column."""
        memory = f"/{self.memory_scope}/" if self.memory_scope else None
        return not (path.startswith(("random", "acting:")) or path.endswith("/carried") or (memory and memory in path))

    def _no_ranks(self) -> tuple[str, str] | None:
        """Why it cannot learn as one of several ranks, and what to do; None: it can."""
        other = "use another placement"
        if not self.learns_in_ranks:
            others = "a2c, appo, ddpg, dqn, impala, ppo, pqn, sac and td3 have one"
            return "its update has no form for them", f"{other}; {others}"
        if self.replicas is not None:
            return "replicas divide an update among devices of one process", "leave replicas or the ranks out"
        if self._executor is not None:
            return "its graph is built", "call join before build"
        return None

    def make_acting(self, backend: str, seed: int | None = None) -> GraphExecutor:
        """An executor of the acting methods alone, with a store of its own (for workers elsewhere)."""
        return build(
            self.make_root(),
            self.input_spaces(),
            backend=backend,
            seed=self.seed if seed is None else seed,
            methods=self.acting_methods,
            rng=self.config.rng,
        )

    @property
    def executor(self) -> GraphExecutor:
        """The graph that learns."""
        if self._executor is None:
            self.build()
        assert self._executor is not None
        return self._executor

    @property
    def acting(self) -> GraphExecutor:
        """The graph that acts; the learning one, unless `acting_backend` says otherwise."""
        if self._acting is None:
            self.build()
        elif self._acting_is_behind:
            self._copy_to_acting()
        assert self._acting is not None
        return self._acting

    def _copy_to_acting(self) -> None:
        """Hands the learner's weights to an acting graph of its own."""
        self._acting_is_behind = False
        if self._acting is None or self._acting is self._executor:
            return
        if not self._acting_paths:
            self._acting_paths = tuple(p for p in self._acting.store.cells if not p.startswith("random"))
        self._acting.copy_weights(self.executor, self._acting_paths)

    @cached_property
    def recurrent_space(self) -> Space:
        """Space of the recurrent state of one environment, without ranks; `Tuple()` without memory."""
        space: Space = self.make_root().recurrent_space if self.recurrent else Tuple()
        return space

    def _checked(self, metrics: Metrics) -> Metrics:
        """Metrics of an update.

        Raises:
            ExecutionError: One is not finite: what was learned is lost from here on.
        """
        wrong = [name for name, value in metrics.items() if not math.isfinite(value)]
        if wrong:
            raise ExecutionError(
                "training has diverged",
                where=f"{self.name}.update after {self.env_steps} environment steps",
                received=f"{wrong[0]} = {metrics[wrong[0]]}",
                fix="go back to the last checkpoint; lower the learning rate, clip gradients, or scale rewards",
            )
        return metrics

    def counters(self) -> dict[str, int]:
        """Absolute counters, as plain data for a checkpoint."""
        return {"env_steps": self.env_steps}

    def load_counters(self, counters: Mapping[str, int]) -> None:
        """Takes over what `counters` gave."""
        self.env_steps = int(counters["env_steps"])

    # -- learning ------------------------------------------------------------------------------------------------

    @abstractmethod
    def learn(self, batch: Batch) -> Metrics:
        """One update on a batch; metrics, one number each."""

    def update(self, batch: Batch | None = None) -> Metrics:
        """As `learn`; without a batch, on what was observed step by step."""
        if batch is None:
            self.check_single_steps("update")
            batch = self.observed()
        return self.learn(batch)

    def _after_update(self) -> None:
        """What else belongs to an update, such as a copy to a target network."""

    def observed(self) -> Batch:
        """The batch of what was observed step by step.

        Raises:
            ExecutionError: There is not enough of it, or the agent learns from given batches only.
        """
        raise ExecutionError("this agent learns from batches only", where=f"{self.name}.update", fix="pass a batch")

    # -- state ---------------------------------------------------------------------------------------------------

    def get_weights(self) -> dict[str, np.ndarray]:
        """Copies of the variables that acting needs (normalizer statistics included), by path."""
        root = self.executor.root.path
        weights: dict[str, np.ndarray] = {}
        for prefix in self.acting_prefixes:
            weights.update(self.executor.get_weights(f"{root}/{prefix}"))
        return weights

    def set_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Sets variables by path; the others stay."""
        self.executor.set_weights(weights)
        self._copy_to_acting()

    def state_dict(self, memory: bool = True) -> dict[str, np.ndarray]:
        """Everything that training needs to go on: weights, optimizer, random state, and with `memory` that."""
        state = self.executor.state_dict(() if memory else self._memory_sizes())
        if self._acting is not None and self._acting is not self._executor:
            state.update({f"acting:{p}": v for p, v in self._acting.state_dict().items() if p.startswith("random")})
        return state

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes over what `state_dict` gave; without a memory in it, that of this agent is empty then."""
        own = {path: value for path, value in state.items() if not path.startswith("acting:")}
        self.executor.load_state_dict(self._with_empty_memory(own))
        self._copy_to_acting()
        self.forget_steps()
        acting = {path.removeprefix("acting:"): v for path, v in state.items() if path.startswith("acting:")}
        if acting and self._acting is not None and self._acting is not self._executor:
            self._acting.set_weights(acting)

    def reseed(self, seed: int) -> None:
        """Begins the random numbers anew, exploration included; weights stay as they are."""
        self.executor.reseed(seed)
        if self.acting is not self.executor:
            self.acting.reseed(seed)

    def _after_import(self) -> None:
        self._copy_to_acting()
        self.begin_episodes()


class GivesGradients(Agent):
    """The side of an agent that gives gradients and takes them: its root has API methods `gradients` and `apply`."""

    def compute_gradients(self, batch: Any) -> dict[str, np.ndarray]:
        """Gradients of the loss on what is learned from, by variable path; changes nothing."""
        gradients: dict[str, np.ndarray] = self.executor.gradients(batch)
        return gradients

    def apply_gradients(self, gradients: Mapping[str, np.ndarray]) -> None:
        """One optimizer step with given gradients, which counts as an update."""
        self.executor.apply(dict(gradients))
        self._after_update()
        self._copy_to_acting()
