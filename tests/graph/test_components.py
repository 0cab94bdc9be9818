"""Composition: ownership, numbering, copies, synchronization; split and flatten; graph functions of super-classes."""

from typing import NamedTuple

import numpy as np
import pytest

from rlweave import ops
from rlweave.graph import Component, api, graph_fn, shared
from rlweave.spaces import Dict, FloatBox, IntBox, Tuple
from rlweave.testing import ComponentTest
from tests.graph.toys import BACKENDS, BATCH, GRADIENT_BACKENDS, SCALAR, Cell, Linear, built, close, rows, weight

every = pytest.mark.parametrize("backend", BACKENDS)


# -- ownership and names -----------------------------------------------------------------------------------------


class _Bag(Component):
    """Holds whatever it is given."""

    def __init__(self, scope="bag", **parts):
        super().__init__(scope)
        for name, part in parts.items():
            setattr(self, name, part)

    @api
    def call(self, x):
        return x


def test_sub_components_register_by_assignment_in_lists_tuples_and_dicts_of_any_depth():
    class Pair(NamedTuple):
        one: Component
        two: Component

    parts = [Linear(2, f"p{i}") for i in range(8)]
    bag = _Bag(
        single=parts[0],
        items=[parts[1], parts[2]],
        named={"a": parts[3], "b": [parts[4]]},
        pair=Pair(parts[5], parts[6]),
    )
    assert bag.sub_components() == parts[:7]
    assert all(part.owner is bag for part in parts[:7])
    assert [part.path for part in parts[:3]] == ["bag/p0", "bag/p1", "bag/p2"]
    assert isinstance(bag.pair, Pair)
    bag.items.append(parts[7])  # found by the build
    built(bag, {"x": SCALAR})
    assert parts[7].owner is bag
    assert list(bag.tree()) == [bag, *parts[:3], parts[7], *parts[3:7]]


def test_siblings_of_one_scope_are_numbered_in_order():
    bag = _Bag(layers=[Linear(2, "dense"), Linear(2, "dense")], head=Linear(2, "dense"), other=Linear(2, "other"))
    built(bag, {"x": SCALAR})
    assert [part.path for part in bag.sub_components()] == ["bag/dense-0", "bag/dense-1", "bag/dense-2", "bag/other"]
    bag.layers = bag.layers[:1]
    built(bag, {"x": SCALAR})
    assert [part.path for part in bag.sub_components()] == ["bag/dense-0", "bag/dense-1", "bag/other"]


def test_a_component_that_is_let_go_can_get_another_owner():
    part = Linear(2, "part")
    first, second = _Bag("first", part=part), _Bag("second")
    first.part = Linear(3, "part")
    second.part = part
    assert part.path == "second/part"
    del second.part
    first.items = [part]
    assert part.path == "first/part"


def test_shared_components_keep_their_owner():
    trunk = Linear(2, "trunk")
    user = _Bag("user", trunk=shared(trunk), more=[shared(trunk)], deep={"a": [shared(trunk)]})
    root = _Bag("root", user=user, trunk=trunk)
    assert user.trunk is trunk
    assert user.more == [trunk]
    assert user.deep == {"a": [trunk]}
    assert trunk.owner is root
    assert user.sub_components() == []
    built(root, {"x": SCALAR})


def test_scopes_come_from_the_class_name_where_none_is_given():
    class PolicyNetwork(Component):
        pass

    assert PolicyNetwork().path == "policy-network"


def test_trainable_and_device_are_inherited():
    part = Cell(scope="part")
    bag = _Bag(inner=_Bag("inner", part=part))
    assert part.trainable
    bag.inner._trainable = False
    assert not part.trainable
    assert part.device is None
    bag._device = "host"
    assert part.device == "host"


# -- copies ------------------------------------------------------------------------------------------------------


