"""The text of each build error: what was wrong, where, what was received, and the fix."""

import numpy as np
import pytest

from rlweave import graph, ops
from rlweave.errors import BuildError, ExecutionError, RlweaveError, SpecError
from rlweave.graph import Component, api, build, graph_fn, register, shared
from rlweave.spaces import Dict, FloatBox
from rlweave.testing import ComponentTest
from tests.graph.toys import BATCH, SCALAR, Cell, Linear, built, rows, sequences


def message(make, kind=BuildError):
    """The lines of the error that a function raises, without indentation."""
    with pytest.raises(kind) as caught:
        make()
    assert isinstance(caught.value, RlweaveError)
    return [line.strip() for line in str(caught.value).splitlines()]


class Two(Component):
    """Two API methods and a sub-component."""

    def __init__(self, scope="root"):
        super().__init__(scope)
        self.linear = Linear(2, "linear")

    @api
    def act(self, observations):
        return self.linear.call(observations)

    @api(static=("batch_size",))
    def update(self, observations, batch_size=4):
        return self.linear.call(observations)


def root_with(body, parameters=("x",), parts=None, scope="root", **options):
    """A root whose one API method `update` is the given function."""

    def init(self):
        Component.__init__(self, scope)
        for name, part in (parts or {}).items():
            setattr(self, name, part)

    source = f"def update(self, {', '.join(parameters)}): return body(self, {', '.join(parameters)})"
    scope_: dict = {"body": body}
    exec(source, scope_)
    return type("Root", (Component,), {"__init__": init, "update": api(**options)(scope_["update"])})()


def test_a_component_test_without_a_space_names_it():
    assert message(lambda: ComponentTest(Linear(2), {})) == [
        "no API method has spaces for all of its inputs",
        "where:    ComponentTest of linear",
        "received: spaces for []; missing: inputs of call",
        'fix:      add the missing spaces to input_spaces: {"inputs": <space>}',
    ]


# -- inputs and spaces -------------------------------------------------------------------------------------------


def test_unknown_input():
    assert message(lambda: build(Two(), {"observation": rows(3)})) == [
        "unknown input 'observation': no API method of the root has such a parameter",
        "where:    root",
        "received: FloatBox((B, 3) float32)",
        "fix:      did you mean 'observations'?",
    ]
    assert (
        message(lambda: build(Two(), {"zzz": rows(3)}))[-1] == "fix:      parameters are ['batch_size', 'observations']"
    )


def test_missing_space():
    assert message(lambda: build(Two(), {})) == [
        "no space for input 'observations'",
        "where:    root.act",
        "received: input spaces for []",
        'fix:      add {"observations": <space>} to input_spaces, or leave the method out with methods=[...]',
    ]


def test_a_space_that_is_none():
    assert message(lambda: build(Two(), {"observations": (3,)})) == [
        "the space of input 'observations' is no space",
        "where:    root.act",
        "received: (3,)",
        "fix:      pass a FloatBox, IntBox, BoolBox, Dict or Tuple",
    ]


def test_a_space_for_a_static_argument():
    lines = message(lambda: build(Two(), {"observations": rows(3), "update.batch_size": SCALAR}))
    assert lines == [
        "a space was given for the static argument 'batch_size'",
        "where:    root.update",
        "fix:      pass a constant instead: build(..., static={'update': {'batch_size': ...}})",
    ]


def test_space_mismatch_between_two_callers():
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.linear = Linear(2, "linear")

        @api
        def act(self, observations):
            return self.linear.call(observations)

        @api
        def learn(self, batch):
            return self.linear.call(batch)

    assert message(lambda: build(Root(), {"observations": rows(3), "batch": rows(5)})) == [
        "two callers pass different spaces as 'inputs'",
        "where:    root/linear.call, called from root.learn",
        "received: FloatBox((B, 5) float32); before: FloatBox((B, 3) float32) from root/linear.call, "
        "called from root.act",
        "fix:      pass the same feature space, or use two components",
    ]
    # other ranks of the same features are fine
    build(Root(), {"observations": rows(3), "batch": sequences(3)})


# -- calls -------------------------------------------------------------------------------------------------------

_ROWS = "FloatBox((B, 3) float32)"


