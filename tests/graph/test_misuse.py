"""Mistakes in API methods and graph functions: on every backend one error, which says what to write instead."""

import random
import time
from time import perf_counter

import numpy as np
import pytest
from numpy.random import default_rng

from rlweave import ops
from rlweave.errors import BuildError
from rlweave.extensions import diagnosis
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import Dict
from tests.graph.toys import BACKENDS, SCALAR, built, close, rows

GENERATOR = np.random.default_rng(0)


def _plain_tanh(x):
    return np.tanh(x)


def _plain_noise():
    return np.random.normal()  # noqa: NPY002


class _Root(Component):
    """One variable, and a method that gets the mistake."""

    def __init__(self):
        super().__init__("root")
        self.generator, self.activation = np.random.default_rng(0), np.tanh

    def create_variables(self, x):
        self.w = self.variable("w", (3,), 1.0)

    @graph_fn
    def twice(self, x):
        return x * 2.0


def _refusals(method, decorate):
    """The error on each backend, with the rows of its message."""
    found = {}
    for backend in BACKENDS:
        root = type("Root", (_Root,), {"call": decorate(method)})()
        type(root).call.__set_name__(type(root), "call")
        with pytest.raises(BuildError) as error:
            built(root, {"x": rows(3)}, backend)
        found[backend] = [line.strip() for line in str(error.value).splitlines()]
    return found


def _set_value(self, x):
    self.w.value = x


_BRANCH, _NUMBER = "a Python branch on an array", "a Python number was taken out of an array"
_STAYS, _CLOCK = "random numbers that are drawn once and then stay the same: ", "a clock that is read once"
_NO_ARRAY = "a variable was used as if it were its array: root/w"
_IN_GRAPH_FUNCTIONS = {
    "if": (lambda self, x: x if ops.sum(x) > 0 else -x, _BRANCH, "ops.where(condition, a, b)"),
    "and": (lambda self, x: (ops.sum(x) > 0) and x, _BRANCH, "ops.logical_and"),
    "int": (lambda self, x: x * int(ops.sum(x)), _NUMBER, "@api(static=...)"),
    "float": (lambda self, x: x * float(ops.sum(x)), _NUMBER, "compute with the array itself"),
    "item": (lambda self, x: x * ops.sum(x).item(), _NUMBER, "compute with the array itself"),
    "range": (lambda self, x: next(x for _ in range(ops.astype(ops.sum(x), "int32"))), _NUMBER, "@api(static=...)"),
    "np": (lambda self, x: np.tanh(x), "a function of NumPy got an array: np.tanh", "ops.tanh"),
    "np-sum": (lambda self, x: np.sum(x), "a function of NumPy got an array: np.sum", "ops.sum"),
    "np-in-list": (lambda self, x: np.concatenate([x, x]), "np.concatenate", "ops.concat"),
    "np-below": (lambda self, x: np.linalg.norm(x), "np.linalg.norm", "rlweave.ops"),
    "np-in-helper": (lambda self, x: _plain_tanh(x), "np.tanh", "ops.tanh"),
    "np-as-attribute": (lambda self, x: self.activation(x), "np.tanh", "ops.tanh"),
    "np.random": (lambda self, x: x + np.random.normal(), _STAYS + "np.random.normal", "ops.random"),  # noqa: NPY002
    "np.random-in-helper": (lambda self, x: x + _plain_noise(), _STAYS + "np.random.normal", "ops.random"),
    "new-generator": (lambda self, x: x + default_rng().normal(), _STAYS + "default_rng", "ops.random"),
    "generator": (lambda self, x: x + GENERATOR.normal(), _STAYS + "GENERATOR.normal", "ops.random"),
    "generator-as-attribute": (lambda self, x: x + self.generator.normal(), _STAYS, "ops.random"),
    "random": (lambda self, x: x + random.random(), _STAYS + "random.random", "ops.random"),
    "time": (lambda self, x: x + time.time(), _CLOCK, "pass the time as an input"),
    "perf_counter": (lambda self, x: x + perf_counter(), _CLOCK, "pass the time as an input"),
    "variable": (lambda self, x: x * self.w, _NO_ARRAY, "self.<name>.value"),
    "variable-in-op": (lambda self, x: ops.matmul(x, self.w), _NO_ARRAY, "self.<name>.value"),
    "variable-in-list": (lambda self, x: ops.stack([self.w, self.w]), _NO_ARRAY, "self.<name>.value"),
    "variable-method": (lambda self, x: self.w.sum(), _NO_ARRAY, "self.<name>.value"),
    "variable-returned": (lambda self, x: self.w, _NO_ARRAY, "self.<name>.value"),
    "variable-assigned": (lambda self, x: self.w.assign(self.w), _NO_ARRAY, "self.<name>.value"),
    "variable-set": (_set_value, "a variable was set by `.value = `: root/w", "self.<name>.assign(x)"),
}


