"""Optimizers step by step against `torch.optim` and optax, across backends, and what they do to the graph's state."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from rlweave import graph, ops
from rlweave.backends import is_installed
from rlweave.components import SGD, Adam, AdamW, Optimizer, RMSProp
from rlweave.errors import BuildError, ConfigError
from rlweave.graph import Component, api, build, from_spec, gradients, graph_fn, to_spec
from rlweave.graph.executor import GraphExecutor
from rlweave.spaces import BoolBox, FloatBox, IntBox
from tests.components.stored_inputs import StoredInputs

BACKENDS = ("numpy", "torch", "jax", "tensorflow")
on_every_backend = pytest.mark.parametrize("backend", BACKENDS)
on_backends_with_gradients = pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
SHAPES = {"kernel": (3, 4), "bias": (4,), "scale": ()}
STEPS = 20


def initial() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: np.asarray(rng.normal(size=shape), np.float32) for name, shape in SHAPES.items()}


def random_gradients() -> list[dict[str, np.ndarray]]:
    """Gradients of all steps; sizes differ by orders of magnitude, one is exactly 0."""
    rng = np.random.default_rng(1)
    steps = []
    for _ in range(STEPS):
        scale = 10.0 ** rng.uniform(-3, 1)
        steps.append({n: np.asarray(scale * rng.normal(size=s), np.float32) for n, s in SHAPES.items()})
        steps[-1]["bias"][0] = 0.0
    return steps


class Updates(Component):
    """An optimizer that is fed gradients from outside."""

    def __init__(self, optimizer: Optimizer) -> None:
        super().__init__("root")
        self.model, self.optimizer = StoredInputs(initial(), "model"), optimizer

    @api
    def apply(self, kernel, bias, scale):
        self.optimizer.apply([kernel, bias, scale], self.model.variables())

    @api
    def apply_at(self, kernel, bias, scale, count):
        self.optimizer.apply([kernel, bias, scale], self.model.variables(), count)


def make(optimizer: Optimizer, backend: str, method: str = "apply") -> GraphExecutor:
    spaces: dict[str, Any] = {name: FloatBox(shape=shape) for name, shape in SHAPES.items()}
    if method == "apply_at":
        spaces["count"] = IntBox(0, 10**6)
    return build(Updates(optimizer), spaces, backend=backend, methods=[method])


def weights_of(executor: GraphExecutor) -> dict[str, np.ndarray]:
    weights = executor.get_weights()
    return {name: weights[f"root/model/{name}"] for name in SHAPES}


def run(optimizer: Optimizer, backend: str) -> list[dict[str, np.ndarray]]:
    executor = make(optimizer, backend)
    history = []
    for gradient in random_gradients():
        executor.apply(**gradient)
        history.append(weights_of(executor))
    return history


def run_torch(make_optimizer: Callable[..., Any], max_norm: float | None = None) -> list[dict[str, np.ndarray]]:
    torch = pytest.importorskip("torch")
    parameters = {name: torch.nn.Parameter(torch.tensor(x)) for name, x in initial().items()}
    optimizer = make_optimizer(torch.optim)(list(parameters.values()))
    history = []
    for gradient in random_gradients():
        for name, parameter in parameters.items():
            parameter.grad = torch.tensor(gradient[name])
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters.values(), max_norm)
        optimizer.step()
        history.append({name: parameter.detach().numpy().copy() for name, parameter in parameters.items()})
    return history


def run_optax(make_optimizer: Callable[..., Any]) -> list[dict[str, np.ndarray]]:
    jax, optax = pytest.importorskip("jax"), pytest.importorskip("optax")
    optimizer = make_optimizer(optax)
    parameters = {name: jax.numpy.asarray(x) for name, x in initial().items()}
    state = optimizer.init(parameters)

    @jax.jit
    def step(parameters: Any, state: Any, gradient: Any) -> Any:
        updates, state = optimizer.update(gradient, state, parameters)
        return optax.apply_updates(parameters, updates), state

    history = []
    for gradient in random_gradients():
        parameters, state = step(parameters, state, gradient)
        history.append({name: np.asarray(x) for name, x in parameters.items()})
    return history


def assert_same(found: list[dict[str, np.ndarray]], expected: list[dict[str, np.ndarray]], atol: float = 1e-6) -> None:
    assert len(found) == len(expected) == STEPS
    for step, (one, other) in enumerate(zip(found, expected, strict=True)):
        for name in SHAPES:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-6, atol=atol, err_msg=f"step {step}, {name}")


# (ours, torch.optim's, optax's) of equal meaning. None: no such meaning there.
PAIRS: dict[str, tuple[Callable[[], Optimizer], Callable[..., Any] | None, Callable[..., Any] | None]] = {
    "sgd": (lambda: SGD(0.05), lambda optim: lambda p: optim.SGD(p, 0.05), lambda optax: optax.sgd(0.05)),
    "momentum": (
        lambda: SGD(0.05, momentum=0.9),
        lambda optim: lambda p: optim.SGD(p, 0.05, momentum=0.9),
        lambda optax: optax.sgd(0.05, momentum=0.9),
    ),
    "nesterov": (
        lambda: SGD(0.05, momentum=0.8, nesterov=True),
        lambda optim: lambda p: optim.SGD(p, 0.05, momentum=0.8, nesterov=True),
        lambda optax: optax.sgd(0.05, momentum=0.8, nesterov=True),
    ),
    "adam": (lambda: Adam(1e-2), lambda optim: lambda p: optim.Adam(p, 1e-2), lambda optax: optax.adam(1e-2)),
    "adam, other settings": (
        lambda: Adam(3e-2, beta1=0.5, beta2=0.9, epsilon=1e-3),
        lambda optim: lambda p: optim.Adam(p, 3e-2, betas=(0.5, 0.9), eps=1e-3),
        lambda optax: optax.adam(3e-2, 0.5, 0.9, 1e-3),
    ),
    "adamw": (
        lambda: AdamW(1e-2, weight_decay=0.1),
        lambda optim: lambda p: optim.AdamW(p, 1e-2, weight_decay=0.1),
        lambda optax: optax.adamw(1e-2, weight_decay=0.1),
    ),
    "rmsprop": (
        lambda: RMSProp(1e-2),
        lambda optim: lambda p: optim.RMSprop(p, 1e-2),
        lambda optax: optax.rmsprop(1e-2, decay=0.99, eps=1e-8, eps_in_sqrt=False),
    ),
    "rmsprop, centered": (
        lambda: RMSProp(1e-2, decay=0.9, epsilon=1e-2, centered=True),
        lambda optim: lambda p: optim.RMSprop(p, 1e-2, alpha=0.9, eps=1e-2, centered=True),
        lambda optax: optax.rmsprop(1e-2, decay=0.9, eps=1e-2, centered=True, eps_in_sqrt=False),
    ),
    "rmsprop, momentum": (
        lambda: RMSProp(1e-2, epsilon=1e-4, momentum=0.9),
        lambda optim: lambda p: optim.RMSprop(p, 1e-2, eps=1e-4, momentum=0.9),
        lambda optax: optax.rmsprop(1e-2, decay=0.99, eps=1e-4, momentum=0.9, eps_in_sqrt=False),
    ),
    "rmsprop, centered, momentum": (
        lambda: RMSProp(1e-2, decay=0.9, epsilon=1e-2, momentum=0.5, centered=True),
        lambda optim: lambda p: optim.RMSprop(p, 1e-2, alpha=0.9, eps=1e-2, momentum=0.5, centered=True),
        None,
    ),
    "adam on a schedule": (
        lambda: Adam({"type": "linear", "start": 1e-2, "end": 0.0, "steps": 16}),
        None,
        lambda optax: optax.adam(optax.linear_schedule(1e-2, 0.0, 16)),
    ),
    "adam, clipped": (
        lambda: Adam(1e-2, max_grad_norm=0.5),
        None,
        lambda optax: optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-2)),
    ),
}


@lru_cache
def run_ours(name: str, backend: str) -> list[dict[str, np.ndarray]]:
    return run(PAIRS[name][0](), backend)


@pytest.mark.parametrize("name", [name for name, (_, of_torch, _) in PAIRS.items() if of_torch])
@on_every_backend
def test_steps_are_those_of_torch(name: str, backend: str) -> None:
    assert_same(run_ours(name, backend), run_torch(PAIRS[name][1]))


@pytest.mark.parametrize("name", [name for name, (_, _, of_optax) in PAIRS.items() if of_optax])
def test_steps_are_those_of_optax(name: str) -> None:
    # optax computes 1 - beta^step in float32, which is exact to 3e-5 of a step at first
    atol = 5e-6 if "adam" in name else 1e-6
    assert_same(run_ours(name, "jax"), run_optax(PAIRS[name][2]), atol)


@pytest.mark.parametrize("name", list(PAIRS))
def test_steps_are_the_same_on_all_backends(name: str) -> None:
    pytest.importorskip("torch"), pytest.importorskip("jax")
    for backend in filter(is_installed, BACKENDS):
        assert_same(run_ours(name, backend), run_ours(name, "numpy"))


def test_optax_means_something_else_by_its_defaults_of_rmsprop() -> None:
    # the documented difference: epsilon stands inside of the root there
    with pytest.raises(AssertionError):
        assert_same(
            run(RMSProp(1e-2, epsilon=1e-2), "numpy"), run_optax(lambda optax: optax.rmsprop(1e-2, 0.99, eps=1e-2))
        )


@on_every_backend
def test_gradients_are_clipped_by_their_common_norm(backend: str) -> None:
    # torch divides by norm + 1e-6
    expected = run_torch(lambda optim: lambda p: optim.SGD(p, 0.5), max_norm=2.0)
    assert_same(run(SGD(0.5, max_grad_norm=2.0), backend), expected, 3e-6)


@on_every_backend
def test_schedules_are_functions_of_the_counter_they_are_given(backend: str) -> None:
    schedule = {"type": "linear", "start": 1.0, "end": 0.0, "steps": 100}
    executor = make(SGD(schedule), backend, "apply_at")
    before = weights_of(executor)
    ones = {name: np.ones(shape, np.float32) for name, shape in SHAPES.items()}
    for count, rate in ((0, 1.0), (75, 0.25), (75, 0.25), (1000, 0.0)):
        executor.apply_at(**ones, count=np.int32(count))
        after = weights_of(executor)
        for name in SHAPES:
            np.testing.assert_allclose(before[name] - after[name], np.full(SHAPES[name], rate), atol=1e-6)
        before = after


@on_every_backend
def test_a_run_cut_in_two_is_the_run(backend: str) -> None:
    options = {"learning_rate": {"type": "exponential", "start": 0.1, "end": 0.001, "steps": 15}}
    whole = run(Adam(**options), backend)[-1]
    first, second = make(Adam(**options), backend), make(Adam(**options), backend)
    for i, gradient in enumerate(random_gradients()):
        if i == 8:
            second.load_state_dict(first.state_dict())
        (first if i < 8 else second).apply(**gradient)
    for name, value in weights_of(second).items():
        np.testing.assert_array_equal(value, whole[name])


def test_slots_move_between_backends() -> None:
    pytest.importorskip("torch"), pytest.importorskip("jax")
    executors = {backend: make(Adam(1e-2), backend) for backend in filter(is_installed, BACKENDS)}
    reference = run(Adam(1e-2), "numpy")[-1]
    order = [list(executors)[i % len(executors)] for i in range(STEPS)]
    weights = executors[order[0]].get_weights()
    for backend, gradient in zip(order, random_gradients(), strict=True):
        executors[backend].set_weights(weights)
        executors[backend].apply(**gradient)
        weights = executors[backend].get_weights()
    for name in SHAPES:
        np.testing.assert_allclose(weights[f"root/model/{name}"], reference[name], atol=1e-6)


def test_slots_are_named_by_path_and_cannot_be_trained() -> None:
    class Root(Updates):
        @api
        def read(self):
            return self.variables().read()

    executor = build(Root(Adam()), {name: FloatBox(shape=s) for name, s in SHAPES.items()}, methods=["apply", "read"])
    assert sorted(executor.read()) == [f"root/model/{name}" for name in sorted(SHAPES)]
    slots = {path for path in executor.get_weights() if path.startswith("root/optimizer/")}
    expected = {f"root/optimizer/root/model/{name}/{slot}" for name in SHAPES for slot in ("mean", "variance")}
    assert slots == expected | {"root/optimizer/steps"}
    executor.apply(**random_gradients()[0])
    assert executor.get_weights()["root/optimizer/steps"] == 1
    assert executor.get_weights()["root/optimizer/steps"].dtype == np.int32


@pytest.mark.parametrize(
    ("optimizer", "count"),
    [(SGD(), 0), (SGD(momentum=0.5), 1), (RMSProp(), 1), (RMSProp(momentum=0.5, centered=True), 3), (AdamW(), 2)],
)
def test_only_slots_that_are_used_exist(optimizer: Optimizer, count: int) -> None:
    assert len(make(optimizer, "numpy").get_weights()) == len(SHAPES) * (1 + count) + 1


# -- gradients taken by the optimizer itself ---------------------------------------------------------------------


class Squared(Component):
    """(ln v)^2 of one variable."""

    def create_variables(self) -> None:
        self.v = self.variable("v", (), 2.0)

    @graph_fn
    def loss(self):
        return ops.square(ops.log(self.v.value))


class Minimizer(Component):
    def __init__(self, optimizer: Optimizer) -> None:
        super().__init__("root")
        self.model, self.optimizer = Squared(scope="model"), optimizer
        self.target = self.model.copy(scope="target", trainable=False)

    @api
    def update(self):
        loss = self.model.loss()
        self.optimizer.step(loss, self.model.variables())
        return loss

    @api
    def update_with_target(self):
        self.target.sync(self.model)
        loss = self.model.loss()
        self.optimizer.step(loss, self.model.variables())
        return loss, self.target.loss(), self.model.loss()

    @api
    def update_between_reads(self):
        before = self.model.variables().read()
        loss = self.model.loss()
        self.optimizer.step(loss, self.model.variables())
        return before, loss, self.model.variables().read()

    @api
    def update_by_dict(self):
        loss = self.model.loss()
        self.optimizer.apply(gradients(loss, self.model.variables()), self.model.variables())
        return loss


@on_backends_with_gradients
def test_one_step_of_gradient_descent(backend: str) -> None:
    for method in ("update", "update_by_dict"):
        executor = build(Minimizer(SGD(0.1)), backend=backend)
        np.testing.assert_allclose(getattr(executor, method)(), np.log(2.0) ** 2, rtol=1e-6)
        np.testing.assert_allclose(executor.get_weights()["root/model/v"], 1.93068528, rtol=1e-6)


@on_backends_with_gradients
@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "rmsprop, centered, momentum"])
def test_steps_in_place_reach_nothing_else(backend: str, name: str) -> None:
    executor = build(Minimizer(PAIRS[name][0]()), backend=backend)
    # a target that was just synchronized keeps the values from before the step
    for _ in range(3):
        loss, target_loss, after = executor.update_with_target()
        assert loss == target_loss
        assert after < loss
    # values that were read before the step, and weights handed out, keep theirs as well
    weights = executor.get_weights()
    kept = {path: value.copy() for path, value in weights.items()}
    before, _, now = executor.update_between_reads()
    assert before["root/model/v"] == kept["root/model/v"] != now["root/model/v"]
    for path, value in weights.items():
        np.testing.assert_array_equal(value, kept[path])
    given = executor.get_weights()
    executor.set_weights(given)
    copies = {path: value.copy() for path, value in given.items()}
    executor.update()
    for path, value in given.items():
        np.testing.assert_array_equal(value, copies[path])


class Loops(Minimizer):
    @api
    def three_times(self):
        graph.repeat(3, self._once)
        return self.model.loss()

    @api
    def maybe(self, flag):
        return graph.cond(flag, self._once_with_loss, self.model.loss)

    def _once(self):
        self.optimizer.step(self.model.loss(), self.model.variables())

    def _once_with_loss(self):
        self._once()
        return self.model.loss()


@on_backends_with_gradients
@pytest.mark.parametrize("name", ["adam on a schedule", "adam, clipped", "momentum"])
def test_steps_in_loops_and_branches_are_those_outside(backend: str, name: str) -> None:
    methods = ["update", "three_times", "maybe"]
    looping, plain = (
        build(Loops(PAIRS[name][0]()), {"flag": BoolBox()}, backend=backend, methods=methods) for _ in "ab"
    )
    for _ in range(2):
        looping.three_times()
        for _ in range(3):
            plain.update()
    looping.maybe(np.array(False))
    looping.maybe(np.array(True))
    plain.update()
    for path, value in plain.get_weights().items():
        np.testing.assert_allclose(looping.get_weights()[path], value, rtol=1e-6, err_msg=path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch about itself
@pytest.mark.parametrize("name", ["momentum", "adam on a schedule", "adam, clipped", "rmsprop, centered, momentum"])
def test_compiled_torch_steps_as_plain_torch(name: str) -> None:
    pytest.importorskip("torch")
    compiled, plain = (
        build(Minimizer(PAIRS[name][0]()), backend="torch", methods=["update"], torch_compile=compiled)
        for compiled in (True, False)
    )
    for _ in range(3):
        np.testing.assert_allclose(compiled.update(), plain.update(), rtol=1e-6)
    for path, value in plain.get_weights().items():
        np.testing.assert_allclose(compiled.get_weights()[path], value, rtol=1e-6, atol=1e-8, err_msg=path)


@on_every_backend
def test_nothing_to_train_is_no_error(backend: str) -> None:
    class Nothing(Component):
        def __init__(self, optimizer: Optimizer) -> None:
            super().__init__("root")
            self.model, self.optimizer = StoredInputs({"frozen": np.zeros(2, np.int32)}), optimizer

        @api
        def apply(self):
            self.optimizer.apply([], self.model.variables())

    for name in ("sgd", "adam, clipped", "rmsprop"):
        executor = build(Nothing(PAIRS[name][0]()), backend=backend)
        executor.apply()
        assert executor.get_weights()["root/optimizer/steps"] == 1


def test_torch_kernels_get_gradients_of_any_strides() -> None:
    torch = pytest.importorskip("torch")
    p, g = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(6, dtype=np.float32).reshape(3, 2)
    plain = torch.tensor(g.T.copy())
    for other in (torch.tensor(g).T, torch.tensor(g.T[None].copy()).expand(1, 2, 3)[0]):
        for donate in (False, True):
            slots = [[torch.zeros(2, 3)] for _ in range(2)]
            expected = ops.adam_update([torch.tensor(p)], [plain], *slots, torch.tensor(1, dtype=torch.int32), 0.1)
            slots = [[torch.zeros(2, 3)] for _ in range(2)]
            step = torch.tensor(1, dtype=torch.int32)
            found = ops.adam_update([torch.tensor(p)], [other], *slots, step, 0.1, donate=donate)
            np.testing.assert_array_equal(found[0][0], expected[0][0])
            moved = torch.tensor(p.T.copy()).T  # parameters that do not lie in order
            found = ops.sgd_update([moved], [plain], [], 0.1, donate=donate)
            np.testing.assert_allclose(found[0][0], p - 0.1 * g.T, rtol=1e-6)


def test_only_donated_arrays_are_overwritten() -> None:
    torch = pytest.importorskip("torch")
    for donate in (False, True):
        p, g = torch.ones(3), torch.ones(3)
        (new,), _ = ops.sgd_update([p], [g], [], 0.5, donate=donate)
        assert (new is p) == donate
        assert g.tolist() == [1, 1, 1]
        assert p.tolist() == ([0.5] * 3 if donate else [1] * 3)


# -- settings ----------------------------------------------------------------------------------------------------


def test_specs_round_trip() -> None:
    for spec in (
        {"type": "adam", "learning_rate": {"type": "linear", "start": 1e-3, "end": 0.0, "steps": 10}, "epsilon": 1e-5},
        {"type": "sgd", "learning_rate": 0.1, "momentum": 0.9, "nesterov": True},
        {"type": "rmsprop", "centered": True},
        {"type": "adamw", "weight_decay": 0.2, "max_grad_norm": 10.0},
    ):
        assert to_spec(from_spec(spec)) == spec


@pytest.mark.parametrize(
    ("make_optimizer", "message"),
    [
        (lambda: SGD(0.0), "learning_rate"),
        (lambda: SGD(0.1, momentum=1.0), "momentum"),
        (lambda: SGD(0.1, nesterov=True), "nesterov"),
        (lambda: Adam(beta1=1.0), "beta1"),
        (lambda: Adam(beta2=-0.1), "beta2"),
        (lambda: Adam(epsilon=0.0), "epsilon"),
        (lambda: AdamW(weight_decay=-1.0), "weight_decay"),
        (lambda: RMSProp(decay=1.0), "decay"),
        (lambda: RMSProp(max_grad_norm=0.0), "max_grad_norm"),
    ],
)
def test_settings_out_of_range_are_refused(make_optimizer: Callable[[], Optimizer], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_optimizer()


def test_gradients_of_other_variables_are_refused() -> None:
    class Wrong(Minimizer):
        @api
        def update(self):
            loss = self.model.loss()
            self.optimizer.apply(gradients(loss, self.model.variables()), self.target.variables(trainable=False))
            return loss

    with pytest.raises(BuildError, match="different paths"):
        build(Wrong(SGD()), backend="jax", methods=["update"])

    class TooFew(Updates):
        @api
        def apply(self, kernel):
            self.optimizer.apply([kernel], self.model.variables())

    with pytest.raises(BuildError, match="differ in number"):
        build(TooFew(SGD()), {"kernel": FloatBox(shape=(3, 4))}, methods=["apply"])
    with pytest.raises(BuildError, match="does not depend on a count"):
        make(SGD(), "numpy", "apply_at")


class Apart(Component):
    """Steps on the loss of one of two models, with the variables of both."""

    def __init__(self, **options: Any) -> None:
        super().__init__("root")
        self.one, self.other = Squared(scope="one"), Squared(scope="other")
        self.optimizer, self.options = SGD(0.1), options

    @api
    def update(self):
        self.optimizer.step(self.one.loss(), self.variables(), **self.options)


def test_a_loss_depends_on_all_that_it_trains_unless_it_says_that_it_does_not() -> None:
    with pytest.raises(BuildError, match="allow_unused=True"):
        build(Apart(), backend="torch")
    executor = build(Apart(allow_unused=True), backend="torch")
    executor.update()
    weights = executor.get_weights()
    assert weights["root/one/v"] == pytest.approx(2.0 - 0.1 * np.log(2.0))  # the slope of (ln v)^2 at 2 is ln 2
    assert weights["root/other/v"] == 2.0
