"""Checkpoints: round trips, damage of every kind, atomicity, retention."""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from rlweave.errors import CheckpointError
from rlweave.runs import checkpoint
from rlweave.runs.checkpoint import (
    ARRAYS,
    MANIFEST,
    META,
    find_checkpoint,
    latest_good,
    list_checkpoints,
    load_checkpoint,
    save_checkpoint,
)

ARRAY_CASES = {
    "agent/policy/dense-0/kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
    "memory/sum-tree": np.array([0.1, 1e-300, np.inf, np.nan]),
    "memory/frames": np.arange(256, dtype=np.uint8).reshape(4, 8, 8),
    "memory/terminated": np.array([True, False]),
    "counter": np.array(7, dtype=np.int64),
    "empty": np.zeros((0, 3), dtype=np.float32),
    "key with / slashes and ü": np.int32(-3),
    "half": np.array([1.5], dtype=np.float16),
    "big": np.array([2**63 + 1], dtype=np.uint64),
    # These three lie in memory in another order than they read.
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "transposed": np.arange(12).reshape(3, 4).T[::2],
    "big-endian": np.arange(4, dtype=">f4"),
}
META_CASES = {
    "rng": {"state": 2**127 + 1, "name": "PCG64", "words": [1, 2, 3]},
    "step": 3,
    "lr": 0.1 + 0.2,
    "none": None,
    "flag": True,
    "text": "ü\n",
    "empty": {},
    "list": [[], {"a": []}],
}


def save(directory, step=1, **options):
    return save_checkpoint(directory, step, {"x": np.full(100, step)}, {"step": step}, **options)


def step_of_whole(path):
    """The step of a checkpoint; an error if any byte of it is damaged."""
    load_checkpoint(path)
    return json.loads((path / MANIFEST).read_text())["step"]


def test_arrays_and_plain_data_round_trip(tmp_path):
    path = save_checkpoint(tmp_path, 12, ARRAY_CASES, META_CASES)
    arrays, meta = load_checkpoint(path)
    assert meta == META_CASES
    assert set(arrays) == set(ARRAY_CASES)
    for key, expected in ARRAY_CASES.items():
        assert arrays[key].shape == np.shape(expected), key
        assert arrays[key].dtype == np.asarray(expected).dtype.newbyteorder("="), key
        np.testing.assert_array_equal(arrays[key], expected, err_msg=key)
        assert arrays[key].flags.writeable
    assert step_of_whole(path) == 12


def test_no_arrays_at_all_round_trip(tmp_path):
    assert load_checkpoint(save_checkpoint(tmp_path, 0, {}, {})) == ({}, {})


def test_loaded_arrays_do_not_depend_on_the_file(tmp_path):
    path = save(tmp_path, 5)
    arrays, _ = load_checkpoint(path)
    (path / ARRAYS).write_bytes(b"\0" * (path / ARRAYS).stat().st_size)
    np.testing.assert_array_equal(arrays["x"], np.full(100, 5))


