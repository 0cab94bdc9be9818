"""Laws of shapes: 23 and 24 of the IR ((B, B) arrays; folding, one row more, fixed ranks), and abstract evaluation."""

import numpy as np
import pytest

from rlweave import ops
from rlweave.errors import BuildError, ExecutionError
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import BoolBox, Dim, FloatBox, IntBox
from tests.graph.toys import BACKENDS, BATCH, SCALAR, Linear, built, close, rows, sequences

every = pytest.mark.parametrize("backend", BACKENDS)


class _Loss(Component):
    """The classic slip: `(B,)` against `(B, 1)`, and a mean that hides it."""

    @graph_fn
    def call(self, q, target):
        return ops.mean((q - target) ** 2)


class _LossWithANewAxis(Component):
    @graph_fn
    def call(self, q, target):
        return ops.mean((q[:, None] - target) ** 2)


@every
def test_shapes_at_a_line_are_those_that_its_operands_have_there(backend):
    with pytest.raises(BuildError) as error:
        built(_LossWithANewAxis("loss"), {"q": BATCH, "target": BATCH}, backend)
    assert "operands of shapes (B, 1) and (B,)" in str(error.value)
    assert "ops.mean((q[:, None] - target) ** 2)" in str(error.value)


class _PairwiseLoss(Component):
    @graph_fn(mixes_batch=True)
    def call(self, q, target):
        return ops.mean((q - target) ** 2)


@every
def test_law_23_an_array_with_the_batch_axis_twice_is_caught_inside_a_loss(backend):
    with pytest.raises(BuildError) as error:
        built(_Loss("loss"), {"q": BATCH, "target": rows(1)}, backend)
    text = str(error.value)
    assert "an intermediate array has the batch axis twice: (B, B)" in text
    assert "operands of shapes (B,) and (B, 1)" in text
    assert "loss.call" in text
    assert "ops.mean((q - target) ** 2)" in text  # the line
    assert "test_laws_shapes.py" in text
    assert "mixes_batch=True" in text


@every
def test_law_23_equal_axes_pass_and_rows_may_meet_where_it_is_declared(backend):
    q, target = np.arange(3, dtype=np.float32), np.zeros((3, 1), np.float32)
    close(built(_Loss("loss"), {"q": BATCH, "target": BATCH}, backend).call(q, target[:, 0]), 5 / 3)
    close(built(_PairwiseLoss("loss"), {"q": BATCH, "target": rows(1)}, backend).call(q, target), 5 / 3)


@every
@pytest.mark.parametrize(
    "expression",
    [
        lambda q, actions: ops.mean(q[:, actions]),  # every row with every action
        lambda q, actions: ops.sum(ops.take(q, actions, axis=1)),
        lambda q, actions: ops.sum(ops.matmul(q, ops.permute_dims(q, (1, 0)))),
        lambda q, actions: ops.sum(ops.exp(q[:, None, 0] * q[None, :, 0])),
        lambda q, actions: ops.sum(ops.where(actions[None] > 0, q[:, 0:1], 0.0)),
    ],
)
def test_law_23_other_ways_to_meet_the_batch(backend, expression):
    class Slip(Component):
        @graph_fn
        def call(self, q, actions):
            return expression(q, actions)

    class Meant(Component):
        @graph_fn(mixes_batch=True)
        def call(self, q, actions):
            return expression(q, actions)

    spaces = {"q": rows(4), "actions": IntBox(4, add_batch_rank=True)}
    with pytest.raises(BuildError, match="batch axis twice"):
        built(Slip("slip"), spaces, backend)
    built(Meant("meant"), spaces, backend).call(np.zeros((5, 4), np.float32), np.zeros(5, np.int32))


@every
def test_law_23_a_class_may_declare_it_for_all_its_functions(backend):
    class Attention(Component):
        mixes_batch = True

        @graph_fn
        def call(self, q):
            return ops.matmul(ops.softmax(ops.matmul(q, ops.permute_dims(q, (1, 0)))), q)

    assert built(Attention("attention"), {"q": rows(4)}, backend).call(np.zeros((5, 4), np.float32)).shape == (5, 4)


@every
def test_law_23_a_feature_axis_of_the_trial_size_is_no_batch_axis(backend):
    """Whatever primes abstract evaluation picks: features of that size are not rows."""

    class Features(Component):
        @graph_fn
        def call(self, q):
            wide = ops.zeros((37,)) + q[:, None] * 1.0
            return ops.sum(wide[:, :, None] * ops.ones((41,)), axis=(1, 2))

    assert built(Features("features"), {"q": BATCH}, backend).call(np.zeros(2, np.float32)).shape == (2,)


# -- law 24 ------------------------------------------------------------------------------------------------------