@pytest.mark.parametrize("mistake", _IN_GRAPH_FUNCTIONS)
def test_mistakes_in_graph_functions(mistake):
    function, what, fix = _IN_GRAPH_FUNCTIONS[mistake]
    found = _refusals(function, graph_fn)
    for backend, lines in found.items():
        assert what in lines[0], (backend, lines)
        assert lines[1].startswith("where:    root.call"), (backend, lines)
        assert fix in lines[3], (backend, lines)
    assert all(lines == found["numpy"] for lines in found.values())


_IN_API_METHODS = {
    "np": (lambda self, x: np.tanh(x), "np.tanh got a symbolic value", "ops.tanh"),
    "np-of-result": (lambda self, x: np.exp(self.twice(x)), "np.exp got a symbolic value", "ops.exp"),
    "np-sum": (lambda self, x: np.sum(x), "np.sum got a symbolic value", "ops.sum"),
    "asarray": (lambda self, x: np.asarray(x), "np.asarray got a symbolic value", "ops.asarray"),
    "variable": (lambda self, x: self.w * x, "a variable was used as if", "component.variables().read()"),
    "variable-in-op": (lambda self, x: ops.exp(self.w), "a variable was used as if", "self.<name>.value"),
    "variable-passed": (lambda self, x: self.twice(self.w), "a variable was used as if", "self.<name>.value"),
    "variable-value": (lambda self, x: self.w.value * x, "outside a graph function", "@graph_fn"),
    "variable-set": (_set_value, "outside a graph function", "@graph_fn"),
}


@pytest.mark.parametrize("mistake", _IN_API_METHODS)
def test_mistakes_in_api_methods(mistake):
    function, what, fix = _IN_API_METHODS[mistake]
    found = _refusals(function, api)
    for backend, lines in found.items():
        assert what in lines[0], (backend, lines)
        assert fix in lines[-1], (backend, lines)


def _with_constants(self, x):
    size = np.prod(x.shape[1:])
    return x * np.float32(size) * np.pi + ops.asarray(np.asarray([1, 2, 3], np.float32)) + np.maximum(1, size)


def _on_the_host(self, x):
    return np.tanh(x) if np.sum(x) > 0 and float(x[0, 0]) > 0 else x


@pytest.mark.parametrize("backend", BACKENDS)
def test_numbers_and_constants_are_numpys_and_host_functions_too(backend):
    class Root(Component):
        constants = graph_fn(_with_constants)
        host = graph_fn(host=True)(_on_the_host)

        @api
        def arrays_on_the_left(self, x):
            return np.ones(3, np.float32) * x - (np.float32(2.0) - x)

    for name in ("constants", "host"):
        vars(Root)[name].__set_name__(Root, name)
    executor = built(Root("root"), {"x": rows(3)}, backend)
    x = np.ones((2, 3), np.float32)
    close(executor.constants(x), x * (3 * np.pi + 3) + [1, 2, 3])
    close(executor.host(x), np.tanh(x))
    close(executor.arrays_on_the_left(x), 2 * x - 2)


def test_numpy_constants_are_made_arrays_of_torch_before_they_are_added():
    class Root(Component):
        @graph_fn
        def call(self, x):
            return x + np.ones(3, np.float32)

    with pytest.raises(BuildError, match="NumPy computed with an array of the graph") as error:
        built(Root("root"), {"x": rows(3)}, "torch")
    assert "ops.asarray(constant)" in str(error.value)


@pytest.mark.parametrize("decorate", [api, graph_fn])
def test_a_wrong_key_names_the_nearest(decorate):
    class Root(Component):
        @decorate
        def call(self, records, weight):
            return records["observation"] * weight

    records = Dict(observations=rows(3), rewards=SCALAR, add_batch_rank=True)
    with pytest.raises(BuildError, match="there is no entry 'observation'") as error:
        built(Root("root"), {"records": records, "weight": SCALAR})
    assert "where:    root.call, " in str(error.value)
    assert 'return records["observation"] * weight' in str(error.value)
    assert "fix:      did you mean 'observations'?" in str(error.value)


@pytest.mark.parametrize(
    ("name", "here"), [("cast", "astype"), ("unsqueeze", "expand_dims"), ("detach", "stop_gradient")]
)
def test_an_operator_by_the_name_of_another_framework_is_named_as_here(name, here):
    class Foreign(Component):
        @graph_fn
        def call(self, inputs):
            return getattr(ops, name)(inputs)

    with pytest.raises(BuildError) as raised:
        built(Foreign(), {"inputs": rows(2)}, "numpy")
    assert raised.value.fix == f"use an operator that exists: ops.{here}"


def test_the_names_of_other_frameworks_lead_to_operators_that_exist():
    assert set(diagnosis._OTHER_NAMES.values()) <= set(ops.OP_NAMES)
    assert not set(diagnosis._OTHER_NAMES) & set(ops.OP_NAMES)
