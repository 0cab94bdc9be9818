"""Discounted sums against a loop over time, on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlweave.ops import backend_module
from tests.backends.op_cases import load_tensorflow

BACKENDS = ["numpy", "torch", "jax"] + (["tensorflow"] if load_tensorflow() is not None else [])


def looped(x: np.ndarray, decays: np.ndarray) -> np.ndarray:
    sums: Any = np.zeros_like(x)
    for t in reversed(range(len(x))):
        sums[t] = x[t] + (decays[t] * sums[t + 1] if t + 1 < len(x) else 0.0)
    return sums


@pytest.mark.parametrize("backend", BACKENDS)
def test_discounted_sums_are_those_of_a_loop(backend: str) -> None:
    rng = np.random.default_rng(6)
    for steps in (0, 1, 2, 3, 5, 16, 17):
        x, decays = rng.normal(size=(2, steps, 2, 3)).astype(np.float32)
        module = backend_module(backend)
        found = np.asarray(module.discounted_sums(module.asarray(x), module.asarray(decays)))
        np.testing.assert_allclose(found, looped(x, decays), rtol=1e-5, atol=1e-6, err_msg=f"{steps} steps")


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_element_needs_a_decay(backend: str) -> None:
    module = backend_module(backend)
    with pytest.raises(ValueError, match="a decay for each element"):
        module.discounted_sums(module.asarray(np.ones((3, 2), np.float32)), module.asarray(np.ones(3, np.float32)))
