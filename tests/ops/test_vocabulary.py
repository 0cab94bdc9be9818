"""The public list of operators."""

from __future__ import annotations

import inspect

import pytest

from rlweave import ops
from rlweave.errors import ExecutionError


def test_op_names_lists_every_public_operator() -> None:
    machinery = {"backend_module", "default_backend", "implementation", "register_backend", "register_loader"}
    machinery |= {"registered_backends"}
    functions = {name for name, value in vars(ops).items() if inspect.isfunction(value)}
    assert functions - machinery == set(ops.OP_NAMES)
    assert len(set(ops.OP_NAMES)) == len(ops.OP_NAMES)
    assert list(ops.OP_NAMES) == sorted(ops.OP_NAMES)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("uniform", ((2,),)),
        ("normal", ((2,),)),
        ("randint", ((2,), 0, 3)),
        ("bernoulli", (0.5,)),
        ("categorical", ([0.0, 1.0],)),
        ("permutation", (3,)),
        ("gumbel", ((2,),)),
    ],
)
def test_random_operators_outside_a_graph_raise(name: str, args: tuple[object, ...]) -> None:
    with pytest.raises(ExecutionError, match=rf"ops\.random\.{name} was called outside a graph"):
        getattr(ops.random, name)(*args)


def test_random_names_are_complete() -> None:
    functions = {n for n, v in vars(ops.random).items() if inspect.isfunction(v) and not n.startswith("_")}
    assert functions - {"implementation"} == set(ops.RANDOM_NAMES)
