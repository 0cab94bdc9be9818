"""Replicas: a batch split over devices gives the update of one device with the same batch."""

import jax
import numpy as np
import pytest

from rlweave import graph, ops
from rlweave.agents.dqn import DQN
from rlweave.backends.torch_.runtime import TorchBackend
from rlweave.components import Adam, Dense
from rlweave.errors import BuildError, ExecutionError
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import FloatBox, IntBox
from tests.agents.rollouts import SMALL
from tests.graph.toys import Descent, built, close, rows, sequences

TWO = {"jax": ["cpu:0", "cpu:1"], "torch": ["cpu", "cpu"]}
both = pytest.mark.parametrize("backend", ["jax", "torch"])
mostly_torch = pytest.mark.parametrize("backend", [pytest.param("jax", marks=pytest.mark.thorough), "torch"])
SPACES = {"x": rows(3), "y": rows(2)}


class Regression(Component):
    """Two layers, a squared error, a penalty; a count and a noise beside."""

    def __init__(self, clip=0.05):
        super().__init__("root")
        self.hidden, self.out = Dense(8, activation="tanh"), Dense(2, scope="out")
        self.optimizer = Adam(0.05, max_grad_norm=clip)

    def create_variables(self):
        self.mean = self.variable("mean", (3,), 0.0, trainable=False)

    @api
    def update(self, x, y):
        prediction = self.out.call(self.hidden.call(self._shifted(x)))
        loss = self._total(self._error(prediction, self._noisy(y)), self._penalty(prediction))
        self.optimizer.step(loss, self.hidden.variables() + self.out.variables())
        self._move(x)
        graph.metric("loss", loss)
        graph.metric("largest", self._largest(prediction))
        return loss, prediction

    @graph_fn
    def _shifted(self, x):
        return x - self.mean.value

    @graph_fn
    def _noisy(self, y):
        return y + 0.1 * ops.random.normal(y.shape)

    @graph_fn
    def _move(self, x):
        self.mean.assign(0.9 * self.mean.value + 0.1 * ops.mean(x, axis=0))

    @graph_fn
    def _error(self, prediction, y):
        return ops.mean(ops.square(prediction - y))

    @graph_fn
    def _penalty(self, prediction):
        return ops.mean(ops.abs(prediction))

    @graph_fn
    def _total(self, error, penalty):
        return error + 0.01 * penalty

    @graph_fn
    def _largest(self, prediction):
        return ops.max(ops.abs(prediction))


@pytest.fixture
def two_names(monkeypatch):
    """Two names for the CPU, which torch takes for two devices."""
    monkeypatch.setattr(TorchBackend, "device_names", lambda self: ["cpu", "cpu:1"])
    return ["cpu", "cpu:1"]


def batch(size=8, seed=0):
    generator = np.random.default_rng(seed)
    return [generator.standard_normal((size, n)).astype(np.float32) for n in (3, 2)]


@both
@pytest.mark.parametrize(("replicas", "clip"), [(2, 0.05), pytest.param(4, None, marks=pytest.mark.slow)])
def test_replicas_update_as_one_device_does(backend, replicas, clip):
    devices = replicas if backend == "jax" else ["cpu"] * replicas
    one = built(Regression(clip), SPACES, backend, rng="portable")
    many = built(Regression(clip), SPACES, backend, rng="portable", replicas=devices)
    for step in range(10):
        expected, metrics = one.update(*batch(seed=step), with_metrics=True)
        result, replicated_metrics = many.update(*batch(seed=step), with_metrics=True)
        for a, b in zip(result, expected, strict=True):
            close(a, b, rtol=1e-5, atol=1e-5)
        assert list(metrics) == list(replicated_metrics)
        close(list(replicated_metrics.values()), list(metrics.values()))
    ours, theirs = many.state_dict(), one.state_dict()
    assert list(ours) == list(theirs)
    for path, value in theirs.items():
        np.testing.assert_allclose(ours[path], value, atol=1e-5, err_msg=path)
    moved = one.get_weights("root/out")["root/out/kernel"]
    assert np.abs(moved - built(Regression(), SPACES, backend).get_weights()["root/out/kernel"]).max() > 1e-2


def test_the_copies_can_be_seen(two_names):
    executor = built(Regression(), SPACES, "torch", rng="portable", replicas=two_names)
    nodes = executor.graphs["update", ()].nodes
    labels = [node.label for node in nodes]
    for k, device in enumerate(two_names):
        assert [n.device for n in nodes if n.label == f"root/out.out_{k}"] == [device]
    assert sum(node.kind == "gradient" for node in nodes) == 2
    # what mixes rows or moves state is there once
    assert labels.count("root._move") == labels.count("root._noisy") == labels.count("root._largest") == 1
    code = executor.code("update")
    assert "mean_gradients" in code
    assert "_part" in code
    assert "to_cpu_1(" in code
    # what a node takes is where it runs
    for node in nodes:
        assert {v.node.device for v in node.inputs() if v.node is not None} <= {node.device} or node.kind == "transfer"


