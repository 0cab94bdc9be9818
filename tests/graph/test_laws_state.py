"""Laws of named state: 1-4, 16-18 of the IR (order, dead nodes, retraces, static variants, weights, sharing)."""

import itertools

import numpy as np
import pytest

from rlweave import ops
from rlweave.backends import is_installed
from rlweave.graph import Component, api, graph_fn, shared
from rlweave.spaces import FloatBox, IntBox
from tests.graph.toys import BACKENDS, SCALAR, Cell, Linear, built, close, rows, weight


@pytest.mark.parametrize("backend", BACKENDS)
def test_law_01_a_read_after_a_write_sees_the_write(backend):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.cell = Cell(2.0)

        @api
        def update(self, x):
            before = self.cell.raw()
            self.cell.set(x)
            between = self.cell.raw()
            self.cell.add(x)
            return before, between, self.cell.raw()

    executor = built(Root(), {"x": SCALAR}, backend)
    close(executor.update(5.0), [2.0, 5.0, 10.0])
    close(executor.update(1.0), [10.0, 1.0, 2.0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_law_01_rows_written_in_place_do_not_change_what_was_read_before(backend):
    class Rows(Component):
        def create_variables(self):
            self.table = self.variable("table", (3,), 0.0)

        @graph_fn
        def raw(self):
            return self.table.value

        @graph_fn
        def write(self, x):
            self.table.assign_at(1, x)

    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.rows = Rows("rows")

        @api
        def update(self, x):
            before = self.rows.raw()
            self.rows.write(x)
            return before, self.rows.raw()

    executor = built(Root(), {"x": SCALAR}, backend)
    before, after = executor.update(7.0)
    close(before, [0, 0, 0])
    close(after, [0, 7, 0])
    executor.update(9.0)
    close(after, [0, 7, 0])  # what was handed out stays what it was


class _Counting(Component):
    def create_variables(self):
        self.count = self.variable("count", (), 0, dtype="int32")

    @graph_fn
    def pure(self, x):
        return ops.exp(x)

    @graph_fn
    def counted(self, x):
        self.count.assign(self.count.value + 1)
        return x * 2.0


@pytest.mark.parametrize("backend", BACKENDS)
def test_law_02_dead_nodes_go_and_nodes_with_writes_stay(backend):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.part = _Counting("part")

        @api
        def update(self, x):
            self.part.pure(x)
            self.part.counted(x)
            return x

    executor = built(Root(), {"x": SCALAR}, backend)
    close(executor.update(3.0), 3.0)
    assert "pure" not in executor.code("update")
    assert "counted" in executor.code("update")
    assert weight(executor, "count") == 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("order", list(itertools.permutations(("first", "second", "third"))))
def test_law_03_any_order_of_api_methods_builds_the_same_graph(backend, order):
    """`third` needs what `second` makes, which needs what `first` feeds."""

    def first(self, x):
        return self.a.call(x)

    def second(self, x):
        return self.b.call(self.a.call(x))

    def third(self, x):
        return self.c.call(self.b.call(self.a.call(x)))

    bodies = {"first": first, "second": second, "third": third}

    def init(self):
        Component.__init__(self, "root")
        self.a, self.b, self.c = Linear(3, "a"), Linear(4, "b"), Linear(2, "c")

    cls = type("Root", (Component,), {"__init__": init, **{name: api(bodies[name]) for name in order}})
    reference = type("Root", (Component,), {"__init__": init, **{name: api(fn) for name, fn in bodies.items()}})
    one, other = built(cls(), {"x": rows(5)}, backend, seed=3), built(reference(), {"x": rows(5)}, backend, seed=3)
    assert list(one.get_weights()) == list(other.get_weights())
    x = np.linspace(-1, 1, 10, dtype=np.float32).reshape(2, 5)
    for name in order:
        assert one.code(name) == other.code(name)
        close(one.execute(name, x), other.execute(name, x))


@pytest.mark.parametrize("backend", BACKENDS)
def test_law_03_a_component_that_is_fed_by_a_later_method_only(backend):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.table = _Table()

        @api
        def sample(self):
            return self.table.sample()

        @api
        def insert(self, records):
            self.table.insert(records)

    executor = built(Root(), {"records": rows(2)}, backend)
    executor.insert(np.array([[1, 2]], np.float32))
    close(executor.sample(), [1, 2])


class _Table(Component):
    """Keeps the last record; its variables wait for the records' space."""

    def create_variables(self, records):
        self.last = self.variable("last", records.shape, 0.0)

    @graph_fn
    def insert(self, records):
        self.last.assign(records[-1])

    @graph_fn
    def sample(self):
        return self.last.value


@pytest.mark.parametrize("backend", BACKENDS)
def test_law_04_sample_before_insert_in_one_method_and_across_methods(backend):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.table = _Table()

        @api
        def sample_then_insert(self, records):
            sampled = self.table.sample()
            self.table.insert(records)
            return sampled

        @api
        def insert_then_sample(self, records):
            self.table.insert(records)
            return self.table.sample()

        @api
        def sample(self):
            return self.table.sample()

    executor = built(Root(), {"records": rows(2)}, backend)
    one, two, three = (np.array([[n, n]], np.float32) for n in (1, 2, 3))
    close(executor.sample(), [0, 0])
    close(executor.sample_then_insert(one), [0, 0])
    close(executor.sample(), [1, 1])
    close(executor.insert_then_sample(two), [2, 2])
    held = executor.sample_then_insert(three)
    executor.insert_then_sample(one)
    close(held, [2, 2])


@pytest.mark.parametrize("backend", BACKENDS)
def test_law_04_views_that_a_host_function_with_declared_spaces_returns(backend):
    class Ring(Component):
        def create_variables(self, records):
            self.ring = self.variable("ring", (4, *records.shape), 0.0)

        @graph_fn(host=True, spaces="_nothing")
        def insert(self, records):
            self.ring.assign_at(slice(0, len(records)), records)

        @graph_fn(host=True, spaces="_both", returns=2)
        def sample(self):
            return self.ring.value, {"first": self.ring.value[:2]}

        def _nothing(self, records):
            return None

        def _both(self):
            return FloatBox(shape=(4, 2)), {"first": FloatBox(shape=(2, 2))}

    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.memory = Ring("memory")

        @api
        def sample_then_insert(self, records):
            whole, part = self.memory.sample()
            self.memory.insert(records)
            return whole, part["first"]

    executor = built(Root(), {"records": rows(2)}, backend)
    whole, part = executor.sample_then_insert(np.ones((2, 2), np.float32))
    close(whole, np.zeros((4, 2)))
    close(part, np.zeros((2, 2)))
    again, _ = executor.sample_then_insert(np.full((2, 2), 5.0, np.float32))
    close(again[:2], np.ones((2, 2)))
    close(part, np.zeros((2, 2)))


# -- static arguments --------------------------------------------------------------------------------------------


class _Drawing(Component):
    @api(static=("batch_size",))
    def draw(self, x, batch_size):
        return self._draw(x, batch_size)

    @graph_fn
    def _draw(self, x, batch_size):
        return ops.zeros((batch_size, 2)) + x


@pytest.mark.parametrize("backend", BACKENDS)
def test_law_16_each_combination_of_static_arguments_is_one_variant(backend):
    executor = built(_Drawing("root"), {"x": SCALAR}, backend)
    assert executor.compilations == 0
    for _ in range(3):
        assert executor.draw(1.0, 4).shape == (4, 2)
        assert executor.draw(1.0, batch_size=7).shape == (7, 2)
    assert executor.compilations == 2
    assert "4" in executor.code("draw", batch_size=4)
    assert executor.code("draw", batch_size=4) != executor.code("draw", batch_size=7)


@pytest.mark.parametrize("backend", BACKENDS)
def test_law_16_a_component_that_only_a_static_variant_uses_gets_its_variables_when_it_is_traced(backend):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.small, self.large = Linear(2, "small"), Linear(3, "large")

        @api(static=("size",))
        def call(self, inputs, size):
            return self.small.call(inputs) if size == "small" else self.large.call(inputs)

    executor = built(Root(), {"inputs": rows(4)}, backend, seed=1)
    assert executor.get_weights() == {}
    x = np.ones((2, 4), np.float32)
    small = executor.call(x, size="small")
    assert small.shape == (2, 2)
    assert sorted(executor.get_weights()) == ["root/small/bias", "root/small/kernel"]
    assert executor.call(x, size="large").shape == (2, 3)
    assert sorted(executor.get_weights()) == [
        "root/large/bias",
        "root/large/kernel",
        "root/small/bias",
        "root/small/kernel",
    ]
    close(executor.call(x, size="small"), small)
    other = built(Root(), {"inputs": rows(4)}, backend, seed=1, static={"call": {"size": "large"}})
    close(other.call(x, size="large"), executor.call(x, size="large"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_law_16_a_default_of_a_static_argument_is_traced_by_the_build(backend):
    class Root(Component):
        @api(static=("explore",))
        def act(self, x, explore=True):
            return self._act(x, explore)

        @graph_fn
        def _act(self, x, explore):
            return x + (1.0 if explore else 0.0)

    executor = built(Root("root"), {"x": SCALAR}, backend)
    close([executor.act(1.0), executor.act(1.0, explore=False), executor.act(1.0, False)], [2.0, 1.0, 1.0])
    assert executor.compilations == 2


# -- weights -----------------------------------------------------------------------------------------------------


class _Twins(Component):
    """A network, a target network with its weights and a twin with weights of its own."""

    def __init__(self, order=("network", "target", "twin")):
        super().__init__("twins")
        network = Linear(3, "network")
        parts = {
            "network": network,
            "target": network.copy(scope="target", trainable=False),
            "twin": network.copy(scope="twin", initial="fresh"),
        }
        for name in order:
            setattr(self, name, parts[name])

    @api
    def call(self, inputs):
        return self.network.call(inputs), self.target.call(inputs), self.twin.call(inputs)


def test_law_17_equal_seeds_give_equal_weights_on_all_backends_in_any_build_order():
    weights = [
        built(_Twins(order), {"inputs": rows(4)}, backend, seed=5).get_weights()
        for backend in filter(is_installed, BACKENDS)
        for order in (("network", "target", "twin"), ("twin", "target", "network"))
    ]
    for other in weights[1:]:
        assert sorted(other) == sorted(weights[0])
        for path, value in weights[0].items():
            assert other[path].tobytes() == value.tobytes(), path
    assert not np.array_equal(
        weights[0]["twins/network/kernel"],
        built(_Twins(), {"inputs": rows(4)}, seed=6).get_weights()["twins/network/kernel"],
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_law_17_copies_are_equal_or_fresh(backend):
    executor = built(_Twins(), {"inputs": rows(4)}, backend)
    weights = executor.get_weights()
    assert np.array_equal(weights["twins/network/kernel"], weights["twins/target/kernel"])
    assert not np.array_equal(weights["twins/network/kernel"], weights["twins/twin/kernel"])
    network, target, twin = executor.call(np.ones((1, 4), np.float32))
    close(network, target)
    assert not np.allclose(network, twin)


def test_law_17_weights_of_one_component_do_not_depend_on_what_else_is_built():
    class Other(Component):
        def __init__(self):
            super().__init__("twins")
            self.extra = Linear(7, "extra")
            self.network = Linear(3, "network")

        @api
        def call(self, inputs):
            return self.extra.call(inputs), self.network.call(inputs)

    one = built(_Twins(), {"inputs": rows(4)}, seed=2).get_weights()["twins/network/kernel"]
    other = built(Other(), {"inputs": rows(4)}, seed=2).get_weights()["twins/network/kernel"]
    assert np.array_equal(one, other)


@pytest.mark.parametrize("initial", ["same", "fresh"])
def test_law_17_copies_of_numbered_siblings(initial):
    class Stack(Component):
        def __init__(self, scope="stack"):
            super().__init__(scope)
            self.layers = [Linear(4, "dense"), Linear(4, "dense")]

        @api
        def call(self, inputs):
            for layer in self.layers:
                inputs = layer.call(inputs)
            return inputs

    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.stack = Stack()
            self.other = self.stack.copy(scope="other", initial=initial)

        @api
        def call(self, inputs):
            return self.stack.call(inputs), self.other.call(inputs)

    weights = built(Root(), {"inputs": rows(4)}).get_weights()
    assert not np.array_equal(weights["root/stack/dense-0/kernel"], weights["root/stack/dense-1/kernel"])
    for layer in ("dense-0", "dense-1"):
        equal = np.array_equal(weights[f"root/stack/{layer}/kernel"], weights[f"root/other/{layer}/kernel"])
        assert equal == (initial == "same")


@pytest.mark.parametrize("backend", BACKENDS)
def test_law_18_a_trunk_shared_by_two_heads_has_one_set_of_variables(backend):
    class Head(Component):
        def __init__(self, trunk, scope):
            super().__init__(scope)
            self.trunk = shared(trunk)
            self.out = Linear(1, "out")

        @api
        def call(self, inputs):
            return self.out.call(self.trunk.call(inputs))

        @api
        def paths(self):
            return self._count(self.variables())

        @graph_fn
        def _count(self, variables):
            return ops.asarray(len(variables), "int32")

    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.trunk = Linear(3, "trunk")
            self.actor, self.critic = Head(self.trunk, "actor"), Head(self.trunk, "critic")

        @api
        def call(self, inputs):
            return self.actor.call(inputs), self.critic.call(inputs)

        @api
        def counts(self):
            return self.actor.paths(), self.critic.paths(), self._count(self.variables())

        @graph_fn
        def _count(self, variables):
            return ops.asarray(len(variables), "int32")

    executor = built(Root(), {"inputs": rows(2)}, backend)
    assert sorted(executor.get_weights()) == [
        f"root/{part}/{name}" for part in ("actor/out", "critic/out", "trunk") for name in ("bias", "kernel")
    ]
    close(executor.counts(), [4, 4, 6])
    x = np.ones((2, 2), np.float32)
    before = executor.call(x)
    executor.set_weights({"root/trunk/kernel": np.zeros((2, 3), np.float32)})
    for old, new in zip(before, executor.call(x), strict=True):
        assert not np.allclose(old, new)


@pytest.mark.parametrize("backend", BACKENDS)
def test_law_18_copies_share_with_the_copied_trunk_when_it_is_copied_too(backend):
    class Pair(Component):
        def __init__(self, scope="pair"):
            super().__init__(scope)
            self.trunk = Linear(3, "trunk")
            self.user = _User(self.trunk)

        @api
        def call(self, inputs):
            return self.user.call(inputs)

    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.pair = Pair()
            self.target = self.pair.copy(scope="target")

        @api
        def call(self, inputs):
            return self.pair.call(inputs), self.target.call(inputs)

    executor = built(Root(), {"inputs": rows(2)}, backend)
    x = np.ones((1, 2), np.float32)
    one, two = executor.call(x)
    close(one, two)
    executor.set_weights({"root/target/trunk/bias": np.full(3, 9.0, np.float32)})
    one_after, two_after = executor.call(x)
    close(one, one_after)
    assert not np.allclose(two, two_after)


class _User(Component):
    def __init__(self, trunk):
        super().__init__("user")
        self.trunk = shared(trunk)

    @api
    def call(self, inputs):
        return self.trunk.call(inputs)


@pytest.mark.parametrize("backend", BACKENDS)
def test_variables_of_all_kinds_and_dtypes(backend):
    class Kinds(Component):
        def create_variables(self):
            self.kinds = [
                self.variable("number", (), 2.5),
                self.variable("array", (2,), np.array([1.0, 2.0])),
                self.variable("function", (3,), lambda rng, shape: rng.uniform(size=shape)),
                self.variable("steps", (), 4, dtype="int32"),
                self.variable("flag", (), True, dtype="bool"),
                self.variable("space", IntBox(5), 3),
                self.variable("pixels", FloatBox(shape=(2, 2)), "ones"),
            ]

        @graph_fn
        def call(self):
            return tuple(v.value for v in self.kinds)

    result = built(Kinds("kinds"), {}, backend).call()
    assert [r.shape for r in result] == [(), (2,), (3,), (), (), (), (2, 2)]
    assert [str(r.dtype) for r in result] == ["float32"] * 3 + ["int32", "bool", "int32", "float32"]
    close(result[1], [1, 2])
