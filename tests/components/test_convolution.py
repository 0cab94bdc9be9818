import numpy as np
import pytest

from rlweave.components import Conv2D, Network, nature_cnn
from rlweave.errors import BuildError, SpecError
from rlweave.spaces import FloatBox, IntBox
from rlweave.testing import ComponentTest
from tests.components.gradient_probes import BACKENDS, DIFFERENTIABLE, weight_gradients


def images(*shape, layout="channels_last", **ranks):
    return FloatBox(-1, 1, shape=shape, layout=layout, add_batch_rank=True, **ranks)


def convolved(x, kernel, stride, padding):
    """Loops over (N, H, W, C)."""
    (height, width, _, filters), (rows, columns) = kernel.shape, x.shape[1:3]
    if padding == "same":
        pads = []
        for size, k, s in zip((rows, columns), (height, width), stride, strict=True):
            total = max((-(-size // s) - 1) * s + k - size, 0)
            pads.append((total // 2, total - total // 2))
        x = np.pad(x, ((0, 0), *pads, (0, 0)))
    out = [(size - k) // s + 1 for size, k, s in zip(x.shape[1:3], (height, width), stride, strict=True)]
    result = np.zeros((len(x), *out, filters))
    for i in range(out[0]):
        for j in range(out[1]):
            patch = x[:, i * stride[0] : i * stride[0] + height, j * stride[1] : j * stride[1] + width]
            result[:, i, j] = np.einsum("nhwc,hwcf->nf", patch, kernel)
    return result


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("stride", "padding"), [(1, "valid"), ((2, 1), "same"), (3, "valid")])
def test_it_equals_loops(backend, stride, padding):
    layer = Conv2D(4, (3, 2), stride, padding, "relu", bias_initializer=0.1)
    test = ComponentTest(layer, {"inputs": images(7, 6, 3)}, backend)
    x = test.sample("inputs", 2)
    pair = (stride, stride) if isinstance(stride, int) else stride
    expected = np.maximum(convolved(x, test.variables()["kernel"], pair, padding) + 0.1, 0)
    test.test("call", x, expected=expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("use_bias", [True, False])
def test_an_activation_of_its_own_follows_the_convolution(backend, use_bias):
    options = {"activation": "sigmoid", "bias_initializer": 0.1, "use_bias": use_bias}
    test = ComponentTest(Conv2D(4, (3, 2), (2, 1), "same", **options), {"inputs": images(7, 6, 3)}, backend)
    x = test.sample("inputs", 2)
    outputs = convolved(x, test.variables()["kernel"], (2, 1), "same") + (0.1 if use_bias else 0.0)
    test.test("call", x, expected=1 / (1 + np.exp(-outputs)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_leading_ranks_are_folded_and_unfolded(backend):
    flat = ComponentTest(Conv2D(2, 3), {"inputs": images(5, 5, 1)}, backend)
    deep = ComponentTest(Conv2D(2, 3), {"inputs": images(5, 5, 1, add_time_rank=True)}, backend)
    x = deep.sample("inputs", (3, 4))
    expected = flat.test("call", x.reshape(12, 5, 5, 1)).reshape(3, 4, 3, 3, 2)
    deep.test("call", x, expected=expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_declared_channels_first_image_is_transposed_once(backend):
    layers = [{"type": "conv2d", "filters": 2, "kernel_size": 2, "activation": "relu"}] * 2
    first = ComponentTest(Network(layers), {"inputs": images(3, 6, 5, layout="channels_first")}, backend)
    last = ComponentTest(Network(layers), {"inputs": images(6, 5, 3)}, backend)
    x = last.sample("inputs", 2)
    expected = last.test("call", x)
    first.test("call", np.moveaxis(x, -1, 1).copy(), expected=expected, rtol=1e-4, atol=1e-5)


def test_the_layout_is_not_guessed_from_the_shape():
    for layout, channels in (("channels_last", 84), ("channels_first", 4)):
        test = ComponentTest(Conv2D(2, 1), {"inputs": images(4, 84, 84, layout=layout)})
        assert test.variables()["kernel"].shape == (1, 1, channels, 2)
    undeclared = FloatBox(shape=(4, 84, 84), add_batch_rank=True)
    test = ComponentTest(Conv2D(2, 1, layout="channels_first"), {"inputs": undeclared})
    assert test.variables()["kernel"].shape == (1, 1, 4, 2)


@pytest.mark.parametrize("backend", DIFFERENTIABLE)
def test_gradients_equal_differences(backend):
    space, layer = images(4, 4, 2), Conv2D(2, 2, 2, activation="tanh")
    x = space.sample(2, rng=1)
    found = weight_gradients(layer, lambda conv, inputs: (conv.call(inputs),), space, x, backend)
    test = ComponentTest(Conv2D(2, 2, 2, activation="tanh"), {"inputs": space}, float_dtype="float64")
    weights = {path: value.astype(np.float64) for path, value in test.executor.get_weights().items()}
    test.executor.set_weights({"conv2d/kernel": _kernel(backend, space), "conv2d/bias": weights["conv2d/bias"]})
    base = {path: value.astype(np.float64) for path, value in test.executor.get_weights().items()}

    def total(values):
        test.executor.set_weights(values)
        result = test.test("call", x)
        return float(np.sum(np.sin(np.arange(1, 1 + result.size)).reshape(result.shape) * result))

    for name in ("kernel", "bias"):
        path, step = f"conv2d/{name}", 1e-3
        difference = np.zeros(base[path].size)
        for i in range(difference.size):
            moved = [{**base, path: base[path].copy()} for _ in range(2)]
            moved[0][path].reshape(-1)[i] += step
            moved[1][path].reshape(-1)[i] -= step
            difference[i] = (total(moved[0]) - total(moved[1])) / (2 * step)
        np.testing.assert_allclose(found[name].reshape(-1), difference, rtol=1e-3, atol=1e-4)


def _kernel(backend, space):
    """The initial kernel inside the probe: its path, and so its seed, is another one."""
    from rlweave.graph import build
    from tests.components.gradient_probes import WeightProbe

    probe = WeightProbe(Conv2D(2, 2, 2, activation="tanh"), lambda conv, inputs: (conv.call(inputs),))
    return build(probe, {"inputs": space}, backend=backend).get_weights()["probe/conv2d/kernel"]


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda: Conv2D(2, 3, padding="vald"), "valid"),
        (lambda: Conv2D(2, 3, layout="channel_first"), "channels_first"),
        (lambda: Conv2D(2, 0), "kernel_size"),
        (lambda: Conv2D(2, 3, stride=(1, 2, 3)), "stride"),
        (lambda: Conv2D(2, 3, activation="rleu"), "relu"),
        (lambda: Conv2D(2, 3, kernel_initializer="ortogonal"), "orthogonal"),
        (lambda: Conv2D(2, 3, bias_initializer="ortogonal"), "orthogonal"),
    ],
)
def test_wrong_options_are_explained(make, hint):
    with pytest.raises(SpecError, match=hint):
        make()


@pytest.mark.parametrize(
    ("space", "hint"),
    [
        (FloatBox(shape=(4,), add_batch_rank=True), "three feature axes"),
        (IntBox(0, 256, shape=(8, 8, 1), dtype="uint8", layout="channels_last", add_batch_rank=True), "scales bytes"),
        (images(2, 2, 3), "larger than the image"),
        (images(2, 8, 3), "larger than the image"),
        (images(8, 2, 3), "larger than the image"),
    ],
)
def test_wrong_inputs_are_explained(space, hint):
    with pytest.raises(BuildError, match=hint):
        ComponentTest(Conv2D(2, 3), {"inputs": space})


def test_a_nature_network_takes_both_layouts():
    for shape, layout in (((84, 84, 4), "channels_last"), ((4, 84, 84), "channels_first")):
        test = ComponentTest(Network(nature_cnn(8)), {"inputs": images(*shape, layout=layout)})
        assert test.test("call", test.sample("inputs", 1))[0].shape == (1, 8)