def test_copies_have_their_own_settings_and_sub_components():
    original = _Bag("original", part=Linear(2, "part"), numbers=[1, 2], table={"a": 1})
    copy = original.copy(scope="copy")
    assert copy.path == "copy"
    assert copy.part is not original.part
    assert copy.part.path == "copy/part"
    copy.numbers.append(3)
    copy.part.units = 7
    assert original.numbers == [1, 2]
    assert original.part.units == 2
    assert original.copy().scope == "original-copy"


@every
def test_a_frozen_copy_is_not_trained_and_a_copy_of_a_copy_starts_alike(backend):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.net = Linear(2, "net")
            self.target = self.net.copy(scope="target", trainable=False)
            self.third = self.target.copy(scope="third")
            self.fresh = self.third.copy(scope="fresh", initial="fresh", trainable=True)

        @api
        def call(self, inputs):
            return tuple(part.call(inputs) for part in self.sub_components())

        @api
        def counts(self):
            return self._counts(
                self.variables(), self.variables(trainable=False), self.target.variables(trainable=None)
            )

        @graph_fn
        def _counts(self, trainable, frozen, target):
            return tuple(ops.asarray(len(c), "int32") for c in (trainable, frozen, target))

    executor = built(Root(), {"inputs": rows(3)}, backend)
    net, target, third, fresh = executor.call(np.ones((1, 3), np.float32))
    close(net, target)
    close(net, third)
    assert not np.allclose(net, fresh)
    close(executor.counts(), [4, 4, 2])


def test_unknown_kinds_of_copies_are_refused():
    from rlweave.errors import BuildError

    with pytest.raises(BuildError, match="unknown kind of copy"):
        Linear(2).copy(initial="equal")


# -- synchronization ---------------------------------------------------------------------------------------------


class _PairOfNumbers(Component):
    def __init__(self, one, two, scope):
        super().__init__(scope)
        self.start = one
        self.nested = Cell(two, scope="nested")

    def create_variables(self):
        self.value_ = self.variable("value", (), self.start)


class _Syncing(Component):
    def __init__(self):
        super().__init__("root")
        self.target, self.source = _PairOfNumbers(8.0, 7.0, "target"), _PairOfNumbers(0.0, 1.0, "source")

    @api
    def copy_all(self):
        self.target.sync(self.source)

    @api
    def move(self):
        self.target.sync(self.source, tau=0.1)

    @api
    def move_by(self, tau):
        self.target.sync(self.source, tau=tau)


@every
def test_sync_oracles(backend):
    executor = built(_Syncing(), {"tau": SCALAR}, backend)

    def target():
        return [weight(executor, "target/value"), weight(executor, "target/nested/content")]

    executor.move()
    close(target(), [7.2, 6.4])
    executor.copy_all()
    close(target(), [0.0, 1.0])
    executor.set_weights({"root/target/value": np.float32(8.0), "root/target/nested/content": np.float32(7.0)})
    executor.move_by(0.1)
    close(target(), [7.2, 6.4])
    close([weight(executor, "source/value"), weight(executor, "source/nested/content")], [0.0, 1.0])


@every
def test_synchronized_variables_are_not_the_same_memory(backend):
    class Root(_Syncing):
        @api
        def copy_then_move_source(self):
            self.target.sync(self.source)
            self.source.nested.add(5.0)
            return self.target.nested.read(), self.source.nested.read()

    executor = built(Root(), {"tau": SCALAR}, backend)
    for i in range(3):
        close(executor.copy_then_move_source(), [1.0 + 5 * i, 6.0 + 5 * i])


def test_components_with_other_variables_cannot_be_synchronized():
    from rlweave.errors import BuildError

    class Root(Component):
        def __init__(self, other):
            super().__init__("root")
            self.cell, self.other = Cell(scope="cell"), other

        @api
        def sync_cells(self):
            self.cell.sync(self.other)

    with pytest.raises(BuildError) as error:
        built(Root(_PairOfNumbers(0.0, 0.0, "other")))
    assert "components with different variables cannot be synchronized" in str(error.value)
    assert "root/cell from root/other" in str(error.value)
    with pytest.raises(BuildError, match="variables of different shapes cannot be synchronized"):
        built(Root(Cell(shape=(3,), scope="other")))


