"""Ctrl-C in a real process: a checkpoint is saved, and the way to go on is said."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlweave.runs.checkpoint import latest_good, load_checkpoint
from rlweave.runs.metrics import read_metrics

COUNTING = Path(__file__).with_name("counting.py")


def start(tmp_path, *arguments):
    command = [sys.executable, COUNTING, "train", "counting", "--env", "CartPole-v1", "--run-dir", "run"]
    return subprocess.Popen(
        [*command, *arguments], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for_a_report(process):
    for line in process.stdout:
        if " steps/s" in line:
            return
    raise AssertionError(process.stderr.read())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_one_saves_and_says_how_to_resume(tmp_path, number):
    process = start(tmp_path, "--set", "pause=0.01", "--set", "report_every=20", "--steps", "1000000")
    wait_for_a_report(process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "rlweave resume run" in out
    _, meta = load_checkpoint(latest_good(tmp_path / "run/checkpoints"))
    assert meta["env_steps"] == read_metrics(tmp_path / "run/metrics.csv")["env_steps_sampled"][-1]
    assert (tmp_path / "run/learning-curve.png").exists()


def test_the_second_one_does_not_wait_for_the_report(tmp_path):
    process = start(tmp_path, "--set", "pause=0.01", "--set", "checkpoint_every=10", "--steps", "1000000")
    wait_for_a_report(process)
    # Both arrive while it cannot answer the first: it wakes up with two requests.
    process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "rlweave resume run" in out + err
    assert latest_good(tmp_path / "run/checkpoints") is not None
