"""Runs the program in this process, with an algorithm that only counts."""

import dataclasses
import sys

import pytest

from rlweave.algorithms import registry
from rlweave.cli import main
from tests.cli.counting import COUNTING


@dataclasses.dataclass
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def rlweave(monkeypatch, tmp_path, capsys):
    """`rlweave("train", "counting", ...)` in an empty directory; returns exit code and what was printed."""
    monkeypatch.setattr(registry, "_registered", {"counting": COUNTING})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments):
        words = [str(argument) for argument in arguments]
        monkeypatch.setattr(sys, "argv", ["/somewhere/bin/rlweave", *words])
        with pytest.raises(SystemExit) as ended:
            main(words)
        printed = capsys.readouterr()
        return Result(ended.value.code or 0, printed.out, printed.err)

    return run
