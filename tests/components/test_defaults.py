"""Settings that are left out are those of the papers, or of the frameworks that people come from."""

import inspect

import pytest

from rlweave import components as c
from rlweave.components.temperature import Temperature
from rlweave.spaces import FloatBox

BOX = FloatBox(-1.0, 1.0)


@pytest.mark.parametrize(
    ("component", "arguments", "expected"),
    [
        # Kingma & Ba 2015; Loshchilov & Hutter 2019; PyTorch
        (c.Adam, (), {"learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}),
        (c.AdamW, (), {"learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.01}),
        (c.RMSProp, (), {"learning_rate": 1e-3, "decay": 0.99, "epsilon": 1e-8, "momentum": 0.0, "centered": False}),
        (c.SGD, (), {"learning_rate": 0.01, "momentum": 0.0, "nesterov": False}),
        # Schulman et al. 2017 and 2016
        (c.PPOLoss, (), {"clip": 0.2, "value_clip": None, "normalize_advantages": True, "value_coefficient": 0.5}),
        (c.PPOLoss, (), {"entropy_coefficient": 0.0}),
        (c.GeneralizedAdvantageEstimation, (), {"discount": 0.99, "lambda_": 0.95}),
        # Mnih et al. 2016
        (c.ActorCriticLoss, (), {"value_coefficient": 0.5, "entropy_coefficient": 0.01}),
        # Espeholt et al. 2018
        (c.VTrace, (), {"discount": 0.99, "rho_clip": 1.0, "c_clip": 1.0, "policy_rho_clip": 1.0, "lambda_": 1.0}),
        # Mnih et al. 2015, van Hasselt et al. 2016; Kapturowski et al. 2019; Schaul et al. 2016
        (
            c.DQNLoss,
            (),
            {"discount": 0.99, "n_step": 1, "double": True, "huber_delta": 1.0, "reduce_components": "loss"},
        ),
        (
            c.SequenceDQNLoss,
            (),
            {"discount": 0.99, "n_step": 1, "double": True, "huber_delta": 1.0, "priority_eta": 0.9},
        ),
        (c.PrioritizedReplay, (4,), {"alpha": 0.6, "beta": 0.4, "epsilon": 1e-6}),
        (c.GraphPrioritizedReplay, (4,), {"alpha": 0.6, "beta": 0.4, "epsilon": 1e-6}),
        (c.EpsilonGreedy, (), {"epsilon": 0.1}),
        # Fujimoto et al. 2018; Lillicrap et al. 2016; Haarnoja et al. 2018
        (c.GaussianNoise, (BOX,), {"deviation": 0.1, "limit": None}),
        (c.NoisyAction, (BOX,), {"noise": 0.1}),
        (c.DeterministicPolicy, ([], BOX), {"noise": 0.1}),
        (c.OrnsteinUhlenbeckNoise, (BOX,), {"deviation": 0.2, "rate": 0.15}),
        (c.Critics, ([],), {"count": 2}),
        (Temperature, (-1.0,), {"initial": 1.0, "trainable": True}),
        (c.Policy, ([], BOX), {"log_std": "variable", "initial_log_std": 0.0, "squash": False}),
        (c.Joint, (BOX,), {"squash": False}),
        (c.RunningNormalization, (), {"clip": 10.0, "epsilon": 1e-8}),
        (c.RewardNormalization, (), {"discount": 0.99, "clip": 10.0, "epsilon": 1e-8}),
        (c.Dense, (1,), {"activation": None, "use_bias": True, "bias_initializer": 0.0}),
        (c.Conv2D, (1, 1), {"stride": 1, "padding": "valid", "use_bias": True, "bias_initializer": 0.0}),
        (c.SquashedNormal, (), {"low": -1.0, "high": 1.0}),
        (c.Beta, (), {"low": 0.0, "high": 1.0}),
    ],
    ids=lambda value: getattr(value, "__name__", None) or (" ".join(value) if isinstance(value, dict) else ""),
)
def test_defaults(component, arguments, expected):
    assert component(*arguments)  # these are all that it needs
    parameters = inspect.signature(component.__init__).parameters
    assert {name: parameters[name].default for name in expected} == expected
