"""Stopping in the middle of something: a training ends at the next whole state, or leaves the last one behind."""

import signal
import subprocess
import sys

import gymnasium
import pytest

from rlweave.algorithms import saving
from rlweave.runs.checkpoint import find_checkpoint, list_checkpoints
from tests.algorithms.test_checkpoints_in_passing import CASES, trainers  # noqa: F401
from tests.algorithms.test_trainer import assert_same_state, finish, state_of

PPO, SETTINGS = CASES["ppo"]


class Interrupting(gymnasium.Wrapper):
    """Calls a function at one of the steps of all of its copies together."""

    steps, at, call = 0, -1, staticmethod(lambda: None)

    def step(self, action):
        kind = type(self)
        kind.steps += 1
        if kind.steps == kind.at:
            kind.call()
        return self.env.step(action)


@pytest.fixture
def interrupting():
    """(id, class) of an environment; evaluations step it, too."""
    kind = type("Interrupting", (Interrupting,), {})
    gymnasium.register("rlweave-tests/Interrupting-v0", lambda: kind(gymnasium.make("CartPole-v1")))
    yield "rlweave-tests/Interrupting-v0", kind
    del gymnasium.registry["rlweave-tests/Interrupting-v0"]


def test_a_training_that_is_stopped_ends_after_the_step_and_loses_nothing(trainers, tmp_path, interrupting):  # noqa: F811
    env, kind = interrupting
    uncut = finish(trainers(PPO, SETTINGS, tmp_path / "uncut", env=env, evaluate_every=0))
    stopped = trainers(PPO, SETTINGS, tmp_path / "cut", env=env, evaluate_every=0, checkpoint_every=0, report_every=400)
    kind.steps, kind.at, kind.call = 0, 70, stopped.stop
    assert list(stopped.train()) == [], "it does not wait for the report"
    assert stopped.env_steps == 96, "steps are items of 32"
    path = stopped.save()
    resumed = trainers(PPO, SETTINGS, tmp_path / "cut", env=env, evaluate_every=0, checkpoint_every=0)
    resumed.restore(path)
    assert finish(resumed)[-1] == uncut[-1]


@pytest.mark.parametrize("long", [True, False], ids=["long steps", "short steps"])
def test_in_the_middle_of_a_long_step_the_state_before_it_is_saved(
    trainers,  # noqa: F811
    tmp_path,
    interrupting,
    monkeypatch,
    long,
):
    monkeypatch.setattr(saving, "_LONG_SHARE", 0.0 if long else 1.0)
    env, kind = interrupting
    sets = {"env": env, "evaluate_every": 0, "checkpoint_every": 0, "report_every": 96}
    uncut = trainers(PPO, SETTINGS, tmp_path / "uncut", **sets)
    rows = finish(uncut)
    told = []
    cut = trainers(PPO, SETTINGS, tmp_path / "cut", **sets)
    kind.steps, kind.at, kind.call = 0, 250, lambda: told.append(cut.rescue())
    finish(cut)
    if not long:
        assert told == [""], "nothing is kept where steps are short"
        assert list_checkpoints(cut.run.checkpoints) == []
        return
    path = find_checkpoint(tmp_path / "cut")
    assert told == [f"the state before this step was saved in {path}; "]
    resumed = trainers(PPO, SETTINGS, tmp_path / "cut", **sets)
    resumed.restore(path)
    assert resumed.env_steps == 224
    assert finish(resumed) == [row for row in rows if row["env_steps_sampled"] > 224]
    assert_same_state(state_of(resumed), state_of(uncut))


def test_in_the_middle_of_an_evaluation_all_is_saved_and_it_is_done_again(trainers, tmp_path, interrupting):  # noqa: F811
    env, kind = interrupting
    sets = {"env": env, "evaluate_every": 96, "checkpoint_every": 0, "steps": 192}
    uncut = finish(trainers(PPO, SETTINGS, tmp_path / "uncut", **sets))
    cut = trainers(PPO, SETTINGS, tmp_path / "cut", **sets)
    kind.steps, kind.at, kind.call = 0, 96 + 5, cut.rescue
    finish(cut)
    path = find_checkpoint(tmp_path / "cut")
    assert path.name == "step-000000000096"
    resumed = trainers(PPO, SETTINGS, tmp_path / "cut", **sets)
    resumed.restore(path)
    again = finish(resumed)
    assert "evaluation_return" in again[0]
    assert again == [row for row in uncut if row["env_steps_sampled"] >= 96]


BUSY = """
import hashlib, sys
from rlweave.cli.interrupt import StopRequest
def rescue():
    print("rescued", flush=True)
    return "saved"
try:
    with StopRequest(rescue=rescue, grace=float(sys.argv[1])):
        print("busy", flush=True)
        hashlib.pbkdf2_hmac("sha512", b"x", b"y", 10**9)  # one long call, as that of a compiled program
except KeyboardInterrupt:  # both came before the call
    sys.exit(130)
"""


@pytest.mark.parametrize(("grace", "numbers"), [("0.1", ["SIGTERM"]), ("1000", ["SIGTERM", "SIGINT"])])
def test_a_long_call_does_not_outlive_the_grace_nor_a_second_request(grace, numbers):
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY, grace], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "busy\n"
        for number in numbers:
            process.send_signal(getattr(signal, number))
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert out == ("rescued\n" if len(numbers) == 1 else "")
    assert ("did not stop within 0.1 seconds; saved" in err) == (len(numbers) == 1)
