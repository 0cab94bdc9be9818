"""Gradients: everything that is to be learned gets one, and no target does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from rlweave.graph.ir import RANDOM_PATHS, Call, Node, Transfer, Value
from rlweave.testing.checks.derivatives import Loss, Tape
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.inputs import SEEDS, shaken
from rlweave.testing.checks.recording import input_names, place_of, result_names
from rlweave.testing.checks.subject import Situation, Subject
from rlweave.testing.checks.targets import followed, is_computed, is_data, is_reward, is_target, of_target
from rlweave.tree import flatten_tree, leaves_of, unflatten_like

#: A part of a gradient below is rounding.
_ROUNDING = 1e-5
NONE: Mapping[str, np.ndarray] = MappingProxyType({})

DETACH = (
    "wrap what makes it: ops.stop_gradient(...), or @graph_fn(differentiable=False); where a gradient is meant to "
    "pass, name it in `with_gradient` of the descriptor"
)


@dataclass
class Differentiated:
    """A loss of a call.

    Args:
        situation: The call.
        loss: What is differentiated.
        learns: The component itself takes the gradient (by the loss's `paths`).
        is_loss: It is one float scalar.
    """

    situation: Situation
    loss: Loss
    learns: bool
    is_loss: bool

    @property
    def where(self) -> str:
        """Component path and method."""
        return self.situation.where


def differentiated(subject: Subject) -> Iterator[list[Differentiated]]:
    """All losses of all methods: as they are, then with other inputs and weights."""
    yield _of(subject, subject.situations(), shake=None)
    for seed in (0, *SEEDS):
        yield _of(subject, subject.situations(seed=seed), seed)


def _of(subject: Subject, situations: Iterable[Situation], shake: int | None) -> list[Differentiated]:
    found = []
    for situation in situations:
        state = situation.state if shake is None else shaken(subject, situation.state, shake)
        found += losses_of(subject, situation, state)
    return found


def losses_of(
    subject: Subject, situation: Situation, state: Mapping[str, np.ndarray], changed: Mapping[str, np.ndarray] = NONE
) -> list[Differentiated]:
    """What a call differentiates, or else what it returns, on a backend that differentiates.

    Args:
        subject: The component.
        situation: The call.
        state: What the executor holds before.
        changed: Inputs that are changed, by path.
    """
    learner = subject.learner
    assert learner is not None
    own = {path: x for path, x in learner.state_dict().items() if path not in state or path in RANDOM_PATHS}
    arguments = unflatten_like(situation.arguments, {**situation.flat, **changed})
    tape = Tape(learner, situation.method, {**arguments, **situation.static}, {**state, **own})
    losses = tape.losses()
    if not losses and (subject.descriptor.gradients is None or situation.method in subject.descriptor.gradients):
        return _results(subject, situation, tape)
    return [Differentiated(situation, loss, learns=True, is_loss=True) for loss in losses]


def _results(subject: Subject, situation: Situation, tape: Tape) -> list[Differentiated]:
    """What a method returns as a loss; where it returns none, all of its float results."""
    part = subject.descriptor.differentiated.get(situation.method, lambda result: result)
    results = {
        path: value
        for path, value in sorted(flatten_tree(part(tape.graph.outputs)).items())
        if isinstance(value, Value) and value.space.dtype.startswith("float") and value.node is not None
    }
    inputs = [value for value in leaves_of(tape.graph.inputs, Value) if value.space.dtype.startswith("float")]
    read = {path for node in tape.graph.nodes for path in node.reads}
    paths = [path for path in subject.variables if path in subject.trainable and path in read]
    if not results or not (inputs or paths):
        return []
    scalars = {path: value for path, value in results.items() if value.space.axes == ()}
    named = [path for path in scalars if "loss" in path] or list(scalars)[:1]
    chosen = [scalars[named[0]]] if named else list(results.values())
    loss = Loss(tape, tape.graph.nodes, chosen, paths, inputs, situation.where)
    return [Differentiated(situation, loss, learns=False, is_loss=bool(named))]


def _any(arrays: Iterable[np.ndarray]) -> bool:
    return any(bool(np.any(np.nan_to_num(x) != 0)) for x in arrays)


# -- what learns --------------------------------------------------------------------------------------------------


def everything_learns(subject: Subject) -> Iterator[Finding]:
    """Each variable that a loss trains gets a gradient that is not zero, in one of several batches at least."""
    if subject.learner is None:
        return
    silent: dict[str, Differentiated] = {}
    learned: set[str] = set()
    for attempt, losses in enumerate(differentiated(subject)):
        candidates = _candidates(losses)
        if attempt == 0:
            cells = subject.eager.store.cells
            silent = {path: item for path, item in candidates.items() if np.size(cells[path].value)}
            yield from _left_out(subject, losses)
        for item in losses:
            if any(path in silent and path not in learned for path in item.loss.paths):
                by_path, _ = item.loss.gradient()
                learned.update(path for path, gradient in by_path.items() if _any([gradient]))
        if learned.issuperset(silent):
            return
    for path, item in silent.items():
        if path not in learned:
            yield Finding(
                "gradient reach",
                _stops_at(item, path),
                f"the gradient of {item.loss.label} by {path} is zero in every batch",
                Cause.NOT_TRAINED,
                "compute the loss from what depends on it, without stop_gradient, argmax or rounding in between; what "
                "is not to be trained is made with trainable=False",
            )


def _candidates(losses: list[Differentiated]) -> dict[str, Differentiated]:
    """The variables that have to get a gradient, each with a loss that it should reach."""
    own = [item for item in losses if item.learns]
    if own:
        return {path: item for item in own for path in item.loss.paths if not of_target(path)}
    found: dict[str, Differentiated] = {}
    for item in sorted(losses, key=lambda item: not item.is_loss):
        read = {path for node in item.loss.upstream() for path in node.reads}
        for path in item.loss.paths:
            if path in read and not of_target(path):
                found.setdefault(path, item)
    in_losses = {path for path, item in found.items() if item.is_loss}
    for item in losses:  # what a loss reads has to learn from a loss, whatever else it has a gradient of
        if not item.is_loss:
            item.loss.paths = tuple(path for path in item.loss.paths if path not in in_losses)
    return found


def _left_out(subject: Subject, losses: list[Differentiated]) -> Iterator[Finding]:
    """Variables that a loss of the component is computed from, and that none of its gradients is taken by."""
    own = [item for item in losses if item.learns]
    if any(item.loss.values for item in own):
        return  # values stand for variables
    taken = {path for item in own for path in item.loss.paths}
    for item in own:
        read = {path for node in item.loss.upstream() for path in node.reads}
        others = [path for path in read & subject.trainable if path not in taken and not of_target(path)]
        loss = Loss(item.loss.tape, item.loss.nodes, item.loss.results, sorted(others), [], item.loss.label)
        by_path, _ = loss.gradient() if others else ({}, [])
        for path, gradient in by_path.items():
            if _any([gradient]):
                taken.add(path)
                yield Finding(
                    "gradient reach",
                    place_of(next(node for node in loss.path if path in node.reads)),
                    f"the loss of {loss.label} depends on {path}, and no gradient is taken by it",
                    Cause.NOT_TRAINED,
                    "pass its variables to the optimizer as well; what is not to be trained is made with "
                    "trainable=False",
                )


def _stops_at(item: Differentiated, path: str) -> str:
    """The first graph function from a variable to the loss that lets no gradient through."""
    reached: set[int] = set()
    place = ""
    for node in item.loss.upstream():
        if path not in node.reads and reached.isdisjoint(map(id, node.inputs())):
            continue
        results = [value for value in node.values() if value.space.dtype.startswith("float")]
        place = place_of(node)
        if not results:
            continue
        by_path, _ = Loss(item.loss.tape, item.loss.nodes, results, [path], [], "").gradient()
        if not _any(by_path.values()):
            return place
        reached.update(map(id, results))
    return place or item.loss.label


# -- what is constant ---------------------------------------------------------------------------------------------


def targets_are_constant(subject: Subject) -> Iterator[Finding]:
    """No gradient of a loss passes through a target, into a target network, or into what was computed of next steps."""
    if subject.learner is None:
        return
    excused: set[tuple[str, str]] = set()
    for attempt, losses in enumerate(differentiated(subject)):
        for item in losses:
            declared = subject.descriptor.with_gradient.get(item.situation.method, ())
            by_path, by_value = item.loss.gradient()
            found = [
                *_inputs(subject, item, by_value),
                *_target_networks(item, by_path),
                *(_ports(item, by_path, by_value) if item.is_loss else ()),
                *(_next_steps(item) if item.is_loss else ()),
            ]
            for name, finding in found:
                if name in declared:
                    excused.add((item.situation.method, name))
                else:
                    yield finding
        if attempt == 1:
            break
    for method, names in subject.descriptor.with_gradient.items():
        for name in names:
            if (method, name) not in excused:
                yield Finding(
                    "targets",
                    f"descriptor {subject.descriptor.name!r}",
                    f"{method}: {name!r} is declared to pass a gradient, and passes none",
                    Cause.UNNEEDED_DECLARATION,
                    "take it out of `with_gradient`",
                )


def _inputs(subject: Subject, item: Differentiated, by_value: list[np.ndarray]) -> Iterator[tuple[str, Finding]]:
    """Inputs that are constants by the descriptor, or targets of networks by their names."""
    if item.learns:
        return
    constants = subject.descriptor.constants.get(item.situation.method, ())
    names = {id(value): path for path, value in flatten_tree(item.loss.tape.graph.inputs).items()}
    for value, gradient in zip(item.loss.values, by_value, strict=True):
        name = names[id(value)]
        declared = name in constants or name.split("/")[0] in constants
        by_name = item.is_loss and is_computed(name) and not _is_stream(name, value)
        if (declared or by_name) and _any([gradient]):
            yield (
                name,
                Finding(
                    "targets",
                    _enters(item, [value]) or item.situation.place,
                    f"{item.where}: the gradient by {name!r}, a constant"
                    f"{' by the descriptor' if declared else ': it is a target'}, is not zero",
                    Cause.TARGET_HAS_GRADIENT,
                    DETACH,
                ),
            )


def _target_networks(item: Differentiated, by_path: Mapping[str, np.ndarray]) -> Iterator[tuple[str, Finding]]:
    for path, gradient in by_path.items():
        if of_target(path) and item.is_loss and _any([gradient]):
            readers = [node for node in item.loss.path if path in node.reads]
            yield (
                path,
                Finding(
                    "targets",
                    place_of(readers[-1]) if readers else item.loss.label,
                    f"the gradient of {item.loss.label} by {path}, a variable of a target network, is not zero",
                    Cause.TARGET_HAS_GRADIENT,
                    "make the target network with copy(scope=..., trainable=False), and stop_gradient what it computes",
                ),
            )


def _ports(
    item: Differentiated, by_path: Mapping[str, np.ndarray], by_value: list[np.ndarray]
) -> Iterator[tuple[str, Finding]]:
    """Arguments of graph functions on the way to the loss that are targets by their names."""
    loss, tape = item.loss, item.loss.tape
    names = {id(value): path for path, value in flatten_tree(tape.graph.inputs).items()}
    counted = [item.learns or not (is_data(names[id(v)]) or is_computed(names[id(v)])) for v in loss.values]
    seen: set[int] = set()
    for node in loss.path:
        if not isinstance(node, Call) or node.plain:
            continue
        for name, value in zip(input_names(node), node.inputs(), strict=True):
            if not is_target(name) or id(value) in seen or id(value) not in loss.spread.values:
                continue
            if _is_stream(name, value):
                continue
            seen.add(id(value))
            cut_paths, cut_values = loss.gradient(cut=[value])
            flows = [(by_path[path], x) for path, x in cut_paths.items()]
            flows += [(one, two) for one, two, c in zip(by_value, cut_values, counted, strict=True) if c]
            if _differ(flows):
                yield (
                    name.split("/")[-1],
                    Finding(
                        "targets",
                        place_of(node),
                        f"{item.where}: a gradient passes through {name!r} (from {_made_by(value)}) into {loss.label}",
                        Cause.TARGET_HAS_GRADIENT,
                        DETACH,
                    ),
                )


def _is_stream(name: str, value: Value) -> bool:
    """Whether advantages are those of all actions: a dueling network learns them, and no loss multiplies by them."""
    return "advantage" in name and bool(value.space.shape)


def _differ(pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> bool:
    found = [(np.nan_to_num(one), np.nan_to_num(two)) for one, two in pairs]
    scale = max((float(np.max(np.abs(one), initial=0.0)) for one, _ in found), default=0.0)
    return any(float(np.max(np.abs(one - two), initial=0.0)) > _ROUNDING * scale for one, two in found)


def _made_by(value: Value) -> str:
    return value.node.label if value.node is not None else "an input"


def _next_steps(item: Differentiated) -> Iterator[tuple[str, Finding]]:
    """What is trained, applied to the observations of next steps: a part of the target."""
    loss = item.loss
    upstream = loss.upstream()
    leaves = _leaves(item, upstream)
    names = set(leaves.values())
    if not any(map(is_reward, names)):
        return  # nothing is bootstrapped
    following = {i: name for i, name in leaves.items() if followed(name) in names}
    before = {followed(name) for name in following.values()}
    now = _derived(upstream, {i for i, name in leaves.items() if name in before})
    after = _derived(upstream, set(following))
    readers = [
        node
        for node in loss.path
        if not after.isdisjoint(map(id, node.inputs()))
        and now.isdisjoint(map(id, node.inputs()))
        and not set(loss.paths).isdisjoint(node.reads)
    ]
    if not readers:
        return
    by_path, _ = loss.gradient(through=readers)
    if _any(by_path.values()):
        made = [value for node in readers for value in node.values()]
        name = next(name for i, name in following.items())
        yield (
            name,
            Finding(
                "targets",
                _enters(item, made) or loss.label,
                f"{item.where}: a gradient of {loss.label} passes through {readers[-1].label} of {name!r}, into "
                f"{', '.join(sorted(path for path, x in by_path.items() if _any([x])))[:200]}",
                Cause.TARGET_HAS_GRADIENT,
                DETACH,
            ),
        )


def _leaves(item: Differentiated, upstream: list[Node]) -> dict[int, str]:
    """Names of what comes from outside of the path to the loss: inputs, and leaves of what memories return."""
    flat = flatten_tree(item.loss.tape.graph.inputs)
    found = {id(value): path for path, value in flat.items() if isinstance(value, Value)}
    for node in upstream:
        if isinstance(node, Transfer):
            found.update((id(to), found.get(id(of), "")) for of, to in zip(node.inputs(), node.values(), strict=True))
        elif id(node) not in item.loss.spread.active:
            found.update((id(v), name) for name, v in zip(result_names(node), node.values(), strict=True))
    return found


def _derived(nodes: list[Node], values: set[int]) -> set[int]:
    """Values that are computed of some, by themselves."""
    found = set(values)
    for node in nodes:
        if not found.isdisjoint(map(id, node.inputs())):
            found.update(map(id, node.values()))
    return found


def _enters(item: Differentiated, made: list[Value]) -> str | None:
    """Where values first meet others that have a gradient, on the way to the loss."""
    loss = item.loss
    derived = {id(value) for value in made}
    names = {id(value): path for path, value in flatten_tree(loss.tape.graph.inputs).items()}
    sources = {id(value) for value in loss.values if not is_data(names.get(id(value), ""))} - derived
    place = None
    for node in loss.path:
        inputs = [id(value) for value in node.inputs()]
        if derived.isdisjoint(inputs):
            continue
        derived.update(map(id, node.values()))
        if isinstance(node, Call) and not node.plain:
            place = place_of(node)
            if any(i not in derived and (i in loss.spread.values or i in sources) for i in inputs):
                return place
    return place
