"""What the structure of the package promises: no import circles, and a core that does not know its extensions."""

import ast
import re
from pathlib import Path

import rlweave
from tests import tensorflow_rows
from tests.repetitions import REPETITIONS

ROOT = Path(rlweave.__file__).parent
BACKENDS = {"numpy", "torch", "jax", "tensorflow", "onnx"}
MOST_LINES = 450


def _modules():
    paths = [path for path in ROOT.rglob("*.py") if path.name != "__init__.py"]
    return {".".join(("rlweave", *path.relative_to(ROOT).with_suffix("").parts)): path for path in paths}


def _imported(tree, known):
    """Modules of the package that run with one, those imported inside of functions too."""
    for_types = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            for_types.update(id(inner) for child in node.body for inner in ast.walk(child))
    found = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            found.update((str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)))
    return found & known


def _circle(imports):
    """The modules that are left when those are taken away, one after the other, that import nothing that is left."""
    left = {name: set(found) - {name} for name, found in imports.items()}
    while free := [name for name, found in left.items() if not found & left.keys()]:
        for name in free:
            del left[name]
    return left


def test_a_circle_is_found():
    assert _circle({"a": {"b"}, "b": {"c"}, "c": set()}) == {}
    assert set(_circle({"a": {"b"}, "b": {"c"}, "c": {"b"}})) == {"a", "b", "c"}


def test_no_modules_import_each_other():
    modules = _modules()
    circle = _circle({name: _imported(ast.parse(path.read_text()), modules.keys()) for name, path in modules.items()})
    assert not circle


def test_the_graph_layer_compares_no_name_of_a_backend():
    found = []
    for name, path in _modules().items():
        if not name.startswith("rlweave.graph."):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                constants = {inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant)}
                found += [f"{path}:{node.lineno}"] * bool(BACKENDS & constants)
    assert not found


def test_files_are_short_enough_to_be_read_at_once():
    long = {str(path): len(path.read_text().splitlines()) for path in ROOT.rglob("*.py")}
    assert not {path: lines for path, lines in long.items() if lines > MOST_LINES}


#: The tables by which extensions are found: of graphs, backends, and targets of an export. Checks run graphs eagerly.
TABLES = {"rlweave.plugins", "rlweave.backends", "rlweave.export.targets"}


def test_extensions_are_named_in_tables_only():
    found = set()
    for path in ROOT.rglob("*.py"):
        name = ".".join(("rlweave", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
        named = re.search(r"(\"|from |import )rlweave\.extensions", path.read_text())
        if named and not name.startswith(("rlweave.extensions", "rlweave.testing.checks")):
            found.add(name)
    assert found == TABLES


def test_rows_that_run_elsewhere_are_named_by_tests_that_exist():
    """Else a test that is renamed would run there no more, or where it takes too long."""
    for row in (*tensorflow_rows.EARLY, *tensorflow_rows.LATE, *REPETITIONS):
        path, _, test = row.partition("::")
        assert list(ROOT.parent.glob(f"{path.rstrip('/')}*")), row
        assert f"def {test.partition('[')[0]}(" in (ROOT.parent / path).read_text() if test else True, row
