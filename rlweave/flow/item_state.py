"""Items as checkpoint data: nested dicts of JSON values and NumPy arrays, never pickles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rlweave.errors import CheckpointError
from rlweave.flow.batch import SampleBatch
from rlweave.flow.engine import ActorLost
from rlweave.flow.envelope import Envelope, RoundMark
from rlweave.flow.gradients import Gradients
from rlweave.flow.item_reference import ItemReference
from rlweave.flow.plan_item import PlanItem
from rlweave.flow.policy_batches import PolicyBatches
from rlweave.flow.train_stats import TrainStats

_KIND = "__kind__"


def encode(value: Any, operator: str) -> Any:
    """An item as JSON-able data and arrays.

    Args:
        value: A SampleBatch, PolicyBatches, an array, a JSON value, or lists, tuples and dicts (with string keys) of
            them; or a reference to one, which is fetched.
        operator: Who keeps the item, for the error message.

    Raises:
        CheckpointError: If the item is of another type.
        ActorLost: If it was only referred to, and is lost.
    """
    if value is None or isinstance(value, bool | int | float | str | np.ndarray):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, SampleBatch):
        state = value.state_dict()
        return {**state, _KIND: "sample_batch", "data": encode(state["data"], operator)}
    if isinstance(value, PolicyBatches):
        batches = {name: encode(batch, operator) for name, batch in value.items()}
        return {_KIND: "policy_batches", "joint_steps": value.joint_steps, "batches": batches}
    if isinstance(value, TrainStats):
        return {**value.state_dict(), _KIND: "train_stats"}
    if isinstance(value, Gradients):
        return {**value.state_dict(), _KIND: "gradients"}
    if isinstance(value, ItemReference):
        return {_KIND: "item_reference", "item": encode(value.fetch(), operator)}
    if isinstance(value, PlanItem):
        return {**value.state_dict(), _KIND: "plan_item"}
    if isinstance(value, tuple):
        return {_KIND: "tuple", "items": [encode(inner, operator) for inner in value]}
    if isinstance(value, list):
        return [encode(inner, operator) for inner in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value) and _KIND not in value:
        return {key: encode(inner, operator) for key, inner in value.items()}
    raise CheckpointError(
        "an item that an operator keeps cannot be put into a checkpoint",
        where=f"operator {operator!r}",
        received=type(value).__name__,
        fix="let items be SampleBatch, arrays, numbers, strings, or lists and dicts of them",
    )


def as_numpy(value: Any) -> Any:
    """A metric, or a tuple of them: what is an array of any framework as one of NumPy."""
    if isinstance(value, tuple):
        return tuple(map(as_numpy, value))
    return np.asarray(value) if hasattr(value, "__array__") else value


def decode(value: Any) -> Any:
    """The item that ``encode`` described."""
    if isinstance(value, list):
        return [decode(inner) for inner in value]
    if isinstance(value, Mapping):
        kind = value.get(_KIND)
        if kind == "sample_batch":
            return SampleBatch.from_state({**value, "data": decode(value["data"])})
        if kind == "policy_batches":
            batches = {name: decode(batch) for name, batch in value["batches"].items()}
            return PolicyBatches(batches, int(value["joint_steps"]))
        if kind == "train_stats":
            return TrainStats.from_state(value)
        if kind == "gradients":
            return Gradients.from_state(value)
        if kind == "item_reference":
            return ItemReference.to(decode(value["item"]))
        if kind == "plan_item":
            return PlanItem.from_state(value)
        if kind == "tuple":
            return tuple(decode(inner) for inner in value["items"])
        return {key: decode(inner) for key, inner in value.items()}
    return value


def encode_envelopes(envelopes: Iterable[Envelope], operator: str) -> list[dict[str, Any]]:
    """Envelopes as JSON-able data and arrays.

    Raises:
        CheckpointError: If an item is of a type that cannot be saved, or was only referred to, and is lost.
    """
    return [
        {
            "payload": _payload(envelope, operator),
            "source": envelope.source,
            "sequence": envelope.sequence,
            "weight_version": envelope.weight_version,
            "parts": [list(part) for part in envelope.parts],
            "rounds_late": envelope.rounds_late,
            "versions": list(envelope.versions),
            "round": None if envelope.round is None else list(envelope.round),
        }
        for envelope in envelopes
    ]


def _payload(envelope: Envelope, operator: str) -> Any:
    try:
        return encode(envelope.payload, operator)
    except ActorLost as lost:
        raise CheckpointError(
            "an item that an operator keeps by reference is lost",
            where=f"operator {operator!r}",
            received=envelope.describe(),
            fix="let items that are kept for long come here: leave by_reference=True out of their gather",
        ) from lost


def decode_envelopes(states: Sequence[Mapping[str, Any]]) -> list[Envelope]:
    """The envelopes that ``encode_envelopes`` described."""
    return [
        Envelope(
            decode(state["payload"]),
            state["source"],
            int(state["sequence"]),
            int(state["weight_version"]),
            tuple((str(source), int(sequence)) for source, sequence in state["parts"]),
            int(state.get("rounds_late", 0)),
            _round(state.get("round")),
            tuple(map(int, state.get("versions", ()))),
        )
        for state in states
    ]


def _round(kept: Sequence[Any] | None) -> RoundMark | None:
    return None if kept is None else RoundMark(str(kept[0]), int(kept[1]), bool(kept[2]))
