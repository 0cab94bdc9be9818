"""`rlweave serve`: a trained policy behind HTTP."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path
from typing import Annotated

import typer

from rlweave.algorithms.loading import load
from rlweave.cli.console import output
from rlweave.errors import BackendError, ConfigError, install_command


def serve(
    run: Annotated[Path, typer.Argument(help="Run directory (its best checkpoint), a checkpoint, or a model.")],
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 is all of this machine.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0 takes a free one.")] = 8000,
    backend: Annotated[str | None, typer.Option(help=r"What computes the actions \[default: numpy].")] = None,
) -> None:
    """Answers requests for actions: POST /act with {"observation": ...} gives {"action": ...}, as JSON."""
    if any(importlib.util.find_spec(name) is None for name in ("starlette", "uvicorn")):
        raise BackendError(
            "a server is needed that is not installed",
            where="rlweave serve",
            received="starlette and uvicorn are missing",
            fix=f"install the extra: {install_command('serve')}",
        )
    import uvicorn

    from rlweave.serving import make_application

    application = make_application(load(run, backend))
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ConfigError(
            "cannot listen there", where=f"{host}:{port}", received=str(error), fix="another --host or --port"
        ) from None
    with listening:
        address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
        output().print(f"serving {run} at {address} (POST /act, GET /, GET /health); Ctrl-C ends it")
        config = uvicorn.Config(application, log_level="warning", access_log=False, lifespan="off")
        uvicorn.Server(config).run(sockets=[listening])
