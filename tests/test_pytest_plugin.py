"""The fixture `rlweave_check`, as a user's own tests have it."""

pytest_plugins = ["pytester"]

TEST = """
from rlweave import ops
from rlweave.graph import Component, graph_fn
from rlweave.spaces import FloatBox

ROWS = {"inputs": FloatBox(shape=(3,), add_batch_rank=True)}


class Double(Component):
    @graph_fn
    def call(self, inputs):
        return inputs * 2.0


class Centred(Component):
    @graph_fn
    def call(self, inputs):
        return inputs - ops.mean(inputs, axis=0)


def test_double(rlweave_check):
    assert rlweave_check(Double, ROWS).ok


def test_centred(rlweave_check):
    rlweave_check(Centred, ROWS)


def test_env(rlweave_check):
    rlweave_check.env("CartPole-v1", steps=50)


def test_nothing(rlweave_check):
    rlweave_check(Double)
"""


def test_a_finding_fails_the_test_of_a_user_with_the_report(pytester):
    pytester.makepyfile(TEST)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["*rows of the batch reach each other*", "*where: centred.call, *"])
    result.stdout.fnmatch_lines(["a component is checked with inputs*", "*received: no space*"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*describing.py*")