# -- split and flatten -------------------------------------------------------------------------------------------


class _Splitting(Component):
    @graph_fn(split=True, returns=2)
    def both(self, x, y):
        return x + 1, x + y

    @api(split=True)
    def both_api(self, x, y):
        return self._one(x), self._sum(x, y)

    @graph_fn
    def _one(self, x):
        return x + 1

    @graph_fn
    def _sum(self, x, y):
        return x + y


@every
@pytest.mark.parametrize("method", ["both", "both_api"])
def test_split_oracles(backend, method):
    space = Dict(a=SCALAR, b=FloatBox(shape=(1, 2)))
    single = FloatBox(shape=(1, 1))
    x = {"a": np.float32(0.234), "b": np.array([[0, 3]], np.float32)}
    executor = built(_Splitting("split"), {"x": space, "y": Dict(a=SCALAR, b=SCALAR)}, backend, methods=[method])
    first, second = executor.execute(method, x, {"a": 5.0, "b": 5.5})
    close(first["a"], 1.234)
    close(first["b"], [[1, 4]])
    close(second["a"], 5.234)
    close(second["b"], [[5.5, 8.5]])
    executor = built(_Splitting("split"), {"x": space, "y": single}, backend, methods=[method])
    _, second = executor.execute(method, x, np.array([[2]], np.float32))
    close(second["a"], [[2.234]])
    close(second["b"], [[2, 5]])


@every
def test_split_over_single_values_nested_containers_and_empty_ones(backend):
    class Root(Component):
        @graph_fn(split=True)
        def double(self, x):
            return 2.0 * x

        @graph_fn(split=True, with_key=True)
        def keyed(self, key, x):
            return x + float(len(key))

    spaces = {"x": Tuple(BATCH, Dict(a=BATCH, b=Tuple(BATCH)))}
    executor = built(Root("root"), spaces, backend)
    one = np.ones(2, np.float32)
    result = executor.double((one, {"a": 2 * one, "b": (3 * one,)}))
    assert isinstance(result, tuple)
    close(result[1]["b"][0], 6 * one)
    keyed = executor.keyed((one, {"a": one, "b": (one,)}))  # keys "0", "1/a", "1/b/0"
    close([keyed[0][0], keyed[1]["a"][0], keyed[1]["b"][0][0]], [2.0, 4.0, 6.0])
    close(built(Root("root"), {"x": BATCH}, backend).double(one), 2 * one)
    close(built(Root("root"), {"x": BATCH}, backend).keyed(one), one)
    assert built(Root("root"), {"x": Dict()}, backend).double({}) == {}


@every
def test_flatten_gives_flat_dicts_with_path_keys_and_nests_results_again(backend):
    class Root(Component):
        @graph_fn(flatten=True)
        def scaled(self, x, factor):
            (factor_leaf,) = factor.values()
            return {key: leaf * factor_leaf for key, leaf in x.items()}

        @graph_fn(flatten=True, returns=2)
        def two(self, x):
            return {key: leaf + 1.0 for key, leaf in x.items()}, ops.sum(sum(ops.sum(leaf) for leaf in x.values()))

        @api(flatten=True)
        def keys(self, x):
            assert list(x) == ["a/0", "a/1", "b"]
            return {"b": x["b"], "a/0": x["a/1"], "a/1": x["a/0"]}

    space = Dict(a=Tuple(BATCH, BATCH), b=BATCH)
    one = np.ones(2, np.float32)
    x = {"a": (one, 2 * one), "b": 3 * one}
    executor = built(Root("root"), {"x": space, "factor": SCALAR}, backend)
    scaled = executor.scaled(x, 10.0)
    close(scaled["a"][1], 20 * one)
    close(scaled["b"], 30 * one)
    nested, total = executor.two(x)
    close(nested["a"][0], 2 * one)
    close(total, 12.0)
    swapped = executor.keys(x)
    close(swapped["a"][0], 2 * one)
    # one array: its key is "", and the result is an array again
    executor = built(Root("root"), {"x": BATCH, "factor": SCALAR}, backend, methods=["scaled", "two"])
    close(executor.scaled(one, 10.0), 10 * one)
    close(executor.two(one)[0], 2 * one)


