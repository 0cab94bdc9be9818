"""The host and one device: where arrays really are, and what a wrong placement says."""

import os
import subprocess
import sys

import pytest

from rlweave.errors import BuildError
from rlweave.graph import Component, api, build, graph_fn
from rlweave.spaces import FloatBox

PROGRAM = """
import jax, numpy as np
from rlweave.components import Adam, Dense
from rlweave.graph import Component, api, build, graph_fn
from rlweave import ops
from rlweave.spaces import FloatBox

class Root(Component):
    def __init__(self):
        super().__init__("root")
        self.layer, self.optimizer = Dense(2), Adam(0.1)
    @graph_fn(host=True)
    def _doubled(self, x):
        return x * 2.0
    @api
    def update(self, x):
        loss = self._loss(self.layer.call(self._doubled(x)))
        self.optimizer.step(loss, self.layer.variables())
        return self._doubled(loss)
    @graph_fn
    def _loss(self, y):
        return ops.mean(ops.square(y)) + 0.0 * ops.random.uniform(())

second = jax.devices()[1]
executor = build(Root(), {"x": FloatBox(shape=(3,), add_batch_rank=True)}, backend="jax", device="cpu:1")
values = [float(executor.update(np.ones((4, 3), np.float32))) for _ in range(3)]
executor.load_state_dict(executor.state_dict())
executor.update(np.ones((4, 3), np.float32))
executor.store.release()
for path, cell in executor.store.cells.items():
    if not path.startswith("random"):
        assert cell.value.devices() == {second}, (path, cell.value.devices())
other = build(Root(), {"x": FloatBox(shape=(3,), add_batch_rank=True)}, backend="jax")
assert np.allclose(values, [float(other.update(np.ones((4, 3), np.float32))) for _ in range(3)])
assert all(cell.value.devices() == {jax.devices()[0]} for p, cell in other.store.cells.items() if "layer" in p)
print("placed")
"""


def test_variables_stay_on_the_device_they_were_placed_on():
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=120
    )
    assert result.stdout.strip() == "placed", result.stderr


class Part(Component):
    def create_variables(self):
        self.v = self.variable("v", (), 1.0)

    @graph_fn
    def read(self):
        return self.v.value


class Two(Component):
    def __init__(self):
        super().__init__("two")
        self.first, self.second = Part(scope="first"), Part(scope="second")

    @api
    def both(self):
        return self.first.read(), self.second.read()


def test_two_devices_in_one_graph_are_refused():
    with pytest.raises(BuildError, match="on two devices"):
        build(Two(), backend="torch", device={"first": "cpu", "second": "meta"})


def test_a_device_for_no_component_names_the_nearest():
    with pytest.raises(BuildError, match="did you mean 'two/second'"):
        build(Two(), backend="torch", device={"two/secnd": "cpu"})


def test_a_placement_belongs_to_a_build_and_not_to_the_components():
    root = Two()
    build(root, backend="torch", device="cpu")
    assert root.device is None
    assert build(root, backend="numpy").both() is not None


def test_inputs_for_a_placed_graph():
    class Root(Component):
        @graph_fn
        def call(self, x):
            return x + 1.0

    executor = build(Root(), {"x": FloatBox(add_batch_rank=True)}, backend="torch", device="cpu")
    assert executor.call([1.0, 2.0]).tolist() == [2.0, 3.0]
