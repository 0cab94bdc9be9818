"""Numbers that a variable, a constant or a backend cannot hold are errors, and never other numbers."""

import numpy as np
import pytest

from rlweave.errors import BuildError, ExecutionError
from rlweave.graph import Component, api, graph_fn
from tests.graph.toys import BACKENDS, SCALAR, built, weight

_NARROW, _WIDE = ("jax", "tensorflow"), ("numpy", "torch")


class _Number(Component):
    def __init__(self, initial, dtype, device=None):
        super().__init__("number", device=device)
        self.initial, self.dtype = initial, dtype

    def create_variables(self):
        self.n = self.variable("n", (), self.initial, dtype=self.dtype)

    @graph_fn
    def read(self):
        return self.n.value


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_integer_of_64_bits_is_what_it_is_or_an_error(backend):
    if backend in _NARROW:
        with pytest.raises(BuildError, match=f"the {backend} backend computes in 32 bits here") as error:
            built(_Number(2**40, "int64"), backend=backend)
        assert "where:    number/n" in str(error.value)
        assert 'dtype="int32"' in str(error.value)
        # on the host it has 64 bits on every backend
        executor = built(_Number(2**40, "int64", device="host"), backend=backend)
    else:
        executor = built(_Number(2**40, "int64"), backend=backend)
    assert int(executor.read()) == 2**40
    executor.set_weights({"number/n": np.int64(3_000_000_000)})
    assert int(weight(executor, "n")) == 3_000_000_000


@pytest.mark.parametrize("backend", BACKENDS)
def test_set_weights_refuses_numbers_that_a_variable_cannot_hold(backend):
    executor = built(_Number(5, "int32"), backend=backend)
    for wrong in (np.int64(3_000_000_000), np.int64(-(2**40)), np.uint64(2**63)):
        with pytest.raises(ExecutionError, match="cannot hold") as error:
            executor.set_weights({"number/n": wrong})
        assert "where:    number/n" in str(error.value)
        assert int(executor.read()) == 5
    executor.set_weights({"number/n": np.int64(7)})
    assert int(executor.read()) == 7
    floats = built(_Number(0.5, "float32"), backend=backend)
    with pytest.raises(ExecutionError, match="cannot hold"):
        floats.set_weights({"number/n": np.float64(1e300)})
    floats.set_weights({"number/n": np.float64(np.inf)})
    assert float(floats.read()) == np.inf


@pytest.mark.parametrize("initial", [2**40, np.int64(2**40), np.array(2**40), 0.5, lambda rng, shape: np.array(1.5)])
def test_an_initial_value_that_does_not_fit_is_refused(initial):
    with pytest.raises(BuildError, match="an initial value does not fit into a variable of int32") as error:
        built(_Number(initial, "int32"))
    assert "where:    number/n" in str(error.value)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("constant", [np.array([2**40]), np.int64(2**40)])
def test_constants_of_64_bits(backend, constant):
    class Root(Component):
        @api
        def call(self, x):
            return self._add(x, constant)

        @graph_fn
        def _add(self, x, number):
            return x * 0.0 + number

    if backend in _NARROW:
        with pytest.raises(BuildError, match="a constant needs more") as error:
            built(Root("root"), {"x": SCALAR}, backend)
        assert "where:    root._add" in str(error.value)
    else:
        assert float(np.asarray(built(Root("root"), {"x": SCALAR}, backend).call(np.float32(1))).item()) == 2**40


def test_constants_of_64_bits_that_fit_are_taken():
    class Root(Component):
        @api
        def call(self, x):
            return self._add(x, np.array([7]))

        @graph_fn
        def _add(self, x, number):
            return x + number

    assert built(Root("root"), {"x": SCALAR}, "jax").call(np.float32(1)).tolist() == [8.0]
