"""Components that read what lies outside, that do not draw, and that draw once what is to be drawn often."""

import random
import time

import numpy as np
import pytest

from rlweave import ops
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import Dict, FloatBox
from rlweave.testing import Cause, check

ROWS = {"inputs": FloatBox(shape=(3,), add_batch_rank=True)}
MEANS = {"mean": FloatBox(shape=(2,), add_batch_rank=True)}
PAIR = {"actions": Dict(a=FloatBox(), b=FloatBox(shape=(2,))).with_batch_rank()}
COUNTS = {"calls": 0}


# -- outside of the graph ----------------------------------------------------------------------------------------


class NumPyNoise(Component):
    @graph_fn
    def call(self, inputs):
        return inputs + np.random.normal()  # noqa: NPY002


class NumPyNoiseOnTheHost(Component):
    @api
    def call(self, inputs):
        return self._noise(self._double(inputs))

    @graph_fn
    def _double(self, inputs):
        return inputs * 2.0

    @graph_fn(host=True)
    def _noise(self, inputs):
        return (inputs + np.random.normal(size=inputs.shape)).astype(np.float32)  # noqa: NPY002


class NoiseByAFunction(Component):
    @graph_fn(host=True)
    def call(self, inputs):
        return inputs + noise_of_python()


def noise_of_python():
    return np.float32(random.random())


class Clock(Component):
    """Its result in float32 would be the same for two minutes."""

    @graph_fn(host=True)
    def call(self, inputs):
        return inputs + np.float32(time.time())


class CountsInAGlobal(Component):
    @graph_fn(host=True)
    def call(self, inputs):
        COUNTS["calls"] += 1
        return inputs * np.float32(COUNTS["calls"])


class OwnGenerator(Component):
    def __init__(self):
        super().__init__("own-generator")
        self.rng = np.random.default_rng(0)

    @graph_fn(host=True)
    def call(self, inputs):
        return inputs + self.rng.normal(size=inputs.shape).astype(np.float32)


class DrawnInTheMethod(Component):
    @api
    def call(self, inputs):
        return self._scaled(inputs, random.random())

    @graph_fn
    def _scaled(self, inputs, factor):
        return inputs * factor


class CountsInTheMethod(Component):
    def __init__(self):
        super().__init__("counts")
        self.calls = 0

    @api
    def call(self, inputs):
        self.calls += 1
        return self._scaled(inputs)

    @graph_fn
    def _scaled(self, inputs):
        return inputs / float(self.calls)


class UnseededWeights(Component):
    def create_variables(self, inputs):
        numbers = np.random.normal(size=(3, 3)).astype(np.float32)  # noqa: NPY002
        self.kernel = self.variable("kernel", (3, 3), initializer=numbers)

    @graph_fn
    def call(self, inputs):
        return ops.matmul(inputs, self.kernel.value)


class UnseededConstant(Component):
    def __init__(self):
        super().__init__("unseeded-constant")
        self.factor = random.random()

    @graph_fn
    def call(self, inputs):
        return inputs * self.factor


class SetLater(Component):
    def __init__(self):
        super().__init__("set-later")
        self.epsilon = 0.5

    def set_epsilon(self, epsilon):
        self.epsilon = epsilon

    @graph_fn
    def call(self, inputs):
        return inputs * self.epsilon


OUTSIDE = [
    (NumPyNoise, "num-py-noise.call", "np.random.normal"),
    (NumPyNoiseOnTheHost, "._noise", "np.random.normal"),
    (NoiseByAFunction, "noise-by-afunction.call", "random.random"),
    (Clock, "clock.call", "time.time"),
    (CountsInAGlobal, "counts-in-aglobal.call", "the global COUNTS"),
    (OwnGenerator, "own-generator.call", "self.rng"),
    (DrawnInTheMethod, "drawn-in-the-method.call", "random.random"),
    (UnseededWeights, "unseeded-weights.create_variables", "np.random.normal"),
    (UnseededConstant, "unseeded-constant.call", "self.factor"),
    (SetLater, "set-later.call", "self.epsilon, which set_epsilon sets"),
]


@pytest.mark.parametrize(("component", "place", "name"), OUTSIDE, ids=lambda x: getattr(x, "__name__", ""))
def test_what_lies_outside_is_named(component, place, name):
    finding = _finding(component, ROWS, Cause.RANDOMNESS_OUTSIDE)
    assert place in finding.where
    assert "test_randomness.py:" in finding.where
    assert name in finding.seen


