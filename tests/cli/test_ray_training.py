"""`rlweave train --engine ray`: Ctrl-C saves and says how to go on; nothing that ends it leaves a process."""

import csv
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rlweave.runs.checkpoint import latest_good, load_checkpoint
from tests.processes import command_of, descendants, gone_within

pytestmark = pytest.mark.slow
SMALL = [
    "agent.network=[{type: dense, units: 8}]",
    "agent.acting_backend=numpy",
    "object_store_mb=80",
    "evaluate_every=0",
    "agent.epochs=1",
]


def train_command(*settings):
    """The command of a small training on Ray in the directory `run`."""
    command = [sys.executable, "-c", "from rlweave.cli import main; main()", "train", "ppo", "--env", "CartPole-v1"]
    command += ["--backend", "torch", "--engine", "ray", "--workers", "2", "--run-dir", "run", "--steps", "100000000"]
    return command + [word for setting in [*SMALL, *settings] for word in ("--set", setting)]


def environment():
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONUNBUFFERED": "1"}


@pytest.fixture(scope="session")
def gone_in_time():
    """Says of processes that they have to be gone within some seconds; other tests run while that is looked at.

    Ray's agents try for a minute to tell their head that it is gone, a number that no setting changes.
    """
    with ThreadPoolExecutor() as pool:
        looks = []
        yield lambda pids, seconds: looks.append(pool.submit(gone_within, pids, seconds))
        left = [pid for look in looks for pid in look.result()]
    assert not left, "Ray's own processes end with the driver, too"


@pytest.mark.long(minutes=0.5)
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes as Linux shows them")
def test_a_driver_that_is_killed_leaves_no_process_and_resumes_from_its_last_checkpoint(tmp_path, gone_in_time):
    """What is lost is what came after the last checkpoint; counters go on from there, and none is off by a step."""
    pytest.importorskip("ray")
    process = subprocess.Popen(
        train_command("checkpoint_every=2048", "report_every=1024", "final_episodes=2"),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    checkpoints = tmp_path / "run/checkpoints"
    deadline = time.monotonic() + 240
    while latest_good(checkpoints) is None and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.1)
    began = descendants(process.pid)
    workers = [pid for pid in began if "ray::RayHost" in command_of(pid)]
    assert len(workers) == 2
    process.kill()
    process.wait()
    gone_in_time(began, 90.0)
    assert not gone_within(workers, 20.0), "workers end with their driver"
    saved = latest_good(checkpoints)
    _, before = load_checkpoint(saved)
    goal = before["env_steps"] + 2_048
    resume = [sys.executable, "-c", "from rlweave.cli import main; main()", "resume", "run", "--steps", str(goal)]
    done = subprocess.run(resume, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert f"at {before['env_steps']:,} environment steps" in done.stdout
    _, after = load_checkpoint(latest_good(checkpoints))
    counters = after["plan"]["counters"]
    assert after["env_steps"] == counters["env_steps_sampled"] == after["agent"]["env_steps"] >= goal
    earlier = before["plan"]["counters"]
    for name in ("updates", "trained_samples", "gradient_steps"):
        assert counters[name] / earlier[name] == counters["env_steps_sampled"] / earlier["env_steps_sampled"], name
    with (tmp_path / "run/metrics.csv").open() as file:
        steps = [int(float(row["env_steps_sampled"])) for row in csv.DictReader(file)]
    assert steps == sorted(set(steps)), "no line stands twice"


@pytest.mark.long(minutes=0.5)
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes as Linux shows them")
def test_ctrl_c_saves_and_leaves_no_process(tmp_path):
    pytest.importorskip("ray")
    process = subprocess.Popen(
        train_command(),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for line in process.stdout:
        if " steps/s" in line:
            break
    else:
        raise AssertionError(process.stderr.read())
    began = descendants(process.pid)
    assert sum("ray::RayHost" in command_of(pid) for pid in began) == 2
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "rlweave resume run" in out
    _, meta = load_checkpoint(latest_good(tmp_path / "run/checkpoints"))
    assert meta["env_steps"] > 0
    assert not gone_within(began, 15.0)
