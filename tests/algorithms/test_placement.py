"""Where workers live is a setting: the same algorithm on the learner's own agent, or with agents of their own."""

from itertools import islice

import pytest

from rlweave.algorithms.a3c import a3c
from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.registry import get_algorithm
from rlweave.errors import ConfigError, RlweaveError
from rlweave.extras.es import es
from rlweave.extras.maml import maml
from rlweave.flow import FakeClock, LocalEngine, WorkerGroup
from tests.flow.test_gradients import Computing, Descending

SMALL = {
    "env": "CartPole-v1",
    "backend": "torch",
    "num_envs": 2,
    "placement.workers": 2,
    "steps": 400,
    "tensorboard": False,
}


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
        ({"placement": "fused", "gather": "sync", "placement.workers": 1}, "gather"),
        ({"placement": "fused", "max_lag": 1, "placement.workers": 1}, "max_lag"),
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


@pytest.mark.parametrize(
    ("algorithm", "sets", "where"),
    [
        ("ape-x", {"env": "Pendulum-v1"}, "need actions that can be counted"),
        ("dqn", {"agent.learning_starts": 200_000}, "learning_starts"),
        ("es", {"agent.pairs": 7}, "agent.pairs"),
        ("impala", {"rollouts_ahead": 2, "gather": "sync"}, "rollouts_ahead"),
        ("ppo", {"agent.minibatches": 7}, "minibatches"),
        ("ppo", {"max_lag": 1}, "max_lag"),
        ("ppo", {"agent.network": [{"type": "denze", "units": 8}]}, "denze"),
        ("ppo", {"agent.acting_backend": "numpyy"}, "numpyy"),
        ("a3c", {"agent.lr": {"type": "linaer"}}, "linaer"),
        ("impala", {"learner": "actor", "agent.lr": {"type": "linaer"}}, "linaer"),
        ("multi-agent", {"env": "rlweave/MultiCartPole-v0", "max_lag": 1, "gather": "sync"}, "max_lag"),
    ],
)
def test_settings_are_checked_before_any_process_begins_or_any_graph_is_built(monkeypatch, algorithm, sets, where):
    def never(*arguments, **options):
        raise AssertionError("something has begun")

    monkeypatch.setattr("rlweave.algorithms.trainer.make_engine", never)
    monkeypatch.setattr("rlweave.agents.agent.build", never)
    with pytest.raises(RlweaveError, match=where):
        trainer_of(algorithm, engine="ray", **sets)


def test_environments_are_closed_where_settings_are_wrong(monkeypatch):
    closed = []
    monkeypatch.setattr("rlweave.envs.VectorEnv.close", lambda env: closed.append(env.worker))
    with pytest.raises(ConfigError, match="max_lag"):
        trainer_of("ppo", max_lag=1)
    assert closed == [0, 1]


class Mortal(Computing):
    """Fails from its third item on if it is the second of its group, and so does whoever takes its place, at once."""

    life = 2

    def replacing(self, number):
        self.life = 0

    def sample(self):
        if self.number == 1 and self.made >= self.life:
            raise ValueError("gone")
        return super().sample()


class MortalFactory:
    makes = Mortal

    def __init__(self, number):
        self.number = number

    def __call__(self):
        return Mortal(self.number)


@pytest.mark.parametrize(
    ("algorithm", "sets"), [(a3c, {"gather": "sync"}), (es, {}), (maml, {})], ids=["a3c", "es", "maml"]
)
def test_algorithms_in_rounds_learn_from_whole_rounds_of_those_who_are_there(algorithm, sets):
    config = algorithm.config_class(
        env="any", placement={"workers": 3, "on_error": "replace"}, num_envs=3, engine="ray", **sets
    )
    learner = Descending()
    plan = algorithm.plan_of(config, WorkerGroup(list(map(MortalFactory, range(3)))), learner).start(
        LocalEngine(), FakeClock()
    )
    items = list(islice(plan.items(), 10))
    makers = [[(source[-1], number) for source, number in item.origins] for item in items]
    assert makers[:2] == [[("0", n), ("1", n), ("2", n)] for n in range(2)]
    assert makers[2:] == [[("0", n), ("2", n)] for n in range(2, 10)]
    report = plan.report()
    assert report.train_lag == {0: 10}
    assert report.measures["gather_sync/given_up"] == 1
    assert report.trained_samples == report.env_steps_sampled == 4 * (2 * 3 + 8 * 2)
    if algorithm is a3c:  # the average over workers 0 and 2: of weight, number, and step
        assert learner.given[2:] == [[n, 1.0, 4.0 * n] for n in range(2, 10)]