@pytest.mark.parametrize(
    ("call", "problem", "received"),
    [
        (lambda self, x: self.linear.call(), "missing a required argument: 'inputs'", "()"),
        (lambda self, x: self.linear.call(x, x), "too many positional arguments", f"({_ROWS}, {_ROWS})"),
        (lambda self, x: self.linear.call(state=x), "missing a required argument: 'inputs'", f"(state={_ROWS})"),
        (lambda self, x: self.linear.call(x, m=1), "got an unexpected keyword argument 'm'", f"({_ROWS}, m=1)"),
    ],
)
def test_wrong_number_or_names_of_arguments(call, problem, received):
    lines = message(lambda: build(root_with(call, parts={"linear": Linear(2)}), {"x": rows(3)}))
    assert lines == [
        f"wrong arguments for graph function 'call': {problem}",
        "where:    root/linear.call",
        f"received: {received}",
        "fix:      call it as call(inputs)",
    ]


def test_wrong_arguments_of_an_executor():
    executor = build(Two(), {"observations": rows(3)})
    x = np.zeros((1, 3), np.float32)
    assert (
        message(lambda: executor.act(), ExecutionError)[0]
        == "wrong arguments: missing a required argument: 'observations'"
    )
    assert message(lambda: executor.act(x, x), ExecutionError)[1:] == [
        "where:    root.act",
        "received: array of shape (1, 3), float32, array of shape (1, 3), float32",
        "fix:      its parameters are ['observations']",
    ]
    executor.act(x)
    for wrong in (lambda: executor.act(), lambda: executor.act(x, state=x)):
        with pytest.raises(TypeError):  # later calls: Python's own words
            wrong()
    assert message(lambda: executor.update(x, 4, 5), ExecutionError)[0] == "wrong arguments: 3 arguments were given"
    lines = message(lambda: executor.update(x, 4, batch_size=5), ExecutionError)
    assert lines[0] == "wrong arguments: argument 'batch_size' was given twice"
    assert message(lambda: executor.update(x, batch_size=[4]), ExecutionError) == [
        "a static argument cannot be looked up by its value",
        "where:    root.update",
        "received: ([4],)",
        "fix:      pass a number, a text or a tuple of them; arrays are no static arguments",
    ]


def test_a_static_argument_that_is_missing():
    executor = build(root_with(lambda self, x, n: x, ("x", "n"), static=("n",)), {"x": SCALAR})
    assert message(lambda: executor.update(1.0), ExecutionError) == [
        "static argument 'n' is missing",
        "where:    root.update",
        "fix:      pass n=...",
    ]


def test_api_method_unknown_on_a_component():
    lines = message(
        lambda: build(root_with(lambda self, x: self.linear.cal(x), parts={"linear": Linear(2)}), {"x": rows(3)})
    )
    assert lines == [
        "Linear has no API method or attribute 'cal'",
        "where:    root/linear",
        "fix:      did you mean 'call'?",
    ]


def test_api_method_unknown_in_a_build_and_on_an_executor():
    assert message(lambda: build(Two(), {"observations": rows(3)}, methods=["acts"])) == [
        "Two has no API method 'acts'",
        "where:    root",
        "fix:      did you mean 'act'?",
    ]
    executor = build(Two(), {"observations": rows(3)}, methods=["act"])
    assert message(lambda: executor.acts, ExecutionError) == [
        "the graph has no API method 'acts'",
        "where:    root",
        "fix:      did you mean 'act'?",
    ]
    assert message(lambda: executor.update, ExecutionError) == [
        "API method 'update' is not in this graph",
        "where:    root",
        "received: built with methods=['act']",
        "fix:      build(..., methods=[..., 'update'])",
    ]
    assert message(lambda: executor.execute("zzz"), ExecutionError)[-1] == "fix:      choose one of: 'act', 'update'"
    assert message(lambda: executor.code("acts"), ExecutionError)[-1] == "fix:      did you mean 'act'?"
    assert not hasattr(executor, "acts")


def test_a_root_without_api_methods():
    class Empty(Component):
        pass

    assert message(lambda: build(Empty("empty"))) == [
        "the root has no API methods",
        "where:    empty",
        "fix:      declare one with @api",
    ]


def test_an_api_method_called_on_an_unbuilt_component():
    lines = message(lambda: Linear(2).call(np.zeros((1, 3), np.float32)), ExecutionError)
    assert lines == [
        "graph function 'call' was called on an unbuilt component",
        "where:    linear.call",
        "received: (array of shape (1, 3), float32)",
        "fix:      build a graph first: executor = build(component, input_spaces); executor.call(...), or use "
        "rlweave.testing.ComponentTest",
    ]


def test_an_api_method_called_inside_a_graph_function():
    class Root(Component):
        @api
        def other(self, x):
            return x

        @graph_fn
        def call(self, x):
            return self.other(x)

    lines = message(lambda: build(Root("root"), {"x": SCALAR}), ExecutionError)
    assert lines[0] == "API method 'other' was called inside a graph function"
    assert lines[-1] == "fix:      call API methods in API methods, and pass their results to the graph function"


