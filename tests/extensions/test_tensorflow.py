"""What is TensorFlow's own: one trace for all batch sizes, arrays with NumPy's manners, other frameworks around it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from rlweave import graph, ops
from rlweave.backends import get_backend, is_installed
from rlweave.errors import BuildError
from rlweave.graph import Component, api, build, graph_fn
from rlweave.spaces import FloatBox
from tests.backends.op_cases import load_tensorflow

tensorflow_ops = load_tensorflow()
if tensorflow_ops is None:
    pytest.skip("tensorflow is not installed", allow_module_level=True)

from rlweave.extensions.tensorflow_.array import OpenAxisError  # noqa: E402
from rlweave.extensions.tensorflow_.framework import tf  # noqa: E402

ROWS = FloatBox(shape=(3,), add_batch_rank=True)
SEQUENCES = FloatBox(shape=(3,), add_batch_rank=True, add_time_rank=True)


class Model(Component):
    """A layer that acts and learns, over batches and over sequences."""

    def create_variables(self, x: Any) -> None:
        self.kernel = self.variable("kernel", (3, 2), "lecun_normal")

    @api
    def act(self, x: Any) -> Any:
        return self._greedy(x)

    @api
    def update(self, x: Any) -> Any:
        loss = self._loss(x)
        self._descend(graph.gradients(loss, self.variables()), self.variables())
        return loss

    @api
    def last_sum(self, sequence: Any) -> Any:
        start = self._start(sequence)
        return graph.scan(lambda total, row: (self._add(total, row), total), start, sequence)

    @graph_fn
    def _greedy(self, x: Any) -> Any:
        noise = ops.random.uniform(x.shape[:1])
        return ops.argmax(ops.matmul(x, self.kernel.value), axis=-1) + ops.astype(noise, "int32")

    @graph_fn
    def _loss(self, x: Any) -> Any:
        rows = ops.reshape(x, (x.shape[0], 3))
        return ops.mean(ops.square(ops.matmul(rows, self.kernel.value))) + 0.0 * x.shape[0]

    @graph_fn(differentiable=False)
    def _descend(self, gradients: Any, variables: Any) -> None:
        for path, variable in variables.items():
            variable.assign(variable.value - 0.01 * gradients[path])

    @graph_fn
    def _start(self, sequence: Any) -> Any:
        return ops.zeros(sequence.shape[1:])

    @graph_fn
    def _add(self, total: Any, row: Any) -> Any:
        return total + row


def model() -> Any:
    return build(Model("model"), {"x": ROWS, "sequence": SEQUENCES}, backend="tensorflow")


def traces(executor: Any, method: str) -> int:
    return sum(run.traces for run in executor.program(method).runs.values())


def test_a_thousand_calls_with_changing_batch_sizes_trace_once() -> None:
    executor = model()
    sizes = np.random.default_rng(0).integers(0, 40, 1000)
    for size in sizes:
        x = np.ones((max(int(size), 1), 3), np.float32)
        assert executor.act(x).shape == (len(x),)
        executor.update(x)
    assert traces(executor, "act") == traces(executor, "update") == 1
    for time, batch in sizes[:40].reshape(-1, 2) + 1:
        total, sums = executor.last_sum(np.ones((time, batch, 3), np.float32))
        assert (total.shape, sums.shape) == ((batch, 3), (time, batch, 3))
        np.testing.assert_array_equal(total, float(time))
    assert traces(executor, "last_sum") == 1
    assert executor.act(np.ones((0, 3), np.float32)).shape == (0,)


class Counting(Component):
    """Python asks for the length of an axis."""

    @graph_fn
    def over_time(self, sequence: Any) -> Any:
        total = sequence[0]
        for step in range(1, sequence.shape[0]):
            total = total + sequence[step]
        return total

    @graph_fn
    def centred(self, sequence: Any) -> Any:
        return sequence - ops.mean(sequence) if sequence.shape[1] > 1 else sequence


def test_what_python_asks_for_is_traced_for_each_length_and_nothing_else() -> None:
    executor = build(Counting("counting"), {"sequence": SEQUENCES}, backend="tensorflow")
    for batch in (1, 2, 5):
        for time in (1, 4):
            x = np.ones((time, batch, 3), np.float32)
            np.testing.assert_array_equal(executor.over_time(x), np.full((batch, 3), time))
    # the attempt with open axes, and a trace for each number of steps
    assert traces(executor, "over_time") == 1 + 2
    for _ in range(3):
        np.testing.assert_array_equal(executor.centred(np.ones((2, 1, 3), np.float32)), 1.0)
        np.testing.assert_array_equal(executor.centred(np.ones((2, 2, 3), np.float32)), 0.0)
    assert traces(executor, "centred") == 2 + 2


def test_an_error_in_a_traced_function_is_the_one_that_python_raised() -> None:
    class Failing(Component):
        @graph_fn
        def call(self, x: Any) -> Any:
            if x.shape[0] == 2:
                raise ZeroDivisionError("two rows")
            return x

    executor = build(Failing("failing"), {"x": ROWS}, backend="tensorflow")
    executor.call(np.ones((3, 3), np.float32))
    with pytest.raises(ZeroDivisionError, match="two rows"):
        executor.call(np.ones((2, 3), np.float32))


def test_arrays_go_in_and_out_as_tensors() -> None:
    executor = model()
    x = np.ones((4, 3), np.float32)
    loss = executor.update(tf.constant(x), as_numpy=False)
    assert isinstance(loss, tf.Tensor)
    assert loss.dtype == tf.float32
    assert type(executor.act(x)) is np.ndarray


def test_what_goes_in_is_a_copy() -> None:
    class Keeping(Component):
        def create_variables(self) -> None:
            self.kept = self.variable("kept", (4096,), 0.0)

        @graph_fn
        def keep(self, x: Any) -> Any:
            self.kept.assign(ops.reshape(x, (-1,)))
            return x

    executor = build(Keeping("keeping"), {"x": FloatBox(shape=(64, 64))}, backend="tensorflow")
    buffer = np.zeros((64, 64), np.float32)
    handed = executor.keep(buffer)
    buffer[:] = 7.0
    assert not handed.any()
    assert not executor.get_weights()["keeping/kept"].any()


@pytest.mark.parametrize(
    "key",
    [
        0,
        -1,
        slice(1, None),
        (slice(None), 1),
        (..., None),
        (None, 2),
        np.array([2, 0, -1]),
        [1, 1],
        (slice(None), np.array([3, -4])),
        (np.array([0, 2]), 1),
        (1, np.array([0, 2])),
        (np.array([0, 2]), np.array([1, -1])),
        (np.array([[0], [2]]), np.array([1, -1])),
        (..., np.array([0, 3])),
        (np.array([0, 1]), None),
        np.array([True, False, True]),
        np.array([[True, False, True, True]] * 3),
        (slice(None, None, -1), slice(None, None, 2)),
    ],
    ids=str,
)
def test_indexing_is_that_of_numpy(key: Any) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    found = tensorflow_ops.asarray(x)[key]
    assert found.shape == x[key].shape
    np.testing.assert_array_equal(np.asarray(found), x[key])


def test_operators_promote_as_on_the_other_backends() -> None:
    x, n = tensorflow_ops.asarray([1.5, -2.0]), tensorflow_ops.asarray([1, 2])
    flags = x > 0
    for result, dtype in (
        (x + n, "float32"), (n + 1, "int32"), (n * 0.5, "float32"), (1 - n, "int32"), (n / 2, "float32"),
        (-x, "float32"), (abs(n), "int32"), (flags & True, "bool"), (~flags, "bool"), (2.0**n, "float32"),
        (np.ones(2, np.float32) * n, "float32"), (x == 1.5, "bool"), (flags + 1, "int32"),
        (tensorflow_ops.asarray(np.ones(2)), "float32"), (tensorflow_ops.asarray(np.ones(2, np.int64)), "int32"),
    ):  # fmt: skip
        assert result.dtype == dtype
    np.testing.assert_array_equal(np.asarray(x - n), [0.5, -4.0])
    np.testing.assert_array_equal(np.asarray(3 // n), [3, 1])
    np.testing.assert_array_equal([float(item) for item in x], [1.5, -2.0])


def test_symbolic_sizes_are_numbers_of_the_graph_and_not_of_python() -> None:
    def run(x: Any) -> Any:
        array = tensorflow_ops.asarray(x)
        for ask in (int, bool, float, range):
            with pytest.raises(OpenAxisError, match="not known while"):
                ask(array.shape[0])
        with pytest.raises(OpenAxisError):
            len(array)
        assert array.shape[1] == 3
        return (array.shape[0] * 2 - 1).tensor

    traced = tf.function(run, autograph=False).get_concrete_function(tf.TensorSpec((None, 3)))
    assert int(traced(tf.zeros((5, 3)))) == 9


def test_a_device_other_than_the_cpu_is_refused() -> None:
    assert build(Model("model"), {"x": ROWS}, backend="tensorflow", methods=["act"], device="cpu").act(
        np.ones((1, 3))
    ).shape == (1,)
    with pytest.raises(BuildError, match="on the CPU only"):
        build(Model("model"), {"x": ROWS}, backend="tensorflow", methods=["act"], device="cuda:0")


_ONE_PROCESS = """
import os
import numpy as np
import torch, jax
import rlweave, sys
from rlweave import graph, ops
from rlweave.graph import Component, api, build, graph_fn
from rlweave.spaces import FloatBox

