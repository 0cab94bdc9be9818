"""Epsilon-greedy actions: frequencies, epsilons per row and from a counter, nested and masked actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlweave.backends import is_installed
from rlweave.components import EpsilonGreedy
from rlweave.components.exploration import ape_x_epsilons
from rlweave.errors import ConfigError
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Tuple
from rlweave.testing import ComponentTest

BACKENDS = ("numpy", "torch", "jax", "tensorflow")
on_every_backend = pytest.mark.parametrize("backend", BACKENDS)
ROWS = 20_000


def q_space(*shape: int) -> FloatBox:
    return FloatBox(shape=shape, add_batch_rank=True)


def make(q: Any, backend: str, epsilon: Any = 0.1, action_space: Any = None, **options: Any) -> ComponentTest:
    spaces = {
        "q_values": q,
        "epsilon": FloatBox(0.0, 1.0, add_batch_rank=True),
        "get_action.time_step": IntBox(0, 10**6),
    }
    return ComponentTest(EpsilonGreedy(epsilon, action_space), spaces, backend, **options)


def assert_frequencies(actions: np.ndarray, probabilities: list[float]) -> None:
    """Counts within five standard deviations of a multinomial distribution."""
    p = np.array(probabilities)
    counts = np.bincount(actions.reshape(-1), minlength=len(p))
    assert len(counts) == len(p)
    deviation = np.sqrt(actions.size * p * (1 - p))
    assert (np.abs(counts - actions.size * p) <= 5 * deviation).all(), counts / actions.size


@on_every_backend
def test_frequencies_of_actions(backend: str) -> None:
    test = make(q_space(4), backend)
    q = np.tile(np.array([0.1, 0.9, 0.5, -0.3], np.float32), (ROWS, 1))
    for epsilon in (0.0, 0.3, 1.0):
        actions = test.test("select", q, np.full(ROWS, epsilon, np.float32))
        assert actions.shape == (ROWS,)
        assert actions.dtype == np.int32
        expected = [epsilon / 4] * 4
        expected[1] += 1 - epsilon
        assert_frequencies(actions, expected)


@on_every_backend
def test_every_row_has_its_epsilon(backend: str) -> None:
    test = make(q_space(2), backend)
    q = np.tile(np.array([1.0, 0.0], np.float32), (ROWS, 1))
    actions = test.test("select", q, np.where(np.arange(ROWS) % 2, 1.0, 0.0).astype(np.float32))
    assert not actions[::2].any()
    assert_frequencies(actions[1::2], [0.5, 0.5])


@on_every_backend
def test_epsilon_from_an_absolute_counter(backend: str) -> None:
    test = make(q_space(2), backend, {"type": "linear", "start": 1.0, "end": 0.0, "steps": 1000})
    q = np.tile(np.array([1.0, 0.0], np.float32), (ROWS, 1))
    for step, epsilon in ((0, 1.0), (600, 0.4), (1000, 0.0), (5000, 0.0)):
        assert_frequencies(test.test("get_action", q, np.int32(step)), [1 - epsilon / 2, epsilon / 2])


@on_every_backend
def test_rows_explore_in_all_components_or_none(backend: str) -> None:
    test = make(q_space(2, 3), backend)
    q = np.zeros((ROWS, 2, 3), np.float32)
    q[:, 0, 2], q[:, 1, 1] = 1.0, 1.0
    actions = test.test("select", q, np.full(ROWS, 0.45, np.float32))
    assert actions.shape == (ROWS, 2)
    expected = np.full((3, 3), 0.45 / 9)
    expected[2, 1] += 0.55
    assert_frequencies(actions[:, 0] * 3 + actions[:, 1], expected.reshape(-1).tolist())


@on_every_backend
def test_masked_categories_are_never_drawn(backend: str) -> None:
    test = make(q_space(4), backend)
    q = np.tile(np.array([-1e9, -2.0, -np.inf, -3.0], np.float32), (ROWS, 1))
    assert_frequencies(test.test("select", q, np.ones(ROWS, np.float32)), [0.0, 0.5, 0.0, 0.5])


@on_every_backend
def test_nested_actions(backend: str) -> None:
    actions = Dict(move=IntBox(3), fire=BoolBox(), arms=Tuple(IntBox(2, shape=(2,))))
    space = Dict(move=q_space(3), fire=q_space(2), arms=Tuple(q_space(2, 2)))
    test = make(space, backend, action_space=actions)
    q = {
        "move": np.tile(np.float32([0, 0, 1]), (ROWS, 1)),
        "fire": np.tile(np.float32([0, 1]), (ROWS, 1)),
        "arms": (np.tile(np.float32([[1, 0], [0, 1]]), (ROWS, 1, 1)),),
    }
    best = test.test("greedy", q)
    found = test.test("select", q, np.full(ROWS, 0.5, np.float32))
    for result in (best, found):
        assert result["fire"].dtype == bool
        assert result["move"].dtype == result["arms"][0].dtype == np.int32
        assert result["arms"][0].shape == (ROWS, 2)
    assert (best["move"] == 2).all()
    assert best["fire"].all()
    assert (best["arms"][0] == [0, 1]).all()
    code = found["move"] * 8 + found["fire"] * 4 + found["arms"][0][:, 0] * 2 + found["arms"][0][:, 1]
    expected = np.full(24, 0.5 / 24)
    expected[2 * 8 + 4 + 1] += 0.5
    assert_frequencies(code, expected.tolist())


def test_time_major_values_and_one_epsilon_for_all() -> None:
    q = FloatBox(shape=(3,), add_batch_rank=True, add_time_rank=True)
    test = ComponentTest(EpsilonGreedy(0.0), {"q_values": q, "time_step": IntBox(0, 10)}, methods=["get_action"])
    values = np.random.default_rng(0).normal(size=(4, 5, 3)).astype(np.float32)
    np.testing.assert_array_equal(test.test("get_action", values, np.int32(0)), values.argmax(-1))


def test_the_same_seed_gives_the_same_actions_on_all_backends_in_portable_mode() -> None:
    q = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    epsilons = np.full(50, 0.5, np.float32)
    results = [
        make(q_space(3), backend, rng="portable").test("select", q, epsilons)
        for backend in filter(is_installed, BACKENDS)
    ]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    assert (results[0] != q.argmax(-1)).any()


def test_epsilons_of_ape_x() -> None:
    expected = [0.4, 0.16, 0.064, 0.0256, 0.01024, 0.004096, 0.0016384, 0.00065536]
    found = ape_x_epsilons(8)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert len(set(found)) == 8
    assert ape_x_epsilons(1) == (0.4,)
    for arguments in ((0,), (3, 1.5)):
        with pytest.raises(ConfigError):
            ape_x_epsilons(*arguments)


def test_an_epsilon_that_is_no_probability_is_refused() -> None:
    with pytest.raises(ConfigError, match="epsilon is out of range"):
        EpsilonGreedy(1.5)
