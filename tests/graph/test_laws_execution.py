"""Laws of running: 20-22, 25, 26 and 28 of the IR (staging, interrupts, host nodes, generated code, threads)."""

import bdb
import contextvars
import gc
import os
import signal
import sys
import threading
import time
import traceback
import types

import numpy as np
import pytest

import rlweave.ops as vocabulary
from rlweave import graph, ops
from rlweave.backends import get_backend
from rlweave.errors import BuildError, ExecutionError
from rlweave.graph import Component, api, graph_fn
from rlweave.graph.decorators import BoundMethod
from rlweave.graph.guard import Guard
from rlweave.graph.store import Store
from rlweave.spaces import Dict, FloatBox, Tuple
from tests.graph.toys import (
    BACKENDS,
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


# -- law 20: staging ---------------------------------------------------------------------------------------------


class _Consuming(Component):
    """Methods that use a rollout: with a result, without one, and one that hands its input back."""

    def __init__(self):
        super().__init__("root")
        self.total = Cell(0.0, scope="total")

    @api
    def result(self, x):
        return self._sum(x)

    @api
    def insert(self, x):
        self.total.add(self._sum(x))

    @api
    def insert_and_return(self, x):
        self.total.add(self._sum(x))
        return x

    @api
    def nested(self, batch):
        self.total.add(self._sum(batch["x"]))
        return self._sum(batch["more"][0])

    @graph_fn
    def _sum(self, x):
        # some work, so that an asynchronous run has not finished when the caller goes on
        y = x
        for _ in range(6):
            y = ops.tanh(y) + x
        return ops.sum(y - y + x)


def _aligned(shape):
    """An array at an address that JAX on the CPU would use in place."""
    size = int(np.prod(shape))
    buffer = np.zeros(size + 16, np.float32)
    start = (-buffer.ctypes.data % 64) // 4
    return buffer[start : start + size].reshape(shape)


SHAPE = (64, 128)


@every
@pytest.mark.parametrize("as_numpy", [True, False])
@pytest.mark.parametrize("method", ["result", "insert", "insert_and_return", "nested"])
def test_law_20_a_rollout_buffer_is_refilled_right_after_the_call(backend, as_numpy, method):
    spaces = {"x": sequences(), "batch": Dict(x=sequences(), more=Tuple(sequences()))}
    executor = built(_Consuming(), spaces, backend, methods=[method])
    buffer, count, held = _aligned(SHAPE), 1000 if method in ("result", "insert") else 200, []
    call = getattr(executor, method)
    for i in range(count):
        buffer[:] = i
        argument = {"x": buffer, "more": (buffer,)} if method == "nested" else buffer
        held.append((i, call(argument, as_numpy=as_numpy)))
        buffer[:] = -1.0
    size = buffer.size
    if method != "result":
        close(weight(executor, "content"), size * (count * (count - 1) / 2), rtol=1e-4)
    if method == "insert":
        assert all(result is None for _, result in held)
        return
    for i, result in held:
        result = np.asarray(result)
        if method == "insert_and_return":
            assert result.min() == result.max() == i
        else:
            close(result, size * i, rtol=1e-4)


@every
def test_law_20_weights_that_were_handed_out_are_copies(backend):
    executor = built(_Consuming(), {"x": sequences()}, backend, methods=["insert"])
    weights, state = executor.get_weights(), executor.state_dict()
    executor.insert(np.ones(SHAPE, np.float32))
    close([weights["root/total/content"], state["root/total/content"]], [0.0, 0.0])
    mine = {"root/total/content": np.array(5.0, np.float32)}
    executor.set_weights(mine)
    mine["root/total/content"][...] = 9.0
    close(weight(executor, "content"), 5.0)
    executor.get_weights()["root/total/content"][...] = 7.0
    close(weight(executor, "content"), 5.0)


class _HandingOut(Component):
    """Results that are inputs, variables, constants, or assigned to a variable by the same function."""

    def __init__(self):
        super().__init__("root")

    def create_variables(self):
        self.one = self.variable("one", (3,), 1.0)
        self.two = self.variable("two", (3,), 2.0)

    @graph_fn
    def variable_itself(self):
        return self.one.value

    @graph_fn
    def view_of_variable(self):
        return ops.reshape(self.one.value, (3, 1))

    @graph_fn
    def assigned(self, x):
        y = x * 2.0
        self.one.assign(y)
        self.two.assign(y)
        return y, y

    @graph_fn
    def assigned_input(self, x):
        self.one.assign(x)
        return x

    @graph_fn
    def swap(self):
        one, two = self.one.value, self.two.value
        self.one.assign(two)
        self.two.assign(one)

    @graph_fn
    def move(self):
        self.one.assign(self.one.value + 1.0)
        self.two.assign(self.two.value + 1.0)

    @api
    def same(self, x):
        return x, {"again": x, "number": 3, "none": None}

    @api
    def nothing(self):
        return None


@every
@pytest.mark.parametrize("as_numpy", [True, False])
def test_law_20_results_are_nobody_elses_memory(backend, as_numpy):
    executor = built(_HandingOut(), {"x": FloatBox(shape=(3,))}, backend)
    x = np.arange(3, dtype=np.float32)
    held = [executor.variable_itself(as_numpy=as_numpy), executor.view_of_variable(as_numpy=as_numpy)]
    held += executor.assigned(x, as_numpy=as_numpy)
    held += [executor.assigned_input(x, as_numpy=as_numpy)]
    same, nested = executor.same(x, as_numpy=as_numpy)
    held += [same, nested["again"]]
    assert nested["number"] == 3
    assert nested["none"] is None
    before = [np.array(np.asarray(h)) for h in held]
    for _ in range(3):
        executor.swap()
        executor.move()
    x[:] = -1.0
    for old, now in zip(before, held, strict=True):
        assert np.array_equal(old, np.asarray(now))
    if as_numpy:
        for result in held:
            if backend == "jax" and not result.flags.writeable:
                continue  # its memory is of this result alone, and JAX's
            result[...] = 99.0
    close(executor.get_weights()["root/one"], np.arange(3) * 2.0 + 3)
    close(executor.get_weights()["root/two"], np.arange(3) + 3)
    assert executor.nothing() is None


# -- law 21: state survives --------------------------------------------------------------------------------------


class _Training(Component):
    """Several variables that every update moves together; a host node in between can fail."""

    def __init__(self, count=3):
        super().__init__("root")
        self.count = count
        self.cells = [Cell(0.0, scope="cell") for _ in range(count)]

    @api
    def update(self, x):
        for cell in self.cells:
            cell.add(x)
        return self.cells[0].read()

    @api
    def failing(self, x):
        for cell in self.cells:
            cell.add(x)
        return self._fail(self.cells[0].read())

    @api
    def failing_between(self, x):
        self.cells[0].add(x)
        y = self._fail(self.cells[0].read())
        self.cells[1].add(y)
        return self.cells[1].read()

    @graph_fn(host=True)
    def _fail(self, y):
        if float(y) > 2.5:
            raise RuntimeError("the sensor is off")
        return y


@every
@pytest.mark.parametrize("count", [3, 12])
def test_law_21_state_survives_an_exception(backend, count):
    executor = built(_Training(count), {"x": SCALAR}, backend)
    for _ in range(2):
        executor.failing(1.0)
    with pytest.raises(RuntimeError, match="the sensor is off"):
        executor.failing(1.0)
    with pytest.raises(RuntimeError, match="the sensor is off"):
        executor.failing_between(1.0)
    weights = executor.get_weights()
    close(list(weights.values()), [4.0] + [3.0] * (count - 1))
    close(executor.update(-2.0), 2.0)
    close(executor.failing_between(0.0), 3.0)
    for wrong in (np.zeros(2, np.float32), "text"):
        with pytest.raises(ExecutionError):
            executor.update(wrong)
    close(executor.update(0.0), 2.0)
    executor.load_state_dict(executor.state_dict())


@every
@pytest.mark.parametrize("count", [3, 12])
def test_law_21_state_survives_interrupts(backend, count, monkeypatch):
    """SIGINT from a timer thread at random moments of many calls: every variable has seen the same updates."""
    report = sys.unraisablehook
    # between calls it may hit a finalizer, where Python can only report it
    monkeypatch.setattr(
        sys, "unraisablehook", lambda it: None if issubclass(it.exc_type, KeyboardInterrupt) else report(it)
    )
    executor = built(_Training(count), {"x": SCALAR}, backend, methods=["update"])
    executor.update(0.0)
    stop, interrupts, calls = threading.Event(), 0, 0

    def interrupt():
        generator = np.random.default_rng(0)
        while not stop.wait(float(generator.uniform(0.0005, 0.004))):
            os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Thread(target=interrupt)
    end = time.monotonic() + 1.0
    try:
        timer.start()
        while time.monotonic() < end or interrupts < 20:
            try:
                while True:
                    executor.update(1.0)
                    calls += 1
            except KeyboardInterrupt:
                interrupts += 1
    except KeyboardInterrupt:  # between the loops
        pass
    finally:
        while timer.is_alive():
            try:
                stop.set()
                timer.join()
            except KeyboardInterrupt:
                pass
    values = np.array(list(executor.get_weights().values()))
    assert len(set(values.tolist())) == 1, values
    assert calls <= values[0] <= calls + interrupts + 1
    close(executor.update(1.0), values[0] + 1)


def test_law_21_an_interrupt_outside_of_calls_goes_to_the_handler_that_was_there_before():
    built(_Training(), {"x": SCALAR}, methods=["update"])

    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5.0)  # Python may run the handler a moment later

    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_law_21_an_interrupt_inside_a_call_goes_to_the_handler_that_was_there_before():
    seen = []
    original = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:

        class Root(Component):
            def __init__(self):
                super().__init__("root")
                self.cell = Cell(0.0)

            @api
            def update(self, x):
                self.cell.add(self._interrupt(x))
                return self.cell.read()

            @graph_fn(host=True, spaces="_space")
            def _interrupt(self, x):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.01)
                return x

            def _space(self, x):
                return x

        executor = built(Root(), {"x": SCALAR})
        close(executor.update(1.0), 1.0)
        assert seen == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, original)


