"""Numeric settings of components: the last values that are taken, and the first that are refused, by name."""

import math

import pytest

from rlweave import components as c
from rlweave.components.exploration import ape_x_epsilons
from rlweave.components.memories.replay import checked_capacity
from rlweave.components.temperature import Temperature
from rlweave.errors import BuildError, ConfigError
from rlweave.spaces import FloatBox

BOX = FloatBox(-1.0, 1.0)
TINY = 1e-12
NAN, INF = math.nan, math.inf
PROBABILITY = [0.0, 1.0], [-TINY, 1.0 + 1e-6, NAN]
FRACTION = [0.0, 1.0 - 1e-6], [-TINY, 1.0, NAN]
POSITIVE = [TINY, 1.0], [0.0, -1.0, NAN]
NOT_NEGATIVE = [0.0, 5.0], [-TINY, NAN]
OR_NONE = [TINY, None], [0.0, -1.0, NAN]
FINITE = [-1e9, 0.0], [INF, -INF, NAN]
AT_LEAST_ONE = [1, 2], [0, -1, NAN]


def case(make, name, ranges):
    return pytest.param(make, name, *ranges, id=f"{make.__name__}, {name}")


def of_a_box(cls):
    def make(**settings):
        return cls(BOX, **settings)

    make.__name__ = cls.__name__
    return make


def with_nesterov(momentum):
    return c.SGD(momentum=momentum, nesterov=True)


def policy(**settings):
    return c.Policy([], BOX, **settings)


def prioritized(**settings):
    return c.PrioritizedReplay(4, **settings)


def graph_prioritized(**settings):
    return c.GraphPrioritizedReplay(4, **settings)


def temperature(**settings):
    return Temperature(**{"target_entropy": -1.0, **settings})


def stacked(**settings):
    return c.StackedDense(**{"count": 1, "units": 1, **settings})


def epsilons(**settings):
    return ape_x_epsilons(**{"num_workers": 2, **settings})


@pytest.mark.parametrize(
    ("make", "name", "taken", "refused"),
    [
        case(of_a_box(c.GaussianNoise), "deviation", NOT_NEGATIVE),
        case(of_a_box(c.GaussianNoise), "limit", OR_NONE),
        case(of_a_box(c.OrnsteinUhlenbeckNoise), "rate", POSITIVE),
        case(c.EpsilonGreedy, "epsilon", PROBABILITY),
        case(epsilons, "num_workers", AT_LEAST_ONE),
        case(epsilons, "base", PROBABILITY),
        case(epsilons, "alpha", NOT_NEGATIVE),
        case(stacked, "count", AT_LEAST_ONE),
        case(stacked, "units", AT_LEAST_ONE),
        case(c.GeneralizedAdvantageEstimation, "discount", PROBABILITY),
        case(c.GeneralizedAdvantageEstimation, "lambda_", PROBABILITY),
        case(temperature, "target_entropy", FINITE),
        case(temperature, "initial", POSITIVE),
        case(c.DQNLoss, "discount", PROBABILITY),
        case(c.DQNLoss, "n_step", AT_LEAST_ONE),
        case(c.DQNLoss, "huber_delta", OR_NONE),
        case(c.SequenceDQNLoss, "priority_eta", PROBABILITY),
        case(c.ActorCriticLoss, "value_coefficient", NOT_NEGATIVE),
        case(c.ActorCriticLoss, "entropy_coefficient", NOT_NEGATIVE),
        case(c.PPOLoss, "clip", POSITIVE),
        case(c.PPOLoss, "value_clip", OR_NONE),
        case(c.PPOLoss, "value_coefficient", NOT_NEGATIVE),
        case(c.PPOLoss, "entropy_coefficient", NOT_NEGATIVE),
        case(policy, "initial_log_std", FINITE),
        case(c.RewardNormalization, "discount", PROBABILITY),
        case(c.RewardNormalization, "clip", OR_NONE),
        case(c.RunningNormalization, "clip", OR_NONE),
        case(c.RunningNormalization, "epsilon", POSITIVE),
        case(c.VTrace, "discount", PROBABILITY),
        case(c.VTrace, "lambda_", PROBABILITY),
        case(c.VTrace, "rho_clip", ([1.0, None], [0.0, -1.0, NAN])),
        case(c.VTrace, "c_clip", ([TINY, 1.0], [0.0, NAN])),
        case(c.VTrace, "policy_rho_clip", OR_NONE),
        case(prioritized, "alpha", NOT_NEGATIVE),
        case(prioritized, "epsilon", NOT_NEGATIVE),
        case(prioritized, "beta", PROBABILITY),
        case(graph_prioritized, "alpha", NOT_NEGATIVE),
        case(graph_prioritized, "epsilon", NOT_NEGATIVE),
        case(graph_prioritized, "beta", PROBABILITY),
        *(case(optimizer, "max_grad_norm", OR_NONE) for optimizer in (c.SGD, c.Adam, c.AdamW, c.RMSProp)),
        *(case(optimizer, "learning_rate", POSITIVE) for optimizer in (c.SGD, c.Adam, c.AdamW, c.RMSProp)),
        case(c.SGD, "momentum", FRACTION),
        case(with_nesterov, "momentum", ([TINY], [0.0])),
        *(case(c.Adam, name, FRACTION) for name in ("beta1", "beta2")),
        case(c.Adam, "epsilon", POSITIVE),
        case(c.AdamW, "weight_decay", NOT_NEGATIVE),
        *(case(c.RMSProp, name, FRACTION) for name in ("decay", "momentum")),
        case(c.RMSProp, "epsilon", POSITIVE),
    ],
)
def test_ranges(make, name, taken, refused):
    for value in taken:
        make(**{name: value})
    for value in refused:
        with pytest.raises(ConfigError, match=rf"{name}.* is out of range"):
            make(**{name: value})


def test_traces_are_not_clipped_above_the_weights():
    with pytest.raises(BuildError, match="c_clip <= rho_clip"):
        c.VTrace(rho_clip=0.9, c_clip=1.0)
    assert c.VTrace(rho_clip=1.0, c_clip=1.0).c_clip == 1.0
    assert c.VTrace(rho_clip=None, c_clip=5.0).c_clip == 5.0


@pytest.mark.parametrize("schedule", [[[0, 0.5], [10, 1.5]], {"type": "linear", "start": -0.1, "end": 0.0, "steps": 5}])
def test_values_of_schedules_are_in_range(schedule):
    for make in (
        c.EpsilonGreedy,
        lambda x: c.PrioritizedReplay(4, beta=x),
        lambda x: c.GraphPrioritizedReplay(4, beta=x),
    ):
        with pytest.raises(ConfigError, match="out of range"):
            make(schedule)


def test_capacities():
    for capacity in (1, 2**31 - 1):
        assert checked_capacity(capacity, "test") == capacity
    for capacity in (0, -1, 2**31, 2.0, True):
        with pytest.raises(BuildError, match="capacity"):
            checked_capacity(capacity, "test")
