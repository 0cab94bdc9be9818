"""Every operator gives the same values, dtypes and shapes on every backend: eager, compiled and vectorized."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from rlweave.backends.numpy_ import ops as numpy_ops
from rlweave.ops import OP_NAMES
from tests.backends.op_cases import CASES, Case, arrays_of, call, leaves, load_tensorflow, with_arrays

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
tensorflow_ops = load_tensorflow()

from rlweave.backends.jax_ import ops as jax_ops  # noqa: E402
from rlweave.backends.torch_ import ops as torch_ops  # noqa: E402

needs_tensorflow = pytest.mark.skipif(tensorflow_ops is None, reason="tensorflow is not installed")
every_operator = pytest.mark.parametrize("name", OP_NAMES)
# Sums in another order, and exponentials of other libraries, differ in the last bits.
RTOL, ATOL = 1e-5, 1e-6


def test_every_operator_has_cases() -> None:
    assert set(CASES) == set(OP_NAMES)
    assert all(CASES.values())


def expected_of(name: str, one: Case) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        return [np.asarray(leaf) for leaf in leaves(call(getattr(numpy_ops, name), one, arrays_of(one)))]


def all_arrays(name: str) -> list[list[np.ndarray]]:
    return [arrays_of(one) for one in CASES[name]]


def all_cases(ops: Any, name: str, arrays: Any) -> list[Any]:
    """All cases of an operator, for one program of them: compiling many small ones takes several times as long."""
    return [call(getattr(ops, name), one, list(given)) for one, given in zip(CASES[name], arrays, strict=True)]


def assert_same(results: Any, expected: list[np.ndarray], index: int) -> None:
    found = [np.asarray(leaf) for leaf in leaves(results)]
    assert len(found) == len(expected), f"case {index}"
    for result, wanted in zip(found, expected, strict=True):
        assert (result.shape, result.dtype) == (wanted.shape, wanted.dtype), f"case {index}"
        np.testing.assert_allclose(result, wanted, rtol=RTOL, atol=ATOL, err_msg=f"case {index}")


@every_operator
def test_numpy_stays_within_32_bits(name: str) -> None:
    for index, one in enumerate(CASES[name]):
        for result in expected_of(name, one):
            assert result.dtype.name in ("float32", "int32", "bool", "uint8"), f"case {index}"


@every_operator
def test_torch_equals_numpy(name: str) -> None:
    for index, one in enumerate(CASES[name]):
        result = call(getattr(torch_ops, name), one, [torch.tensor(array) for array in arrays_of(one)])
        assert_same(result, expected_of(name, one), index)


@every_operator
def test_jax_equals_numpy(name: str) -> None:
    # Eager JAX compiles operator by operator; one case shows that it works, the jitted test checks all of them.
    for index, one in enumerate(CASES[name][:1]):
        result = call(getattr(jax_ops, name), one, [jax.numpy.asarray(array) for array in arrays_of(one)])
        assert_same(result, expected_of(name, one), index)


@every_operator
def test_jitted_jax_equals_numpy(name: str) -> None:
    function = jax.jit(lambda arrays: all_cases(jax_ops, name, arrays))
    for index, (one, result) in enumerate(zip(CASES[name], function(all_arrays(name)), strict=True)):
        assert_same(result, expected_of(name, one), index)


@needs_tensorflow
@every_operator
def test_tensorflow_equals_numpy(name: str) -> None:
    for index, one in enumerate(CASES[name]):
        assert_same(call(getattr(tensorflow_ops, name), one, as_tensors(arrays_of(one))), expected_of(name, one), index)


def as_tensors(arrays: list[np.ndarray]) -> list[Any]:
    from rlweave.extensions.tensorflow_.framework import tf

    return [tf.constant(array) for array in arrays]


def flat_results(function: Any, one: Case, *tensors: Any) -> list[Any]:
    return [leaf.tensor for leaf in leaves(call(function, one, list(tensors)))]


@needs_tensorflow
@every_operator
def test_traced_tensorflow_with_open_axes_equals_numpy(name: str) -> None:
    from rlweave.extensions.tensorflow_.framework import tf

    for index, one in enumerate(CASES[name]):
        arrays = arrays_of(one)
        # open axes wherever the operator does not say that it wants a number
        specs = [tf.TensorSpec([None] * array.ndim, array.dtype) for array in arrays]
        if name in KNOWN_LENGTHS:
            specs = [tf.TensorSpec(array.shape, array.dtype) for array in arrays]
        function = functools.partial(flat_results, getattr(tensorflow_ops, name), one)
        traced = tf.function(function, autograph=False).get_concrete_function(*specs)
        assert_same(traced(*as_tensors(arrays)), expected_of(name, one), index)


#: What gives a tuple of a length that Python has to know.
KNOWN_LENGTHS = frozenset({"unstack"})


@pytest.mark.parametrize("name", [name for name in OP_NAMES if name not in ("scan", "cond")])
def test_numpy_constants_mix_with_arrays_of_the_backend(name: str) -> None:
    for index, one in enumerate(CASES[name]):
        arrays = arrays_of(one)
        for position in range(len(arrays) if len(arrays) > 1 else 0):
            mixed = list(arrays)
            mixed[position] = torch.tensor(arrays[position])
            assert_same(call(getattr(torch_ops, name), one, mixed), expected_of(name, one), index)


@every_operator
def test_vmap_equals_loop(name: str) -> None:
    for index, one in enumerate(CASES[name]):
        arrays = arrays_of(one)
        if not arrays or not one.vmap:
            continue
        # The second row of floats runs backwards, so that a batch rule that mixes rows is seen.
        other = [np.flip(array).copy() if array.dtype == np.float32 else array for array in arrays]
        rows = [expected_of(name, with_arrays(one, copy)) for copy in (arrays, other)]
        expected = [np.stack(pair) for pair in zip(*rows, strict=True)]
        stacked = [np.stack(pair) for pair in zip(arrays, other, strict=True)]
        mapped = torch.func.vmap(lambda *args, one=one: tuple(leaves(call(getattr(torch_ops, name), one, list(args)))))
        assert_same(mapped(*[torch.tensor(array) for array in stacked]), expected, index)


@pytest.mark.thorough  # graphs and random numbers are compiled in CI, too
@every_operator
def test_compiled_torch_equals_numpy(name: str) -> None:
    torch.compiler.reset()
    compiled = torch.compile(
        lambda arrays: all_cases(torch_ops, name, arrays), fullgraph=True, backend="eager", dynamic=False
    )
    tensors = [[torch.tensor(array) for array in arrays] for arrays in all_arrays(name)]
    for index, (one, result) in enumerate(zip(CASES[name], compiled(tensors), strict=True)):
        assert_same(result, expected_of(name, one), index)
