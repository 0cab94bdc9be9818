"""Sessions of ONNX Runtime, with the threads that this process gives to kernels."""

from __future__ import annotations

import os
from typing import Any

import onnxruntime

_threads: int | None = None


def set_threads(threads: int) -> None:
    """How many threads each session made from now on computes with."""
    global _threads
    _threads = threads


def make_session(content: bytes, quiet: bool = False) -> Any:
    """A session on the CPU for a serialized model.

    Args:
        content: The model.
        quiet: Errors are raised only, and not written to stderr as well.
    """
    options = onnxruntime.SessionOptions()
    # as the other frameworks: what was asked for, else OMP_NUM_THREADS, else (0) all cores
    told = os.environ.get("OMP_NUM_THREADS", "")
    options.intra_op_num_threads = _threads or (int(told) if told.isdigit() else 0)
    options.inter_op_num_threads = 1
    # between two calls its threads would run in circles, on cores that environments and the learner need
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 4 if quiet else 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
