import numpy as np
import pytest

from rlweave.errors import ConfigError, PlanError
from rlweave.flow import Counters, Every
from rlweave.flow.counters import LagHistogram, MeanMetrics, Timer


def test_every_fires_once_per_crossing_with_32_environments() -> None:
    every = Every(50_000)
    fired = [count for count in range(32, 160_001, 32) if every(count)]
    assert fired == [50_016, 100_000, 150_016]


def test_intervals_are_independent_of_each_other() -> None:
    target, train = Every(501), Every(10)
    targets = [count for count in range(1, 2005) if target(count)]
    trains = [count for count in range(1, 101) if train(count)]
    assert targets == [501, 1002, 1503, 2004]
    assert trains == list(range(10, 101, 10))


def test_every_counts_the_multiples_that_a_jump_crosses() -> None:
    every = Every(10)
    assert [every(count) for count in (9, 35, 35, 39, 40)] == [0, 3, 0, 0, 1]


def test_every_zero_never_fires_and_negative_is_refused() -> None:
    assert not any(Every(0)(count) for count in range(100))
    with pytest.raises(ConfigError, match="interval must not be negative"):
        Every(-1)


def test_every_starts_in_the_middle() -> None:
    every = Every(100, start=250)
    assert [bool(every(count)) for count in (260, 299, 300)] == [False, False, True]


def test_every_resumes_where_it_was() -> None:
    every = Every(100)
    every(250)
    resumed = Every(100)
    resumed.load_state_dict(every.state_dict())
    assert [bool(resumed(count)) for count in (260, 300, 350)] == [False, True, False]


def test_every_resumes_at_the_same_position_with_another_interval() -> None:
    every = Every(100)
    every(250)  # fired for 200
    resumed = Every(30)
    resumed.load_state_dict(every.state_dict())
    assert [resumed(count) for count in (209, 210)] == [0, 1]


def test_replay_ratio_before_the_first_step_is_zero() -> None:
    counters = Counters()
    assert counters.replay_ratio == 0.0
    counters.env_steps_sampled, counters.trained_samples = 10, 40
    assert counters.replay_ratio == 4.0


def test_counters_round_trip() -> None:
    counters = Counters(1, 2, 3, 4, 5)
    counters.drop("queue")
    counters.drop("queue")
    other = Counters()
    other.load_state_dict(counters.state_dict())
    assert other == counters
    assert other.drops == {"queue": 2}


def test_timer_and_lag_round_trip() -> None:
    timer = Timer(3, 0.5)
    other = Timer()
    other.load_state_dict(timer.state_dict())
    assert other == timer
    lags = LagHistogram()
    for lag in (0, 2, 2):
        lags.add(lag)
    again = LagHistogram()
    again.load_state_dict(lags.state_dict())
    assert (again.counts, again.maximum) == ({0: 1, 2: 2}, 2)
    assert again.mean == pytest.approx(4 / 3)
    assert LagHistogram().mean == 0.0
    assert LagHistogram().maximum == 0


def test_mean_metrics_start_anew_after_each_report() -> None:
    metrics = MeanMetrics()
    metrics.add("learner", {"loss": 1.0})
    metrics.add("learner", {"loss": np.float32(3.0), "entropy": np.array([0.5])[0]})
    assert metrics.take() == {"learner/loss": 2.0, "learner/entropy": 0.5}
    assert metrics.take() == {}


class OnDevice:
    """A value that costs a wait to read."""

    read = 0

    def __float__(self) -> float:
        OnDevice.read += 1
        return 1.0


def test_values_on_a_device_are_not_read_before_a_report_unless_many_pile_up() -> None:
    OnDevice.read = 0
    metrics = MeanMetrics()
    for _ in range(64):
        metrics.add("learner", {"loss": OnDevice()})
    assert OnDevice.read == 0
    for _ in range(1000):
        metrics.add("learner", {"loss": OnDevice()})
    assert OnDevice.read == 1000  # only the old ones: the newest 64 may still be under way
    metrics.take()
    assert OnDevice.read == 1064


def test_metrics_round_trip_through_a_checkpoint() -> None:
    metrics = MeanMetrics()
    metrics.add("learner", {"loss": 1.0})
    other = MeanMetrics()
    other.load_state_dict(metrics.state_dict())
    other.add("learner", {"loss": 2.0})
    assert other.take() == {"learner/loss": 1.5}


def test_a_metric_that_is_not_a_number_is_named() -> None:
    metrics = MeanMetrics()
    metrics.add("learner", {"td_error": np.zeros(3)})
    with pytest.raises(PlanError, match=r"(?s)not a single number.*learner/td_error.*\(3,\)"):
        metrics.take()