def test_a_component_test_says_which_spaces_are_missing():
    class Component2(Component):
        @graph_fn
        def one(self, x):
            return x

        @graph_fn
        def two(self, y):
            return y

    harness = ComponentTest(Component2("part"), {"x": SCALAR})
    assert message(lambda: harness.test("two", 1.0), ExecutionError) == [
        "API method 'two' was not built",
        "where:    part",
        "received: no spaces for ['y']",
        "fix:      add them to input_spaces",
    ]


# -- symbolic values in Python ------------------------------------------------------------------------------------


_COMPARED = ("an API input", "result of root.update.ops_greater", "result of root.update.ops_equal")
_BRANCH = "fix:      make it static with @api(static=(...)), or use graph.cond, graph.scan or ops.where"


@pytest.mark.parametrize(
    ("body", "action", "fix"),
    [
        (lambda self, x: 1 if x else 2, "a branch on the truth", _BRANCH),
        (lambda self, x: 1 if x > 0.0 else 2, "a branch on the truth", _BRANCH),
        (lambda self, x: 1 if x == 0.0 else 2, "a branch on the truth", _BRANCH),
        (lambda self, x: not x, "a branch on the truth", _BRANCH),
        (lambda self, x: int(x), "int()", _BRANCH),
        (lambda self, x: [1, 2][x], "int()", _BRANCH),
        (lambda self, x: list(range(x)), "int()", _BRANCH),
        (lambda self, x: float(x), "float()", _BRANCH),
        (
            lambda self, x: len(x),
            "len()",
            "fix:      use .space.shape for feature sizes, graph.scan to loop over time",
        ),
        (
            lambda self, x: list(iter(x)),
            "iteration",
            "fix:      use graph.scan to loop, or a graph function to take the array apart",
        ),
        (
            lambda self, x: f"{x}",
            "formatting",
            "fix:      return the value from the API method, or use graph.metric to report it",
        ),
        (lambda self, x: 3 in x, "`in`", _BRANCH),
    ],
)
def test_python_control_flow_on_a_value(body, action, fix):
    lines = message(lambda: build(root_with(body), {"x": BATCH}))
    assert lines[0] == f"{action} of a symbolic value while a graph is being traced"
    assert lines[1] in [f"where:    {where}" for where in _COMPARED]
    assert lines[2] in ("received: Value of FloatBox((B,) float32)", "received: Value of BoolBox((B,) bool)")
    assert lines[3] == fix


def test_an_attribute_that_only_arrays_have():
    lines = message(lambda: build(root_with(lambda self, x: x.shape[-1]), {"x": rows(3)}))
    assert lines == [
        "a symbolic value has no attribute 'shape'",
        "where:    an API input",
        "received: Value of FloatBox((B, 3) float32)",
        "fix:      use .space for shape and dtype; take the array apart in a graph function",
    ]


def test_a_static_argument_that_is_a_value():
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.part = Two("part")

        @api
        def learn(self, observations, size):
            return self.part.update(observations, size)

    assert message(lambda: build(Root(), {"observations": rows(3), "size": SCALAR})) == [
        "static argument 'batch_size' is a symbolic value",
        "where:    root/part.update",
        "received: FloatBox(() float32)",
        "fix:      pass a Python constant, or take the name out of static",
    ]


# -- composition --------------------------------------------------------------------------------------------------


def test_a_component_with_two_owners():
    part = Linear(2, "part")

    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.one = Cell(scope="one")
            self.part = part

    root = Root()

    def second():
        root.one.other = part

    assert message(second) == [
        "a component has two owners",
        "where:    root/part, owned by 'root'",
        "received: also assigned to an attribute of 'root/one'",
        "fix:      use shared(component) where it is only referred to, or component.copy() for a second one",
    ]


def test_a_component_that_owns_itself():
    class Root(Component):
        pass

    root, part = Root("root"), Root("part")
    root.part = part

    def cycle():
        part.root = root

    assert message(cycle)[0] == "a component cannot own itself"


def test_use_of_a_component_that_was_never_added():
    stray = Linear(2, "stray")
    lines = message(lambda: build(root_with(lambda self, x: stray.call(x)), {"x": rows(3)}))
    assert lines == [
        "a component was used that was never added",
        "where:    stray.call",
        "received: called from root.update",
        "fix:      assign it to an attribute of a component of the graph, or wrap it in shared(...) "
        "there if it is owned "
        "elsewhere",
    ]


