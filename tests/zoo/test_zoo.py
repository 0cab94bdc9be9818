"""Every agent lives with every space that it can take, and says of the others why not and what can.

Each of the first agents with every observation space and every action space, and a part of the spaces for the others;
of the whole product (with recurrent networks and masks too) a sample. `--thorough` has all of it.
"""

import itertools
import random

import pytest

from rlweave.components.action_leaves import FLOATS
from rlweave.errors import RlweaveError
from tests.zoo.lives import KINDS, Cell, live, refusal
from tests.zoo.spaces import ACTIONS, OBSERVATIONS, REFUSED_ACTIONS, REFUSED_OBSERVATIONS

#: One for each way in which agents read observations and learn.
FIRST = ("ppo", "dqn", "sac", "es", "maml")
RECURRENT = tuple(name for name, kind in KINDS.items() if kind.recurrent)
#: Of the spaces of the other agents one in so many is a slow test; all are with `--thorough`.
ONE_IN = 12
#: How many cells of the product are lived through, besides the rows.
SAMPLED = {"torch": 30, "jax": 6}
#: The first so many of them in CI.
FIRST_SAMPLED = {"torch": 15, "jax": 2}


def usual_actions(kind):
    """Actions that an agent takes: those that masks are for, if it can."""
    return "discrete with start" if "categorical" in KINDS[kind].actions else "nested floats"


def settle(cell, backend, directory):
    """Lives in a cell, or is refused as the table says."""
    refused = refusal(cell)
    if refused is None:
        live(cell, backend, directory)
    else:
        check_refused(refused, cell)


def check_refused(refused, cell):
    """The error comes before anything is built, and its four parts name the leaf, the reason and what can be taken."""
    with pytest.raises(RlweaveError) as caught:
        cell.construct().check_components()
    error = caught.value
    assert refused.why in error.what
    assert refused.leaf in f"{error.where} {error.received}"
    assert error.where
    assert error.received
    assert refused.instead in error.fix


def pairs(kinds, spaces, first=FIRST):
    """Parameters: all spaces with the first agents; with the others every agent and every space in some pair."""
    found = []
    for row, kind in enumerate(kinds):
        for column, name in enumerate(spaces):
            late = pytest.mark.thorough if (row + column) % ONE_IN else pytest.mark.slow
            found.append(pytest.param(kind, name, marks=() if kind in first else late))
    return found


@pytest.mark.parametrize(("kind", "observations"), pairs(KINDS, OBSERVATIONS, first=("ppo", "dqn", "sac")))
def test_every_agent_takes_every_observation_space(kind, observations, tmp_path):
    settle(Cell(kind, OBSERVATIONS[observations], ACTIONS[usual_actions(kind)]), "torch", tmp_path)


@pytest.mark.parametrize(("kind", "actions"), pairs(KINDS, ACTIONS))
def test_every_agent_takes_every_action_space_or_says_what_does(kind, actions, tmp_path):
    settle(Cell(kind, OBSERVATIONS["vector"], ACTIONS[actions]), "torch", tmp_path)


@pytest.mark.parametrize(("kind", "actions"), pairs(KINDS, ACTIONS, first=("dqn", "sac", "es")))
def test_recurrent_networks_with_every_action_space(kind, actions, tmp_path):
    settle(Cell(kind, OBSERVATIONS["number"], ACTIONS[actions], recurrent=True), "torch", tmp_path)


@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_masks_with_every_action_space(kind, actions, tmp_path):
    settle(Cell(kind, OBSERVATIONS["flag"], ACTIONS[actions], masked=True), "torch", tmp_path)


@pytest.mark.parametrize(
    ("kind", "observations"),
    [
        # every space once, and every agent
        pytest.param(kind, name, marks=() if number % 5 == 0 else pytest.mark.slow)
        for number, (name, kind) in enumerate(zip(OBSERVATIONS, itertools.cycle(RECURRENT), strict=False))
    ],
)
def test_masks_and_recurrent_networks_with_every_observation_space(kind, observations, tmp_path):
    actions = ACTIONS["discrete with start"]
    settle(Cell(kind, OBSERVATIONS[observations], actions, recurrent=True, masked=True), "torch", tmp_path)


@pytest.mark.parametrize("name", REFUSED_OBSERVATIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_observations_that_nobody_takes_are_refused(kind, name):
    refused = REFUSED_OBSERVATIONS[name]
    check_refused(refused, Cell(kind, refused.space, ACTIONS[usual_actions(kind)]))


@pytest.mark.parametrize("name", REFUSED_ACTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_actions_that_nobody_takes_are_refused(kind, name):
    refused = REFUSED_ACTIONS[name]
    cell = Cell(kind, OBSERVATIONS["vector"], refused.space)
    takes_floats_only = KINDS[kind].actions == FLOATS and "integers" in name
    check_refused(refusal(cell) if takes_floats_only else refused, cell)


def product(kind, observations):
    """All cells of an agent and an observation space."""
    for actions, recurrent, masked in itertools.product(ACTIONS, (False, True), (False, True)):
        yield Cell(kind, OBSERVATIONS[observations], ACTIONS[actions], recurrent, masked)


def sample(backend):
    """Cells of the whole product in which somebody lives, and their names; the same ones always."""
    rng, found = random.Random(0), []
    while len(found) < SAMPLED[backend]:
        names = rng.choice(list(KINDS)), rng.choice(list(OBSERVATIONS)), rng.choice(list(ACTIONS))
        recurrent, masked = rng.random() < 0.5, rng.random() < 0.3
        cell = Cell(names[0], OBSERVATIONS[names[1]], ACTIONS[names[2]], recurrent, masked)
        if refusal(cell) is None:
            how = ["recurrent"] * recurrent + ["masked"] * masked
            late = pytest.mark.slow if len(found) < FIRST_SAMPLED[backend] else pytest.mark.thorough
            found.append(pytest.param(cell, marks=late, id="-".join([*names, *how])))
    return found


@pytest.mark.parametrize("cell", sample("torch"))
def test_a_sample_of_the_whole_product(cell, tmp_path):
    live(cell, "torch", tmp_path)


@pytest.mark.parametrize("recurrent", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["ppo", "dqn"])
def test_every_kind_of_leaf_at_once_on_jax(kind, recurrent, tmp_path):
    spaces = OBSERVATIONS["mixed"], ACTIONS[usual_actions(kind)]
    settle(Cell(kind, *spaces, recurrent, masked=recurrent), "jax", tmp_path)


@pytest.mark.parametrize("cell", sample("jax"))
def test_a_sample_of_the_whole_product_on_jax(cell, tmp_path):
    live(cell, "jax", tmp_path)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("observations", OBSERVATIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_product(kind, observations, tmp_path):
    for number, cell in enumerate(product(kind, observations)):
        settle(cell, "torch", tmp_path / str(number))