# -- law 22: host nodes ------------------------------------------------------------------------------------------


class _Host(Component):
    def __init__(self, scope="host"):
        super().__init__(scope)

    def create_variables(self):
        self.seen = self.variable("seen", (), 0.0, dtype="float64")

    @graph_fn(host=True, differentiable=False)
    def note(self, x):
        assert isinstance(x, np.ndarray | np.generic)
        self.seen.assign(self.seen.value + x.sum())
        return x * 2.0

    @graph_fn(host=True)
    def through(self, x):
        return x * 2.0


class _Between(Component):
    def __init__(self):
        super().__init__("root")
        self.before, self.after, self.host = Cell(3.0, scope="before"), Cell(5.0, scope="after"), _Host()

    @api
    def call(self, x):
        y = self.before.times(x)
        z = self.host.note(y)
        self.before.add(1.0)
        return y, z, self.after.times(z), self.before.read()

    @api
    def nested(self, batch):
        y = {"x": self.before.times(batch["x"]), "y": batch["y"]}
        noted = self._host_sum(y)
        return self._device_sum(y, noted)

    @graph_fn(host=True)
    def _host_sum(self, batch):
        return {"sum": batch["x"] + batch["y"], "all": (batch["x"], batch["y"])}

    @graph_fn
    def _device_sum(self, batch, noted):
        return batch["x"] + noted["sum"] + noted["all"][0] + noted["all"][1]


