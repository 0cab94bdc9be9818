"""Laws of control flow: 12-15 and 27 of the IR, with optimizers, random numbers, gradients and metrics in bodies."""

import numpy as np
import pytest

from rlweave import graph, ops
from rlweave.errors import BuildError
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import BoolBox, FloatBox
from tests.graph.toys import (
    BACKENDS,
    BATCH,
    GRADIENT_BACKENDS,
    SCALAR,
    Cell,
    Descent,
    Linear,
    built,
    close,
    rows,
    sequences,
    weight,
)

every = pytest.mark.parametrize("backend", BACKENDS)
both = pytest.mark.parametrize("backend", GRADIENT_BACKENDS)


# -- law 12: scan ------------------------------------------------------------------------------------------------


class _Folding(Component):
    """A recurrence with a variable that counts and one that is read."""

    def __init__(self):
        super().__init__("root")
        self.cell = Cell(1.0)

    @api
    def scanned(self, carry, xs):
        return graph.scan(self._step_api, carry, xs)

    @api
    def unrolled(self, carry, xs):
        ys = []
        for t in range(3):
            carry, y = self._step_api(carry, self._row(xs, t))
            ys.append(y)
        return carry, self._stack(*ys)

    def _step_api(self, carry, x):
        self.cell.add(1.0)
        new = self._step(carry, x, self.cell.read())
        return new, self._twice(new)

    @graph_fn
    def _step(self, carry, x, count):
        return 0.5 * carry + x * count

    @graph_fn
    def _twice(self, x):
        return 2.0 * x

    @graph_fn
    def _row(self, xs, t):
        return xs[t]

    @graph_fn
    def _stack(self, a, b, c):
        return ops.stack([a, b, c])


@every
def test_law_12_scan_equals_the_unrolled_loop(backend):
    spaces = {"carry": BATCH, "xs": sequences()}
    scanned, unrolled = built(_Folding(), spaces, backend), built(_Folding(), spaces, backend)
    carry, xs = np.array([1, -1], np.float32), np.arange(6, dtype=np.float32).reshape(3, 2)
    for _ in range(2):
        last, ys = scanned.scanned(carry, xs)
        last_unrolled, ys_unrolled = unrolled.unrolled(carry, xs)
        close(last, last_unrolled)
        close(ys, ys_unrolled)
        assert ys.shape == (3, 2)
        close(weight(scanned, "content"), weight(unrolled, "content"))
    close(weight(scanned, "content"), 7.0)


@every
def test_law_12_scan_over_nested_carry_and_inputs(backend):
    class Root(Component):
        @api
        def call(self, start, xs):
            carry = {"sum": start, "count": 0}
            last, ys = graph.scan(self._body, carry, {"x": xs, "again": (xs,)})
            return last, ys

        def _body(self, carry, x):
            total = self._add(carry["sum"], x["x"], x["again"][0])
            return {"sum": total, "count": carry["count"] + 1}, (total, {"count": carry["count"]})

        @graph_fn
        def _add(self, a, b, c):
            return a + b + c

    xs = np.arange(4, dtype=np.float32)
    last, (totals, counts) = built(Root("root"), {"start": SCALAR, "xs": FloatBox(shape=(4,))}, backend).call(1.0, xs)
    close(last["sum"], 1 + 2 * xs.sum())
    assert int(last["count"]) == 4
    assert last["count"].dtype == np.int32
    close(totals, 1 + 2 * np.cumsum(xs))
    assert counts["count"].tolist() == [0, 1, 2, 3]


@every
@pytest.mark.parametrize("inside", [True, False])
def test_law_12_a_carry_may_come_back_with_its_entries_in_another_order(backend, inside):
    class Root(Component):
        @api
        def call(self, a, b):
            if inside:
                return self._inside(a, b)
            return graph.scan(lambda carry, _: (self._step(carry), None), {"a": a, "b": b}, length=3)[0]

        @api
        def loop(self, a, b):
            return graph.while_(self._test, self._step, {"a": a, "b": b})

        @graph_fn(returns=1)
        def _inside(self, a, b):
            def step(carry, _):
                return {"b": carry["b"] * 2.0, "a": carry["a"] + 1.0}, None

            return ops.scan(step, {"a": a, "b": b}, None, 3)[0]

        @graph_fn(returns=1)
        def _step(self, carry):
            return {"b": carry["b"] * 2.0, "a": carry["a"] + 1.0}

        @graph_fn
        def _test(self, carry):
            return carry["a"] < 4.0

    executor = built(Root("root"), {"a": SCALAR, "b": SCALAR}, backend)
    for method in (executor.call, executor.loop):
        last = method(1.0, 5.0)
        close(last["a"], 4.0)
        close(last["b"], 40.0)


