"""By reflection: every backend has every operator, with the parameters that the vocabulary declares, and no other."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

from rlweave import ops
from rlweave.backends import BACKENDS as OFFERS
from rlweave.backends import is_installed
from rlweave.backends.portable_random import PortableRandom

BACKENDS = ("numpy", "torch", "jax", "tensorflow", "onnx")


def backend_ops(name: str) -> Any:
    if not is_installed(name):
        pytest.skip(f"{name} is not installed")
    return importlib.import_module(f"{OFFERS[name].module}.ops")


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values() if p.name != "self"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_backend_has_the_vocabulary(backend: str) -> None:
    assert [name for name in ops.OP_NAMES if not callable(getattr(backend_ops(backend), name, None))] == []


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ops.OP_NAMES)
def test_parameters_are_the_declared_ones(backend: str, name: str) -> None:
    function, declared = getattr(backend_ops(backend), name), parameters(getattr(ops, name))
    if all(kind is inspect.Parameter.POSITIONAL_ONLY for _, kind, _ in declared):
        assert takes_positional(function, len(declared))
    else:
        assert parameters(function) == declared


def takes_positional(function: Any, number: int) -> bool:
    """Whether a function can be called with so many arguments, and not with one less.

    A row of a backend's table may be a function of the framework itself, which names its parameters as it likes and may
    have further ones.
    """
    try:
        found = inspect.signature(function)
    except ValueError:  # written in C; the parity cases call it
        return True
    kinds = [p.kind for p in found.parameters.values() if p.default is p.empty]
    if kinds == [inspect.Parameter.VAR_POSITIONAL]:  # jax.numpy's ufuncs, which count for themselves
        return bool(function.nin == number)
    return len(kinds) == number and inspect.Parameter.KEYWORD_ONLY not in kinds


@pytest.mark.parametrize("name", ops.RANDOM_NAMES)
def test_random_sources_have_the_declared_parameters(name: str) -> None:
    declared = parameters(getattr(ops.random, name))
    assert parameters(getattr(PortableRandom, name)) == declared
    for backend in filter(is_installed, BACKENDS):
        module = importlib.import_module(f"{OFFERS[backend].module}.random")
        assert parameters(getattr(module.FastRandom, name)) == declared


@pytest.mark.parametrize("name", [*ops.OP_NAMES, *ops.RANDOM_NAMES])
def test_every_operator_is_documented(name: str) -> None:
    function = getattr(ops, name, None) or getattr(ops.random, name)
    assert function.__doc__
    assert len(function.__doc__) > 5
