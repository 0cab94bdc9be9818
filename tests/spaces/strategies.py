"""Hypothesis strategies that draw any space: nested, empty, zero-size, partly unbounded, with and without ranks."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from rlweave.spaces import BoolBox, Box, Dict, FloatBox, IntBox, Space, TextBox, Tuple

quick = settings(max_examples=60, deadline=None, database=None, derandomize=True)

shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
ranks = st.sampled_from([False, True, 2])


@st.composite
def float_boxes(draw: st.DrawFn, batch: object = False, time: object = False) -> FloatBox:
    shape = draw(shapes)
    lows = st.sampled_from([-np.inf, -1e30, -1.5, -0.0, 0.1])
    widths = st.sampled_from([0.0, 1e-6, 1.0, 1e30, np.inf])
    if draw(st.booleans()):
        low, width = np.asarray(draw(lows)), np.asarray(draw(widths))
    else:
        count = int(np.prod(shape))
        low = np.array(draw(st.lists(lows, min_size=count, max_size=count)), float).reshape(shape)
        width = np.array(draw(st.lists(widths, min_size=count, max_size=count)), float).reshape(shape)
    high = np.where(np.isfinite(low), np.where(np.isfinite(low), low, 0.0) + width, width)
    return FloatBox(low, high, shape=shape, add_batch_rank=batch, add_time_rank=time)


@st.composite
def int_boxes(draw: st.DrawFn, batch: object = False, time: object = False) -> IntBox:
    shape = draw(shapes)
    dtype = draw(st.sampled_from(["int32", "uint8"]))
    kind = draw(st.sampled_from(["unbounded", "categories", "range", "per dimension"]))
    ranks = {"add_batch_rank": batch, "add_time_rank": time}
    if kind == "unbounded":
        return IntBox(shape=shape, dtype=dtype, **ranks)
    if kind == "categories":
        return IntBox(draw(st.integers(1, 256)), shape=shape, dtype=dtype, **ranks)
    if kind == "range":
        return IntBox(
            draw(st.sampled_from([0, 1, 250])), draw(st.integers(251, 256)), shape=shape, dtype=dtype, **ranks
        )
    count = int(np.prod(shape))
    highs = draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    return IntBox(high=np.array(highs, np.int64).reshape(shape), dtype=dtype, **ranks)


@st.composite
def leaves(draw: st.DrawFn, text: bool = True) -> Box:
    batch, time = draw(ranks), draw(ranks)
    kinds = [
        float_boxes(batch, time),
        int_boxes(batch, time),
        shapes.map(lambda shape: BoolBox(shape, batch, time)),
    ]
    if text:
        kinds.append(
            st.sampled_from(["ab", "x", None]).map(
                lambda charset: TextBox(4, 1, charset, add_batch_rank=batch, add_time_rank=time)
            )
        )
    return draw(st.one_of(kinds))


def spaces(text: bool = True) -> st.SearchStrategy[Space]:
    names = st.sampled_from(["a", "b", "c", "a-b", "0", "ä"])
    return st.recursive(
        leaves(text),
        lambda children: (
            st.dictionaries(names, children, max_size=3).map(Dict)
            | st.lists(children, max_size=3).map(lambda entries: Tuple(*entries))
        ),
        max_leaves=6,
    )
