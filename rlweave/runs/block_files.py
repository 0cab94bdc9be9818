"""Large arrays of checkpoints as blocks, which checkpoints of one run share: a replay memory mostly stays as it was.

Rows of an array that lie together are a block, known by its SHA-256. Blocks of zeros, which are not filled yet, are not
written; of the others only those that no earlier checkpoint has, one file for each checkpoint. A checkpoint has (hard)
links in `memory/` to all files with its blocks, and lists in `memory.json` where each block is. So it is complete by
itself, and a file disappears with the last checkpoint that links to it.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
import secrets
import shutil
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlweave.strict_json import to_json

#: Their paths in a checkpoint.
BLOCKS, INDEX = "memory", "memory.json"

_BLOCK_BYTES = 1 << 20
_PROBE_BYTES = 1 << 16
#: Share of its size below which a block is kept compressed.
_WORTH_IT = 0.8
#: Files that a checkpoint links to, at most; the blocks of the smallest are written again.
_MOST_FILES = 24
_THREADS = 4

Place = tuple[str, int, int, bool]
"""File, offset and bytes of a block, and whether it is compressed."""


def write_blocks(directory: Path, arrays: Mapping[str, np.ndarray], earlier: Path | None) -> None:
    """Writes arrays into a checkpoint.

    Args:
        directory: The checkpoint, which is being written.
        arrays: Path to array; they must not change meanwhile.
        earlier: A checkpoint whose blocks need not be written again.

    Raises:
        OSError: The disk refuses.
    """
    folder = directory / BLOCKS
    folder.mkdir()
    entries: dict[str, dict[str, Any]] = {}
    wanted: dict[str, tuple[str, int]] = {}
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as threads:
        for path, array in arrays.items():
            rows = max(1, _BLOCK_BYTES // max(array[:1].nbytes, 1))
            digests = list(threads.map(_digest, (array[row : row + rows] for row in range(0, len(array), rows))))
            entries[path] = {"dtype": array.dtype.str, "shape": list(array.shape), "rows": rows, "blocks": digests}
            wanted |= {digest: (path, number * rows) for number, digest in enumerate(digests) if digest is not None}
        places = _still_good(earlier, wanted)
        for name in sorted({place[0] for place in places.values()}):
            assert earlier is not None
            _link(earlier / BLOCKS / name, folder / name)
        new = [digest for digest in wanted if digest not in places]
        if new:
            name = f"{secrets.token_hex(8)}.blocks"
            blocks = (arrays[path][row : row + entries[path]["rows"]] for path, row in map(wanted.__getitem__, new))
            with (folder / name).open("wb") as file:
                for digest, (content, compressed) in zip(new, threads.map(_packed, blocks), strict=True):
                    places[digest] = name, file.tell(), len(content), compressed
                    file.write(content)
    index = {"arrays": entries, "blocks": {digest: list(place) for digest, place in places.items()}}
    (directory / INDEX).write_text(to_json(index), encoding="utf-8")


def read_blocks(directory: Path) -> dict[str, np.ndarray]:
    """The arrays that `write_blocks` wrote, checked.

    Raises:
        OSError: A file is missing, or cannot be read.
        ValueError: A block is damaged; names its file.
    """
    index = _read_index(directory)
    arrays: dict[str, np.ndarray] = {}
    for path, entry in index["arrays"].items():
        array = np.zeros(entry["shape"], np.dtype(entry["dtype"]))
        for number, digest in enumerate(entry["blocks"]):
            if digest is not None:
                rows = array[number * entry["rows"] : (number + 1) * entry["rows"]]
                content = _read_block(directory, digest, index["blocks"][digest])
                rows[...] = np.frombuffer(content, array.dtype).reshape(rows.shape)
        arrays[path] = array
    return arrays


def check_blocks(directory: Path) -> None:
    """Checks every block without keeping it; raises what `read_blocks` does."""
    for digest, place in _read_index(directory)["blocks"].items():
        _read_block(directory, digest, place)


def _files(directory: Path) -> Iterator[Path]:
    return (directory / BLOCKS).glob("*.blocks")


def _read_index(directory: Path) -> dict[str, Any]:
    index: dict[str, Any] = json.loads((directory / INDEX).read_text(encoding="utf-8"))
    return index


def _read_block(directory: Path, digest: str, place: Any) -> bytes:
    name, offset, length, compressed = place
    file = directory / BLOCKS / name
    with file.open("rb") as stream:
        stream.seek(offset)
        content = stream.read(length)
    try:
        plain = zlib.decompress(content) if compressed else content
    except zlib.error:
        plain = b""
    if hashlib.sha256(plain).hexdigest() != digest:
        raise ValueError(f"{BLOCKS}/{name}: the block at byte {offset} is damaged")
    return plain


def _bytes_of(rows: np.ndarray) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(rows).reshape(-1).view(np.uint8)


def _digest(rows: np.ndarray) -> str | None:
    """The SHA-256 of a block; None where it holds nothing but zeros."""
    content = _bytes_of(rows)
    whole = content[: len(content) // 8 * 8].view(np.uint64)
    if not (content[:64].any() or whole.any() or content[len(whole) * 8 :].any()):
        return None
    return hashlib.sha256(content.data).hexdigest()


def _packed(rows: np.ndarray) -> tuple[bytes | memoryview, bool]:
    """The bytes of a block, and whether they are compressed: images are, random-looking numbers are not."""
    content = _bytes_of(rows).data
    probe = content[:_PROBE_BYTES]
    if len(zlib.compress(probe, 1)) < _WORTH_IT * len(probe):
        smaller = zlib.compress(content, 1)
        if len(smaller) < _WORTH_IT * len(content):
            return smaller, True
    return content, False


def _still_good(earlier: Path | None, wanted: Mapping[str, Any]) -> dict[str, Place]:
    """Places of blocks in an earlier checkpoint that can be used again.

    Files that consist mostly of blocks no longer in use are left alone, and all but the largest if there are
    many: their blocks are written again, so that neither dead blocks nor files pile up.
    """
    if earlier is None:
        return {}
    try:
        blocks = _read_index(earlier)["blocks"]
        sizes = {file.name: file.stat().st_size for file in _files(earlier)}
    except (OSError, ValueError, KeyError):
        return {}
    known = {digest: tuple(blocks[digest]) for digest in wanted if digest in blocks}
    live = dict.fromkeys(sizes, 0)
    for name, offset, length, _ in known.values():
        if name in live and offset + length <= sizes[name]:
            live[name] += length
    kept = sorted((name for name in live if live[name] * 2 >= sizes[name] > 0), key=live.__getitem__)[-_MOST_FILES:]
    return {digest: place for digest, place in known.items() if place[0] in kept}


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copyfile(source, target)