class Model(Component):
    def create_variables(self, x):
        self.kernel = self.variable("kernel", (3, 2), "lecun_normal")

    @api
    def update(self, x):
        return graph.gradients(self._loss(x), self.variables())

    @graph_fn
    def _loss(self, x):
        return ops.mean(ops.square(ops.matmul(x, self.kernel.value)))

x = np.arange(6, dtype=np.float32).reshape(2, 3)
found = []
for backend in ("tensorflow", "torch", "jax", "tensorflow"):
    executor = build(Model("model"), {"x": FloatBox(shape=(3,), add_batch_rank=True)}, backend=backend, seed=1)
    found.append(executor.update(x)["model/kernel"])
for gradient in found[1:]:
    np.testing.assert_allclose(gradient, found[0], rtol=1e-5)
import tensorflow as tf
assert not tf.config.get_visible_devices("GPU")
print("equal")
print(os.environ["TF_CPP_MIN_LOG_LEVEL"])
"""


def run_python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    ours = ("KERAS_BACKEND", "TF_CPP_MIN_LOG_LEVEL")
    found = {name: value for name, value in os.environ.items() if name not in ours}
    return subprocess.run(
        [sys.executable, "-c", program], env={**found, **environment}, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keras", "given", "kept"),
    [("jax", "", "1"), pytest.param("torch", "3", "3", marks=pytest.mark.thorough)],
    ids=["jax", "torch, told nothing"],
)
def test_three_frameworks_in_one_process_whatever_keras_computes_with(keras: str, given: str, kept: str) -> None:
    """And how much TensorFlow tells is what the user said, else what JAX sets, which is imported first."""
    if not (is_installed("torch") and is_installed("jax")):
        pytest.skip("torch or jax is not installed")
    done = run_python(_ONE_PROCESS, KERAS_BACKEND=keras, **({"TF_CPP_MIN_LOG_LEVEL": given} if given else {}))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["equal", kept]


@pytest.mark.slow
def test_tensorflow_is_imported_quietly() -> None:
    program = (
        "import os\n"
        "from rlweave.backends import get_backend\n"
        "get_backend('tensorflow').ops.zeros(3)\n"
        "print(os.environ['TF_CPP_MIN_LOG_LEVEL'])"
    )
    done = run_python(program)
    # on processors with oneDNN's kernels TensorFlow says so before it looks at any setting
    told = [x for x in done.stderr.splitlines() if "oneDNN" not in x and "absl::InitializeLog" not in x]
    assert (done.returncode, done.stdout.strip(), told) == (0, "2", [])


def test_threads_are_set_before_the_first_operation_or_not_at_all() -> None:
    tf.zeros(())
    assert get_backend("tensorflow").set_threads(1) is (
        tf.config.threading.get_intra_op_parallelism_threads() == 1
        and tf.config.threading.get_inter_op_parallelism_threads() == 1
    )
