"""Evolution strategies as an agent: the estimate over a real policy, learning from returns alone, errors."""

import numpy as np
import pytest

from rlweave.errors import ConfigError, ExecutionError
from rlweave.extras.es_agent import ES, Generation
from rlweave.extras.evolution import noise_table
from rlweave.spaces import FloatBox, IntBox

BACKENDS = ("numpy", "torch", "jax", "tensorflow")
CONFIG = {"network": [{"type": "dense", "units": 3, "activation": "tanh"}], "noise_size": 1000, "sigma": 0.2}


def make(backend="numpy", actions=None, num_envs=4, **settings):
    actions = IntBox(3) if actions is None else actions
    return ES(FloatBox(shape=(2,)), actions, {**CONFIG, **settings}, num_envs=num_envs, backend=backend, seed=1)


def flat(weights):
    """One vector, in the order of the paths."""
    return np.concatenate([np.ravel(value) for _, value in sorted(weights.items())])


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_gradient_is_the_weighted_noise_less_the_pull_of_the_weights(backend):
    """By a loop over members; ranks of four returns are -1/2, -1/6, 1/6, 1/2."""
    agent = make(backend, weight_decay=0.1)
    weights = agent.get_weights()
    table, length = noise_table(1000, 0), sum(value.size for value in weights.values())
    offsets = np.array([7, 400], np.int32)
    gradients = agent.compute_gradients({"offsets": offsets, "returns": np.array([[3.0, 9.0], [5.0, 4.0]], np.float32)})
    members = [(7, 1, -1 / 2), (7, -1, 1 / 2), (400, 1, 1 / 6), (400, -1, -1 / 6)]
    ascent = sum(rank * sign * table[offset : offset + length] for offset, sign, rank in members) / (4 * 0.2)
    np.testing.assert_allclose(flat(gradients), 0.1 * flat(weights) - ascent, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("acting", [None, "numpy"])
def test_members_stand_around_the_newest_weights_on_either_side(acting):
    agent = make("torch", acting_backend=acting, lr=0.5, actions=FloatBox(shape=(2,)))
    generation = Generation(np.array([3, 90], np.int32), 4)
    agent.update({"offsets": np.array([1, 2], np.int32), "returns": np.array([[1, 2], [4, 3]], np.float32)})
    agent.perturb(generation)
    observations = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    actions = agent.act_perturbed(observations)
    centre = agent.get_weights()
    length = flat(centre).size
    for member, (offset, sign) in enumerate([(3, 1), (3, -1), (90, 1), (90, -1)]):
        shifted = flat(centre) + 0.2 * sign * noise_table(1000, 0)[offset : offset + length]
        paths = sorted(centre)
        parts = np.split(shifted.astype(np.float32), np.cumsum([centre[path].size for path in paths])[:-1])
        agent.set_weights({path: part.reshape(centre[path].shape) for path, part in zip(paths, parts, strict=True)})
        alone = agent.get_actions(observations[member], explore=False)
        np.testing.assert_allclose(actions[member], alone, rtol=1e-4, atol=1e-5)
        agent.set_weights(centre)


def test_it_learns_what_is_worth_more_from_numbers_alone():
    """Returns are minus the squared distance of a member's action from a target, that differs from state to state."""
    agent = make(actions=FloatBox(shape=(1,)), num_envs=32, sigma=0.1, lr=0.05, weight_decay=0.0, noise_size=100_000)
    observations = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)
    targets = np.array([0.8, -0.6], np.float32)
    rng = np.random.default_rng(0)
    for _ in range(150):
        generation = Generation(agent.draw_offsets(rng, 16), 32)
        agent.perturb(generation)
        errors = [
            agent.act_perturbed(np.tile(state, (32, 1)))[:, 0] - y
            for state, y in zip(observations, targets, strict=True)
        ]
        for index, value in enumerate(-np.square(errors).sum(0)):
            generation.finish(index, float(value))
        assert generation.complete
        agent.update({"offsets": generation.offsets, "returns": generation.returns})
    np.testing.assert_allclose(agent.get_actions(observations, explore=False)[:, 0], targets, atol=0.1)


def test_offsets_leave_room_for_a_perturbation():
    agent = make(noise_size=30)
    length = flat(agent.get_weights()).size
    assert length < 30
    offsets = agent.draw_offsets(np.random.default_rng(0), 500)
    assert offsets.dtype == np.int32
    assert (offsets.min(), offsets.max()) == (0, 30 - length)


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="carry no state"):
        make(network=[{"type": "lstm", "units": 4}])
    agent = make()
    with pytest.raises(ExecutionError, match="whole episodes"):
        agent.observe(np.zeros(2), 0, 0.0, False, False)
    with pytest.raises(ExecutionError, match="whole episodes"):
        agent.update()
