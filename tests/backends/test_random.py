"""Random sources: known answers, equality over backends, statistics, state round trips."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from rlweave.backends import BACKENDS as OFFERS
from rlweave.backends import get_backend, is_installed
from rlweave.backends.numpy_ import ops as numpy_ops
from rlweave.backends.portable_random import PortableRandom, initial_state, threefry_2x32
from rlweave.errors import CheckpointError

BACKENDS = ("numpy", "torch", "jax", "tensorflow")
every_backend = pytest.mark.parametrize("backend", BACKENDS)


def backend_ops(name: str) -> Any:
    if not is_installed(name):
        pytest.skip(f"{name} is not installed")
    return importlib.import_module(f"{OFFERS[name].module}.ops")


def random_module(name: str) -> Any:
    if not is_installed(name):
        pytest.skip(f"{name} is not installed")
    return importlib.import_module(f"{OFFERS[name].module}.random")


class Cell:
    """Holds a state; a plain class, because torch.compile does not trace the creation of a SimpleNamespace."""

    def __init__(self, value: Any) -> None:
        self.value = value


def portable(ops: Any, seed: int = 0) -> PortableRandom:
    return PortableRandom(ops, Cell(ops.asarray(initial_state(seed))))


def fast(name: str, seed: int = 0) -> Any:
    module = random_module(name)
    return module.FastRandom(Cell(module.initial_state(seed)))


SOURCES = [("portable", name) for name in BACKENDS] + [("fast", name) for name in BACKENDS]
every_source = pytest.mark.parametrize(("kind", "backend"), SOURCES)


def make(kind: str, backend: str, seed: int = 0) -> Any:
    return portable(backend_ops(backend), seed) if kind == "portable" else fast(backend, seed)


def words(*values: int) -> list[np.ndarray]:
    return [np.array([value], np.uint32).view(np.int32) for value in values]


# Published with Random123 (kat_vectors, "threefry2x32 20"): counter, key, answer.
KNOWN_ANSWERS = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


@every_backend
@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_threefry_known_answers(
    backend: str, counter: tuple[int, int], key: tuple[int, int], answer: tuple[int, int]
) -> None:
    ops = backend_ops(backend)
    arguments = [ops.asarray(word) for word in words(*key, *counter)]
    found = [np.asarray(word).view(np.uint32)[0] for word in threefry_2x32(ops, *arguments)]
    assert [hex(word) for word in found] == [hex(word) for word in answer]


def draws(source: Any, ops: Any) -> dict[str, Any]:
    return {
        "uniform": source.uniform((5, 3)),
        "scalar": source.uniform(()),
        "empty": source.uniform((0, 2)),
        "randint": source.randint((7,), -2, 5),
        "bernoulli": source.bernoulli(ops.full((20,), 0.3)),
        "permutation": source.permutation(9),
        "normal": source.normal((2, 5)),
        "scaled": source.uniform((4,), -1.0, 3.0),
        "gumbel": source.gumbel((4,)),
        "categorical": source.categorical(ops.asarray(np.linspace(-1, 1, 12).reshape(4, 3).astype(np.float32))),
    }


EXACT = ("uniform", "scalar", "empty", "randint", "bernoulli", "permutation", "categorical")


def assert_equal_draws(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, wanted in expected.items():
        result = np.asarray(found[name])
        assert (result.shape, result.dtype) == (wanted.shape, wanted.dtype), name
        if name in EXACT:
            np.testing.assert_array_equal(result, wanted, err_msg=name)
        else:
            np.testing.assert_allclose(result, wanted, rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
def test_portable_numbers_are_equal_on_all_backends(backend: str) -> None:
    ops = backend_ops(backend)
    assert_equal_draws(draws(portable(ops), ops), draws(portable(numpy_ops), numpy_ops))


def test_the_cipher_as_one_program_gives_equal_numbers() -> None:
    if not is_installed("jax"):
        pytest.skip("jax is not installed")
    ops = backend_ops("jax")
    source = get_backend("jax").portable_random(Cell(ops.asarray(initial_state(0))))
    assert_equal_draws(draws(source, ops), draws(portable(numpy_ops), numpy_ops))


def test_portable_numbers_are_equal_under_jit() -> None:
    jax = pytest.importorskip("jax")
    ops = backend_ops("jax")

    @jax.jit
    def program(state: Any) -> Any:
        cell = Cell(state)
        return draws(PortableRandom(ops, cell), ops), cell.value

    results, state = program(initial_state(0))
    source = portable(numpy_ops)
    assert_equal_draws(results, draws(source, numpy_ops))
    np.testing.assert_array_equal(np.asarray(state), source.cell.value)


def test_portable_numbers_are_equal_under_torch_compile() -> None:
    torch = pytest.importorskip("torch")
    ops = backend_ops("torch")
    torch.compiler.reset()

    def program(state: Any) -> Any:
        cell = Cell(state)
        return draws(PortableRandom(ops, cell), ops), cell.value

    results, _ = torch.compile(program, fullgraph=True, backend="eager")(torch.tensor(initial_state(0)))
    assert_equal_draws(results, draws(portable(numpy_ops), numpy_ops))


@pytest.mark.slow
@pytest.mark.long(minutes=1.5)
# Inductor's own imports use something that torch has deprecated.
@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")
def test_portable_numbers_are_equal_in_generated_code() -> None:
    """Inductor's C++ adds int32 with the signed +, whose overflow is only defined because of compiler flags."""
    torch = pytest.importorskip("torch")
    ops = backend_ops("torch")
    torch.compiler.reset()

    def program(state: Any) -> Any:
        source = PortableRandom(ops, Cell(state))
        return {"uniform": source.uniform((99,))}

    results = torch.compile(program, fullgraph=True)(torch.tensor(initial_state(0)))
    source = portable(numpy_ops)
    assert_equal_draws(results, {"uniform": source.uniform((99,))})