@every
def test_empty_containers_and_methods_without_inputs_or_outputs(backend):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.cell = Cell(1.0)

        @api
        def same(self, empty, x):
            return empty, (), {}, {"x": x, "none": None}, []

        @api
        def nothing(self):
            self.cell.add(1.0)

        @api
        def number(self):
            return 3, "text", self.cell.read()

    executor = built(Root(), {"empty": Dict(), "x": SCALAR}, backend)
    assert executor.same({}, 2.0)[:3] == ({}, (), {})
    assert executor.same({}, 2.0)[4] == []
    assert executor.nothing() is None
    number, text, value = executor.number()
    assert (number, text) == (3, "text")
    close(value, 2.0)


# -- graph functions and Python ------------------------------------------------------------------------------------


def scaled_by(x, factor):
    """A plain function that uses ops, called from graph functions."""
    return ops.multiply(x, factor)


class _Base(Component):
    def __init__(self, scope="root", activation=None):
        super().__init__(scope)
        self.activation = activation

    @graph_fn
    def call(self, x):
        return self._helper(x) + 1.0

    def _helper(self, x):
        return scaled_by(x, 2.0)

    @api
    def twice(self, x):
        return self.call(self.call(x))

    @graph_fn
    def activated(self, x):
        return x if self.activation is None else self.activation(x)


class _Derived(_Base):
    @graph_fn
    def call(self, x):
        return super().call(x) * 10.0

    @api
    def twice(self, x):
        return super().twice(x), super().call(x)

    def _helper(self, x):
        return super()._helper(x) + 100.0


@every
def test_graph_functions_of_super_classes(backend):
    executor = built(_Base(), {"x": SCALAR}, backend)
    close([executor.call(3.0), executor.twice(3.0)], [7.0, 15.0])
    executor = built(_Derived(), {"x": SCALAR}, backend)
    close(executor.call(3.0), (6 + 100 + 1) * 10)
    twice, base = executor.twice(3.0)
    close(twice, ((2 * 1070) + 101) * 10)
    close(base, 107.0)


@every
def test_functions_in_attributes_and_closures_use_the_bound_operators(backend):
    def shifted(x):
        return ops.add(x, ops.random.uniform(()) * 0.0 + 1.0)  # random numbers exist only where ops is bound

    def outer(x):
        return shifted(x) * 2.0

    executor = built(_Base(activation=outer), {"x": SCALAR}, backend)
    close(executor.activated(3.0), 8.0)


@every
def test_one_component_built_on_several_backends_and_spaces(backend):
    """The second build does not disturb the first one, not even where it is called (and lowered) only later."""

    class Normal(Component):
        def create_variables(self, inputs):
            self.features = inputs.shape[-1]
            self.scale = self.variable("scale", inputs.shape, 2.0)
            self.parts = [self.scale]

        @graph_fn
        def call(self, inputs):
            return inputs * self.parts[0].value + float(self.features)

    component = Normal("normal")
    first = built(component, {"inputs": rows(3)}, backend)
    second = built(component, {"inputs": rows(5)}, "numpy")
    third = built(component, {"inputs": rows(4)}, "torch")
    for executor, size in ((first, 3), (third, 4), (second, 5), (first, 3)):
        close(executor.call(np.ones((2, size), np.float32)), np.full((2, size), 2.0 + size))


