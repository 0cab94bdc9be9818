"""Every mutant runs, and differs from what is right: one that does not is no mutant."""

import warnings

import numpy as np
import pytest

from rlweave.errors import RlweaveError
from rlweave.graph.component import api_methods
from rlweave.graph.decorators import GraphFunction
from rlweave.testing.checks.findings import Cause
from rlweave.testing.gradient_parity import build_probe, differentiable_methods, probe_arguments
from rlweave.testing.parity import build_described
from rlweave.tree import flatten_tree, tree_map
from tests.mutants.registry import COMPONENTS

#: What the build finds by itself.
FOUND_BY_THE_BUILD = {Cause.BATCH_TWICE, Cause.RANDOMNESS_OUTSIDE, Cause.INPUT_CHANGED}


def copied(structure):
    return tree_map(lambda leaf: None if leaf is None else np.array(leaf), structure)


def observed(described, sampled, backend="numpy"):
    """Results as they are given and at the end, arguments after the calls, and the state; of three batch sizes."""
    executor = build_described(described, backend, seed=3)
    given, kept, arguments = [], [], []
    for size in sampled.batch_sizes:
        for number, method in enumerate(sampled.methods(executor.root) * 2):
            passed = copied(sampled.sample(executor.root, method, size, seed=number))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of numbers that are not finite
                result = executor.execute(method, **passed, **described.static.get(method, {}))
            given.append(copied(result))
            kept.append(result)
            arguments.append(passed)
    state = {path: value for path, value in executor.state_dict().items() if not path.startswith("random")}
    return {"given": given, "kept": copied(kept), "arguments": copied(arguments), "state": state}


def gradients(described, sampled):
    """Of all methods that have any, on torch."""
    found = {}
    executor = build_probe(described, "gradients", backend="torch")
    start = copied(executor.state_dict())
    arguments = probe_arguments(sampled, executor)
    for method in differentiable_methods(sampled):
        executor.load_state_dict(start)
        found[method] = copied(executor.gradients(arguments, method=method))
    return found


def declarations(component):
    """What graph functions declare."""
    functions = {name: value for cls in reversed(component.__mro__) for name, value in vars(cls).items()}
    return {name: fn.mixes_batch for name, fn in functions.items() if isinstance(fn, GraphFunction)}


def equal(one, other):
    one, other = flatten_tree(one), flatten_tree(other)
    return list(one) == list(other) and all(
        np.array_equal(value, other[path], equal_nan=np.asarray(value).dtype.kind == "f")
        for path, value in one.items()
        if value is not None or other[path] is not None
    )


def differs(mutant):
    right, wrong = mutant.right, mutant.wrong
    if not equal(observed(right, right), observed(wrong, right)):
        return True
    if mutant.cause is Cause.UNNEEDED_DECLARATION:
        return declarations(right.component) != declarations(wrong.component)
    if mutant.cause is Cause.BACKENDS_DIFFER:
        return not equal(observed(right, right, "torch"), observed(wrong, right, "torch"))
    return not equal(gradients(right, right), gradients(wrong, right))


@pytest.mark.parametrize("mutant", COMPONENTS, ids=lambda mutant: mutant.name)
def test_what_is_right_runs_and_gives_finite_numbers(mutant):
    results = observed(mutant.right, mutant.right)
    for path, value in flatten_tree(results["given"]).items():
        assert value is None or np.isfinite(value).all(), path
    assert api_methods(mutant.right.component)


@pytest.mark.parametrize("mutant", COMPONENTS, ids=lambda mutant: mutant.name)
def test_a_mutant_runs_and_differs_from_what_is_right(mutant):
    try:
        found = differs(mutant)
    except RlweaveError:
        if mutant.cause not in FOUND_BY_THE_BUILD:
            raise
        return
    assert found


def test_each_mutant_has_a_name_of_its_own_and_says_what_happened():
    names = [mutant.name for mutant in COMPONENTS]
    assert len(set(names)) == len(names)
    for mutant in COMPONENTS:
        assert issubclass(mutant.wrong.component, mutant.right.component)
        assert mutant.wrong.component.__doc__, "the line about what really happened"
        assert mutant.what_happened != " ".join((mutant.right.component.__doc__ or "").split())
