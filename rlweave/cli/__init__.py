"""The command line: `rlweave train`, `evaluate`, `resume`, `export`, `serve`, and what else `rlweave --help` names."""

from rlweave.cli.main import main

__all__ = ["main"]
