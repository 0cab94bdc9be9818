"""Runs tests on mutants: a process that has imported the frameworks forks one child per mutant.

The child imports the library with one module changed, by an import hook: no file is written. It runs the tests of that
file and stops at the first failure. What it writes in passing goes to a directory that its parent removes.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.abc
import importlib.util
import json
import linecache
import os
import resource
import shutil
import signal
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import Any, TypedDict

import pytest

from tools.mutation import selection

#: Imported before the forks, in this order; nothing that is mutated may come along.
PRELOADED = (
    *("numpy", "torch", "jax", "hypothesis", "hypothesis.extra.numpy", "gymnasium", "pydantic", "safetensors.numpy"),
    *("rlweave.graph", "rlweave.backends.numpy_", "rlweave.backends.torch_", "rlweave.ops", "rlweave.settings.config"),
)
#: A mutant may take so many times what the unmodified file takes, and so many seconds more, of CPU and by the clock.
CPU_LIMIT, CLOCK_LIMIT = (2.0, 10.0), (10.0, 60.0)
MEMORY_LIMIT = 8 * 2**30

#: Where `check` compares.
BACKENDS = ("numpy", "torch")

Job = Callable[[], dict[str, Any]]


class Measured(TypedDict):
    """What a test is when nothing is changed.

    Attributes:
        seconds: Its seconds of CPU.
        reaches: The functions of mutated files that it calls, as `file:Class.function`.
        found: Of `check`: the names of what it finds.
    """

    seconds: float
    reaches: list[str]
    found: list[str]


@dataclass(frozen=True)
class Killers:
    """What reaches a function, by id, the quickest first.

    Args:
        tests: Tests.
        checks: Descriptors that `check` is called with.
    """

    tests: dict[str, Measured]
    checks: dict[str, Measured]

    @property
    def seconds(self) -> float:
        """Seconds of CPU of all."""
        every = (*self.tests.values(), *self.checks.values())
        return sum(test["seconds"] for test in every) + 5.0


def preload(directory: Path) -> None:
    """Imports what all children share; hypothesis keeps its examples in a directory."""
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(directory)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # pytest would import the package of a plugin, ours, by itself
    for name in PRELOADED:
        importlib.import_module(name)
    early = [name for name in sys.modules if name.startswith(("rlweave.components", "rlweave.agents"))]
    assert not early, f"imported before the fork, so never mutated: {early}"


# -- in the child ------------------------------------------------------------------------------------------------


class _Mutated(SourceFileLoader):
    """Loads a module from a changed text, under its own path."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self.text = text

    def get_source(self, fullname: str) -> str:
        return self.text

    def get_code(self, fullname: str) -> Any:
        return compile(self.text, self.path, "exec", dont_inherit=True)


class _Hook(importlib.abc.MetaPathFinder):
    def __init__(self, file: str, text: str) -> None:
        self.name = file.removesuffix(".py").replace("/", ".")
        self.path, self.text, self.used = str(selection.ROOT / file), text, False
        # the graph reads the source of graph functions, to count their results
        linecache.cache[self.path] = (len(text), None, text.splitlines(keepends=True), self.path)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        self.used = True
        return importlib.util.spec_from_file_location(
            fullname, self.path, loader=_Mutated(fullname, self.path, self.text)
        )


class _Tests:
    """A pytest plugin that chooses tests and notes what they take, and which of them fail.

    Args:
        wanted: Those that run, by id, in their order within a file; None: all that are quick.
    """

    def __init__(self, wanted: dict[str, Measured] | None) -> None:
        self.wanted = wanted
        self.measured: dict[str, Measured] = {}
        self.failed: list[str] = []
        self.missing: set[str] = set()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        wanted = self.wanted
        if wanted is None:
            items[:] = [item for item in items if _is_quick(item)]
            return
        files = list(dict.fromkeys(item.nodeid.split("::")[0] for item in items))
        kept = [item for item in items if item.nodeid in wanted]
        self.missing = set(wanted) - {item.nodeid for item in kept}
        order = list(wanted)
        items[:] = sorted(kept, key=lambda item: (files.index(item.nodeid.split("::")[0]), order.index(item.nodeid)))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        if self.wanted is not None:
            return (yield)
        with _measured() as measured:
            result = yield
        self.measured[item.nodeid] = measured
        return result

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(f"{report.nodeid} is not collected")


@contextlib.contextmanager
def _measured() -> Iterator[Measured]:
    """Fills in what is measured inside of it when it ends."""
    codes: set[types.CodeType] = set()

    def profile(frame: types.FrameType, event: str, _: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    measured: Measured = {"seconds": 0.0, "reaches": [], "found": []}
    start = time.process_time()
    sys.setprofile(profile)
    try:
        yield measured
    finally:
        sys.setprofile(None)
        measured["seconds"] = round(time.process_time() - start, 3)
        reached = {(code.co_filename.removeprefix(f"{selection.ROOT}/"), code.co_qualname) for code in codes}
        measured["reaches"] = sorted(
            f"{file}:{name.replace('.<locals>', '')}"
            for file, name in reached
            if file.startswith(tuple(selection.PACKAGES))
        )


def _is_quick(item: Any) -> bool:
    marked = any(item.get_closest_marker(name) for name in ("slow", "learning"))
    return not marked and selection.is_quick(item.nodeid)


class BrokenRunError(Exception):
    """The tests could not be run: that says nothing of a mutant."""


def _run_tests(names: Iterable[str], wanted: dict[str, Measured] | None) -> _Tests:
    plugin = _Tests(wanted)
    if names := [name for name in names if wanted is None or any(test.startswith(name) for test in wanted)]:
        options = ["-q", "-x", "-p", "_hypothesis_pytestplugin", "--hypothesis-seed=0", "-p", "no:cacheprovider"]
        options += ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]
        status = pytest.main([*options, *names], plugins=[plugin])
        if plugin.missing:
            plugin.failed.append(f"{min(plugin.missing)} is not collected")
        elif status not in (0, 5) and not plugin.failed:
            raise BrokenRunError(f"pytest ends with status {int(status)}, and no test failed")
    return plugin


