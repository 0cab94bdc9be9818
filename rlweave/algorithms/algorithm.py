"""`Algorithm`: an agent, the workers that act for it, a dataflow plan, and presets."""

from __future__ import annotations

import dataclasses
import fnmatch
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from rlweave.agents.agent import Agent
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.environments import describe_environment, evaluate_player, observation_space_of
from rlweave.algorithms.learners import AgentLearner, RemoteLearner
from rlweave.algorithms.parts import Parts, Trainer
from rlweave.algorithms.placement import MakeWorker, RolloutWorkers, check_engine, place
from rlweave.algorithms.placements import placement_of
from rlweave.algorithms.rollout_workers import AlternatingWorker, EnvWorker
from rlweave.algorithms.schedule_lengths import fill_schedules
from rlweave.algorithms.trainer import PlanTrainer
from rlweave.backends import best_backend, get_backend
from rlweave.envs import Evaluation, VectorEnv, resolve
from rlweave.errors import BackendError, ConfigError, EnvError, install_command, nearest
from rlweave.flow import ReportMetrics, WorkerGroup, Workers
from rlweave.flow.item_types import signature_of
from rlweave.plugins import imported
from rlweave.runs.run_directory import RunDirectory

Evaluate = Callable[[Any, Any, int, int], Evaluation]


