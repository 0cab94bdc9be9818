"""Places: where arrays really are, transfers between them, and what a wrong placement says.

JAX has four devices made of the CPU (see `tests/conftest.py`); torch's second device is `meta`, a device of shapes.
"""

import numpy as np
import pytest

from rlweave import graph, ops
from rlweave.components import Adam
from rlweave.errors import BuildError
from rlweave.graph import Component, api, build, graph_fn
from rlweave.spaces import FloatBox
from tests.graph.toys import Cell, Descent, Linear, built, close, rows

X = {"x": rows(3)}


class Noise(Component):
    @graph_fn
    def add(self, x):
        return x + ops.random.uniform(x.shape)


class Distance(Component):
    @graph_fn
    def between(self, y, target):
        return ops.mean(ops.square(y - ops.stop_gradient(target)))


class Counter(Component):
    def create_variables(self):
        self.seen = self.variable("seen", (), 0.0, dtype="float64")

    @graph_fn(host=True)
    def note(self, loss):
        self.seen.assign(self.seen.value + loss)
        return self.seen.value * 2.0


class Learner(Component):
    """A policy, its target network, noise that is drawn, a memory on the host, an optimizer: all may live elsewhere."""

    def __init__(self):
        super().__init__("root")
        self.policy, self.optimizer = Linear(2, scope="policy"), Adam(0.1, max_grad_norm=0.5)
        self.target = self.policy.copy(scope="target", trainable=False)
        self.noise, self.loss, self.counter = Noise("noise"), Distance("loss"), Counter("counter")

    @api
    def update(self, x):
        noisy = self.noise.add(x)
        goal = self.noise.add(self.target.call(noisy))
        loss = self.loss.between(self.policy.call(noisy), goal)
        self.optimizer.step(loss, self.policy.variables())
        graph.metric("loss", loss)
        return loss, self.counter.note(loss)

    @api
    def act(self, x):
        return self.policy.call(x)

    @api
    def aim(self, x):
        return self.target.call(x)

    @api
    def copy_over(self):
        self.target.sync(self.policy)

    @api
    def approach(self):
        self.target.sync(self.policy, tau=0.25)

    @api
    def parameters(self):
        return (self.policy.variables() + self.target.variables(None)).read()


PLACES = {"policy": "cpu:1", "loss": "cpu:1", "target": "cpu:2", "noise": "cpu:3", "counter": "host"}


def devices_of(executor):
    """Device of each variable by path below the root."""
    executor.store.release()
    return {
        path.removeprefix("root/"): str(next(iter(cell.value.devices())))
        for path, cell in executor.store.cells.items()
        if path not in executor.store.host_paths and path != "random"
    }


def spied(executor, method):
    """Lets each run of a method note where its arguments and results were: {run: (arguments, results)}."""
    import jax

    program, seen = executor.program(method), {}
    for name, run in program.runs.items():

        def noting(*arguments, name=name, run=run):
            results = run(*arguments)
            seen[name] = tuple(
                {str(d) for leaf in jax.tree.leaves(part) if isinstance(leaf, jax.Array) for d in leaf.devices()}
                for part in (jax.tree.map(lambda x: x, arguments[-1:]), results)
            )
            return results

        program.entry.__globals__[name] = noting
    return seen


def run_all(executor, calls=4):
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    found = []
    for i in range(calls):
        result, metrics = executor.update(x, with_metrics=True)
        found += [*result, metrics["loss"]]
        executor.approach() if i % 2 else executor.copy_over()
        found.append(executor.act(x))
    return found


@pytest.mark.parametrize(
    ("mode", "rng"),
    [("compiled", "portable"), ("compiled", "fast"), pytest.param("eager", "portable", marks=pytest.mark.thorough)],
)
def test_four_devices_and_the_host_give_what_one_device_gives_bit_for_bit(rng, mode):
    one = built(Learner(), X, "jax", rng=rng, mode=mode)
    many = built(Learner(), X, "jax", rng=rng, mode=mode, device=PLACES)
    for expected, result in zip(run_all(one), run_all(many), strict=True):
        np.testing.assert_array_equal(result, expected)
    ours, theirs = many.state_dict(), one.state_dict()
    assert list(ours) == list(theirs)
    for path, value in theirs.items():
        np.testing.assert_array_equal(ours[path], value, err_msg=path)


