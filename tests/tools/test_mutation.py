"""The mutation test itself: which edits it makes, which tests it runs on them, and what it says."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.mutation import report, selection
from tools.mutation.edits import changes, mutants_of, sample

SOURCE = '''"""A loss: 1 + 1."""

from rlweave import ops
from rlweave.graph import Component, graph, graph_fn


class Loss(Component):
    """Zero, 0."""

    def __init__(self, discount: float = 0.9, double: bool = True) -> None:
        if discount < 0.0:
            raise ConfigError("negative: 1 + 1", received=1 + 1)
        self.discount, self.double = discount, double

    @graph_fn
    def loss(self, rewards, terminated, truncated, q_next):
        values = graph.stop_gradient(ops.max(q_next, -1))
        return rewards[0] + self.discount * ops.where(terminated, 0.0, values)


def unused(x):
    return not x
'''


def edits(source=SOURCE, **options):
    found = mutants_of("rlweave/components/loss.py", source, **options)
    return {(m.line, m.kind, m.after) for m in found}


def test_the_edits_of_a_small_file():
    assert edits() == {
        (10, "constant", "def __init__(self, discount: float = 1.8, double: bool = True) -> None:"),
        (10, "flag", "def __init__(self, discount: float = 0.9, double: bool = False) -> None:"),
        (11, "comparison", "if discount <= 0.0:"),
        (11, "comparison", "if discount > 0.0:"),
        (11, "constant", "if discount < 1.0:"),
        (17, "stop_gradient", "values = (ops.max(q_next, -1))"),
        (17, "function", "values = graph.stop_gradient(ops.min(q_next, -1))"),
        (17, "constant", "values = graph.stop_gradient(ops.max(q_next, 0))"),
        (17, "constant", "values = graph.stop_gradient(ops.max(q_next, -2))"),
        (18, "name", "return rewards[0] + self.discount * ops.where(truncated, 0.0, values)"),
        (18, "name", "return values[0] + self.discount * ops.where(terminated, 0.0, values)"),
        (18, "name", "return rewards[0] + self.discount * ops.where(terminated, 0.0, rewards)"),
        (18, "index", "return rewards[1] + self.discount * ops.where(terminated, 0.0, values)"),
        (18, "operator", "return rewards[0] - self.discount * ops.where(terminated, 0.0, values)"),
        (18, "operator", "return rewards[0] + self.discount / ops.where(terminated, 0.0, values)"),
        (18, "constant", "return rewards[0] + self.discount * ops.where(terminated, 1.0, values)"),
        (22, "negation", "return x"),
    }


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("y = f(a, b)", "y = f(b, a)"),
        ("y = a if c > 0 else b", "y = a if (not (c > 0)) else b"),
        ("y = a and b", "y = a or b"),
        ("y = a[1:]", "y = a[2:]"),
        ("y = a[1:]", "y = a[:]"),
        ("y = a[: self.n]", "y = a[: self.n + 1]"),
        ("y = -a", "y = a"),
        ("y = a // b", "y = a % b"),
        ("y = a is None", "y = a is not None"),
        ("a += b", "a -= b"),
        ("target.sync(a)", "pass"),
        ("y = ops.exp(a)", "y = ops.expm1(a)"),
        ("y = ops.exp(a)", "y = (a)"),
        ('y = records["terminated"]', 'y = records["truncated"]'),
    ],
)
def test_kinds_of_edits(line, after):
    assert after in {text for _, _, text in edits(line + "\n")}


@pytest.mark.parametrize(
    "source",
    [
        'def f(x: "Box[0]" = None) -> Tuple[1]:\n    """1 + 1"""\n    raise ConfigError(1 + 1)\n',
        "class C(Config):\n    a: int = setting(1, 'one', ge=0)\n",
        "import a\nassert 1 + 1\n__all__ = [1]\n",
        "y = f(a, 'text')\nz = ops.maximum(a, b) if TYPE_CHECKING else None\n",
    ],
)
def test_what_is_left_alone(source):
    # swapped arguments of a commutative function compute the same, of other sorts they fail at once
    assert not {edit for edit in edits(source) if edit[1] not in ("function", "negation")}


def test_a_mutant_is_one_edit_of_the_text():
    for mutant in mutants_of("loss.py", SOURCE):
        before, after = SOURCE.splitlines(), mutant.apply(SOURCE).splitlines()
        assert len(before) == len(after)
        assert [n for n, (a, b) in enumerate(zip(before, after, strict=True), 1) if a != b] == [mutant.line]
        assert changes(mutant, SOURCE)


def test_only_the_graphs_of_a_file():
    assert edits(graph_only=True) == {edit for edit in edits() if edit[0] < 20}


def test_names_stay_when_code_moves():
    moved = SOURCE.replace("\nclass Loss", "\nNUMBER = 3\n\n\nclass Loss")
    before, after = (mutants_of("loss.py", source) for source in (SOURCE, moved))
    assert {m.id for m in after} > {m.id for m in before}
    assert len({m.id for m in before}) == len(before)
    twice = mutants_of("loss.py", "def f(a):\n    a = a + 1\n    a = a + 1\n")
    assert len({m.id for m in twice}) == len(twice)


def test_the_choice_is_even_over_kinds_and_repeats():
    everything = mutants_of("loss.py", SOURCE)
    chosen = sample(everything, SOURCE, 9, seed=0)
    assert {m.kind for m in chosen} == {m.kind for m in everything}  # there are 9
    assert chosen == sample(everything[::-1], SOURCE, 9, seed=0) != sample(everything, SOURCE, 9, seed=1)
    places = [(m.start, m.end) for m in sample(everything, SOURCE, 100, seed=0)]
    assert len(places) == len(set(places))


def test_every_mutated_file_has_tests():
    mutated = [
        file
        for file, graphs in selection.files().items()
        if mutants_of(file, (selection.ROOT / file).read_text(), graphs)
    ]
    assert len(mutated) > 50
    assert not [file for file in mutated if not selection.tests_of(file)]
    assert not [name for name in selection.ALSO if not (selection.ROOT / name).exists()]
    named = {f"tests/{name}" for names in selection.ALSO.values() for name in names}
    assert not [name for name in named if not (selection.ROOT / name).exists()]


def test_slow_backends_are_left_out():
    assert selection.is_quick("tests/components/losses/test_dqn.py::test_loss[torch]")
    assert selection.is_quick("tests/backends/test_jax_loops.py::test_loss[torch]")
    assert not selection.is_quick("tests/components/losses/test_dqn.py::test_loss[jax]")


def test_the_report_counts_what_is_killed():
    mutants = mutants_of("rlweave/components/loss.py", SOURCE)[:5]
    results = {
        m.id: {"by": by} for m, by in zip(mutants, ["test_loss", "check: X in y", "crash", None, None], strict=True)
    }
    same = mutants[4]
    reasons = {(same.file, same.function, same.before, same.after): "the discount is never negative"}
    rows = report.rows(mutants, results, reasons)
    assert [row.outcome for row in rows] == ["tests", "check", "limit", "survived", "equivalent"]
    page = report.to_markdown(rows)
    assert "**3 of 5 mutants are killed: 60.0 %** (75.0 % of the 4 that are not equivalent)." in page
    assert "| `components/loss.py` | 5 | 1 | 1 | 1 | 1 | 1 |" in page
    assert page.index(mutants[3].id) < page.index(mutants[4].id) < page.index("the discount is never negative")
    assert [row["id"] for row in json.loads(report.to_json(rows))] == [m.id for m in mutants]


def test_reasons_belong_to_lines_that_are_there():
    for file, function, before, _ in report.read_equivalent():
        source = (selection.ROOT / file).read_text()
        assert before in " ".join(source.split()), f"{file} has no longer: {before}"
        name = function.split(".")[-1]
        assert not name or any(getattr(node, "name", "") == name for node in ast.walk(ast.parse(source)))


#: The tests of a file's own name, and no others.
FEW = "from tools.mutation import selection; selection.ALSO.clear(); selection.OF_ALL_COMPONENTS = ()"


@pytest.mark.parametrize(
    ("prepare", "more"),
    [
        pytest.param(FEW, ["--without-check"], marks=pytest.mark.slow, id="by its own tests"),
        # measures the tests of all components, and all that `check` does
        pytest.param("pass", [], marks=pytest.mark.thorough, id="by all"),
    ],
)
def test_a_run_kills_and_goes_on(tmp_path, prepare, more):
    def run(*options):
        program = f"{prepare}; from tools.mutation.__main__ import main; main()"
        command = [sys.executable, "-c", program, "--file", "components/scopes", "--state", str(tmp_path), *more]
        done = subprocess.run([*command, *options], cwd=selection.ROOT, capture_output=True, text=True, check=True)
        return done.stdout

    before = {path: path.read_bytes() for path in (selection.ROOT / "rlweave/components").glob("*.py")}
    first = run()
    assert first.count("killed by") >= 3
    results = [json.loads(line) for line in Path(tmp_path, "results.jsonl").read_text().splitlines()]
    assert len(results) == first.count("killed by") + first.count("SURVIVED")
    assert "killed by" not in run("--resume")
    assert {path.name for path in tmp_path.iterdir()} <= {"results.jsonl", "baselines.jsonl", "hypothesis"}
    assert before == {path: path.read_bytes() for path in (selection.ROOT / "rlweave/components").glob("*.py")}
