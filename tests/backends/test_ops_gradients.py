"""Gradients of every operator: torch against JAX, and both against finite differences of NumPy in float64."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlweave.backends.bound_ops import bind_ops
from rlweave.backends.numpy_ import ops as numpy_ops
from rlweave.backends.numpy_.random import FastRandom, initial_state
from rlweave.ops import OP_NAMES
from tests.backends.op_cases import CASES, Case, arrays_of, call, leaves, load_tensorflow

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
tensorflow_ops = load_tensorflow()

from rlweave.backends.jax_ import ops as jax_ops  # noqa: E402
from rlweave.backends.torch_ import ops as torch_ops  # noqa: E402

FLOAT64 = bind_ops(numpy_ops, FastRandom(SimpleNamespace(value=initial_state(0))), "float64")
# Results that are constant between jumps, or no function of real numbers at all: nothing to differentiate.
NOT_DIFFERENTIABLE = frozenset({"argmax", "argmin", "argsort", "searchsorted", "any", "all", "one_hot", "isfinite"})


def weights_like(result: Any) -> np.ndarray:
    """Fixed weights that make a scalar out of a result, different for each element."""
    return np.cos(1.0 + np.arange(np.prod(result.shape, dtype=int))).reshape(result.shape).astype(np.float32)


def float_positions(one: Case) -> list[int]:
    return [i for i, array in enumerate(arrays_of(one)) if array.dtype == np.float32]


def torch_gradients(name: str, one: Case, wrt: list[int]) -> list[np.ndarray] | None:
    arrays = [torch.tensor(array) for array in arrays_of(one)]

    def loss(*chosen: Any) -> Any:
        for position, array in zip(wrt, chosen, strict=True):
            arrays[position] = array
        results = [x for x in leaves(call(getattr(torch_ops, name), one, arrays)) if x.dtype.is_floating_point]
        return sum(((x * torch.tensor(weights_like(x))).sum() for x in results), torch.zeros(()))

    chosen = [arrays[position] for position in wrt]
    _, pull_back = torch.func.vjp(loss, *chosen)
    return [gradient.numpy() for gradient in pull_back(torch.ones(()))]


def jax_gradients(name: str, one: Case, wrt: list[int]) -> list[np.ndarray]:
    arrays: list[Any] = [jax.numpy.asarray(array) for array in arrays_of(one)]

    def loss(chosen: list[Any]) -> Any:
        for position, array in zip(wrt, chosen, strict=True):
            arrays[position] = array
        results = [x for x in leaves(call(getattr(jax_ops, name), one, arrays)) if x.dtype == np.float32]
        return sum(((x * weights_like(x)).sum() for x in results), jax.numpy.zeros(()))

    return [np.asarray(gradient) for gradient in jax.jit(jax.grad(loss))([arrays[position] for position in wrt])]


def tensorflow_gradients(name: str, one: Case, wrt: list[int]) -> list[np.ndarray]:
    from rlweave.extensions.tensorflow_.framework import tf

    arrays: list[Any] = [tf.constant(array) for array in arrays_of(one)]
    with tf.GradientTape() as tape:
        for position in wrt:
            tape.watch(arrays[position])
        found = [x.tensor for x in leaves(call(getattr(tensorflow_ops, name), one, arrays))]
        results = [x for x in found if x.dtype.is_floating]
        loss = sum((tf.reduce_sum(x * weights_like(x)) for x in results), tf.zeros(()))
    gradients = tape.gradient(loss, [arrays[position] for position in wrt], unconnected_gradients="zero")
    return [np.asarray(tf.convert_to_tensor(gradient)) for gradient in gradients]


def finite_differences(name: str, one: Case, wrt: list[int], step: float = 1e-5) -> list[np.ndarray]:
    arrays = [array.astype(np.float64) if array.dtype == np.float32 else array for array in arrays_of(one)]

    def loss() -> float:
        results = [x for x in leaves(call(getattr(FLOAT64, name), one, arrays)) if x.dtype == np.float64]
        return float(sum((x * weights_like(x)).sum() for x in results))

    gradients = []
    for position in wrt:
        gradient = np.zeros(arrays[position].shape)
        for element in np.ndindex(gradient.shape):
            original = arrays[position][element]
            ends = []
            for moved in (original + step, original - step):
                arrays[position][element] = moved
                ends.append(loss())
            arrays[position][element] = original
            gradient[element] = (ends[0] - ends[1]) / (2 * step)
        gradients.append(gradient)
    return gradients


@pytest.mark.parametrize("name", [name for name in OP_NAMES if name not in NOT_DIFFERENTIABLE])
def test_gradients_agree(name: str) -> None:
    checked = 0
    for index, one in enumerate(CASES[name]):
        wrt = float_positions(one)
        if not wrt or not one.gradient:
            continue
        message = f"case {index}"
        with_torch, with_jax = torch_gradients(name, one, wrt), jax_gradients(name, one, wrt)
        for first, second in zip(with_torch, with_jax, strict=True):
            assert np.isfinite(first).all(), message
            np.testing.assert_allclose(first, second, rtol=2e-5, atol=2e-6, err_msg=message)
        if tensorflow_ops is not None:
            for first, second in zip(tensorflow_gradients(name, one, wrt), with_jax, strict=True):
                np.testing.assert_allclose(first, second, rtol=2e-5, atol=2e-6, err_msg=f"TensorFlow, {message}")
        if one.finite_differences:
            with np.errstate(all="ignore"):
                numeric = finite_differences(name, one, wrt)
            for first, second in zip(with_jax, numeric, strict=True):
                np.testing.assert_allclose(first, second, rtol=2e-4, atol=2e-4, err_msg=message)
        checked += 1
    if name in ("add", "conv2d", "softmax", "scan", "set_at", "clip"):
        assert checked, "the table holds no float case for an operator that must be differentiable"


def gradients_of(loss: Any, x: list[float]) -> list[np.ndarray]:
    """The gradient of `loss(ops, x)` on each backend."""
    array = np.array(x, np.float32)
    found = [
        torch.func.grad(lambda x: loss(torch_ops, x))(torch.tensor(array)).numpy(),
        np.asarray(jax.grad(lambda x: loss(jax_ops, x))(array)),
    ]
    if tensorflow_ops is not None:
        from rlweave.extensions.tensorflow_ import BACKEND

        gradient = BACKEND.differentiate(lambda x: loss(tensorflow_ops, x), BACKEND.from_numpy(array))
        found.append(np.asarray(gradient[0]))
    return found


@pytest.mark.parametrize(
    ("name", "args", "x", "expected"),
    [
        ("abs", (), [0.0, -0.0], [0, 0]),
        ("relu", (), [0.0, 1.0], [0, 1]),
        ("leaky_relu", (0.1,), [0.0, -1.0], [0.1, 0.1]),
        ("elu", (), [0.0], [1]),
        ("clip", (0.0, 1.0), [-1.0, 0.0, 0.5, 1.0, 2.0], [0, 1, 1, 1, 0]),
        ("maximum", (0.0,), [0.0, 1.0, -1.0], [0.5, 1, 0]),
        ("minimum", (0.0,), [0.0, 1.0, -1.0], [0.5, 0, 1]),
        ("max", (), [1.0, 3.0, 3.0], [0, 0.5, 0.5]),
        ("std", (), [2.0, 2.0], [0, 0]),
        ("floor", (), [1.5], [0]),
        ("round", (), [1.5], [0]),
        ("sign", (), [1.5, 0.0], [0, 0]),
        ("floor_divide", (0.4,), [1.5], [0]),
    ],
)
def test_gradients_at_kinks(name: str, args: tuple[float, ...], x: list[float], expected: list[float]) -> None:
    for gradient in gradients_of(lambda ops, x: ops.sum(getattr(ops, name)(x, *args)), x):
        np.testing.assert_allclose(gradient, expected, rtol=1e-6)


def test_set_at_gives_the_gradient_of_a_duplicate_to_its_last_value_only() -> None:
    x, indices = np.zeros(3, np.float32), np.array([1, 2, 1], np.int32)
    values = np.array([5.0, 6.0, 7.0], np.float32)
    scale = np.array([1.0, 10.0, 100.0], np.float32)
    of_torch = torch.func.grad(
        lambda values: (torch_ops.set_at(torch.tensor(x), torch.tensor(indices), values) * torch.tensor(scale)).sum()
    )(torch.tensor(values))
    of_jax = jax.grad(lambda values: (jax_ops.set_at(x, indices, values) * scale).sum())(values)
    np.testing.assert_array_equal(of_torch.numpy(), [0, 100, 10])
    np.testing.assert_array_equal(np.asarray(of_jax), [0, 100, 10])
    if tensorflow_ops is not None:
        from rlweave.extensions.tensorflow_ import BACKEND

        (of_tensorflow,) = BACKEND.differentiate(
            lambda values: tensorflow_ops.sum(tensorflow_ops.set_at(x, indices, values) * scale),
            BACKEND.from_numpy(values),
        )
        np.testing.assert_array_equal(np.asarray(of_tensorflow), [0, 100, 10])


def test_stop_gradient_is_a_constant() -> None:
    for gradient in gradients_of(lambda ops, x: ops.sum(ops.stop_gradient(x) * x), [2.0, 3.0]):
        np.testing.assert_array_equal(gradient, [2.0, 3.0])


def test_guarded_where_keeps_gradients_finite() -> None:
    def loss(ops: Any, x: Any) -> Any:
        return ops.sum(ops.where(x > 0, ops.log(ops.where(x > 0, x, 1.0)), 0.0))

    for gradient in gradients_of(loss, [0.0, 2.0]):
        np.testing.assert_array_equal(gradient, [0.0, 0.5])
