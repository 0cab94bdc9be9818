"""What a gather holds: calls for items that were started, and items that arrived and were not delivered yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rlweave.flow.engine import Call, LocalCall
from rlweave.flow.envelope import ABSORBED, END, Envelope, Signal
from rlweave.flow.item_reference import referenced
from rlweave.flow.item_state import decode, encode
from rlweave.flow.protocols import Episode
from rlweave.flow.workers import SourceItem


class Requested(NamedTuple):
    """A call for items that was started: of which source, with which weights, when, and in which round.

    Where several learners train for the source, ``versions`` says which weights of each, as in an envelope. Where items
    stay where they are made, ``payloads`` has a call for each of them.
    """

    actor: int
    call: Call
    version: int
    asked_at: float
    round: int
    versions: tuple[int, ...] = ()
    payloads: Sequence[Call] = ()


class Arrival(NamedTuple):
    """An item that has arrived and was not delivered yet.

    Attributes:
        envelope: The item; its payload may be ABSORBED.
        num_steps: Environment steps it took.
        actor: Number of its source.
        last: Whether it is the last one of its call.
        episodes: Episodes that came with it.
    """

    envelope: Envelope
    num_steps: int
    actor: int
    last: bool
    episodes: Sequence[Episode]


def encode_arrival(arrival: Arrival, operator: str) -> dict[str, Any]:
    """An arrival as JSON-able data and arrays.

    Raises:
        CheckpointError: If the item is of a type that cannot be saved.
    """
    envelope = arrival.envelope
    absorbed = envelope.payload is ABSORBED
    return {
        "actor": arrival.actor,
        "payload": None if absorbed else encode(envelope.payload, operator),
        "absorbed": absorbed,
        "sequence": envelope.sequence,
        "weight_version": envelope.weight_version,
        "versions": list(envelope.versions),
        "rounds_late": envelope.rounds_late,
        "num_steps": arrival.num_steps,
        "last": arrival.last,
        "episodes": [episode.to_data() for episode in arrival.episodes],
    }


def decode_arrival(kept: Mapping[str, Any], names: Sequence[str]) -> Arrival:
    """The arrival that ``encode_arrival`` described, from one of the sources with these names."""
    actor = int(kept["actor"])
    payload = ABSORBED if kept["absorbed"] else decode(kept["payload"])
    version, late = int(kept["weight_version"]), int(kept["rounds_late"])
    versions = tuple(map(int, kept.get("versions", ())))
    envelope = Envelope(payload, names[actor], int(kept["sequence"]), version, (), late, versions=versions)
    episodes = tuple(map(Episode.from_data, kept["episodes"]))
    return Arrival(envelope, int(kept["num_steps"]), actor, bool(kept["last"]), episodes)


def encode_request(request: Requested, operator: str) -> dict[str, Any]:
    """A call for items that is done, with what it gave, as JSON-able data and arrays.

    Raises:
        CheckpointError: If an item is of a type that cannot be saved.
        Exception: What the call raised.
    """
    items: list[SourceItem] = request.call.result()
    if request.payloads:
        items = referenced(items, request.payloads)
    return {
        "actor": request.actor,
        "version": request.version,
        "versions": list(request.versions),
        "round": request.round,
        "items": [
            {
                "signal": "end" if payload is END else "absorbed" if payload is ABSORBED else "",
                "payload": None if isinstance(payload, Signal) else encode(payload, operator),
                "num_steps": num_steps,
                "version": version if isinstance(version, int) else list(version),
                "episodes": [episode.to_data() for episode in episodes],
            }
            for payload, num_steps, version, episodes in items
        ],
    }


def decode_request(kept: Mapping[str, Any], now: float) -> Requested:
    """The call that ``encode_request`` described, which is done."""
    items = [
        (
            {"end": END, "absorbed": ABSORBED}[item["signal"]] if item["signal"] else decode(item["payload"]),
            int(item["num_steps"]),
            tuple(map(int, item["version"])) if isinstance(item["version"], list) else int(item["version"]),
            tuple(map(Episode.from_data, item["episodes"])),
        )
        for item in kept["items"]
    ]
    versions = tuple(map(int, kept.get("versions", ())))
    return Requested(
        int(kept["actor"]), LocalCall(items, None), int(kept["version"]), now, int(kept["round"]), versions
    )
