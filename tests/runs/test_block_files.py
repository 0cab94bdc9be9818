"""Large arrays of checkpoints: only what is filled, once for all checkpoints, compressed where it pays, checked."""

import shutil

import numpy as np
import pytest

from rlweave.errors import CheckpointError
from rlweave.runs import block_files
from rlweave.runs.checkpoint import latest_good, list_checkpoints, load_checkpoint, save_checkpoint

ROWS, CAPACITY = 1024, 16_384


def sizes(directory):
    """Bytes of all files below, each counted once however many links it has."""
    files = {file.stat().st_ino: file.stat() for file in directory.rglob("*") if file.is_file()}
    return sum(stat.st_size for stat in files.values())


@pytest.fixture
def ring(monkeypatch):
    """A memory of numbers that cannot be compressed; blocks have 32 KiB."""
    monkeypatch.setattr(block_files, "_BLOCK_BYTES", 32 * ROWS)
    return np.zeros((CAPACITY, 32), np.uint8)


def fill(ring, first, count, seed=0):
    slots = np.arange(first, first + count) % len(ring)
    ring[slots] = np.random.default_rng((seed, first)).integers(1, 256, (count, 32), dtype=np.uint8)


def save(directory, step, ring, **options):
    return save_checkpoint(directory, step, {"x": np.ones(3)}, {"step": step}, large={"memory/ring": ring}, **options)


CASES = {
    "bools": np.arange(5_000) % 3 == 0,
    "signed zeros": np.array([0.0, -0.0] * 700),
    "wide": np.random.default_rng(0).normal(size=(70, 3, 5)).astype(np.float32),
    "zeros": np.zeros((9, 1000), np.int64),
    "odd bytes": np.arange(7, dtype=np.uint8) * 0 + 1,
    "no rows": np.zeros((0, 4), np.float64),
    "transposed": np.arange(12_000.0).reshape(3, 4_000).T,
}


def test_large_arrays_round_trip_bit_for_bit(tmp_path, monkeypatch):
    monkeypatch.setattr(block_files, "_BLOCK_BYTES", 1000)
    for step in (1, 2):
        arrays, _ = load_checkpoint(save_checkpoint(tmp_path, step, {}, {}, large=CASES))
        assert arrays.keys() == CASES.keys()
        for name, expected in CASES.items():
            assert arrays[name].dtype == expected.dtype, name
            assert arrays[name].tobytes() == expected.tobytes(), name
            assert arrays[name].flags.writeable


def test_only_what_is_filled_is_written_and_only_once_for_all_checkpoints(tmp_path, ring):
    filled = []
    for step in range(1, 5):
        fill(ring, (step - 1) * 2_000, 2_000)
        save(tmp_path, step, ring)
        filled.append(sizes(tmp_path))
    block, overhead = 32 * ROWS, 8_000
    for step, size in enumerate(filled, 1):
        # the last block of each checkpoint was not full yet
        assert step * 2_000 * 32 <= size <= step * (2_000 * 32 + overhead) + step * block
    assert filled[-1] < 2 * CAPACITY * 32, "four whole copies would be larger"
    for path in list_checkpoints(tmp_path):
        np.testing.assert_array_equal(
            load_checkpoint(path)[0]["memory/ring"][: path_step(path) * 2_000].min() > 0, True
        )


def path_step(path):
    return int(path.name.removeprefix("step-"))


def test_what_no_checkpoint_needs_goes_and_each_stays_whole_by_itself(tmp_path, ring):
    for step in range(1, 60):
        fill(ring, (step - 1) * 1_500, 1_500)
        path = save(tmp_path, step, ring, keep=2)
        assert len(list((path / block_files.BLOCKS).iterdir())) <= block_files._MOST_FILES + 1
    assert sizes(tmp_path) < 3 * CAPACITY * 32, "the ring was written more than five times"
    expected = ring.copy()
    alone = tmp_path / "alone" / path.name
    shutil.copytree(path, alone)
    for other in list_checkpoints(tmp_path):
        shutil.rmtree(other)
    np.testing.assert_array_equal(load_checkpoint(alone)[0]["memory/ring"], expected)


def test_frames_are_compressed(tmp_path):
    frames = np.zeros((200, 84, 84), np.uint8)
    frames[:, 20:40, 30:35] = np.arange(200, dtype=np.uint8)[:, None, None]
    frames[:, 0] = 7
    path = save(tmp_path, 1, frames)
    assert sizes(path) < frames.nbytes / 10
    np.testing.assert_array_equal(load_checkpoint(path)[0]["memory/ring"], frames)


@pytest.mark.parametrize("damage", ["bit flipped", "cut short", "missing"])
def test_a_damaged_block_is_noticed_and_named(tmp_path, ring, damage):
    fill(ring, 0, 3_000)
    good = save(tmp_path, 1, ring)
    fill(ring, 3_000, 3_000)
    bad = save(tmp_path, 2, ring)
    (file,) = {file.name for file in (bad / "memory").iterdir()} - {file.name for file in (good / "memory").iterdir()}
    content = bytearray((bad / "memory" / file).read_bytes())
    if damage == "missing":
        (bad / "memory" / file).unlink()
    else:
        content[len(content) // 2] ^= 1
        (bad / "memory" / file).write_bytes(content if damage == "bit flipped" else content[:-1])
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(bad)
    assert file in str(error.value)
    assert f"the last good checkpoint is {good}" in str(error.value)
    assert latest_good(tmp_path) == good


def test_where_files_cannot_be_linked_they_are_copied(tmp_path, ring, monkeypatch):
    def refuse(*paths):
        raise OSError("no links here")

    monkeypatch.setattr(block_files.os, "link", refuse)
    for step in (1, 2):
        fill(ring, (step - 1) * 3_000, 3_000)
        save(tmp_path, step, ring, keep=1)
    np.testing.assert_array_equal(load_checkpoint(latest_good(tmp_path))[0]["memory/ring"], ring)
