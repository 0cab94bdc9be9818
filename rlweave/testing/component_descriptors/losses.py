"""Descriptors of losses and returns."""

from __future__ import annotations

from typing import Any

from rlweave import components as c
from rlweave.components.normalization import RunningNormalization
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Space
from rlweave.testing.component_descriptors.common import (
    SEQUENCE,
    SEQUENCE_FLAGS,
    add,
    bools,
    floats,
    ints,
)
from rlweave.testing.descriptors import ScaleLaw


def _first(result: Any) -> Any:
    return result[0]


def _q_losses(q_values: Space, actions: Space) -> dict[str, Space]:
    return {
        "q_values": q_values,
        "actions": actions,
        "rewards": floats(),
        "terminated": bools(),
        "target_q_next": q_values,
    }


_TARGETS = ("rewards", "target_q_next", "online_q_next", "discounts")
add(
    "critic-loss",
    c.CriticLoss,
    lambda: c.CriticLoss(),
    {
        "rewards": floats(),
        "terminated": bools(),
        "discounts": floats(low=0.0, high=1.0),
        "next_values": floats(2),
        "next_log_probs": floats(),
        "alpha": FloatBox(low=0.0, high=1.0),
        "values": floats(2),
        "targets": floats(),
        "weights": floats(low=0.0, high=1.0),
    },
    gradients=("loss",),  # targets are constants
    constants={"loss": ("targets",)},
)
add(
    "soft-policy-loss",
    c.SoftPolicyLoss,
    lambda: c.SoftPolicyLoss(),
    {"log_probs": floats(), "values": floats(2), "alpha": FloatBox(low=0.0, high=1.0)},
    constants={"loss": ("alpha",)},
)
add(
    "dqn-loss",
    c.DQNLoss,
    lambda: c.DQNLoss(),
    {
        **_q_losses(floats(3), ints(3)),
        "online_q_next": floats(3),
        "weights": floats(low=0.1, high=1.0),
        "discounts": floats(low=0.5, high=1.0),
    },
    differentiated={"td_loss": _first, "loss_per_item": _first},
    constants={"td_loss": _TARGETS, "loss_per_item": _TARGETS},
)
add(
    "dqn-loss-components",
    c.DQNLoss,
    lambda: c.DQNLoss(n_step=3, double=False, huber_delta=None, reduce_components="td"),
    _q_losses(Dict(a=floats(2, 3), b=floats(2)), Dict(a=ints(3, 2), b=bools())),
    calls=("td_loss",),
    differentiated={"td_loss": _first},
    constants={"td_loss": _TARGETS},
)
_SEQUENCE_TARGETS = ("rewards", "target_q_next", "online_q_next")


def _sequence_losses(q_values: Space, actions: Space) -> dict[str, Space]:
    q_values, actions = (space.with_batch_rank().with_time_rank() for space in (q_values, actions))
    return {
        **dict.fromkeys(("q_values", "target_q_next", "online_q_next"), q_values),
        "actions": actions,
        "rewards": SEQUENCE,
        **dict.fromkeys(("terminated", "truncated", "mask"), SEQUENCE_FLAGS),
        "weights": floats(low=0.1, high=1.0),
    }


add(
    "sequence-dqn-loss",
    c.SequenceDQNLoss,
    lambda: c.SequenceDQNLoss(n_step=2),
    _sequence_losses(FloatBox(shape=(3,)), IntBox(3)),
    calls=("sequence_loss",),
    differentiated={"sequence_loss": _first},
    constants={"sequence_loss": _SEQUENCE_TARGETS},
)
add(
    "sequence-dqn-loss-components",
    c.SequenceDQNLoss,
    lambda: c.SequenceDQNLoss(n_step=3, huber_delta=None, reduce_components="td"),
    _sequence_losses(
        Dict(a=FloatBox(shape=(2, 3)), b=FloatBox(shape=(2,))), Dict(a=IntBox(3, shape=(2,)), b=BoolBox())
    ),
    calls=("sequence_loss",),
    differentiated={"sequence_loss": _first},
    constants={"sequence_loss": _SEQUENCE_TARGETS},
)


def _q_lambda_losses(q_values: Space, actions: Space, targets: Space) -> dict[str, Space]:
    q_values, actions, targets = (space.with_batch_rank().with_time_rank() for space in (q_values, actions, targets))
    flags = dict.fromkeys(("terminated", "truncated"), SEQUENCE_FLAGS)
    own = {"actions": actions, "targets": targets, "rewards": SEQUENCE, **flags}
    return {**dict.fromkeys(("q_values", "q_next"), q_values), **own}


