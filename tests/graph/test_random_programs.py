"""Random programs of reads, writes, gradients (nested ones too) and steps equal what an interpreter says they mean."""

import numpy as np
import pytest

from rlweave.errors import BuildError
from tests.graph.random_programs import Program, Refused, finite, interpret, random_program
from tests.graph.toys import GRADIENT_BACKENDS, SCALAR, built, weight

# The build may refuse more than it has to: it knows what depends on what, and not that a derivative is zero.
_REFUSALS = (
    "a variable is written inside a differentiated path",
    "a nested gradient is entangled",
    "the differentiated path starts outside of the body",
)
# What a placement may make impossible.
_PLACES = (
    "a gradient goes over two devices",
    "a gradient goes across a host node, or a node on another device",
    "a gradient is taken by a va",
    "a graph function touches variables on two devices",
    "the body of ",
)


def _run(backend, seeds, length, bodies=0, mode="compiled", places=()):
    outcomes = {"equal": 0, "refused": 0, "left out": 0}
    for seed in seeds:
        rng = np.random.default_rng(seed)
        program = random_program(rng, int(rng.integers(4, length)), bodies)
        state = {"a": 0.7, "b": -0.4, "c": 1.1}
        try:
            expected, after = interpret(program, state, 1.5)
            again, last = interpret(program, after, -0.5)
        except Refused:
            with pytest.raises(BuildError, match="differentiated path"):
                built(Program(program), {"x": SCALAR}, backend, mode=mode)
            outcomes["refused"] += 1
            continue
        if not finite([*expected, *again, *after.values(), *last.values()]):
            outcomes["left out"] += 1
            continue
        device = {name: str(rng.choice(places)) for name in "abc"} if places else None
        try:
            executor = built(Program(program), {"x": SCALAR}, backend, mode=mode, device=device)
            results = executor.run(1.5)
        except BuildError as error:
            allowed = _REFUSALS + (_PLACES if places else ())
            assert error.what.startswith(allowed), error  # noqa: PT017 - which refusals are allowed
            outcomes["refused"] += 1
            continue
        for x, wanted, state_after in ((1.5, expected, after), (-0.5, again, last)):
            results = executor.run(x) if x != 1.5 else results
            np.testing.assert_allclose(results, wanted, rtol=1e-3, atol=1e-3, err_msg=f"seed {seed}: {program}")
            held = [weight(executor, f"/{name}/content") for name in "abc"]
            np.testing.assert_allclose(held, list(state_after.values()), rtol=1e-3, atol=1e-3, err_msg=f"seed {seed}")
        outcomes["equal"] += 1
    return outcomes


@pytest.mark.parametrize("mode", ["compiled", "eager"])
@pytest.mark.parametrize("backend", GRADIENT_BACKENDS)
def test_random_programs_mean_what_the_interpreter_says(backend, mode):
    outcomes = _run(backend, range(20), 16, mode=mode)
    assert outcomes["equal"] >= 15, outcomes


@pytest.mark.parametrize("backend", GRADIENT_BACKENDS)
def test_random_programs_with_loops_and_branches_mean_what_the_interpreter_says(backend):
    outcomes = _run(backend, range(25), 9, bodies=2)
    assert outcomes["equal"] >= 12, outcomes


@pytest.mark.slow
@pytest.mark.parametrize("bodies", [0, 2])
@pytest.mark.parametrize(
    "backend",
    [pytest.param(name, marks=() if name == "torch" else pytest.mark.thorough) for name in GRADIENT_BACKENDS],
)
def test_many_random_programs_mean_what_the_interpreter_says(backend, bodies):
    outcomes = _run(backend, range(100, 200), 20, bodies)
    assert outcomes["equal"] >= 30, outcomes


def test_random_programs_in_random_places_mean_what_the_interpreter_says():
    outcomes = _run("jax", range(40), 14, places=("cpu:0", "cpu:1"))
    assert outcomes["equal"] >= 10, outcomes
