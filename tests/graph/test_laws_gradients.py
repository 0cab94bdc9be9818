"""Laws of gradients: 5-11 of the IR, nested and combined cases, and derivatives by values."""

import numpy as np
import pytest

from rlweave import graph, ops
from rlweave.errors import BackendError, BuildError
from rlweave.graph import Component, api, graph_fn
from tests.graph.toys import BATCH, GRADIENT_BACKENDS, SCALAR, Cell, Descent, Linear, built, close, rows, weight

both = pytest.mark.parametrize("backend", GRADIENT_BACKENDS)


class _Scalar(Component):
    """A weight w, and losses of it."""

    def __init__(self, w=1.0, scope="model"):
        super().__init__(scope)
        self.initial = w

    def create_variables(self):
        self.w = self.variable("w", (), self.initial)

    @graph_fn
    def predict(self, x):
        return self.w.value * x

    @graph_fn
    def square(self, y):
        return y * y

    @graph_fn
    def half_square(self, y):
        return 0.5 * y * y

    @graph_fn
    def log_square(self):
        return ops.log(self.w.value) ** 2

    @graph_fn
    def identity(self, y):
        return y * 1.0


@both
@pytest.mark.parametrize(("w", "gradient"), [(3.0, 0.7324082), (2.0, 0.69314718)])
def test_log_square_has_the_gradient_of_the_closed_form(backend, w, gradient):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.model, self.descent = _Scalar(w), Descent(0.1)

        @api
        def step(self):
            loss = self.model.log_square()
            gradients = graph.gradients(loss, self.model.variables())
            self.descent.apply(gradients, self.model.variables())
            return loss, gradients

    executor = built(Root(), {}, backend)
    loss, gradients = executor.step()
    close(loss, np.log(w) ** 2)
    close(gradients["root/model/w"], gradient)
    close(weight(executor, "/w"), w - 0.1 * gradient)
    if w == 2.0:
        close(weight(executor, "/w"), 1.93068528)


@both
def test_law_05_two_losses_of_one_forward_pass_with_a_step_in_between(backend):
    """y = w*x, L1 = L2 = y^2 / 2, x = 1, rate .4. Both gradients at w = 1 are 1: w = 1 - .4 - .4 = .2.

    Evaluated again at the moved weight, the second would be .6: w = .6 - .4 * .6 = .36.
    """

    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.model, self.descent = _Scalar(1.0), Descent(0.4)

        @api
        def update(self, x):
            variables = self.model.variables()
            y = self.model.predict(x)
            first, second = self.model.half_square(y), self.model.half_square(y)
            self.descent.apply(graph.gradients(first, variables), variables)
            moved = self.model.predict(x)
            self.descent.apply(graph.gradients(second, variables), variables)
            return first, second, moved, self.model.predict(x)

    executor = built(Root(), {"x": SCALAR}, backend)
    close(executor.update(1.0), [0.5, 0.5, 0.6, 0.2])
    close(weight(executor, "/w"), 0.2)


@both
def test_law_05_holds_where_the_second_loss_is_computed_after_the_step_from_the_old_forward_pass(backend):
    """d/dw of (w0*x)^2/2 at w0 = 1, although the loss is computed after w was written."""

    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.model, self.descent = _Scalar(1.0), Descent(0.4)

        @api
        def update(self, x):
            variables = self.model.variables()
            y = self.model.predict(x)
            self.descent.apply(graph.gradients(self.model.half_square(y), variables), variables)
            second = self.model.half_square(y)
            self.descent.apply(graph.gradients(second, variables), variables)
            return second

    executor = built(Root(), {"x": SCALAR}, backend)
    close(executor.update(1.0), 0.5)
    close(weight(executor, "/w"), 0.2)