def test_a_shared_component_that_nobody_owns():
    wanted = "fix:      assign the component itself (not shared(...)) to an attribute of one component"
    root = root_with(lambda self, x: self.trunk.call(x), parts={"trunk": shared(Linear(2, "trunk"))})
    assert message(lambda: build(root, {"x": rows(3)}))[1:] == ["where:    trunk, used in root", wanted]
    root = root_with(lambda self, x: x)
    other = root_with(lambda self, x: x, parts={"part": Linear(3, "part")}, scope="other")
    root.borrowed = shared(other.part)
    assert message(lambda: build(root, {"x": rows(3)})) == [
        "a shared component is owned by nobody in this graph",
        "where:    other/part, used in root",
        wanted,
    ]


def test_a_sub_component_made_too_late():
    class Late(Component):
        def create_variables(self):
            self.part = Linear(2)

        @graph_fn
        def call(self, x):
            return x

    assert message(lambda: build(Late("late"), {"x": SCALAR}))[0] == "a sub-component was made in create_variables"
    lines = message(lambda: build(root_with(lambda self, x: Linear(2, "new").call(x)), {"x": rows(3)}))
    assert lines == [
        "a component was made while a graph is being traced",
        "where:    Linear 'new'",
        "fix:      make components in the __init__ of their owner",
    ]


def test_an_attribute_before_the_base_class_was_initialized():
    class Early(Component):
        def __init__(self):
            self.units = 3

    assert message(Early) == [
        "an attribute was set before Component.__init__",
        "where:    Early.units",
        "fix:      call super().__init__(scope) first",
    ]


def test_a_scope_that_is_no_path():
    assert message(lambda: Linear(2, scope="a/b"))[0] == "a scope may hold letters, digits, '-', '_' and '.' only"


def test_names_that_components_and_executors_use_themselves():
    def wrong_component():
        class Wrong(Component):
            @api
            def copy(self, x):
                return x

    assert message(wrong_component)[0] == "an API method is named like an attribute of every component: 'copy'"

    def wrong_function():
        class Wrong(Component):
            @graph_fn
            def _device(self, x):
                return x

    assert message(wrong_function)[0] == "an API method is named like an attribute of every component: '_device'"

    class Store(Component):
        @api
        def store(self, x):
            return x

        @api
        def ask(self, as_numpy):
            return as_numpy

    lines = message(lambda: build(Store("part"), {"x": SCALAR}, methods=["store"]))
    assert lines[0] == "an API method of the root has the name of an attribute of executors, 'store'"
    lines = message(lambda: build(Store("part"), {"as_numpy": SCALAR}, methods=["ask"]))
    assert lines[0] == "a parameter is called 'as_numpy', which is a keyword of every method of an executor"


# -- variables and attributes --------------------------------------------------------------------------------------


def test_a_variable_made_outside_create_variables():
    class Root(Component):
        @api
        def update(self, x):
            self.variable("v", ())
            return x

    expected = [
        "a variable was made outside create_variables",
        "where:    root, variable 'v'",
        "fix:      move the call of self.variable into create_variables(self, ...)",
    ]
    assert message(lambda: build(Root("root"), {"x": SCALAR})) == expected
    assert message(lambda: Root("root").variable("v", ())) == expected


def test_variables_of_one_name_of_the_batch_and_of_no_initializer():
    class Root(Component):
        def __init__(self, make):
            super().__init__("root")
            self.make = make

        def create_variables(self, x):
            self.make(self, x)

        @graph_fn
        def call(self, x):
            return x

    def twice(self, x):
        self.variable("v", ())
        self.variable("v", ())

    lines = message(lambda: build(Root(twice), {"x": rows(3)}))
    assert lines[:2] == ["two variables of one name", "where:    root/v"]
    lines = message(lambda: build(Root(lambda self, x: self.variable("v", (3,), "lecunn_normal")), {"x": rows(3)}))
    assert lines == ["unknown initializer", "received: 'lecunn_normal'", "fix:      did you mean 'lecun_normal'?"]
    lines = message(lambda: build(Root(lambda self, x: self.variable("v", (3,), np.zeros(4))), {"x": rows(3)}))
    assert lines[:3] == [
        "an initializer returned the wrong shape",
        "where:    root/v",
        "received: shape (4,), wanted (3,)",
    ]
    lines = message(lambda: build(Root(lambda self, x: self.variable("v", (x.batch, 3))), {"x": rows(3)}))
    assert lines[0] == "a variable needs a concrete shape"


