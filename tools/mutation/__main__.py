"""Makes small slips in components and graphs, and shows which of them no test notices.

    python -m tools.mutation                       # all of them, from the start; writes docs/mutation.md and .json
    python -m tools.mutation --resume              # goes on where a run was cut; files that changed since begin again
    python -m tools.mutation --survivors           # those that survived, again: after tests were written
    python -m tools.mutation --file losses/dqn     # the files with this in their path
    python -m tools.mutation --only 3f2a91c0de     # one again, with the output of its tests
    python -m tools.mutation --list                # which there are, by file

Mutants are chosen by a seed, evenly over files and kinds. Nothing in the working tree is changed; results are kept
as they come in `.mutation/`.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from tools.mutation import report, running, selection
from tools.mutation.edits import Mutant, mutants_of, sample
from tools.mutation.running import Killers, Measured, Pool

SEED = 0
PER_FILE = 6


class Kept:
    """JSON lines of a file, by one of their fields; the last line of a key counts."""

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.key = path, key
        self.lines: dict[str, dict[str, Any]] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            if line.endswith("}"):  # the last one may be cut
                data = json.loads(line)
                self.lines[data[key]] = data

    def add(self, data: dict[str, Any]) -> None:
        """Keeps a line, on the disk at once."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(data) + "\n")
        self.lines[data[self.key]] = data


def _chosen(args: argparse.Namespace) -> dict[str, list[Mutant]]:
    """The mutants by file."""
    chosen = {}
    for file, graphs in selection.files().items():
        if args.file is None or args.file in file:
            source = (selection.ROOT / file).read_text()
            everything = mutants_of(file, source, graphs)
            named = [mutant for mutant in everything if mutant.id in args.only]
            chosen[file] = named if args.only else sample(everything, source, args.per_file, args.seed)
    return {file: found for file, found in chosen.items() if found}


class Baselines:
    """What tests take when nothing is changed: measured once for each test file, and where it has changed."""

    def __init__(self, pool: Pool, state: Path, check: bool) -> None:
        self.pool, self.check = pool, check
        self.kept = Kept(state / "baselines.jsonl", "file")

    def of(self, mutant: Mutant) -> Killers:
        """The tests that belong to the file of a mutant and reach its function."""
        tests: dict[str, Measured] = {}
        for name in selection.tests_of(mutant.file):
            tests |= self._measured(name, partial(running.time_tests, name))
        checks = self._measured(selection.CHECK, running.time_checks) if self.check else {}
        return Killers(_reaching(mutant, tests), _reaching(mutant, checks))

    def _measured(self, name: str, job: running.Job) -> dict[str, Measured]:
        fingerprint = selection.fingerprint([name])
        if self.kept.lines.get(name, {}).get("fingerprint") != fingerprint:
            print(f"{name}, with nothing changed", flush=True)
            (_, result), *_ = self.pool.run([(name, job, 300.0)])
            if failed := result.get("by") or result["failed"]:
                sys.exit(f"{name} fails with nothing changed: {failed}")
            self.kept.add({"file": name, "fingerprint": fingerprint, **result})
        measured: dict[str, Measured] = self.kept.lines[name]["tests"]
        return measured


def _reaching(mutant: Mutant, tests: dict[str, Measured]) -> dict[str, Measured]:
    """The quickest tests that reach what a mutant changes: a function, or all of a file or class."""
    place = f"{mutant.file}:{mutant.function}." if mutant.function else f"{mutant.file}:"
    reaching = {
        name: {**test, "reaches": []}
        for name, test in tests.items()
        if any(f"{reached}.".startswith(place) for reached in test["reaches"])
    }
    return selection.quickest(reaching, mutant.file)