@pytest.mark.parametrize("file", [ARRAYS, META, MANIFEST])
@pytest.mark.parametrize("damage", ["half written", "one byte short", "bit flipped", "empty", "missing", "grown"])
def test_damage_names_the_file_and_the_last_good_checkpoint(tmp_path, file, damage):
    good, bad = save(tmp_path, 100), save(tmp_path, 200)
    content = bytearray((bad / file).read_bytes())
    if damage == "half written":
        content = content[: len(content) // 2]
    elif damage == "one byte short":
        content = content[:-1]
    elif damage == "bit flipped":
        content[len(content) // 2] ^= 1
    elif damage == "empty":
        content = bytearray()
    elif damage == "grown":
        content += b"0"
    (bad / file).write_bytes(content)
    if damage == "missing":
        (bad / file).unlink()
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(bad)
    assert str(bad / file) in str(error.value)
    assert f"the last good checkpoint is {good}" in str(error.value)
    assert latest_good(tmp_path) == good
    np.testing.assert_array_equal(load_checkpoint(good)[0]["x"], np.full(100, 100))


@pytest.mark.parametrize("file", [ARRAYS, META, MANIFEST])
def test_every_flipped_bit_is_noticed(tmp_path, file):
    path = save(tmp_path, 1)
    content = (path / file).read_bytes()
    for position in range(0, len(content), max(1, len(content) // 40)):
        flipped = bytearray(content)
        flipped[position] ^= 1 << (position % 8)
        (path / file).write_bytes(flipped)
        with pytest.raises(CheckpointError):
            load_checkpoint(path)
    (path / file).write_bytes(content)
    load_checkpoint(path)


def test_the_last_good_one_is_the_newest_undamaged(tmp_path):
    paths = [save(tmp_path, step) for step in (9, 10, 1000, 200)]
    assert list_checkpoints(tmp_path) == [paths[0], paths[1], paths[3], paths[2]]
    assert latest_good(tmp_path) == paths[2]
    (paths[2] / META).unlink()
    (paths[3] / ARRAYS).write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"step-000000000010$"):
        load_checkpoint(paths[2])


def test_nothing_good_left_is_said(tmp_path):
    path = save(tmp_path, 1)
    (path / META).unlink()
    with pytest.raises(CheckpointError, match="there is no good checkpoint in"):
        load_checkpoint(path)
    assert latest_good(tmp_path) is None
    with pytest.raises(CheckpointError, match="all checkpoints there are damaged"):
        find_checkpoint(tmp_path)


def test_a_write_that_fails_midway_leaves_what_was_there(tmp_path, monkeypatch):
    good = save(tmp_path, 1)

    def full_disk(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "_flush_to_disk", full_disk)
    with pytest.raises(CheckpointError, match=r"(?s)No space left on device.*the last good checkpoint is"):
        save(tmp_path, 2)
    assert [path.name for path in tmp_path.iterdir()] == [good.name]


def test_a_killed_writer_leaves_no_checkpoint_and_its_rest_is_swept_away(tmp_path):
    good = save(tmp_path, 1)
    script = (
        "import os, sys, numpy as np\n"
        "from rlweave.runs import checkpoint\n"
        "checkpoint._move_into_place = lambda partial, final: os._exit(9)\n"
        "checkpoint.save_checkpoint(sys.argv[1], 2, {'x': np.ones(9)}, {})\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert done.returncode == 9
    assert len(list(tmp_path.iterdir())) == 2
    assert list_checkpoints(tmp_path) == [good]
    assert latest_good(tmp_path) == good
    newer = save(tmp_path, 3)
    assert sorted(tmp_path.iterdir()) == [good, newer]


def test_the_same_step_and_the_same_name_are_replaced(tmp_path):
    save(tmp_path, 5)
    save_checkpoint(tmp_path, 5, {"x": np.zeros(1)}, {})
    save_checkpoint(tmp_path, 5, {"x": np.ones(1)}, {}, name="best")
    best = save_checkpoint(tmp_path, 6, {"x": np.full(1, 2.0)}, {}, name="best")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best", "step-000000000005"]
    assert load_checkpoint(latest_good(tmp_path))[0]["x"] == 0.0
    assert load_checkpoint(best)[0]["x"] == 2.0
    assert step_of_whole(best) == 6


def test_retention_keeps_the_newest_and_the_named_ones(tmp_path):
    save(tmp_path, 1, name="best")
    for step in (10, 20, 30, 40):
        save(tmp_path, step, keep=2)
    assert [step_of_whole(path) for path in list_checkpoints(tmp_path)] == [30, 40]
    save(tmp_path, 50, keep=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best", "step-000000000050"]
    # One that was just written stays, even behind newer ones (a resume from an older checkpoint).
    older = save(tmp_path, 45, keep=1)
    assert list_checkpoints(tmp_path) == [older]


def test_find_checkpoint_takes_a_run_a_directory_or_a_checkpoint(tmp_path):
    path = save(tmp_path / "checkpoints", 3)
    best = save(tmp_path / "checkpoints", 2, name="best")
    assert find_checkpoint(tmp_path) == path
    assert find_checkpoint(tmp_path / "checkpoints") == path
    assert find_checkpoint(path) == path
    assert find_checkpoint(best) == best
    with pytest.raises(CheckpointError, match="no checkpoint there"):
        find_checkpoint(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="no checkpoint there"):
        load_checkpoint(tmp_path / "elsewhere")


def test_a_newer_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "FORMAT_VERSION", 2)
    path = save(tmp_path, 1)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="of a newer rlweave"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("arrays", "meta", "text"),
    [
        ({"x": np.array(["a"])}, {}, "x\n"),
        ({"x": np.array([None])}, {}, "object"),
        ({"x": np.ones(2, complex)}, {}, "complex128"),
        ({3: np.ones(2)}, {}, "not a key"),
        ({}, {"a": {"b": (1, 2)}}, "meta.a.b"),
        ({}, {"a": [1, {3: 4}]}, r"meta.a\[1\]"),
        ({}, {"a": np.float32(1)}, "float32"),
        ({}, {"a": object()}, "plain data only"),
    ],
)
def test_what_a_checkpoint_cannot_hold_is_refused_before_anything_is_written(tmp_path, arrays, meta, text):
    with pytest.raises(CheckpointError, match=text):
        save_checkpoint(tmp_path / "new", 1, arrays, meta)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["", "../best", "a/b", ".hidden", "step-3"])
def test_names_that_would_leave_the_directory_or_clash_are_refused(tmp_path, name):
    with pytest.raises(CheckpointError, match="not a name"):
        save(tmp_path, 1, name=name)


def test_nothing_in_it_is_pickled_or_executed(tmp_path):
    path = save_checkpoint(tmp_path, 12, ARRAY_CASES, META_CASES)
    assert sorted(os.listdir(path)) == sorted([ARRAYS, META, MANIFEST])
    json.loads((path / META).read_text())
    for file in (ARRAYS, META, MANIFEST):
        with pytest.raises(Exception):  # noqa: B017
            pickle.loads((path / file).read_bytes())  # noqa: S301
