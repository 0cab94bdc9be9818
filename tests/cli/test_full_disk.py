"""A disk without room: errors say so, what is there is whole, and a training goes on or stops as is set."""

import subprocess
import sys
from pathlib import Path

import pytest

from rlweave.runs.checkpoint import latest_good, list_checkpoints
from rlweave.runs.metrics import MetricsLog, read_metrics
from rlweave.runs.whole_files import append_whole, write_whole

COUNTING = Path(__file__).with_name("counting.py")
#: Runs rlweave where no file may become larger than so many bytes.
LIMITED = """
import resource, runpy, sys
limit = int(sys.argv[1])
sys.dont_write_bytecode = True  # half a file would be found by the next process
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def limited(limit, tmp_path, code, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", code, str(limit), *map(str, arguments)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_checkpoint_that_the_disk_refuses_ends_a_command_with_the_last_good_one(tmp_path):
    script = """
import resource, sys
import numpy as np
from rlweave.runs.checkpoint import save_checkpoint
save_checkpoint("run", 1, {"x": np.ones(10)}, {})
sys.dont_write_bytecode = True  # half a file would be found by the next process
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
for large in ({}, {"large": {"y": np.random.default_rng(0).integers(1, 255, 100_000, dtype=np.uint8)}}):
    try:
        save_checkpoint("run", 2, {} if large else {"x": np.ones(100_000)}, {}, **large)
    except Exception as error:
        print(type(error).__name__, " ".join(str(error).split()))
"""
    code, out, err = limited(20_000, tmp_path, script)
    assert code == 0, err
    lines = out.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("CheckpointError could not write a checkpoint")
        assert "the last good checkpoint is run/step-000000000001" in line
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["step-000000000001"]


@pytest.mark.parametrize("events", [False, True], ids=["csv", "events"])
def test_a_row_of_metrics_is_there_wholly_or_not_at_all(tmp_path, events):
    script = """
import resource, sys
from rlweave.runs.metrics import MetricsLog
from rlweave.errors import CheckpointError
log = MetricsLog("metrics.csv", "events" if sys.argv[2] == "True" else None)
sys.dont_write_bytecode = True  # half a file would be found by the next process
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
written = 0
for step in range(1, 200):
    try:
        log.write({"env_steps_sampled": step, "loss": 1.0 / 3.0, "return": step / 7.0})
        written += 1
    except CheckpointError as error:
        print(written, " ".join(str(error).split()))
        break
"""
    code, out, err = limited(1_000, tmp_path, script, events)
    assert code == 0, err
    written, text = out.split(" ", 1)
    assert "a line of metrics could not be written" in text
    metrics = read_metrics(tmp_path / "metrics.csv")
    rows = len(metrics["loss"])
    assert rows - int(written) in ((0, 1) if events else (0,))
    assert (metrics["loss"] == 1.0 / 3.0).all()
    assert (tmp_path / "metrics.csv").read_bytes().endswith(b"\n")
    log = MetricsLog(tmp_path / "metrics.csv")
    log.write({"env_steps_sampled": 1_000, "loss": 0.5, "return": 0.0})
    assert read_metrics(tmp_path / "metrics.csv")["env_steps_sampled"][-1] == 1_000
    if events:
        loader = pytest.importorskip("tensorboardX.proto.event_pb2")
        (file,) = (tmp_path / "events").iterdir()
        assert file.stat().st_size <= 1_000
        content, found = file.read_bytes(), []
        while content:  # length, its checksum, the record, its checksum
            length = int.from_bytes(content[:8], "little")
            found.append(loader.Event.FromString(content[12 : 12 + length]))
            content = content[16 + length :]
        assert max(event.step for event in found) == int(written)


def test_a_training_goes_on_without_room_for_metrics(tmp_path):
    arguments = ["train", "counting", "--env", "CartPole-v1", "--run-dir", "run", "--set", "checkpoint_every=1000"]
    _, out, err = limited(2_000, tmp_path, LIMITED, COUNTING, *arguments, "--set", "report_every=1")
    assert "Traceback" not in err
    assert "a line of metrics could not be written" in out + err
    assert "the training goes on" in out + err
    assert latest_good(tmp_path / "run/checkpoints") == list_checkpoints(tmp_path / "run/checkpoints")[-1]


def test_whole_files(tmp_path, monkeypatch):
    path = tmp_path / "config.yaml"
    write_whole(path, "a: ü\n")
    append_whole(path, "b: 1\n")
    assert path.read_text(encoding="utf-8") == "a: ü\nb: 1\n"

    def refuse(self, content):
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "c: 2\n")
    assert [file.name for file in tmp_path.iterdir()] == ["config.yaml"]
    assert path.read_text(encoding="utf-8") == "a: ü\nb: 1\n"
