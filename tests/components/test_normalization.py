"""Running normalization against float64 statistics of all data at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlweave.components import RunningNormalization
from rlweave.errors import ConfigError
from rlweave.graph import Component, api, build
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Tuple
from rlweave.testing import ComponentTest

BACKENDS = ("numpy", "torch", "jax", "tensorflow")
on_every_backend = pytest.mark.parametrize("backend", BACKENDS)
BATCH = {"add_batch_rank": True}
BOTH = {"add_batch_rank": True, "add_time_rank": True}


def make(space: Any, backend: str = "numpy", mask: Any = None, **options: Any) -> ComponentTest:
    spaces = {"inputs": space} if mask is None else {"inputs": space, "mask": mask}
    return ComponentTest(RunningNormalization(**options), spaces, backend)


def assert_statistics(test: ComponentTest, data: np.ndarray, key: str = "", rtol: float = 2e-6) -> None:
    """Statistics are those of all rows of data in float64."""
    data = data.astype(np.float64)
    found = test.variables()
    prefix = f"{key}/" if key else ""
    np.testing.assert_allclose(found["count"], len(data), rtol=1e-6)
    scale = data.std(0)
    assert (np.abs(found[f"{prefix}mean"] - data.mean(0)) <= rtol * (scale + np.abs(data.mean(0)))).all()
    np.testing.assert_allclose(found[f"{prefix}variance"], data.var(0), rtol=10 * rtol, atol=1e-12)


@on_every_backend
def test_many_merges_equal_the_statistics_of_all_data(backend: str) -> None:
    rng = np.random.default_rng(0)
    test = make(FloatBox(shape=(3,), **BATCH), backend)
    scale, shift = np.array([1.0, 1e-3, 1e4]), np.array([0.0, 5.0, -3.0])
    # sizes repeat, for JAX compiles one program per size
    sizes = rng.choice([1, 2, 7, 64], 400)
    batches = [(rng.normal(size=(n, 3)) * scale + shift + 0.01 * i).astype(np.float32) for i, n in enumerate(sizes)]
    for batch in batches:
        test.test("update", batch)
    assert_statistics(test, np.concatenate(batches))


def test_small_merges_do_not_add_up_to_a_large_error() -> None:
    # 20,000 single rows whose deviation is a thousandth of their mean: plain float32 sums lose it
    data = np.random.default_rng(1).normal(1000.0, 1.0, (20_000, 1, 2)).astype(np.float32)
    test = make(FloatBox(shape=(2,), **BATCH))
    for row in data:
        test.test("update", row)
    found, exact = test.variables(), data[:, 0].astype(np.float64)
    np.testing.assert_allclose(found["mean"], exact.mean(0), rtol=1e-7)
    np.testing.assert_allclose(found["variance"], exact.var(0), rtol=1e-4)


@on_every_backend
def test_normalized_observations_have_mean_0_and_deviation_1(backend: str) -> None:
    data = np.random.default_rng(2).normal(3.0, 5.0, (6, 50, 4)).astype(np.float32)
    test = make(FloatBox(shape=(4,), **BOTH), backend, clip=None)
    np.testing.assert_array_equal(test.test("call", data), data)  # no statistics yet
    test.test("update", data)
    result = test.test("call", data).reshape(-1, 4)
    np.testing.assert_allclose(result.mean(0), 0.0, atol=1e-5)
    np.testing.assert_allclose(result.std(0), 1.0, rtol=1e-5)


@on_every_backend
def test_calls_leave_the_statistics_alone(backend: str) -> None:
    rng = np.random.default_rng(3)
    test = make(FloatBox(shape=(2,), **BATCH), backend)
    test.test("update", rng.normal(size=(20, 2)).astype(np.float32))
    before = test.variables()
    x = rng.normal(9.0, 9.0, (50, 2)).astype(np.float32)
    first, second = test.test("call", x), test.test("call", x)
    np.testing.assert_array_equal(first, second)
    for name, value in test.variables().items():
        np.testing.assert_array_equal(value, before[name])


@on_every_backend
@pytest.mark.parametrize("constant", [0.0, 0.1, 3e7])
def test_a_constant_feature_becomes_zero(backend: str, constant: float) -> None:
    test = make(FloatBox(shape=(1,), **BATCH), backend)
    x = np.full((5, 1), constant, np.float32)
    for _ in range(7):
        test.test("update", x)
        np.testing.assert_array_equal(test.test("call", x), np.zeros((5, 1)))
    assert np.isfinite(test.test("call", x + 1)).all()


@on_every_backend
def test_clip(backend: str) -> None:
    test = make(FloatBox(shape=(), **BATCH), backend, clip=2.0)
    test.test("update", np.array([-1, 1], np.float32))
    np.testing.assert_allclose(test.test("call", np.array([-9, -1, 0, 1.5, 9], np.float32)), [-2, -1, 0, 1.5, 2])


@on_every_backend
def test_nested_spaces_whose_other_leaves_pass_through(backend: str) -> None:
    space = Dict(
        position=FloatBox(shape=(2,), **BATCH),
        inner=Tuple(FloatBox(**BATCH), IntBox(5, **BATCH), BoolBox(**BATCH)),
        image=IntBox(0, 256, shape=(2, 2), dtype="uint8", **BATCH),
        nothing=FloatBox(shape=(0,), **BATCH),
    )
    test = make(space, backend, clip=None)
    x = test.sample("inputs", 30)
    x["position"] = np.random.default_rng(0).normal(5, 2, (30, 2)).astype(np.float32)
    test.test("update", x)
    assert_statistics(test, x["position"], "position")
    assert_statistics(test, x["inner"][0], "inner/0")
    names = {name.rpartition("/")[0] for name in test.variables()}
    assert names == {"", "position", "inner/0", "nothing"}
    result = test.test("call", x)
    np.testing.assert_allclose(result["position"].std(0), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(result["inner"][1], x["inner"][1])
    np.testing.assert_array_equal(result["inner"][2], x["inner"][2])
    np.testing.assert_array_equal(result["image"], x["image"])
    assert result["image"].dtype == np.uint8
    assert result["nothing"].shape == (30, 0)


@on_every_backend
def test_padding_does_not_count(backend: str) -> None:
    data = np.random.default_rng(5).normal(2.0, 3.0, (4, 6, 2)).astype(np.float32)
    mask = np.random.default_rng(6).random((4, 6)) < 0.6
    test = make(FloatBox(shape=(2,), **BOTH), backend, BoolBox(**BOTH))
    for value in (np.nan, 1e30):
        padded = np.where(mask[..., None], data, np.float32(value))
        test.test("update", padded, mask)
    assert_statistics(test, np.concatenate([data[mask], data[mask]]))
    before = test.variables()
    test.test("update", data, np.zeros_like(mask))
    for name, value in test.variables().items():
        np.testing.assert_allclose(value, before[name], rtol=1e-7)


def test_merges_in_any_order_and_grouping_agree() -> None:
    data = np.random.default_rng(7).normal(size=(64, 3)).astype(np.float32)
    whole, parts, reverse = (make(FloatBox(shape=(3,), **BATCH)) for _ in range(3))
    whole.test("update", data)
    for cut in np.split(data, [1, 3, 40]):
        parts.test("update", cut)
    for cut in np.split(data[::-1].copy(), [10]):
        reverse.test("update", cut)
    for other in (parts, reverse):
        for name in ("count", "mean", "variance"):
            np.testing.assert_allclose(other.variables()[name], whole.variables()[name], rtol=1e-5, atol=1e-7)


class Learner(Component):
    """A policy that normalizes: its statistics are among its weights, and not among what is trained."""

    def __init__(self) -> None:
        super().__init__("learner")
        self.normalization = RunningNormalization()

    @api
    def act(self, inputs):
        return self.normalization.call(inputs)

    @api
    def update(self, inputs):
        """The order of the law: learn from raw observations by frozen statistics, then update these."""
        learned_from = self.normalization.call(inputs)
        self.normalization.update(inputs)
        return learned_from

    @api
    def trained(self):
        return len(self.normalization.variables(trainable=True))


@on_every_backend
def test_learning_sees_what_acting_saw_and_weights_carry_the_statistics(backend: str) -> None:
    space = {"inputs": FloatBox(shape=(2,), **BATCH)}
    learner, worker = (build(Learner(), space, backend=backend, methods=["act", "update"]) for _ in range(2))
    rng = np.random.default_rng(8)
    for _ in range(3):
        x = rng.normal(4.0, 2.0, (16, 2)).astype(np.float32)
        acted_on = worker.act(x)
        np.testing.assert_array_equal(learner.update(x), acted_on)
        assert not np.array_equal(learner.act(x), acted_on)
        worker.set_weights(learner.get_weights())
        np.testing.assert_array_equal(learner.act(x), worker.act(x))


def test_settings_out_of_range_are_refused() -> None:
    for options in ({"clip": 0.0}, {"epsilon": 0.0}):
        with pytest.raises(ConfigError):
            RunningNormalization(**options)