def test_a_variable_assigned_an_array_of_another_shape():
    class Root(Component):
        def create_variables(self):
            self.v = self.variable("v", (3,))

        @graph_fn
        def call(self, x):
            self.v.assign(x)

    assert message(lambda: build(Root("root"), {"x": FloatBox(shape=(4,))})) == [
        "a variable was assigned an array of another shape",
        "where:    root/v",
        "received: shape (4,), the variable has (3,)",
        "fix:      assign an array of the variable's shape",
    ]


def test_a_variable_read_in_an_api_method():
    lines = message(
        lambda: build(root_with(lambda self, x: self.cell.content.value, parts={"cell": Cell()}), {"x": SCALAR})
    )
    assert lines == [
        "a variable was used outside a graph function",
        "where:    root/cell/content",
        "fix:      read and write variables only inside methods decorated with @graph_fn",
    ]


def test_variables_asked_for_outside_a_build():
    assert message(lambda: Linear(2).variables()) == [
        "variables() was called outside a build",
        "where:    linear",
        "fix:      call it inside an API method; of a built graph use executor.get_weights()",
    ]
    assert message(lambda: graph.gradients(1.0, None))[0] == "gradients was called outside a graph"


def test_an_attribute_set_while_tracing():
    def body(self, x):
        self.last = x
        return x

    assert message(lambda: build(root_with(body), {"x": SCALAR})) == [
        "an attribute of a component was set while its graph is being traced",
        "where:    root.last",
        "received: Value(FloatBox(() float32), from x)",
        "fix:      keep state in variables (self.variable in create_variables); API methods and graph "
        "functions may run "
        "several times during a build and must be free of side effects",
    ]

    class Inside(Component):
        @graph_fn
        def call(self, x):
            self.last = x
            return x

    lines = message(lambda: build(Inside("inside"), {"x": SCALAR}), ExecutionError)
    assert lines == [
        "attribute 'last' was set inside a graph function",
        "where:    Inside",
        "fix:      keep state in variables: self.variable(...) in create_variables, .assign(x) in the graph function",
    ]


# -- input-completeness ------------------------------------------------------------------------------------------


class _Needy(Component):
    """A memory whose variables wait for records."""

    def create_variables(self, records):
        self.last = self.variable("last", records.shape)

    @graph_fn
    def insert(self, records):
        self.last.assign(records[-1])

    @graph_fn
    def sample(self):
        return self.last.value


def test_stuck_because_an_input_is_never_fed():
    root = root_with(lambda self, x: self.memory.sample(), parts={"memory": _Needy("memory")})
    assert message(lambda: build(root, {"x": SCALAR})) == [
        "the build is stuck: no component became complete in the last round",
        "where:    root.update",
        "received:",
        "root/memory: input 'records' is never fed; API methods that would supply it: insert, called by nobody",
        "fix:      feed each missing input from an API method that is called with known spaces, or take "
        "the parameter out "
        "of create_variables",
    ]


def test_stuck_in_a_circle():
    def circle(self, x):
        # each is fed with what the other one makes of its own result
        y = self.memory.sample()
        self.memory.insert(self.linear.call(y))
        return y

    parts = {"memory": _Needy("memory"), "linear": Linear(2, "linear")}
    lines = message(lambda: build(root_with(circle, parts=parts), {"x": SCALAR}))
    assert lines[0] == "the build is stuck: no component became complete in the last round"
    assert lines[1] == "where:    root.update"
    circular = "is only ever passed values that are unknown themselves, in a circle"
    assert lines[3:5] == [
        f"root/memory: input 'records' {circular}: root/memory.insert gets what root/linear.call returns",
        f"root/linear: input 'inputs' {circular}: root/linear.call gets what root/memory.sample returns",
    ]


def test_stuck_because_create_variables_names_no_input():
    class Wrong(Component):
        def create_variables(self, observation):
            self.v = self.variable("v", observation.shape)

        @graph_fn
        def call(self, observations):
            return observations + self.v.value

    lines = message(lambda: build(Wrong("wrong"), {"observations": rows(3)}))
    assert lines[3] == (
        "wrong: create_variables needs 'observation', which is no parameter of its API methods; "
        "did you mean 'observations'?"
    )


def test_stuck_because_variables_of_an_incomplete_component_are_needed():
    def body(self, x):
        return graph.gradients(x, self.memory.variables())

    lines = message(lambda: build(root_with(body, parts={"memory": _Needy("memory")}), {"x": SCALAR}))
    assert lines[3:5] == [
        "root/memory: input 'records' is never fed; API methods that would supply it: insert, called by nobody",
        "root.update stopped at: variables of root/memory",
    ]


