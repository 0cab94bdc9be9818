"""Test harness: components alone, and checks that run over all of them.

`ComponentTest` builds any component alone. A `Descriptor` says how, so that the checks of `rlweave.testing.parity` can
run over a whole registry (`rlweave.testing.component_descriptors` for the library's own). `check` finds the silent bugs
of a component with no test written for it, `check_agent` and `check_env` those of agents and
environments.
"""

from rlweave.testing.checks.agents.checking import check_agent
from rlweave.testing.checks.checking import check
from rlweave.testing.checks.environments import check_env
from rlweave.testing.checks.findings import Cause, Finding, Report
from rlweave.testing.component_test import ComponentTest
from rlweave.testing.descriptors import Descriptor, Registry, ScaleLaw, components_of
from rlweave.testing.gradient_parity import gradient_parity
from rlweave.testing.parity import eager_parity, state_round_trip, value_parity

__all__ = [
    "Cause",
    "ComponentTest",
    "Descriptor",
    "Finding",
    "Registry",
    "Report",
    "ScaleLaw",
    "check",
    "check_agent",
    "check_env",
    "components_of",
    "eager_parity",
    "gradient_parity",
    "state_round_trip",
    "value_parity",
]
