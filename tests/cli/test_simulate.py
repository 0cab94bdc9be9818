"""`rlweave plan --simulate`: a table or JSON, of costs that were measured or that a file gives."""

import json

import pytest

COSTS = """
operators:
  parallel_rollouts: {per_item: 0.5, rows: 256, bytes: 1000}
  concat_batches: {per_row: 0.0001}
  train_one_step: {per_item: 0.1, per_row: 0.0002}
weights: {bytes: 2000, write: 0.01}
messages: {look: 1.0e-7}
"""
WORDS = ["plan", "ppo", "--backend", "torch", "--set", "agent.acting_backend=numpy", "--set", "agent.rollout_steps=32"]


@pytest.fixture
def simulated(rlweave, tmp_path):
    (tmp_path / "costs.yaml").write_text(COSTS)
    return lambda *words: rlweave(*WORDS, *words)


def test_a_plan_is_simulated_with_any_number_of_workers(simulated):
    result = simulated("--simulate", "1,2,64", "--costs", "costs.yaml", "--cores", 8, "--json")
    assert result.code == 0, result.err
    told = json.loads(result.out)
    assert (told["algorithm"], told["env"]) == ("ppo", "CartPole-v1")
    assert told["costs"]["operators"]["train_one_step"]["per_item"] == 0.1
    for row, n in zip(told["rows"], (1, 2, 64), strict=True):
        assert (row["workers"], row["machines"]) == (n, -(-n // 8))
        # weights, a rollout of each worker, and the update of all of them
        seconds = 0.01 + 0.5 + n * 256 * 0.0001 + 0.1 + n * 256 * 0.0002
        assert row["steps_per_second"] == pytest.approx(n * 256 / seconds, rel=0.01)
        assert row["learner_busy"] == pytest.approx((0.1 + n * 256 * 0.0002) / seconds, rel=0.01)


def test_people_get_a_table_and_the_costs_that_they_can_change(simulated, tmp_path):
    result = simulated("--simulate", "2,256", "--costs", "costs.yaml", "--write-costs", "again.yaml")
    assert result.code == 0, result.err
    assert "each worker has 8 environments" in result.out
    lines = [line.split() for line in result.out.splitlines()]
    head = next(words for words in lines if words[:1] == ["workers"])
    assert head[:3] == ["workers", "machines", "steps/s"]
    assert "256" in [words[0] for words in lines if words]
    assert "the driver, most of it train_one_step" in result.out
    written = (tmp_path / "again.yaml").read_text()
    assert written in result.out
    again = simulated("--simulate", "2", "--costs", "again.yaml")
    assert again.out.splitlines()[4] == result.out.splitlines()[4], (
        "the costs that were written are those that were used"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--simulate", "two"], "no numbers of workers"),
        (["--simulate", "0"], "no numbers of workers"),
        (["--simulate", "2", "--draw"], "one thing at a time"),
        (["--cores", 2], "only a simulation has costs and cores"),
        (["--json"], "only a simulation has costs and cores"),
        (["--simulate", "2", "--costs", "none.yaml"], "none.yaml"),
        (["--simulate", "2", "--costs", "costs.yaml", "--placement", "fused"], "workers around one learner"),
        (
            ["--simulate", "2", "--costs", "costs.yaml", "--placement", "environments_apart"],
            "workers around one learner",
        ),
        (["--simulate", "2", "--costs", "costs.yaml", "--placement", "multi_learner"], "workers around one learner"),
    ],
)
def test_what_cannot_be_simulated_says_why(simulated, words, message):
    result = simulated(*words)
    assert result.code == 2
    assert message in result.err


def test_costs_of_another_algorithm_are_refused(rlweave, tmp_path):
    (tmp_path / "costs.yaml").write_text(COSTS)
    acting = ["--set", "agent.acting_backend=numpy"]
    result = rlweave("plan", "dqn", "--backend", "torch", *acting, "--simulate", "2", "--costs", "costs.yaml")
    assert result.code == 1
    assert "the costs of 'store_to_buffer', 'replay' are not known" in result.err


def test_an_algorithm_with_a_trainer_of_its_own_is_not_measured(rlweave):
    result = rlweave("plan", "counting", "--simulate", "2")
    assert result.code == 2
    assert "--costs FILE" in result.err