@every
def test_law_22_a_host_node_between_two_device_runs(backend):
    spaces = {"x": rows(), "batch": Dict(x=rows(), y=rows())}
    executor = built(_Between(), spaces, backend)
    x = np.array([1, 2], np.float32)
    for i in range(3):
        y, z, last, count = executor.call(x)
        close(y, (3 + i) * x)
        close(z, 2 * (3 + i) * x)
        close(last, 10 * (3 + i) * x)
        close(count, 4 + i)
    close(weight(executor, "seen"), 3 * (3 + 4 + 5))
    assert weight(executor, "seen").dtype == np.float64
    close(executor.nested({"x": x, "y": 10 * x}), 6 * x * 3 + 20 * x)
    if backend != "numpy":
        code = executor.code("call")
        assert "to_host" in code


@both
def test_law_22_a_gradient_across_a_host_node_is_refused(backend):
    class Root(Component):
        def __init__(self, method):
            super().__init__("root")
            self.cell, self.host, self.method = Cell(3.0), _Host(), method

        @api
        def update(self, x):
            loss = getattr(self.host, self.method)(self.cell.times(x))
            return graph.gradients(loss, self.cell.variables(), allow_unused=self.method == "note")

    with pytest.raises(BuildError) as error:
        built(Root("through"), {"x": SCALAR}, backend)
    assert "a gradient goes through a host node" in str(error.value)
    assert "root/host.through" in str(error.value)
    # a host function that is declared to stop the gradient may lie there
    close(built(Root("note"), {"x": SCALAR}, backend).update(1.0)["root/cell/content"], 0.0)


