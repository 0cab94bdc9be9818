"""`rlweave train --engine ray`: Ctrl-C saves, says how to go on, and leaves no process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlweave.algorithms.checkpoint import latest_good, load_checkpoint

pytestmark = pytest.mark.slow
SMALL = [
    "agent.network=[{type: dense, units: 8}]",
    "agent.acting_backend=numpy",
    "object_store_mb=80",
    "evaluate_every=0",
]


def descendants(pid: int) -> set[int]:
    """All processes that a process began, and those that they began."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:  # it ended meanwhile
                continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes as Linux shows them")
def test_ctrl_c_saves_and_leaves_no_process(tmp_path):
    pytest.importorskip("ray")
    command = [sys.executable, "-c", "from rlweave.cli import main; main()", "train", "ppo", "--env", "CartPole-v1"]
    command += ["--backend", "torch", "--engine", "ray", "--workers", "2", "--run-dir", "run", "--steps", "100000000"]
    command += [word for setting in SMALL for word in ("--set", setting)]
    root = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root, "PYTHONUNBUFFERED": "1"},
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
    names = [Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0] for pid in began]
    assert sum("ray::RayHost" in name for name in names) == 2
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "rlweave resume run" in out
    _, meta = load_checkpoint(latest_good(tmp_path / "run/checkpoints"))
    assert meta["env_steps"] > 0
    deadline = time.monotonic() + 15
    while (left := [pid for pid in began if Path(f"/proc/{pid}").exists()]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
