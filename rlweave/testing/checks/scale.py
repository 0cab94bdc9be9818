"""Scale laws: what a descriptor says becomes of results where inputs are scaled or shifted."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from rlweave.errors import SpecError, nearest
from rlweave.testing.checks.axes import differs
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.recording import Recording, Step, record
from rlweave.testing.checks.rows import listed
from rlweave.testing.checks.subject import ROWS, Subject
from rlweave.testing.checks.trail import Trail, called
from rlweave.testing.descriptors import ScaleLaw
from rlweave.testing.parity import build_described
from rlweave.tree import flatten_tree, unflatten_like

#: Powers of 2 change no digit; the small one makes a constant that is added to a deviation show.
FACTORS = (128.0, 1 / 128)
SHIFT = 4.0
_TOLERANCE = 1e-3


def scale_laws(subject: Subject) -> Iterator[Finding]:
    """The inputs of a declared law are scaled, and shifted; results have to follow the law."""
    for law in subject.descriptor.scale_laws:
        yield from list(_broken(subject, law))[:1]


def _broken(subject: Subject, law: ScaleLaw) -> Iterator[Finding]:
    base = _called(subject, law, lambda array: array)
    changes: list[tuple[str, float, Callable[[np.ndarray], np.ndarray]]] = [
        (f"times {factor:g}", factor**law.power, lambda array, factor=factor: array * factor)  # type: ignore[misc]
        for factor in FACTORS
    ]
    if law.shift:
        changes.append((f"plus {SHIFT:g}", 1.0, lambda array: array + SHIFT))
    results = list(law.results) or [path for path, array in base.result.items() if array.dtype.kind == "f"]
    for done, expected, change in changes:
        other = _called(subject, law, change)
        for result in results:
            wanted = base.result[result] * expected
            if differs(wanted, other.result[result], _TOLERANCE * max(1.0, float(np.abs(wanted).max(initial=0)))).any():
                steps = Trail(base, other).to(result)
                step = next((step for step in steps if _takes(step, law)), next(iter(steps), None))
                yield Finding(
                    "scale laws",
                    step.where if step is not None else f"{subject.root_path}.{law.method}",
                    f"{subject.root_path}.{law.method}: {listed(law.inputs)} {done}, and {called(result)} did not "
                    f"{'stay' if law.power == 0 or 'plus' in done else f'become {expected:g} times as large'}",
                    Cause.SCALE_MATTERS,
                    "divide by a deviation of the same numbers, without a constant that is of a size of its own "
                    "(1e-8 instead of 1e-3), and clip after that; or leave the law out of the descriptor",
                )
    if not _depends(subject, law, base, results):
        yield Finding(
            "scale laws",
            f"{subject.root_path}.{law.method}",
            f"{listed(law.inputs)} were sampled anew, and {listed(results)} of the law did not move",
            Cause.UNNEEDED_DECLARATION,
            "leave the law out of the descriptor: the results do not depend on these inputs at all",
        )


def _takes(step: Step, law: ScaleLaw) -> bool:
    return any(name.split("/")[0] in law.inputs for name in step.inputs)


def _depends(subject: Subject, law: ScaleLaw, base: Recording, results: list[str]) -> bool:
    other = _called(subject, law, lambda array: array, seed=1)
    return any(differs(base.result[result], other.result[result], 1e-4).any() for result in results)


def _called(subject: Subject, law: ScaleLaw, change: Callable[[np.ndarray], np.ndarray], seed: int = 0) -> Recording:
    """The last call of the method of a law in a round, with its inputs changed in all calls."""
    descriptor, executor = subject.descriptor, subject.eager
    state = build_described(descriptor, descriptor.reference).state_dict()
    found: Recording | None = None
    passed: set[str] = set()
    for method in descriptor.methods(executor.root):
        arguments = descriptor.sample(executor.root, method, ROWS)
        others = flatten_tree(descriptor.sample(executor.root, method, ROWS, seed))
        flat = {path: np.asarray(array) for path, array in flatten_tree(arguments).items()}
        for path in flat:
            name = next((n for n in law.inputs if path == n or path.startswith(n + "/")), None)
            if name is not None:
                passed.add(name)
                flat[path] = np.asarray(change(np.asarray(others[path])), flat[path].dtype)
        given = {**unflatten_like(arguments, flat), **descriptor.static.get(method, {})}
        recording = record(executor, method, given, state)
        state = recording.state
        found = recording if method == law.method else found
    if found is None or set(law.inputs) - passed:
        raise SpecError(
            "a scale law names what the component does not have",
            where=f"descriptor {descriptor.name!r}",
            received=f"method {law.method!r}, inputs {', '.join(law.inputs)}",
            fix=nearest(law.method, descriptor.methods(executor.root)) if found is None else "see its input_spaces",
        )
    return found