def time_tests(name: str) -> dict[str, Any]:
    """Runs all quick tests of a test file, with nothing changed; in a child."""
    tests = _run_tests([name], None)
    return {"failed": tests.failed, "tests": tests.measured}


def time_checks() -> dict[str, Any]:
    """Calls `check` with all descriptors of the library, with nothing changed; in a child."""
    from rlweave.testing.component_descriptors import DESCRIPTORS

    measured = {}
    for descriptor in DESCRIPTORS:
        with _measured() as measured[descriptor.name]:
            found = _found(descriptor.name)
        measured[descriptor.name]["found"] = found
    return {"failed": [], "tests": measured}


def _found(name: str) -> list[str]:
    """Names of what `check` finds in a component, or of the error that it ends with."""
    try:
        from rlweave.testing import check
        from rlweave.testing.component_descriptors import DESCRIPTORS

        report = check(DESCRIPTORS[name], backends=BACKENDS)
        return sorted(finding.cause.name for finding in report if not finding.is_advice)
    except Exception as error:
        traceback.print_exc()
        return [type(error).__name__]


def killer(file: str, text: str, known: Killers, both: bool = False) -> dict[str, Any]:
    """Runs the tests of a file on a changed text; in a child.

    Args:
        file: The file.
        text: What is in it.
        known: The tests.
        both: `check` is called where tests fail, too.

    Returns:
        Under "by" what failed: the id of a test, or "check: " and what was found; None: nothing did. Under "check", if
        `check` was called, what it found.
    """
    hook = _Hook(file, text)
    sys.meta_path.insert(0, hook)
    failed = _run_tests(selection.tests_of(file), known.tests).failed
    by = failed[0] if failed else None
    if hook.name in sys.modules and not hook.used:
        raise BrokenRunError(f"{hook.name} was imported as it is")
    if by is not None and not both:
        return {"by": by}
    for name, before in known.checks.items():
        if new := [cause for cause in _found(name) if cause not in before["found"]]:
            found = f"check: {new[0]} in {name}"
            return {"by": found if by is None else by, "check": found}
    return {"by": by, "check": None}


# -- in the parent -----------------------------------------------------------------------------------------------


@dataclass
class _Child:
    key: str
    answer: Path
    scratch: Path
    started: float
    deadline: float


class Pool:
    """At most so many children at once.

    Args:
        directory: Where children write in passing; removed with them.
        jobs: How many run at once.
        show: Their output is shown.
    """

    def __init__(self, directory: Path, jobs: int, show: bool) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        self.directory, self.jobs, self.show = directory, jobs, show
        self.children: dict[int, _Child] = {}

    def run(self, work: Iterable[tuple[str, Job, float]]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Runs jobs, and yields the answer of each as it ends: what it returned, "hang", "crash", and its seconds.

        Args:
            work: (key, job, its seconds of CPU when nothing is wrong).
        """
        waiting = list(work)[::-1]
        try:
            while waiting or self.children:
                while waiting and len(self.children) < self.jobs:
                    self._start(*waiting.pop())
                yield from self._ended()
        finally:
            for pid in list(self.children):
                self._end(pid)
            shutil.rmtree(self.directory, ignore_errors=True)

    def _start(self, key: str, job: Job, seconds: float) -> None:
        scratch = self.directory / key.replace("/", "-")
        scratch.mkdir(parents=True)
        answer = scratch / "answer.json"
        pid = os.fork()
        if not pid:
            _be_child(scratch, answer, job, int(CPU_LIMIT[0] * seconds + CPU_LIMIT[1]), self.show)
        now = time.monotonic()
        self.children[pid] = _Child(key, answer, scratch, now, now + CLOCK_LIMIT[0] * seconds + CLOCK_LIMIT[1])

    def _ended(self) -> Iterator[tuple[str, dict[str, Any]]]:
        time.sleep(0.02)
        for pid, child in list(self.children.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            late = time.monotonic() > child.deadline
            if not done and not late:
                continue
            if child.answer.exists():
                result = json.loads(child.answer.read_text())
            else:
                slow = late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU)
                result = {"by": "time limit" if slow else "crash"}
            self._end(pid, reap=not done)
            if "broken" in result:
                sys.exit(f"{child.key}: {result['broken']}; --show says more")
            yield child.key, {**result, "seconds": round(time.monotonic() - child.started, 2)}

    def _end(self, pid: int, reap: bool = True) -> None:
        """Ends a child and what it started, and removes what they wrote."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        if reap:
            os.waitpid(pid, 0)
        shutil.rmtree(self.children.pop(pid).scratch, ignore_errors=True)


def _be_child(scratch: Path, answer: Path, job: Job, cpu_seconds: int, show: bool) -> None:
    """Does a job and ends the process."""
    try:
        os.setsid()
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # ends with its parent
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 5))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT, MEMORY_LIMIT))
        os.environ["TMPDIR"] = os.environ["JAX_COMPILATION_CACHE_DIR"] = str(scratch)
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        if not show:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            result = job()
        except BrokenRunError as error:
            result = {"broken": str(error)}
        partial = answer.with_suffix(".part")
        partial.write_text(json.dumps(result))
        partial.rename(answer)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
