"""Models on disk: what acts, and nothing else.

A model is a directory of two files:

    weights.safetensors   variables of the acting graph by path, statistics of normalizers included
    model.json            strict JSON: which agent they belong to, its settings, spaces and components

Neither holds a memory, an optimizer or a target network, and nothing in them is executed when they are read.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from rlweave.errors import CheckpointError, RlweaveError
from rlweave.strict_json import to_json

WEIGHTS, DESCRIPTION = "weights.safetensors", "model.json"
FORMAT, VERSION = "rlweave-model", 2

Weights = Mapping[str, np.ndarray]
Description = Mapping[str, Any]


class Model(NamedTuple):
    """What acts.

    Attributes:
        weights: Arrays by path.
        description: Plain data that says what they belong to.
    """

    weights: Weights
    description: Description


def is_model(path: str | os.PathLike[str]) -> bool:
    """Whether a directory holds a model."""
    return (Path(path) / DESCRIPTION).is_file()


def write_model(path: str | os.PathLike[str], model: Model) -> Path:
    """Writes a model; it is there wholly or not at all, and replaces an earlier one.

    Args:
        path: The directory.
        model: The model; the format is added to its description.

    Raises:
        CheckpointError: There is something else at the path, a setting is no number of JSON, or the disk refuses.
    """
    path = Path(path)
    if path.exists() and not (path.is_dir() and {file.name for file in path.iterdir()} <= {WEIGHTS, DESCRIPTION}):
        raise CheckpointError(
            "there is something else where the model is to be written",
            where=str(path),
            fix="give a new directory, or that of an earlier model",
        )
    try:
        text = to_json({"format": FORMAT, "version": VERSION, **model.description}, indent=1) + "\n"
    except (TypeError, RlweaveError) as error:
        raise CheckpointError(
            "a model is described by plain data with finite numbers", where=str(path), received=str(error)
        ) from None
    partial = path.with_name(f".rlweave-model-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
        # bytes, as safetensors itself makes files that only their owner can read
        weights = {name: np.array(value, order="C") for name, value in model.weights.items()}
        (partial / WEIGHTS).write_bytes(save(weights))
        (partial / DESCRIPTION).write_text(text, encoding="utf-8")
        put_in_place(partial, path)
    except OSError as error:
        raise CheckpointError("could not write a model", where=str(path), received=str(error)) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return path


def put_in_place(partial: Path, path: Path) -> None:
    """Moves a directory that is complete to its path, where an earlier one stays until then."""
    if not path.exists():
        partial.rename(path)
        return
    aside = path.with_name(f"{partial.name}-replaced")  # a directory that is not empty cannot be renamed over
    path.rename(aside)
    partial.rename(path)
    shutil.rmtree(aside, ignore_errors=True)


def read_model(path: str | os.PathLike[str]) -> Model:
    """Reads what `write_model` wrote.

    Raises:
        CheckpointError: Missing or damaged files, or another version of the format.
    """
    path = Path(path)
    try:
        description = json.loads((path / DESCRIPTION).read_text(encoding="utf-8"))
        weights = load((path / WEIGHTS).read_bytes())
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(
            "cannot read the model", where=str(path), received=str(error), fix="pass a directory of export_model"
        ) from error
    version = description.get("version") if isinstance(description, dict) else None
    if version != VERSION:
        raise CheckpointError(
            "the model is of another format",
            where=str(path / DESCRIPTION),
            received=f"version {version}, this rlweave reads {VERSION}",
            fix="export it anew with this version",
        )
    return Model(weights, description)


def require_equal(mine: Any, its: Any, what: str, path: str | os.PathLike[str], fix: str) -> None:
    """Checks that a model and an agent agree in one entry of their descriptions.

    Args:
        mine: The agent's entry.
        its: The model's.
        what: What is wrong where they differ.
        path: The directory of the model.
        fix: What to do about it.

    Raises:
        CheckpointError: They differ; names the first difference, wherever it is nested.
    """
    found = _difference(json.loads(to_json(mine)), its, "")
    if found is not None:
        where, own, other = found
        place = f"{where}: " if where else ""
        raise CheckpointError(what, where=str(path), received=f"{place}{other}, where this agent has {own}", fix=fix)


def _difference(mine: Any, its: Any, where: str) -> tuple[str, str, str] | None:
    """(place, mine, its) of the first difference of plain data; None where there is none."""
    if isinstance(mine, dict) and isinstance(its, dict) and mine.get("type") == its.get("type"):
        for key in (*mine, *(key for key in its if key not in mine)):
            absent = "nothing"
            found = _difference(mine.get(key, absent), its.get(key, absent), f"{where}.{key}" if where else key)
            if found is not None:
                return found
        return None
    if type(mine) is type(its) and mine == its:
        return None
    if not isinstance(mine, (dict, str, bool)) and not isinstance(its, (dict, str, bool)) and mine == its:
        return None  # 1 and 1.0
    return where, _short(mine), _short(its)


def _short(value: Any) -> str:
    text = str(value["type"]) if isinstance(value, dict) and "type" in value else str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
