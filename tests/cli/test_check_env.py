"""`rlweave check-env`."""

import json

import pytest


def test_a_right_environment_ends_with_0(rlweave):
    result = rlweave("check-env", "CartPole-v1", "--steps", 100)
    assert result.code == 0, result.err
    assert result.out.startswith("CartPole-v1: nothing found")
    assert "steps/s" in result.out
    assert "random steps (100)" in result.out


def test_a_finding_ends_with_1_and_says_place_cause_and_fix(rlweave):
    result = rlweave("check-env", "tests.mutants.environments:WideObservation", "--steps", 100)
    assert result.code == 1
    assert "an observation does not lie in the observation space" in result.out
    assert "dtype float64, where float32 is declared (" in result.out
    assert "return value.astype(np.float32)" in result.out


def test_an_error_of_the_environment_is_a_finding_with_its_line(rlweave):
    result = rlweave("check-env", "tests.mutants.environments:ForgetsTheStartOfActions", "--steps", 100)
    assert result.code == 1
    assert "step() raised IndexError: tuple index out of range" in result.out
    assert "tests/mutants/environments.py:" in result.out
    assert ", in move" in result.out
    assert "Traceback" not in result.out + result.err


def test_the_report_as_json(rlweave):
    result = rlweave("check-env", "tests.mutants.environments:OneArray", "--json", "--steps", 60, "--seed", 3)
    assert result.code == 1
    data = json.loads(result.out)
    assert data["ok"] is False
    (found,) = [finding for finding in data["findings"] if finding["cause"] == "OBSERVATION_CHANGES_LATER"]
    assert found["says"] == "an observation array is changed after it was handed out"
    assert "a later call made it" in found["seen"]
    assert {done["check"] for done in data["done"]} >= {"random steps", "the same seed repeats"}


def test_json_stays_alone_where_the_environment_prints(rlweave):
    result = rlweave("check-env", "tests.cli.broken_envs:Prints", "--json", "--steps", 20)
    assert json.loads(result.out)["subject"] == "tests.cli.broken_envs:Prints"
    assert "stepped" in result.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["CartPol-v1"], "did you mean 'CartPole-v1'?"),
        (["nowhere:Env"], "the module of an environment cannot be imported"),
        (["tests.cli.broken_envs:Break"], "did you mean 'Breaks'?"),
        (["tests.cli.conftest:Result"], "what makes the environment needs arguments"),
        (["CartPole-v1", "--steps", "0"], "a number of steps is a whole number above zero"),
    ],
)
def test_bad_input_is_an_error_with_its_fix(rlweave, words, says):
    result = rlweave("check-env", *words)
    assert result.code == 2
    assert says in result.err
    assert "fix:" in result.err
    assert result.out == ""