@every
def test_law_12_scan_over_no_steps_hands_out_the_carry_and_empty_rows(backend):
    executor = built(_Folding(), {"carry": BATCH, "xs": sequences()}, backend)
    carry = np.array([1, -1], np.float32)
    last, ys = executor.scanned(carry, np.zeros((0, 2), np.float32))
    close(last, carry)
    assert ys.shape == (0, 2)
    assert ys.dtype == np.float32
    close(weight(executor, "content"), 1.0)


@every
@pytest.mark.parametrize("rng", ["fast", "portable"])
def test_law_12_random_numbers_in_a_scan_are_those_of_the_unrolled_loop(backend, rng):
    class Root(Component):
        @api
        def scanned(self):
            return graph.scan(self._body, (), None, 4)[1]

        @api
        def unrolled(self):
            return tuple(self._draw() for _ in range(4))

        def _body(self, carry, _):
            return carry, self._draw()

        @graph_fn
        def _draw(self):
            return ops.random.uniform((2,))

    one, two = built(Root("root"), {}, backend, rng=rng), built(Root("root"), {}, backend, rng=rng)
    first = one.scanned()
    close(first, np.stack(two.unrolled()))
    close(one.scanned(), np.stack(two.unrolled()))  # the state after is the same, too
    assert len(np.unique(first)) == 8


