"""`check` of small components with one fault each, and of all components of the library."""

import numpy as np
import pytest

from rlweave import ops
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import FloatBox
from rlweave.testing import Cause, check

ROWS = {"inputs": FloatBox(shape=(3,), add_batch_rank=True)}
STEPS = {"inputs": FloatBox(shape=(3,), add_batch_rank=True, add_time_rank=True)}


class Centred(Component):
    @graph_fn
    def call(self, inputs):
        return inputs - ops.mean(inputs, axis=0)


class CentredInTwoSteps(Component):
    @api
    def call(self, inputs):
        return self._minus(inputs, self._mean(inputs))

    @graph_fn
    def _mean(self, inputs):
        return ops.mean(inputs, axis=0)

    @graph_fn
    def _minus(self, inputs, mean):
        return inputs - mean


class CentredOnPurpose(CentredInTwoSteps):
    @graph_fn(mixes_batch=True)
    def _mean(self, inputs):
        return ops.mean(inputs, axis=0)


class MeanOfTheBatchKept(Component):
    """Its mean is that of the very batch which it centres."""

    def create_variables(self, inputs):
        self.mean = self.variable("mean", inputs.shape, trainable=False)

    @api
    def call(self, inputs):
        self._update(inputs)
        return self._minus(inputs)

    @graph_fn
    def _update(self, inputs):
        self.mean.assign(ops.mean(inputs, axis=0))

    @graph_fn
    def _minus(self, inputs):
        return inputs - self.mean.value


class RowNumber(Component):
    @graph_fn
    def call(self, inputs):
        return inputs * ops.expand_dims(ops.astype(ops.arange(inputs.shape[0]), "float32"), -1)


class NextStep(Component):
    @graph_fn
    def call(self, inputs):
        return ops.concat([inputs[1:], inputs[-1:]], axis=0)


class StepBeforeAsReturn(Component):
    @graph_fn(looks_ahead=True)
    def call(self, rewards):
        return ops.concat([rewards[:1], rewards[:-1]], axis=0)


class Logarithm(Component):
    @api
    def call(self, inputs):
        return self._log(self._square(inputs))

    @graph_fn
    def _square(self, inputs):
        return inputs * inputs

    @graph_fn
    def _log(self, inputs):
        return ops.log(inputs)


class Wide(Component):
    @graph_fn(host=True)
    def call(self, inputs):
        return inputs * np.float64(2.0)


class InPlace(Component):
    @graph_fn(host=True)
    def call(self, inputs):
        inputs += 1.0
        return inputs * 2.0


FAULTS = [
    (Centred, ROWS, Cause.ROWS_MEET, "centred.call"),
    (CentredInTwoSteps, ROWS, Cause.ROWS_MEET, "._minus"),
    (MeanOfTheBatchKept, ROWS, Cause.ROWS_MEET, "._minus"),
    (RowNumber, ROWS, Cause.ROW_ORDER_COUNTS, "row-number.call"),
    (NextStep, STEPS, Cause.LOOKS_AHEAD, "next-step.call"),
    (
        StepBeforeAsReturn,
        {"rewards": FloatBox(add_batch_rank=True, add_time_rank=True)},
        Cause.LOOKS_BACK,
        "step-before-as-return.call",
    ),
    (Logarithm, ROWS, Cause.NOT_FINITE, "logarithm._log"),
    (Wide, ROWS, Cause.WIDE_FLOATS, "wide.call"),
    (InPlace, ROWS, Cause.INPUT_CHANGED, "in-place.call"),
]


@pytest.mark.parametrize(("component", "spaces", "cause", "place"), FAULTS, ids=lambda x: getattr(x, "__name__", ""))
def test_a_fault_is_found_where_it_is(component, spaces, cause, place):
    report = check(component, spaces)
    assert cause in {finding.cause for finding in report}, str(report)
    finding = next(finding for finding in report if finding.cause is cause)
    assert place in finding.where
    assert "test_checking.py:" in finding.where
    assert not report.ok


class NoiseOfTheHost(Component):
    """It gives something else at each call, so whatever is changed seems to move everything."""

    @graph_fn
    def call(self, inputs):
        return inputs + ops.asarray(np.random.normal(size=inputs.shape).astype("float32"))  # noqa: NPY002


def test_random_numbers_from_outside_are_not_taken_for_rows_or_steps_that_reach_each_other():
    causes = [finding.cause for finding in check(NoiseOfTheHost, STEPS)]
    assert causes == [Cause.RANDOMNESS_OUTSIDE]


def test_what_meets_on_purpose_declares_it():
    assert check(CentredOnPurpose, ROWS).ok


def test_a_report_names_what_was_done():
    report = check(Centred, ROWS)
    text = str(report)
    for part in ("Centred: 1 finding", "where:", "row 1 of 'inputs'", "fix:", "checked: batch independence"):
        assert part in text
    data = report.to_data()
    assert data["ok"] is False
    assert data["findings"][0]["cause"] == "ROWS_MEET"
