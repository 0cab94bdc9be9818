"""Settings of DQN."""

from __future__ import annotations

from typing import Any, ClassVar

from rlweave.agents.networks import IMAGE_NETWORK_HELP
from rlweave.agents.replay_agent import ReplayConfig
from rlweave.components.network import mlp
from rlweave.settings.config import setting
from rlweave.settings.ranges import POSITIVE, PROBABILITY


class DQNConfig(ReplayConfig):
    """Settings of DQN."""

    default_network: ClassVar[list[dict[str, Any]]] = mlp([64, 64], "relu")
    network: list[dict[str, Any]] | None = setting(
        None, "layers of the Q network; null: two dense relu layers of 64, or none behind the default image network"
    )
    image_network: list[dict[str, Any]] | None = setting(None, IMAGE_NETWORK_HELP)
    dueling: bool = setting(True, "dueling network: separate streams for state value and advantages")
    double: bool = setting(True, "the online network chooses the next action, the target network gives its value")
    huber_delta: float | None = setting(
        1.0, "error above which the loss is linear (Huber); null: squared everywhere", within=POSITIVE
    )
    burn_in: int = setting(
        8, "recurrent networks: steps before those trained on, from which the state recovers", ge=0, unit="steps"
    )
    unroll: int = setting(16, "recurrent networks: steps of a sequence that are trained on", ge=1, unit="steps")
    overlap: int = setting(
        0, "recurrent networks: steps that the trained parts of neighbouring sequences share", ge=0, unit="steps"
    )
    priority_eta: float = setting(
        0.9, "recurrent networks: weight of the largest error of a sequence against the mean", ge=0, le=1
    )
    target_update_interval: int = setting(
        500, "interval between two copies to the target network", ge=1, unit="environment steps"
    )
    epsilon: float | dict[str, Any] = setting(
        {"type": "linear", "start": 1.0, "end": 0.05, "steps": 10_000},
        "share of random actions, or a schedule over environment steps",
        within=PROBABILITY,
    )
    replicas: int | list[str] | None = setting(
        None,
        "devices (or how many) over which the batch of an update is split, for networks without memory; null: one",
    )
    reduce_components: str = setting("loss", "how several action components are reduced: loss or td")
