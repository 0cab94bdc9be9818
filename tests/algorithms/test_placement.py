"""Where workers live is a setting: the same algorithm on the learner's own agent, or with agents of their own."""

import pytest

from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.registry import get_algorithm
from rlweave.errors import ConfigError, RlweaveError
from rlweave.flow import WorkerGroup

SMALL = {"env": "CartPole-v1", "backend": "torch", "num_envs": 2, "workers": 2, "steps": 400, "tensorboard": False}


def trainer_of(algorithm, **sets):
    spec = get_algorithm(algorithm)
    return spec.make_trainer(resolve_config(spec.config_class, sets={**SMALL, **sets}), None)


@pytest.mark.parametrize(
    ("algorithm", "sets"),
    [("ppo", {}), ("dqn", {"agent.learning_starts": 100}), ("ape-x", {"agent.learning_starts": 100})],
)
def test_workers_elsewhere_have_agents_of_their_own(algorithm, sets):
    trainer = trainer_of(algorithm, placement="single_learner_coarse", **sets)
    try:
        assert isinstance(trainer.parts.workers, WorkerGroup)
        rows = list(trainer.train())
        assert trainer.agent.env_steps == trainer.env_steps >= 400
        assert rows[-1]["trained_samples"] > 0
    finally:
        trainer.close()


@pytest.mark.parametrize(("gather", "lag"), [("sync", {0}), ("async", {0, 1})])
def test_how_old_weights_are_is_as_the_gather_says(gather, lag):
    """Two workers in turns: in rounds none lags, and one after the other each lags by the other's update."""
    sets = {"agent.rollout_steps": 16, "agent.minibatches": 2, "agent.epochs": 1, "gather": gather}
    trainer = trainer_of("ppo", placement="single_learner_coarse", **sets)
    try:
        list(trainer.train())
        assert set(trainer.plan.report().gather_lag) == lag
    finally:
        trainer.close()


@pytest.mark.parametrize(
    ("sets", "where"),
    [
        ({"placement": "fused", "gather": "sync", "workers": 1}, "gather"),
        ({"placement": "fused", "max_lag": 1, "workers": 1}, "max_lag"),
        ({"max_lag": 1}, "max_lag"),
        ({"placement": "single_learner_coarse", "agent.acting_backend": "auto"}, "agent.acting_backend"),
        ({"placement": "coarse"}, "placement"),
    ],
)
def test_settings_that_contradict_are_refused(sets, where):
    with pytest.raises(ConfigError) as caught:
        trainer_of("ppo", **sets)
    assert where in str(caught.value)
    assert isinstance(caught.value, RlweaveError)