@every
def test_constants_of_all_kinds_are_arguments(backend):
    import enum

    class Mode(enum.IntEnum):
        ADD = 1
        SUBTRACT = 2

    class Name(enum.StrEnum):
        PLUS = "plus"

    class Root(Component):
        @api
        def call(self, x):
            options = {"mode": Mode.SUBTRACT, 1: "key", ("a", 2): None, "nan": float("nan")}
            result = self._apply(x, np.float64(0.5), options, name=Name.PLUS, array=np.array([1.0, 2.0], np.float32))
            return {Mode.ADD: result, ("a", 2): x}

        @graph_fn
        def _apply(self, x, half, options, *, name, array):
            assert options["mode"] is Mode.SUBTRACT
            assert name is Name.PLUS
            assert options["nan"] != options["nan"]
            return {"x": x * float(half) + ops.asarray(array)}

    result = built(Root("root"), {"x": SCALAR}, backend).call(4.0)
    close(result[Mode.ADD]["x"], [3.0, 4.0])
    close(result["a", 2], 4.0)


@every
def test_parameters_may_have_any_name(backend):
    """Generated code has names of its own; parameters keep theirs."""

    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.cell = Cell(1.0)

        @api
        def update(self, lock, copy, type, result, scan=None):
            self.cell.add(lock)
            return self._result(lock, copy, type, result), self.cell.read()

        @graph_fn
        def _result(self, lock, copy, type, result):
            return lock + 10.0 * copy + 100.0 * type + 1000.0 * result["len"]

    spaces = {"lock": SCALAR, "copy": SCALAR, "type": SCALAR, "result": Dict(len=SCALAR)}
    executor = built(Root(), spaces, backend)
    total, _ = executor.update(1.0, 2.0, 3.0, {"len": 4.0})
    close(total, 4321.0)
    total, count = executor.update(result={"len": 4.0}, type=3.0, copy=2.0, lock=1.0)
    close([total, count], [4321.0, 3.0])


@every
def test_symbolic_arithmetic_and_comparison_in_api_methods(backend):
    class Root(Component):
        @api
        def call(self, x, n):
            values = {
                "sum": 1.0 + x - 2.0,
                "product": 2.0 * x / 4.0,
                "power": x**2.0,
                "negative": abs(-x),
                "floor": x // 2.0,
                "rest": n % 3,
                "less": x < 2.0,
                "at_most": x <= 3.0,
                "more": 2.0 > x,  # noqa: SIM300
                "at_least": x >= 3.0,
                "equal": n == 7,
                "different": n != 7,
                "op": ops.exp(x * 0.0),
            }
            assert {x: 1, n: 2}[x] == 1  # values are keys by identity
            return values

    result = built(Root("root"), {"x": SCALAR, "n": IntBox(10)}, backend).call(3.0, 7)
    expected = {
        "sum": 2.0, "product": 1.5, "power": 9.0, "negative": 3.0, "floor": 1.0, "rest": 1, "less": False,
        "at_most": True, "more": False, "at_least": True, "equal": True, "different": False, "op": 1.0,
    }  # fmt: skip
    assert {key: value.item() for key, value in result.items()} == expected


