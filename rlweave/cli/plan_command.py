"""`rlweave plan`: the dataflow plan of an algorithm, as text or as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlweave.algorithms.registry import get_algorithm
from rlweave.cli.console import output
from rlweave.cli.settings import ImportOption, collect_settings, help_of, make_config
from rlweave.cli.simulate import show_simulation
from rlweave.errors import ConfigError
from rlweave.runs.whole_files import write_whole

#: A plan is much the same in every environment, so it is shown without one.
ANY_ENVIRONMENT = "CartPole-v1"
_MERMAID_FILES = (".mmd", ".mermaid", ".md")


def plan(
    algorithm: Annotated[str, typer.Argument(help="Whose plan; `rlweave list algorithms` shows all.")],
    env: Annotated[str | None, typer.Option(help=rf"Environment that it is for \[default: {ANY_ENVIRONMENT}].")] = None,
    backend: Annotated[str | None, typer.Option(help=help_of("backend"))] = None,
    num_envs: Annotated[int | None, typer.Option(help=help_of("num_envs"))] = None,
    engine: Annotated[str | None, typer.Option(help=help_of("engine"))] = None,
    workers: Annotated[int | None, typer.Option(help=help_of("workers"))] = None,
    placement: Annotated[str | None, typer.Option(help=help_of("placement"))] = None,
    imports: ImportOption = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting, as for `rlweave train`.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help=r"YAML or JSON file of settings \[default: none].")] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Print operators, edges, messages, and what the placement puts where (the default)."
        ),
    ] = False,
    draw: Annotated[bool, typer.Option("--draw", help="Draw the plan.")] = False,
    processes: Annotated[
        bool,
        typer.Option("--processes", help="Draw processes and what crosses between them, in place of operators."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--output", "-o", help=r"The picture: .svg, or Mermaid text as .mmd \[default: plan.svg]."),
    ] = None,
    simulate: Annotated[
        str | None,
        typer.Option(
            metavar="WORKERS",
            help="Predict steps/s and what limits them with so many workers (2,16,256,4096): costs are measured in a "
            "short training, and the plan runs in simulated time. Each worker keeps its number of environments.",
        ),
    ] = None,
    costs: Annotated[
        Path | None, typer.Option(help=r"With --simulate: YAML or JSON file of costs \[default: measured here].")
    ] = None,
    write_costs: Annotated[
        Path | None, typer.Option(help=r"With --simulate: where to write the costs, as YAML \[default: nowhere].")
    ] = None,
    cores: Annotated[
        int | None, typer.Option(min=1, help=r"With --simulate: cores of each machine \[default: as this one].")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With --simulate: print one JSON object.")] = False,
) -> None:
    """Shows the dataflow plan of an algorithm: what runs where, what flows, how much of it. Nothing is started."""
    if [explain, draw or processes or out is not None, simulate is not None].count(True) > 1:
        raise ConfigError(
            "one thing at a time",
            received="two of --explain, --draw and --simulate",
            fix="leave one of them out",
        )
    if simulate is None and (as_json or any(given is not None for given in (costs, write_costs, cores))):
        raise ConfigError(
            "only a simulation has costs and cores",
            received="--costs, --write-costs, --cores or --json",
            fix="--simulate 2,16,256",
        )
    chosen = get_algorithm(algorithm)
    options = {"imports": imports, "env": env, "backend": backend, "num_envs": num_envs}
    options |= {"engine": engine, "workers": workers, "placement": placement}
    given = collect_settings(options, assignments or [])
    if config is None and "env" not in given and chosen.config_class.model_fields["env"].is_required():
        given["env"] = ANY_ENVIRONMENT
    resolved, _ = make_config(chosen, given, config)
    if simulate is not None:
        show_simulation(chosen, resolved, simulate, costs, write_costs, cores, as_json)
        return
    if not (draw or processes) and out is None:
        typer.echo(chosen.explain(resolved), nl=False)
        return
    path = out or Path("placement.svg" if processes else "plan.svg")
    form = "mermaid" if path.suffix in _MERMAID_FILES else "svg"
    picture = chosen.draw_placement(resolved, form) if processes else chosen.compose(resolved).draw(form)
    write_plan_picture(picture, path)
    output().print(f"{'processes' if processes else 'dataflow plan'}: {path}")


def write_plan_picture(picture: str, path: Path) -> None:
    """Writes the picture of a plan; in a Markdown file as a Mermaid block, which viewers draw.

    Raises:
        ConfigError: When the file cannot be written.
    """
    text = f"```mermaid\n{picture}```\n" if path.suffix == ".md" else picture
    try:
        write_whole(path, text)
    except OSError as error:
        raise ConfigError("cannot write the picture", where=str(path), received=str(error)) from error
