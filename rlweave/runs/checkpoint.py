"""Checkpoints: data only, written atomically, checked when read.

A checkpoint is a directory:

    step-000000050000/
        model/                the model, as `Agent.export_model` writes it: reading it needs nothing of the rest
        arrays.safetensors    weights, optimizer slots, counters, generator states, and other small arrays
        memory/, memory.json  large arrays, such as those of a replay memory: see `rlweave.runs.block_files`
        meta.json             everything else that is plain data
        manifest.json         format version, step, size and SHA-256 of all files, and of the manifest itself

It appears under its name only when it is complete on the disk, so a killed process leaves the last good one. Loading
never executes code. Several checkpoints of one run stand side by side in one directory; beside those named by their
step there may be others with names of their own, such as `best`.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from rlweave.agents.model_files import Model, read_model
from rlweave.errors import CheckpointError
from rlweave.runs.block_files import BLOCKS, INDEX, check_blocks, read_blocks, write_blocks
from rlweave.strict_json import to_json

FORMAT_VERSION = 1
ARRAYS, META, MANIFEST = "arrays.safetensors", "meta.json", "manifest.json"
#: Directory of the model.
MODEL = "model"

_STEP_PREFIX = "step-"
# Hidden names of directories that are being written, replaced or removed.
_TEMPORARY_PREFIX = ".rlweave-"
# Attempts at reading a checkpoint that a training replaces at the same time, and the seconds in between.
_LOOKS, _PAUSE = 100, 0.01
_DTYPES = frozenset(
    np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64"),
    )
)


def save_checkpoint(
    directory: str | os.PathLike[str],
    step: int,
    arrays: Mapping[str, np.ndarray],
    meta: Mapping[str, Any],
    *,
    large: Mapping[str, np.ndarray] | None = None,
    write_model: Callable[[Path], Any] | None = None,
    name: str | None = None,
    keep: int | None = None,
) -> Path:
    """Writes a checkpoint atomically.

    Args:
        directory: The directory of a run's checkpoints; made when missing.
        step: Training progress in environment steps; names and orders the checkpoints.
        arrays: Path key (`"dqn/policy/dense-0/kernel"`) to array of booleans, integers or floats, of any shape.
        meta: Plain data: None, bool, int (of any size), float, str, and lists and string-keyed dicts of them.
        large: Further arrays, of which later checkpoints in the same directory share what has not changed.
        write_model: Writes the model into the directory that it is given; None: the checkpoint has no model.
        name: A name instead of `step-...`, for one that must outlive the others (`"best"`). It replaces an earlier one.
        keep: How many of the newest `step-...` checkpoints stay; None keeps all.

    Returns:
        The path of the checkpoint.

    Raises:
        CheckpointError: For data that a checkpoint cannot hold, or when the disk refuses.
    """
    if name is not None and (not name or name.startswith((".", _STEP_PREFIX)) or Path(name).name != name):
        raise CheckpointError(
            "not a name for a checkpoint", received=repr(name), fix="use a plain word, such as 'best'"
        )
    if step < 0 or (keep is not None and keep < 1):
        raise CheckpointError("`step` must be at least 0 and `keep` at least 1", received=f"step={step}, keep={keep}")
    contiguous = {key: _storable(key, array) for key, array in arrays.items()}
    blocks = {key: _storable(key, array) for key, array in (large or {}).items()}
    _check_plain(meta, "meta")
    directory = Path(directory)
    final = directory / (name or f"{_STEP_PREFIX}{step:012d}")
    partial = directory / f"{_TEMPORARY_PREFIX}partial-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for leftover in directory.glob(f"{_TEMPORARY_PREFIX}*"):  # of a process that was killed; a run has one writer
            shutil.rmtree(leftover, ignore_errors=True)
        partial.mkdir()
        save_file(contiguous, partial / ARRAYS)
        (partial / META).write_text(to_json(meta, indent=1), encoding="utf-8")
        if blocks:
            write_blocks(partial, blocks, _newest(directory))
        if write_model is not None:
            write_model(partial / MODEL)
        files_of_blocks = partial / BLOCKS  # their blocks have checksums of their own
        written = sorted(path for path in partial.rglob("*") if path.is_file() and path.parent != files_of_blocks)
        files = {
            path.relative_to(partial).as_posix(): {"bytes": path.stat().st_size, "sha256": _sha256(path)}
            for path in written
        }
        manifest = {"format": "rlweave-checkpoint", "version": FORMAT_VERSION, "step": step, "files": files}
        manifest["sha256"] = _manifest_sha256(manifest)
        (partial / MANIFEST).write_text(to_json(manifest, indent=1), encoding="utf-8")
        for path in (*sorted(partial.rglob("*"), reverse=True), partial):
            if path.parent != files_of_blocks or path.stat().st_nlink == 1:  # others are on the disk
                _flush_to_disk(path)
        _move_into_place(partial, final)
        _flush_to_disk(directory)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            "could not write a checkpoint", where=str(final), received=str(error), fix=_last_good_hint(directory, final)
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    if keep is not None:
        for old in [path for path in list_checkpoints(directory) if path != final][: -(keep - 1) or None]:
            _remove(old)
    return final


def load_checkpoint(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Reads a checkpoint after checking all of it.

    Args:
        path: The directory of one checkpoint.

    Returns:
        The arrays by path key, the large ones among them, with their dtypes and shapes, and the plain data.

    Raises:
        CheckpointError: When it is missing, damaged, or of a newer format. The error names the damaged file and the
            last good checkpoint beside it.
    """
    path = Path(path)
    _refuse_fault(path, lambda file: file != BLOCKS)  # which are checked when they are read
    arrays = load_file(path / ARRAYS)
    if (path / INDEX).exists():
        try:
            arrays |= read_blocks(path)
        except (OSError, ValueError):
            _refuse_fault(path)
            raise
    meta = json.loads((path / META).read_text(encoding="utf-8"))
    return arrays, meta