def test_what_leads_to_a_loss_row_by_row_is_replicated_too(two_names):
    agent = DQN(FloatBox(shape=(4,)), IntBox(3), {"network": SMALL, "replicas": two_names}, backend="torch")
    nodes = agent.executor.graphs["update_from", ()].nodes
    target = [n for n in nodes if "target-policy" in n.label and n.kind == "call" and "weights" not in n.label]
    assert {n.device for n in target} == set(two_names)


class Watching(Regression):
    """Notes how the predictions of a batch lie on the devices of JAX."""

    def __init__(self):
        super().__init__()
        self.shardings = []

    @graph_fn
    def _largest(self, prediction):
        if hasattr(prediction, "aval"):
            jax.debug.inspect_array_sharding(prediction, callback=self.shardings.append)
        return ops.max(ops.abs(prediction))


def test_on_jax_one_program_runs_on_all_devices_each_with_its_rows():
    root = Watching()
    executor = built(root, SPACES, "jax", replicas=2)
    executor.update(*batch())
    assert [sharding.shard_shape((8, 2)) for sharding in root.shardings[-1:]] == [(4, 2)]
    assert len(executor.program("update").runs) == 1
    assert sum(node.kind == "gradient" for node in executor.graphs["update", ()].nodes) == 1
    executor.store.release()
    for path, cell in executor.store.cells.items():
        assert cell.value.sharding.is_fully_replicated, path
        assert len(cell.value.devices()) == 2, path


class Sequences(Component):
    """A loop over time in what is differentiated, time-major."""

    def __init__(self):
        super().__init__("root")
        self.cell, self.optimizer = Dense(3, activation="tanh", scope="cell"), Adam(0.05)

    @api
    def update(self, x):
        last, outputs = graph.scan(self._step, self._start(x), x)
        loss = self._loss(outputs, last)
        self.optimizer.step(loss, self.cell.variables())
        return loss, outputs

    def _step(self, carry, x):
        state = self.cell.call(self._add(carry, x))
        return state, state

    @graph_fn
    def _start(self, x):
        return 0.0 * x[0]

    @graph_fn
    def _add(self, carry, x):
        return carry + x

    @graph_fn
    def _loss(self, outputs, last):
        return ops.mean(ops.square(outputs - 1.0)) + ops.mean(last)


@mostly_torch
def test_a_loop_inside_of_what_is_differentiated(backend):
    x = np.random.default_rng(0).standard_normal((5, 4, 3)).astype(np.float32)
    one = built(Sequences(), {"x": sequences(3)}, backend)
    many = built(Sequences(), {"x": sequences(3)}, backend, replicas=TWO[backend])
    for _ in range(5):
        for result, expected in zip(many.update(x), one.update(x), strict=True):
            close(result, expected, atol=1e-5)
    for path, value in one.get_weights().items():
        close(many.get_weights()[path], value, atol=1e-5)


class TwoLosses(Component):
    """One forward pass, two losses, a step between them; then another pass with the moved weights."""

    def __init__(self):
        super().__init__("root")
        self.layer, self.descent = Dense(2, scope="layer"), Descent(0.1)

    @api
    def update(self, x):
        y = self.layer.call(x)
        variables = self.layer.variables()
        first, second = self._square(y), self._size(y)
        self.descent.apply(graph.gradients(first, variables), variables)
        self.descent.apply(graph.gradients(second, variables), variables)
        again = self._square(self.layer.call(x))
        self.descent.apply(graph.gradients(again, variables), variables)
        return first, second, again

    @graph_fn
    def _square(self, y):
        return ops.mean(ops.square(y))

    @graph_fn
    def _size(self, y):
        return ops.mean(ops.abs(y))


@mostly_torch
def test_gradients_are_those_of_the_weights_that_the_forward_pass_has_read(backend):
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    one = built(TwoLosses(), {"x": rows(3)}, backend)
    many = built(TwoLosses(), {"x": rows(3)}, backend, replicas=TWO[backend])
    for _ in range(4):
        close(many.update(x), one.update(x))
    for path, value in one.get_weights().items():
        close(many.get_weights()[path], value)


# -- what is refused -----------------------------------------------------------------------------------------------


