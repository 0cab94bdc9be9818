"""Writes the table of docs/checks.md: which check finds which deliberate bug.

    python -m tools.checks_table [--output docs/checks.md]

Each component, loss, agent and environment of tests/mutants is checked. A row names the bug, the cause that has to be
found, and the checks that name it; a bug that is missed has "missed" there, and the program ends with 1. The text
around the table stays.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from rlweave.testing import Report, check, check_agent, check_env
from rlweave.testing.checks.findings import Cause
from tests.mutants import environments, registry

BEGIN, END = "<!-- table: python -m tools.checks_table -->", "<!-- end of the table -->"


def rows() -> Iterator[tuple[str, str, Cause, Report]]:
    """Kind, name, cause and report of each mutant."""
    for mutant in registry.COMPONENTS:
        yield "component", mutant.name, mutant.cause, check(mutant.wrong)
    for mutant in registry.AGENTS:
        yield "agent", mutant.name, mutant.cause, check_agent(mutant.wrong, mutant.env, mutant.settings)
    for mutant in environments.MUTANTS:
        yield "environment", mutant.name, mutant.cause, check_env(mutant.wrong)


def table(found: Iterator[tuple[str, str, Cause, Report]]) -> tuple[list[str], int]:
    """The lines of the table, and how many bugs were missed."""
    lines = ["| bug | in | cause that is named | found by |", "|---|---|---|---|"]
    missed = 0
    for kind, name, cause, report in found:
        checks = sorted({finding.check for finding in report if finding.cause is cause})
        missed += not checks
        lines.append(f"| {name} | {kind} | {cause.value} | {', '.join(checks) or '**missed**'} |")
    return lines, missed


def main() -> None:
    """Runs all checks, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("docs/checks.md"))
    output: Path = parser.parse_args().output
    lines, missed = table(rows())
    count = len(lines) - 2
    summary = f"{count - missed} of {count} deliberate bugs are found, and their cause is named."
    before, _, rest = output.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    text = "\n".join([before + BEGIN, "", summary, "", *lines, "", END + after])
    output.write_text(text, encoding="utf-8")
    print(summary)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