@both
def test_law_05_a_loss_over_two_readings_of_one_variable(backend):
    """L = y0 * y1 with y0 = w0*x, y1 = w1*x: dL = x*y1 + x*y0, each at the value that was read."""

    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.model, self.descent = _Scalar(1.0), Descent(0.5)

        @api
        def update(self, x):
            variables = self.model.variables()
            y0 = self.model.predict(x)
            self.descent.apply(graph.gradients(self.model.half_square(y0), variables), variables)
            y1 = self.model.predict(x)
            loss = self._product(y0, y1)
            return loss, graph.gradients(loss, variables)

        @graph_fn
        def _product(self, a, b):
            return a * b

    loss, gradients = built(Root(), {"x": SCALAR}, backend).update(1.0)
    close(loss, 0.5)
    close(gradients["root/model/w"], 1.5)


@both
def test_law_06_the_order_of_sac_shared_log_prob_actor_step_temperature_step(backend):
    """log_prob = a*x; critic loss (c - t*lp)^2/2; actor loss t*lp + c*x; temperature loss -t*(lp + 1)."""

    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.actor, self.critic, self.temperature = Cell(2.0, scope="a"), Cell(3.0, scope="c"), Cell(0.5, scope="t")
            self.descent = Descent(0.1)

        @api
        def update(self, x):
            log_prob = self.actor.times(x)
            critic_loss = self._critic_loss(self.critic.raw(), self.temperature.raw(), log_prob)
            self._step(critic_loss, self.critic)
            actor_loss = self._actor_loss(self.temperature.raw(), log_prob, self.critic.raw(), self.actor.raw())
            self._step(actor_loss, self.actor)
            temperature_loss = self._temperature_loss(self.temperature.raw(), log_prob)
            self._step(temperature_loss, self.temperature)
            return critic_loss, actor_loss, temperature_loss

        def _step(self, loss, part):
            self.descent.apply(graph.gradients(loss, part.variables()), part.variables())

        @graph_fn
        def _critic_loss(self, c, t, log_prob):
            return 0.5 * (c - ops.stop_gradient(t * log_prob)) ** 2

        @graph_fn
        def _actor_loss(self, t, log_prob, c, a):
            return t * log_prob + c * a

        @graph_fn
        def _temperature_loss(self, t, log_prob):
            return -t * (ops.stop_gradient(log_prob) + 1.0)

    a, c, t = 2.0, 3.0, 0.5
    executor = built(Root(), {"x": SCALAR}, backend)
    for x in (1.0, -2.0, 0.5):
        log_prob = a * x
        losses = [0.5 * (c - t * log_prob) ** 2]
        c -= 0.1 * (c - t * log_prob)
        losses.append(t * log_prob + c * a)
        a -= 0.1 * (t * x + c)
        losses.append(-t * (log_prob + 1))  # the log-probability of before the actor's step
        t += 0.1 * (log_prob + 1)
        close(executor.update(x), losses)
        close([weight(executor, f"/{name}/content") for name in "act"], [a, c, t])


class _Noisy(Component):
    """A stateful forward pass: it counts how often it runs, and adds the count."""

    def create_variables(self):
        self.w = self.variable("w", (), 2.0)
        self.count = self.variable("count", (), 0.0, trainable=False)

    @graph_fn
    def predict(self, x):
        self.count.assign(self.count.value + 1.0)
        return self.w.value * x + self.count.value

    @graph_fn
    def loss(self, y):
        return 0.5 * y * y

    @graph_fn
    def noise(self, y):
        return y + ops.random.normal(())


@both
def test_law_07_a_stateful_node_in_a_segment_runs_once(backend):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.model, self.descent = _Noisy("model"), Descent(0.1)

        @api
        def update(self, x):
            y = self.model.predict(x)
            first, second = self.model.loss(y), self.model.loss(y)
            one = graph.gradients(first, self.model.variables())
            two = graph.gradients(second, self.model.variables())
            self.descent.apply(one, self.model.variables())
            return y, one, two

    executor = built(Root(), {"x": SCALAR}, backend)
    y, one, two = executor.update(3.0)
    close([y, one["root/model/w"], two["root/model/w"]], [7.0, 21.0, 21.0])
    close(weight(executor, "/count"), 1.0)
    y, _, _ = executor.update(1.0)
    close([y, weight(executor, "/count")], [2.0 - 2.1 + 2.0, 2.0])