class RemembersInADict(Component):
    def __init__(self):
        super().__init__("remembers")
        self.kept = {"sum": np.float32(0.0)}

    @graph_fn(host=True)
    def call(self, inputs):
        self.kept["sum"] = self.kept["sum"] + np.float32(1.0)
        return inputs + self.kept["sum"]


class LimitFromASettingsDict(Component):
    @graph_fn
    def call(self, inputs):
        return inputs * self._factor()

    def _factor(self):
        return SETTINGS["factor"]


SETTINGS = {"factor": 0.5}


@pytest.mark.parametrize(("component", "place"), [(CountsInTheMethod, "counts.calls"), (RemembersInADict, ".call")])
def test_what_is_remembered_in_an_attribute_is_in_no_checkpoint(component, place):
    assert place in _finding(component, ROWS, Cause.INCOMPLETE_STATE).where


def test_a_global_dict_of_settings_is_frozen_by_compilation():
    finding = _finding(LimitFromASettingsDict, ROWS, Cause.RANDOMNESS_OUTSIDE)
    assert "the global SETTINGS" in finding.seen


class DrawnInside(Component):
    """The right one; its tables are constants."""

    def __init__(self):
        super().__init__("drawn-inside")
        self.table = {"size": 0.5}
        self.limits = np.array([-1.0, 1.0], np.float32)

    @graph_fn
    def call(self, inputs):
        noise = self.table["size"] * ops.random.normal(inputs.shape)
        return ops.clip(inputs + noise, self.limits[0], self.limits[1])


# -- no random numbers -------------------------------------------------------------------------------------------


class NoiseForgotten(Component):
    @graph_fn
    def call(self, inputs):
        noise = ops.random.normal(inputs.shape)
        return inputs + 0.0 * noise


class AlwaysZero(Component):
    @graph_fn
    def call(self, inputs):
        return ops.astype(ops.random.uniform(inputs.shape[:1]), "int32")


class SampleIsMode(Component):
    @graph_fn
    def sample(self, mean):
        return mean


class FixedSeed(Component):
    @graph_fn(host=True)
    def call(self, inputs):
        rng = np.random.default_rng(0)
        return inputs + rng.normal(size=inputs.shape).astype(np.float32)


@pytest.mark.parametrize(
    ("component", "spaces", "place"),
    [
        (NoiseForgotten, ROWS, "noise-forgotten.call"),
        (AlwaysZero, ROWS, "always-zero.call"),
        (SampleIsMode, MEANS, "sample-is-mode.sample"),
        (FixedSeed, ROWS, "fixed-seed.call"),
    ],
)
def test_a_draw_without_effect_is_found(component, spaces, place):
    assert place in _finding(component, spaces, Cause.NOT_RANDOM).where


# -- one number for all rows -------------------------------------------------------------------------------------


class NoiseForAll(Component):
    @graph_fn
    def call(self, inputs):
        return inputs + ops.random.normal(())


class NoiseOfTheFeatures(Component):
    @graph_fn
    def call(self, inputs):
        return inputs + ops.random.normal(inputs.shape[1:])


class NoiseInTwoSteps(Component):
    @api
    def call(self, inputs):
        return self._add(inputs, self._noise())

    @graph_fn
    def _noise(self):
        return ops.random.normal((3,))

    @graph_fn
    def _add(self, inputs, noise):
        return inputs + noise


class ExploresForAll(Component):
    """Whether to explore is drawn once; the random actions by row."""

    @graph_fn
    def call(self, inputs):
        lots = ops.random.randint(inputs.shape[:1], 0, 3)
        return ops.where(ops.random.uniform(()) < 0.3, lots, ops.argmax(inputs, axis=-1))


class ExploresByRow(Component):
    @graph_fn
    def call(self, inputs):
        lots = ops.random.randint(inputs.shape[:1], 0, 3)
        return ops.where(ops.random.uniform(inputs.shape[:1]) < 0.3, lots, ops.argmax(inputs, axis=-1))


class DeviationByRow(Component):
    """A policy of one layer, whose noise is that of its parameter."""

    def create_variables(self, inputs):
        self.kernel = self.variable("kernel", (3, 2), initializer=0.1)
        self.log_std = self.variable("log_std", (2,), initializer=0.0)

    @graph_fn
    def call(self, inputs):
        noise = ops.random.normal(self.log_std.shape)
        return ops.matmul(inputs, self.kernel.value) + ops.exp(self.log_std.value) * noise


