"""What a mutation test says, as a table for people and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tools.mutation.edits import Mutant

EQUIVALENT = Path(__file__).with_name("equivalent.yaml")


@dataclass(frozen=True)
class Row:
    """A mutant and what became of it.

    Args:
        mutant: The mutant.
        by: What killed it; None: it survived.
        equivalent: Why it computes the same; None: it does not.
    """

    mutant: Mutant
    by: str | None
    equivalent: str | None

    @property
    def outcome(self) -> str:
        """tests, check, limit (of time or memory), equivalent or survived."""
        if self.by is None:
            return "survived" if self.equivalent is None else "equivalent"
        if self.by in ("time limit", "crash"):
            return "limit"
        killer = self.by.partition(":")[0]
        return killer if killer == "check" else "tests"

    def to_data(self) -> dict[str, Any]:
        """The row as JSON data."""
        m = self.mutant
        data = {"id": m.id, "file": m.file, "line": m.line, "function": m.function, "kind": m.kind}
        data |= {"before": m.before, "after": m.after, "outcome": self.outcome, "by": self.by}
        return data | ({"equivalent": self.equivalent} if self.equivalent else {})


def read_equivalent(path: Path = EQUIVALENT) -> dict[tuple[str, str, str, str], str]:
    """Reasons by file, function, and the lines before and after."""
    entries = yaml.safe_load(path.read_text()) or [] if path.exists() else []
    return {
        (file, mutant["function"], mutant["before"], mutant["after"]): " ".join(mutant["because"].split())
        for file, mutants in (entries or {}).items()
        for mutant in mutants
    }


def rows(
    mutants: Iterable[Mutant],
    results: Mapping[str, Mapping[str, Any]],
    equivalent: Mapping[tuple[str, str, str, str], str],
) -> list[Row]:
    """What became of the mutants that were run."""
    return [Row(m, results[m.id]["by"], equivalent.get(m.key)) for m in mutants if m.id in results]


OUTCOMES = ("tests", "check", "limit", "equivalent", "survived")


def _table(title: str, counted: Mapping[str, Counter[str]]) -> list[str]:
    lines = [
        f"| {title} | mutants | tests | check | limit | equivalent | survived |",
        "|---|" + "---:|" * (len(OUTCOMES) + 1),
    ]
    for name, counts in counted.items():
        cells = [str(counts[outcome] or "") for outcome in OUTCOMES]
        lines.append(f"| {name} | {counts.total()} | {' | '.join(cells)} |")
    return lines


def to_markdown(found: list[Row]) -> str:
    """The page: how many are killed, by file and by kind, and each that is not."""
    files: dict[str, Counter[str]] = {}
    kinds: dict[str, Counter[str]] = {}
    for row in found:
        files.setdefault(f"`{row.mutant.file.removeprefix('rlweave/')}`", Counter())[row.outcome] += 1
        kinds.setdefault(row.mutant.kind, Counter())[row.outcome] += 1
    total = Counter(row.outcome for row in found)
    killed = len(found) - total["equivalent"] - total["survived"]
    different = len(found) - total["equivalent"]
    lines = [
        "# Mutation testing of components and graphs",
        "",
        "`make mutants` writes this page. It makes small slips in `rlweave/components/` and in the graphs of",
        "`rlweave/agents/`, one at a time, and runs the tests that belong to the file, on NumPy and torch: the file of",
        "its name (and those that `tools/mutation/selection.py` names), then `check` on all descriptors that reach the",
        "changed function: the quickest, until they took a few seconds. What nothing notices is equivalent (with the",
        "reason, from `tools/mutation/equivalent.yaml`) or a hole in the tests.",
        "",
        f"**{killed} of {len(found)} mutants are killed: {100 * killed / max(len(found), 1):.1f} %**"
        f" ({100 * killed / max(different, 1):.1f} % of the {different} that are not equivalent).",
        "",
        "Columns: killed by tests; by `check` where no test failed; by limits of time or memory; equivalent; survived.",
        "",
        *_table("file", {**files, "all": total}),
        "",
        *_table("kind", dict(sorted(kinds.items()))),
        "",
        "## Survivors",
        "",
    ]
    survivors = [row for row in found if row.by is None]
    for wanted, text in ((False, "What the tests miss:"), (True, "What computes the same:")):
        chosen = [row for row in survivors if (row.equivalent is not None) == wanted]
        lines += [text, ""] if chosen else []
        for row in chosen:
            m = row.mutant
            lines.append(f"- `{m.file}:{m.line}` {m.function} ({m.kind}, {m.id})")
            lines.append(f"  - before: `` {m.before} ``")
            lines.append(f"  - after: `` {m.after} ``")
            lines += [f"  - {row.equivalent}"] if row.equivalent else []
        lines += [""] if chosen else []
    return "\n".join(lines).rstrip() + "\n"


def to_json(found: list[Row]) -> str:
    """One object for each mutant."""
    return json.dumps([row.to_data() for row in found], indent=1) + "\n"