@both
def test_law_22_a_host_node_beside_the_path_of_a_gradient(backend):
    """Forward, note the loss on the host, then the gradient; and a host node that feeds the loss."""

    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.cell, self.host, self.descent = Cell(3.0), _Host(), Descent(0.1)

        @api
        def update(self, x):
            weight_ = self.host.note(x)
            loss = self.cell.times(weight_)
            noted = self.host.note(loss)
            self.descent.apply(graph.gradients(loss, self.cell.variables()), self.cell.variables())
            return loss, noted

    executor = built(Root(), {"x": SCALAR}, backend)
    close(executor.update(2.0), [12.0, 24.0])
    close(weight(executor, "content"), 2.6)
    close(weight(executor, "seen"), 14.0)


@every
@pytest.mark.parametrize("kind", ["scan", "cond", "vmap", "while_"])
def test_law_22_a_host_node_in_a_body_is_refused(backend, kind):
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.host = _Host()

        @api
        def call(self, x):
            if kind == "scan":
                return graph.scan(lambda c, y: (c, self.host.through(y)), 0.0, x)[1]
            if kind == "vmap":
                return graph.vmap(self.host.through)(x)
            if kind == "while_":
                return graph.while_(lambda c: self._positive(c), lambda c: self.host.through(c), 1.0)
            return graph.cond(self._positive(x), lambda: self.host.through(x), lambda: x)

        @graph_fn
        def _positive(self, x):
            return ops.all(x > 0)

    with pytest.raises(BuildError) as error:
        built(Root(), {"x": FloatBox(shape=(3,))}, backend)
    assert f"a host node inside {kind}" in str(error.value)
    assert "root/host.through" in str(error.value)


# -- law 25: the code is what runs -------------------------------------------------------------------------------


class _Breaking(bdb.Bdb):
    def __init__(self):
        super().__init__()
        self.stops = []

    def user_line(self, frame):
        if self.break_here(frame):
            self.stops.append((frame.f_code.co_filename, frame.f_lineno))
        self.set_continue()


class _Acting(Component):
    def __init__(self):
        super().__init__("root")
        self.first, self.second = Linear(8, "first"), Linear(2, "second")
        self.count = Cell(0.0, scope="count", trainable=False)

    @api
    def act(self, inputs):
        self.count.add(1.0)
        return self._greedy(self.second.call(self._activate(self.first.call(inputs))))

    @graph_fn
    def _activate(self, x):
        return ops.tanh(x)

    @graph_fn
    def _greedy(self, x):
        return ops.argmax(x, axis=-1)


