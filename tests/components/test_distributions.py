import numpy as np
import pytest

from rlweave.components import Bernoulli, Categorical, Normal
from rlweave.components.distributions import LOG_STD_RANGE, MASKED
from rlweave.spaces import BoolBox, FloatBox, IntBox
from rlweave.testing import ComponentTest
from tests.components.gradient_probes import BACKENDS, DIFFERENTIABLE, input_gradients

INF = float("inf")


def categorical(n, backend, **options):
    logits = FloatBox(shape=(n,), add_batch_rank=True)
    spaces = {"logits": logits, "others": logits, "values": IntBox(n, add_batch_rank=True)}
    return ComponentTest(
        Categorical(), {**spaces, "allowed": BoolBox(shape=(n,), add_batch_rank=True)}, backend, **options
    )


def bernoulli(backend, **options):
    logits = FloatBox(shape=(5,), add_batch_rank=True)
    spaces = {"logits": logits, "others": logits, "values": BoolBox(shape=(5,), add_batch_rank=True)}
    return ComponentTest(Bernoulli(), spaces, backend, **options)


def normal(backend, **options):
    box = FloatBox(shape=(5,), add_batch_rank=True)
    names = ("mean", "log_std", "values", "other_mean", "other_log_std")
    return ComponentTest(Normal(), dict.fromkeys(names, box), backend, **options)


# -- categorical -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_categorical_closed_forms(backend):
    p, q = np.array([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]), np.array([[0.2, 0.2, 0.6], [0.3, 0.3, 0.4]])
    # logits are probabilities up to any factor
    logits = (np.log(p) + np.array([[3.0], [-70.0]])).astype(np.float32)
    test = categorical(3, backend)
    values = np.array([1, 2], np.int32)
    test.test("log_prob", logits, values, expected=np.log([0.25, 0.7]), atol=1e-5)
    test.test("entropy", logits, expected=-np.sum(p * np.log(p), -1), atol=1e-5)
    test.test("kl", logits, np.log(q).astype(np.float32), expected=np.sum(p * np.log(p / q), -1), atol=1e-5)
    test.test("mode", logits, expected=np.array([0, 2], np.int32))
    assert test.test("mode", logits).dtype == np.int32


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("masked", [-INF, MASKED])
def test_a_masked_category_counts_as_absent(backend, masked):
    logits = np.array([[0, 0, masked]], np.float32)
    test = categorical(3, backend)
    test.test("entropy", logits, expected=np.log([2.0]))
    test.test("log_prob", logits, np.array([1], np.int32), expected=-np.log([2.0]))
    test.test("kl", logits, np.zeros((1, 3), np.float32), expected=np.log([1.5]))
    refused = test.test("log_prob", logits, np.array([2], np.int32))
    assert np.isfinite(refused).all()
    assert np.exp(refused) == 0


