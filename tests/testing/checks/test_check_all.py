"""`rlweave check --all` finds nothing in the library: its components on NumPy, torch and JAX, its agents on JAX.

What runs on the reference backend alone is not repeated for JAX, which takes its time to compile: there values and
gradients are compared, for one batch size. Eager mode and saved states, which depend on the backend the least, and all
batch sizes are left to `make checks`.

Agents run node by node here, which takes JAX half a minute each: for every change the agents are checked on torch, in
`test_agents.py`, and one on JAX; by `make checks` all on each backend.
"""

from dataclasses import replace

import pytest

from rlweave.extras.descriptors import DESCRIPTORS as EXTRAS
from rlweave.testing import check, check_agent
from rlweave.testing.checks.checking import run_checks
from rlweave.testing.checks.everything import registered, registered_agents
from rlweave.testing.checks.parity import backends_agree, gradients_are_right
from rlweave.testing.checks.subject import Subject

DESCRIPTORS = [*registered(), *EXTRAS]


@pytest.mark.parametrize("descriptor", DESCRIPTORS, ids=lambda descriptor: descriptor.name)
def test_no_false_alarm_on_a_component_of_the_library(descriptor):
    own = ("jax",) if descriptor.reference == "jax" else ()
    report = check(descriptor, backends=("numpy", "torch", *own))
    assert report.ok, str(report)


@pytest.mark.parametrize(
    "descriptor",
    [descriptor for descriptor in DESCRIPTORS if "jax" in descriptor.backends and descriptor.reference != "jax"],
    ids=lambda descriptor: descriptor.name,
)
def test_no_false_alarm_on_jax(descriptor):
    subject = Subject(replace(descriptor, batch_sizes=descriptor.batch_sizes[-1:]), ["jax"])
    report = run_checks(descriptor.name, subject, (gradients_are_right, backends_agree))
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
