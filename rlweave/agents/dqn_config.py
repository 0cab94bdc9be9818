"""Settings of DQN."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from rlweave.agents.agent import AgentConfig
from rlweave.agents.networks import IMAGE_NETWORK_HELP
from rlweave.components.network import mlp
from rlweave.settings.config import setting
from rlweave.settings.ranges import NOT_NEGATIVE, POSITIVE, PROBABILITY


class DQNConfig(AgentConfig):
    """Settings of DQN."""

    default_network: ClassVar[list[dict[str, Any]]] = mlp([64, 64], "relu")
    network: list[dict[str, Any]] | None = setting(
        None, "layers of the Q network; null: two dense relu layers of 64, or none behind the default image network"
    )
    image_network: list[dict[str, Any]] | None = setting(None, IMAGE_NETWORK_HELP)
    dueling: bool = setting(True, "dueling network: separate streams for state value and advantages")
    double: bool = setting(True, "the online network chooses the next action, the target network gives its value")
    n_step: int = setting(3, "rewards in an n-step return before it bootstraps", ge=1, unit="steps")
    discount: float = setting(0.99, "discount of future rewards", ge=0, le=1)
    huber_delta: float | None = setting(
        1.0, "error above which the loss is linear (Huber); null: squared everywhere", within=POSITIVE
    )
    memory_capacity: int = setting(100_000, "transitions kept", ge=1, unit="transitions")
    memory_place: Literal["host", "graph"] = setting(
        "host", "where transitions are kept: host (NumPy, float64 sum tree) or graph (on the device, float32)"
    )
    prioritized: bool = setting(True, "prioritized replay: transitions are drawn by their TD error")
    priority_alpha: float = setting(0.6, "exponent of priorities in sampling; 0: uniform", ge=0)
    priority_beta: float | dict[str, Any] = setting(
        0.4, "strength of the importance weights, or a schedule over inserted transitions", within=PROBABILITY
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
    batch_size: int = setting(64, "transitions in an update", ge=1, unit="transitions")
    learning_starts: int = setting(1_000, "environment steps before the first update", ge=1, unit="environment steps")
    samples_per_step: float = setting(
        16.0, "transitions trained on for each environment step", gt=0, unit="transitions per environment step"
    )
    target_update_interval: int = setting(
        500, "interval between two copies to the target network", ge=1, unit="environment steps"
    )
    epsilon: float | dict[str, Any] = setting(
        {"type": "linear", "start": 1.0, "end": 0.05, "steps": 10_000},
        "share of random actions, or a schedule over environment steps",
        within=PROBABILITY,
    )
    optimizer: dict[str, Any] = setting({"type": "adam"}, "optimizer spec, learning rate apart")
    lr: float | dict[str, Any] = setting(1e-3, "learning rate, or a schedule over optimizer steps", within=NOT_NEGATIVE)
    max_grad_norm: float | None = setting(
        10.0, "global norm that gradients are clipped to; null: not clipped", within=POSITIVE
    )
    replicas: int | list[str] | None = setting(
        None,
        "devices (or how many) over which the batch of an update is split, for networks without memory; null: one",
    )
    reduce_components: str = setting("loss", "how several action components are reduced: loss or td")
    prefetch: int = setting(
        0,
        "batches drawn and copied to the device ahead of the update (host memory only); each sees the memory, and sets "
        "priorities, as many updates late",
        ge=0,
        unit="batches",
    )
