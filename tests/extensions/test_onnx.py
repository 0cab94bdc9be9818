"""ONNX Runtime as a backend that acts: NumPy's results, one session, weights as inputs, draws of the store's state."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import subprocess
import sys
import textwrap
import threading
from typing import Any

import numpy as np
import pytest

from rlweave import ops
from rlweave.backends import get_backend
from rlweave.components import Conv2D, DuelingPolicy, Policy
from rlweave.errors import BackendError, BuildError
from rlweave.extras.descriptors import DESCRIPTORS as EXTRAS
from rlweave.graph import Component, GraphExecutor, api, build, graph_fn
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Space
from rlweave.testing.component_descriptors import DESCRIPTORS
from rlweave.testing.component_test import assert_close
from rlweave.testing.parity import run_round
from rlweave.tree import flatten_tree

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from rlweave.extensions.onnx_ import blocked_convolution, session

SIZES = (1, 2, 7, 64)
DENSE = [{"type": "dense", "units": 16, "activation": "tanh"}]
CONVOLUTIONS = [
    {"type": "conv2d", "filters": 12, "kernel_size": 5, "stride": 2, "activation": "relu"},
    {"type": "conv2d", "filters": 20, "kernel_size": 3, "stride": 1, "padding": "same", "activation": "tanh"},
    {"type": "conv2d", "filters": 6, "kernel_size": 3, "stride": 2, "padding": "same"},
    {"type": "flatten"},
    {"type": "dense", "units": 64, "activation": "relu"},
]
NESTED_OBSERVATIONS = Dict(
    camera=IntBox(0, 256, shape=(14, 13, 3), dtype="uint8", layout="channels_last"),
    depth=FloatBox(shape=(1, 15, 12), layout="channels_first"),
    speed=FloatBox(shape=(3,)),
    gear=IntBox(2, 7),
    doors=BoolBox(shape=(2,)),
)
NESTED_ACTIONS = Dict(
    turn=FloatBox(-1.0, 1.0, shape=(2,)), horn=BoolBox(), gear=IntBox(5), lights=IntBox(0, 3, shape=(2,))
)
#: What acts, and on what: (make, observations, method).
ACTING: dict[str, tuple[Any, Space, str]] = {
    "numbers": (lambda s: DuelingPolicy(DENSE, IntBox(3), observation_space=s), FloatBox(shape=(4,)), "q_values"),
    "images": (
        lambda s: DuelingPolicy(DENSE, IntBox(3), image_network=CONVOLUTIONS, observation_space=s),
        IntBox(0, 256, shape=(28, 28, 4), dtype="uint8", layout="channels_last"),
        "q_values",
    ),
    "box actions": (
        lambda s: Policy(DENSE, FloatBox(-1.0, 1.0, shape=(2,)), observation_space=s),
        FloatBox(shape=(3,)),
        "act",
    ),
    "nested": (
        lambda s: Policy(DENSE, NESTED_ACTIONS, image_network=CONVOLUTIONS, observation_space=s),
        NESTED_OBSERVATIONS,
        "act",
    ),
}


def built(name: str, backend: str, **options: Any) -> GraphExecutor:
    make, space, method = ACTING[name]
    options.setdefault("methods", (method,))
    return build(make(space), {"observations": space.with_batch_rank()}, backend=backend, **options)


def observations_of(name: str, size: int, seed: int = 0) -> Any:
    space = ACTING[name][1]
    rng = np.random.default_rng([seed, size])
    return space.unflatten({path: leaf.sample(size, rng=rng) for path, leaf in space.flatten().items()})


def run_of(executor: GraphExecutor) -> Any:
    (program,) = executor.programs.values()
    (run,) = program.runs.values()
    return run


def random_weights(executor: GraphExecutor, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        path: (value + rng.normal(0, 0.05, value.shape)).astype(value.dtype)
        for path, value in executor.get_weights().items()
    }


# -- equal results -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", ["numpy", "torch"])
@pytest.mark.parametrize("name", ACTING)
def test_one_session_acts_as_others_do_for_all_batch_sizes_and_weights(name: str, reference: str) -> None:
    method = ACTING[name][2]
    static = {"explore": False} if method == "act" else {}
    options = {"static": {method: static}} if static else {}
    one, other = built(name, reference, **options), built(name, "onnx", **options)
    for seed in range(2):
        weights = random_weights(one, seed)
        one.set_weights(weights)
        other.set_weights(weights)
        for size in SIZES:
            observations = observations_of(name, size, seed)
            expected, found = (executor.execute(method, observations, **static) for executor in (one, other))
            assert_close(found, expected, 1e-5, 1e-5, f"{name}, {size} rows")
    assert run_of(other).sessions == 1
    assert other.compilations == 1


@pytest.mark.parametrize("mode", ["fast", "portable"])
@pytest.mark.parametrize("name", ["box actions", "nested"])
def test_samples_come_from_the_random_state_of_the_store(name: str, mode: str) -> None:
    numbers, again, numpy = (built(name, backend, rng=mode, seed=3) for backend in ("onnx", "onnx", "numpy"))
    results = []
    for size in (1, 7, 2):
        observations = observations_of(name, size)
        results.append(numbers.act(observations))
        assert_close(again.act(observations), results[-1], 0, 0, f"the same seed, {size} rows")
        assert_close(numpy.act(observations), results[-1], 1e-5, 1e-5, f"the numbers of NumPy, {size} rows")
    state = numbers.state_dict()
    observations = observations_of(name, 7, 1)
    first = numbers.act(observations)
    second = numbers.act(observations)
    assert any(not np.array_equal(x, y) for x, y in zip(leaves(first), leaves(second), strict=True))
    numbers.load_state_dict(state)
    assert_close(numbers.act(observations), first, 0, 0, "from the same state")
    assert np.array_equal(numpy.state_dict()["random"], state["random"])


def leaves(tree: Any) -> list[np.ndarray]:
    return list(flatten_tree(tree).values())


#: Components that act, or are parts of what acts.
PARTS = [
    d
    for d in (*DESCRIPTORS, *EXTRAS)
    if not re.search(r"memories|losses|optimizers|returns|vtrace|native", d.component.__module__)
]


@pytest.mark.parametrize("descriptor", PARTS, ids=lambda d: d.name)
def test_components_that_act_give_the_results_of_numpy(descriptor: Any) -> None:
    refused = compared = 0
    for method in descriptor.methods(descriptor.make()):
        one = dataclasses.replace(descriptor, calls=(method,))
        root = one.make()
        spaces = {f"{method}.{p}": space for p, space in one.inputs(root, method).items()}
        static = {method: dict(descriptor.static.get(method, {}))}
        options: dict[str, Any] = {"methods": (method,), "static": static}
        try:
            numpy = build(one.make(), spaces, backend="numpy", **options)
            onnx = build(one.make(), spaces, backend="onnx", **options)
        except BuildError as error:
            # the method learns; or it only follows after one that supplies the inputs of its component
            if not re.search("only acts|the build is stuck", str(error)):
                raise
            refused += 1
            continue
        for size in (2, 7):
            try:
                found_here = list(run_round(onnx, one, size))
            except BackendError as error:
                if (descriptor.name, error.what) != ("beta", "ops.lgamma has no ONNX form"):
                    raise
                break
            pairs = zip(run_round(numpy, one, size), found_here, strict=True)
            for (_, expected), (_, found) in pairs:
                assert_close(found, expected, descriptor.tolerance, descriptor.tolerance, f"{method}, {size} rows")
        for path, value in numpy.state_dict().items():
            np.testing.assert_array_equal(onnx.state_dict()[path], value, err_msg=path)
        compared += 1
    assert compared or refused == len(descriptor.methods(descriptor.make()))


def test_most_components_act() -> None:
    assert len(PARTS) > 25


def _has_blocks(channels: int, filters: int) -> bool:
    block = blocked_convolution.block_size()
    return block is not None and filters % 4 == 0 and (channels < block or channels % 4 == 0)


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize(("channels", "filters"), [(3, 8), (16, 20), (20, 4), (17, 16), (4, 7)])
def test_convolutions_in_blocks_and_ordinary_ones_are_those_of_numpy(
    channels: int, filters: int, padding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = FloatBox(shape=(9, 8, channels), layout="channels_last", add_batch_rank=True)
    x = np.random.default_rng(0).standard_normal((5, 9, 8, channels), np.float32)
    found = []
    for block in ("as it is", None):
        if block is None:
            monkeypatch.setattr(blocked_convolution, "block_size", lambda: None)
        layer = Conv2D(filters, kernel_size=3, stride=2, padding=padding, activation="relu")
        numpy, onnx = (build(layer.copy(), {"inputs": space}, backend=backend) for backend in ("numpy", "onnx"))
        weights = random_weights(numpy, 1)
        for executor in (numpy, onnx):
            executor.set_weights(weights)
        found.append(onnx.call(x))
        np.testing.assert_allclose(found[-1], numpy.call(x), rtol=1e-5, atol=1e-5)
        name = b"com.microsoft.nchwc"
        assert (name in run_of(onnx).content) is _has_blocks(channels, filters)


def test_blocks_are_used_where_onnx_runtime_itself_uses_them(tmp_path: Any) -> None:
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    kernel = numpy_helper.from_array(np.ones((16, 16, 3, 3), np.float32), "kernel")
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", 16, 9, 9])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "kernel"], ["y"])], "constant", [image], [result], [kernel]
    )
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 4
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    itself = b"ReorderOutput" in (tmp_path / "optimized.onnx").read_bytes()

    onnx = built("images", "onnx")
    onnx.q_values(observations_of("images", 2))
    assert (b"ReorderOutput" in run_of(onnx).content) is itself


@pytest.mark.parametrize("size", [1, 2, 33])
def test_large_kernels_are_those_of_numpy(size: int) -> None:
    space = FloatBox(shape=(300,))
    policy = DuelingPolicy([{"type": "dense", "units": 200, "activation": "tanh"}], IntBox(4), observation_space=space)
    x = np.random.default_rng(0).standard_normal((size, 300), np.float32)
    numpy, onnx = (
        build(policy.copy(), {"observations": space.with_batch_rank()}, backend=backend, methods=("q_values",))
        for backend in ("numpy", "onnx")
    )
    np.testing.assert_allclose(onnx.q_values(x), numpy.q_values(x), rtol=1e-5, atol=1e-5)
    assert b"transposed" in run_of(onnx).content


# -- memory, threads, processes ----------------------------------------------------------------------------------


def test_results_and_inputs_are_nobody_elses() -> None:
    onnx = built("numbers", "onnx")
    x = np.random.default_rng(0).standard_normal((6, 8), np.float32)[::2, ::2]  # not contiguous
    first = onnx.q_values(x)
    kept, given = first.copy(), x.copy()
    x += 1.0  # whoever refills a buffer changes nothing that was handed out
    second = onnx.q_values(x)
    np.testing.assert_array_equal(first, kept)
    assert not np.shares_memory(first, second)
    second[:] = 0.0
    np.testing.assert_array_equal(onnx.q_values(given), kept)
    weights = onnx.get_weights()
    for value in weights.values():
        value[:] = 7.0
    np.testing.assert_array_equal(onnx.q_values(given), kept)


@pytest.mark.parametrize("name", ACTING)
def test_no_rows_give_no_rows(name: str) -> None:
    method = ACTING[name][2]
    onnx = built(name, "onnx")
    for size in (0, 3, 0):
        results = leaves(onnx.execute(method, observations_of(name, size)))
        assert [len(x) for x in results] == [size] * len(results)


def test_arrays_of_nothing_and_read_only_ones() -> None:
    space = Dict(nothing=FloatBox(shape=(0,)), numbers=FloatBox(shape=(3,)), empty=FloatBox(shape=(2, 0)))
    x = {path: leaf.sample(4, rng=0) for path, leaf in space.flatten().items()}
    for array in x.values():
        array.flags.writeable = False
    policy = DuelingPolicy(DENSE, IntBox(4), observation_space=space)
    numpy, onnx = (
        build(policy.copy(), {"observations": space.with_batch_rank()}, backend=backend, methods=("q_values",))
        for backend in ("numpy", "onnx")
    )
    np.testing.assert_allclose(onnx.q_values(x), numpy.q_values(x), rtol=1e-5, atol=1e-5)


def test_threads_that_act_and_one_that_sets_weights() -> None:
    onnx = built("numbers", "onnx")
    observations = {size: observations_of("numbers", size) for size in (1, 2, 7)}
    versions = [random_weights(onnx, seed) for seed in range(2)]
    allowed: dict[int, list[np.ndarray]] = {size: [] for size in observations}
    for weights in versions:
        onnx.set_weights(weights)
        for size, x in observations.items():
            allowed[size].append(onnx.q_values(x))
    wrong: list[int] = []

    def act(size: int) -> None:
        for _ in range(200):
            found = onnx.q_values(observations[size])
            if not any(np.array_equal(found, one) for one in allowed[size]):
                wrong.append(size)

    threads = [threading.Thread(target=act, args=(size,)) for size in observations]
    for thread in threads:
        thread.start()
    for turn in range(50):
        onnx.set_weights(versions[turn % 2])
    for thread in threads:
        thread.join()
    assert not wrong


def test_sessions_get_the_threads_that_were_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_threads", None)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    onnx = built("numbers", "onnx")
    onnx.q_values(observations_of("numbers", 1))
    assert run_of(onnx)._session.get_session_options().intra_op_num_threads == 2
    assert get_backend("onnx").set_threads(1)
    onnx = built("numbers", "onnx")
    onnx.q_values(observations_of("numbers", 1))
    assert run_of(onnx)._session.get_session_options().intra_op_num_threads == 1


def test_acting_imports_no_framework() -> None:
    script = """
        import sys
        import numpy as np
        from rlweave.agents.dqn import DQN
        from rlweave.spaces import FloatBox, IntBox
        agent = DQN(FloatBox(shape=(4,)), IntBox(2), backend="numpy")
        actor = agent.make_acting("onnx")
        assert actor.act_greedily(np.zeros((3, 4), np.float32))[0].shape == (3,)
        print([name for name in ("torch", "jax", "tensorflow") if name in sys.modules])
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