def test_a_forward_pass_waits_for_what_another_device_computes():
    """The policy's forward pass stands before the target network's, and its loss needs both."""

    class Root(Learner):
        @api
        def update(self, x):
            prediction = self.policy.call(x)
            loss = self.loss.between(prediction, self.target.call(self.noise.add(x)))
            self.optimizer.step(loss, self.policy.variables())
            return loss, self.counter.note(loss)

    one = built(Root(), X, "jax", rng="portable")
    many = built(Root(), X, "jax", rng="portable", device={"target": "cpu:1", "noise": "cpu:2"})
    x = np.ones((4, 3), np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(many.update(x), one.update(x))


def test_arrays_are_where_their_components_were_placed():
    executor = built(Learner(), X, "jax", device=PLACES)
    expected = {"policy": "cpu:1", "target": "cpu:2", "optimizer": "cpu:1"}

    def check():
        found = devices_of(executor)
        assert len(found) == 2 + 2 + 5
        for path, device in found.items():
            assert device == expected[path.partition("/")[0]], path

    check()
    run_all(executor)
    check()
    executor.load_state_dict(executor.state_dict())
    executor.set_weights(executor.get_weights("root/policy"))
    check()
    run_all(executor, 2)
    check()
    executor.store.release()
    assert isinstance(executor.store.cells["root/counter/seen"].value, np.ndarray | np.generic)


def test_each_run_is_on_one_device_with_all_that_it_takes_and_gives():
    executor = built(Learner(), X, "jax", device=PLACES)
    seen = spied(executor, "update")
    run_all(executor, 2)
    assert len(seen) >= 4
    places = []
    for arguments, results in seen.values():
        assert len(results) == 1
        assert arguments <= results
        places += results
    assert set(places) == {"cpu:1", "cpu:2", "cpu:3"}


def test_transfers_are_nodes_and_lines():
    executor = built(Learner(), X, "jax", device=PLACES)
    nodes = [node for (name, _), g in executor.graphs.items() if name == "update" for node in g.nodes]
    transfers = [node for node in nodes if node.kind == "transfer"]
    moved = {(node.source, node.target) for node in transfers if node.args}
    assert {("caller", "cpu:3"), ("cpu:3", "cpu:2"), ("cpu:3", "cpu:1"), ("cpu:2", "cpu:3"), ("cpu:1", "host")} == moved
    assert any(node.label.endswith("add.cpu:3_to_cpu:2") for node in transfers)
    code = executor.code("update")
    assert "add_2_on_cpu_2 = to_cpu_2(add_2)" in code
    assert "to_host(" in code
    # one place: no transfers but that of what is called without variables
    single = built(Learner(), X, "jax", device="cpu:2")
    assert not any(n.kind == "transfer" for (name, _), g in single.graphs.items() if name == "act" for n in g.nodes)
    assert "to_cpu" not in built(Learner(), X, "jax").code("update")


def test_what_touches_no_variable_runs_where_its_component_is():
    class Root(Component):
        @graph_fn
        def call(self, x):
            return x + 1.0

        @graph_fn
        def nothing(self):
            return ops.zeros((2,)) + 1.0

        @graph_fn
        def drawn(self):
            return ops.random.uniform((2,))

    executor = build(Root("root"), X, backend="jax", device="cpu:3")
    assert {d.id for d in executor.drawn(as_numpy=False).devices()} == {3}
    x = np.ones((2, 3), np.float32)
    for argument in (x, executor.call(x, as_numpy=False)):
        result = executor.call(argument, as_numpy=False)
        assert {d.id for d in result.devices()} == {3}
        close(result, np.asarray(argument) + 1.0)
    assert {d.id for d in executor.nothing(as_numpy=False).devices()} == {3}


def test_results_of_one_device_are_inputs_of_another():
    executor = built(Learner(), X, "jax", device=PLACES)
    x = executor.act(np.ones((2, 3), np.float32), as_numpy=False)
    assert {d.id for d in x.devices()} == {1}
    other = built(Learner(), {"x": rows(2)}, "jax", device={"noise": "cpu:2", "policy": "cpu:3", "loss": "cpu:3"})
    assert np.isfinite(other.update(x)[0])
    np.testing.assert_array_equal(other.act(x), other.act(np.asarray(x)))


def test_one_map_of_places_and_the_longest_path_wins():
    class Nest(Component):
        def __init__(self):
            super().__init__("nest")
            self.outer = Pair(scope="outer")

        @api
        def read(self):
            return self.outer.read()

    class Pair(Component):
        def __init__(self, scope):
            super().__init__(scope)
            self.one, self.two = Cell(1.0, scope="one"), Cell(2.0, scope="two")

        @api
        def read(self):
            return self.one.read(), self.two.read()

    executor = build(Nest(), backend="jax", device={"": "cpu:1", "outer": "cpu:2", "nest/outer/two": "cpu:3"})
    assert {d.id for d in executor.store.cells["nest/outer/one/content"].value.devices()} == {2}
    assert {d.id for d in executor.store.cells["nest/outer/two/content"].value.devices()} == {3}
    assert executor.read() == (1.0, 2.0)


def test_the_random_state_goes_where_it_is_drawn_from_in_every_method():
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.one, self.two = Noise("one"), Noise("two")

        @api
        def first(self, x):
            return self.one.add(x)

        @api
        def both(self, x):
            return self.two.add(self.one.add(self.two.add(x)))

    x = np.zeros((2, 3), np.float32)
    executor = build(Root(), X, backend="jax", rng="portable", device={"one": "cpu:1", "two": "cpu:2"})
    plain = build(Root(), X, backend="jax", rng="portable")
    for method in ("both", "first", "first", "both"):
        np.testing.assert_array_equal(getattr(executor, method)(x), getattr(plain, method)(x))
    assert "random" in executor.code("both")


def test_a_store_is_shared_by_graphs_that_are_placed_alike():
    first = built(Learner(), X, "jax", device=PLACES, methods=["act"])
    second = built(Learner(), X, "jax", device=PLACES, methods=["act", "aim", "copy_over"], store=first.store)
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(first.act(x), second.act(x))
    with pytest.raises(BuildError, match="a store belongs to graphs of another kind"):
        built(Learner(), X, "jax", methods=["act"], store=first.store)


# -- torch ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rng", ["portable", "fast"])
def test_torch_with_a_second_device(rng):
    methods = ["act", "aim", "copy_over", "approach"]
    executor = built(Learner(), X, "torch", rng=rng, device={"target": "meta"}, methods=methods)
    for _ in range(2):
        executor.copy_over()
        executor.approach()
        executor.act(np.ones((2, 3), np.float32))
        for path, cell in executor.store.cells.items():
            if path != "random":
                expected = "meta" if "target" in path else "cpu"
                assert str(cell.value.device) == expected, path
    assert "to_meta(" in executor.code("copy_over")
    executor.set_weights({"root/target/bias": np.ones(2, np.float32)})
    assert str(executor.store.cells["root/target/bias"].value.device) == "meta"


def test_torch_draws_and_computes_on_both_devices():
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.here, self.there = Noise("here"), Noise("there")

        @api
        def call(self, x):
            y = self.here.add(x)
            return y, self.there.add(y), self.here.add(x)

    for rng in ("portable", "fast"):
        executor = build(Root(), X, backend="torch", rng=rng, device={"there": "meta"})
        plain = build(Root(), X, backend="torch", rng=rng)
        x = np.zeros((2, 3), np.float32)
        one, elsewhere, last = executor.call(x, as_numpy=False)
        assert str(elsewhere.device) == "meta"
        first, _, third = plain.call(x)
        np.testing.assert_array_equal(one, first)
        np.testing.assert_array_equal(last, third)


def test_tensors_of_any_device_are_inputs():
    torch = pytest.importorskip("torch")
    executor = built(Learner(), X, "torch", device={"target": "meta"}, methods=["act", "aim"])
    there = executor.aim(torch.ones(2, 3), as_numpy=False)
    assert str(there.device) == "meta"
    again = built(Learner(), {"x": rows(2)}, "torch", device={"target": "meta"}, methods=["act", "aim"])
    with pytest.raises(NotImplementedError, match="meta"):  # it was moved to the CPU, which meta's arrays cannot be
        again.act(there)
    (staged,) = executor.stage("aim", np.ones((2, 3), np.float32))
    assert str(staged.device) == "meta"


def test_the_cpu_by_name_is_the_cpu():
    executor = built(Learner(), X, "torch", rng="portable", device={"target": "cpu", "counter": "host"})
    plain = built(Learner(), X, "torch", rng="portable")
    for result, expected in zip(run_all(executor), run_all(plain), strict=True):
        np.testing.assert_array_equal(result, expected)
    assert "to_cpu" not in executor.code("update")


# -- what is refused -----------------------------------------------------------------------------------------------


def refusal(component, device, backend="jax", spaces=None):
    with pytest.raises(BuildError) as error:
        built(component, X if spaces is None else spaces, backend, device=device)
    return str(error.value)


def test_a_gradient_over_two_devices_names_both():
    message = refusal(Learner(), {"policy": "cpu:1"})
    assert "a gradient goes over two devices" in message
    assert "root/policy.call on cpu:1" in message
    assert "root/loss.between on cpu:0" in message
    assert 'device={"root/policy": "cpu:0"}' in message


@pytest.mark.parametrize("kind", ["scan", "cond", "vmap", "while_"])
def test_a_body_on_two_devices_names_both(kind):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.one, self.two = Cell(1.0, scope="one"), Cell(2.0, scope="two")

        @api
        def call(self, x):
            def both(y):
                return self.two.times(self.one.times(y))

            if kind == "scan":
                return graph.scan(lambda c, y: (c, both(y)), 0.0, x)[1]
            if kind == "vmap":
                return graph.vmap(both)(x)
            if kind == "while_":
                return graph.while_(lambda c: self._small(c), both, 1.0)
            return graph.cond(self._small(x), lambda: both(x), lambda: x)

        @graph_fn
        def _small(self, x):
            return ops.all(x < 9.0)

    message = refusal(Root(), {"one": "cpu:1", "two": "cpu:2"}, spaces={"x": FloatBox(shape=(3,))})
    assert f"the body of {kind.rstrip('_')} is on two devices" in message
    assert "root/one.times on cpu:1" in message
    assert "root/two.times on cpu:2" in message
    assert "put both on one device" in message
    # a body in one place may be anywhere
    places = {"one": "cpu:2", "two": "cpu:2"}
    placed = build(Root(), {"x": FloatBox(shape=(3,))}, backend="jax", device=places)
    plain = build(Root(), {"x": FloatBox(shape=(3,))}, backend="jax")
    x = np.arange(3, dtype=np.float32)
    close(placed.call(x), plain.call(x))


def test_a_gradient_across_a_run_on_another_device_is_refused():
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.cell, self.far, self.descent = Cell(3.0), Detour("far"), Descent(0.1)

        @api
        def update(self, x):
            y = self.cell.times(x)
            loss = self._loss(y, self.far.call(y))
            self.descent.apply(graph.gradients(loss, self.cell.variables()), self.cell.variables())
            return loss

        @graph_fn
        def _loss(self, y, z):
            return ops.mean(y * z)

    class Detour(Component):
        @graph_fn(differentiable=False)
        def call(self, y):
            return y + 1.0

    assert "a gradient goes across" in refusal(Root(), {"far": "cpu:1"})
    assert build(Root(), X, backend="jax").update(np.ones((2, 3), np.float32)) is not None


def test_one_optimizer_for_two_devices_is_refused():
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.one, self.two, self.descent = Cell(1.0, scope="one"), Cell(2.0, scope="two"), Descent()

        @api
        def move(self, x):
            variables = self.one.variables() + self.two.variables()
            self.descent.apply(variables.read(), variables)

    message = refusal(Root(), {"one": "cpu:1", "two": "cpu:2"}, spaces={"x": FloatBox()})
    assert "touches variables on two devices" in message
    assert "root/one/content on cpu:1, root/two/content on cpu:2" in message


def test_a_device_that_is_not_there_names_those_that_are():
    message = refusal(Learner(), {"policy": "cpu:7"})
    assert "'cpu:7'; there are 'cpu:0', 'cpu:1', 'cpu:2', 'cpu:3'" in message
    assert "did you mean" in message
    assert "root/policy" in message
    message = refusal(Learner(), {"policy": "cua:0"}, "torch")
    assert "there are 'cpu'" in message


def test_a_device_for_no_component_names_the_nearest():
    with pytest.raises(BuildError, match="did you mean 'root/target'"):
        built(Learner(), X, "torch", device={"root/taget": "cpu"})


def test_devices_are_named_by_the_paths_that_weights_have():
    class Net(Component):
        def __init__(self):
            super().__init__("net")
            self.layers = [Linear(2, "dense"), Linear(2, "dense")]
            self.layers.append(Linear(2, "dense"))

        @api
        def call(self, x):
            for layer in self.layers:
                x = layer.call(x)
            return x

    with pytest.raises(BuildError, match="given for no component") as error:  # before any build has numbered them
        build(Net(), {"x": rows(2)}, backend="jax", device={"net/dense": "cpu:1"})
    assert "did you mean 'net/dense-" in str(error.value)
    executor = build(Net(), {"x": rows(2)}, backend="jax", device={"net/dense-1": "cpu:1", "dense-2": "cpu:2"})
    places = {path.split("/")[1]: str(executor.store.place_of(path)) for path in executor.get_weights()}
    assert places == {"dense-0": "cpu:0", "dense-1": "cpu:1", "dense-2": "cpu:2"}
    assert executor.call(np.ones((1, 2), np.float32)).shape == (1, 2)
    assert all(f"dense-{i}" in executor.draw() for i in range(3))


@pytest.mark.parametrize("backend", ["numpy", "tensorflow"])
def test_a_backend_without_devices_says_so(backend):
    pytest.importorskip(backend)
    assert "computes on the CPU only" in refusal(Learner(), {"policy": "cpu:1"}, backend)


def test_a_placement_belongs_to_a_build_and_not_to_the_components():
    root = Learner()
    built(root, X, "torch", device="cpu")
    assert root.device is None
    assert built(root, X, "numpy", methods=["act"]).act(np.ones((1, 3), np.float32)).shape == (1, 2)
