"""Lines of code of the plans of rlweave's algorithms, beside those of RLlib and RLlib Flow.

What is counted are logical lines: statements, however many physical lines they take. The tokenizer finds them;
comments, blank lines and docstrings are none, a decorator is one, and so is each statement of several on one line.
Beside it stands what the code takes on the page: physical lines with any code on them.

For each algorithm that is registered:

* plan: the function of its module that returns a `ReportMetrics`, which is the plan;
* own: the plan, and every operator that no other plan uses;
* all: the plan, and all operators that it uses.

An operator is what the plan names, or reaches by the methods of streams that are about reinforcement learning: classes
below `Operator`, sources such as `ParallelRollouts`, and functions of `rlweave.algorithms` that the plan calls, with
what these call in turn. What they inherit from is counted too, down to `Operator` and `Stream`.

Of an operator counts what it does with items. RLlib Flow's operators could neither be checked, explained, nor saved, so
the methods that do this (`HOOKS`) are left out for a like comparison.

Not counted, as in RLlib Flow's figures, is what is below operators: the library of streams and the scheduler with its
reports, `ReportMetrics`. The library are the methods of streams, gathers, unions, queues, the rate limiter, and what
makes one item of several behind `Stream.batch`, `Buffering` (all of this in `ray.util.iter` there). To the scheduler
belongs what it knows of workers, learners and shards, and the `Work` that an operator has rather than is: a step of a
learner tied to versions of weights, counters, calls of an actor and checkpoints (there in Ray's actors, `WorkerSet` and
the metrics that iterators share). Nor are workers, learners, memories and agents counted, which a plan is given, or how
a batch is cut for a learner (`Microbatches`).

The column "in full" has the hooks as well, and the machinery of the operators (`MACHINERY`).

RLlib Flow's figures are those of its slides. Each of the first two columns should be below the slides' plan, the third
below the slides' plan with what is shared.
"""

from __future__ import annotations

import ast
import inspect
import io
import sys
import textwrap
import tokenize
import types
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

from alternating import report

from rlweave.algorithms.registry import AlgorithmSpec, algorithm_names, get_algorithm
from rlweave.flow import ConcatBatches, Operator, ReportMetrics, Stream, Union
from rlweave.flow.microbatches import Microbatches
from rlweave.flow.notify import Notify
from rlweave.flow.operators import Buffering, SelectPolicy
from rlweave.flow.work import Work

#: RLlib, RLlib Flow's plan, and that with what is shared: the table of the slides.
SLIDES = {
    "a3c": (87, 11, 52),
    "a2c": (154, 25, 50),
    "dqn": (239, 87, 139),
    "ppo": (386, 79, 225),
    "ape-x": (250, 126, 216),
    "impala": (694, 89, 362),
    "maml": (370, 136, 136),
}
#: Operators that plans reach by methods of streams.
METHODS: dict[str, type] = {"concat": ConcatBatches, "select": SelectPolicy, "notify": Notify}
#: What is below operators.
LIBRARY = (Operator, Buffering, Stream, Union, ReportMetrics)
#: Machinery that operators have or inherit; of what is not counted, this is what "in full" has.
MACHINERY = (Buffering, Microbatches, Work)
#: Methods that check, explain, name and save an operator.
HOOKS = frozenset(
    {"check", "check_plan", "signature", "produced", "default_name", "note", "sends", "state_dict", "load_state_dict"}
)

