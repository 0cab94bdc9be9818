"""The table of components x checks on TensorFlow, and that every component has a descriptor.

The other backends are compared by `check`, in `tests/testing/checks/test_check_all.py`.
"""

import pytest

from rlweave.extras.descriptors import DESCRIPTORS as EXTRAS
from rlweave.graph import registered_components
from rlweave.testing import eager_parity, gradient_parity, state_round_trip, value_parity
from rlweave.testing.component_descriptors import DESCRIPTORS
from rlweave.testing.descriptors import components_of

CHECKS = {check.__name__: check for check in (value_parity, eager_parity, state_round_trip, gradient_parity)}


def cells():
    for descriptor in (*DESCRIPTORS, *EXTRAS):
        for name in CHECKS if "tensorflow" in descriptor.backends else ():
            if name == "value_parity" and descriptor.reference == "tensorflow":
                continue  # with itself
            if name == "gradient_parity" and descriptor.reference != "numpy":
                continue
            rare = name in ("eager_parity", "state_round_trip")  # they depend on the backend the least
            marks = pytest.mark.thorough if rare else ()
            yield pytest.param(descriptor, "tensorflow", name, marks=marks, id=f"{descriptor.name}-tensorflow-{name}")


@pytest.mark.parametrize(("descriptor", "backend", "check"), list(cells()))
def test_component(descriptor, backend, check):
    if check == "state_round_trip":  # the state is the same, and nothing has to be traced
        state_round_trip(descriptor, backend, mode="eager")
    else:
        CHECKS[check](descriptor, backend)


def test_every_component_of_the_library_has_a_descriptor():
    missing = DESCRIPTORS.uncovered(components_of("rlweave.components"))
    assert not missing, f"add descriptors to rlweave/testing/component_descriptors/ for {missing}"


def test_every_component_of_the_extras_has_a_descriptor():
    parts = [cls for cls in components_of("rlweave.extras") if cls.spec_type is not None]
    assert len(parts) == 6
    assert not EXTRAS.uncovered(parts), "add descriptors to rlweave/extras/descriptors.py"


def test_every_registered_component_has_a_descriptor():
    ours = [
        cls
        for cls in registered_components().values()
        if cls.__module__.startswith(("rlweave.components", "rlweave.envs"))
    ]
    assert len(ours) > 20
    assert not DESCRIPTORS.uncovered(ours)


@pytest.mark.parametrize("descriptor", [*DESCRIPTORS, *EXTRAS], ids=lambda descriptor: descriptor.name)
def test_a_descriptor_makes_what_it_covers(descriptor):
    made = {type(component) for component in descriptor.make().tree()}
    assert descriptor.component in made