@every_backend
def test_portable_numbers_in_a_scan_equal_a_loop(backend: str) -> None:
    ops = backend_ops(backend)

    def step(state: Any, _: Any) -> Any:
        cell = Cell(state)
        value = PortableRandom(ops, cell).uniform((2,))
        return cell.value, value

    _, values = ops.scan(step, ops.asarray(initial_state(4)), None, length=3)
    source = portable(numpy_ops, 4)
    np.testing.assert_array_equal(np.asarray(values), [source.uniform((2,)) for _ in range(3)])


def test_portable_state_counts_draws_and_wraps() -> None:
    source = portable(numpy_ops)
    source.uniform((100,))
    source.normal((3,))
    assert source.cell.value[2] == 2
    source.cell.value = np.array([1, 2, 2**31 - 1], np.int32)
    source.uniform(())
    assert source.cell.value[2] == -(2**31)


def test_portable_uniform_is_a_multiple_of_two_to_the_minus_24() -> None:
    draw = portable(numpy_ops).uniform((10_000,)).astype(np.float64) * 2**24
    np.testing.assert_array_equal(draw, np.round(draw))
    assert draw.min() >= 0
    assert draw.max() < 2**24


@every_source
def test_seeds_and_draws_differ_and_repeat(kind: str, backend: str) -> None:
    first, again, other = make(kind, backend, 1), make(kind, backend, 1), make(kind, backend, 2)
    a, b = np.asarray(first.uniform((8,))), np.asarray(first.uniform((8,)))
    np.testing.assert_array_equal(a, np.asarray(again.uniform((8,))))
    assert not np.intersect1d(a, b).size
    assert not np.intersect1d(a, np.asarray(other.uniform((8,)))).size