@both
def test_law_07_random_numbers_in_a_segment_are_drawn_once(backend):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.model = _Noisy("model")

        @api
        def update(self, x):
            y = self.model.noise(self.model.predict(x))
            loss = self.model.loss(y)
            return y, loss, graph.gradients(loss, self.model.variables())

        @api
        def draw(self, x):
            return self.model.noise(x)

    one, two = (built(Root(), {"x": SCALAR}, backend, seed=4) for _ in range(2))
    for executor in (one, two):
        y, loss, gradients = executor.update(3.0)
        close(loss, 0.5 * y * y)
        close(gradients["root/model/w"], 3.0 * y)
    assert one.draw(0.0) == two.draw(0.0)
    assert one.update(3.0)[0] != y


@both
def test_law_08_a_value_of_a_segment_is_used_after_the_gradient(backend):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.model, self.descent = _Scalar(1.0), Descent(0.4)

        @api
        def update(self, x):
            y = self.model.predict(x)
            loss = self.model.half_square(y)
            self.descent.apply(graph.gradients(loss, self.model.variables()), self.model.variables())
            return self.model.square(y), self.model.identity(loss), self.model.predict(y)

    close(built(Root(), {"x": SCALAR}, backend).update(2.0), [4.0, 2.0, (1 - 0.8 * 2) * 2.0])


@both
@pytest.mark.parametrize("tau", [1.0, 0.25])
def test_law_09_a_target_sync_between_forward_and_gradient_changes_nothing(backend, tau):
    class Root(Component):
        def __init__(self, synced):
            super().__init__("root")
            self.synced = synced
            self.model = Linear(2, "model")
            self.target = self.model.copy(scope="target", trainable=False)
            self.descent = Descent(0.1)

        @api
        def update(self, inputs):
            loss = self._loss(self.model.call(inputs), self.target.call(inputs))
            if self.synced:
                self.target.sync(self.model, tau=tau)
            gradients = graph.gradients(loss, self.model.variables())
            self.descent.apply(gradients, self.model.variables())
            return loss, gradients

        @graph_fn
        def _loss(self, q, target):
            return ops.mean((q - 0.5 * target) ** 2)

    x = np.array([[1.0, -2.0, 0.5], [0.3, 0.1, 2.0]], np.float32)
    with_sync, without = (built(Root(flag), {"inputs": rows(3)}, backend, seed=1) for flag in (True, False))
    before = without.get_weights()
    for one, other in zip(with_sync.update(x), without.update(x), strict=True):
        if isinstance(one, dict):
            for path in one:
                close(one[path], other[path])
        else:
            close(one, other)
    close(with_sync.get_weights()["root/model/kernel"], without.get_weights()["root/model/kernel"])
    assert np.array_equal(with_sync.get_weights()["root/target/kernel"], before["root/model/kernel"])
    x *= 3
    with_sync.update(x)
    assert not np.array_equal(with_sync.get_weights()["root/target/kernel"], before["root/model/kernel"])


@both
def test_law_10_a_nested_gradient_equals_the_hand_written_one(backend):
    """Inner loss w^2 (gradient 2w), fast = w - .1 * 2w = .8 w, outer = 1.5 * fast^2, so
    d outer / dw = 3 * fast * .8 = 3 * .64 * w = 1.92 at w = 1. With the inner step held constant it is
    3 * fast = 2.40.
    """

    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.model = _Scalar(1.0)

        @api
        def meta(self, x):
            variables = self.model.variables()
            inner = self.model.square(self.model.predict(x))
            slopes = graph.gradients(inner, variables)
            fast = {path: self._move(value, slopes[path]) for path, value in variables.read().items()}
            view = graph.substitute(self.model, fast)
            outer = self._outer(view.predict(x))
            return outer, graph.gradients(outer, variables)

        @graph_fn
        def _move(self, w, slope):
            return w - 0.1 * slope

        @graph_fn
        def _outer(self, y):
            return 1.5 * y * y

    outer, gradients = built(Root(), {"x": SCALAR}, backend).meta(1.0)
    close(outer, 0.96)
    close(gradients["root/model/w"], 1.92)