_LAYOUT = {tokenize.NEWLINE, tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


class Lines(NamedTuple):
    """How long some code is.

    Attributes:
        logical: Statements.
        physical: Lines with code on them.
    """

    logical: int
    physical: int


def count(source: str, without: Collection[str] = ()) -> Lines:
    r"""Counts the lines of Python code.

    >>> count("def f(x):  # one\n    'Says nothing.'\n\n    return g(\n        x,\n    )\n")
    Lines(logical=2, physical=4)

    Args:
        source: The code.
        without: Names of methods that are left out.
    """
    left_out = set(_left_out(ast.parse(source), without))
    logical = 0
    lines: set[int] = set()
    begun = False  # whether a statement has begun
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NEWLINE or (token.type == tokenize.OP and token.string == ";"):
            logical += begun
            begun = False
        elif token.type not in _LAYOUT and token.start[0] not in left_out:
            begun = True
            lines.update(range(token.start[0], token.end[0] + 1))
    return Lines(logical, len(lines))


def _left_out(tree: ast.AST, without: Collection[str]) -> Iterator[int]:
    """Lines of docstrings (any string that stands alone), and of the methods that are left out."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            value = getattr(statement, "value", None)
            first = statement.lineno
            if isinstance(node, ast.ClassDef) and getattr(statement, "name", None) in without:
                first = min([first, *(decorator.lineno for decorator in statement.decorator_list)])
            elif not (isinstance(statement, ast.Expr) and isinstance(value, ast.Constant) and type(value.value) is str):
                continue
            yield from range(first, statement.end_lineno + 1)


def source_of(thing: Any) -> str:
    """The source of a class or function, as if it stood alone."""
    return textwrap.dedent(inspect.getsource(thing))


def plan_of(spec: AlgorithmSpec) -> list[types.FunctionType]:
    """The functions that make an algorithm's plan: what its module has that returns a `ReportMetrics`.

    An algorithm whose module has none uses another one's, which it imports.
    """
    module = sys.modules[spec.make_trainer.__module__]
    plans = [
        value
        for value in vars(module).values()
        if isinstance(value, types.FunctionType)
        and value.__annotations__.get("return") in ("ReportMetrics", ReportMetrics)
        and value.__module__ != "rlweave.algorithms.fused"  # counts and reports what happens in the graph
    ]
    return [plan for plan in plans if plan.__module__ == module.__name__] or plans


def names_in(tree: ast.AST) -> Iterator[str]:
    """Names that code uses, and attributes with a dot before them; those in annotations are left out."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if annotation is not None:
                skipped.update(id(inner) for inner in ast.walk(annotation))
    for node in ast.walk(tree):
        if id(node) not in skipped and isinstance(node, ast.Name):
            yield node.id
        elif id(node) not in skipped and isinstance(node, ast.Attribute):
            yield f".{node.attr}"


def operators_of(plan: Iterable[types.FunctionType]) -> set[Any]:
    """The operators of a plan, with what they inherit from, and the functions that it calls, with what those use."""
    found: set[Any] = set()
    plan = list(plan)
    waiting: list[Any] = list(plan)
    while waiting:
        user = waiting.pop()
        if isinstance(user, type):
            used: list[Any] = list(user.__bases__)
        else:
            module = vars(sys.modules[user.__module__])
            names = list(names_in(ast.parse(source_of(user))))
            used = [METHODS.get(name[1:]) if name.startswith(".") else module.get(name) for name in names]
        for thing in used:
            if _is_operator(thing) and thing not in found and thing not in plan:
                found.add(thing)
                waiting.append(thing)
    return found


def _is_operator(thing: Any) -> bool:
    if isinstance(thing, types.FunctionType):
        return thing.__module__.startswith("rlweave.algorithms")
    return isinstance(thing, type) and issubclass(thing, Operator | Stream) and thing not in LIBRARY


def machinery_of(operators: Iterable[Any]) -> set[type]:
    """The machinery that operators have or inherit, as far as their source names it."""
    found: set[type] = set()
    for operator in operators:
        module = vars(sys.modules[operator.__module__])
        named = [module.get(name) for name in names_in(ast.parse(source_of(operator)))]
        found |= {thing for thing in named if isinstance(thing, type) and issubclass(thing, MACHINERY)}
    return found - {Work}  # what an operator without one has


def total(things: Iterable[Any], without: Collection[str] = ()) -> Lines:
    """The lines of several classes and functions."""
    counted = [count(source_of(thing), without) for thing in things]
    return Lines(sum(lines.logical for lines in counted), sum(lines.physical for lines in counted))


def rows() -> list[dict[str, Any]]:
    """A row for each algorithm that has a plan."""
    plans = {name: plan_of(get_algorithm(name)) for name in algorithm_names()}
    plans = {name: plan for name, plan in plans.items() if plan}
    used = {name: operators_of(plan) for name, plan in plans.items()}
    return [_row(name, plan, used) for name, plan in plans.items()]


def _row(name: str, plan: list[types.FunctionType], used: dict[str, set[Any]]) -> dict[str, Any]:
    own = {one for one in used[name] if sum(one in others for others in used.values()) < 2}
    columns = {"plan": total(plan), "own": total([*plan, *own], HOOKS), "all": total([*plan, *used[name]], HOOKS)}
    rllib, flow, shared = SLIDES.get(name, (None, None, None))
    bars = {"plan": flow, "own": flow, "all": shared}
    ratios = [bar / columns[column].logical for column, bar in bars.items() if bar is not None]
    return {
        "case": name,
        **{column: lines.logical for column, lines in columns.items()},
        "on the page": " ".join(str(lines.physical) for lines in columns.values()),
        "in full": total([*plan, *used[name], *machinery_of(used[name])]).logical,
        "RLlib": rllib,
        "Flow": flow,
        "Flow with shared": shared,
        "ratio": round(min(ratios), 3) if ratios else None,
        "bar": 1.0 if ratios else None,
        "ok": all(ratio > 1 for ratio in ratios),
        "spread": [round(min(ratios), 3), round(max(ratios), 3)] if ratios else None,
        "operators": " ".join(sorted(one.__name__ for one in used[name])),
    }


if __name__ == "__main__":
    report(
        "lines_of_code",
        rows(),
        "logical lines; ratio: the slides' figure over ours in the worst of three columns (above 1: ours is shorter)",
    )