@every
def test_unknown_values_flow_through_everything_in_early_rounds(backend):
    """`sample` is traced first, when the memory knows no records: each construct sees unknown values."""
    from rlweave import graph

    class Memory(Component):
        def create_variables(self, records):
            self.last = self.variable("last", records["x"].shape, 0.0)

        @graph_fn
        def insert(self, records):
            self.last.assign(records["x"][-1])

        @graph_fn
        def sample(self):
            return {"x": self.last.value, "pair": (self.last.value, self.last.value)}

    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.memory, self.linear, self.cell = Memory("memory"), Linear(1, "linear"), Cell(0.0)

        @api
        def aaa_sample(self):
            batch = self.memory.sample()
            x = batch["x"] * 2.0 + 1.0 - batch["pair"][0]
            first, second = batch["pair"]
            last, ys = graph.scan(lambda carry, row: (carry + row, row), 0.0, x)
            chosen = graph.cond(self._any(x), lambda: first, lambda: second)
            while_ = graph.while_(lambda c: c < 3.0, lambda c: c + 1.0, last * 0.0)
            mapped = graph.vmap(lambda row: row * 2.0)(x)
            y = self.linear.call(self._row(x))
            graph.metric("last", last)
            self.cell.set(last)
            items = dict(sorted(batch.items()))
            return items, ys, chosen, while_, mapped, y, -x, 3.0 / (x + 1.0)

        @api
        def insert(self, records):
            self.memory.insert(records)

        @graph_fn
        def _any(self, x):
            return ops.any(x > 0)

        @graph_fn
        def _row(self, x):
            return x[None]

    executor = built(Root(), {"records": Dict(x=rows(3))}, backend)
    executor.insert({"x": np.array([[1, 2, 3]], np.float32)})
    items, ys, chosen, while_, mapped, y, negative, inverse = executor.aaa_sample()
    close(items["x"], [1, 2, 3])
    close(ys, [2, 3, 4])
    close(chosen, [1, 2, 3])
    close(while_, 3.0)
    close(mapped, [4, 6, 8])
    assert y.shape == (1, 1)
    close(negative, [-2, -3, -4])
    close(inverse, 3.0 / np.array([3, 4, 5]))
    close(weight(executor, "content"), 9.0)


# -- float64, ComponentTest ---------------------------------------------------------------------------------------


def test_a_float64_graph_on_numpy_computes_in_double_precision():
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.linear = Linear(2, "linear")

        @api
        def call(self, inputs):
            return self._rest(self.linear.call(inputs)), self._draw(), self._thirds()

        @graph_fn
        def _rest(self, x):
            return (x + 1e-12) - x

        @graph_fn
        def _draw(self):
            return ops.random.normal((3,))

        @graph_fn
        def _thirds(self):
            return ops.ones((2,)) / 3.0

    executor = built(Root(), {"inputs": rows(3)}, float_dtype="float64")
    rest, draw, thirds = executor.call(np.ones((2, 3)))
    assert rest.dtype == draw.dtype == thirds.dtype == np.float64
    assert np.all(np.abs(rest - 1e-12) < 1e-15)
    assert abs(thirds[0] - 1 / 3) < 1e-16
    assert all(value.dtype == np.float64 for value in executor.get_weights().values())
    plain = built(Root(), {"inputs": rows(3)})
    for path, value in plain.get_weights().items():
        close(executor.get_weights()[path], value)
    assert plain.call(np.ones((2, 3)))[0].dtype == np.float32


@every
def test_component_test_builds_what_it_can_and_compares_nested_results(backend):
    class Part(Component):
        def __init__(self):
            super().__init__("part")
            self.linear = Linear(2, "linear")

        @api
        def call(self, inputs):
            return {"y": self.linear.call(inputs), "pair": (inputs, inputs)}

        @graph_fn
        def other(self, more):
            return more

    harness = ComponentTest(Part(), {"inputs": rows(3)}, backend, seed=3)
    x = harness.sample("inputs", 4)
    assert x.shape == (4, 3)
    y = x @ harness.variables()["linear/kernel"] + harness.variables()["linear/bias"]
    result = harness.test("call", x, expected={"y": y, "pair": (x, x)}, rtol=1e-4)
    assert result["y"].shape == (4, 2)
    for wrong in ({"y": y + 1, "pair": (x, x)}, {"y": y}, {"y": y, "pair": (x,)}):
        with pytest.raises(AssertionError):
            harness.test("call", x, expected=wrong)
    harness.test(harness.component.call, x)


@pytest.mark.parametrize("backend", GRADIENT_BACKENDS)
def test_framework_arrays_go_in_and_out(backend):
    executor = built(_Base(), {"x": BATCH}, backend)
    y = executor.call(np.ones(3, np.float32), as_numpy=False)
    assert type(y).__module__.split(".")[0] in ("torch", "jaxlib", "jax", "tensorflow")
    z = executor.call(y, as_numpy=False)
    close(np.asarray(z), np.full(3, 7.0))
    close(executor.call(z), np.full(3, 15.0))