class _Folding(Component):
    def __init__(self):
        super().__init__("root")
        self.linear = Linear(2, "linear")

    @api
    def fold(self, x):
        return self.linear.call(self._fold(x))

    @api
    def fold_and_unfold(self, x):
        return self._unfold(self.linear.call(self._fold(x)), x)

    @graph_fn
    def _fold(self, x):
        return ops.fold_ranks(x, 2)

    @graph_fn
    def _unfold(self, y, x):
        return ops.unfold_ranks(y, x.shape[:2])


@every
def test_law_24_time_and_batch_fold_into_one_axis_and_unfold(backend):
    executor = built(_Folding(), {"x": sequences(3)}, backend, seed=1)
    graph = executor.graphs[("fold", ())]
    assert graph.outputs.space.axes == (Dim(("T", "B")), 2)
    assert graph.outputs.space.has_batch_rank
    assert executor.graphs[("fold_and_unfold", ())].outputs.space.axes == (Dim(("T",)), Dim(("B",)), 2)
    x = np.random.default_rng(0).normal(size=(4, 5, 3)).astype(np.float32)
    folded, unfolded = executor.fold(x), executor.fold_and_unfold(x)
    assert folded.shape == (20, 2)
    close(folded.reshape(4, 5, 2), unfolded)


class _Rows(Component):
    """Results of all the shapes that an axis may have."""

    @graph_fn(returns=8)
    def call(self, x, last):
        return (
            ops.concat([x, last[None]], axis=0),  # T+1
            x[1:],  # T-1
            x[2:-3],  # T-5
            ops.concat([x, x], axis=1),  # 2*B
            ops.reshape(x, (-1,)),  # T*B*2
            ops.sum(x, axis=0),
            ops.sum(x, axis=1),
            ops.sum(x),
        )


@every
def test_law_24_one_row_more_or_less_and_multiples(backend):
    executor = built(_Rows("rows"), {"x": sequences(2), "last": rows(2)}, backend)
    outputs = executor.graphs[("call", ())].outputs
    time, batch = Dim(("T",)), Dim(("B",))
    assert [value.space.axes for value in outputs] == [
        (Dim(("T",), offset=1), batch, 2),
        (Dim(("T",), offset=-1), batch, 2),
        (Dim(("T",), offset=-5), batch, 2),
        (time, Dim(("B",), 2), 2),
        (Dim(("T", "B"), 2),),
        (batch, 2),
        (time, 2),
        (),
    ]
    shapes = [r.shape for r in executor.call(np.zeros((7, 3, 2), np.float32), np.zeros((3, 2), np.float32))]
    assert shapes == [(8, 3, 2), (6, 3, 2), (2, 3, 2), (7, 6, 2), (42,), (3, 2), (7, 2), ()]


@every
def test_law_24_a_sequence_with_one_row_more_is_an_input_space(backend):
    class Deltas(Component):
        @graph_fn
        def call(self, values, rewards):
            return rewards + values[1:] - values[:-1]

    more = FloatBox(add_batch_rank=True, add_time_rank=Dim(("T",), offset=1))
    executor = built(Deltas("deltas"), {"values": more, "rewards": sequences()}, backend)
    assert executor.graphs[("call", ())].outputs.space.axes == (Dim(("T",)), Dim(("B",)))
    values = np.arange(8, dtype=np.float32).reshape(4, 2)
    close(executor.call(values, np.zeros((3, 2), np.float32)), np.full((3, 2), 2.0))


@every
def test_law_24_fixed_ranks(backend):
    fixed = FloatBox(shape=(3,), add_batch_rank=8, add_time_rank=4)
    executor = built(_Folding(), {"x": fixed}, backend)
    assert executor.graphs[("fold", ())].outputs.space.axes == (Dim(("T=4", "B=8")), 2)
    assert executor.fold(np.zeros((4, 8, 3), np.float32)).shape == (32, 2)
    for wrong in ((4, 7, 3), (5, 8, 3), (4, 8, 2)):
        with pytest.raises(ExecutionError, match="wrong shape"):
            executor.fold(np.zeros(wrong, np.float32))


