"""Evolution strategies: the noise table, centred ranks and the mirrored estimate, against loops and closed forms."""

import numpy as np
import pytest

from rlweave.errors import BuildError, ConfigError
from rlweave.extras.evolution import EvolutionStrategy, NoiseTable, noise_table
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import FloatBox, IntBox
from rlweave.testing import ComponentTest

BACKENDS = ("numpy", "torch", "jax", "tensorflow")
LENGTH = 7


def noise_test(backend, size=50, seed=3):
    spaces = {"offsets": IntBox(size, add_batch_rank=True), "weights": FloatBox(add_batch_rank=True)}
    static = {"rows": {"length": LENGTH}, "combine": {"length": LENGTH}}
    return ComponentTest(NoiseTable(size, seed), spaces, backend, static=static)


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_are_parts_of_the_table_and_their_combination_is_the_weighted_sum(backend):
    test = noise_test(backend)
    table = noise_table(50, 3)
    offsets = np.array([0, 43, 5, 5], np.int32)
    rows = np.stack([table[offset : offset + LENGTH] for offset in offsets])
    test.test("rows", offsets, length=LENGTH, expected=rows, rtol=0, atol=0)
    weights = np.array([0.5, -2.0, 1.0, 3.0], np.float32)
    expected = sum(float(weight) * row.astype(np.float64) for weight, row in zip(weights, rows, strict=True))
    test.test("combine", offsets, weights, length=LENGTH, expected=expected)


def test_sums_over_many_rows_are_taken_in_parts(monkeypatch):
    expected = noise_test("numpy").test(
        "combine", np.arange(40, dtype=np.int32), np.ones(40, np.float32), length=LENGTH
    )
    monkeypatch.setattr("rlweave.extras.evolution._CHUNK", 3 * LENGTH)
    test = noise_test("numpy")
    test.test("combine", np.arange(40, dtype=np.int32), np.ones(40, np.float32), length=LENGTH, expected=expected)


def test_the_table_is_standard_normal_a_function_of_its_seed_made_once_and_in_no_checkpoint():
    table = noise_table(100_000, 1)
    assert noise_table(100_000, 1) is table
    assert not np.array_equal(table, noise_table(100_000, 2))
    assert abs(table.mean()) < 0.02
    assert abs(table.std() - 1.0) < 0.02
    with pytest.raises(ValueError, match="read-only"):
        table[0] = 1.0
    assert not [path for path in noise_test("numpy").executor.state_dict() if not path.startswith("random")]


def test_a_table_shorter_than_a_perturbation_is_refused():
    with pytest.raises(BuildError, match="shorter than one perturbation"):
        noise_test("numpy", size=LENGTH - 1)
    with pytest.raises(ConfigError, match="size is out of range"):
        NoiseTable(0)


class _Ranks(Component):
    @api
    def ranks(self, returns):
        return self._ranks(returns)

    @graph_fn(mixes_batch=True)
    def _ranks(self, returns):
        from rlweave.extras.evolution import centred_ranks

        return centred_ranks(returns)


def looped_ranks(returns):
    """By counting who is worse, and half of who is equal."""
    found = []
    for mine in returns:
        worse = sum(other < mine for other in returns)
        equal = sum(other == mine for other in returns) - 1
        found.append((worse + equal / 2) / (len(returns) - 1) - 0.5)
    return np.array(found)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("returns", [[3.0, 1.0], [5.0, -2.0, 5.0, 0.0, 5.0, 7.5], [1.0] * 5, [1e8, -1e8, 0.0, 1e-8]])
def test_centred_ranks_count_who_is_worse(backend, returns):
    test = ComponentTest(_Ranks("ranks"), {"returns": FloatBox(add_batch_rank=True)}, backend)
    returns = np.array(returns, np.float32)
    ranks = test.test("ranks", returns, expected=looped_ranks(returns))
    assert abs(ranks.sum()) < 1e-6
    np.testing.assert_allclose(test.test("ranks", returns**3), ranks, atol=1e-6)  # only the order counts


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_mirrored_estimate_is_that_of_the_paper(backend):
    """Algorithm 1 over all 2n members, each with its own noise: 1 / (2 n sigma) * sum_j F_j eps_j."""
    spaces = {
        "returns": FloatBox(shape=(2,), add_batch_rank=True),
        "centre": FloatBox(shape=(3,)),
        "noise": FloatBox(shape=(3,), add_batch_rank=True),
        "signs": FloatBox(add_batch_rank=True),
    }
    test = ComponentTest(EvolutionStrategy(0.2), spaces, backend)
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(5, 3)).astype(np.float32)
    returns = rng.integers(0, 4, (5, 2)).astype(np.float32)  # some are equal
    ranks = looped_ranks(returns.reshape(-1)).reshape(5, 2)
    expected = np.zeros(3)
    for i in range(5):
        for column, sign in enumerate((1.0, -1.0)):
            expected += ranks[i, column] * sign * noise[i]
    np.testing.assert_allclose(test.test("weights", returns) @ noise, expected / (10 * 0.2), rtol=1e-5, atol=1e-6)

    centre, signs = np.array([1.0, 2.0, 3.0], np.float32), np.array([1, -1, 1, -1, 1], np.float32)
    test.test("perturb", centre, noise, signs, expected=centre + 0.2 * signs[:, None] * noise)


def test_pairs_that_gain_the_same_count_nothing():
    test = ComponentTest(EvolutionStrategy(0.1), {"returns": FloatBox(shape=(2,), add_batch_rank=True)})
    weights = test.test("weights", np.array([[500, 500], [500, 500], [500, 20]], np.float32))
    np.testing.assert_allclose(weights[:2], 0.0, atol=1e-6)
    assert weights[2] > 0


def test_the_estimate_points_along_the_gradient():
    """Of a linear return, whose gradient is the same everywhere: the cosine with many pairs is close to 1."""
    gradient = np.array([3.0, -1.0, 0.5])
    noise = np.random.default_rng(1).normal(size=(4000, 3))
    returns = np.stack([noise @ gradient, -noise @ gradient], axis=1).astype(np.float32)
    test = ComponentTest(EvolutionStrategy(1.0), {"returns": FloatBox(shape=(2,), add_batch_rank=True)})
    found = test.test("weights", returns) @ noise
    assert found @ gradient / np.linalg.norm(found) / np.linalg.norm(gradient) > 0.99


def test_a_perturbation_has_a_size():
    with pytest.raises(ConfigError, match="sigma is out of range"):
        EvolutionStrategy(0.0)
