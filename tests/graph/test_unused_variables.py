"""An optimizer that would train nothing, or not all that it was given, is an error of the build on every backend."""

import numpy as np
import pytest

from rlweave import graph, ops
from rlweave.components import SGD
from rlweave.errors import BuildError
from rlweave.graph import Component, api, graph_fn
from tests.graph.toys import BACKENDS, GRADIENT_BACKENDS, Linear, built, rows

X = {"x": rows(2)}


class _Training(Component):
    """Two networks and a target, a loss, and an optimizer."""

    def __init__(self):
        super().__init__("root")
        self.net, self.other = Linear(1, "net"), Linear(1, "other")
        self.target = self.net.copy("target", trainable=False)
        self.optimizer = SGD(0.5)

    @api
    def act(self, x):
        return self.net.call(x), self.other.call(x), self.target.call(x)

    @graph_fn
    def _mean(self, y):
        return ops.mean(y)

    @graph_fn(differentiable=False)
    def _cut(self, y):
        return ops.mean(y)

    @graph_fn
    def _count(self, y):
        return ops.sum(ops.astype(y > 0.0, "int32"))

    @graph_fn
    def _as_float(self, n):
        return ops.astype(n, "float32")


def _training(update, name="update"):
    return type("Training", (_Training,), {name: api(update)})()


def _refusal(update, backend):
    with pytest.raises(BuildError) as error:
        built(_training(update), X, backend)
    return [line.strip() for line in str(error.value).splitlines()]


def _frozen(self, x):
    self.optimizer.step(self._mean(self.net.call(x)), self.target.variables())


def _no_trainable(self, x):
    self.optimizer.step(self._mean(self.net.call(x)), self.optimizer.variables())


def _no_path(self, x):
    self.optimizer.step(self._mean(self.target.call(x)), self.net.variables())


def _stopped(self, x):
    self.optimizer.step(self._mean(graph.stop_gradient(self.net.call(x))), self.net.variables())


def _cut_off(self, x):
    self.optimizer.step(self._cut(self.net.call(x)), self.net.variables())


def _through_integers(self, x):
    self.optimizer.step(self._as_float(self._count(self.net.call(x))), self.net.variables())


def _in_a_loop(self, x):
    def step(carry, _):
        self.optimizer.step(self._mean(self.target.call(x)), self.net.variables())
        return carry, None

    graph.scan(step, (), None, 2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("update", [_frozen, _no_trainable])
def test_no_variables_at_all(update, backend):
    assert _refusal(update, backend) == [
        "there are no variables to differentiate by: nothing would be trained",
        "where:    root/optimizer.step called from root.update",
        "received: the loss is a result of root._mean",
        "fix:      pass component.variables() of what is trained; integers and what has trainable=False are not in it",
    ]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("update", [_no_path, _stopped, _cut_off, _through_integers, _in_a_loop])
def test_no_path_from_the_variables_to_the_loss(update, backend):
    lines = _refusal(update, backend)
    assert lines[0] == "no path leads from the variables to the loss: nothing would be trained"
    assert lines[1] == "where:    root/optimizer.step called from root.update"
    assert lines[2].startswith("received: the loss is a result of root._")
    assert lines[2].endswith("variables: root/net/kernel, root/net/bias")
    assert "without stop_gradient and differentiable=False in between" in lines[3]


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_variable_without_a_path_is_named(backend):
    def update(self, x):
        self.optimizer.step(self._mean(self.net.call(x)), self.net.variables() + self.other.variables())

    assert _refusal(update, backend) == [
        "the loss does not depend on some of the variables, which would never be trained",
        "where:    root/optimizer.step called from root.update",
        "received: the loss is a result of root._mean; 2 of 4 variables: root/other/kernel, root/other/bias",
        "fix:      pass the variables that the loss depends on, or allow_unused=True where gradients of zero are meant",
    ]


def test_gradients_by_variables_and_by_values_ask_the_same():
    def by_variables(self, x):
        return graph.gradients(self._mean(self.net.call(x)), self.other.variables())

    def by_values(self, x):
        return graph.gradients(self._mean(self.net.call(x)), (x, self.other.call(x)))

    assert _refusal(by_variables, "numpy")[1:3] == [
        "where:    root.update",
        "received: the loss is a result of root._mean; variables: root/other/kernel, root/other/bias",
    ]
    assert _refusal(by_values, "numpy")[:3] == [
        "the loss does not depend on some of the values, which would never be trained",
        "where:    root.update",
        "received: the loss is a result of root._mean; 1 of 2 values: of root/other.call",
    ]


@pytest.mark.parametrize("backend", GRADIENT_BACKENDS)
def test_what_is_meant_to_be_unused_stays_where_it_is(backend):
    def update(self, x):
        self.optimizer.step(
            self._mean(self.net.call(x)), self.net.variables() + self.other.variables(), allow_unused=True
        )

    executor = built(_training(update), X, backend)
    before = executor.get_weights()
    executor.update(np.ones((3, 2), np.float32))
    moved = {path for path, value in executor.get_weights().items() if not np.array_equal(value, before[path])}
    assert moved == {"root/net/kernel", "root/net/bias", "root/optimizer/steps"}


@pytest.mark.parametrize("backend", GRADIENT_BACKENDS)
def test_the_owner_of_an_optimizer_hands_it_all_that_can_be_trained(backend):
    def update(self, x):
        loss = self._mean(self._both(self.net.call(x), self.other.call(x)))
        self.optimizer.step(loss, self.variables())
        return loss

    root = _training(update)
    type(root)._both = graph_fn(lambda self, y, z: y + z)
    type(root)._both.__set_name__(type(root), "_both")
    executor = built(root, X, backend)
    x = np.ones((3, 2), np.float32)
    before = executor.get_weights("root/target")
    assert executor.update(x) > executor.update(x)
    assert all(np.array_equal(value, before[path]) for path, value in executor.get_weights("root/target").items())
