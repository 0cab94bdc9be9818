"""What `check` is given: targets, spaces, files and backends that make no sense are said, with their fix."""

import gymnasium
import pytest

from rlweave.errors import ConfigError
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import FloatBox
from rlweave.testing import Cause, Descriptor, check, check_agent
from rlweave.testing.checks.describing import of_file

ROWS = FloatBox(shape=(3,), add_batch_rank=True)


class Twice(Component):
    @graph_fn
    def call(self, inputs):
        return inputs * 2.0

    @graph_fn
    def other(self, more):
        return more * 3.0


class Times(Component):
    def __init__(self, factor):
        super().__init__("times")
        self.factor = factor

    @graph_fn
    def call(self, inputs):
        return inputs * self.factor


class DescribedBadly(Twice):
    @classmethod
    def descriptor(cls):
        raise ValueError("no file")


class DescribedByNothing(Twice):
    @classmethod
    def descriptor(cls):
        return None


class Described(Times):
    @classmethod
    def descriptor(cls):
        return Descriptor("described", cls, lambda: cls(2.0), {"inputs": ROWS})


class NamedDescriptor(Component):
    """`descriptor` is an API method of its own here."""

    @api
    def descriptor(self, inputs):
        return self._twice(inputs)

    @graph_fn
    def _twice(self, inputs):
        return inputs * 2.0


@pytest.mark.parametrize(
    ("target", "spaces", "says"),
    [
        (5, None, "5 (of type int)"),
        ("ppo", None, "check_agent"),
        (gymnasium.Env, None, "check_env"),
        (Twice, None, "no space of 'inputs'"),
        (Twice(), {}, "no space of 'inputs'"),
        (Twice, {"inputz": ROWS}, "no space of 'inputs'"),
        (Twice, [ROWS], "by parameter"),
        (Twice, ROWS, "by parameter"),
        (Twice, {"inputs": (3,)}, "(3,) (of type tuple)"),
        (Twice, {"inputs": gymnasium.spaces.Box(-1, 1)}, "from_gymnasium"),
        (Times, {"inputs": ROWS}, "'factor'"),
        (DescribedBadly, None, "ValueError: no file"),
        (DescribedByNothing, None, "gives no descriptor"),
    ],
    ids=str,
)
def test_what_cannot_be_checked_is_refused(target, spaces, says):
    with pytest.raises(ConfigError) as caught:
        check(target, spaces)
    assert says in str(caught.value)
    assert caught.value.where
    assert caught.value.received
    assert caught.value.fix


@pytest.mark.parametrize(
    ("backends", "says"),
    [("nunpy", "did you mean 'numpy'?"), (["numpy", "nope"], "'nope'"), ([], "by name"), (3, "by name")],
    ids=str,
)
def test_backends_that_there_are_none_of_are_refused(backends, says):
    with pytest.raises(ConfigError, match="backend") as caught:
        check(Twice, {"inputs": ROWS}, backends=backends)
    assert says in str(caught.value)


def test_one_backend_may_be_named_alone():
    report = check(Twice, {"inputs": ROWS}, backends="numpy")
    assert report.ok, str(report)


def test_methods_without_spaces_are_left_out_and_named():
    report = check(Twice, {"inputs": ROWS})
    assert report.ok, str(report)
    assert report.left_out == {"other": "there is no space of 'more'"}


def test_spaces_of_no_input_are_named():
    report = check(Twice, {"inputs": ROWS, "cal.inputs": ROWS, "more": ROWS})
    assert report.left_out == {"cal.inputs": "no API method has an input of this name"}


def test_spaces_that_are_passed_go_before_those_of_a_descriptor():
    with pytest.raises(ConfigError, match="no space of rlweave"):
        check(Described, {"inputs": 3})
    assert check(Described, {"inputs": FloatBox(0, 1, shape=(2,), add_batch_rank=True)}).ok


def test_a_component_is_checked_as_it_was_made():
    class Recorded(Described):
        pass

    report = check(Recorded(float("nan")))
    assert Cause.NOT_FINITE in {finding.cause for finding in report}, str(report)


def test_an_api_method_may_be_called_descriptor():
    assert check(NamedDescriptor, {"inputs": ROWS}).ok


def test_make_of_a_descriptor_that_makes_something_else_is_a_finding():
    (finding,) = check(Descriptor("five", Twice, lambda: 5, {"inputs": ROWS}))
    assert finding.cause is Cause.CANNOT_BUILD
    assert "gives no component; 5" in finding.seen


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("inputs: [1]", "'inputs' of a file"),
        ("inputs: {inputs: 5}", "inputs.inputs"),
        ("inputs: {inputs: {type: Nope}}", "'FloatBox'"),
        ("inputs: {inputs: {type: FloatBox, shape: three}}", "inputs.inputs"),
        ("inputs: {inputz: {type: FloatBox, batch: B}}", "did you mean 'inputs'?"),
        ("inputs: null", "no space of 'inputs'"),
        ("", "no space of 'inputs'"),
        ("{inputs: {inputs: {type: FloatBox, batch: B}}, calls: call}", "[call]"),
        ("{inputs: {inputs: {type: FloatBox, batch: B}}, calls: [cal]}", "did you mean 'call'?"),
        ("{inputs: {inputs: {type: FloatBox, batch: B}}, static: [1]}", "'static' of a file"),
        ("{inputs: {inputs: {type: FloatBox, batch: B}}, static: {call: 1}}", "static arguments"),
        ("{inputs: {inputs: {type: FloatBox, batch: B}}, arguments: 5}", "'arguments' of a file"),
        ("{inputs: {inputs: {type: FloatBox, batch: B}}, arguments: {units: 5}}", "'units'"),
    ],
)
def test_a_file_of_spaces_that_does_not_fit_is_refused(tmp_path, text, says):
    path = tmp_path / "spaces.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        of_file(Twice, str(path))
    assert says in str(caught.value)
    assert caught.value.where
    assert caught.value.fix


def test_an_object_with_a_file_of_spaces_stays_as_it_was_made(tmp_path):
    path = tmp_path / "spaces.yaml"
    path.write_text("inputs: {inputs: {type: FloatBox, shape: [3], batch: B}}")
    assert of_file(Times(3.0), str(path)).make().factor == 3.0
    with pytest.raises(ConfigError, match="'factor'"):
        of_file(Times, str(path))


@pytest.mark.parametrize(
    ("agent", "env", "settings", "says"),
    [
        (5, "CartPole-v1", None, "this is no agent"),
        (Twice, "CartPole-v1", None, "this is no agent"),
        ("dqn", None, None, "this makes no environment"),
        ("dqn", 5, None, "this makes no environment"),
        ("dqn", "CartPole-v1", ["lr"], "settings are a mapping"),
    ],
)
def test_agents_environments_and_settings_that_are_none_are_refused(agent, env, settings, says):
    with pytest.raises(ConfigError, match=says) as caught:
        check_agent(agent, env, settings)
    assert caught.value.fix
