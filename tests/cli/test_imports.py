"""Modules of a user's own: `--import`, and components named as "module:Class"."""

import json
import sys

import numpy as np
import pytest
import yaml

from rlweave import train
from rlweave.components import Dense
from rlweave.errors import RlweaveError, SpecError
from rlweave.graph import Component, to_spec

OWN = '''
import gymnasium
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv
from rlweave import Component, graph_fn, ops, register
from rlweave.envs.in_graph import CartPole, register_graph_environment


@register("doubled_{name}")
class Doubled(Component):
    """Twice its input."""

    @graph_fn
    def call(self, inputs):
        return 2.0 * inputs


class Plain(Component):
    """Not registered."""

    def __init__(self, factor=1.0, inner=None, scope="plain"):
        super().__init__(scope)
        self.factor, self.inner = factor, inner

    @graph_fn
    def call(self, inputs):
        return self.factor * inputs


if "{name}/Pole-v0" not in gymnasium.registry:
    gymnasium.register("{name}/Pole-v0", CartPoleEnv, max_episode_steps=30)
register_graph_environment("{name}/Pole-v0", CartPole, max_episode_steps=30)
'''
QUICK = (
    "--backend", "torch", "--steps", 32, "--num-envs", 2, "--set", "agent.rollout_steps=16",
    "--set", "agent.minibatches=2", "--set", "agent.epochs=1", "--set", "final_episodes=1", "--set", "evaluate_every=0",
)  # fmt: skip


@pytest.fixture
def own(rlweave, tmp_path, monkeypatch, request):
    """A module in the current directory; each test has its own, as imports are kept."""
    name = "own_" + request.node.name.replace("[", "_").replace("]", "")
    (tmp_path / f"{name}.py").write_text(OWN.replace("{name}", name))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    sys.modules.pop(name, None)


@pytest.mark.parametrize("way", ["import", "class"])
def test_a_layer_of_ones_own_trains_and_is_evaluated(rlweave, own, tmp_path, way):
    layer = f"doubled_{own}" if way == "import" else f"{own}:Plain"
    words = ["--import", own] if way == "import" else []
    network = json.dumps([{"type": layer}, {"type": "dense", "units": 4}])
    result = rlweave("train", "ppo", "--env", "CartPole-v1", *words, "--set", f"agent.network={network}", *QUICK,
                     "--run-dir", "run")  # fmt: skip
    assert result.code == 0, result.err
    kept = yaml.safe_load((tmp_path / "run/config.yaml").read_text())
    assert kept["imports"] == ([own] if way == "import" else [])
    sys.modules.pop(own)  # as in a new process
    again = rlweave("evaluate", "run", "--episodes", 1)
    assert again.code == 0, again.err
    assert own in sys.modules or way == "class"


def test_an_environment_in_ops_of_ones_own_is_fused(rlweave, own, tmp_path):
    result = rlweave("train", "ppo", "--env", f"{own}/Pole-v0", "--import", own, "--placement", "fused", *QUICK,
                     "--run-dir", "run")  # fmt: skip
    assert result.code == 0, result.err
    assert rlweave("evaluate", "run", "--episodes", 1).code == 0


def test_own_components_are_listed_and_what_is_missing_is_said(rlweave, own):
    assert f"doubled_{own}" in rlweave("list", "components", "--import", own).out
    result = rlweave("train", "counting", "--env", "CartPole-v1", "--import", "no_such_module")
    assert result.code == 2
    assert "no_such_module" in result.err


def test_a_class_is_named_by_its_module(own):
    made = Component.from_spec({"type": f"{own}:Plain", "factor": 3.0, "inner": {"type": f"{own}:Doubled"}})
    assert (type(made).__name__, made.factor, type(made.inner).__name__) == ("Plain", 3.0, "Doubled")
    spec = to_spec(made)
    assert spec["type"] == f"{own}:Plain"
    assert Component.from_spec(spec).factor == 3.0
    assert isinstance(Component.from_spec({"type": "rlweave.components:Dense", "units": 2}), Dense)
    for name, told in {f"{own}:Plane": "did you mean 'Plain'?", "no_such_module:X": "cannot be imported"}.items():
        with pytest.raises(SpecError) as error:
            Component.from_spec({"type": name})
        assert told in str(error.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [("x = 1 / 0\n", "ZeroDivisionError.*line 1"), ("def f(:\n", "SyntaxError.*line 1")],
    ids=["raises", "syntax"],
)
def test_a_module_that_fails_is_named_with_the_line(own, content, told, tmp_path):
    broken = f"{own}_broken"
    (tmp_path / f"{broken}.py").write_text(content)
    for use in (
        lambda: train("es", "CartPole-v1", backend="numpy", imports=[broken]),
        lambda: train("es", "CartPole-v1", backend="numpy", callbacks=[f"{broken}:Watch"]),
        lambda: train("es", f"{broken}:Walk", backend="numpy"),
        lambda: Component.from_spec({"type": f"{broken}:Layer"}),
    ):
        with pytest.raises(RlweaveError, match=f"cannot be imported: {told}"):
            use()


def test_a_policy_acts_where_a_module_of_its_run_fails(own, tmp_path):
    settings = {"backend": "numpy", "steps": 0, "num_envs": 1, "agent": {"pairs": 1, "noise_size": 10_000}}
    run = train("es", "CartPole-v1", run_dir=tmp_path / "run", imports=[own], **settings).finish()
    sys.modules.pop(own)
    (tmp_path / f"{own}.py").write_text("raise OSError('no display')")
    assert run.load().act(np.zeros(4, np.float32)) in (0, 1)
