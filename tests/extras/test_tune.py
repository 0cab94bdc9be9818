"""Any training as a trainable of Ray Tune: settings, metrics, and checkpoints that resume exactly."""

import re
from pathlib import Path

import numpy as np
import pytest

from rlweave.errors import ConfigError

pytestmark = pytest.mark.slow


@pytest.fixture
def tuning():
    """The module; who only collects tests need not wait for pandas and pyarrow."""
    pytest.importorskip("ray.tune", exc_type=ImportError)
    import rlweave.extras.tune

    return rlweave.extras.tune


SMALL = {
    "algorithm": "ppo",
    "env": "CartPole-v1",
    "backend": "torch",
    "num_envs": 2,
    "steps": 1_000,
    "report_every": 100,
    "evaluate_every": 200,
    "evaluation_episodes": 2,
    "agent": {
        "network": [{"type": "dense", "units": 8}],
        "rollout_steps": 16,
        "epochs": 1,
        "minibatches": 2,
        "acting_backend": "numpy",
    },
}


def test_settings_are_those_of_the_command_line(tuning):
    spec, config = tuning.settings_of(
        {**SMALL, "agent.lr": {"type": "linear", "start": 0.1, "end": 0.0}, "env_options": {}}
    )
    assert spec.name == "ppo"
    assert (config.num_envs, config.agent.rollout_steps, config.agent.lr["start"]) == (2, 16, 0.1)
    for wrong, message in (
        ({**SMALL, "agent.learning": 1.0}, "unknown setting"),
        ({"env": "CartPole-v1"}, "names no algorithm"),
        ({**SMALL, "checkpoint_every": 10}, "Tune decides on checkpoint_every"),
    ):
        with pytest.raises(ConfigError, match=message):
            tuning.settings_of(wrong)


def trained(training, steps):
    rows = [training.step() for _ in range(steps)]
    return [{key: value for key, value in row.items() if "second" not in key} for row in rows]


def test_restored_equals_gone_on(tuning, tmp_path):
    uncut = tuning.TuneTraining({**SMALL, "agent.lr": 0.01})
    trained(uncut, 2)
    uncut.save_checkpoint(str(tmp_path))
    rows = trained(uncut, 2)
    never_saved = tuning.TuneTraining({**SMALL, "agent.lr": 0.01})
    assert trained(never_saved, 4)[2:] == rows
    restored = tuning.TuneTraining({**SMALL, "agent.lr": 0.01})
    restored.load_checkpoint(str(tmp_path))
    assert trained(restored, 2) == rows
    weights = [training._training.agent.get_weights() for training in (uncut, restored)]
    for path, value in weights[0].items():
        np.testing.assert_array_equal(value, weights[1][path])
    assert rows[-1]["timesteps_total"] == rows[-1]["env_steps_sampled"] >= 800
    while not rows[-1]["done"]:
        rows += trained(uncut, 1)
    assert rows[-1]["timesteps_total"] >= 1_000
    assert all("evaluation_return" in row for row in rows), "Tune wants its metric in every result"
    assert uncut.reset_config({**SMALL, "agent.lr": 0.5})
    assert uncut._settings.agent.lr == 0.5
    assert uncut.step()["timesteps_total"] < 400
    for training in (uncut, restored, never_saved):
        training.cleanup()


@pytest.mark.long(minutes=0.5)
def test_two_trials_of_tune(tuning, ray_engine, tmp_path, monkeypatch):
    """The page's code as it stands."""
    page = (Path(__file__).parents[2] / "docs/plans-in-plans.md").read_text(encoding="utf-8")
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "tune.Tuner" in block]
    monkeypatch.chdir(tmp_path)
    scope = {}
    exec(compile(code, "plans-in-plans.md", "exec"), scope)
    results, best = scope["results"], scope["best"]
    assert not results.errors
    rates = [result.config["agent.lr"] for result in results]
    assert len(set(rates)) == 2
    assert all(result.metrics["timesteps_total"] >= 4_096 and result.metrics["done"] for result in results)
    again = tuning.TuneTraining(best.config)
    with best.checkpoint.as_directory() as directory:
        again.load_checkpoint(directory)
    assert again._training.env_steps == best.metrics["timesteps_total"]
    again.cleanup()