def open_model(path: str | os.PathLike[str]) -> tuple[Path, dict[str, Any]]:
    """Finds the model of a checkpoint, and checks only that: nothing else is read.

    Returns:
        The directory of the model, and the plain data of the checkpoint.

    Raises:
        CheckpointError: As `load_checkpoint`; or the checkpoint has no model.
    """
    path = Path(path)
    _refuse_fault(path, lambda file: file == META or file.startswith(f"{MODEL}/"))
    if not (path / MODEL).is_dir():
        raise CheckpointError("the checkpoint has no model", where=str(path), fix="train anew, and save again")
    return path / MODEL, json.loads((path / META).read_text(encoding="utf-8"))


def read_checkpoint_model(path: str | os.PathLike[str]) -> Model:
    """Reads the model of a checkpoint; all of one, also where a training replaces the checkpoint meanwhile.

    Raises:
        CheckpointError: As `open_model`.
    """
    path = Path(path)
    for _ in range(_LOOKS - 1):
        is_there(path)  # a replacement takes a moment
        before = _identity(path)
        try:
            model = read_model(open_model(path)[0])
        except CheckpointError:
            if before is None or _identity(path) == before:
                raise
        else:
            if _identity(path) == before:
                return model
    return read_model(open_model(path)[0])


def is_there(path: Path) -> bool:
    """Whether there is a checkpoint, also one that is just being replaced."""
    for _ in range(_LOOKS):
        if path.is_dir():
            return True
        if not any(path.parent.glob(f"{_TEMPORARY_PREFIX}replaced-{path.name}-*")):
            break
        time.sleep(_PAUSE)
    return path.is_dir()


