"""Packages that offer algorithms, components and backends: a broken one is named, and everything else works."""

import numpy as np
import pytest
from typer.testing import CliRunner

from rlweave import backends
from rlweave.algorithms.registry import get_algorithm
from rlweave.cli.main import app
from rlweave.components import Dense
from rlweave.errors import ConfigError
from rlweave.graph import build, specs
from rlweave.spaces import FloatBox


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    """Installs packages by what their module says and which entry points they have."""

    def install(package, source, **groups):
        (tmp_path / f"{package}.py").write_text(source)
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        text = "".join(f"[rlweave.{group}]\n{line}\n" for group, line in groups.items())
        (info / "entry_points.txt").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(specs, "_entry_points_loaded", False)
        monkeypatch.setattr(specs, "_broken", {})
        monkeypatch.setattr(specs, "_registry", dict(specs._registry))
        monkeypatch.setattr(backends, "BACKENDS", dict(backends.BACKENDS))
        monkeypatch.setattr(backends, "_loaded", dict(backends._loaded))

    return install


def _listed(kind):
    result = CliRunner().invoke(app, ["list", kind])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def test_an_algorithm_that_fails_to_import_is_named_and_the_others_are_listed(plugins):
    plugins("broken_algorithm", "import no_such_module", algorithms="mine = broken_algorithm:SPEC")
    listed = _listed("algorithms")
    assert "plug-in 'mine' of package 'broken_algorithm' cannot be used: ModuleNotFoundError: No module" in listed
    assert "proximal policy optimization" in listed
    with pytest.raises(ConfigError, match="plug-in 'mine' of package 'broken_algorithm'") as error:
        get_algorithm("mine")
    assert "fix:      correct, update or uninstall broken_algorithm" in str(error.value)
    assert get_algorithm("ppo").name == "ppo"


def test_something_that_is_no_spec_is_named(plugins):
    plugins("no_spec", "SPEC = {'name': 'mine'}", algorithms="mine = no_spec:SPEC")
    assert "no_spec:SPEC is no Algorithm, but of type dict" in _listed("algorithms")


def test_an_algorithm_that_is_named_like_another_is_an_error(plugins):
    plugins("second_ppo", "SPEC = None", algorithms="ppo = second_ppo:SPEC")
    listed = _listed("algorithms")
    assert "plug-in 'ppo' of package 'second_ppo' cannot be used: there is an algorithm 'ppo' already" in listed
    assert "deep Q-learning" in listed
    with pytest.raises(ConfigError, match="'second_ppo' cannot be used"):
        get_algorithm("ppo")


def test_components_that_fail_or_take_a_name_are_named_and_the_others_are_listed(plugins):
    plugins("broken_layers", "1 / 0", components="my_layers = broken_layers")
    plugins(
        "second_dense",
        "from rlweave.graph import Component, register\n@register('dense')\nclass Dense(Component): pass\n",
        components="other_dense = second_dense",
    )
    listed = _listed("components")
    assert "plug-in 'my_layers' of package 'broken_layers' cannot be used: ZeroDivisionError" in listed
    assert "plug-in 'other_dense' of package 'second_dense' cannot be used: SpecError: two components of one" in listed
    assert "A fully connected layer" in listed
    assert type(specs.from_spec({"type": "dense", "units": 2})).__module__ == "rlweave.components.layers"
    with pytest.raises(ConfigError, match="package 'broken_layers' cannot be used"):
        specs.from_spec("my_layers")


_BACKEND = """
from rlweave.backends import BackendOffer
from rlweave.backends.numpy_.runtime import NumpyBackend

class Mine(NumpyBackend):
    name = "mine"

BACKEND = Mine()
OFFER = BackendOffer("backend_of_mine", requires=("numpy",), use="a test")
"""


def test_a_backend_of_another_package_is_built_on_and_listed(plugins):
    plugins("backend_of_mine", _BACKEND, backends="mine = backend_of_mine:OFFER")
    executor = build(Dense(2), {"inputs": FloatBox(shape=(3,), add_batch_rank=True)}, backend="mine")
    assert executor.backend.name == "mine"
    assert executor.call(np.ones((4, 3), np.float32)).shape == (4, 2)
    assert "mine" in backends.backend_names()
    listed = _listed("backends")
    assert f"mine installed: numpy {np.__version__}; a test" in listed


def test_something_that_is_no_backend_is_named(plugins):
    plugins("no_backend", "OFFER = 3", backends="mine = no_backend:OFFER")
    assert "no_backend:OFFER is no BackendOffer, but of type int" in _listed("backends")
    with pytest.raises(ConfigError, match="plug-in 'mine' of package 'no_backend' cannot be used"):
        backends.get_backend("mine")