@every_source
def test_statistics(kind: str, backend: str) -> None:
    ops, source, n = backend_ops(backend), make(kind, backend, 3), 40_000
    uniform = np.asarray(source.uniform((n,), -1.0, 3.0))
    assert uniform.dtype == np.float32
    # Means within five standard errors.
    assert abs(uniform.mean() - 1.0) < 5 * (4 / 12**0.5) / n**0.5
    assert uniform.min() >= -1
    assert uniform.max() <= 3
    np.testing.assert_allclose(np.histogram(uniform, 10)[0] / n, 0.1, atol=0.01)
    normal = np.asarray(source.normal((n,), 2.0, 3.0))
    assert abs(normal.mean() - 2.0) < 5 * 3 / n**0.5
    assert abs(normal.std() - 3.0) < 0.06
    scaled = (normal - 2) / 3
    assert abs((scaled**3).mean()) < 0.07
    assert abs((scaled**4).mean() - 3) < 0.2
    assert abs(np.corrcoef(scaled[: n // 2], scaled[n // 2 :])[0, 1]) < 0.04
    whole = np.asarray(source.randint((n,), -2, 3))
    assert whole.dtype == np.int32
    np.testing.assert_allclose(np.bincount(whole + 2, minlength=5) / n, 0.2, atol=0.012)
    flags = np.asarray(source.bernoulli(ops.full((n,), 0.3)))
    assert flags.dtype == np.bool_
    assert abs(flags.mean() - 0.3) < 0.012
    gumbel = np.asarray(source.gumbel((n,)))
    assert abs(gumbel.mean() - 0.5772) < 0.035
    assert abs(gumbel.std() - np.pi / 6**0.5) < 0.04
    probabilities = np.array([0.5, 0.3, 0.2, 0.0], np.float32)
    with np.errstate(divide="ignore"):
        logits = np.log(probabilities)
    classes = np.asarray(source.categorical(ops.broadcast_to(ops.asarray(logits), (n, 4))))
    assert classes.dtype == np.int32
    np.testing.assert_allclose(np.bincount(classes, minlength=4) / n, probabilities, atol=0.014)
    assert not (classes == 3).any()


@every_source
def test_permutation(kind: str, backend: str) -> None:
    source = make(kind, backend, 5)
    places = np.zeros((4, 4))
    for _ in range(300):
        order = np.asarray(source.permutation(4))
        assert order.dtype == np.int32
        assert sorted(order) == [0, 1, 2, 3]
        places[np.arange(4), order] += 1
    assert places.min() > 40  # 75 expected, deviation 7.5


@every_source
def test_bounds_and_parameters_may_be_arrays(kind: str, backend: str) -> None:
    ops, source = backend_ops(backend), make(kind, backend, 6)
    high = ops.asarray(np.array([1, 10, 1000], np.int32))
    whole = np.asarray(source.randint((500, 3), 0, high))
    assert whole.dtype == np.int32
    assert (whole.max(0) < [1, 10, 1000]).all()
    assert (whole.max(0) >= [0, 9, 900]).all()
    uniform = np.asarray(source.uniform((500, 3), 0.0, ops.asarray(np.array([1, 10, 100], np.float32))))
    assert uniform.dtype == np.float32
    assert (uniform.max(0) > [0.9, 9, 90]).all()
    normal = np.asarray(source.normal((500, 2), ops.asarray([0.0, 50.0]), 1.0))
    assert (abs(normal.mean(0) - [0, 50]) < 0.3).all()
    assert np.asarray(source.bernoulli(1.0)).shape == ()
    assert np.asarray(source.categorical(ops.asarray([0.0, 50.0]))) == 1


@every_backend
def test_fast_state_round_trip_continues_the_sequence(backend: str) -> None:
    module, source = random_module(backend), fast(backend, 9)
    source.normal((3,))
    saved = module.state_to_numpy(source.cell.value)
    assert saved.dtype in (np.uint8, np.uint32)
    expected = [np.asarray(source.uniform((4,))), np.asarray(source.normal((5,)))]
    copy = module.FastRandom(Cell(module.state_from_numpy(saved)))
    np.testing.assert_array_equal(np.asarray(copy.uniform((4,))), expected[0])
    np.testing.assert_array_equal(np.asarray(copy.normal((5,))), expected[1])


def test_damaged_numpy_state_is_refused() -> None:
    module = random_module("numpy")
    saved = module.state_to_numpy(module.initial_state(0))
    with pytest.raises(CheckpointError):
        module.state_from_numpy(saved[:-9])
    with pytest.raises(CheckpointError):
        module.state_from_numpy(np.frombuffer(b'{"bit_generator": "MT19937"}', np.uint8))


def test_fast_jax_source_works_inside_jit() -> None:
    jax = pytest.importorskip("jax")
    module = random_module("jax")

    @jax.jit
    def program(state: Any) -> Any:
        cell = Cell(state)
        source = module.FastRandom(cell)
        return source.uniform((3,)), source.uniform((3,)), cell.value

    first, second, state = program(module.initial_state(1))
    eager = fast("jax", 1)
    np.testing.assert_array_equal(np.asarray(first), np.asarray(eager.uniform((3,))))
    np.testing.assert_array_equal(np.asarray(second), np.asarray(eager.uniform((3,))))
    np.testing.assert_array_equal(np.asarray(state), np.asarray(eager.cell.value))
    assert state.dtype == np.uint32
