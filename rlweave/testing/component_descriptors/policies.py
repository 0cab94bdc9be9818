"""Descriptors of distributions, policies, values and exploration."""

from __future__ import annotations

from typing import Any

from rlweave import components as c
from rlweave.components.distributions import MASKED
from rlweave.components.exploration import EpsilonGreedy, EpsilonOfSteps
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Tuple
from rlweave.testing.component_descriptors.common import (
    ACTIONS,
    COUNTABLE_ACTIONS,
    FEATURES,
    HIDDEN,
    OBSERVATIONS,
    TAKEN_ACTIONS,
    add,
    bools,
    floats,
    ints,
)

add(
    "categorical",
    c.Categorical,
    lambda: c.Categorical(),
    {"logits": floats(3), "others": floats(3), "values": ints(3), "allowed": bools(3)},
)
add(
    "bernoulli",
    c.Bernoulli,
    lambda: c.Bernoulli(),
    {"logits": floats(2), "others": floats(2), "values": bools(2)},
)
add(
    "normal",
    c.Normal,
    lambda: c.Normal(),
    {
        "mean": floats(2),
        "log_std": floats(2, low=-2.0, high=1.0),
        "values": floats(2),
        "other_mean": floats(2),
        "other_log_std": floats(2, low=-2.0, high=1.0),
    },
)
add(
    "squashed-normal",
    c.SquashedNormal,
    lambda: c.SquashedNormal(-1.0, 3.0),
    {
        "mean": floats(2),
        "log_std": floats(2, low=-2.0, high=1.0),
        "values": floats(2, low=-0.9, high=2.9),
        "other_mean": floats(2),
        "other_log_std": floats(2, low=-2.0, high=1.0),
    },
    density_unit=2.0,
)
add(
    "beta",
    c.Beta,
    lambda: c.Beta(-1.0, 3.0),
    {
        "a": floats(2, low=0.3, high=4.0),
        "b": floats(2, low=0.3, high=4.0),
        "values": floats(2, low=-0.9, high=2.9),
        "other_a": floats(2, low=0.3, high=30.0),
        "other_b": floats(2, low=0.3, high=30.0),
    },
    gradients=("mode", "mean", "log_prob", "entropy", "kl"),  # samples are constants
    density_unit=4.0,
)


def _normal_parameters(*shape: int) -> Dict:
    return Dict(mean=floats(*shape), log_std=floats(*shape, low=-2.0, high=1.0))


PARAMETERS = Dict(bounded=_normal_parameters(2), choice=floats(2, 3), free=_normal_parameters(), switch=floats())


