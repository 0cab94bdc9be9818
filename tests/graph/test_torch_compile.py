"""`torch_compile=True`: runs through torch.compile(fullgraph=True) give the same numbers, without graph breaks."""

from functools import partial

import numpy as np
import pytest

from rlweave import graph, ops
from rlweave.errors import BuildError
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import BoolBox, FloatBox
from tests.graph.toys import BATCH, SCALAR, Cell, Descent, Linear, built, close, rows

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture
def counters():
    torch = pytest.importorskip("torch")
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    return torch._dynamo.utils.counters


@pytest.fixture
def no_generated_code(monkeypatch):
    """Captured, functionalized and differentiated as whole graphs, which are then run without a C++ compiler.

    What is captured is rlweave's. That generated code computes it is shown by the first test of this file, by the agent
    of `tests/agents/test_torch_compile.py` and by the optimizers; to compile what is captured here takes minutes.
    """
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))


class _Agent(Component):
    def __init__(self):
        super().__init__("root")
        self.first, self.second = Linear(8, "first"), Linear(2, "second")
        self.target = self.second.copy(scope="target", trainable=False)
        self.descent = Descent(0.05)
        self.count = Cell(0.0, scope="count", trainable=False)

    @api
    def act(self, observations):
        return self._sample(self._q_values(observations))

    @api
    def update(self, observations, targets):
        self.count.add(1.0)
        hidden = self._activate(self.first.call(observations))
        noisy = self._noise(targets, self.target.call(hidden))
        loss = self._loss(self.second.call(hidden), noisy)
        graph.metric("loss", loss)
        variables = self.first.variables() + self.second.variables()
        self.descent.apply(graph.gradients(loss, variables), variables)
        self.target.sync(self.second, tau=0.1)
        return loss, self.count.read()

    def _q_values(self, observations):
        return self.second.call(self._activate(self.first.call(observations)))

    @graph_fn
    def _activate(self, x):
        return ops.tanh(x)

    @graph_fn
    def _sample(self, q):
        return ops.random.categorical(q), ops.argmax(q, axis=-1)

    @graph_fn
    def _noise(self, targets, q):
        return ops.stop_gradient(targets + 0.1 * q) + 0.01 * ops.random.normal(targets.shape)

    @graph_fn
    def _loss(self, q, targets):
        return ops.mean((q - targets) ** 2)


@pytest.mark.long(minutes=1)
def test_acting_and_an_update_by_gradient_descent(counters):
    spaces = {"observations": rows(3), "targets": rows(2)}
    plain, compiled = (
        built(_Agent(), spaces, "torch", seed=1, rng="portable", torch_compile=flag) for flag in (False, True)
    )
    generator = np.random.default_rng(0)
    for _ in range(3):
        observations, targets = (generator.normal(size=(6, n)).astype(np.float32) for n in (3, 2))
        for one, other in zip(plain.act(observations), compiled.act(observations), strict=True):
            assert np.array_equal(one, other)
        (loss, count), metrics = compiled.update(observations, targets, with_metrics=True)
        expected, _ = plain.update(observations, targets)
        close(loss, expected, rtol=1e-4)
        assert metrics["loss"] == pytest.approx(float(loss))
        for path, value in plain.state_dict().items():
            close(compiled.state_dict()[path], value, rtol=1e-4, atol=1e-5)
    close(count, 3.0)
    assert not counters["graph_break"]
    compiled.load_state_dict(plain.state_dict())
    close(compiled.update(observations, targets)[0], plain.update(observations, targets)[0], rtol=1e-4)


class _Meta(Component):
    def __init__(self):
        super().__init__("root")
        self.model, self.descent = Cell(1.0, scope="model"), Descent(0.1)
        self.left, self.right = Cell(0.0, scope="left"), Cell(0.0, scope="right")

    @api
    def meta(self, x):
        """As in law 10: 1.92 and not 2.40; then a step, which the next call sees."""
        variables = self.model.variables()
        slopes = graph.gradients(self._square(self.model.times(x)), variables)
        fast = {path: self._move(value, slopes[path]) for path, value in variables.read().items()}
        outer = self._outer(graph.substitute(self.model, fast).times(x))
        gradients = graph.gradients(outer, variables)
        self.descent.apply(gradients, variables)
        return outer, gradients

    @api
    def choose(self, flag, x):
        def yes():
            self.left.add(x)
            return self.left.read()

        def no():
            self.right.add(self._double(x))
            return self.right.read()

        return graph.cond(flag, yes, no)

    @api
    def around_the_host(self, x):
        y = self._host(self.model.times(x))
        self.left.add(y)
        return y, self.left.times(y)

    @api
    def scanned(self, xs):
        def step(carry, x):
            self.left.add(x)
            return carry + x, self.left.read()

        return graph.scan(step, 0.0, xs)

    @api
    def mapped(self, batch):
        return graph.vmap(lambda x: self._square(self.model.times(x)))(batch)

    @graph_fn
    def _square(self, y):
        return y * y

    @graph_fn
    def _move(self, w, slope):
        return w - 0.1 * slope

    @graph_fn
    def _outer(self, y):
        return 1.5 * y * y

    @graph_fn
    def _double(self, x):
        return 2.0 * x

    @graph_fn(host=True)
    def _host(self, y):
        return np.asarray(y) * 2.0


