"""By reflection: every backend has every operator, with the parameters that the vocabulary declares, and no other."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

from rlweave import ops
from rlweave.backends import is_installed
from rlweave.backends.portable_random import PortableRandom

BACKENDS = ("numpy", "torch", "jax", "tensorflow", "onnx")


def backend_ops(name: str) -> Any:
    if not is_installed(name):
        pytest.skip(f"{name} is not installed")
    return importlib.import_module(f"rlweave.backends.{name}_.ops")


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values() if p.name != "self"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_backend_has_exactly_the_vocabulary(backend: str) -> None:
    assert sorted(backend_ops(backend).__all__) == sorted(ops.OP_NAMES)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ops.OP_NAMES)
def test_parameters_are_the_declared_ones(backend: str, name: str) -> None:
    assert parameters(getattr(backend_ops(backend), name)) == parameters(getattr(ops, name))


@pytest.mark.parametrize("name", ops.RANDOM_NAMES)
def test_random_sources_have_the_declared_parameters(name: str) -> None:
    declared = parameters(getattr(ops.random, name))
    assert parameters(getattr(PortableRandom, name)) == declared
    for backend in filter(is_installed, BACKENDS):
        module = importlib.import_module(f"rlweave.backends.{backend}_.random")
        assert parameters(getattr(module.FastRandom, name)) == declared


@pytest.mark.parametrize("name", [*ops.OP_NAMES, *ops.RANDOM_NAMES])
def test_every_operator_is_documented(name: str) -> None:
    function = getattr(ops, name, None) or getattr(ops.random, name)
    assert function.__doc__
    assert len(function.__doc__) > 5
