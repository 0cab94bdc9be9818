"""`rlweave evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.evaluating import evaluate_checkpoint, final_evaluation_seed, watch_checkpoint
from rlweave.algorithms.loading import find_playing
from rlweave.algorithms.registry import get_algorithm
from rlweave.cli.console import output, show_files
from rlweave.cli.train import describe_evaluation, evaluation_data
from rlweave.errors import ConfigError
from rlweave.runs.checkpoint import find_checkpoint
from rlweave.runs.run_directory import RunDirectory
from rlweave.strict_json import to_json
from rlweave.view.video import Video


def evaluate(
    run: Annotated[Path, typer.Argument(help="Run directory, or one of its checkpoints.")],
    episodes: Annotated[
        int | None, typer.Option(min=1, help=r"How many episodes are played \[default: 20; 1 where they are watched].")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, help=r"Seed of the environments \[default: one derived from the run's, not used in training]."
        ),
    ] = None,
    video: Annotated[Path | None, typer.Option(help="Record the episodes into this file, .gif or .mp4.")] = None,
    render: Annotated[bool, typer.Option("--render", help="Have the environment show the episodes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Plays episodes greedily with a trained agent: its best checkpoint, or else its newest good one."""
    directory = RunDirectory.open(run)
    name, data = directory.read_config()
    chosen = get_algorithm(name)
    config = resolve_config(chosen.config_class, file=data)
    chosen.check_environment(config.env)
    is_run = run.resolve() == directory.path.resolve()
    checkpoint = find_playing(run) if is_run else find_checkpoint(run)
    played = (1 if video or render else 20) if episodes is None else episodes
    play = (chosen, config, checkpoint, played, final_evaluation_seed(config.seed) if seed is None else seed)
    if video is not None and render:
        raise ConfigError("one thing at a time", received="--video and --render", fix="leave one of them out")
    if video is not None:
        with Video(video) as recorded:
            result = watch_checkpoint(*play, recorded.show)
    elif render:
        result = watch_checkpoint(*play, None)
    else:
        result = evaluate_checkpoint(*play)
    if as_json:
        typer.echo(to_json({"checkpoint": str(checkpoint), **evaluation_data(result)}))
    else:
        if video is not None:
            show_files({"video": video})
        output().print(f"{checkpoint}: {describe_evaluation(result, config.env)}")