add(
    "q-lambda-loss",
    c.QLambdaLoss,
    lambda: c.QLambdaLoss(),
    _q_lambda_losses(FloatBox(shape=(3,)), IntBox(3), FloatBox()),
    gradients=("loss",),  # targets are constants
    differentiated={"loss": _first},
    constants={"loss": ("targets",)},
    scale_laws=(ScaleLaw("targets", ("rewards", "q_next"), power=1.0),),
)
add(
    "q-lambda-loss-components",
    c.QLambdaLoss,
    lambda: c.QLambdaLoss(0.9, 0.5),
    _q_lambda_losses(
        Dict(a=FloatBox(shape=(2, 3)), b=FloatBox(shape=(2,))),
        Dict(a=IntBox(3, shape=(2,)), b=BoolBox()),
        Dict(a=FloatBox(shape=(2,)), b=FloatBox()),
    ),
    gradients=("loss",),
    differentiated={"loss": _first},
    constants={"loss": ("targets",)},
)
_PPO_CONSTANTS = ("old_log_probs", "advantages", "returns", "old_values")
_PPO_INPUTS: dict[str, Space] = {
    "log_probs": floats(low=-2.0, high=-0.5),
    "old_log_probs": floats(low=-2.0, high=-0.5),
    "advantages": floats(),
    "values": floats(),
    "returns": floats(),
    "entropies": floats(low=0.0, high=2.0),
}
add(
    "ppo-loss",
    c.PPOLoss,
    lambda: c.PPOLoss(entropy_coefficient=0.1),
    _PPO_INPUTS,
    differentiated={"loss": _first},
    constants={"loss": _PPO_CONSTANTS},
    scale_laws=(ScaleLaw("loss", ("advantages",), shift=True, results=("0",)),),
)
add(
    "ppo-loss-masked",
    c.PPOLoss,
    lambda: c.PPOLoss({"type": "linear", "start": 0.3, "end": 0.1, "steps": 50}, value_clip=0.4),
    {**_PPO_INPUTS, "old_values": floats(), "mask": bools(), "count": IntBox(0, 60)},
    differentiated={"loss": _first},
    constants={"loss": _PPO_CONSTANTS},
)
_ACTOR_CRITIC_INPUTS = {name: space for name, space in _PPO_INPUTS.items() if name != "old_log_probs"}
add(
    "actor-critic-loss",
    c.ActorCriticLoss,
    lambda: c.ActorCriticLoss(entropy_coefficient=0.1),
    _ACTOR_CRITIC_INPUTS,
    differentiated={"loss": _first},
    constants={"loss": ("advantages", "returns")},
)
add(
    "actor-critic-loss-masked",
    c.ActorCriticLoss,
    lambda: c.ActorCriticLoss(),
    {**_ACTOR_CRITIC_INPUTS, "mask": bools()},
    differentiated={"loss": _first},
    constants={"loss": ("advantages", "returns")},
)
add(
    "gae",
    c.GeneralizedAdvantageEstimation,
    lambda: c.GeneralizedAdvantageEstimation(),
    {
        "rewards": SEQUENCE,
        "values": SEQUENCE,
        "next_values": SEQUENCE,
        "terminated": SEQUENCE_FLAGS,
        "truncated": SEQUENCE_FLAGS,
    },
    gradients=(),  # its results are constants
    scale_laws=(ScaleLaw("estimate", ("rewards", "values", "next_values"), power=1.0),),
)
add(
    "vtrace",
    c.VTrace,
    lambda: c.VTrace(0.9, rho_clip=1.5, policy_rho_clip=None, lambda_=0.9),
    {
        "target_log_probs": FloatBox(-3.0, 0.0, add_batch_rank=True, add_time_rank=True),
        "behaviour_log_probs": FloatBox(-3.0, 0.0, add_batch_rank=True, add_time_rank=True),
        "rewards": SEQUENCE,
        "values": SEQUENCE,
        "next_values": SEQUENCE,
        "terminated": SEQUENCE_FLAGS,
        "truncated": SEQUENCE_FLAGS,
    },
    gradients=(),  # its results are constants
    scale_laws=(ScaleLaw("estimate", ("rewards", "values", "next_values"), power=1.0, results=("0", "1")),),
)
add(
    "running-normalization",
    RunningNormalization,
    lambda: RunningNormalization(),
    {"inputs": Dict(x=floats(3), kind=ints(3)), "update.mask": bools()},
    calls=("call", "update", "call"),
    unused={"update": ("inputs/kind",)},  # integers pass through as they are
)

_ROLLOUT: dict[str, Any] = {"add_batch_rank": 3, "add_time_rank": True}
add(
    "reward-normalization",
    c.RewardNormalization,
    lambda: c.RewardNormalization(0.9),
    {"rewards": FloatBox(**_ROLLOUT), "terminated": BoolBox(**_ROLLOUT), "truncated": BoolBox(**_ROLLOUT)},
    calls=("call", "update", "call", "update", "call"),
    scale_laws=(ScaleLaw("call", ("rewards",)),),
)