# -- graph functions ----------------------------------------------------------------------------------------------


def test_another_number_of_results_on_a_retrace():
    class Changing(Component):
        @api
        def one(self, x):
            return self._results(x, 2)

        @api
        def other(self, x):
            return self._results(x, 3)

        @graph_fn
        def _results(self, x, count):
            return tuple(x for _ in range(count))

    assert message(lambda: build(Changing("changing"), {"x": SCALAR})) == [
        "a graph function returned a different number of results when it was traced again",
        "where:    changing._results",
        "received: first 2, now 3",
        "fix:      return the same number of results on every call; split it into two graph functions",
    ]


def test_another_number_of_results_than_declared():
    class Declared(Component):
        @graph_fn(returns=2)
        def call(self, x):
            return x

    assert message(lambda: build(Declared("declared"), {"x": SCALAR})) == [
        "a graph function returned a different number of results than it declares",
        "where:    declared.call",
        "received: 1 results, @graph_fn(returns=2)",
        "fix:      correct returns=, or the return statement",
    ]


def test_double_batch():
    class Loss(Component):
        @graph_fn
        def call(self, q, target):
            return ops.mean((q - target) ** 2)

    lines = message(lambda: build(Loss("loss"), {"q": BATCH, "target": rows(1)}))
    assert lines[0] == "an intermediate array has the batch axis twice: (B, B)"
    assert lines[1].startswith("where:    loss.call, ")
    assert lines[1].endswith(": return ops.mean((q - target) ** 2)")
    assert lines[2:] == [
        "received: operands of shapes (B,) and (B, 1)",
        "fix:      give both operands the same axes (squeeze or expand one of them); if rows of the "
        "batch are meant to meet, "
        "declare @graph_fn(mixes_batch=True)",
    ]


def test_a_stateful_write_under_split():
    class Root(Component):
        def create_variables(self):
            self.total = self.variable("total", ())

        @graph_fn(split=True)
        def count(self, x):
            self.total.assign(self.total.value + ops.sum(x))

    assert message(lambda: build(Root("root"), {"x": Dict(a=BATCH, b=BATCH)})) == [
        "several leaves of a split write one variable",
        "where:    root.count",
        "received: root/total is written for leaves 'a' and 'b'",
        "fix:      use flatten=True and write it once",
    ]


def test_split_arguments_that_are_nested_differently():
    class Root(Component):
        @graph_fn(split=True)
        def add(self, x, y):
            return x + y

    lines = message(lambda: build(Root("root"), {"x": Dict(a=BATCH, b=BATCH), "y": Dict(a=BATCH, c=BATCH)}))
    assert lines == [
        "split arguments are nested differently",
        "where:    root.add",
        "received: 'x' has leaves ['a', 'b'], 'y' has ['a', 'c']",
        "fix:      pass containers of one structure; arguments that are no containers are broadcast",
    ]


def test_options_that_contradict():
    assert message(lambda: graph_fn(flatten=True, split=True)(lambda self, x: x))[0] == "flatten and split contradict"
    assert message(lambda: graph_fn(with_key=True)(lambda self, key, x: x))[0] == "with_key needs split"
    assert message(lambda: api(static=("y",))(lambda self, x: x))[0] == "static names no parameter 'y'"
    for options, first in (
        ({"mode": "fast"}, "unknown mode"),
        ({"rng": "slow"}, "unknown random mode"),
        ({"float_dtype": "float64", "backend": "torch"}, "float64 graphs run on NumPy only"),
        ({"torch_compile": True}, "torch_compile needs the torch backend"),
    ):
        assert message(lambda options=options: build(Two(), {"observations": rows(3)}, **options))[0] == first
    lines = message(lambda: build(Two(), {"observations": rows(3)}, static={"update": {"size": 3}}))
    assert lines == [
        "'size' is no static argument of 'update'",
        "where:    root",
        "fix:      choose one of: 'batch_size'",
    ]
    lines = message(lambda: build(Two(), {"observations": rows(3)}, device={"linaer": "host"}))
    assert lines[0] == "a device was given for no component"
    assert "linear" in lines[-1]


# -- gradients and bodies -----------------------------------------------------------------------------------------


