"""`rlweave train` and `rlweave resume`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from rlweave.algorithms.auto_placement import settle_placement
from rlweave.algorithms.config import check_backend, resolve_config
from rlweave.algorithms.evaluating import evaluate_checkpoint, final_evaluation_seed
from rlweave.algorithms.loading import find_playing
from rlweave.algorithms.registry import get_algorithm
from rlweave.algorithms.run import Run, begin
from rlweave.algorithms.schedule_lengths import kept_schedules
from rlweave.backends import LEARNING, best_backend
from rlweave.cli.console import output, show_files, warn
from rlweave.cli.graph_command import write_graph_picture
from rlweave.cli.interrupt import INTERRUPTED, StopRequest
from rlweave.cli.plan_command import write_plan_picture
from rlweave.cli.plot import draw_learning_curve
from rlweave.cli.progress import TrainingProgress
from rlweave.cli.settings import (
    ImportOption,
    collect_settings,
    help_of,
    make_config,
    settings_text,
)
from rlweave.envs import Evaluation
from rlweave.errors import ConfigError, RlweaveError
from rlweave.runs.checkpoint import find_checkpoint, list_checkpoints, set_aside_newer
from rlweave.runs.run_directory import RunDirectory
from rlweave.runs.whole_files import write_whole
from rlweave.strict_json import to_json

_SET_HELP = "A setting, as in --set agent.lr=3e-4; repeatable; the value is YAML. --settings shows all of them."
_CONFIG_HELP = r"YAML or JSON file of settings, such as the config.yaml of another run \[default: none]."
#: Below the help of `train`.
EPILOG = "Other algorithms and environments may have other defaults: rlweave train ALGORITHM --env ENV --settings"


def train(
    algorithm: Annotated[str, typer.Argument(help="What to train; `rlweave list algorithms` shows all.")],
    env: Annotated[str | None, typer.Option(help=help_of("env"))] = None,
    backend: Annotated[str | None, typer.Option(help=help_of("backend"))] = None,
    seed: Annotated[int | None, typer.Option(help=help_of("seed"))] = None,
    steps: Annotated[int | None, typer.Option(help=help_of("steps"))] = None,
    num_envs: Annotated[int | None, typer.Option(help=help_of("num_envs"))] = None,
    engine: Annotated[str | None, typer.Option(help=help_of("engine"))] = None,
    workers: Annotated[int | None, typer.Option(help=help_of("workers"))] = None,
    address: Annotated[str | None, typer.Option(help=help_of("address"))] = None,
    placement: Annotated[str | None, typer.Option(help=help_of("placement"))] = None,
    imports: ImportOption = None,
    callbacks: Annotated[
        list[str] | None,
        typer.Option("--callback", metavar="MODULE:CLASS", help="A class that the training calls; repeatable; kept."),
    ] = None,
    assignments: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=_SET_HELP)] = None,
    config: Annotated[Path | None, typer.Option(help=_CONFIG_HELP)] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(help=r"Where the run goes \[default: a new directory in runs/]."),
    ] = None,
    presets: Annotated[
        bool,
        typer.Option(
            help=r"Start from the settings tuned for the environment, if any \[default: --presets].", show_default=False
        ),
    ] = True,
    settings: Annotated[bool, typer.Option("--settings", help="Show all settings of the algorithm, and end.")] = False,
) -> None:
    """Trains an agent; writes settings, metrics, checkpoints and pictures into a run directory."""
    chosen = get_algorithm(algorithm)
    if settings:
        console = output()
        console.print(settings_text(chosen, env, min(console.width, 120)), markup=False, soft_wrap=True)
        return
    options = {"imports": imports, "env": env, "backend": backend, "seed": seed, "steps": steps, "num_envs": num_envs}
    options |= {"engine": engine, "workers": workers, "address": address, "placement": placement}
    options["callbacks"] = callbacks or None
    given = collect_settings(options, assignments or [])
    resolved, tuned = make_config(chosen, given, config, presets)
    chosen.check_learns_on(resolved.backend)
    resolved = settle_placement(chosen, resolved, _print_as_it_is)
    run = RunDirectory.create(chosen.name, resolved.to_data(), command=_command(), path=run_dir)
    if "backend" not in given and config is None and resolved.backend == best_backend():
        output().print(f"learning on {resolved.backend}, the first of {', '.join(LEARNING)} that is installed "
                       "(--backend names another)")  # fmt: skip
    if tuned:
        output().print(f"settings tuned for {resolved.env} are used; --no-presets leaves them out")
    with run.writing(), begin(chosen, resolved, run, [_Pictures()]) as training:
        write_graph_picture(training.trainer, run.graph_picture)
        write_plan_picture(training.trainer.draw_plan(), run.plan_picture)
        _drive(training, run)


def resume(
    run: Annotated[Path, typer.Argument(help="Run directory, or one of its checkpoints.")],
    steps: Annotated[
        int | None,
        typer.Option(help=r"New length of the whole training, in environment steps \[default: as the run has it]."),
    ] = None,
) -> None:
    """Goes on with a training that was cut, from its newest good checkpoint."""
    directory = RunDirectory.open(run)
    with directory.writing():
        _go_on(run, directory, steps)


def _go_on(run: Path, directory: RunDirectory, steps: int | None) -> None:
    """Goes on with a training from its newest good checkpoint, or from the one that is named."""
    name, data = directory.read_config()
    chosen = get_algorithm(name)
    planned = resolve_config(chosen.config_class, file=data)
    length = {} if steps in (None, planned.steps) else {"steps": steps, "schedule_steps": planned.schedule_length}
    resolved = resolve_config(chosen.config_class, file=data, sets=length)
    chosen.check_environment(resolved.env)
    check_backend(resolved.backend)
    chosen.check_learns_on(resolved.backend)
    checkpoint = find_checkpoint(run)
    newest = (list_checkpoints(directory.checkpoints) or [checkpoint])[-1]
    if checkpoint != newest and run.resolve() != checkpoint.resolve():
        warn(f"{newest} is damaged; going on from {checkpoint}")
    trainer = chosen.make_trainer(resolved, directory)
    try:
        trainer.restore(checkpoint)
        if trainer.env_steps >= resolved.steps:
            left = planned.steps > trainer.env_steps
            leave_out = f", or leave it out to go on to {planned.steps:,}" if left else ""
            raise ConfigError(
                f"nothing is left to train: {trainer.env_steps:,} of {resolved.steps:,} environment steps are made",
                where=str(directory.path), fix=f"give a greater length with --steps{leave_out}",
            )  # fmt: skip
        # Only now: a resume that fails leaves the run as it was.
        directory.write_settings(name, getattr(trainer, "config", resolved).to_data())
        directory.write_versions()
        directory.note_command(_command())
        for path in set_aside_newer(directory.checkpoints, trainer.env_steps):
            warn(f"a later checkpoint was moved to {path}")
        training = Run(chosen, resolved, trainer, directory, [_Pictures()])
    except BaseException:
        trainer.close()
        raise
    output().print(f"going on from {checkpoint} at {trainer.env_steps:,} environment steps")
    if length:
        for line in kept_schedules(resolved.to_data(), resolved.schedule_length, resolved.steps):
            output().print(line)
    with training:
        _drive(training, directory)


class _Pictures:
    """A callback that draws the learning curve, and the plan with rates and lag, when a training has ended."""

    def on_end(self, run: Run) -> None:
        """Draws them."""
        assert run.directory is not None
        draw_learning_curve(run.directory)
        write_plan_picture(run.trainer.draw_plan(), run.directory.plan_picture)


def _drive(run: Run, directory: RunDirectory) -> None:
    """Trains with a display, to the end or to a Ctrl-C; then evaluates."""
    config = run.config
    for note in run.notes:
        output().print(note)
    vars(run.trainer)["tell"] = lambda text: output().print(text, markup=False)  # from now on interrupts are immediate
    title = f"{run.algorithm.name} {config.env} {config.backend} seed {config.seed}"
    try:
        with (
            StopRequest(lambda: run.stop_now("interrupted"), lambda: _rescued(run, directory), config.stop_grace),
            TrainingProgress(output(), title, config.steps, start=run.env_steps) as progress,
        ):
            for report in run:
                progress.update(report)
    except KeyboardInterrupt:
        warn(f"stopped in the middle of a step; {_how_to_go_on(directory)}")
        raise typer.Exit(INTERRUPTED) from None
    except RlweaveError:
        warn(_how_to_go_on(directory))
        raise
    assert run.checkpoint is not None
    if run.ended == "interrupted" and run.env_steps < config.steps:
        output().print(f"stopped at {run.env_steps:,} environment steps and saved {run.checkpoint}")
        output().print(f"go on with: [bold]rlweave resume {shlex.quote(str(directory.path))}[/]")
        raise typer.Exit(INTERRUPTED)
    if run.ended not in ("complete", "interrupted"):
        output().print(f"stopped at {run.env_steps:,} environment steps: {run.ended}")
    if config.final_episodes:
        _evaluate_best(run, directory)
    _show_run(directory, run.checkpoint)


def _evaluate_best(run: Run, directory: RunDirectory) -> None:
    config = run.config
    best = directory.checkpoints / "best"
    checkpoint = find_playing(directory.path)
    seed = final_evaluation_seed(config.seed)
    evaluation = evaluate_checkpoint(run.algorithm, config, checkpoint, config.final_episodes, seed)
    file = directory.path / "evaluation.json"
    write_whole(file, to_json(evaluation_data(evaluation), indent=1) + "\n")
    which = "best checkpoint" if best.is_dir() else "last weights"
    output().print(f"greedy evaluation of the {which}: {describe_evaluation(evaluation, config.env)}")


def evaluation_data(evaluation: Evaluation) -> dict[str, object]:
    """An evaluation as plain data."""
    played = bool(evaluation.episodes)
    policies = {name: evaluation_data(own) for name, own in evaluation.policies.items()}
    return {
        "mean_return": evaluation.mean_return if played else None,
        "deviation": evaluation.deviation if played else None,
        "returns": evaluation.returns.tolist(),
        "lengths": evaluation.lengths.tolist(),
        **({"policies": policies} if policies else {}),
    }


def _return_text(evaluation: Evaluation) -> str:
    return f"{evaluation.mean_return:.1f}" if evaluation.episodes else "not played"


def describe_evaluation(evaluation: Evaluation, env: str) -> str:
    """An evaluation in one line, with the return at which the environment counts as solved."""
    import gymnasium

    mean, deviation, count = evaluation.mean_return, evaluation.deviation, len(evaluation.episodes)
    played = f"{count} episode{'' if count == 1 else 's'}"
    text = f"mean return [bold]{mean:.1f}[/] (deviation {deviation:.1f}) over {played}"
    if evaluation.policies:
        each = ", ".join(f"{name} {_return_text(own)}" for name, own in evaluation.policies.items())
        text = f"{text} (by policy: {each})"
    known = gymnasium.registry.get(env)
    threshold = known.reward_threshold if known is not None else None
    if threshold is None:
        return text
    verdict = "[green]solved[/]" if mean >= threshold else "[yellow]not solved[/]"
    return f"{text}: {verdict}, the environment asks for {threshold:g}"


def _rescued(run: Run, directory: RunDirectory) -> str | None:
    """Saves the last consistent state in the middle of a step; see `StopRequest`."""
    rescue = getattr(run.trainer, "rescue", None)
    saved = rescue() if rescue is not None else ""
    return None if saved is None else f"{saved}{_how_to_go_on(directory)}"


def _how_to_go_on(run: RunDirectory) -> str:
    if not run.has_checkpoint():
        return f"nothing was saved yet in {run.path}"
    return f"go on from the last checkpoint with: rlweave resume {shlex.quote(str(run.path))}"


def _show_run(run: RunDirectory, checkpoint: Path) -> None:
    show_files(
        {
            "run directory": run.path,
            "settings": run.config_file,
            "versions": run.versions_file,
            "command line": run.command_file,
            "metrics": run.metrics_file,
            "TensorBoard": run.tensorboard,
            "last checkpoint": checkpoint,
            "best checkpoint": run.checkpoints / "best",
            "evaluation": run.path / "evaluation.json",
            "learning curve": run.learning_curve,
            "component graph": run.graph_picture,
            "dataflow plan": run.plan_picture,
        }
    )


def _command() -> list[str]:
    return ["rlweave", *sys.argv[1:]]


def _print_as_it_is(text: str) -> None:
    output().print(text, markup=False, highlight=False, soft_wrap=True)
