"""`rlweave check --all` finds nothing in the library: its components on NumPy, torch and JAX, its agents on JAX.

Agents run node by node here, which takes JAX half a minute each: for every change the agents are checked on torch, in
`test_agents.py`, and one on JAX; by `make checks` all on each backend.
"""

import pytest

from rlweave.extras.descriptors import DESCRIPTORS as EXTRAS
from rlweave.testing import check, check_agent
from rlweave.testing.checks.everything import registered, registered_agents

DESCRIPTORS = [*registered(), *EXTRAS]


@pytest.mark.long(minutes=0.03)
@pytest.mark.parametrize("descriptor", DESCRIPTORS, ids=lambda descriptor: descriptor.name)
def test_no_false_alarm_on_a_component_of_the_library(descriptor):
    report = check(descriptor, backends=("numpy", "torch", "jax"))
    assert report.ok, str(report)


@pytest.mark.parametrize(
    ("algorithm", "env"),
    [
        pytest.param(*agent, marks=pytest.mark.slow if agent[0] == "a3c" else pytest.mark.thorough)
        for agent in registered_agents()
    ],
)
def test_no_false_alarm_on_an_agent_of_the_library(algorithm, env):
    report = check_agent(algorithm, env, backend="jax", functions=False)
    assert report.ok, str(report)