# -- what is refused ---------------------------------------------------------------------------------------------


class Learner(Component):
    """Has a method that writes, one that an ONNX model cannot hold, and one that branches on a value."""

    def create_variables(self) -> None:
        self.total = self.variable("total", (), 0.0)

    @graph_fn
    def _add(self, x: Any) -> Any:
        self.total.assign(self.total.value + ops.sum(x))
        return self.total.value

    @graph_fn
    def _gamma(self, x: Any) -> Any:
        return ops.lgamma(x)

    @graph_fn
    def _longer(self, x: Any) -> Any:
        return x * 2.0 if x.shape[0] > 1 else x

    @api
    def add(self, x: Any) -> Any:
        return self._add(x)

    @api
    def gamma(self, x: Any) -> Any:
        return self._gamma(x)

    @api
    def longer(self, x: Any) -> Any:
        return self._longer(x)


def learner(method: str) -> GraphExecutor:
    return build(Learner("learner"), {"x": FloatBox(add_batch_rank=True)}, backend="onnx", methods=(method,))


def test_a_method_that_writes_is_refused_when_it_is_built() -> None:
    with pytest.raises(BuildError, match=r"the onnx backend only acts, and 'add' learns(.|\n)*learner/total"):
        learner("add")


def test_a_method_with_gradients_is_refused_when_it_is_built() -> None:
    from rlweave.agents.ppo import PPO

    agent = PPO(FloatBox(shape=(3,)), IntBox(2), backend="onnx")
    with pytest.raises(BuildError, match=r"only acts, and '\w+' learns(.|\n)*acting_backend='onnx'"):
        agent.build()


def test_an_operator_without_a_form_names_operator_component_and_other_backends() -> None:
    with pytest.raises(BackendError, match=r"ops\.lgamma has no ONNX form(.|\n)*learner\._gamma(.|\n)*numpy, torch"):
        learner("gamma").gamma(np.ones(3, np.float32))


def test_a_branch_on_an_open_axis_names_its_component() -> None:
    with pytest.raises(BackendError, match=r"length of an open axis(.|\n)*learner\._longer(.|\n)*ops\.where"):
        learner("longer").longer(np.ones(3, np.float32))


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import rlweave.backends as backends

    find = importlib.util.find_spec
    monkeypatch.delitem(backends._loaded, "onnx", raising=False)
    for missing in ("onnx", "onnxruntime"):
        with monkeypatch.context() as patched:
            patched.setattr(
                importlib.util, "find_spec", lambda name, gone=missing: None if name == gone else find(name)
            )
            with pytest.raises(BackendError, match=r"pip install .*\[onnx\]"):
                get_backend("onnx")
