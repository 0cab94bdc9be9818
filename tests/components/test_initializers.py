import numpy as np
import pytest

from rlweave.components.initializers import make_initializer, orthogonal_spec
from rlweave.errors import ConfigError, SpecError


def drawn(spec, shape, activation=None):
    from rlweave.graph.variable import INITIALIZERS

    initializer = make_initializer(spec, activation)
    function = INITIALIZERS[initializer] if isinstance(initializer, str) else initializer
    return function(np.random.default_rng(0), shape)


def test_orthogonal_columns_have_the_gain_as_length():
    kernel = drawn(orthogonal_spec(0.5), (40, 7))
    np.testing.assert_allclose(kernel.T @ kernel, 0.25 * np.eye(7), atol=1e-12)


def test_a_spec_without_a_gain_is_the_name():
    np.testing.assert_array_equal(drawn({"type": "glorot_uniform"}, (5, 3)), drawn("glorot_uniform", (5, 3)))


def test_a_gain_scales_any_named_initializer():
    plain, scaled = drawn("glorot_uniform", (5, 3)), drawn({"type": "glorot_uniform", "gain": 3.0}, (5, 3))
    np.testing.assert_allclose(scaled, 3.0 * plain)


@pytest.mark.parametrize(("activation", "variance"), [("relu", 2), ("silu", 2), ("tanh", 1), (None, 1)])
def test_the_default_follows_the_activation(activation, variance):
    assert np.var(drawn(None, (400, 400), activation)) * 400 == pytest.approx(variance, rel=0.03)


def test_numbers_and_arrays_pass():
    array = np.ones((2, 3))
    assert make_initializer(0.5) == 0.5
    assert make_initializer(array) is array


@pytest.mark.parametrize("spec", [np.nan, np.inf, {"type": "orthogonal", "gain": np.nan}])
def test_numbers_have_to_be_finite(spec):
    with pytest.raises(ConfigError, match="initial value|gain"):
        make_initializer(spec)


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("ortogonal", "orthogonal"),
        ({"type": "orthogonal", "gian": 1.0}, "gain"),
        ({"gain": 1.0}, "orthogonal"),
        ({"type": "he_norml"}, "he_normal"),
    ],
)
def test_wrong_specs_name_the_nearest_right_one(spec, hint):
    with pytest.raises(SpecError, match=hint):
        make_initializer(spec)
