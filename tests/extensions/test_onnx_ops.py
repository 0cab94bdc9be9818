"""Every operator that has an ONNX form gives NumPy's values, dtypes and shapes; the others say that they have none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rlweave.backends.base import OpenArray
from rlweave.backends.numpy_ import ops as numpy_ops
from rlweave.errors import BackendError
from rlweave.ops import OP_NAMES
from tests.backends.op_cases import CASES, Case, arrays_of, call, leaves

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from onnx import load_from_string

from rlweave.extensions.onnx_ import ops as onnx_ops
from rlweave.extensions.onnx_.model import Model
from rlweave.extensions.onnx_.run import OnnxRun
from rlweave.extensions.onnx_.session import make_session

#: Operators that acting graphs do not need.
WITHOUT_FORM = {"lgamma", "set_at", "add_at", "adam_update", "rmsprop_update", "sgd_update", "global_norm_clip"}
WITHOUT_FORM |= {"discounted_sums"}


def run_of(name: str, one: Case) -> OnnxRun:
    """One call as a model."""
    inputs = [OpenArray(x.shape, x.dtype.name) for x in arrays_of(one)]
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


OPEN: dict[str, tuple[Any, tuple[tuple[int | str, ...], ...]]] = {
    "shape with one size": (lambda x: onnx_ops.reshape(x, (x.shape[0], -1)), (("B", 3, 4),)),
    "folded": (lambda x: onnx_ops.fold_ranks(x), (("T", "B", 4),)),
    "unfolded": (lambda x, y: onnx_ops.unfold_ranks(x, y.shape[:2]), (("T*B", 4), ("T", "B"))),
    "of nothing": (lambda x: onnx_ops.reshape(x, (x.shape[0], 0, 2)), (("B", 2, 0),)),
    "multiples": (lambda x: onnx_ops.reshape(x, (x.shape[0] * 2, x.shape[1] // 2)), (("B", 4),)),
    "filled": (lambda x: onnx_ops.full((2, x.shape[0]), 1.5) + onnx_ops.arange(x.shape[0]), (("B",),)),
    "a mean by hand": (lambda x: onnx_ops.sum(x, axis=0) / x.shape[0], (("B", 3),)),
    "cut": (lambda x: x[1 : x.shape[0] - 1, ..., ::-1], (("B", 2, 3),)),
    "picked": (lambda x: x[:, -1, None, 0], (("B", 2, 3),)),
    "repeated": (lambda x: onnx_ops.repeat(x, 3, axis=0), (("B", 2),)),
    "tiled": (lambda x: onnx_ops.tile(x, (2, 1, 3)), (("B", 2),)),
    "rolled": (lambda x: onnx_ops.roll(x, 4, axis=0), (("B", 2),)),
    "sorted": (lambda x: onnx_ops.argsort(x, axis=0, descending=True), (("B", 2),)),
    "product": (lambda x, y: onnx_ops.einsum("tbi,ij->tbj", x, y), (("T", "B", 2), (2, 3))),
    "over time": (
        lambda x: onnx_ops.scan(lambda c, row: (c * 0.5 + row, c), onnx_ops.zeros_like(x[0]), x, reverse=True),
        (("T", "B", 3),),
    ),
    "over features": (
        lambda x: onnx_ops.scan(lambda c, row: (c + row, c * row), x[0], x[1:]),
        ((4, "B"),),
    ),
}


@pytest.mark.parametrize("name", OPEN)
def test_open_axes_may_have_any_length(name: str) -> None:
    function, axes = OPEN[name]
    run = OnnxRun(function, (), [OpenArray(each, "float32") for each in axes])
    rng = np.random.default_rng(0)
    for sizes in ({"T": 1, "B": 2}, {"T": 6, "B": 9}, {"T": 2, "B": 31}):
        shapes = [
            [n if isinstance(n, int) else math.prod(sizes[s] for s in n.split("*")) for n in each] for each in axes
        ]
        arrays = [rng.standard_normal(shape, np.float32) for shape in shapes]
        # without symbols the operators are those of NumPy
        for found, wanted in zip(leaves(run(*arrays)), leaves(function(*arrays)), strict=True):
            assert found.shape == np.shape(wanted)
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert run.sessions == 1


@pytest.mark.parametrize("name", sorted(WITHOUT_FORM))
def test_an_operator_without_a_form_names_itself_and_what_else_acts(name: str) -> None:
    one = CASES[name][0]
    with pytest.raises(BackendError, match=rf"ops\.{name} has no ONNX form(.|\n)*numpy, torch, jax or tensorflow"):
        run_of(name, one)(*arrays_of(one))


@pytest.mark.parametrize("scale", [None, 255.0, np.array([1.0, 2.0, 4.0])], ids=["alone", "scaled", "scaled by axis"])
@pytest.mark.parametrize("back", [(0, 3, 1, 2), (0, 2, 3, 1)], ids=["undone", "not undone"])
def test_images_are_moved_only_where_their_axes_change(scale: Any, back: tuple[int, ...]) -> None:
    images = np.random.default_rng(0).integers(0, 255, (2, 3, 4, 5), np.uint8)
    model = Model()
    name = model.node("Transpose", [model.input("images", np.uint8, images.shape, "images")], perm=[0, 2, 3, 1])
    wanted = images.transpose(0, 2, 3, 1)
    if scale is not None:
        name = model.node("Div", [model.cast(name, np.float32), model.constant(scale, np.float32)])
        wanted = wanted.astype(np.float32) / np.float32(scale)
    content, _ = model.finished([(model.transposed(name, back), wanted.dtype, None)])
    moves = sum(node.op_type == "Transpose" for node in load_from_string(content).graph.node)
    assert moves == (0 if back == (0, 3, 1, 2) and np.ndim(scale) == 0 else 2)
    (found,) = make_session(content).run(None, {"images": images})
    np.testing.assert_array_equal(found, wanted.transpose(back))