@pytest.mark.parametrize("backend", DIFFERENTIABLE)
@pytest.mark.parametrize("masked", [-INF, MASKED])
def test_gradients_of_masked_logits_are_finite(backend, masked):
    logits = {"logits": [[0.0, 1.0, masked], [2.0, 0.0, 0.0]]}
    _, found = input_gradients(Categorical(), lambda c, x: c.entropy(x["logits"]), logits, backend)
    assert np.isfinite(found["logits"]).all()
    assert found["logits"][0, 2] == 0
    p = np.exp([0.0, 1.0]) / np.exp([0.0, 1.0]).sum()
    expected = -p * (np.log(p) + -np.sum(p * np.log(p)))
    np.testing.assert_allclose(found["logits"][0, :2], expected, rtol=1e-4, atol=1e-6)
    for values in ([0, 0], [2, 0]):  # the masked action itself, too
        _, found = input_gradients(
            Categorical(), lambda c, x, v=values: c.log_prob(x["logits"], np.array(v, np.int32)), logits, backend
        )
        assert np.isfinite(found["logits"]).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_where_all_are_masked_all_are_equal(backend):
    logits = np.full((1, 4), -INF, np.float32)
    test = categorical(4, backend)
    test.test("entropy", logits, expected=np.log([4.0]))
    test.test("log_prob", logits, np.array([3], np.int32), expected=-np.log([4.0]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_masks(backend):
    allowed = np.array([[True, False, True]])
    test = categorical(3, backend)
    masked = test.test("mask", np.array([[1, 5, 2]], np.float32), allowed)
    np.testing.assert_allclose(masked, [[1, MASKED, 2]])
    test.test("mode", masked, expected=np.array([2], np.int32))


@pytest.mark.parametrize("backend", BACKENDS)
def test_samples_have_the_probabilities(backend):
    p = np.array([0.5, 0.3, 0.2, 0.0])
    with np.errstate(divide="ignore"):
        logits = np.tile(np.log(p), (20000, 1)).astype(np.float32)
    test = categorical(4, backend, rng="portable")
    counts = np.bincount(test.test("sample", logits), minlength=4)
    assert counts[3] == 0
    np.testing.assert_allclose(counts / 20000, p, atol=0.015)


@pytest.mark.parametrize("backend", BACKENDS)
def test_large_logits_stay_finite(backend):
    logits = np.array([[1000.0, -1000.0, 0.0]], np.float32)
    test = categorical(3, backend)
    test.test("entropy", logits, expected=np.zeros(1), atol=1e-6)
    test.test("log_prob", logits, np.array([1], np.int32), expected=np.array([-2000.0]))


# -- bernoulli ---------------------------------------------------------------------------------------------------

P = np.array([[0.1, 0.2, 0.3, 0.4, 0.5]])


@pytest.mark.parametrize("backend", BACKENDS)
def test_bernoulli_oracle(backend):
    test, logits = bernoulli(backend), np.log(P / (1 - P)).astype(np.float32)
    values = np.array([[True, False, False, True, True]])
    test.test(
        "log_prob", logits, values, expected=np.array([[-2.3025851, -0.2231436, -0.3566749, -0.9162907, -0.6931472]])
    )
    test.test("entropy", logits, expected=np.array([[0.3250830, 0.5004024, 0.6108643, 0.6730117, 0.6931472]]))
    q = P[:, ::-1]
    kl = P * np.log(P / q) + (1 - P) * np.log((1 - P) / (1 - q))
    test.test("kl", logits, np.log(q / (1 - q)).astype(np.float32), expected=kl)
    test.test("mode", np.array([[-1, 1, 0, 3, -5]], np.float32), expected=np.array([[False, True, False, True, False]]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_bernoulli_samples(backend):
    logits = np.tile(np.log(P / (1 - P)), (20000, 1)).astype(np.float32)
    draws = bernoulli(backend, rng="portable").test("sample", logits)
    assert draws.dtype == bool
    np.testing.assert_allclose(draws.mean(0), P[0], atol=0.015)


@pytest.mark.parametrize("backend", DIFFERENTIABLE)
def test_bernoulli_gradients_at_the_edges(backend):
    logits = {"logits": [[1000.0, -1000.0, 0.0]]}
    values = np.array([[False, True, True]])
    total, found = input_gradients(Bernoulli(), lambda c, x: c.log_prob(x["logits"], values), logits, backend)
    assert total == pytest.approx(-2000 - np.log(2), rel=1e-5)
    np.testing.assert_allclose(found["logits"], [[-1, 1, 0.5]], atol=1e-6)
    total, found = input_gradients(Bernoulli(), lambda c, x: c.entropy(x["logits"]), logits, backend)
    assert total == pytest.approx(np.log(2), rel=1e-5)
    np.testing.assert_allclose(found["logits"], np.zeros((1, 3)), atol=1e-6)


# -- normal ------------------------------------------------------------------------------------------------------

MEAN = np.array([[0.1, 0.2, 0.3, 0.4, 100]], np.float32)
STD = np.array([[0.8, 0.2, 0.3, 2, 50]], np.float32)


@pytest.mark.parametrize("backend", BACKENDS)
def test_normal_oracle(backend):
    test = normal(backend)
    values = np.array([[1, 2, 0.4, 10, 5.4]], np.float32)
    expected = np.array([[-1.3286075, -39.8095006, 0.2294787, -13.1320857, -6.6207935]])
    test.test("log_prob", MEAN, np.log(STD), values, expected=expected, rtol=2e-5)
    test.test("entropy", MEAN, np.log(STD), expected=0.5 * np.log(2 * np.pi * np.e * STD**2))
    other = STD[:, ::-1].copy()
    kl = np.log(other / STD) + (STD**2 + (MEAN - 1) ** 2) / (2 * other**2) - 0.5
    test.test("kl", MEAN, np.log(STD), np.ones_like(MEAN), np.log(other), expected=kl, rtol=1e-4)
    test.test("mode", MEAN, np.log(STD), expected=MEAN)


@pytest.mark.parametrize("backend", BACKENDS)
def test_normal_samples(backend):
    size = (20000, 1)
    draws = normal(backend, rng="portable").test("sample", np.tile(MEAN, size), np.tile(np.log(STD), size))
    np.testing.assert_allclose(((draws - MEAN) / STD).mean(0), 0, atol=0.03)
    np.testing.assert_allclose(((draws - MEAN) / STD).std(0), 1, atol=0.02)


@pytest.mark.parametrize("backend", DIFFERENTIABLE)
@pytest.mark.parametrize("log_std", [1000.0, -1000.0, LOG_STD_RANGE[1] + 0.1])
def test_extreme_log_stds_are_clamped_with_finite_gradients(backend, log_std):
    inputs = {"mean": [[0.5]], "log_std": [[log_std]], "values": [[3.0]]}
    total, found = input_gradients(
        Normal(), lambda c, x: c.log_prob(x["mean"], x["log_std"], x["values"]), inputs, backend
    )
    clamped = np.clip(log_std, *LOG_STD_RANGE)
    z = 2.5 / np.exp(clamped)
    assert total == pytest.approx(-0.5 * z * z - clamped - 0.5 * np.log(2 * np.pi), rel=1e-4)
    assert np.isfinite(found["mean"]).all()
    assert found["log_std"] == 0
    for call in (
        lambda c, x: c.entropy(x["mean"], x["log_std"]),
        lambda c, x: c.kl(x["mean"], x["log_std"], x["mean"] * 2.0, x["log_std"] * -1.0),
        lambda c, x: c.sample(x["mean"], x["log_std"]),
    ):
        total, found = input_gradients(Normal(), call, inputs, backend)
        assert np.isfinite(total)
        assert all(np.isfinite(gradient).all() for gradient in found.values())


@pytest.mark.parametrize("backend", DIFFERENTIABLE)
def test_samples_are_reparameterized(backend):
    inputs = {"mean": [[0.5]], "log_std": [[0.3]]}
    total, found = input_gradients(Normal(), lambda c, x: c.sample(x["mean"], x["log_std"]), inputs, backend)
    np.testing.assert_allclose(found["mean"], [[1.0]])
    np.testing.assert_allclose(found["log_std"], [[total - 0.5]], rtol=1e-5)