def no_arguments(config: Any, env: VectorEnv) -> dict[str, Any]:
    """Most agents need spaces and settings only."""
    return {}


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """An algorithm that can be trained by name.

    Most declare their `agent`, `worker` and `plan`; others have a `trainer` of their own.

    Attributes:
        name: As on the command line.
        summary: One line for `rlweave list`.
        config_class: Its settings, usually with a section `agent`.
        agent: Class of the agent.
        worker: Makes a worker, of settings, an agent and environments; its return annotation says which kind.
        plan: Composes the plan: of the workers, the learner and, where the algorithm has one, the memory. Keyword-only
            parameters are settings (fields or properties of `config_class`) of the same name.
        agent_arguments: Further arguments of the agent's class, from settings and an environment.
        learner: Makes the plan's learner from the agent. `counts=True`: the learner counts environment steps (workers
            have their own agents).
        memory: Makes the memory that a plan fills and samples, where it is not part of the agent.
        complete: Validates and completes the settings, in addition to what all trainings get: schedule lengths (from
            `config.optimizer_steps`) and the action mask.
        fused: Class of the agent that has the environments in its graph, as "module:Class", a subclass of `agent`: it
            is imported for `placement=fused` only.
        presets: Environment id, or a pattern of ids such as `ALE/*`, to nested settings that were tuned for it; they
            stand between defaults and config file.
        needs_gradients: Whether only a backend with gradients can train it; others may still act and show its graph.
        make_parts: Makes the parts of a training, in place of `agent`, `worker` and `plan`.
        trainer: Makes a trainer from settings and a run directory; without that, nothing is written. None:
            `PlanTrainer`.
        evaluate: Plays episodes: of a config, a player (see `Agent.greedy_player`; of several policies
            a dict of them), a number of episodes and a seed. None: one policy in one environment; with a `trainer`
            of its own, only that evaluates.
        find_env: Finds the environment of a name; raises `EnvError` if there is none.
    """

    name: str
    summary: str
    config_class: type[TrainConfig]
    agent: type[Agent] | None = None
    worker: MakeWorker | None = None
    plan: Callable[..., ReportMetrics] | None = None
    agent_arguments: Callable[[Any, Any], dict[str, Any]] = no_arguments
    learner: Callable[..., Any] = AgentLearner
    memory: Callable[[Any, Any], Any] | None = None
    complete: Callable[[Any], Any] | None = None
    fused: str | None = None
    presets: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    needs_gradients: bool = True
    make_parts: Callable[[Any], Any] | None = None
    trainer: Callable[[Any, RunDirectory | None], Trainer] | None = None
    evaluate: Evaluate | None = None
    find_env: Callable[[str], object] = resolve

    def preset_of(self, env: Any) -> Mapping[str, Any] | None:
        """The settings tuned for an environment: those of its id, else of the first pattern that fits; None: none."""
        if not isinstance(env, str):
            return None
        fitting = (preset for pattern, preset in self.presets.items() if fnmatch.fnmatchcase(env, pattern))
        return self.presets.get(env) or next(fitting, None)

    def make_trainer(self, config: Any, run: RunDirectory | None = None) -> Any:
        """A trainer.

        Args:
            config: Settings of the training.
            run: Where checkpoints go; None writes nothing.

        Raises:
            ConfigError: It cannot be placed as the settings say.
        """
        if self.trainer is None:
            return PlanTrainer(config, run, self.parts)
        self.check_placement(config)
        return self.trainer(config, run)

    def check_placement(self, config: Any) -> None:
        """Checks that it can be placed as the settings of a training say.

        Raises:
            ConfigError: It has no such form, or settings contradict the placement.
        """
        placement_of(config).check(self)  # before the number of workers, which may be the algorithm's own
        check_engine(config)

    @property
    def has_plan(self) -> bool:
        """Whether its plan can be composed, and shown, without a training."""
        return self.make_parts is not None or None not in (self.agent, self.worker, self.plan)

    @property
    def ranked(self) -> type[Agent] | None:
        """The agent, if several of it learn as one; else None."""
        return self.agent if self.agent is not None and self.agent.learns_in_ranks else None

    @property
    def gives_gradients(self) -> type[Agent] | None:
        """The agent, if its update is one optimizer step with the gradients of a rollout; else None."""
        return self.agent if hasattr(self.agent, "rollout_gradients") else None

    @property
    def served(self) -> type[AlternatingWorker] | None:
        """The class of its workers, if they need nothing of the agent but what to do; else None."""
        kind = None if self.worker is None else signature_of(self.worker).gives
        if not isinstance(kind, type) or not issubclass(kind, AlternatingWorker):
            return None
        return kind if kind.act is EnvWorker.act and not kind.computes_gradients else None

    def evaluator(self) -> Evaluate | None:
        """The function that plays with a model alone; None where only a trainer can."""
        return evaluate_player if self.evaluate is None and self.trainer is None else self.evaluate

    def check_environment(self, env_id: str) -> None:
        """Checks that there is an environment of this name for it.

        Raises:
            ConfigError: There is none; names the nearest one.
        """
        try:
            self.find_env(env_id)
        except EnvError as error:
            raise ConfigError(error.what, where=error.where, received=error.received, fix=error.fix) from error

    def check_learns_on(self, name: str) -> None:
        """Checks that it can learn on a backend, which `check_backend` has accepted.

        Raises:
            BackendError: The backend only acts, or has no gradients, which the algorithm needs.
        """
        backend = get_backend(name)
        if backend.acts_only or (self.needs_gradients and not backend.differentiable):
            best = best_backend()
            learn = (
                f"learn with --backend {best}" if best != "numpy" or not self.needs_gradients
                else f"install one that learns: {install_command('jax')} or {install_command('torch')}"
            )  # fmt: skip
            raise BackendError(
                f"the {name} backend acts but cannot learn{'' if backend.acts_only else ': it has no gradients'}",
                where="backend",
                received=repr(name),
                fix=f"{learn}; --set agent.acting_backend={name} acts with {name}",
            )

    # -- parts of a training -------------------------------------------------------------------------------------

    def make_agent(self, config: Any, env: VectorEnv, seed: int) -> Any:
        """The agent for an environment; not built yet.

        Args:
            config: Settings of the training.
            env: The environment.
            seed: Of weights and exploration.
        """
        assert self.agent is not None
        spaces = observation_space_of(config, env), env.action_space
        own = self.agent_arguments(config, env)
        agent = self.agent(*spaces, config.agent, backend=config.backend, seed=seed, **own)
        agent.made_for = describe_environment(config, env.gym_observation_space, env.gym_action_space)
        return agent

    def parts(self, config: Any) -> Any:
        """Agent, workers and plan of a training; nothing is built or started.

        Raises:
            ConfigError: Settings contradict each other, it cannot be placed as they say, or it does not declare its
                parts.
        """
        self.check_placement(config)
        placement = placement_of(config)
        if self.make_parts is not None:
            return self.make_parts(config)
        if self.agent is None or self.worker is None or self.plan is None:
            raise ConfigError(
                f"{self.name} does not declare its parts",
                where=f"Algorithm {self.name!r}",
                received="no agent, worker and plan",
                fix="give the Algorithm an agent, a worker and a plan, or make_parts",
            )
        config = fill_schedules(config if self.complete is None else self.complete(config))
        if placement.parts is not None:
            return imported(placement.parts)(config, self)
        agent, workers = place(config, self.make_agent, self.worker)
        remote = None
        learner = self.learner(agent, counts=config.has_remote_actors)
        if getattr(config, "learner", "here") == "actor":
            remote = RemoteLearner(config, self.make_agent, agent)
            learner = remote.actor

        def plan() -> ReportMetrics:
            memory = () if self.memory is None else (self.memory(config, agent),)
            return self.plan_of(config, workers, learner, *memory)

        return Parts(agent, workers, plan, remote)

    def plan_of(self, config: Any, workers: Workers, learner: Any, *memory: Any) -> ReportMetrics:
        """The plan of these workers and this learner, with the settings that are its keyword-only parameters.

        Raises:
            ConfigError: There is no setting of the name of a parameter.
        """
        assert self.plan is not None
        parameters = inspect.signature(self.plan).parameters.values()
        asked = [own.name for own in parameters if own.kind is own.KEYWORD_ONLY]
        for name in asked:
            if not hasattr(config, name):
                raise ConfigError(
                    "a keyword-only parameter of a plan is no setting",
                    where=f"Algorithm {self.name!r}, plan",
                    received=f"the keyword-only parameter {name!r}",
                    fix=nearest(name, type(config).model_fields),
                )
        settings = {name: getattr(config, name) for name in asked}
        own = workers if isinstance(workers, RolloutWorkers) else RolloutWorkers(workers, config)
        return self.plan(own, learner, *memory, **settings)

    def compose(self, config: TrainConfig) -> ReportMetrics:
        """Composes the plan of a training, for inspection on any engine; it cannot be started.

        Environments are made for their spaces, and closed again. None is stepped, no agent is built, no engine is
        started.

        Args:
            config: Settings of the training.

        Raises:
            ConfigError: The algorithm does not declare its parts, or settings contradict each other.
            PlanError: The plan is wrongly composed.
        """
        return self._inspected(config)[0]

    def explain(self, config: TrainConfig) -> str:
        """The plan of a training, and its placement: operators, fragments, processes and borders, as text.

        Args:
            config: Settings of the training.

        Raises:
            ConfigError: As `compose`.
            PlanError: As `compose`.
        """
        plan, agent = self._inspected(config)
        placement: str = imported("rlweave.algorithms.placement_report:explain_placement")(config, plan, agent)
        return f"{plan.explain(config.engine)}\n{placement}"

    def draw_placement(self, config: TrainConfig, form: str = "svg") -> str:
        """The placement of a training as a picture: its processes, and what crosses the borders between them.

        Args:
            config: Settings of the training.
            form: "svg" or "mermaid".

        Raises:
            ConfigError: As `compose`.
            PlanError: As `compose`.
        """
        picture: str = imported("rlweave.algorithms.placement_picture:draw_placement")(
            config, *self._inspected(config), form
        )
        return picture

    def _inspected(self, config: TrainConfig) -> tuple[ReportMetrics, Any]:
        """The plan, which cannot be started, and the agent, which is not built."""
        parts = self.parts(config)
        try:
            plan: ReportMetrics = parts.plan()
            plan.close()
            return plan, getattr(parts, "agent", None)
        finally:
            if not isinstance(parts.workers, WorkerGroup):
                for worker in parts.workers:
                    worker.close()