@both
def test_law_10_a_nested_gradient_with_the_fast_step_in_one_dictionary(backend):
    """The dict of gradients goes into one graph function, as an optimizer takes it."""

    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.model = _Scalar(1.0)

        @api
        def meta(self, x):
            variables = self.model.variables()
            slopes = graph.gradients(self.model.square(self.model.predict(x)), variables)
            fast = self._move(variables, slopes)
            outer = self._outer(graph.substitute(self.model, fast).predict(x))
            return graph.gradients(outer, variables), graph.gradients(outer, fast)

        @graph_fn
        def _move(self, variables, slopes):
            return {path: cell.value - 0.1 * slopes[path] for path, cell in variables.items()}

        @graph_fn
        def _outer(self, y):
            return 1.5 * y * y

    by_variable, by_fast = built(Root(), {"x": SCALAR}, backend).meta(1.0)
    close(by_variable["root/model/w"], 1.92)
    close(by_fast["root/model/w"], 2.40)


@both
def test_law_10_two_inner_steps(backend):
    """w1 = w - .1 * 2w, w2 = w1 - .1 * 2 w1 = .64 w; d(1.5 w2^2)/dw = 3 * .64^2 w."""

    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.model = _Scalar(2.0)

        @api
        def meta(self, x):
            variables = self.model.variables()
            weights = variables.read()
            for _ in range(2):
                loss = self.model_of(weights).square(self.model_of(weights).predict(x))
                slopes = graph.gradients(loss, weights)
                weights = {path: self._move(value, slopes[path]) for path, value in weights.items()}
            outer = self._outer(self.model_of(weights).predict(x))
            return graph.gradients(outer, variables)

        def model_of(self, weights):
            return graph.substitute(self.model, weights)

        @graph_fn
        def _move(self, w, slope):
            return w - 0.1 * slope

        @graph_fn
        def _outer(self, y):
            return 1.5 * y * y

    gradients = built(Root(), {"x": SCALAR}, backend).meta(1.0)
    close(gradients["root/model/w"], 3 * 0.64**2 * 2.0)


@both
def test_a_gradient_penalty_differentiates_by_an_input(backend):
    """D(x) = w x^2, penalty (dD/dx - 1)^2 = (2 w x - 1)^2: d/dw = 2 (2 w x - 1) 2 x."""

    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.model = _Scalar(2.0)

        @api
        def penalty(self, x):
            slope = graph.gradients(self._critic(self.model.predict(x), x), x)
            loss = self._loss(slope)
            return slope, graph.gradients(loss, self.model.variables())

        @graph_fn
        def _critic(self, y, x):
            return y * x

        @graph_fn
        def _loss(self, slope):
            return (slope - 1.0) ** 2

    slope, gradients = built(Root(), {"x": SCALAR}, backend).penalty(3.0)
    close(slope, 12.0)
    close(gradients["root/model/w"], 2 * 11.0 * 6.0)


@both
def test_gradients_by_values_of_any_nesting(backend):
    class Root(Component):
        def __init__(self):
            super().__init__("root")

        @api
        def slopes(self, x, y):
            loss = self._loss({"x": x, "y": (y,)})
            return graph.gradients(loss, {"a": x, "b": (y, x)}), graph.gradients(loss, (x,))

        @graph_fn
        def _loss(self, both):
            return ops.sum(both["x"] * both["x"] * both["y"][0])

    x, y = np.array([1, 2], np.float32), np.array([3, 4], np.float32)
    named, single = built(Root(), {"x": BATCH, "y": BATCH}, backend).slopes(x, y)
    close(named["a"], 2 * x * y)
    close(named["b"][0], x * x)
    close(named["b"][1], 2 * x * y)
    close(single[0], 2 * x * y)