def _run(args: argparse.Namespace, chosen: dict[str, list[Mutant]]) -> Kept:
    """Runs the mutants that are to be run; all results that are kept."""
    running.preload(args.state / "hypothesis")
    results, equivalent = Kept(args.state / "results.jsonl", "id"), report.read_equivalent()
    pool = Pool(args.state / "scratch", args.jobs, args.show)
    baselines = Baselines(pool, args.state, not args.without_check)
    for number, (file, mutants) in enumerate(chosen.items(), 1):
        fingerprint = selection.fingerprint([file, *selection.tests_of(file)])
        again = {m.id: m for m in mutants if not _is_known(m, results.lines.get(m.id), fingerprint, args)}
        if not args.only and not args.both:
            again = {key: m for key, m in again.items() if key not in results.lines or m.key not in equivalent}
        if not again:
            continue
        print(f"[{number}/{len(chosen)}] {file}", flush=True)
        source = (selection.ROOT / file).read_text()
        killers = {m.id: baselines.of(m) for m in again.values()}
        work = (
            (key, partial(running.killer, file, again[key].apply(source), found, args.both), found.seconds)
            for key, found in killers.items()
        )
        for key, result in pool.run(work):
            m = again[key]
            results.add({"id": key, "fingerprint": fingerprint, **result})
            verdict = f"killed by {result['by']}" if result["by"] else "SURVIVED"
            print(f"{m.id} {m.file}:{m.line} {m.kind}, {result['seconds']} s: {verdict}", flush=True)
            if not result["by"] or args.show:
                print(f"    {m.before}\n    {m.after}", flush=True)
    return results


def _is_known(mutant: Mutant, result: dict[str, Any] | None, fingerprint: str, args: argparse.Namespace) -> bool:
    """Its result is kept and still holds."""
    if (
        result is None
        or args.only
        or (args.survivors and result["by"] is None)
        or (args.both and "check" not in result)
    ):
        return False
    return args.survivors or (args.resume and result["fingerprint"] == fingerprint)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__.split("\n")[0])
    parser.add_argument("--list", action="store_true", help="show the mutants and run none")
    parser.add_argument("--file", help="only files with this in their path")
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="only these, with the output of the tests")
    parser.add_argument("--show", action="store_true", help="show the output of the tests")
    parser.add_argument("--per-file", type=int, default=PER_FILE, help="mutants of a file (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=SEED, help="chooses the mutants (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once (default: %(default)s)")
    parser.add_argument("--resume", action="store_true", help="keep the results of files that have not changed")
    parser.add_argument("--survivors", action="store_true", help="run what is not killed, once more")
    parser.add_argument("--without-check", action="store_true", help="leave `check` out")
    parser.add_argument("--both", action="store_true", help="call `check` where a test fails, too")
    parser.add_argument("--state", type=Path, default=selection.ROOT / ".mutation", help="where results are kept")
    parser.add_argument("--report", action="store_true", help="run nothing, and write docs/ from what is kept")
    args = parser.parse_args()
    args.show = args.show or bool(args.only)
    chosen = _chosen(args)
    mutants = [mutant for found in chosen.values() for mutant in found]
    if args.list:
        for m in mutants:
            print(f"{m.id} {m.file}:{m.line} {m.function} ({m.kind})\n    {m.before}\n    {m.after}")
        print(f"{len(mutants)} mutants in {len(chosen)} files")
        return
    if not (args.report or args.resume or args.survivors or args.only or args.file):
        (args.state / "results.jsonl").unlink(missing_ok=True)
    results = Kept(args.state / "results.jsonl", "id") if args.report else _run(args, chosen)
    found = report.rows(mutants, results.lines, report.read_equivalent())
    survived = [row for row in found if row.outcome == "survived"]
    print(f"{len(found)} of {len(mutants)} mutants run, {len(survived)} survived")
    if not (args.only or args.file):
        (selection.ROOT / "docs/mutation.md").write_text(report.to_markdown(found))
        (selection.ROOT / "docs/mutation.json").write_text(report.to_json(found))


if __name__ == "__main__":
    main()
