"""The package itself: what importing it loads, what it depends on, what is shipped."""

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import rlweave

ROOT = Path(__file__).parents[1]
FRAMEWORKS = ("torch", "jax", "jaxlib", "tensorflow", "keras", "flax", "optax", "ray")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# Import name where it is not the name of the distribution.
IMPORT_NAMES = {"pyyaml": "yaml", "tensorboardx": "tensorboardX", "types-pyyaml": None, "import-linter": "importlinter"}


def run_python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "statement",
    [
        "import rlweave",
        "import rlweave.cli",
        "from rlweave import ops, spaces; ops.add; spaces.FloatBox",
        "from rlweave.algorithms import registry, config; from rlweave.runs import checkpoint, run_directory",
        "from rlweave import Component, api, build, graph_fn",
        "from rlweave.backends import get_backend; get_backend('numpy')",
    ],
)
def test_importing_loads_no_framework(statement):
    out = run_python(f"{statement}\nimport sys\nprint([name for name in {FRAMEWORKS} if name in sys.modules])")
    assert out.strip() == "[]"


def test_importing_rlweave_loads_nothing_at_all():
    before = set(run_python("import sys; print('\\n'.join(sys.modules))").split())
    after = set(run_python("import rlweave, sys; print('\\n'.join(sys.modules))").split())
    third_party = {name.partition(".")[0] for name in after - before} - set(sys.stdlib_module_names) - {"rlweave"}
    assert not third_party


@pytest.mark.parametrize(("backend", "extra"), [("jax", "jax"), ("torch", "torch"), ("tensorflow", "tensorflow")])
def test_a_missing_backend_names_its_extra(backend, extra):
    out = run_python(
        "import importlib.util\n"
        "find = importlib.util.find_spec\n"
        f"importlib.util.find_spec = lambda name, *a: None if name == {backend!r} else find(name, *a)\n"
        "from rlweave.backends import get_backend\n"
        "from rlweave.errors import BackendError\n"
        "try:\n"
        f"    get_backend({backend!r})\n"
        "except BackendError as error:\n"
        "    print(error)\n"
    )
    assert f"pip install -e '.[{extra}]'" in out  # the tests run in a checkout
    assert extra in PROJECT["optional-dependencies"]


def test_an_unknown_backend_names_the_nearest():
    from rlweave.backends import get_backend
    from rlweave.errors import BackendError

    with pytest.raises(BackendError, match="did you mean 'torch'"):
        get_backend("torhc")


def test_the_public_face_is_lazy_and_names_the_nearest():
    assert set(rlweave.__all__) <= set(dir(rlweave))
    for name in rlweave.__all__:
        assert getattr(rlweave, name) is not None
    with pytest.raises(AttributeError, match="did you mean 'build'"):
        rlweave.biuld


@pytest.mark.parametrize("group", PROJECT["entry-points"])
def test_the_installed_package_offers_what_the_project_registers(group):
    """An environment that is older than `pyproject.toml` lacks plug-ins of rlweave's own: install it again."""
    offered = {(point.name, point.value) for point in importlib.metadata.entry_points(group=group)}
    assert set(PROJECT["entry-points"][group].items()) <= offered


def test_the_core_depends_on_no_framework():
    core = {_distribution(requirement) for requirement in PROJECT["dependencies"]}
    assert not core & set(FRAMEWORKS)


def test_every_import_is_declared_and_every_core_dependency_is_used():
    core = {_import_name(requirement) for requirement in PROJECT["dependencies"]}
    extras = {
        _import_name(requirement)
        for name, extra in PROJECT["optional-dependencies"].items()
        if name != "dev"
        for requirement in extra
    }
    used = {}
    for path in sorted((ROOT / "rlweave").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            for name in names:
                used.setdefault(name.partition(".")[0], path)
    third_party = {name: path for name, path in used.items() if name not in sys.stdlib_module_names}
    third_party.pop("rlweave")
    # jaxlib comes with jax, the only way to its own exceptions and core types; pytest loads its plugin itself
    undeclared = {name: path for name, path in third_party.items() if name not in core | extras | {"jaxlib", "pytest"}}
    assert not undeclared
    assert not core - set(third_party), "declared, but never imported"


def test_every_dependency_is_pinned_for_ci():
    pinned = {
        _distribution(line)
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }
    asked = {
        _distribution(requirement)
        for requirements in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
        for requirement in requirements
    } - {"rlweave"}
    assert asked <= pinned
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text().splitlines()


def test_what_a_user_and_ci_need_is_there():
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert (ROOT / "rlweave" / "py.typed").exists()
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"train", "test", "learning", "bench"} <= targets
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        assert (ROOT / name).exists()


def _distribution(requirement):
    return re.match(r"[A-Za-z0-9_.-]+", requirement).group().lower().replace("_", "-")


def _import_name(requirement):
    name = _distribution(requirement)
    return IMPORT_NAMES.get(name, name)


def test_events_of_tensorboard_import_no_torch(tmp_path):
    out = run_python(
        "import sys\n"
        "from rlweave.runs.metrics import MetricsLog\n"
        f"log = MetricsLog({str(tmp_path / 'metrics.csv')!r}, {str(tmp_path / 'events')!r})\n"
        "log.write({'env_steps_sampled': 1, 'loss': 2.0})\n"
        "print('torch' in sys.modules, len(sys.modules['tensorboardX'].__name__))\n"
    )
    assert out.split() == ["False", "12"]


def test_a_graph_on_torch_is_built_without_its_compiler():
    out = run_python(
        "import sys\n"
        "from rlweave.agents.dqn import DQN\n"
        "from rlweave.spaces import FloatBox, IntBox\n"
        "agent = DQN(FloatBox(shape=(3,)), IntBox(2), {'learning_starts': 32}, backend='torch').build()\n"
        "print('torch._dynamo' in sys.modules)\n"
    )
    assert out.split() == ["False"]
