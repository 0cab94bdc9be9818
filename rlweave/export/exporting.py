"""`export_policy`: a policy as a verified artefact in a directory, written completely or not at all."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import rlweave
from rlweave.agents.deployed_policy import build_deployed
from rlweave.agents.model_files import put_in_place
from rlweave.agents.trained_policy import TrainedPolicy
from rlweave.errors import ConfigError, ExportError, nearest
from rlweave.export.boundary import Boundary
from rlweave.export.pure import PureMethod, pure_method
from rlweave.export.targets import TARGETS, Target
from rlweave.export.verification import verify
from rlweave.spaces.gymnasium_json import gymnasium_to_json
from rlweave.strict_json import to_json
from rlweave.tree import flatten_tree, unflatten_like

#: The file that describes an artefact.
DESCRIPTION = "policy.json"
FORMAT, VERSION = "rlweave-policy", 1


def export_policy(policy: TrainedPolicy, to: str, directory: str | os.PathLike[str]) -> dict[str, Any]:
    """Writes a policy as an artefact that runs without rlweave.

    The artefact takes the environment's observations and gives its actions, greedily: preprocessing, normalization,
    masks, network, and the conversion to the environment's action. It is verified before it appears.

    Args:
        policy: The policy, from `rlweave.load`.
        to: "onnx", "torch", "jax" or "numpy".
        directory: The target directory; an earlier artefact there is replaced.

    Returns:
        The description, which is also written as `policy.json`.

    Raises:
        ConfigError: There is no such target, or the directory has other files.
        ExportError: The artefact computes other results than the policy; then nothing is left on the disk.
        BackendError: The backend that writes the artefact is not installed.
    """
    if to not in TARGETS:
        raise ConfigError("policies cannot be exported to this", received=repr(to), fix=nearest(to, TARGETS))
    directory, target = Path(directory), TARGETS[to]
    _check_free(directory)
    agent, boundary = policy.agent, Boundary(policy)
    starts = boundary.observation_starts, boundary.action_starts
    source = build_deployed(agent, policy.weights, "numpy", *starts)
    act: Any = source.act
    functional = target.backend == "torch"  # its runs are functions elsewhere
    method = pure_method(
        build_deployed(agent, policy.weights, target.backend, *starts, torch_compile=functional), "act"
    )
    # in an existing directory, so that a failure leaves no new ones
    home = next(parent for parent in directory.absolute().parents if parent.is_dir())
    partial = home / f".rlweave-export-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        partial.mkdir()
        for file, content in target.write(method).items():
            (partial / file).write_bytes(content)
        run = target.load(partial)
        checked = verify(
            run,
            act,
            source.root.policy.recurrent_space if agent.recurrent else None,
            policy,
            boundary,
            f"{agent.name} as {to}",
        )
        description = {**_description(policy, boundary, target, method, act), "verification": checked}
        (partial / DESCRIPTION).write_text(to_json(description, indent=1) + "\n", encoding="utf-8")
        directory.parent.mkdir(parents=True, exist_ok=True)
        put_in_place(partial, directory)
    except OSError as error:
        raise ExportError("cannot write the artefact", where=str(directory), received=str(error)) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return description


def _check_free(directory: Path) -> None:
    """Refuses a directory that holds anything but an earlier artefact."""
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return
    try:
        earlier = json.loads((directory / DESCRIPTION).read_text(encoding="utf-8")).get("format") == FORMAT
    except (OSError, ValueError, AttributeError):
        earlier = False
    if not earlier:
        raise ConfigError(
            "there is something else where the artefact is to be written",
            where=str(directory),
            fix="give a new directory, or that of an earlier export, with --output",
        )


def _description(
    policy: TrainedPolicy, boundary: Boundary, target: Target, method: PureMethod, act: Any
) -> dict[str, Any]:
    """The description of the artefact for its users, as plain data."""
    agent = policy.agent
    inputs: list[dict[str, Any]] = [
        {
            "name": name,
            "shape": [n if isinstance(n, int) else "batch" for n in array.axes],
            "dtype": array.dtype,
            **_text_of(name, boundary),
        }
        for name, array in method.flat_inputs().items()
    ]
    rows = 2
    examples = {i["name"]: np.zeros([n if n != "batch" else rows for n in i["shape"]], i["dtype"]) for i in inputs}
    results = flatten_tree(act(*_nested(method, examples)))
    states = [name for name in examples if name.startswith("recurrent_state")]
    return {
        "format": FORMAT,
        "version": VERSION,
        "rlweave": rlweave.__version__,
        "target": target.name,
        "file": target.file,
        "runs_on": target.runs_on,
        "inputs": inputs,
        "outputs": [
            {"name": name, "shape": ["batch", *x.shape[1:]], "dtype": x.dtype.name} for name, x in results.items()
        ],
        "recurrent_state": {name: f"next_{name}" for name in states},
        "observation_space": gymnasium_to_json(boundary.observation_space),
        "action_space": gymnasium_to_json(boundary.action_space),
        "environment": {key: policy.environment.get(key) for key in ("id", "options", "info_mask")},
        "agent": agent.name,
        "settings": agent.config.to_data(),
    }


def _text_of(name: str, boundary: Boundary) -> dict[str, Any]:
    """For an input of hashed words: the number of words, and of hashes."""
    _, _, path = name.partition("/")
    known = boundary.texts.get(path) if name.startswith("observation") else None
    return {} if known is None else {"text": known}


def _nested(method: PureMethod, examples: Mapping[str, Any]) -> list[Any]:
    return list(unflatten_like(dict(method.inputs), dict(examples)).values())