class Wrong(Component):
    """A loss that is spoilt in one way."""

    def __init__(self, how):
        super().__init__("root")
        self.layer, self.optimizer, self.how = Dense(2, scope="layer"), Adam(0.1), how

    def create_variables(self):
        self.seen = self.variable("seen", (), 0.0, trainable=False)

    @api
    def update(self, x):
        y = self.layer.call(x)
        loss = getattr(self, f"_{self.how}")(y)
        self.optimizer.step(loss, self.layer.variables())
        return loss

    @graph_fn
    def _sum(self, y):
        return ops.sum(ops.square(y))

    @graph_fn
    def _root(self, y):
        return ops.sqrt(ops.mean(ops.square(y)))

    @graph_fn
    def _normalized(self, y):
        return ops.mean(ops.square(y - ops.mean(y, axis=0)))

    @graph_fn(mixes_batch=True)
    def _declared(self, y):
        return ops.mean(y)

    def _looped(self, y):
        last, _ = graph.scan(lambda carry, _: (self._sum(y), None), 0.0, None, 2)
        return last

    @graph_fn
    def _noise(self, y):
        return ops.mean(ops.square(y + ops.random.normal(y.shape)))

    @graph_fn
    def _counting(self, y):
        self.seen.assign(self.seen.value + 1.0)
        return ops.mean(y)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("sum", "something else with a batch than with its parts"),
        ("root", "something else with a batch than with its parts"),
        ("normalized", "something else with a batch than with its parts"),
        ("declared", "something else with a batch than with its parts"),
        ("looped", "something else with a batch than with its parts"),
        ("noise", "random numbers are drawn inside what is replicated"),
        ("counting", "a variable is written inside what is replicated: root/seen"),
    ],
)
def test_what_would_change_its_meaning_is_refused(how, message):
    with pytest.raises(BuildError) as error:
        built(Wrong(how), {"x": rows(3)}, "torch", replicas=["cpu", "cpu"])
    assert message in str(error.value)
    assert f"root._{'sum' if how == 'looped' else how}" in str(error.value)
    built(Wrong(how), {"x": rows(3)}, "torch").update(np.ones((2, 3), np.float32))


@both
def test_a_batch_that_does_not_divide(backend):
    executor = built(Regression(), SPACES, backend, replicas=TWO[backend])
    for _ in range(2):
        with pytest.raises(ExecutionError) as error:
            executor.update(*batch(7))
        assert "a batch of 7 rows for 2 replicas" in str(error.value)
    executor.update(*batch(6))
    spaces = {**SPACES, "x": FloatBox(shape=(3,), add_batch_rank=7), "y": FloatBox(shape=(2,), add_batch_rank=7)}
    with pytest.raises(BuildError, match="7 rows for 2 replicas"):
        built(Regression(), spaces, backend, replicas=TWO[backend])


class Looped(Regression):
    """A step for each of several batches (N, B, ...)."""

    @api
    def update(self, x, y):
        def step(carry, batch):
            prediction = self.out.call(self.hidden.call(graph.batch_rank(batch["x"])))
            loss = self._error(prediction, graph.batch_rank(batch["y"]))
            self.optimizer.step(loss, self.hidden.variables() + self.out.variables())
            return carry, loss

        return graph.scan(step, (), {"x": x, "y": y})[1]


def test_a_gradient_in_a_loop(two_names):
    """One program loops on several devices; several programs do only where these are one."""
    spaces = {"x": FloatBox(shape=(3, 8, 3)), "y": FloatBox(shape=(3, 8, 2))}
    x, y = (np.stack(arrays) for arrays in zip(*(batch(seed=seed) for seed in range(3)), strict=True))
    for backend in ("jax", "torch"):
        one, many = (built(Looped(), spaces, backend, replicas=replicas) for replicas in (None, TWO[backend]))
        for _ in range(2):
            close(many.update(x, y), one.update(x, y), atol=1e-5)
    with pytest.raises(BuildError) as error:
        built(Looped(), spaces, "torch", replicas=two_names)
    assert "a gradient inside a loop cannot be replicated over several devices" in str(error.value)


def test_devices_for_replicas():
    def refused(backend, replicas, **options):
        with pytest.raises(BuildError) as error:
            built(Regression(), SPACES, backend, replicas=replicas, **options)
        return str(error.value)

    assert "9; there are ['cpu:0', 'cpu:1', 'cpu:2', 'cpu:3']" in refused("jax", 9)
    assert "a program runs on each device once" in refused("jax", ["cpu:1", "cpu:1"])
    assert "replicas=['cpu', 'cpu']" in refused("torch", 2)
    assert "'cpu:8'; there are" in refused("jax", ["cpu:0", "cpu:8"])
    assert "does not replicate" in refused("numpy", 2)
    assert "eager mode" in refused("torch", ["cpu", "cpu"], mode="eager")
    assert "what learns from it lies on one" in refused("jax", ["cpu:1", "cpu:2"], device={"": "cpu:3"})
    # one replica is none
    assert "mean_gradients" not in built(Regression(), SPACES, "torch", replicas=1).code("update")
    assert "rows" not in built(Regression(), SPACES, "jax", replicas=1).code("update")
