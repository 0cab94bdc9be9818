"""The same everywhere: backends, modes, states and gradients that differ are found where they part."""

import pytest

from rlweave import ops
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import FloatBox
from rlweave.testing import Cause, Descriptor, check

ROWS = {"inputs": FloatBox(shape=(3,), add_batch_rank=True)}


def found(report, cause):
    return next(finding for finding in report if finding.cause is cause)


class InParts(Component):
    """Right on every backend."""

    def create_variables(self, inputs):
        self.kernel = self.variable("kernel", (3, 2), "lecun_normal")

    @api
    def call(self, inputs):
        return self.last(self.first(inputs))

    @graph_fn
    def first(self, inputs):
        return ops.tanh(ops.matmul(inputs, self.kernel.value))

    @graph_fn
    def last(self, features):
        return 2.0 * features


class OtherOnTorch(InParts):
    @graph_fn
    def last(self, features):
        return (2.001 if type(features).__module__ == "torch" else 2.0) * features


class OtherDtypeOnTorch(InParts):
    @graph_fn
    def last(self, features):
        rounded = ops.round(features)
        return ops.astype(rounded, "int32") if type(features).__module__ == "torch" else rounded


class OtherStateOnTorch(InParts):
    def create_variables(self, inputs):
        super().create_variables(inputs)
        self.total = self.variable("total", (), 0.0, trainable=False)

    @graph_fn(mixes_batch=True)
    def last(self, features):
        before = self.total.value
        self.total.assign(before + (2.0 if type(features).__module__ == "torch" else 1.0))
        return features + before


@pytest.mark.parametrize("component", [OtherOnTorch, OtherDtypeOnTorch, OtherStateOnTorch])
def test_what_differs_on_a_backend_is_found_where_it_parts(component):
    assert not any(f.cause is Cause.BACKENDS_DIFFER for f in check(component, ROWS, backends=["numpy"]))
    finding = found(check(component, ROWS, backends=["numpy", "torch"]), Cause.BACKENDS_DIFFER)
    assert ".last, checks/test_parity_checks.py:" in finding.where
    assert "on torch, on numpy the second" in finding.seen


@pytest.mark.parametrize("component", [OtherOnTorch, OtherDtypeOnTorch, OtherStateOnTorch])
def test_what_differs_where_gradients_are_taken_is_found_without_being_asked_for(component):
    finding = found(check(component, ROWS), Cause.BACKENDS_DIFFER)
    assert ".last, checks/test_parity_checks.py:" in finding.where
    assert "with the same numbers on torch and on numpy" in finding.seen


def test_what_is_the_same_on_all_backends_passes():
    report = check(InParts, ROWS, backends="all")
    assert report.ok, str(report)


class CountsItsCalls(InParts):
    """Python state that no variable holds."""

    def __init__(self):
        super().__init__("counts-its-calls")
        self.calls = [0]

    @graph_fn
    def last(self, features):
        self.calls[0] += 1
        return features + 0.01 * self.calls[0]


class KeepsTheFirstBatch(InParts):
    """It goes on as before in the same executor, and in no other."""

    def __init__(self):
        super().__init__("keeps-the-first-batch")
        self.kept = {}

    @graph_fn(host=True, mixes_batch=True, differentiable=False)
    def last(self, features):
        if features.shape[0] > 3:
            self.kept.setdefault("scale", abs(float(features.sum())) + 1.0)
        return features * ops.asarray(self.kept.get("scale", 1.0), "float32")


@pytest.mark.parametrize("component", [CountsItsCalls, KeepsTheFirstBatch])
def test_state_outside_of_variables_is_found(component):
    finding = found(check(component, ROWS), Cause.INCOMPLETE_STATE)
    assert finding.where.startswith(component().path + ".last, checks/test_parity_checks.py:")


class OtherWhenTraced(InParts):
    """Compiled code reads an attribute once, where it is traced."""

    def __init__(self):
        super().__init__("other-when-traced")
        self.calls = [0]

    @api
    def call(self, inputs):
        self.calls[0] += 1
        return self.scaled(self.first(inputs), float(self.calls[0]))

    @graph_fn
    def scaled(self, features, factor):
        return factor * features


def test_what_tracing_freezes_is_found():
    finding = found(check(OtherWhenTraced, ROWS), Cause.MODES_DIFFER)
    assert finding.where.startswith("other-when-traced.call, checks/test_parity_checks.py:")


class RootAtZero(Component):
    @graph_fn
    def loss(self, inputs):
        return ops.mean(ops.sqrt(ops.sum(ops.square(inputs), -1)))


class UnsafeBranch(InParts):
    @graph_fn
    def last(self, features):
        return ops.where(features > 0.0, ops.log(ops.maximum(features, 0.0)), 0.0)


class SafeBranch(InParts):
    @graph_fn
    def last(self, features):
        positive = features > 0.0
        return ops.where(positive, ops.log(ops.where(positive, features + 0.1, 1.0)), 0.0)


@pytest.mark.parametrize(
    ("component", "place"), [(RootAtZero, "root-at-zero.loss, "), (UnsafeBranch, "unsafe-branch.last, ")]
)
def test_a_gradient_that_is_not_finite_is_found(component, place):
    finding = found(check(component, ROWS), Cause.NOT_FINITE)
    assert "its result is finite, and the gradient by" in finding.seen
    assert finding.where.startswith(place + "checks/test_parity_checks.py:")


def test_a_safe_branch_passes():
    assert check(SafeBranch, ROWS).ok


class CutOnTorch(InParts):
    @graph_fn
    def last(self, features):
        return ops.stop_gradient(features) + ops.tanh(features)


def test_a_gradient_that_is_not_the_derivative_is_found_where_backends_are_compared():
    said = Descriptor("cut", CutOnTorch, CutOnTorch, ROWS, gradients=("call",))
    assert check(said).ok
    finding = found(check(said, backends=["torch"]), Cause.WRONG_GRADIENT)
    assert finding.where.startswith("cut-on-torch.call, ")
    assert "by differences" in finding.seen
    # what is detached on purpose is no fault, as long as no descriptor says that nothing is
    assert check(CutOnTorch, ROWS, backends=["torch"]).ok