class NoisyLayer(Component):
    """Noise on weights is shared by all rows (Fortunato et al. 2018)."""

    def create_variables(self, inputs):
        self.kernel = self.variable("kernel", (3, 2), initializer=0.1)
        self.sigma = self.variable("sigma", (3, 2), initializer=0.5)

    @graph_fn
    def call(self, inputs):
        noise = ops.random.normal((3, 1)) * ops.random.normal((1, 2))
        return ops.matmul(inputs, self.kernel.value + self.sigma.value * noise)


class SharedOnPurpose(NoiseForAll):
    @graph_fn(mixes_batch=True)
    def call(self, inputs):
        return inputs + ops.random.normal(())


@pytest.mark.parametrize(
    ("component", "place"),
    [
        (NoiseForAll, "noise-for-all.call"),
        (NoiseOfTheFeatures, "noise-of-the-features.call"),
        (NoiseInTwoSteps, "noise-in-two-steps._noise"),
        (ExploresForAll, "explores-for-all.call"),
        (DeviationByRow, "deviation-by-row.call"),
    ],
)
def test_one_number_for_all_rows_is_found_where_it_is_drawn(component, place):
    assert place in _finding(component, ROWS, Cause.DRAWN_ONCE).where


# -- one number in two places ------------------------------------------------------------------------------------


class NoiseOfTheFirstLeaf(Component):
    @api
    def call(self, actions):
        return self._add(actions)

    @graph_fn
    def _add(self, actions):
        noise = ops.random.normal(actions["a"].shape)
        return {"a": actions["a"] + noise, "b": actions["b"] + 0.5 * ops.expand_dims(noise, -1)}


class OneNoiseForBothComponents(Component):
    @graph_fn
    def sample(self, mean):
        return mean + ops.random.normal((mean.shape[0], 1))


class NoiseOfBothCritics(Component):
    @api
    def call(self, one, other):
        noise = self._noise(one)
        return self._add(one, noise), self._add(other, noise)

    @graph_fn
    def _noise(self, like):
        return ops.random.normal(like.shape)

    @graph_fn
    def _add(self, x, noise):
        return x + noise


class NoiseByLeaf(Component):
    @graph_fn(split=True)
    def call(self, actions):
        return actions + ops.random.normal(actions.shape)


class NoiseIsReturned(Component):
    """The noise, and what it was added to, are not meant to be independent."""

    @graph_fn
    def call(self, inputs):
        noise = ops.random.normal(inputs.shape)
        return inputs + noise, noise


class Dropout(Component):
    @graph_fn
    def call(self, inputs):
        return ops.where(ops.random.bernoulli(ops.full(inputs.shape, 0.5)), inputs, 0.0)


class OneHot(Component):
    """Two columns that are never equal."""

    @graph_fn
    def sample(self, mean):
        return ops.one_hot(ops.random.categorical(mean), 2)


TWO = {name: FloatBox(add_batch_rank=True) for name in ("one", "other")}


@pytest.mark.parametrize(
    ("component", "spaces", "place"),
    [
        (NoiseOfTheFirstLeaf, PAIR, "noise-of-the-first-leaf._add"),
        (OneNoiseForBothComponents, MEANS, "one-noise-for-both-components.sample"),
        (NoiseOfBothCritics, TWO, "noise-of-both-critics._noise"),
    ],
)
def test_a_number_that_is_used_twice_is_found(component, spaces, place):
    assert place in _finding(component, spaces, Cause.DRAWN_TWICE).where


SOUND = [
    (DrawnInside, ROWS),
    (ExploresByRow, ROWS),
    (NoisyLayer, ROWS),
    (SharedOnPurpose, ROWS),
    (NoiseByLeaf, PAIR),
    (NoiseIsReturned, ROWS),
    (Dropout, ROWS),
    (OneHot, MEANS),
]


@pytest.mark.parametrize(("component", "spaces"), SOUND, ids=lambda x: getattr(x, "__name__", ""))
def test_sound_components_pass(component, spaces):
    report = check(component, spaces)
    assert report.ok, str(report)


def _finding(component, spaces, cause):
    report = check(component, spaces)
    assert cause in {finding.cause for finding in report}, str(report)
    return next(finding for finding in report if finding.cause is cause)
