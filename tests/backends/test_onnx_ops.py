"""Every operator that has an ONNX form gives NumPy's values, dtypes and shapes; the others say that they have none."""

from __future__ import annotations

import numpy as np
import pytest

from rlweave.backends.base import OpenArray
from rlweave.backends.numpy_ import ops as numpy_ops
from rlweave.errors import BackendError
from rlweave.ops import OP_NAMES
from tests.backends.op_cases import CASES, Case, arrays_of, call, leaves

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from rlweave.backends.onnx_ import ops as onnx_ops
from rlweave.backends.onnx_.run import OnnxRun

#: Operators that acting graphs do not need.
WITHOUT_FORM = {"lgamma", "set_at", "add_at", "adam_update", "rmsprop_update", "sgd_update", "global_norm_clip"}


def run_of(name: str, one: Case, open_axis: bool = False) -> OnnxRun:
    """One call as a model; with an open axis: the first one of arrays that have the length of the first array's."""
    arrays = arrays_of(one)
    length = next((len(x) for x in arrays if x.ndim), None)

    def axes(x: np.ndarray) -> tuple[int | str, ...]:
        return ("B", *x.shape[1:]) if open_axis and x.ndim and len(x) == length else x.shape

    inputs = [OpenArray(axes(x), x.dtype.name) for x in arrays]
    return OnnxRun(lambda *xs: call(getattr(onnx_ops, name), one, list(xs)), (), inputs)


def expected_of(name: str, one: Case) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        return [np.asarray(leaf) for leaf in leaves(call(getattr(numpy_ops, name), one, arrays_of(one)))]


@pytest.mark.parametrize("name", [name for name in OP_NAMES if name not in WITHOUT_FORM])
def test_onnx_equals_numpy(name: str) -> None:
    for index, one in enumerate(CASES[name]):
        found = [np.asarray(leaf) for leaf in leaves(run_of(name, one)(*arrays_of(one)))]
        expected = expected_of(name, one)
        assert len(found) == len(expected), f"case {index}"
        for result, wanted in zip(found, expected, strict=True):
            assert (result.shape, result.dtype) == (wanted.shape, wanted.dtype), f"case {index}"
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6, err_msg=f"case {index}")


@pytest.mark.parametrize("name", sorted(WITHOUT_FORM))
def test_an_operator_without_a_form_names_itself_and_what_else_acts(name: str) -> None:
    one = CASES[name][0]
    with pytest.raises(BackendError, match=rf"ops\.{name} has no ONNX form(.|\n)*numpy, torch, jax or tensorflow"):
        run_of(name, one)(*arrays_of(one))
