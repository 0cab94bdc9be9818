"""The command line: `rlweave train`, `evaluate`, `resume`, `export`, `serve`, and the others of `rlweave --help`."""

from rlweave.cli.main import main

__all__ = ["main"]