def _two_of_three(method: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Masks the category that the first component of `choice` does not have."""
    for name in {"parameters", "others"} & set(arguments):
        arguments[name]["choice"][..., 0, 2] = MASKED
    return arguments


add(
    "joint",
    c.Joint,
    lambda: c.Joint(ACTIONS),
    {"parameters": PARAMETERS, "others": PARAMETERS, "actions": TAKEN_ACTIONS},
    adapt=_two_of_three,
    # the other API methods are parts of these
    calls=("sample_and_log_prob", "mode_and_log_prob", "log_prob_and_entropy", "kl", "env_actions", "own_actions"),
)
add(
    "joint-squashed",
    c.Joint,
    lambda: c.Joint(ACTIONS, squash=True),
    {"parameters": PARAMETERS, "actions": TAKEN_ACTIONS},
    adapt=_two_of_three,
    calls=("sample_and_log_prob", "mode_and_log_prob", "log_prob_and_entropy"),
)

add(
    "policy",
    c.Policy,
    lambda: c.Policy(HIDDEN, IntBox(3), initializer="orthogonal"),
    {"observations": FEATURES, "features": floats(5), "actions": ints(3)},
    calls=("features", "parameters_of", "act", "mode", "log_prob_and_entropy", "env_actions"),
)
add(
    "policy-nested",
    c.Policy,
    lambda: c.Policy(HIDDEN, ACTIONS, log_std="head", squash=True),
    {"observations": OBSERVATIONS, "features": floats(5), "actions": TAKEN_ACTIONS},
    calls=("parameters", "act", "log_prob_and_entropy"),
)
MASKED_OBSERVATIONS = Dict(action_mask=BoolBox(shape=(3,)), x=FloatBox(shape=(2,)))
add(
    "policy-masked",
    c.Policy,
    lambda: c.Policy(HIDDEN, IntBox(3), observation_space=MASKED_OBSERVATIONS, mask_leaf="action_mask"),
    {"observations": MASKED_OBSERVATIONS.with_batch_rank(), "actions": ints(3)},
    calls=("parameters", "act", "log_prob_and_entropy"),
)
add(
    "q-policy-masked",
    c.QPolicy,
    lambda: c.QPolicy(HIDDEN, IntBox(3), observation_space=MASKED_OBSERVATIONS, mask_leaf="action_mask"),
    {"observations": MASKED_OBSERVATIONS.with_batch_rank()},
    calls=("q_values", "greedy"),
)
add(
    "policy-greedy",
    c.Policy,
    lambda: c.Policy(HIDDEN, FloatBox(low=-1.0, high=2.0, shape=(2,))),
    {"observations": FEATURES, "actions": floats(2)},
    calls=("act", "log_prob_and_entropy"),
    static={"act": {"explore": False}},
)
add(
    "q-policy",
    c.QPolicy,
    lambda: c.QPolicy(HIDDEN, COUNTABLE_ACTIONS),
    {
        "observations": FEATURES,
        "q_values": Tuple(floats(3), Dict(pair=floats(2, 3), switch=floats(2))),
        "actions": COUNTABLE_ACTIONS.with_batch_rank(),
    },
)
add(
    "dueling-policy",
    c.DuelingPolicy,
    lambda: c.DuelingPolicy(HIDDEN, IntBox(3), value_network=HIDDEN),
    {"observations": FEATURES},
)
add(
    "dueling-policy-nested",
    c.DuelingPolicy,
    lambda: c.DuelingPolicy(HIDDEN, COUNTABLE_ACTIONS, advantage_network=HIDDEN),
    {"observations": FEATURES},
    calls=("q_values", "greedy"),
)
add(
    "value-function",
    c.ValueFunction,
    lambda: c.ValueFunction(HIDDEN, initializer="orthogonal"),
    {"observations": OBSERVATIONS, "features": floats(5)},
)
add(
    "epsilon-greedy",
    EpsilonGreedy,
    lambda: EpsilonGreedy({"type": "linear", "start": 1.0, "end": 0.1, "steps": 100}),
    {"q_values": floats(3), "time_step": IntBox(0, 200), "epsilon": FloatBox(low=0.0, high=1.0)},
)
add(
    "epsilon-greedy-nested",
    EpsilonGreedy,
    lambda: EpsilonGreedy(0.5, Dict(pair=IntBox(3, shape=(2,)), switch=BoolBox())),
    {"q_values": Dict(pair=floats(2, 3), switch=floats(2)), "epsilon": floats(low=0.0, high=1.0)},
)
add(
    "epsilon-of-steps",
    EpsilonOfSteps,
    lambda: EpsilonOfSteps({"type": "linear", "start": 1.0, "end": 0.1, "steps": 100}, num_envs=4),
    {},
)

FLOAT_ACTIONS = Dict(free=FloatBox(), pair=FloatBox(low=-1.0, high=[1.0, 3.0], shape=(2,)))
OWN_FLOATS = Dict(free=FloatBox(), pair=FloatBox(low=-1.0, high=1.0, shape=(2,))).with_batch_rank()
add("stacked-dense", c.StackedDense, lambda: c.StackedDense(2, 3, "tanh"), {"inputs": FEATURES})
add("critics", c.Critics, lambda: c.Critics(HIDDEN), {"observations": OBSERVATIONS, "actions": OWN_FLOATS})
add(
    "temperature",
    c.Temperature,
    lambda: c.Temperature(-2.0),
    {"log_probs": floats()},
    gradients=("loss",),
    constants={"loss": ("log_probs",)},
)
add("gaussian-noise", c.GaussianNoise, lambda: c.GaussianNoise(FLOAT_ACTIONS, 0.2, 0.5), {"actions": OWN_FLOATS})
add(
    "ornstein-uhlenbeck-noise",
    c.OrnsteinUhlenbeckNoise,
    lambda: c.OrnsteinUhlenbeckNoise(FLOAT_ACTIONS),
    {"actions": OWN_FLOATS, "state": OWN_FLOATS, "episode_start": bools()},
    constants={"call": ("state",)},
)
add(
    "noisy-action",
    c.NoisyAction,
    lambda: c.NoisyAction(FLOAT_ACTIONS),
    {"parameters": Dict(free=Dict(mean=floats()), pair=Dict(mean=floats(2))), "actions": OWN_FLOATS},
)
add(
    "deterministic-policy",
    c.DeterministicPolicy,
    lambda: c.DeterministicPolicy(HIDDEN, FLOAT_ACTIONS),
    {"observations": OBSERVATIONS, "actions": OWN_FLOATS},
    calls=("parameters", "mode", "explore", "env_actions"),
)
