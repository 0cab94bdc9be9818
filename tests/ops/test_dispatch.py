"""Direct calls of operators find the backend of their arguments."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rlweave.backends.numpy_.ops  # noqa: F401 (registers itself)
from rlweave import ops
from rlweave.backends import register_loaders
from rlweave.errors import BackendError
from rlweave.ops import dispatch


class Symbol:
    """A stand-in for the symbolic values of a tracer."""


@pytest.fixture
def clean_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_modules", "_matchers", "_loaders", "_name_of_type"):
        monkeypatch.setattr(dispatch, name, dict(getattr(dispatch, name)))


def test_numpy_arrays_run_on_numpy() -> None:
    result = ops.add(np.ones(2, np.float32), 1.5)
    assert isinstance(result, np.ndarray)
    np.testing.assert_array_equal(result, [2.5, 2.5])


def test_numbers_run_on_the_default_backend() -> None:
    assert isinstance(ops.zeros((2,)), np.ndarray)
    assert float(ops.maximum(1.0, 2.0)) == 2.0


def test_default_backend_applies_within_its_context() -> None:
    torch = pytest.importorskip("torch")
    register_loaders()
    with ops.default_backend("torch"):
        assert isinstance(ops.zeros((2,)), torch.Tensor)
        assert isinstance(ops.exp(np.ones(2, np.float32)), np.ndarray)
    assert isinstance(ops.zeros((2,)), np.ndarray)


@pytest.mark.parametrize("name", ["torch", "jax", "tensorflow"])
def test_framework_arrays_find_their_backend_inside_containers(name: str) -> None:
    pytest.importorskip(name)
    register_loaders()
    array = ops.backend_module(name).ones((2,))
    assert type(ops.concat([array, array])) is type(array)
    assert type(ops.where(np.array([True, False]), array, 0.0)) is type(array)  # NumPy constants give way
    carry, _ = ops.scan(lambda carry, x: ({"a": carry["a"] + 1.0}, None), {"a": array}, None, length=2)
    np.testing.assert_array_equal(np.asarray(carry["a"]), [3.0, 3.0])


def test_another_layer_can_register_its_own_values(clean_registry: None) -> None:
    calls: list[Any] = []
    tracer = SimpleNamespace(add=lambda *args: calls.append(args) or "traced")
    ops.register_backend("tracer", tracer, lambda kind: issubclass(kind, Symbol))
    symbol = Symbol()
    assert ops.add(np.ones(2), symbol) == "traced"
    assert calls[0][1] is symbol


def test_a_loader_runs_once_when_its_type_turns_up(clean_registry: None) -> None:
    loads: list[int] = []

    def load() -> None:
        loads.append(1)
        ops.register_backend("symbols", SimpleNamespace(negative=lambda x: "loaded"), lambda kind: kind is Symbol)

    ops.register_loader("symbols", Symbol.__module__.partition(".")[0], load)
    assert not loads
    assert ops.negative(Symbol()) == "loaded"
    assert ops.negative(Symbol()) == "loaded"
    assert loads == [1]


def test_unknown_backend_names_the_right_one() -> None:
    with pytest.raises(BackendError, match="numpy"), ops.default_backend("numpi"):
        pass


def test_a_loader_that_registers_nothing_is_an_error(clean_registry: None) -> None:
    ops.register_loader("hollow", "hollow_package", lambda: None)
    with pytest.raises(BackendError, match="did not register"):
        ops.backend_module("hollow")


def test_importing_the_vocabulary_imports_no_framework() -> None:
    code = (
        "import sys; from rlweave import ops; import rlweave.backends as r; r.register_loaders()\n"
        "import numpy; ops.add(numpy.ones(2), 1)\n"
        "assert not {'torch', 'jax', 'tensorflow'} & set(sys.modules), 'a framework was imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