def _identity(path: Path) -> tuple[int, int] | None:
    """The identity of a directory, which its replacement does not have; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def list_checkpoints(directory: str | os.PathLike[str]) -> list[Path]:
    """The checkpoints named by their step, oldest first, unchecked; named ones such as `best` are not among them."""
    directory = Path(directory)
    if not directory.is_dir():
        return []
    found = [
        path
        for path in directory.iterdir()
        if path.name.startswith(_STEP_PREFIX) and path.name[len(_STEP_PREFIX) :].isdigit() and path.is_dir()
    ]
    return sorted(found, key=lambda path: int(path.name[len(_STEP_PREFIX) :]))


def latest_good(directory: str | os.PathLike[str]) -> Path | None:
    """The newest checkpoint named by its step that is undamaged, or None."""
    return next((path for path in reversed(list_checkpoints(directory)) if _find_fault(path) is None), None)


def set_aside_newer(directory: str | os.PathLike[str], step: int) -> list[Path]:
    """Moves the checkpoints after a step into `set-aside/`: a training resumed from that step writes them again.

    Args:
        directory: The directory of a run's checkpoints.
        step: The step from which the training resumes.

    Returns:
        Where they are now.
    """
    moved = []
    for path in list_checkpoints(directory):
        if int(path.name[len(_STEP_PREFIX) :]) > step:
            aside = path.parent / "set-aside" / f"{path.name}-{secrets.token_hex(4)}"
            aside.parent.mkdir(exist_ok=True)
            moved.append(path.rename(aside))
    return moved


def find_checkpoint(path: str | os.PathLike[str]) -> Path:
    """The checkpoint at a path that a user gives.

    Args:
        path: A checkpoint, a directory of checkpoints, or a run directory (with `checkpoints/` in it).

    Returns:
        That checkpoint, or the newest good one of the directory.

    Raises:
        CheckpointError: When there is none.
    """
    path = Path(path)
    if (path / MANIFEST).exists() or path.name.startswith(_STEP_PREFIX):
        return path
    directory = path / "checkpoints" if (path / "checkpoints").is_dir() else path
    found = latest_good(directory)
    if found is None:
        damaged = list_checkpoints(directory)
        raise CheckpointError(
            "all checkpoints there are damaged" if damaged else "no checkpoint there",
            where=str(directory),
            received=", ".join(file.name for file in damaged),
            fix="give the path of a run directory or of a checkpoint",
        )
    return found


def _storable(key: str, array: np.ndarray) -> np.ndarray:
    """The array in a form that safetensors writes right: it takes the raw buffer, so order and byte order matter."""
    array = np.asarray(array)
    if not isinstance(key, str) or key == "__metadata__":
        raise CheckpointError("not a key for an array in a checkpoint", received=repr(key), fix="use a path, a string")
    dtype = array.dtype.newbyteorder("=")
    if dtype not in _DTYPES:
        raise CheckpointError(
            "a checkpoint cannot hold arrays of this dtype",
            where=key,
            received=str(array.dtype),
            fix="convert it to a boolean, integer or float array, or put it into `meta` as plain data",
        )
    return np.asarray(array, dtype=dtype, order="C")


def _check_plain(value: Any, where: str) -> None:
    """Refuses data that JSON would change silently: tuples become lists, and keys become strings."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise CheckpointError("keys must be strings in a checkpoint", where=where, received=repr(key))
            _check_plain(item, f"{where}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_plain(item, f"{where}[{index}]")
    elif type(value) not in (type(None), bool, int, float, str):
        raise CheckpointError(
            "a checkpoint holds plain data only",
            where=where,
            received=f"{value!r:.80} (of type {type(value).__name__})",
            fix="convert it to numbers, strings, lists and dicts, or put it into `arrays`",
        )
    elif isinstance(value, float) and not math.isfinite(value):
        raise CheckpointError("plain data has no number like this", where=where, received=str(value), fix="use None")


def _move_into_place(partial: Path, final: Path) -> None:
    if not final.exists():
        partial.rename(final)
        return
    # A directory that is not empty cannot be renamed over: the old one is moved away first. A crash between the two
    # renames leaves both complete under hidden names, and the older checkpoints unchanged.
    aside = final.with_name(f"{_TEMPORARY_PREFIX}replaced-{final.name}-{secrets.token_hex(4)}")
    final.rename(aside)
    partial.rename(final)
    shutil.rmtree(aside, ignore_errors=True)


def _remove(path: Path) -> None:
    aside = path.with_name(f"{_TEMPORARY_PREFIX}removed-{path.name}-{secrets.token_hex(4)}")
    path.rename(aside)  # first, so that no half-removed checkpoint is visible
    shutil.rmtree(aside, ignore_errors=True)


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _manifest_sha256(manifest: Mapping[str, Any]) -> str:
    without = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(to_json(without, sort_keys=True).encode()).hexdigest()


def _refuse_fault(path: Path, concerns: Callable[[str], bool] = lambda file: True) -> None:
    if not path.is_dir():
        raise CheckpointError("no checkpoint there", where=str(path), fix=_last_good_hint(path.parent, path))
    fault = _find_fault(path, concerns)
    if fault is not None:
        file, how = fault
        raise CheckpointError(
            "the checkpoint cannot be used",
            where=str(path / file),
            received=how,
            fix=_last_good_hint(path.parent, path),
        )


def _find_fault(path: Path, concerns: Callable[[str], bool] = lambda file: True) -> tuple[str, str] | None:
    """The file that makes a checkpoint unusable, and its fault; None if there is none.

    Args:
        path: The checkpoint.
        concerns: Whether a file (by its path within) is checked.
    """
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if manifest["sha256"] != _manifest_sha256(manifest):
            return MANIFEST, "its checksum is wrong"
        if manifest["version"] > FORMAT_VERSION:
            newer = f"format {manifest['version']} of a newer rlweave; this one reads up to {FORMAT_VERSION}"
            return MANIFEST, newer
        files = manifest["files"]
    except FileNotFoundError:
        return MANIFEST, "it is missing"
    except (OSError, ValueError, KeyError, TypeError):
        return MANIFEST, "it is truncated or not a manifest"
    for file, expected in files.items():
        if not concerns(file):
            continue
        try:
            size = (path / file).stat().st_size
            if size != expected["bytes"]:
                return file, f"it has {size} bytes instead of {expected['bytes']}"
            if _sha256(path / file) != expected["sha256"]:
                return file, "its checksum is wrong"
        except FileNotFoundError:
            return file, "it is missing"
        except OSError as error:
            return file, f"it cannot be read: {error}"
    if INDEX in files and concerns(BLOCKS):
        try:
            check_blocks(path)
        except (OSError, ValueError) as error:
            return BLOCKS, str(error)
    return None


def _newest(directory: Path) -> Path | None:
    """The checkpoint that was written last, of those named by their step."""
    return max(list_checkpoints(directory), key=lambda path: path.stat().st_mtime_ns, default=None)


def _last_good_hint(directory: Path, bad: Path) -> str:
    for path in reversed(list_checkpoints(directory)):
        if path != bad and _find_fault(path) is None:
            return f"the last good checkpoint is {path}"
    return f"there is no good checkpoint in {directory}"
