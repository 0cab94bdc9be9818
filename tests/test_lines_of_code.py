"""The counter of lines of code: what a line is, what a plan is, what its operators are."""

import ast
import importlib
import sys
from pathlib import Path

import pytest

from rlweave.algorithms.registry import algorithm_names, get_algorithm
from rlweave.flow import ConcatBatches, Operator, ParallelRollouts, ReportMetrics, TrainOneStep
from rlweave.flow.learner_steps import LearnerSteps
from rlweave.flow.microbatches import Microbatches
from rlweave.flow.operators import BatchItems, Buffering
from rlweave.flow.work import Work

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def counter():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module("lines_of_code")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.mark.parametrize(
    ("source", "logical", "physical"),
    [
        ("", 0, 0),
        ("\n\n# nothing\n\n", 0, 0),
        ("x = 1\n", 1, 1),
        ("x = 1  # one\n\n\ny = 2", 2, 2),
        ("x = 1; y = 2\n", 2, 1),
        ("x = 1;\n", 1, 1),
        ("x = f(\n    1,\n    # two\n    2,\n)\n", 1, 4),
        ("x = 1 + \\\n    2\n", 1, 2),
        ("def f():\n    'docstring'\n    return 1\n", 2, 2),
        ('def f():\n    """Long\n\n    docstring\n    """\n    return """not\none"""\n', 2, 3),
        ("class A:\n    x = 1\n    '''about x'''\n", 2, 2),
        ("def f():\n    x = 'no docstring'\n    return x\n", 3, 3),
        ("@decorated\n@twice(1)\ndef f(\n    a,\n    b,\n): ...\n", 3, 6),
        ("if a:\n    b\nelif c:\n    d\nelse:\n    e\n", 6, 6),
        ("try:\n    a\nexcept E:\n    b\nfinally:\n    c\n", 6, 6),
        ("x = [\n\n    1,\n\n]\n", 1, 3),
        ("x = f'''a {\n    1\n} b'''\n", 1, 3),
    ],
)
def test_a_line_is_a_statement(counter, source, logical, physical):
    assert counter.count(source) == (logical, physical)


def test_methods_can_be_left_out(counter):
    source = "class A(B):\n    x = 1\n\n    @property\n    def note(self):\n        return 1\n\n"
    source += "    def go(self):\n        return 2\n"
    assert counter.count(source).logical == 7
    assert counter.count(source, {"note"}).logical == 4
    assert counter.count("def note():\n    return 1\n", {"note"}).logical == 2, "only methods of classes"


def test_statements_are_what_the_parser_says_too(counter):
    """The tokenizer's count of real files against the parser's: statements, and clauses that it has no node for."""
    for path in sorted((Path(counter.__file__).parent.parent / "rlweave" / "flow").glob("*.py"))[:12]:
        source = path.read_text()
        expected = 0
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.stmt):
                value = getattr(node, "value", None)
                alone = isinstance(node, ast.Expr) and isinstance(value, ast.Constant) and isinstance(value.value, str)
                expected += not alone
                expected += len(getattr(node, "decorator_list", ()))
            expected += isinstance(node, ast.ExceptHandler)
            expected += bool(getattr(node, "finalbody", ()))
            if isinstance(node, ast.For | ast.While | ast.Try) and node.orelse:
                expected += 1
            if isinstance(node, ast.If) and node.orelse:  # `else:` is a line; an `elif` is the node in it
                expected += not (len(node.orelse) == 1 and _is_elif(source, node.orelse[0]))
            if isinstance(node, ast.stmt | ast.ExceptHandler) and _stands_behind_its_colon(node):
                expected -= len(node.body)
        assert counter.count(source).logical == expected, path.name


def _is_elif(source, node):
    return isinstance(node, ast.If) and source.splitlines()[node.lineno - 1].lstrip().startswith("elif")


def _stands_behind_its_colon(node):
    """Whether a body is on the line of its header, as in `def f(): ...`: that is one line."""
    body = getattr(node, "body", None)
    if not isinstance(body, list) or not body:
        return False
    header = [*ast.walk(getattr(node, "test", None) or getattr(node, "args", None) or ast.Pass())]
    ends = [getattr(part, "end_lineno", 0) or 0 for part in [*header, getattr(node, "returns", None)]]
    return body[0].lineno <= max([node.lineno, *ends])


def test_every_algorithm_has_a_plan_and_its_operators_are_found(counter):
    plans = {name: counter.plan_of(get_algorithm(name)) for name in algorithm_names()}
    for name, plan in plans.items():
        assert plan, name
        assert all(isinstance(one, type) or callable(one) for one in counter.operators_of(plan))
    ppo = counter.operators_of(plans["ppo"])
    assert ppo >= {ConcatBatches, TrainOneStep, ParallelRollouts}
    assert not {Operator, Buffering, BatchItems, ReportMetrics} & ppo, "what is below operators"
    assert {"gathered", "rollouts"} <= {one.__name__ for one in ppo}
    dqn = {one.__name__ for one in counter.operators_of(plans["dqn"])}
    assert {"StoreToBuffer", "Replay", "Prefetch"} <= dqn
    assert "GraphMemory" not in dqn, "a memory is what a plan is given"


def test_columns_grow_and_an_operator_that_two_plans_use_is_nobodys_own(counter):
    rows = {row["case"]: row for row in counter.rows()}
    for row in rows.values():
        assert row["plan"] <= row["own"] <= row["all"] <= row["in full"]
    shared = set(rows["ppo"]["operators"].split()) & set(rows["dqn"]["operators"].split())
    assert "TrainOneStep" in shared
    train = counter.total([TrainOneStep], counter.HOOKS).logical
    assert rows["dqn"]["own"] <= rows["dqn"]["all"] - train
    assert (rows["ppo"]["RLlib"], rows["ppo"]["Flow"], rows["ppo"]["Flow with shared"]) == (386, 79, 225)


def test_machinery_that_operators_have_or_inherit_counts_in_full(counter):
    """What no other column has is not hidden: the last one shows it."""
    used = counter.operators_of(counter.plan_of(get_algorithm("a2c")))
    assert counter.machinery_of(used) == {LearnerSteps, Microbatches, Buffering}
    assert counter.machinery_of({ParallelRollouts}) == set()
    assert Work not in counter.machinery_of({Operator})
    (row,) = (row for row in counter.rows() if row["case"] == "a2c")
    machinery = counter.total([LearnerSteps, Microbatches, Buffering]).logical
    assert row["in full"] >= row["all"] + machinery


def test_each_column_is_below_that_of_the_slides(counter):
    rows = {row["case"]: row for row in counter.rows()}
    assert rows.keys() >= counter.SLIDES.keys()
    for name, (_, flow, shared) in counter.SLIDES.items():
        assert max(rows[name]["plan"], rows[name]["own"]) < flow, name
        assert rows[name]["all"] < shared, name
        assert rows[name]["ok"], name