def test_nested_gradients_branches_loops_vmap_and_host_nodes(counters, no_generated_code):
    spaces = {"x": SCALAR, "flag": BoolBox(), "xs": FloatBox(shape=(3,)), "batch": BATCH}
    plain, compiled = (built(_Meta(), spaces, "torch", rng="portable", torch_compile=flag) for flag in (False, True))
    outer, gradients = compiled.meta(1.0)
    close([outer, gradients["root/model/content"]], [0.96, 1.92])
    plain.meta(1.0)
    xs = np.array([1.0, 2.0, 3.0], np.float32)
    for method, arguments in (
        ("meta", (2.0,)),
        ("choose", (True, 3.0)),
        ("choose", (False, 3.0)),
        ("around_the_host", (2.0,)),
        ("scanned", (xs,)),
        ("mapped", (xs,)),
    ):
        one, other = plain.execute(method, *arguments), compiled.execute(method, *arguments)
        for expected, found in zip(_leaves(one), _leaves(other), strict=True):
            close(found, expected, rtol=1e-4)
        for path, value in plain.get_weights().items():
            close(compiled.get_weights()[path], value, rtol=1e-4)
    assert not counters["graph_break"]


class _Epochs(Component):
    """Epochs of gradient steps: a loop in a loop, with an optimizer, a metric and random numbers in the inner body."""

    def __init__(self):
        super().__init__("root")
        self.model, self.descent = Linear(2, "model"), Descent(0.05)
        self.count = Cell(0.0, scope="count", trainable=False)

    @api
    def train(self, xs, ys):
        def step(total, pair):
            loss = self._loss(self.model.call(pair[0]), pair[1])
            variables = self.model.variables()
            self.descent.apply(graph.gradients(loss, variables), variables)
            self.count.add(1.0)
            graph.metric("loss", loss)
            return self._plus(total, loss), loss

        return graph.scan(lambda total, _: graph.scan(step, total, (xs, ys)), 0.0, None, length=3)

    @graph_fn
    def _loss(self, outputs, targets):
        return ops.mean((outputs - targets + 0.01 * ops.random.normal(targets.shape)) ** 2)

    @graph_fn
    def _plus(self, total, loss):
        return total + loss


def test_bodies_of_loops_are_compiled_once_and_not_unrolled(counters, no_generated_code):
    spaces = {
        "xs": FloatBox(shape=(3,), add_batch_rank=True, add_time_rank=True),
        "ys": FloatBox(shape=(2,), add_batch_rank=True, add_time_rank=True),
    }
    plain, compiled = (
        built(_Epochs(), spaces, "torch", seed=1, rng="portable", torch_compile=flag) for flag in (False, True)
    )
    generator = np.random.default_rng(0)
    for steps in (2, 2, 7):
        xs, ys = (generator.normal(size=(steps, 4, n)).astype(np.float32) for n in (3, 2))
        expected, metrics = plain.train(xs, ys, with_metrics=True)
        found, compiled_metrics = compiled.train(xs, ys, with_metrics=True)
        for one, other in zip(expected, found, strict=True):
            close(other, one, rtol=1e-4)
        assert compiled_metrics["loss"] == pytest.approx(metrics["loss"], rel=1e-4)
        for path, value in plain.get_weights().items():
            close(compiled.get_weights()[path], value, rtol=1e-4)
    assert counters["stats"]["unique_graphs"] == 1, "whatever the number of steps and epochs"
    assert not counters["graph_break"]


def test_a_torch_generator_in_a_compiled_run_is_refused():
    executor = built(_Agent(), {"observations": rows(3), "targets": rows(2)}, "torch", torch_compile=True)
    with pytest.raises(BuildError) as error:
        executor.act(np.zeros((1, 3), np.float32))
    assert 'build with rng="portable"' in str(error.value)
    assert "root._sample" in str(error.value)


def _leaves(structure):
    if isinstance(structure, dict):
        return [leaf for item in structure.values() for leaf in _leaves(item)]
    if isinstance(structure, tuple):
        return [leaf for item in structure for leaf in _leaves(item)]
    return [structure]
