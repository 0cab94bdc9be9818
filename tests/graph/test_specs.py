"""Specs: components from JSON-like data and back."""

import copy
import json

import numpy as np
import pytest

from rlweave.errors import SpecError
from rlweave.graph import Component, from_spec, graph_fn, register, registered_components, to_spec
from rlweave.spaces import FloatBox
from tests.graph.toys import built, rows


@register("test-specs-scale")
class _Scale(Component):
    def __init__(self, factor=2.0, options=None, scope="scale"):
        super().__init__(scope)
        self.factor, self.options = factor, options or {}

    @graph_fn
    def call(self, x):
        return x * self.factor


@register("test-specs-stack")
class _Stack(Component):
    def __init__(self, layers, *, head=None, limit=None, scope="stack", trainable=True):
        super().__init__(scope, trainable=trainable)
        self.layers = [from_spec(layer) for layer in layers]
        self.head = from_spec(head) if head is not None else None
        self.limit = limit

    @graph_fn
    def call(self, x):
        return x * float(np.prod([layer.factor for layer in self.layers]))


SPEC = {
    "type": "test-specs-stack",
    "layers": [{"type": "test-specs-scale", "factor": 3.0}, {"type": "test-specs-scale", "options": {"a": [1, None]}}],
    "head": {"type": "test-specs-scale", "scope": "head"},
    "limit": 0.5,
}


def test_a_spec_makes_a_component_with_the_components_that_are_nested_in_it():
    stack = from_spec(SPEC)
    assert isinstance(stack, _Stack)
    assert [layer.factor for layer in stack.layers] == [3.0, 2.0]
    assert stack.layers[1].options == {"a": [1, None]}
    assert stack.head.path == "stack/head"
    assert built(stack, {"x": rows(2)}).call(np.ones((1, 2), np.float32)).tolist() == [[6.0, 6.0]]


def test_a_spec_is_never_changed_and_shares_nothing_with_the_component():
    spec = copy.deepcopy(SPEC)
    stack = from_spec(spec)
    stack.layers[1].options["a"].append(2)
    stack.layers[1].options["b"] = 1
    assert spec == SPEC
    from_spec(spec)
    assert spec == SPEC


def test_specs_round_trip_through_json():
    spec = to_spec(from_spec(SPEC))
    assert json.loads(json.dumps(spec)) == spec == SPEC
    again = from_spec(spec)
    assert to_spec(again) == spec
    assert [layer.factor for layer in again.layers] == [3.0, 2.0]


def test_what_a_constructor_does_with_its_arguments_does_not_change_the_spec():
    options = {"a": 1}
    part = _Scale(options=options)
    part.options["a"] = 2
    options["a"] = 3
    assert to_spec(part) == {"type": "test-specs-scale", "options": {"a": 1}}


def test_a_name_and_a_component_are_specs_too():
    assert isinstance(from_spec("test-specs-scale"), _Scale)
    part = _Scale()
    assert from_spec(part) is part
    assert Component.from_spec(part) is part
    assert isinstance(_Scale.from_spec({"type": "test-specs-scale"}), _Scale)


def test_components_among_the_arguments_are_written_as_their_specs():
    stack = _Stack([_Scale(4.0)], head=_Scale(scope="head"))
    assert to_spec(stack) == {
        "type": "test-specs-stack",
        "layers": [{"type": "test-specs-scale", "factor": 4.0}],
        "head": {"type": "test-specs-scale", "scope": "head"},
    }


def test_the_spec_of_a_copy_has_the_scope_of_the_copy():
    target = _Stack([_Scale(4.0)]).copy(scope="target", trainable=False)
    spec = to_spec(target)
    assert spec["scope"] == "target"
    assert spec["trainable"] is False
    assert from_spec(spec).path == "target"
    assert not from_spec(spec).trainable
    assert "scope" not in to_spec(_Stack([_Scale(4.0)]))


def test_a_name_belongs_to_one_class():
    with pytest.raises(SpecError, match="two components of one spec name"):

        @register("test-specs-scale")
        class _Other(Component):
            pass

    assert registered_components()["test-specs-scale"] is _Scale


def test_what_has_no_spec_says_so():
    class _Unregistered(_Scale):
        pass

    with pytest.raises(SpecError, match="a component without a spec"):
        to_spec(_Unregistered())
    with pytest.raises(SpecError, match="a component without a spec"):
        to_spec(Component("plain"))
    with pytest.raises(SpecError, match="an argument cannot be written to a spec"):
        to_spec(_Scale(factor=object()))


def test_spaces_among_the_arguments_are_written_as_json():
    spec = to_spec(_Scale(options={"space": FloatBox(shape=(2,))}))
    assert json.loads(json.dumps(spec)) == spec


def test_unknown_nested_types_and_lists_of_data_are_what_they_are():
    with pytest.raises(SpecError, match="unknown component type 'test-specs-scal'"):
        from_spec({"type": "test-specs-stack", "layers": [{"type": "test-specs-scal"}]})
    assert from_spec({"type": "test-specs-scale", "options": {"type": 3}}).options == {"type": 3}