def _generated(executor, name):
    program = executor.program(name)
    assert executor.code(name) == program.source
    return program.entry.__code__.co_filename, program.source.splitlines()


@every
def test_law_25_a_breakpoint_in_the_shown_code_stops(backend):
    executor = built(_Acting(), {"inputs": rows(3)}, backend)
    filename, lines = _generated(executor, "act")
    # the lines of a compiled run are run once, when it is traced: stop in the entry function there
    marker = " = run(" if executor.linker.functional else "count_add("
    number = next(i for i, line in enumerate(lines, 1) if marker in line and not line.lstrip().startswith("def"))
    debugger = _Breaking()
    debugger.reset()
    problem = debugger.set_break(filename, number)
    assert problem is None, problem
    x = np.zeros((2, 3), np.float32)
    tracer = sys.gettrace()
    try:
        for _ in range(2):
            debugger.runcall(executor.act, x)
    finally:
        sys.settrace(tracer)
        debugger.clear_all_breaks()
    assert debugger.stops == [(filename, number)] * 2
    close(weight(executor, "count/content"), 2.0)


@every
def test_law_25_a_traceback_shows_the_generated_lines(backend):
    class Root(Component):
        @api
        def update(self, x):
            return self._fail(x)

        @graph_fn(host=True, spaces="_space")
        def _fail(self, x):
            raise RuntimeError("the sensor is off")

        def _space(self, x):
            return x

    executor = built(Root("root"), {"x": SCALAR}, backend)
    with pytest.raises(RuntimeError) as error:
        executor.update(1.0)
    frames = traceback.extract_tb(error.value.__traceback__)
    generated = [frame for frame in frames if frame.filename.startswith("<rlweave root.update")]
    assert len(generated) == 1
    assert "root_fail(" in generated[0].line
    assert generated[0].line in executor.code("update")
    assert frames[-1].name == "_fail"


def _reachable_functions(function):
    """The function, functions nested in it, and all that they name."""
    seen, stack, found = set(), [function], []
    while stack:
        item = stack.pop()
        item = getattr(item, "__func__", item)
        item = getattr(item, "__wrapped__", item)
        if not isinstance(item, types.FunctionType) or id(item) in seen:
            continue
        seen.add(id(item))
        codes = [item.__code__]
        for code in codes:
            codes.extend(constant for constant in code.co_consts if isinstance(constant, types.CodeType))
        named = {name: item.__globals__[name] for code in codes for name in code.co_names if name in item.__globals__}
        for cell in item.__closure__ or ():
            named[f"closure {len(named)}"] = cell.cell_contents
        found.append((item, named))
        stack.extend(named.values())
    return found


@every
def test_law_25_no_component_or_api_call_and_no_context_variable_is_left(backend):
    executor = built(_Acting(), {"inputs": rows(3)}, backend)
    executor.act(np.zeros((2, 3), np.float32))
    entry = executor.program("act").entry
    checked = 0
    for function, named in _reachable_functions(entry):
        module = function.__module__ or ""
        if module.startswith(("rlweave.generated", "tests.graph")) or function.__code__.co_filename.startswith(
            "<rlweave"
        ):
            checked += 1
            for name, value in named.items():
                assert not isinstance(value, BoundMethod | Component), (function, name)
                assert value is not vocabulary, (function, name)
                assert not isinstance(value, contextvars.ContextVar), (function, name)
        else:
            # what operators and cells are made of
            assert not any(isinstance(value, contextvars.ContextVar) for value in named.values()), function
    assert checked >= 4
    assert "rlweave.graph" not in executor.code("act")


@every
def test_law_25_variables_are_plain_attributes_in_the_hot_path(backend):
    executor = built(_Acting(), {"inputs": rows(3)}, backend)
    source = executor.code("act")
    assert "getattr" not in source
    assert "[" not in source.split("def act")[1].split("return")[0].replace(".shape[", "")


