"""The namespace that stands for `ops` in lowered graph functions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlweave.backends.bound_ops import bind_ops
from rlweave.backends.numpy_ import ops as numpy_ops
from rlweave.backends.numpy_ import random as numpy_random
from rlweave.backends.portable_random import PortableRandom, initial_state
from rlweave.errors import BackendError
from rlweave.ops import OP_NAMES, RANDOM_NAMES
from tests.backends.op_cases import CASES, arrays_of, call, leaves


def fast_source() -> Any:
    return numpy_random.FastRandom(SimpleNamespace(value=numpy_random.initial_state(0)))


def test_float32_binds_the_functions_themselves() -> None:
    source = fast_source()
    bound = bind_ops(numpy_ops, source)
    assert all(getattr(bound, name) is getattr(numpy_ops, name) for name in OP_NAMES)
    assert bound.random is source
    assert set(vars(bound)) == {*OP_NAMES, "random"}


@pytest.mark.parametrize("name", OP_NAMES)
def test_float64_gives_float64_wherever_float32_was(name: str) -> None:
    bound = bind_ops(numpy_ops, fast_source(), "float64")
    for index, one in enumerate(CASES[name]):
        arrays = arrays_of(one)
        wide = [array.astype(np.float64) if array.dtype == np.float32 else array for array in arrays]
        with np.errstate(all="ignore"):
            expected = leaves(call(getattr(numpy_ops, name), one, arrays))
            # Arguments may arrive in either precision.
            for given in (wide, arrays):
                results = leaves(call(getattr(bound, name), one, given))
                assert len(results) == len(expected)
                for result, wanted in zip(results, expected, strict=True):
                    dtype = np.float64 if wanted.dtype == np.float32 else wanted.dtype
                    assert np.asarray(result).dtype == dtype, f"case {index}"
                    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5, err_msg=f"case {index}")


def test_float64_is_computed_in_float64_and_not_only_returned() -> None:
    bound = bind_ops(numpy_ops, fast_source(), "float64")
    three, ones = np.array([3], np.int32), np.ones(1, np.int32)
    assert bound.divide(ones, three)[0] == 1 / 3
    assert bound.multiply(three, 0.1)[0] == 3 * 0.1
    assert bound.sqrt(three)[0] == 3**0.5
    assert bound.mean(np.array([1, 1, 2], np.int32)) == 4 / 3
    assert bound.asarray([0.1])[0] == 0.1
    assert bound.asarray(0.1) == 0.1
    assert bound.full((1,), 0.1)[0] == 0.1
    assert bound.where(np.array([True]), 0.1, 0.2)[0] == 0.1
    assert bound.linspace(0.0, 1.0, 11)[1] == 0.1
    assert bound.astype(three, "float32").dtype == np.float64


@pytest.mark.parametrize("kind", ["fast", "portable"])
def test_float64_random_numbers(kind: str) -> None:
    def source() -> Any:
        if kind == "fast":
            return fast_source()
        return PortableRandom(numpy_ops, SimpleNamespace(value=initial_state(0)))

    bound, plain = bind_ops(numpy_ops, source(), "float64"), source()
    arguments = {"randint": ((3,), 0, 9), "bernoulli": (np.full(3, 0.5),), "categorical": (np.zeros((2, 3)),)}
    for name in RANDOM_NAMES:
        args = arguments.get(name, (4,) if name == "permutation" else ((3,),))
        result, wanted = getattr(bound.random, name)(*args), getattr(plain, name)(*args)
        assert result.dtype == (np.float64 if wanted.dtype == np.float32 else wanted.dtype)
        np.testing.assert_array_equal(result, wanted)


def test_a_device_gets_what_is_made_out_of_nothing() -> None:
    torch = pytest.importorskip("torch")
    from rlweave.backends.torch_ import ops as torch_ops
    from rlweave.backends.torch_ import random as torch_random

    source = torch_random.FastRandom(SimpleNamespace(value=torch_random.initial_state(0)))
    bound = bind_ops(torch_ops, source, device="meta")
    made = [bound.zeros((2,)), bound.arange(3), bound.asarray([1.0]), bound.random.uniform((2,)), bound.eye(2)]
    assert {x.device.type for x in made} == {"meta"}
    assert bound.add(torch.ones(2), 1.0).device.type == "cpu"
    portable = bind_ops(torch_ops, None, device="meta")
    portable.random = PortableRandom(portable, SimpleNamespace(value=portable.asarray(initial_state(0))))
    assert portable.random.uniform((3,)).device.type == "meta"


def test_float64_elsewhere_is_refused() -> None:
    pytest.importorskip("torch")
    from rlweave.backends.torch_ import ops as torch_ops

    with pytest.raises(BackendError, match="NumPy"):
        bind_ops(torch_ops, None, "float64")
    with pytest.raises(BackendError, match="float16"):
        bind_ops(numpy_ops, None, "float16")
