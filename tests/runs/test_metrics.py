"""Metrics: stable columns, rows that survive a kill, rewinding, TensorBoard."""

import math
import re

import numpy as np
import pytest

from rlweave.errors import ConfigError, install_command
from rlweave.runs import metrics
from rlweave.runs.metrics import MetricsLog, read_metrics


def test_rows_are_on_the_disk_at_once_with_the_step_first(tmp_path):
    log = MetricsLog(tmp_path / "m.csv")
    log.write({"loss": 0.1 + 0.2, "env_steps_sampled": 10})
    assert (tmp_path / "m.csv").read_text() == "env_steps_sampled,loss\n10,0.30000000000000004\n"
    log.write({"env_steps_sampled": np.int64(20), "loss": np.float32(0.5)})
    assert (tmp_path / "m.csv").read_text().splitlines()[-1] == "20,0.5"


def test_a_late_column_stands_on_the_right_and_is_empty_before(tmp_path):
    log = MetricsLog(tmp_path / "m.csv")
    log.write({"env_steps_sampled": 1, "loss": 1.0})
    log.write({"env_steps_sampled": 2, "alpha": 3.0, "loss": 2.0})
    log.write({"env_steps_sampled": 3, "alpha": math.nan})
    assert (tmp_path / "m.csv").read_text() == "env_steps_sampled,loss,alpha\n1,1.0,\n2,2.0,3.0\n3,,\n"
    read = read_metrics(tmp_path / "m.csv")
    np.testing.assert_array_equal(read["alpha"], [np.nan, 3.0, np.nan])
    np.testing.assert_array_equal(read["env_steps_sampled"], [1, 2, 3])
    assert [path.name for path in tmp_path.iterdir()] == ["m.csv"]


def test_going_on_keeps_columns_and_drops_a_half_written_row(tmp_path):
    MetricsLog(tmp_path / "m.csv").write({"env_steps_sampled": 1, "a": 1.0, "b": 2.0})
    with (tmp_path / "m.csv").open("a") as file:
        file.write("2,1.")
    MetricsLog(tmp_path / "m.csv").write({"b": 4.0, "a": 3.0, "env_steps_sampled": 2})
    assert (tmp_path / "m.csv").read_text() == "env_steps_sampled,a,b\n1,1.0,2.0\n2,3.0,4.0\n"


def test_rewinding_drops_later_rows(tmp_path):
    log = MetricsLog(tmp_path / "m.csv")
    for step in (10, 20, 30):
        log.write({"env_steps_sampled": step})
    log.rewind(20)
    log.write({"env_steps_sampled": 25})
    assert read_metrics(tmp_path / "m.csv")["env_steps_sampled"].tolist() == [10, 20, 25]


def test_a_row_without_the_step_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="needs 'env_steps_sampled'"):
        MetricsLog(tmp_path / "m.csv").write({"loss": 1.0})


def test_tensorboard_shows_what_the_file_has(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = MetricsLog(tmp_path / "m.csv", tmp_path / "tb")
    for step in (10, 20, 30):
        log.write({"env_steps_sampled": step, "loss": step / 2, "later": math.nan if step < 30 else 1.0})
    log.rewind(20)
    log.write({"env_steps_sampled": 28, "loss": 14.0})
    log.close()
    events = EventAccumulator(str(tmp_path / "tb")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(10, 5.0), (20, 10.0), (28, 14.0)]
    assert not events.Scalars("later")


def test_without_tensorboardx_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "tensorboard_is_installed", lambda: False)
    with pytest.raises(ConfigError, match=re.escape(install_command("tensorboard"))):
        MetricsLog(tmp_path / "m.csv", tmp_path / "tb")
    MetricsLog(tmp_path / "m.csv")
