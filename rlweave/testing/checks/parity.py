"""The same everywhere: on every backend, in compiled and in eager mode, and after a state was saved and loaded."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator

import numpy as np

from rlweave.backends import LEARNING
from rlweave.extensions.eager import EagerExecutor
from rlweave.graph.component import api_methods
from rlweave.testing.checks.axes import differs
from rlweave.testing.checks.derivatives import Loss
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.gradients import losses_of
from rlweave.testing.checks.numbers import EDGES
from rlweave.testing.checks.recording import Step, place_of, record, source_line
from rlweave.testing.checks.subject import WITHOUT_COMPILER, Situation, Subject
from rlweave.testing.checks.trail import called
from rlweave.testing.gradient_parity import Probes, differentiable_methods
from rlweave.testing.parity import (
    Difference,
    Mode,
    build_described,
    eager_differences,
    state_differences,
    value_differences,
)
from rlweave.tree import flatten_tree

_PORTABLE = (
    "use operators of rlweave.ops only, which mean the same everywhere: ops.std(x), not x.std(); look at what the "
    "function asks of an array beyond them, and at integer division, dtypes and the order of equal values"
)


def backends_agree(subject: Subject) -> Iterator[Finding]:
    """Results and state on each backend are those of the reference, for several batch sizes, with the same numbers."""
    reference = subject.descriptor.reference
    for backend in subject.backends:
        if backend == reference:
            continue
        for difference in _first(value_differences(subject.executors, backend)):
            one, other = (_eager(subject, name, seed=0) for name in (reference, backend))
            where, part = _apart(subject, one, other, difference, subject.descriptor.tolerance)
            yield Finding(
                "backends",
                where,
                f"{_told(difference)} on {backend}, on {reference} the second{part}",
                Cause.BACKENDS_DIFFER,
                _PORTABLE,
            )
    if subject.by_default:
        yield from _learner_agrees(subject)


def _learner_agrees(subject: Subject) -> Iterator[Finding]:
    """The same on the backend that gradients are taken on, which runs anyway: each graph function, as it is called."""
    learner, descriptor = subject.learner, subject.descriptor
    if learner is None or learner is subject.eager:
        return
    backend = learner.backend.name
    for situation in subject.situations():
        other = record(learner, situation.method, {**situation.arguments, **situation.static}, situation.state)
        for before, after in zip(situation.base.steps, other.steps, strict=False):
            name = _differs(after, before, descriptor.tolerance)
            if name is not None:
                yield Finding(
                    "backends",
                    before.where,
                    f"{situation.where}: {before.node.label} was called with the same numbers on {backend} and on "
                    f"{descriptor.reference}, and {called(name)} differs",
                    Cause.BACKENDS_DIFFER,
                    _PORTABLE,
                )
                return


def modes_agree(subject: Subject) -> Iterator[Finding]:
    """Eager mode gives what compiled mode gives, on each backend."""
    for backend in subject.backends:
        for difference in _first(eager_differences(subject.executors, backend, compiled=backend)):
            yield Finding(
                "modes",
                _method(subject, difference.method),
                f"{_told(difference)} in eager mode on {backend}, in compiled mode the second",
                Cause.MODES_DIFFER,
                "let nothing depend on what happens while the graph is traced: attributes that a method sets, globals, "
                "the number of calls; keep it in a variable",
            )


def state_is_complete(subject: Subject) -> Iterator[Finding]:
    """A state that was saved goes on in the same way after it was loaded, here and in another executor.

    The state is the same in eager mode, and nothing has to be compiled again.
    """
    for backend in subject.backends:
        mode: Mode = "compiled" if backend in WITHOUT_COMPILER else "eager"
        another = build_described(subject.descriptor, backend, seed=2, mode=mode)
        one = subject.executors(backend, mode)
        for difference in _first(state_differences(subject.descriptor, one, another, backend)):
            one, other = (_eager(subject, backend, seed) for seed in (1, 2))
            _play(subject, one)
            where, part = _apart(subject, one, other, difference, 0.0)
            yield Finding(
                "state",
                where,
                f"{_told(difference)} after the state was loaded on {backend}, before it the second{part}",
                Cause.INCOMPLETE_STATE,
                "keep what it remembers in self.variable(...), not in attributes of the component: only variables are "
                "in a checkpoint",
            )


def _first(found: Iterator[Difference]) -> Iterator[Difference]:
    """The first difference: what comes after follows from it."""
    for difference in found:
        yield difference
        return


def _told(difference: Difference) -> str:
    leaf = f" {difference.what!r}" if difference.what else ""
    what = f"result{leaf} of {difference.method}" if difference.method else difference.what
    return f"{difference.rows} rows: {what} is {difference.seen.replace(' / ', ' and ')}: the first"


def _eager(subject: Subject, backend: str, seed: int) -> EagerExecutor:
    executor = build_described(subject.descriptor, backend, seed=seed, mode="eager")
    assert isinstance(executor, EagerExecutor)
    return executor


def _play(subject: Subject, executor: EagerExecutor) -> None:
    """A round of calls, after which what is kept outside of variables has moved."""
    for call in subject.calls(0):
        executor.execute(call.method, **call.arguments, **call.static)


def _apart(
    subject: Subject, one: EagerExecutor, other: EagerExecutor, difference: Difference, tolerance: float
) -> tuple[str, str]:
    """The first graph function that gives two executors different results of equal inputs; and its result in words."""
    descriptor = subject.descriptor
    state = one.state_dict()
    for method in descriptor.methods(one.root):
        arguments = {**descriptor.sample(one.root, method, difference.rows), **descriptor.static.get(method, {})}
        first, second = record(one, method, arguments, state), record(other, method, arguments, state)
        for before, after in zip(first.steps, second.steps, strict=False):
            if before.node.label != after.node.label:
                break
            name = _differs(before, after, tolerance)
            if name is not None:
                return before.where, f"; they part in {before.node.label}" + (f", in {name!r}" if name else "")
        state = first.state
    return _method(subject, difference.method), ""


def _differs(one: Step, other: Step, tolerance: float) -> str | None:
    """A result that differs; None where all agree, or where inputs did not."""
    if _any(((leaf.array, other.inputs[name].array) for name, leaf in one.inputs.items()), tolerance):
        return None
    if _any(((array, other.read[path]) for path, array in one.read.items() if path in other.read), tolerance):
        return None
    made = [(name, leaf.array, other.outputs[name].array) for name, leaf in one.outputs.items()]
    made += [(path, array, other.written[path]) for path, array in one.written.items() if path in other.written]
    return next((name for name, x, y in made if _any([(x, y)], tolerance)), None)


def _any(pairs: Iterable[tuple[np.ndarray, np.ndarray]], tolerance: float) -> bool:
    return any(x.shape != y.shape or x.dtype != y.dtype or bool(differs(x, y, tolerance).any()) for x, y in pairs)


def _method(subject: Subject, method: str) -> str:
    root = subject.eager.root
    if not method:
        return subject.root_path
    return f"{subject.root_path}.{method}, {source_line(api_methods(type(root))[method].function)}"


# -- gradients ----------------------------------------------------------------------------------------------------


def gradients_are_finite(subject: Subject) -> Iterator[Finding]:
    """Where results are finite the gradients are, too, also where float inputs are zero or equal in all rows."""
    if subject.learner is None:
        return
    for situation in subject.situations():
        for edge, changed in _edges(situation):
            for item in losses_of(subject, situation, situation.state, changed):
                name = _not_finite(item.loss)
                if name is not None:
                    yield Finding(
                        "finite gradients",
                        _not_finite_from(item.loss),
                        f"{item.where} with {edge}: its result is finite, and the gradient by {name!r} is not",
                        Cause.NOT_FINITE,
                        "a root at 0 has no finite gradient, and ops.where has none if that of a branch is not finite, "
                        "chosen or not: make what goes into the branch safe, ops.sqrt(ops.where(x > 0, x, 1.0)), or "
                        "add a small number",
                    )


def _edges(situation: Situation) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    yield "sampled inputs", {}
    for edge in ("all zero", "equal in all rows"):
        arrays = {path: (space, np.asarray(situation.flat[path])) for path, space in situation.inputs.items()}
        floats = {path: pair for path, pair in arrays.items() if pair[1].dtype.kind == "f" and pair[1].size}
        if floats:
            yield f"float inputs {edge}", {path: EDGES[edge](*pair) for path, pair in floats.items()}


def _not_finite(loss: Loss) -> str | None:
    """What a finite loss has a gradient by that is not finite."""
    tape = loss.tape
    if not all(np.isfinite(tape.executor.backend.to_numpy(tape.arrays[id(value)])).all() for value in loss.results):
        return None
    by_path, by_value = loss.gradient()
    found = {id(value): path for path, value in flatten_tree(tape.graph.inputs).items()}
    names = [*by_path, *(found.get(id(value), "a value") for value in loss.values)]
    gradients = zip(names, [*by_path.values(), *by_value], strict=True)
    return next((name for name, gradient in gradients if not np.isfinite(gradient).all()), None)


def _not_finite_from(loss: Loss) -> str:
    """The first graph function whose own derivative is not finite."""
    for node in loss.path:
        results = [value for value in node.values() if value.space.dtype.startswith("float")]
        inputs = [value for value in node.inputs() if value.space.dtype.startswith("float")]
        paths = [path for path in node.reads if path in loss.paths]
        if results and _not_finite(Loss(loss.tape, [node], results, paths, inputs, loss.label)) is not None:
            return place_of(node)
    return loss.label


def gradients_are_right(subject: Subject) -> Iterator[Finding]:
    """Gradients are those of central differences in float64 on NumPy, where backends are compared."""
    descriptor = subject.descriptor
    if descriptor.reference != "numpy":
        return  # what a framework's own module differentiates
    probes, methods = Probes(descriptor), differentiable_methods(descriptor, subject.eager)
    for backend in (name for name in subject.backends if name in LEARNING):
        for method in (name for name in methods if _says_what_is_constant(subject, name)):
            for difference in _first(probes.differences(backend, method)):
                yield Finding(
                    "gradients",
                    _method(subject, method),
                    f"the gradient on {backend} by {difference.what}: {difference.seen}",
                    Cause.WRONG_GRADIENT,
                    "what is constant on purpose is named in the descriptor: `constants` for inputs, `differentiated` "
                    "for parts of a result",
                )


def _says_what_is_constant(subject: Subject, method: str) -> bool:
    """Whether differences can be compared with: nothing is detached, or the descriptor says what is."""
    descriptor = subject.descriptor
    if descriptor.gradients is not None or method in {*descriptor.constants, *descriptor.differentiated}:
        return True
    classes = {cls for component in subject.eager.root.tree() for cls in type(component).__mro__}
    functions = (getattr(member, "function", member) for cls in classes for member in vars(cls).values())
    codes = [function.__code__ for function in functions if inspect.isfunction(function)]
    graph = subject.graph_of(method, descriptor.static.get(method, {}))
    return all(node.differentiable for node in graph.nodes) and all("stop_gradient" not in c.co_names for c in codes)
