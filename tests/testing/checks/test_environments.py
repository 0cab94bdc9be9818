"""`check_env` finds nothing in environments that are right."""

import pytest

from rlweave.errors import EnvError
from rlweave.testing import check_env

OWN = [
    "rlweave/GridWorld-v0",
    "rlweave/Catch-v0",
    "rlweave/CueRecall-v0",
    "rlweave/SineTasks-v0",
    "rlweave/PointNavigation-v0",
    "rlweave/MultiCartPole-v0",
    "rlweave.envs.in_graph:CartPole",
    "rlweave.envs.in_graph:Catch",
    "rlweave.envs.in_graph:CueRecall",
    "rlweave.envs.in_graph:GridWorld",
    "rlweave.envs.in_graph:Pendulum",
]
GYMNASIUM = [
    "CartPole-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "Pendulum-v1",
    "Taxi-v4",
    "FrozenLake-v1",
    "Blackjack-v1",
    "CliffWalking-v1",
]


@pytest.mark.parametrize("name", OWN + GYMNASIUM)
def test_nothing_is_found_in_right_environments(name):
    report = check_env(name, steps=300)
    assert report.ok, str(report)
    assert sum(done.times for done in report.done if done.check == "random steps") == 300


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (3, "this is no environment, and makes none"),
        ("CartPol-v1", "did you mean 'CartPole-v1'?"),
        (lambda: 3, "what was made is no environment"),
        ("no_such_module:make", "the module of an environment cannot be imported"),
    ],
)
def test_what_is_no_environment_is_refused(what, says):
    with pytest.raises(EnvError) as caught:
        check_env(what)
    assert says in str(caught.value)
    assert "fix:" in str(caught.value)


@pytest.mark.parametrize("options", [{"steps": 0}, {"steps": True}, {"seed": -1}, {"seed": 0.5}])
def test_numbers_that_make_no_sense_are_refused(options):
    with pytest.raises(EnvError, match="a whole number"):
        check_env("CartPole-v1", **options)
