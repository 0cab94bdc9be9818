"""The command line: `rlweave train | evaluate | resume | plot | graph | list`."""

from rlweave.cli.main import main

__all__ = ["main"]
