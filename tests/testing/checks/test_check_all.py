"""`rlweave check --all` finds nothing in the library: each of its components, compared on NumPy, torch and JAX."""

import pytest

from rlweave.extras.descriptors import DESCRIPTORS as EXTRAS
from rlweave.testing import check
from rlweave.testing.checks.everything import registered

#: TensorFlow, which traces for long, has its cells in `tests/testing/test_conformance.py`.
BACKENDS = ("numpy", "torch", "jax")


@pytest.mark.parametrize("descriptor", [*registered(), *EXTRAS], ids=lambda descriptor: descriptor.name)
def test_no_false_alarm_on_a_component_of_the_library(descriptor):
    report = check(descriptor, backends=BACKENDS)
    assert report.ok, str(report)