# -- law 26: threads ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", [("numpy", "torch"), ("numpy", "jax"), ("torch", "jax")])
def test_law_26_two_executors_on_two_backends_in_two_threads_do_not_see_each_other(pair):
    component = _Acting()
    executors = [built(component, {"inputs": rows(3)}, backend, seed=i) for i, backend in enumerate(pair)]
    x = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
    alone = [built(_Acting(), {"inputs": rows(3)}, backend, seed=i).act(x) for i, backend in enumerate(pair)]
    failures = []

    def run(executor, expected):
        try:
            for _ in range(100):
                assert np.array_equal(executor.act(x), expected)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=pair_) for pair_ in zip(executors, alone, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    for executor in executors:
        close(weight(executor, "count/content"), 100.0)


@every
def test_law_26_builds_in_several_threads(backend):
    results, failures = {}, []

    def run(seed):
        try:
            executor = built(_Acting(), {"inputs": rows(3)}, backend, seed=seed)
            results[seed] = executor.get_weights()["root/first/kernel"], executor.act(np.ones((1, 3), np.float32))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    for seed, (kernel, _) in results.items():
        assert np.array_equal(
            kernel, built(_Acting(), {"inputs": rows(3)}, seed=seed).get_weights()["root/first/kernel"]
        )


@every
def test_law_26_one_executor_used_from_two_threads_is_locked(backend):
    executor = built(_Training(12), {"x": SCALAR}, backend, methods=["update"])
    executor.update(0.0)
    failures = []

    def work():
        try:
            for _ in range(200):
                executor.update(1.0)
        except BaseException as error:
            failures.append(error)

    def look():
        try:
            for _ in range(100):
                values = list(executor.get_weights().values())
                assert len({float(value) for value in values}) == 1, values
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=target) for target in (work, work, look)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert {float(value) for value in executor.get_weights().values()} == {400.0}


class _Watched(_Training):
    """All cells as one API method reads them, over rows so that it is traced for each number of them."""

    @api
    def look(self, rows):
        values = [cell.read() for cell in self.cells]
        return tuple([self._spread(rows, value) for value in values])

    @graph_fn
    def _spread(self, rows, value):
        return ops.zeros_like(rows) + value


