"""`PlanTrainer`: runs an agent's dataflow plan, evaluates, and keeps checkpoints."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from rlweave.agents.agent import AUTO
from rlweave.agents.model_files import Model, write_model
from rlweave.algorithms.callbacks import Callbacks
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.environments import evaluate_player
from rlweave.algorithms.parts import Events, Parts
from rlweave.algorithms.placement import close_engine, make_engine, set_threads
from rlweave.algorithms.saving import (
    Rescue,
    check_same_training,
    is_refused_by_disk,
    save_and_tell,
    size_warning,
    write_state,
    write_training,
)
from rlweave.envs import Evaluation
from rlweave.envs.seeding import derived_seed
from rlweave.errors import CheckpointError, PlanError
from rlweave.flow import Counters, ReportMetrics, WorkerGroup
from rlweave.flow import Report as PlanReport
from rlweave.runs.checkpoint import load_checkpoint, read_checkpoint_model, save_checkpoint
from rlweave.runs.metrics import Report
from rlweave.runs.run_directory import RunDirectory
from rlweave.runs.states import Large, join_arrays

#: Size of a replay memory above which the state is not copied before a long step, in bytes.
_MOST_KEPT = 1 << 27


class PlanTrainer:
    """Trains by running a plan.

    Saving changes nothing: a checkpoint also holds the items in flight. Where environments can be saved, a resumed run
    equals one that was not interrupted; otherwise its workers begin new episodes, on seeds derived from the step, and
    all else is equal. The `best` checkpoint holds the model, and nothing else.

    Args:
        config: Settings of the training.
        run: Where checkpoints go; None writes nothing.
        make_parts: Makes agent, workers and plan.
    """

    #: Whether the state stays consistent during an evaluation.
    evaluation_changes_nothing = True
    #: Called for evaluations and checkpoints.
    callbacks = Callbacks()
    #: The model of the best evaluation so far, if there is no directory.
    best_model: Model | None = None

    def __init__(self, config: TrainConfig, run: RunDirectory | None, make_parts: Callable[[Any], Parts]) -> None:
        self.config, self.run = config, run
        self._begin_telling()
        self.parts = make_parts(config)
        self.agent: Any = self.parts.agent
        try:
            plan = self._compose()
            self.agent.check_components()
        except BaseException:
            self._close_environments()
            raise
        # after the checks, and before the build: processes should not begin once a backend has threads
        self.engine = make_engine(config)
        try:
            self._prepare_agent()
            self._start(plan)
            self.plan.ask_workers("start", [(seed,) for seed in self._episode_seeds()])
        except BaseException:
            close_engine(self.engine)
            self._close_environments()
            raise
        self.events = Events(config)
        self.best_return = -np.inf

    def _begin_telling(self) -> None:
        #: Notes for the user, a line each.
        self.notes: list[str] = []
        #: Called with notes for the user while the training runs.
        self.tell: Callable[[str], None] = self.notes.append
        self._told_of_checkpoints = False
        self._rescue = Rescue(self._keep_state, self.save, self.config.stop_grace)

    def _compose(self) -> ReportMetrics:
        plan = self.parts.plan()
        plan.warn_after = self.config.warn_after
        return plan

    def _start(self, plan: ReportMetrics) -> None:
        self.plan = plan.start(self.engine, episode_window=self.config.return_window)
        if self.parts.remote is not None:
            self.parts.remote.begin(self.plan)

    def _prepare_agent(self) -> None:
        """Settles threads and acting backend before anything runs."""
        set_threads(self.config, self.agent)
        if self.agent.config.acting_backend == AUTO:
            self._choose_acting_backend()

    @property
    def env_steps(self) -> int:
        """Environment steps so far."""
        return self.plan.counters.env_steps_sampled

    def train(self) -> Iterator[Report]:
        """Trains to `config.steps`; see `Trainer`."""
        if self.run is not None and getattr(self.config, "save_memory", True):
            warning = size_warning(self._memory_bytes(), self.run.checkpoints)
            if warning:
                self.tell(warning)
        if self.config.steps == 0:
            yield {"env_steps_sampled": 0}
        if self.events.is_due(self.env_steps):  # it was stopped before
            yield from self._events()
        while self.env_steps < self.config.steps and not self.plan.stopped:
            self._advance(min(self.events.next_after(self.env_steps), self.config.steps))
            yield from self._events()

    def _events(self) -> Iterator[Report]:
        """Evaluates, reports and saves, where due."""
        steps, events = self.env_steps, self.events
        if self.plan.stopped and events.is_due(steps):
            return  # done after a resume
        ended = self.plan.ended or steps >= self.config.steps
        # first: it may take long, and a report removes metrics and episodes from the plan
        evaluation: Report = {}
        if events.evaluate.is_due(steps) or (ended and self.config.evaluate_every):
            with self._rescue.state_is_whole() if self.evaluation_changes_nothing else nullcontext():
                evaluation = self._evaluation_row()
            events.evaluate(steps)  # after it: a run resumed from a state saved meanwhile evaluates again
            evaluation = self.callbacks.on_evaluation(evaluation)
        # before the checkpoint: a run that is resumed from it has this row
        if events.report(steps) or ended or evaluation:
            yield {**self.plan.report().flat(), **evaluation}
        if events.checkpoint(steps) and not ended and self.run is not None:
            self._save_scheduled(self.save)

    def _memory_bytes(self) -> int:
        """Size of the replay memory when it is full."""
        size: int = self.agent.memory_bytes()
        return size

    def run_to(self, goal: int) -> PlanReport | None:
        """Trains until there are so many environment steps, regardless of `config.steps`.

        Returns:
            A report; None if nothing happened since the last one.

        Raises:
            PlanError: All sources have ended.
        """
        updates, steps = self.plan.counters.updates, self.env_steps
        self._advance(goal)
        nothing = (updates, steps) == (self.plan.counters.updates, self.env_steps)
        return None if nothing else self.plan.report()

    def _advance(self, goal: int) -> None:
        """As `run_to`, without a report: the next one covers it."""
        if self.plan.ended:
            raise PlanError(
                "the training is not complete, but all sources of its plan have ended",
                where=", ".join(node.name for node in self.plan.graph.nodes if not node.inputs),
                received=f"{self.env_steps} environment steps of {goal}",
                fix=f"--steps {self.env_steps}, or workers whose sample() does not raise StopIteration before",
            )
        rescue = self._rescue
        self._pause_at(goal)

        def reached(counters: Counters) -> bool:
            rescue.between_steps()
            return counters.env_steps_sampled >= goal

        self.plan.advance(reached)
        rescue.no_step()

    def _pause_at(self, steps: int) -> None:
        """Has the agent take no steps beyond, where it takes several at once."""
        self.agent.pauses_at = steps

    # -- stopping ------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Has `train` end at the next consistent state, without another report. Safe in a signal handler."""
        self.plan.stop()

    def rescue(self) -> str | None:
        """Saves the last consistent state, from another thread, because the process is to end.

        Returns:
            A text about what was saved; None if the training is being saved, and will stop by itself.
        """
        if self._rescue.is_saving():
            return None
        path = self._rescue.save()
        return "" if path is None else f"the state before this step was saved in {path}; "

    def _keep_state(self) -> Callable[[], Path] | None:
        """Copies the state, if it is small enough, and returns a function that writes it."""
        if self.run is None or self._memory_bytes() > _MOST_KEPT:
            return None
        step, state, model = self.env_steps, self.state_dict(), self.model()
        return functools.partial(write_state, self.run.checkpoints, step, state, lambda path: write_model(path, model))

    def _choose_acting_backend(self) -> None:
        """Chooses the fastest acting backend, and notes it in the run's settings: a resumed run acts on the same."""
        self.agent.acting_batch_size = max(self.config.num_envs, 1)
        self.agent.build()
        self.notes.append(str(self.agent.acting_choice))
        section = self.config.agent.model_copy(update={"acting_backend": self.agent.config.acting_backend})  # type: ignore[attr-defined]
        self.config = self.config.model_copy(update={"agent": section})
        if self.run is not None:
            self.run.write_settings(self.run.read_config()[0], self.config.to_data())

    # -- evaluation ----------------------------------------------------------------------------------------------

    def evaluate(self, episodes: int, seed: int) -> Evaluation:
        """Plays episodes greedily in environments of their own."""
        self._fetch()
        return evaluate_player(self.config, self.agent.greedy_player(), episodes, seed)

    def _evaluation_row(self) -> dict[str, float]:
        evaluation = self.evaluate(self.config.evaluation_episodes, derived_seed(self.config.seed, "evaluation"))
        mean = evaluation.mean_return
        if mean >= self.best_return:
            self.best_return = mean
            self._keep_best()
        policies = {f"evaluation_return/{name}": own.mean_return for name, own in evaluation.policies.items()}
        infos = {f"evaluation_info/{name}": value for name, value in evaluation.mean_infos.items()}
        return {"evaluation_return": mean, "best_evaluation_return": self.best_return, **policies, **infos}

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def _keep_best(self) -> None:
        if self.run is not None:
            self._save_scheduled(self._write_best)
        else:
            self.best_model = self.model()

    def _write_best(self) -> None:
        if self.run is not None:
            kept = {**self._identity(), "env_steps": self.env_steps, "best_return": self._finite_best()}
            save_checkpoint(self.run.checkpoints, self.env_steps, {}, kept, write_model=self.export_model, name="best")
            self.callbacks.on_checkpoint(self.run.checkpoints / "best")

    def _finite_best(self) -> float | None:
        """The return of the best evaluation so far; None before the first."""
        return None if self.best_return == -np.inf else float(self.best_return)

    def _episode_seeds(self) -> list[int]:
        """Seeds of each worker's environments for episodes that begin at this step."""
        step, workers = self.env_steps, len(self.parts.workers)
        numbers = [0] * workers if self.parts.one_seed else range(workers)
        return [derived_seed(self.config.seed, f"episodes of worker {number} from step {step}") for number in numbers]

    def _fetch(self) -> None:
        """Updates the agent here from the learner, if that lives in an actor."""
        if self.parts.remote is not None:
            self.plan.drain()  # items in flight are counted first
            self.parts.remote.fetch(self.plan)

    def _identity(self) -> dict[str, Any]:
        """Algorithm, backend and environment of the training, as plain data."""
        return {"algorithm": self.agent.name, "backend": self.config.backend, "env": self.config.env}

    def state_dict(self, copy: bool = True) -> dict[str, Any]:
        """All that a checkpoint holds, as nested plain data and arrays; saving changes nothing.

        Args:
            copy: Whether arrays of the replay memory are copied; otherwise they may be its own.
        """
        self._fetch()
        plan = self.plan.state_dict()
        wanted = [(self.config.save_env_state, self.engine.in_process)] * len(self.parts.workers)
        return {
            **self._identity(),
            "variables": self.agent.state_dict(memory=False),
            "memory": self._memory_state(copy) if getattr(self.config, "save_memory", True) else None,
            "agent": self.agent.counters(),
            "plan": plan,
            "workers": self.plan.ask_workers("state_dict", wanted),
            "events": self.events.state_dict(),
            "best_return": self._finite_best(),
            "env_steps": self.env_steps,
        }

    def _memory_state(self, copy: bool) -> Large:
        memory = self.agent.memory_state()
        return Large({path: np.array(value) if copy else value for path, value in memory.items()})

    def begin_episodes(self) -> None:
        """Begins new episodes everywhere, on seeds that depend on the step alone.

        So does a resumed training where environments cannot be saved: an uncut training for which this
        was called at the step of the checkpoint continues exactly like the resumed one.
        """
        self.plan.ask_workers("begin_episodes", [(seed,) for seed in self._episode_seeds()])

    def save(self) -> Path:
        """Writes a checkpoint of everything."""
        if self.run is None:
            raise CheckpointError("there is no run directory to save into", fix="make the trainer with one")
        first, self._told_of_checkpoints = not self._told_of_checkpoints, True
        save = functools.partial(write_training, self, self.run.checkpoints, self.config.keep_checkpoints)
        with self._rescue.saving():
            path = save_and_tell(save, self.tell) if first else save()
        self.callbacks.on_checkpoint(path)
        return path

    def _save_scheduled(self, save: Callable[[], Any]) -> None:
        """Saves during the training; if the disk refuses, the training goes on where the settings say so."""
        try:
            save()
        except CheckpointError as error:
            if self.config.disk_failure == "stop" or not is_refused_by_disk(error):
                raise
            self.tell(f"nothing was saved at {self.env_steps:,} environment steps, and the training goes on: {error}")

    def load_model(self, path: Path) -> None:
        """Takes over the model of a checkpoint, in order to evaluate.

        Raises:
            CheckpointError: It is damaged, or of another agent.
        """
        self.take_model(read_checkpoint_model(path), path)

    def take_model(self, model: Model, where: str | Path) -> None:
        """As `load_model`, for a model in memory."""
        self.agent.take_model(model, where)
        if self.parts.remote is not None:
            self.parts.remote.push(self.plan)

    def restore(self, path: Path) -> None:
        """Takes over everything from a checkpoint; where environments cannot be saved, new episodes begin.

        Raises:
            CheckpointError: It is damaged, or of another algorithm, backend or environment; or it is `best`, which
                holds a model, and no state of the training.
        """
        arrays, meta = load_checkpoint(path)
        if "plan" not in meta:
            raise CheckpointError(
                "this checkpoint holds only a model, from which no training can resume",
                where=str(path),
                fix="go on from a checkpoint named step-..., or evaluate this one",
            )
        agent = {key.removeprefix("agent/"): value for key, value in arrays.items() if key.startswith("agent/")}
        self.load_state_dict({**join_arrays(meta, arrays), "variables": agent}, str(path))

    def load_state_dict(self, state: Mapping[str, Any], where: str = "load_state_dict") -> None:
        """Takes over what `state_dict` gave; where environments cannot be saved, new episodes begin.

        Args:
            state: The state.
            where: Where it comes from, for errors.

        Raises:
            CheckpointError: It is of another algorithm, backend or environment.
        """
        check_same_training(self.agent.name, self.config, state, where)
        self.agent.load_state_dict({**state["variables"], **(state["memory"] or {})})
        self.agent.load_counters(state["agent"])
        if state["memory"] is None:
            self.agent.refill_memory()
        self.plan.close()
        self._start(self._compose())
        if self.parts.remote is not None:
            self.parts.remote.push(self.plan)
        self.plan.load_state_dict(state["plan"])
        self.best_return = -np.inf if state["best_return"] is None else float(state["best_return"])
        self.events.load_state_dict(state["events"])
        self._restore_workers(state)

    def _restore_workers(self, state: Mapping[str, Any]) -> None:
        """Restores the workers as far as environments can be saved."""
        restored = list(zip(state["workers"], self._episode_seeds(), strict=True))
        reasons = self.plan.ask_workers("load_state_dict", restored)
        begun = next((reason for reason in reasons if reason), "")
        if begun:
            self.notes.append(f"new episodes begin where others were under way: {begun}")
        if self.engine.in_process:  # in other processes they have received the newest weights
            self.plan.recall_weights(state["plan"])

    def load_agent(self, state: Mapping[str, Any]) -> None:
        """Takes over the agent's part of a state from `state_dict`, in order to evaluate it."""
        self.agent.load_state_dict(state["variables"])
        self.agent.load_counters(state["agent"])
        if self.parts.remote is not None:
            self.parts.remote.push(self.plan)

    def model(self) -> Model:
        """The model: the acting part of the present agent."""
        self._fetch()
        model: Model = self.agent.model()
        return model

    def export_model(self, path: Path) -> Path:
        """Writes the model into a directory."""
        return write_model(path, self.model())

    # -- inspection ----------------------------------------------------------------------------------------------

    def find_method(self, method: str | None) -> tuple[Any, str | None]:
        """The executor that has an API method, and the method's name there; None stands for all methods."""
        return self.agent.executor, method

    def draw(self, method: str | None = None) -> str:
        """The component graph, or the part that one API method uses, as SVG."""
        executor, name = self.find_method(method)
        picture: str = executor.draw("svg", name)
        return picture

    def code(self, method: str) -> str:
        """The code that runs for an API method of the root."""
        executor, name = self.find_method(method)
        code: str = executor.code(name)
        return code

    def explain(self) -> str:
        """The phases of the build of the component graph, as text."""
        phases: str = self.agent.executor.explain()
        return phases

    def draw_plan(self) -> str:
        """The dataflow plan as SVG."""
        return self.plan.draw("svg")

    def close(self) -> None:
        """Closes plan, environments and engine."""
        self.plan.close()
        close_engine(self.engine)
        self._close_environments()

    def _close_environments(self) -> None:
        if not isinstance(self.parts.workers, WorkerGroup):
            for worker in self.parts.workers:
                worker.close()
