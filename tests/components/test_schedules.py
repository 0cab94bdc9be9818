"""Schedules against numbers with a known answer, and the laws of absolute counters."""

import math

import numpy as np
import pytest

from rlweave.components.schedules import (
    Constant,
    Exponential,
    Linear,
    Piecewise,
    Polynomial,
    make_schedule,
)
from rlweave.errors import SpecError

FRACTIONS = [0.5, 0.1, 1.0, 0.9, 0.02, 0.01, 0.99, 0.23]

ALL = [
    Constant(0.3),
    Linear(2.0, 0.5, 100),
    Linear(0.0, 1.0, 0),
    Linear(0.0, 1.0, 1),
    Polynomial(2.0, 0.5, 100, power=2.0),
    Exponential(1.0, 0.01, 100),
    Exponential(-1.0, -4.0, 50),
    Piecewise(((10, 1.0), (20, 3.0), (60, -1.0))),
    Piecewise(((10, 1.0), (20, 3.0), (60, -1.0)), interpolation="constant"),
    Piecewise(((5, 2.0),)),
]


class FakeOps:
    """The few operators that schedules use, in NumPy."""

    clip = staticmethod(np.clip)
    where = staticmethod(np.where)
    exp = staticmethod(np.exp)

    @staticmethod
    def astype(x, dtype):
        return np.asarray(x).astype(dtype)


def test_linear_matches_the_known_numbers():
    schedule = Linear(2.0, 0.5, steps=1000)
    expected = [1.25, 1.85, 0.5, 0.65, 1.97, 1.985, 0.515, 1.655]
    np.testing.assert_allclose([schedule(1000 * f) for f in FRACTIONS], expected, rtol=1e-12)


def test_polynomial_of_power_two_matches_the_known_numbers():
    schedule = Polynomial(2.0, 0.5, steps=1000, power=2.0)
    expected = [0.875, 1.715, 0.5, 0.515, 1.9406, 1.97015, 0.50015, 1.38935]
    np.testing.assert_allclose([schedule(1000 * f) for f in FRACTIONS], expected, rtol=1e-12)


def test_polynomial_of_power_one_is_the_line():
    line, polynomial = Linear(2.0, 0.5, 100), Polynomial(2.0, 0.5, 100)
    np.testing.assert_allclose([line(c) for c in range(120)], [polynomial(c) for c in range(120)])


def test_exponential_has_equal_ratios():
    schedule = Exponential(1.0, 0.0625, steps=4)
    np.testing.assert_allclose([schedule(c) for c in range(6)], [1.0, 0.5, 0.25, 0.125, 0.0625, 0.0625])


def test_piecewise_linear_and_constant():
    points = ((10, 1.0), (20, 3.0), (60, -1.0))
    counts = [0, 10, 15, 20, 40, 60, 99]
    assert [Piecewise(points)(c) for c in counts] == [1.0, 1.0, 2.0, 3.0, 1.0, -1.0, -1.0]
    steps = Piecewise(points, interpolation="constant")
    assert [steps(c) for c in counts] == [1.0, 1.0, 1.0, 3.0, 3.0, -1.0, -1.0]


@pytest.mark.parametrize("schedule", ALL, ids=str)
def test_a_run_in_two_halves_sees_the_values_of_one_run(schedule):
    whole = [schedule(count) for count in range(200)]
    halves = [schedule(start + i) for start in (0, 100) for i in range(100)]
    assert whole == halves


@pytest.mark.parametrize("kind", [Linear, Polynomial, Exponential])
@pytest.mark.parametrize("steps", [0, 1])
def test_no_division_by_zero_over_few_steps(kind, steps):
    schedule = kind(2.0, 0.5, steps)
    values = [schedule(count) for count in (-1, 0, 1, 2)]
    assert values == ([0.5] * 4 if steps == 0 else [2.0, 2.0, 0.5, 0.5])


@pytest.mark.parametrize("schedule", ALL, ids=str)
def test_the_graph_form_agrees_with_the_scalar_form(schedule):
    counts = np.arange(0, 150, dtype=np.int32)
    values = schedule.in_graph(counts, FakeOps)
    assert values.shape == counts.shape
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, [schedule(int(c)) for c in counts], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("schedule", ALL, ids=str)
def test_a_spec_round_trips_and_is_not_changed(schedule):
    spec = schedule.to_spec()
    before = repr(spec)
    assert make_schedule(spec) == schedule
    assert repr(spec) == before
    assert hash(make_schedule(spec)) == hash(schedule)


def test_what_a_schedule_is_made_from():
    assert make_schedule(3) == Constant(3.0)
    assert make_schedule([[0, 1.0], [10, 0.0]])(5) == 0.5
    linear = Linear(1.0, 0.0, 10)
    assert make_schedule(linear) is linear


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"type": "liner", "start": 1, "end": 0, "steps": 5}, "did you mean 'linear'?"),
        ({"type": "linear", "start": 1, "end": 0, "step": 5}, "did you mean 'steps'?"),
        ({"type": "linear", "start": 1, "end": 0}, "a linear schedule needs 'steps'"),
        ({"type": "linear", "start": "1", "end": 0, "steps": 5}, "must be a number"),
        ({"start": 1}, "needs a type"),
        ({"type": "linear", "start": 1, "end": 0, "steps": -1}, "negative number of steps"),
        ({"type": "linear", "start": 1, "end": 0, "steps": math.nan}, "negative number of steps"),
        ({"type": "exponential", "start": 1, "end": 0, "steps": 5}, "cannot reach or cross 0"),
        ({"type": "polynomial", "start": 1, "end": 0, "steps": 5, "power": 0}, "above 0"),
        ({"type": "piecewise", "points": [[5, 1], [5, 2]]}, "must rise"),
        ({"type": "piecewise", "points": []}, "needs a list of points"),
        ({"type": "piecewise", "points": [3, 4]}, "needs a list of points"),
        ({"type": "piecewise", "points": [[0, 1]], "interpolation": "linaer"}, "did you mean 'linear'?"),
        ("linear", "not a schedule"),
        (True, "not a schedule"),
    ],
)
def test_errors_name_the_nearest_right_thing(spec, text):
    with pytest.raises(SpecError) as error:
        make_schedule(spec)
    assert text in str(error.value)