@every
@pytest.mark.parametrize("count", [3, 12])
def test_law_26_runs_that_only_read_see_a_whole_state_while_other_threads_write(backend, count):
    executor = built(_Watched(count), {"x": SCALAR, "rows": rows()}, backend, methods=["update", "look"])
    failures = []

    def work():
        try:
            for _ in range(300):
                executor.update(1.0)
        except BaseException as error:
            failures.append(error)

    def look(start):
        try:
            last = 0.0
            for step in range(200):
                # all threads trace new sizes while the others write
                size = 1 + (start + step) % 5 if step < 20 else 3
                values = executor.look(np.zeros(size, np.float32))
                assert len({float(value) for array in values for value in array}) == 1, values
                assert last <= values[0][0]
                last = values[0][0]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work)] + [threading.Thread(target=look, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert {float(array[0]) for array in executor.look(np.zeros(1, np.float32))} == {300.0}
    executor.set_weights({path: np.float32(7) for path in executor.get_weights()})
    assert {float(array[0]) for array in executor.look(np.zeros(1, np.float32))} == {7.0}


def test_law_26_a_reader_never_takes_a_state_that_is_being_written_for_whole():
    """Whoever began while a write was under way is told so, at every step of the guard's end."""

    class Watched(Store):
        steps: list = []

        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if name in ("version", "writing"):
                self.steps.append((self.version, getattr(self, "writing", 0)))

    store = Watched(get_backend("numpy"), get_backend("numpy"), "fast", 0)
    with Guard(store):
        begun = store.version
        assert store.writing == 1
        Watched.steps.clear()
    assert Watched.steps[-1] == (begun + 1, 0)
    assert all(version != begun or writing for version, writing in Watched.steps)


@every
def test_an_error_in_a_method_that_only_reads_is_raised_once(backend):
    calls = []

    class Reading(Component):
        def __init__(self):
            super().__init__("root")
            self.cell = Cell(1.0)

        @api
        def read(self, x):
            return self._refuse(x, self.cell.read())

        @graph_fn
        def _refuse(self, x, value):
            if x.shape[0] == 77:
                calls.append(x.shape)
                raise RuntimeError("77 rows are too many")
            return x + value

    executor = built(Reading(), {"x": rows()}, backend)
    close(executor.read(np.zeros(2, np.float32)), [1.0, 1.0])
    with pytest.raises(RuntimeError, match="77 rows") as error:
        executor.read(np.zeros(77, np.float32))
    assert len(calls) == 1
    assert error.value.__context__ is None
    close(executor.read(np.zeros(2, np.float32)), [1.0, 1.0])


@every
def test_law_26_two_roots_over_one_store(backend):
    """A learner and an actor share variables, and take turns also from two threads."""
    component = _Training(12)
    learner = built(component, {"x": SCALAR}, backend, methods=["update"], seed=1)
    actor = built(component, {"x": SCALAR}, backend, methods=["update"], store=learner.store)
    learner.update(1.0)
    actor.update(1.0)
    close(learner.update(0.0), 2.0)

    def work(executor):
        for _ in range(100):
            executor.update(1.0)

    threads = [threading.Thread(target=work, args=(executor,)) for executor in (learner, actor)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for executor in (learner, actor):
        assert {float(value) for value in executor.get_weights().values()} == {202.0}


# -- law 28: compilations ----------------------------------------------------------------------------------------


class _Compilations:
    """Counts what XLA compiles."""

    def __init__(self):
        self.count = 0

    def __call__(self, event, duration, **more):
        self.count += event == "/jax/core/compile/backend_compile_duration"


class _Mixed(Component):
    def __init__(self):
        super().__init__("root")
        self.linear, self.host, self.descent = Linear(2, "linear"), _Host(), Descent(1e-3)

    @api
    def update(self, inputs):
        noted = self.host.note(inputs)
        loss = self._loss(self.linear.call(noted), self._noise(noted))
        self.descent.apply(graph.gradients(loss, self.linear.variables()), self.linear.variables())
        graph.metric("loss", loss)
        return loss

    @api(static=("explore",))
    def act(self, inputs, explore=True):
        q = self.linear.call(inputs)
        return self._add(q, self._noise(q)) if explore else q

    @graph_fn
    def _noise(self, x):
        return ops.random.normal(x.shape[:1])

    @graph_fn
    def _add(self, q, noise):
        return q + noise[:, None]

    @graph_fn
    def _loss(self, q, noise):
        return ops.mean((q - noise[:, None]) ** 2)


@both
def test_law_28_nothing_is_compiled_anew_in_1000_calls(backend):
    executor = built(_Mixed(), {"inputs": rows(3)}, backend)
    x = np.ones((4, 3), np.float32)
    listener = _Compilations()
    if backend == "jax":
        import jax

        jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        executor.update(x)
        executor.act(x)
        executor.act(x, explore=False)
        executor.act(x[:2])
        compilations, programs = listener.count, executor.compilations
        assert programs == 3
        for i in range(1000):
            executor.update(x, with_metrics=bool(i % 2))
            if i % 10 == 0:
                executor.act(x, explore=bool(i % 20))
                executor.act(x[:2], as_numpy=bool(i % 3))
                executor.set_weights(executor.get_weights())
        assert executor.compilations == programs
        assert listener.count == compilations
        if backend == "jax":
            assert compilations > 0
            executor.act(x[:3])
            assert listener.count > compilations  # another batch size is compiled: the counter works
    finally:
        if backend == "jax":
            jax.monitoring.unregister_event_duration_listener(listener)


@every
def test_calls_leave_nothing_behind(backend):
    executor = built(_Mixed(), {"inputs": rows(3)}, backend, methods=["act"])
    x = np.ones((4, 3), np.float32)
    for _ in range(3):
        executor.act(x)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(50):
        executor.act(x)
    gc.collect()
    assert len(gc.get_objects()) - before < 40