def test_a_write_inside_a_differentiated_path():
    def body(self, x):
        self.cell.add(self.cell.times(x))
        return graph.gradients(self.cell.times(x), self.cell.variables())

    assert message(lambda: build(root_with(body, parts={"cell": Cell(1.0)}), {"x": SCALAR})) == [
        "a variable is written inside a differentiated path",
        "where:    update.gradients",
        "received: root/cell.add writes 'root/cell/content', and the loss reads it afterwards",
        "fix:      hand the new value on as a value: graph.substitute(component, values) reads values "
        "in place of variables "
        "(or declare the graph function differentiable=False where the gradient is meant to stop)",
    ]


def test_a_write_inside_a_differentiated_scan():
    def body(self, x):
        def step(carry, row):
            self.cell.add(row)
            return carry, self.cell.times(row)

        _, ys = graph.scan(step, (), x)
        return graph.gradients(self._sum(ys), self.cell.variables())

    root = root_with(body, parts={"cell": Cell(1.0)})
    type(root)._sum = graph_fn(lambda self, ys: ops.sum(ys))
    lines = message(lambda: build(root, {"x": FloatBox(shape=(3,))}))
    assert lines[0] == "a variable is written inside a differentiated path"
    assert lines[2] == "received: root/cell.add writes 'root/cell/content', and the loss reads it afterwards"


def test_a_gradient_through_while():
    def body(self, x):
        loss = graph.while_(lambda y: y < 10.0, lambda y: self.cell.times(y), self.cell.times(x))
        return graph.gradients(loss, self.cell.variables())

    assert message(lambda: build(root_with(body, parts={"cell": Cell(2.0)}), {"x": SCALAR})) == [
        "a gradient goes through graph.while_",
        "where:    update.gradients",
        "received: update.while lies between the variables and the loss",
        "fix:      use graph.scan with a fixed number of steps, which can be differentiated",
    ]


class _HostPart(Component):
    @graph_fn(host=True)
    def call(self, x):
        return x * 2.0


@pytest.mark.parametrize("kind", ["scan", "cond"])
def test_a_host_node_in_a_body(kind):
    def body(self, x):
        if kind == "scan":
            return graph.scan(lambda carry, row: (carry, self.part.call(row)), 0.0, x)[1]
        return graph.cond(True, lambda: self.part.call(x), lambda: x)

    def cond_body(self, x, flag):
        return graph.cond(flag, lambda: self.part.call(x), lambda: x)

    from rlweave.spaces import BoolBox

    if kind == "scan":
        root, spaces = root_with(body, parts={"part": _HostPart("part")}), {"x": FloatBox(shape=(3,))}
    else:
        root = root_with(cond_body, ("x", "flag"), parts={"part": _HostPart("part")})
        spaces = {"x": SCALAR, "flag": BoolBox()}
    assert message(lambda: build(root, spaces)) == [
        f"a host node inside {kind}",
        "where:    root/part.call",
        "fix:      call it before or after, and pass its results in",
    ]


def test_a_host_node_in_a_segment():
    def body(self, x):
        return graph.gradients(self.part.call(self.cell.times(x)), self.cell.variables())

    root = root_with(body, parts={"cell": Cell(2.0), "part": _HostPart("part")})
    assert message(lambda: build(root, {"x": SCALAR})) == [
        "a gradient goes through a host node",
        "where:    update.gradients",
        "received: root/part.call lies between the variables and the loss",
        "fix:      compute it in a device graph function, or declare the host function differentiable=False",
    ]


def test_a_variable_used_by_host_and_device():
    class Mixed(Component):
        def create_variables(self):
            self.v = self.variable("v", ())

        @graph_fn(host=True)
        def on_host(self):
            return self.v.value

        @graph_fn
        def on_device(self):
            return self.v.value

    assert message(lambda: build(Mixed("mixed"), {}, backend="torch")) == [
        "a variable is used by host and device nodes",
        "where:    mixed/v",
        "received: host: mixed.on_host, device: mixed.on_device",
        "fix:      pass its value as a result of an API method between them",
    ]


def test_a_substituted_value_of_another_shape_or_name():
    def shape(self, x):
        return graph.substitute(self.cell, {"root/cell/content": x}).read()

    lines = message(lambda: build(root_with(shape, parts={"cell": Cell()}), {"x": FloatBox(shape=(2,))}))
    assert lines == [
        "a substituted value has another shape than its variable",
        "where:    root/cell/content",
        "received: FloatBox((2,) float32)",
        "fix:      pass FloatBox(() float32)",
    ]

    def name(self, x):
        return graph.substitute(self.cell, {"root/cell/contents": x}).read()

    lines = message(lambda: build(root_with(name, parts={"cell": Cell()}), {"x": SCALAR}))
    assert lines == [
        "a value was substituted for a variable that the component does not have",
        "where:    root/cell",
        "received: root/cell/contents",
        "fix:      did you mean 'root/cell/content'?",
    ]

    def write(self, x):
        graph.substitute(self.cell, {"root/cell/content": x}).add(x)
        return x

    lines = message(lambda: build(root_with(write, parts={"cell": Cell()}), {"x": SCALAR}))
    assert lines[0] == "a substituted variable was written"