@every
def test_law_24_a_function_may_count_on_the_number_of_a_fixed_rank(backend):
    """(64,) as (4, 16): only the number itself divides so."""

    class Cut(Component):
        @graph_fn
        def call(self, x):
            return ops.reshape(x, (4, 16, 3))

        @graph_fn
        def half(self, x):
            return x[: x.shape[0] // 2]

    executor = built(Cut("cut"), {"x": FloatBox(shape=(3,), add_batch_rank=64)}, backend)
    assert executor.graphs[("call", ())].outputs.space.axes == (4, 16, 3)
    assert executor.call(np.zeros((64, 3), np.float32)).shape == (4, 16, 3)
    assert executor.half(np.zeros((64, 3), np.float32)).shape == (32, 3)


# -- abstract evaluation -------------------------------------------------------------------------------------------


@every
def test_batches_of_no_row_and_of_one_row(backend):
    executor = built(_Folding(), {"x": sequences(3)}, backend)
    assert executor.fold_and_unfold(np.zeros((2, 0, 3), np.float32)).shape == (2, 0, 2)
    assert executor.fold_and_unfold(np.zeros((1, 1, 3), np.float32)).shape == (1, 1, 2)
    assert executor.fold(np.zeros((0, 1, 3), np.float32)).shape == (0, 2)


@every
def test_result_spaces_have_the_dtypes_of_the_results(backend):
    class Kinds(Component):
        @graph_fn(returns=5)
        def call(self, x, n, flag):
            return x > 0, n + 1, ops.astype(flag, "float32"), ops.argmax(x, axis=-1), ops.astype(x, "uint8")

    executor = built(Kinds("kinds"), {"x": rows(4), "n": IntBox(5), "flag": BoolBox()}, backend)
    spaces = [value.space.dtype for value in executor.graphs[("call", ())].outputs]
    assert spaces == ["bool", "int32", "float32", "int32", "uint8"]
    results = executor.call(np.ones((2, 4), np.float32), 3, True)
    assert [str(r.dtype) for r in results] == spaces


@every
def test_a_result_axis_that_is_no_multiple_is_refused(backend):
    class Half(Component):
        @graph_fn
        def call(self, x):
            return x[: x.shape[0] // 2]

    with pytest.raises(BuildError) as error:
        built(Half("half"), {"x": BATCH}, backend)
    assert "a result axis is no multiple of the batch and time sizes" in str(error.value)
    assert "half.call" in str(error.value)


@every
def test_numbers_and_nothing_among_the_results_are_constants(backend):
    class Constants(Component):
        @graph_fn
        def _constants(self, x):
            return {"x": x, "none": None, "name": "abc", "number": 3, "half": 0.5, "features": x.shape[-1]}

        @api
        def call(self, x):
            result = self._constants(x)
            assert result["number"] == 3  # a Python number: the API method may compute with it
            return result

    result = built(Constants("constants"), {"x": rows(4)}, backend).call(np.ones((2, 4), np.float32))
    assert {key: result[key] for key in ("none", "name", "number", "half", "features")} == {
        "none": None,
        "name": "abc",
        "number": 3,
        "half": 0.5,
        "features": 4,
    }


@every
def test_a_number_that_depends_on_the_batch_is_refused(backend):
    class Count(Component):
        @graph_fn
        def call(self, x):
            return x.shape[0]

    with pytest.raises(BuildError) as error:
        built(Count("count"), {"x": BATCH}, backend)
    assert "a Python number that depends on the batch or time size" in str(error.value)
    assert "ops.asarray" in str(error.value)


@every
def test_an_exception_inside_a_graph_function_names_component_function_and_spaces(backend):
    class Wrong(Component):
        @graph_fn
        def call(self, x, y):
            return ops.matmul(x, y)

    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.part = Wrong("part")

        @api
        def update(self, x, y):
            return self.part.call(x, y)

    with pytest.raises(BuildError) as error:
        built(Root(), {"x": rows(4), "y": FloatBox(shape=(3, 2))}, backend)
    text = str(error.value)
    assert "root/part.call" in text
    assert "FloatBox((B, 4) float32)" in text
    assert "FloatBox((3, 2) float32)" in text
    assert "return ops.matmul(x, y)" in text
    assert error.value.__cause__ is not None


@every
def test_equal_components_of_other_settings_do_not_share_cached_shapes(backend):
    class Widen(Component):
        def __init__(self, times, scope="widen"):
            super().__init__(scope)
            self.times = times

        @graph_fn
        def call(self, x):
            return ops.concat([x] * self.times, axis=-1)

    class Outer(Component):
        """Reads a setting of its sub-component."""

        def __init__(self, inner):
            super().__init__("outer")
            self.inner = inner

        @graph_fn
        def call(self, x):
            return ops.concat([x] * self.inner.times, axis=-1)

    x = np.ones((2, 3), np.float32)
    for times in (1, 2, 3):
        assert built(Widen(times), {"x": rows(3)}, backend).call(x).shape == (2, 3 * times)
        outer = built(Outer(Widen(times)), {"x": rows(3)}, backend, methods=["call"])
        assert outer.graphs[("call", ())].outputs.space.axes[-1] == 3 * times
        assert outer.call(x).shape == (2, 3 * times)


@every
def test_scalars_come_out_as_arrays_without_axes(backend):
    class Scalars(Component):
        def create_variables(self):
            self.count = self.variable("count", (), 3, dtype="int32")

        @graph_fn(returns=4)
        def call(self, x):
            return ops.sum(x), self.count.value, x[0] * 2.0, ops.any(x > 0)

        @api
        def same(self, y):
            return y

    executor = built(Scalars("scalars"), {"x": FloatBox(shape=(3,)), "y": SCALAR}, backend)
    for result in (*executor.call(np.ones(3, np.float32)), executor.same(2.0)):
        assert type(result) is np.ndarray
        assert result.shape == ()
