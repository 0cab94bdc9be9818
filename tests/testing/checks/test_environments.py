"""`check_env` finds nothing in environments that are right."""

import functools
import random

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import NormalizeObservation

from rlweave.envs import make_env
from rlweave.errors import EnvError
from rlweave.testing import Cause, check_env
from tests.mutants.environments import GlobalRandom, KeepsSpeed, OwnGenerator, SharedByClass, Sled, TimeIsTerminal

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
    report = check_env(name, steps=200)
    assert report.ok, str(report)
    assert sum(done.times for done in report.done if done.check == "random steps") == 200


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


VECTORS = {
    "next-step": lambda: SyncVectorEnv([cart_pole] * 3),
    "same-step": lambda: SyncVectorEnv([cart_pole] * 3, autoreset_mode=AutoresetMode.SAME_STEP),
    "disabled": lambda: SyncVectorEnv([cart_pole] * 3, autoreset_mode=AutoresetMode.DISABLED),
    "arrays": lambda: CartPoleVectorEnv(3),
    "own": lambda: make_env("CartPole-v1", 3),
}


def cart_pole():
    return gymnasium.make("CartPole-v1")


@pytest.mark.parametrize("kind", VECTORS)
def test_nothing_is_found_in_right_vector_environments(kind):
    report = check_env(VECTORS[kind], steps=150)
    assert report.ok, str(report)
    assert "ended in 3 rows" in report.facts["episodes"]
    assert {"autoreset", "rows are apart"} <= {done.check for done in report.done}


def test_an_object_is_checked_by_its_copies():
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=5)
    env.step(1)
    before = env.unwrapped.state
    report = check_env(env, steps=100)
    assert report.ok, str(report)
    assert "two environments side by side" in {done.check for done in report.done}
    assert env.unwrapped.state is before


def test_of_an_object_that_cannot_be_copied_less_is_checked():
    class Simulator(Sled):
        def __deepcopy__(self, memo):
            raise TypeError("a simulator")

    report = check_env(Simulator(), steps=100)
    assert report.ok, str(report)
    assert "cannot be copied" in report.left_out["two environments of one seed"]
    assert "the same seed repeats" in {done.check for done in report.done}


def test_a_finding_in_the_wild():
    """MountainCarContinuous of Gymnasium returns its state itself."""
    report = check_env("MountainCarContinuous-v0", steps=100)
    (finding,) = [finding for finding in report if not finding.is_advice]
    assert finding.cause is Cause.SHARED_MEMORY
    assert finding.check == "writing into observations"


def test_running_statistics_of_a_wrapper_are_named_with_the_setting_that_replaces_them():
    report = check_env(lambda: NormalizeObservation(gymnasium.make("Pendulum-v1")), steps=50)
    (finding,) = [finding for finding in report if not finding.is_advice]
    assert finding.cause is Cause.NEVER_RESET
    assert "the wrapper NormalizeObservation keeps running statistics" in finding.seen
    assert "agent.normalize_observations=true" in finding.fix


def test_what_a_reset_gave_is_a_finding_about_the_reset():
    report = check_env(functools.partial(StartsOutside), steps=50)
    (finding,) = report
    assert finding.where.startswith("StartsOutside.reset, ")
    assert finding.seen.startswith("reset 1: the observation: 3.0 at [0], where -2.0 to 2.0 is declared")
    assert report.subject.endswith("StartsOutside")


class BreaksAtTheEnd(Sled):
    def close(self):
        raise OSError("the window is gone")


def test_an_error_of_close_is_a_finding():
    report = check_env(BreaksAtTheEnd, steps=60)
    (finding,) = [finding for finding in report if not finding.is_advice]
    assert finding.cause is Cause.CANNOT_RUN
    assert "close() raised OSError: the window is gone" in finding.seen
    assert ", in close" in finding.where
    assert "everything else" not in report.left_out


class ResetsAlone(Sled):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed, options=options)[0]


def test_a_reset_that_gives_too_little_is_a_finding_about_the_reset():
    (finding,) = check_env(ResetsAlone, steps=60)
    assert finding.where.startswith("ResetsAlone.reset, ")


class Speaks(gymnasium.Env):
    """Observations and actions that no array holds."""

    observation_space = spaces.Dict(
        say=spaces.Text(9, min_length=0), tail=spaces.Sequence(spaces.Discrete(9), stack=True)
    )
    action_space = spaces.Text(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number = int(self.np_random.integers(1, 9))
        return self._see(), {}

    def _see(self):
        return {"say": "x" * self.number, "tail": np.arange(self.number)}

    def step(self, action):
        self.number = (self.number + len(action)) % 10
        return self._see(), float(self.number), self.number == 0, False, {}


def test_rows_of_text_and_sequences_are_played():
    report = check_env(lambda: SyncVectorEnv([Speaks] * 2), steps=60)
    assert report.ok, str(report)
    assert "Sequence" in report.left_out["rows that ended, and their neighbours"]


SLED, NUMBER = Sled(), 3


def test_an_environment_of_a_module_is_checked_as_an_object():
    assert check_env(f"{__name__}:SLED", steps=60).subject == "a Sled"
    with pytest.raises(EnvError, match="this is no environment, and makes none"):
        check_env(f"{__name__}:NUMBER")
    with pytest.raises(EnvError, match="did you mean 'Speaks'") as caught:
        check_env(f"{__name__}:Speak")
    assert caught.value.where


class StartsOutside(Sled):
    """The first observation is not like the others."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        return np.array([3, 0], np.float32), {}


def test_global_generators_stay_as_they_were():
    before = np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    report = check_env(OwnGenerator, steps=50)
    assert [finding.cause for finding in report] == [Cause.SEED_IGNORED]
    assert np.array_equal(np.random.get_state()[1], before[0])  # noqa: NPY002
    assert random.getstate() == before[1]


def test_the_cause_is_named_in_the_users_words():
    told = {kind: str(check_env(kind, steps=200)) for kind in (GlobalRandom, KeepsSpeed, SharedByClass, TimeIsTerminal)}
    assert "replace np.random.*: draw every random number from self.np_random" in told[GlobalRandom]
    assert "self.speed is " in told[KeepsSpeed]
    assert "SharedByClass.shared was changed meanwhile" in told[SharedByClass]
    assert "return truncated=True where self.steps reaches its limit" in told[TimeIsTerminal]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ALE/Pong-v5", "HalfCheetah-v5", "InvertedPendulum-v5", "Humanoid-v5"])
def test_nothing_is_found_in_larger_environments(name):
    report = check_env(name, steps=200)
    assert report.ok, str(report)


@pytest.mark.parametrize("options", [{"steps": 0}, {"steps": True}, {"seed": -1}, {"seed": 0.5}])
def test_numbers_that_make_no_sense_are_refused(options):
    with pytest.raises(EnvError, match="a whole number"):
        check_env("CartPole-v1", **options)


class Gusts(Sled):
    """All episodes begin alike; only the gusts are drawn."""

    def begin(self):
        super().begin()
        self.position = 0.0


class GustsOfOneSeed(Gusts):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=3)


def test_a_seed_that_does_not_reach_the_generator_is_found_where_all_episodes_begin_alike():
    assert [finding.cause for finding in check_env(GustsOfOneSeed, steps=100)] == [Cause.SEED_IGNORED]
    assert not {finding.cause for finding in check_env(Gusts, steps=100)} - {Cause.ADVICE}