@both
def test_gradients_by_a_value_in_the_middle(backend):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.model = _Scalar(2.0)

        @api
        def slopes(self, x):
            y = self.model.predict(x)
            loss = self.model.half_square(y)
            return graph.gradients(loss, y), graph.gradients(loss, self.model.variables())

    by_value, by_variable = built(Root(), {"x": SCALAR}, backend).slopes(3.0)
    close([by_value, by_variable["root/model/w"]], [6.0, 18.0])


@both
def test_variables_that_a_loss_need_not_depend_on_have_gradient_zero(backend):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.used, self.unused = Linear(1, "used"), Linear(2, "unused")

        @api
        def call(self, inputs):
            return self.unused.call(inputs)

        @api
        def slopes(self, inputs):
            loss = self._loss(self.used.call(inputs))
            return graph.gradients(loss, self.used.variables() + self.unused.variables(), allow_unused=True)

        @graph_fn
        def _loss(self, y):
            return ops.sum(y)

    slopes = built(Root(), {"inputs": rows(3)}, backend).slopes(np.ones((2, 3), np.float32))
    close(slopes["root/used/bias"], [2.0])
    close(slopes["root/unused/kernel"], np.zeros((3, 2)))
    assert slopes["root/unused/kernel"].dtype == np.float32


@both
def test_gradients_stop_at_graph_functions_that_are_not_differentiable(backend):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.model = _Scalar(2.0)

        @api
        def slopes(self, x):
            target = self._target(self.model.predict(x))
            loss = self._loss(self.model.predict(x), target)
            return graph.gradients(loss, self.model.variables())

        @graph_fn(differentiable=False)
        def _target(self, y):
            return 3.0 * y

        @graph_fn
        def _loss(self, y, target):
            return y * target

    close(built(Root(), {"x": SCALAR}, backend).slopes(1.0)["root/model/w"], 6.0)


class _Written(Component):
    def __init__(self):
        super().__init__("root")
        self.cell = Cell(1.0)

    @api
    def update(self, x):
        self.cell.add(self.cell.times(x))
        loss = self.cell.times(x)
        return graph.gradients(loss, self.cell.variables())


@pytest.mark.parametrize("backend", ["numpy", *GRADIENT_BACKENDS])
def test_law_11_a_write_inside_a_differentiated_path_is_refused(backend):
    with pytest.raises(BuildError) as error:
        built(_Written(), {"x": SCALAR}, backend)
    assert "a variable is written inside a differentiated path" in str(error.value)
    assert "'root/cell/content'" in str(error.value)
    assert "graph.substitute" in str(error.value)


@both
def test_law_11_a_write_that_the_loss_does_not_depend_on_is_fine(backend):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.cell = Cell(1.0)

        @api
        def update(self, x):
            loss = self.cell.times(x)
            self.cell.add(loss)
            return graph.gradients(loss, self.cell.variables())

    executor = built(Root(), {"x": SCALAR}, backend)
    close(executor.update(3.0)["root/cell/content"], 3.0)
    close(weight(executor, "content"), 4.0)


def test_numpy_builds_a_graph_with_gradients_and_says_at_the_call_which_backends_can_run_it():
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.model = _Scalar(2.0)

        @api
        def predict(self, x):
            return self.model.predict(x)

        @api
        def slopes(self, x):
            return graph.gradients(self.model.half_square(self.model.predict(x)), self.model.variables())

    executor = built(Root(), {"x": SCALAR}, "numpy")
    close(executor.predict(3.0), 6.0)
    with pytest.raises(BackendError, match="NumPy backend has no gradients") as error:
        executor.slopes(3.0)
    assert "jax" in str(error.value)
    assert "torch" in str(error.value)