# -- specs -------------------------------------------------------------------------------------------------------


@register("test-errors-layer")
class _Layer(Component):
    def __init__(self, units, activation=None, scope="layer"):
        super().__init__(scope)
        self.units, self.activation = units, activation


def test_unknown_spec_type():
    assert message(lambda: Component.from_spec({"type": "test-errors-layr", "units": 3}), SpecError) == [
        "unknown component type 'test-errors-layr'",
        "received: {'type': 'test-errors-layr', 'units': 3}",
        "fix:      did you mean 'test-errors-layer'?; or name a class of your own as 'module:Class'",
    ]


def test_unknown_spec_key():
    assert message(lambda: Component.from_spec({"type": "test-errors-layer", "unit": 3}), SpecError) == [
        "unknown key 'unit' for 'test-errors-layer'",
        "received: {'type': 'test-errors-layer', 'unit': 3}",
        "fix:      did you mean 'units'?",
    ]


def test_missing_spec_key_and_other_specs_that_are_none():
    lines = message(lambda: Component.from_spec("test-errors-layer"), SpecError)
    assert lines[0] == "key 'units' is missing for 'test-errors-layer'"
    for wrong in (3, None, {"units": 3}, {"type": 3}):
        lines = message(lambda wrong=wrong: Component.from_spec(wrong), SpecError)
        assert lines[0] == 'a component spec is a dict with "type"'
    lines = message(lambda: Linear.from_spec({"type": "test-errors-layer", "units": 3}), SpecError)
    assert lines[0] == "the spec makes no Linear"


# -- weights -----------------------------------------------------------------------------------------------------


def test_weights_that_do_not_fit_change_nothing():
    executor = built(Two(), {"observations": rows(3)})
    before = executor.get_weights()
    good = {"root/linear/kernel": np.ones((3, 2), np.float32)}
    wrong = [
        ({"root/linear/kernl": np.ones((3, 2))}, "unknown variable", "fix:      did you mean 'root/linear/kernel'?"),
        ({"root/linear/bias": np.ones(3)}, "a variable was given an array of another shape", None),
        ({"root/linear/bias": np.array(["a", "b"])}, "a variable was given an array of another dtype", None),
        ({"root/linear/bias": np.array([1j, 2j])}, "a variable was given an array of another dtype", None),
    ]
    for weights, first, fix in wrong:
        lines = message(lambda weights=weights: executor.set_weights({**good, **weights}), ExecutionError)
        assert lines[0] == first
        assert fix is None or lines[-1] == fix
        for path, value in executor.get_weights().items():
            assert np.array_equal(value, before[path])
    state = executor.state_dict()
    del state["root/linear/bias"]
    lines = message(lambda: executor.load_state_dict(state), ExecutionError)
    assert lines[:3] == ["a variable is missing from the state", "where:    root", "received: 'root/linear/bias'"]
    executor.set_weights({"root/linear/bias": np.array([1.0, 2.0], np.float64)})
    assert executor.get_weights()["root/linear/bias"].dtype == np.float32


def test_inputs_that_do_not_fit():
    executor = built(Two(), {"observations": rows(3)})
    assert message(lambda: executor.act(np.zeros((2, 4), np.float32)), ExecutionError) == [
        "argument 'observations' has the wrong shape",
        "where:    root.act",
        "received: shape (2, 4)",
        "fix:      pass shape (B, 3) and B rows",
    ]
    assert message(lambda: executor.act(np.zeros((2, 3), complex)), ExecutionError) == [
        "argument 'observations' has the wrong dtype",
        "where:    root.act",
        "received: array of complex128, shape (2, 3)",
        "fix:      pass FloatBox((B, 3) float32)",
    ]


def test_stores_of_another_kind():
    executor = built(Two(), {"observations": rows(3)})
    lines = message(lambda: build(Two(), {"observations": rows(3)}, backend="torch", store=executor.store))
    assert lines[0] == "a store belongs to graphs of another kind"
    lines = message(lambda: build(Two(), {"observations": rows(4)}, store=executor.store))
    assert lines[:3] == [
        "a variable in a shared store has another shape",
        "where:    root/linear/kernel",
        "received: (3, 2) in the store, (4, 2) here",
    ]
