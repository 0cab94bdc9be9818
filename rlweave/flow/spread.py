"""Workers as one: methods that say how a call of all of them is split, and how their answers are collected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from rlweave.errors import PlanError
from rlweave.flow.batch import SampleBatch
from rlweave.tree import leaves_of, tree_map

if TYPE_CHECKING:
    from rlweave.flow.plan import ReportMetrics

How = Literal["rows", "all"]

_Method = TypeVar("_Method", bound=Callable[..., Any])


def spread(how: How) -> Callable[[_Method], _Method]:
    """Declares how a method of a worker is called on several of them, see `AsOne`.

    Args:
        how: "rows": each gets a part of the rows of the arguments, and answers are put together in their order;
            "all": all get the same arguments, and the answer is the first one's.
    """
    if how not in ("rows", "all"):
        raise PlanError("a method is spread by rows, or to all", where="spread", received=repr(how), fix='"rows"')

    def declare(method: _Method) -> _Method:
        method.spread = how  # type: ignore[attr-defined]
        return method

    return declare


class AsOne:
    """The workers of a running plan as one object: it has those of their methods that are declared with `spread`.

    By rows, batches and arrays are cut along their rows (a batch of trajectories along B) as evenly as that goes, so
    that parts differ by one row at most, and a worker without rows is not called; what else is in the arguments goes to
    all. Of the answers, batches and arrays are joined, and numbers become means, weighted by rows.

    Args:
        plan: A plan that has started, and names its workers.
        members: The numbers of those that are meant; None: all.

    Raises:
        PlanError: There is no such method, or it is not declared; arguments or answers cannot be spread; a member is
            lost, or raises.
    """

    def __init__(self, plan: ReportMetrics, members: Sequence[int] | None = None) -> None:
        self._plan = plan
        if plan.group is None:
            raise PlanError("the plan names no workers", where="AsOne", fix="ReportMetrics(stream, workers)")
        self._kind = next(iter(plan.group.kinds()))
        self._members = list(range(len(plan.group)) if members is None else members)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        how = getattr(getattr(self._kind, name, None), "spread", None)
        if how is None:
            declared = [other for other in dir(self._kind) if hasattr(getattr(self._kind, other, None), "spread")]
            raise PlanError(
                "workers as one have no such method",
                where="AsOne",
                received=f"{name!r}; declared are {declared}",
                fix='declare it with @spread("rows") or @spread("all")',
            )
        return lambda *arguments: (self._by_rows if how == "rows" else self._to_all)(name, arguments)

    def _to_all(self, method: str, arguments: tuple[Any, ...]) -> Any:
        return self._plan.ask_workers(method, [arguments] * len(self._members), self._members)[0]

    def _by_rows(self, method: str, arguments: tuple[Any, ...]) -> Any:
        rows = _rows(arguments, method)
        count = len(self._members)
        ends = [rows * (k + 1) // count for k in range(count)]
        parts = {
            number: (begin, end)
            for number, begin, end in zip(self._members, [0, *ends], ends, strict=False)
            if end > begin
        }
        given = [tuple(_cut(argument, *part) for argument in arguments) for part in parts.values()]
        answers = self._plan.ask_workers(method, given, list(parts))
        return _collected(answers, [end - begin for begin, end in parts.values()], method)


def _rows(arguments: tuple[Any, ...], method: str) -> int:
    found = {own for argument in arguments for own in _row_counts(argument)}
    if len(found) != 1 or 0 in found:
        raise PlanError(
            "arguments cannot be spread by rows",
            where=f"{method}()",
            received=f"batches and arrays of {sorted(found)} rows" if found else "no batch or array",
            fix="pass batches and arrays of one number of rows, at least one",
        )
    return found.pop()


def _row_counts(argument: Any) -> Iterator[int]:
    for leaf in leaves_of(argument, SampleBatch | np.ndarray):
        if isinstance(leaf, SampleBatch):
            yield leaf.leading[-1]
        elif leaf.ndim:
            yield len(leaf)


def _cut(argument: Any, begin: int, end: int) -> Any:
    def part(leaf: Any) -> Any:
        if isinstance(leaf, SampleBatch):
            return leaf.slice(begin, end)
        return leaf[begin:end] if isinstance(leaf, np.ndarray) and leaf.ndim else leaf

    return tree_map(part, argument)


def _collected(answers: Sequence[Any], rows: Sequence[int], method: str) -> Any:
    first = answers[0]
    if first is None:
        return None
    if isinstance(first, SampleBatch):
        return SampleBatch.concat(answers)
    if isinstance(first, Mapping):
        return {key: _collected([answer[key] for answer in answers], rows, method) for key in first}
    if isinstance(first, tuple):
        return tuple(_collected(list(own), rows, method) for own in zip(*answers, strict=True))
    if isinstance(first, np.ndarray) and first.ndim:
        return np.concatenate(answers)
    if isinstance(first, int | float | np.number | np.ndarray):
        return float(np.average(np.asarray(answers, np.float64), weights=rows))
    raise PlanError(
        "answers cannot be put together",
        where=f"{method}()",
        received=type(first).__name__,
        fix="answer with batches, arrays, numbers, or dicts and tuples of them",
    )