class _Fit(Component):
    """Least squares by minibatches: epochs x minibatches, a stochastic gradient step in each."""

    def __init__(self, epochs=3):
        super().__init__("root")
        self.epochs = epochs
        self.model, self.descent = Linear(1, "model"), Descent(0.05)
        self.steps = Cell(0.0, scope="steps", trainable=False)

    @api
    def fit(self, inputs, targets):
        graph.repeat(self.epochs, lambda: self._epoch(inputs, targets))

    @api
    def unrolled(self, inputs, targets):
        for _ in range(self.epochs):
            order = self._shuffled(inputs)
            for i in range(3):
                self._step(inputs, targets, self._row(order, i))

    def _epoch(self, inputs, targets):
        def step(carry, indices):
            self._step(inputs, targets, indices)
            return carry, None

        graph.scan(step, (), self._shuffled(inputs))

    def _step(self, inputs, targets, indices):
        x, y = graph.batch_rank(self._take(inputs, targets, indices))
        loss = self._loss(self.model.call(x), y)
        graph.metric("loss", loss)
        graph.metric("last_loss", loss, reduce="last")
        self.descent.apply(graph.gradients(loss, self.model.variables()), self.model.variables())
        self.steps.add(1.0)

    @graph_fn(spaces="_shuffled_spaces")
    def _shuffled(self, inputs):
        return ops.reshape(ops.random.permutation(inputs.shape[0]), (3, inputs.shape[0] // 3))

    def _shuffled_spaces(self, inputs):
        from rlweave.spaces import IntBox

        return IntBox(shape=(3, 2))

    @graph_fn
    def _row(self, order, i):
        return order[i]

    @graph_fn
    def _take(self, inputs, targets, indices):
        return ops.take(inputs, indices, axis=0), ops.take(targets, indices, axis=0)

    @graph_fn
    def _loss(self, y, targets):
        return ops.mean((y - targets) ** 2)


@both
@pytest.mark.parametrize("rng", ["fast", "portable"])
def test_law_12_epochs_of_minibatches_with_an_optimizer_equal_the_unrolled_loop(backend, rng):
    spaces = {
        "inputs": FloatBox(shape=(2,), add_batch_rank=6),
        "targets": FloatBox(shape=(1,), add_batch_rank=6),
    }
    looped, unrolled = (built(_Fit(), spaces, backend, seed=2, rng=rng) for _ in range(2))
    generator = np.random.default_rng(0)
    x = generator.normal(size=(6, 2)).astype(np.float32)
    y = x @ np.array([[1.0], [-2.0]], np.float32)
    before = np.mean((x @ weight(looped, "kernel") + weight(looped, "bias") - y) ** 2)
    for _ in range(3):
        looped.fit(x, y)
        unrolled.unrolled(x, y)
        for path, value in unrolled.get_weights().items():
            close(looped.get_weights()[path], value, rtol=1e-4, atol=1e-5)
    after = np.mean((x @ weight(looped, "kernel") + weight(looped, "bias") - y) ** 2)
    assert after < 0.5 * before
    close(weight(looped, "steps/content"), 27.0)


@both
def test_law_12_a_gradient_through_a_scan_is_the_gradient_of_the_unrolled_loop(backend):
    """c_t = w c_{t-1} + x_t, loss = sum of c_t: compared with finite differences in float64."""

    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.cell = Cell(0.7)

        @api
        def slopes(self, xs):
            last, ys = graph.scan(self._body, 1.0, xs)
            loss = self._loss(last, ys)
            return loss, graph.gradients(loss, self.cell.variables())

        def _body(self, carry, x):
            new = self._add(self.cell.times(carry), x)
            return new, new

        @graph_fn
        def _add(self, a, b):
            return a + b

        @graph_fn
        def _loss(self, last, ys):
            return ops.sum(ys) + last * last

    def value(w, xs):
        carry, total = 1.0, 0.0
        for x in xs.tolist():
            carry = w * carry + x
            total += carry
        return total + carry * carry

    xs = np.array([0.3, -1.0, 0.5, 2.0], np.float32)
    executor = built(Root(), {"xs": FloatBox(shape=(4,))}, backend)
    loss, gradients = executor.slopes(xs)
    close(loss, value(0.7, xs))
    close(gradients["root/cell/content"], (value(0.7 + 1e-6, xs) - value(0.7 - 1e-6, xs)) / 2e-6, rtol=1e-4)


@both
def test_law_12_what_is_not_differentiable_in_a_body_stops_the_gradient(backend):
    """y_t = w * x_t * stop(w * x_t): only the first factor counts."""

    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.cell, self.seen = Cell(2.0), Cell(0.0, scope="seen", trainable=False)

        @api
        def slopes(self, xs):
            _, ys = graph.scan(self._body, (), xs)
            loss = self._loss(ys)
            return loss, graph.gradients(loss, self.cell.variables())

        def _body(self, carry, x):
            y = self.cell.times(x)
            self.seen.add_silently(y)
            return carry, self._product(y, self._frozen(y), self.seen.read())

        @graph_fn(differentiable=False)
        def _frozen(self, y):
            return y * 1.0

        @graph_fn
        def _product(self, a, b, c):
            return a * b * c

        @graph_fn
        def _loss(self, ys):
            return ops.sum(ys)

    xs = np.array([1.0, 3.0], np.float32)
    executor = built(Root(), {"xs": FloatBox(shape=(2,))}, backend)
    loss, gradients = executor.slopes(xs)
    w = 2.0
    seen = np.cumsum(w * xs)
    close(loss, np.sum((w * xs) ** 2 * seen))
    close(gradients["root/cell/content"], np.sum(w * xs * xs * seen))
    close(weight(executor, "seen/content"), 8.0)


@both
def test_law_12_a_gradient_inside_a_scan_inside_a_gradient(backend):
    """Inner loop of MAML as a scan: fast <- fast - .1 d(fast x)^2/dfast, then 1.5 (fast)^2 by the first weight."""

    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.model = Cell(2.0, scope="model")

        @api
        def meta(self, xs):
            fast, losses = graph.scan(self._inner, self.model.variables().read(), xs)
            outer = self._outer(graph.substitute(self.model, fast).times(1.0))
            return outer, losses, graph.gradients(outer, self.model.variables())

        def _inner(self, fast, x):
            loss = self._square(graph.substitute(self.model, fast).times(x))
            slopes = graph.gradients(loss, fast)
            return {path: self._move(value, slopes[path]) for path, value in fast.items()}, loss

        @graph_fn
        def _square(self, y):
            return y * y

        @graph_fn
        def _move(self, w, slope):
            return w - 0.1 * slope

        @graph_fn
        def _outer(self, y):
            return 1.5 * y * y

    xs = np.array([1.0, 0.5, 2.0], np.float32)
    outer, losses, gradients = built(Root(), {"xs": FloatBox(shape=(3,))}, backend).meta(xs)
    factors = 1 - 0.2 * xs**2
    close(outer, 1.5 * (2.0 * factors.prod()) ** 2, rtol=1e-4)
    close(losses, (2.0 * np.concatenate([[1], factors.cumprod()[:-1]]) * xs) ** 2)
    close(gradients["root/model/content"], 3 * 2.0 * factors.prod() ** 2, rtol=1e-4)


@both
def test_law_12_optimizer_steps_in_a_scan_with_a_gradient_taken_outside_before_and_after(backend):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.model, self.descent = Cell(1.0, scope="model"), Descent(0.1)

        @api
        def update(self, xs):
            variables = self.model.variables()
            before = self._square(self.model.times(2.0))
            graph.scan(self._body, (), xs)
            after = self._square(self.model.times(2.0))
            return graph.gradients(before, variables), graph.gradients(after, variables)

        def _body(self, carry, x):
            loss = self._square(self.model.times(x))
            self.descent.apply(graph.gradients(loss, self.model.variables()), self.model.variables())
            return carry, None

        @graph_fn
        def _square(self, y):
            return 0.5 * y * y

    executor = built(Root(), {"xs": FloatBox(shape=(3,))}, backend)
    xs = np.array([1.0, 2.0, -1.0], np.float32)
    before, after = executor.update(xs)
    w = np.prod(1 - 0.1 * xs**2)
    close(before["root/model/content"], 4.0)
    close(after["root/model/content"], 4.0 * w)
    close(weight(executor, "content"), w)


class _Online(Component):
    """Gradients inside a scan, of losses that reach back to earlier passes (or outside) in several ways."""

    def __init__(self, kind):
        super().__init__("root")
        self.model, self.descent, self.kind = Cell(0.5, scope="model"), Descent(0.1), kind
        self.state = Cell(0.0, scope="state", trainable=False)

    @api
    def update(self, xs):
        before = self.model.times(1.0)

        def step(carry, x):
            if self.kind == "cut":
                carry = graph.stop_gradient(carry)
            y = self._add(self.model.times(x), carry if self.kind in ("carry", "cut") else 0.0)
            if self.kind == "state":
                y = self._add(y, self.state.read())
                self.state.set(y)
            if self.kind == "silent state":
                y = self._add(y, self.state.read())
                self.state.add_silently(y)
            if self.kind == "outside":
                y = self._add(y, before)
            loss = self._half_square(y)
            self.descent.apply(graph.gradients(loss, self.model.variables()), self.model.variables())
            return y, loss

        return graph.scan(step, 0.0, xs)

    @graph_fn
    def _add(self, a, b):
        return a + b

    @graph_fn
    def _half_square(self, y):
        return 0.5 * y * y


@both
@pytest.mark.parametrize("kind", ["carry", "state", "outside"])
def test_law_12_a_gradient_in_a_scan_that_would_lead_out_of_its_pass_is_refused(backend, kind):
    """Unrolled, the derivative would run through earlier passes; a loop cannot give that."""
    with pytest.raises(BuildError) as error:
        built(_Online(kind), {"xs": FloatBox(shape=(3,))}, backend)
    assert "the differentiated path starts outside of the body that takes the gradient" in str(error.value)
    assert "graph.stop_gradient" in str(error.value)


@both
@pytest.mark.parametrize("kind", ["cut", "silent state"])
def test_law_12_a_gradient_in_a_scan_with_a_carry_that_is_cut_off(backend, kind):
    executor = built(_Online(kind), {"xs": FloatBox(shape=(3,))}, backend)
    xs = [1.0, 2.0, -1.0]
    last, losses = executor.update(np.array(xs, np.float32))
    w, carry, state, expected = 0.5, 0.0, 0.0, []
    for x in xs:
        y = w * x + (carry if kind == "cut" else state)
        state += y
        w, carry = w - 0.1 * y * x, y
        expected.append(0.5 * y * y)
    close(losses, expected)
    close(last, carry)
    close(weight(executor, "model/content"), w)


@every
def test_law_13_a_variable_that_only_a_branch_not_taken_writes_keeps_its_value(backend):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.cell = Cell(5.0)

        @api
        def maybe(self, flag, x):
            def write():
                self.cell.set(x)

            graph.cond(flag, write, lambda: None)

        @api
        def loop(self, xs):
            graph.scan(lambda carry, x: (carry, self.cell.set(x)), (), xs)

    executor = built(Root(), {"flag": BoolBox(), "x": SCALAR, "xs": sequences()}, backend, methods=["maybe"])
    executor.maybe(False, 7.0)
    close(weight(executor, "content"), 5.0)
    executor.maybe(True, 7.0)
    close(weight(executor, "content"), 7.0)


# -- law 13: cond, and while -------------------------------------------------------------------------------------


class _Branching(Component):
    def __init__(self):
        super().__init__("root")
        self.left, self.right = Cell(0.0, scope="left"), Cell(0.0, scope="right")
        self.descent = Descent(0.5)

    @api
    def choose(self, flag, x):
        def yes():
            self.left.add(x)
            return self.left.read()

        def no():
            self.right.add(x)
            self.right.add(self._draw())
            return self.right.read()

        return graph.cond(flag, yes, no)

    @api
    def descend(self, flag, x):
        def yes():
            loss = self._loss(self.left.read(), x)
            self.descent.apply(graph.gradients(loss, self.left.variables()), self.left.variables())

        graph.cond(flag, yes, lambda: None)
        return self.left.read()

    @graph_fn
    def _draw(self):
        return 1.0 + ops.random.uniform(())

    @graph_fn
    def _loss(self, y, x):
        return 0.5 * (y - x) ** 2


@every
def test_law_13_cond_runs_one_branch_and_the_writes_of_the_other_do_not_happen(backend):
    methods = ["choose"] if backend == "numpy" else None
    executor = built(_Branching(), {"flag": BoolBox(), "x": SCALAR}, backend, methods=methods)
    random_before = executor.state_dict()["random"]
    close(executor.choose(True, 2.0), 2.0)
    close(weight(executor, "left/content"), 2.0)
    close(weight(executor, "right/content"), 0.0)
    assert np.array_equal(executor.state_dict()["random"], random_before)
    result = executor.choose(np.array(False), 3.0)
    assert 4.0 <= float(result) <= 5.0
    close(weight(executor, "left/content"), 2.0)
    close(weight(executor, "right/content"), result)
    assert not np.array_equal(executor.state_dict()["random"], random_before)


@both
def test_law_13_an_optimizer_step_in_one_branch(backend):
    executor = built(_Branching(), {"flag": BoolBox(), "x": SCALAR}, backend)
    close(executor.descend(False, 4.0), 0.0)
    close(executor.descend(True, 4.0), 2.0)
    close(executor.descend(True, 4.0), 3.0)
    close(executor.descend(False, 4.0), 3.0)


@both
def test_law_13_a_gradient_through_cond(backend):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.cell = Cell(3.0)

        @api
        def slopes(self, flag, x):
            y = graph.cond(flag, lambda: self.cell.times(x), lambda: self._square(self.cell.read()))
            return y, graph.gradients(y, self.cell.variables())

        @graph_fn
        def _square(self, y):
            return y * y

    executor = built(Root(), {"flag": BoolBox(), "x": SCALAR}, backend)
    for flag, value, slope in ((True, 15.0, 5.0), (False, 9.0, 6.0)):
        y, gradients = executor.slopes(flag, 5.0)
        close([y, gradients["root/cell/content"]], [value, slope])


@every
def test_law_13_cond_in_scan_with_writes(backend):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.even, self.odd = Cell(0.0, scope="even"), Cell(0.0, scope="odd")

        @api
        def count(self, flags):
            def body(carry, flag):
                def yes():
                    self.even.add(1.0)
                    return self.even.read()

                def no():
                    self.odd.add(10.0)
                    return self.odd.read()

                return carry, graph.cond(flag, yes, no)

            return graph.scan(body, (), flags)[1]

    executor = built(Root(), {"flags": BoolBox(shape=(4,))}, backend)
    close(executor.count(np.array([True, False, True, True])), [1, 10, 2, 3])
    close([weight(executor, "even/content"), weight(executor, "odd/content")], [3, 10])


@every
def test_while_runs_until_the_test_fails_and_carries_what_it_writes(backend):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.rounds = Cell(0.0, scope="rounds")

        @api
        def collatz(self, n):
            def body(carry):
                self.rounds.add(1.0)
                return {"n": self._next(carry["n"])}

            return graph.while_(lambda carry: carry["n"] > 1.0, body, {"n": n})["n"], self.rounds.read()

        @graph_fn
        def _next(self, n):
            return ops.where(ops.remainder(n, 2.0) == 0, n / 2.0, 3.0 * n + 1.0)

    executor = built(Root(), {"n": SCALAR}, backend)
    close(executor.collatz(6.0), [1.0, 8.0])
    close(executor.collatz(1.0), [1.0, 8.0])
    close(executor.collatz(7.0), [1.0, 24.0])


# -- law 14: substitution and vmap -------------------------------------------------------------------------------


class _Population(Component):
    def __init__(self):
        super().__init__("root")
        self.model = Linear(2, "model")

    @api
    def call(self, inputs):
        return self.model.call(inputs)

    @api
    def population(self, inputs, noise):
        weights = self.model.variables().read()

        def one(shift, x):
            view = graph.substitute(self.model, {path: self._moved(value, shift) for path, value in weights.items()})
            return view.call(x)

        return graph.vmap(one, in_axes=(0, None))(noise, inputs)

    @api
    def looped(self, inputs, noise):
        weights = self.model.variables().read()
        results = []
        for i in range(3):
            shift = self._row(noise, i)
            view = graph.substitute(self.model, {path: self._moved(value, shift) for path, value in weights.items()})
            results.append(view.call(inputs))
        return self._stack(*results)

    @graph_fn
    def _moved(self, value, shift):
        return value + shift

    @graph_fn
    def _row(self, noise, i):
        return noise[i]

    @graph_fn
    def _stack(self, a, b, c):
        return ops.stack([a, b, c])


@every
def test_law_14_vmap_over_substituted_values_equals_the_loop(backend):
    executor = built(_Population(), {"inputs": rows(4), "noise": FloatBox(shape=(3,))}, backend, seed=1)
    x, noise = np.ones((5, 4), np.float32), np.array([0.0, 1.0, -2.0], np.float32)
    mapped = executor.population(x, noise)
    assert mapped.shape == (3, 5, 2)
    close(mapped, executor.looped(x, noise))
    close(mapped[0], executor.call(x))  # the substituted values are gone after the call
    close(executor.population(x, noise), mapped)


@every
def test_law_14_vmap_over_a_batch_axis_and_nested_results(backend):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.model = Linear(2, "model")

        @api
        def call(self, inputs):
            return self.model.call(inputs)

        @api
        def rows(self, inputs):
            def one(x):
                y = self.model.call(x)
                return {"y": y, "both": (x, self._sum(y))}

            return graph.vmap(one)(inputs)

        @graph_fn
        def _sum(self, y):
            return ops.sum(y)

    executor = built(Root(), {"inputs": rows(4)}, backend, seed=1)
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    result = executor.rows(x)
    close(result["y"], executor.call(x))
    close(result["both"][0], x)
    close(result["both"][1], executor.call(x).sum(-1))


@both
def test_law_14_per_sample_gradients_by_vmap(backend):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.model = Linear(1, "model")

        @api
        def call(self, inputs):
            return self.model.call(inputs)

        @api
        def slopes(self, inputs):
            weights = self.model.variables().read()

            def one(x):
                loss = self._loss(graph.substitute(self.model, weights).call(x))
                return graph.gradients(loss, weights)

            return graph.vmap(one)(inputs)

        @graph_fn
        def _loss(self, y):
            return 0.5 * ops.sum(y * y)

    executor = built(Root(), {"inputs": rows(3)}, backend, seed=1)
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    y = executor.call(x)
    slopes = executor.slopes(x)
    close(slopes["root/model/bias"], y)
    close(slopes["root/model/kernel"], x[:, :, None] * y[:, None, :])


@both
def test_law_14_a_gradient_through_vmap(backend):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.model = Linear(1, "model")

        @api
        def slopes(self, inputs):
            y = graph.vmap(lambda x: self.model.call(x))(inputs)
            loss = self._loss(y)
            return graph.gradients(loss, self.model.variables())

        @graph_fn
        def _loss(self, y):
            return ops.sum(y)

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    slopes = built(Root(), {"inputs": rows(3)}, backend).slopes(x)
    close(slopes["root/model/kernel"][:, 0], x.sum(0))
    close(slopes["root/model/bias"], [2.0])


@every
def test_law_14_cond_inside_vmap_chooses_row_by_row(backend):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.cell = Cell(3.0)

        @api
        def call(self, x):
            def one(row):
                return graph.cond(row > 0.0, lambda: self.cell.times(row), lambda: {"y": row}["y"])

            return graph.vmap(one)(x)

    close(built(Root(), {"x": BATCH}, backend).call(np.array([1, -2, 3], np.float32)), [3, -2, 9])


@every
def test_law_14_writes_and_random_draws_inside_vmap_are_refused(backend):
    class Root(Component):
        def __init__(self, body):
            super().__init__("root")
            self.cell, self.body = Cell(), body

        @api
        def call(self, x):
            return graph.vmap(self._write if self.body == "write" else self._draw)(x)

        def _write(self, x):
            self.cell.set(x)
            return x

        @graph_fn
        def _draw(self, x):
            return x + ops.random.uniform(())

    for body in ("write", "draw"):
        with pytest.raises(BuildError, match="a variable is written inside graph.vmap"):
            built(Root(body), {"x": BATCH}, backend)


# -- law 15: split -----------------------------------------------------------------------------------------------


class _Counter(Component):
    def __init__(self, **options):
        super().__init__("root")

    def create_variables(self):
        self.total = self.variable("total", (), 0.0)


@every
def test_law_15_a_stateful_write_from_several_leaves_is_refused_and_flatten_is_the_way(backend):
    class Splitting(_Counter):
        @graph_fn(split=True)
        def count(self, x):
            self.total.assign(self.total.value + ops.sum(x))
            return x

    class Flattening(_Counter):
        @graph_fn(flatten=True)
        def count(self, x):
            self.total.assign(self.total.value + sum(ops.sum(leaf) for leaf in x.values()))
            return x

    from rlweave.spaces import Dict

    space = {"x": Dict(a=BATCH, b=BATCH)}
    with pytest.raises(BuildError) as error:
        built(Splitting(), space, backend)
    assert "several leaves of a split write one variable" in str(error.value)
    assert "'a' and 'b'" in str(error.value)
    assert "flatten=True" in str(error.value)
    executor = built(Flattening(), space, backend)
    x = {"a": np.array([1, 2], np.float32), "b": np.array([3, 4], np.float32)}
    result = executor.count(x)
    assert sorted(result) == ["a", "b"]
    close(result["b"], x["b"])
    close(weight(executor, "total"), 10.0)
    # one leaf may write
    close(built(Splitting(), {"x": BATCH}, backend).count(x["a"]), x["a"])


@every
def test_law_15_a_split_inside_a_split_knows_both_leaves(backend):
    from rlweave.spaces import Dict

    class Root(_Counter):
        @api(split=True)
        def outer(self, x):
            return self._inner({"same": x})

        @graph_fn(split=True)
        def _inner(self, x):
            self.total.assign(self.total.value + ops.sum(x))
            return x

    with pytest.raises(BuildError, match="several leaves of a split write one variable"):
        built(Root(), {"x": Dict(a=BATCH, b=BATCH)}, backend)


# -- law 27: metrics ---------------------------------------------------------------------------------------------


@every
def test_law_27_metrics_come_out_of_nested_scans(backend):
    class Root(Component):
        @api
        def run(self, xs):
            graph.metric("first", self._sum(xs))

            def outer(carry, row):
                def inner(total, x):
                    graph.metric("mean", x)
                    graph.metric("sum", x, reduce="sum")
                    graph.metric("last", x, reduce="last")
                    return self._plus(total, x), None

                total, _ = graph.scan(inner, carry, row)
                graph.metric("total", total, reduce="last")
                return total, None

            return graph.scan(outer, 0.0, xs)[0]

        @graph_fn
        def _sum(self, xs):
            return ops.sum(xs)

        @graph_fn
        def _plus(self, a, b):
            return a + b

    executor = built(Root("root"), {"xs": FloatBox(shape=(2, 3))}, backend)
    xs = np.array([[1, 2, 3], [10, 20, 30]], np.float32)
    result, metrics = executor.run(xs, with_metrics=True)
    close(result, 66.0)
    assert metrics == pytest.approx({"first": 66, "mean": 11, "sum": 66, "last": 30, "total": 66})
    assert all(type(value) is float for value in metrics.values())
    close(executor.run(xs), 66.0)


@both
def test_law_27_metrics_of_epochs_of_minibatches(backend):
    spaces = {
        "inputs": FloatBox(shape=(2,), add_batch_rank=6),
        "targets": FloatBox(shape=(1,), add_batch_rank=6),
    }
    executor = built(_Fit(epochs=8), spaces, backend, methods=["fit"])
    x = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    y = x @ np.array([[1.0], [-2.0]], np.float32)
    result, metrics = executor.fit(x, y, with_metrics=True)
    assert result is None
    assert 0 < metrics["last_loss"] < metrics["loss"]
    assert executor.fit(x, y) is None


@every
def test_law_27_metrics_out_of_vmap_and_of_equal_names(backend):
    class Root(Component):
        @api
        def run(self, x):
            def one(row):
                graph.metric("row", row, reduce="sum")
                return row

            graph.metric("twice", self._sum(x))
            graph.metric("twice", self._sum(x))
            return graph.vmap(one)(x)

        @graph_fn
        def _sum(self, x):
            return ops.sum(x)

    _, metrics = built(Root("root"), {"x": BATCH}, backend).run(np.array([1, 2, 4], np.float32), with_metrics=True)
    assert metrics == pytest.approx({"row": 7, "twice": 7, "twice-2": 7})


# -- what the builder refuses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (lambda self, x: graph.scan(lambda c, y: c, 0.0, x), "something else than (carry, y)"),
        (lambda self, x: graph.scan(lambda c, y: (y > 0.0, None), 0.0, x), "carry of a scan must have the same spaces"),
        (lambda self, x: graph.scan(lambda c, y: (c, None), 0.0), "scan needs a length"),
        (lambda self, x: graph.scan(lambda c, y: (c, None), 0.0, (x, self._tail(x))), "differ in length"),
        (lambda self, x: graph.scan(lambda c, y: (c, None), 0.0, x, 7), "differ in length"),
        (lambda self, x: graph.scan(lambda c, y: (c, None), 0.0, None, self._first(x)), "length of a scan"),
        (lambda self, x: graph.cond(x > 0.0, lambda: 1.0, lambda: 2.0), "cond needs a scalar bool"),
        (lambda self, x: graph.cond(self._first(x), lambda: 1.0, lambda: 2.0), "cond needs a scalar bool"),
        (lambda self, x: graph.cond(self._first(x) > 0.0, lambda: 1.0, lambda: x), "branches of a cond"),
        (lambda self, x: graph.while_(lambda c: c, lambda c: c, 1.0), "test of a while loop"),
        (lambda self, x: graph.vmap(lambda a, b: a, in_axes=(0,))(x, x), "not one axis per argument"),
        (lambda self, x: graph.vmap(lambda a: a, in_axes=None)(x), "vmap needs one axis size"),
        (lambda self, x: graph.vmap(lambda a: a, in_axes=3)(x), "vmap over an axis"),
        (lambda self, x: graph.metric("m", x), "a metric has to be a scalar"),
        (lambda self, x: graph.metric("m", self._first(x), reduce="max"), "unknown reduction"),
        (lambda self, x: graph.gradients(x, x), "gradients need a scalar float loss"),
        (lambda self, x: graph.gradients(self._first(x), {}), "gradients need variables or values"),
    ],
)
def test_control_flow_that_cannot_be_is_a_build_error(body, text):
    class Root(Component):
        @api
        def call(self, x):
            return body(self, x)

        @graph_fn
        def _tail(self, x):
            return x[1:]

        @graph_fn
        def _first(self, x):
            return x[0]

    with pytest.raises(BuildError) as error:
        built(Root("root"), {"x": FloatBox(shape=(4,))})
    assert text in str(error.value)
