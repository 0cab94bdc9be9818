import numpy as np
import pytest

from rlweave import ops
from rlweave.components import Dense, ObservationEncoder, mlp
from rlweave.components.encoders import make_encoder
from rlweave.components.leaf_encoding import MAX_CATEGORIES
from rlweave.errors import BuildError, SpecError
from rlweave.graph import Component, api, build, from_spec, graph_fn, to_spec
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, TextBox, Tuple
from rlweave.testing import ComponentTest
from tests.components.gradient_probes import BACKENDS

PIXELS = IntBox(0, 256, shape=(6, 5, 3), dtype="uint8", layout="channels_last")
SMALL_CNN = [{"type": "conv2d", "filters": 2, "kernel_size": 3, "activation": "relu"}]


def encoder(space, backend="numpy", **options):
    return ComponentTest(ObservationEncoder(**options), {"inputs": space.with_batch_rank()}, backend)


@pytest.mark.parametrize("mode", ["compiled", "eager"])
def test_a_vector_of_floats_passes_without_a_node(mode):
    test = ComponentTest(ObservationEncoder(), {"inputs": FloatBox(shape=(4,), add_batch_rank=True)}, mode=mode)
    assert all(not graph.nodes for graph in test.executor.graphs.values())
    x = test.sample("inputs", 3)
    test.test("call", x, expected=(x, ()))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("space", "value", "expected"),
    [
        (FloatBox(), [0.5, -1], [[0.5], [-1]]),
        (FloatBox(shape=(2, 2)), [[[1, 2], [3, 4]]], [[1, 2, 3, 4]]),
        (FloatBox(dtype="float64", shape=(2,)), [[1, 2]], [[1, 2]]),
        (FloatBox(shape=(0,)), np.zeros((2, 0)), np.zeros((2, 0))),
        (BoolBox(shape=(3,)), [[True, False, True]], [[1, 0, 1]]),
        (BoolBox(), [True, False], [[1], [0]]),
        (IntBox(3), [0, 2], [[1, 0, 0], [0, 0, 1]]),
        (IntBox(-1, 2), [-1, 1], [[1, 0, 0], [0, 0, 1]]),
        (IntBox(2, shape=(2,)), [[0, 1]], [[1, 0, 0, 1]]),
        (IntBox(high=[2, 3]), [[1, 0], [0, 2]], [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]),
        (IntBox([5, 0], [6, 2]), [[5, 1]], [[1, 0, 1]]),
        (IntBox([[5, -1]], [[7, 1]]), [[[6, -1]]], [[0, 1, 1, 0]]),
        (IntBox(2, shape=(0,)), np.zeros((2, 0)), np.zeros((2, 0))),
        (IntBox(), [7, -3], [[7], [-3]]),
        (IntBox(MAX_CATEGORIES + 1), [7], [[7]]),
        (IntBox(3, dtype="uint8"), [0, 2], [[1, 0, 0], [0, 0, 1]]),
        (IntBox(0, 256, shape=(2,), dtype="uint8"), [[0, 255]], [[0, 1]]),
        (IntBox(0, 256, shape=(1, 1, 2), layout="channels_last"), [[[[51, 255]]]], [[0.2, 1]]),
        (IntBox(-4, 5, shape=(1, 1, 2), layout="channels_first"), [[[[-4, 0]]]], [[0, 0.5]]),
        (FloatBox(0, 255, shape=(1, 1, 2), layout="channels_last"), [[[[51, 255]]]], [[51, 255]]),
    ],
    ids=str,
)
def test_single_leaves(backend, space, value, expected):
    test = encoder(space, backend)
    result, _ = test.test("call", np.asarray(value, space.dtype), expected=(np.asarray(expected, np.float32), ()))
    assert result.dtype == np.float32
    assert result.shape == np.shape(expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nested_observations_are_joined_in_the_order_of_their_paths(backend):
    space = Dict(
        z=FloatBox(), a=Tuple(IntBox(2), Dict(), BoolBox(shape=(1,))), empty=Tuple(), nothing=FloatBox(shape=(0,))
    )
    value = {
        "z": np.array([9, 8], np.float32),
        "a": (np.array([0, 1], np.int32), {}, np.array([[True], [False]])),
        "empty": (),
        "nothing": np.zeros((2, 0), np.float32),
    }
    encoder(space, backend).test("call", value, expected=(np.array([[1, 0, 1, 9], [0, 1, 0, 8]], np.float32), ()))


@pytest.mark.parametrize("backend", BACKENDS)
def test_time_and_batch_ranks_stay(backend):
    space = Dict(a=IntBox(3), b=FloatBox(shape=(2, 2))).with_batch_rank().with_time_rank()
    test = ComponentTest(ObservationEncoder(mlp([5])), {"inputs": space}, backend)
    assert test.test("call", test.sample("inputs", (4, 3)))[0].shape == (4, 3, 5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_white_image_reaches_the_network_as_one(backend):
    for layout, shape in (("channels_last", (6, 5, 3)), ("channels_first", (3, 6, 5))):
        white = np.full((2, *shape), 255, np.uint8)
        space = IntBox(0, 256, shape=shape, dtype="uint8", layout=layout)
        ones = [{"type": "conv2d", "filters": 1, "kernel_size": 1, "kernel_initializer": 1.0}]
        test = encoder(space, backend, image_network=ones)
        test.test("call", white, expected=(np.full((2, 30), 3.0, np.float32), ()))
        floats = FloatBox(0, 1, shape=shape, layout=layout)
        test = encoder(floats, backend, image_network=ones)
        test.test("call", np.full((2, *shape), 0.5, np.float32), expected=(np.full((2, 30), 1.5, np.float32), ()))


@pytest.mark.parametrize("backend", BACKENDS)
def test_both_layouts_give_the_same_features(backend):
    results = []
    for layout in ("channels_last", "channels_first"):
        shape = (6, 5, 3) if layout == "channels_last" else (3, 6, 5)
        space = IntBox(0, 256, shape=shape, dtype="uint8", layout=layout)
        x = PIXELS.sample(2, rng=0)
        x = x if layout == "channels_last" else np.ascontiguousarray(np.moveaxis(x, -1, 1))
        results.append(encoder(space, backend, image_network=SMALL_CNN).test("call", x)[0])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_images_and_numbers_together(backend):
    depth = FloatBox(0, 1, shape=(1, 4, 4), layout="channels_first")
    space = Dict(camera=PIXELS, depth=depth, speed=FloatBox(shape=(2,)))
    test = ComponentTest(
        ObservationEncoder(mlp([7]), SMALL_CNN, observation_space=space),
        {"inputs": space.with_batch_rank().with_time_rank()},
        backend,
    )
    v = test.variables()
    assert [value.shape for path, value in v.items() if path.endswith("kernel")] == [
        (4 * 3 * 2 + 2 * 2 * 2 + 2, 7), (3, 3, 3, 2), (3, 3, 1, 2),
    ]  # fmt: skip
    assert test.test("call", test.sample("inputs", (3, 2)))[0].shape == (3, 2, 7)
    assert not np.array_equal(v["image-camera/conv2d/kernel"][:, :, :1], v["image-depth/conv2d/kernel"])


def test_layers_given_as_components_are_copied_for_each_image():
    space = Dict(a=PIXELS, b=PIXELS)
    from rlweave.components import Conv2D

    test = ComponentTest(
        ObservationEncoder(None, [Conv2D(2, 3)], observation_space=space), {"inputs": space.with_batch_rank()}
    )
    v = test.variables()
    assert len(v) == 4
    assert not np.array_equal(v["image-a/conv2d/kernel"], v["image-b/conv2d/kernel"])


LEAVES = Dict(
    bools=BoolBox(shape=(2,)), codes=IntBox(high=[2, 3]), image=PIXELS, inner=Tuple(FloatBox(), IntBox()),
    number=FloatBox(shape=(2, 2)),
)  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("image_network", [None, SMALL_CNN])
def test_every_leaf_influences_the_features(backend, image_network):
    test = encoder(LEAVES, backend, image_network=image_network, observation_space=LEAVES, network=[Dense(8)])
    base = LEAVES.with_batch_rank().zeros(1)
    before, _ = test.test("call", base)
    flat = LEAVES.flatten_value(base)
    for path, value in flat.items():
        moved = {**flat, path: (~value if value.dtype == bool else value + 1).astype(value.dtype)}
        after, _ = test.test("call", LEAVES.unflatten(moved))
        assert np.abs(after - before).max() > 1e-4, path


class Pipeline(Component):
    """Observations reach the encoder through another component, which strips bounds and layouts from their spaces."""

    def __init__(self, encoder):
        super().__init__("root")
        self.encoder = encoder

    @graph_fn
    def _same(self, codes, image):
        return codes + 0, ops.where(image > 0, image, image)

    @api
    def direct(self, inputs):
        return self.encoder.call(inputs)

    @api
    def piped(self, inputs):
        codes, image = self._same(inputs["codes"], inputs["image"])
        return self.encoder.call({"image": image, "codes": codes})


@pytest.mark.parametrize("methods", [["direct", "piped"], ["piped", "direct"], ["piped"]])
def test_a_declared_observation_space_survives_components_that_know_no_bounds(methods):
    space = Dict(codes=IntBox(3), image=IntBox(0, 256, shape=(1, 4, 4), dtype="uint8", layout="channels_first"))
    root = Pipeline(ObservationEncoder(None, SMALL_CNN, observation_space=space))
    executor = build(root, {"inputs": space.with_batch_rank()}, methods=methods)
    x = space.with_batch_rank().sample(3, rng=0)
    assert executor.piped(x)[0].shape == (3, 3 + 2 * 2 * 2)
    if "direct" in methods:
        np.testing.assert_array_equal(executor.piped(x)[0], executor.direct(x)[0])


def test_observations_must_fit_the_declared_space():
    with pytest.raises(BuildError, match="do not fit the observation space"):
        encoder(FloatBox(shape=(3,)), observation_space=FloatBox(shape=(4,)))


@pytest.mark.parametrize(
    ("space", "hint"),
    [(Dict(), "no batch size"), (TextBox(4), "text"), (IntBox(shape=(2, 2, 1), layout="channels_last"), "no bounds")],
    ids=str,
)
def test_what_cannot_be_encoded_is_explained(space, hint):
    with pytest.raises(BuildError, match=hint):
        encoder(space)


def test_an_undeclared_image_is_not_guessed():
    undeclared = IntBox(0, 256, shape=(6, 5, 3), dtype="uint8")
    with pytest.raises(BuildError, match="layout"):
        encoder(undeclared, image_network=SMALL_CNN)
    with pytest.raises(SpecError, match="declare layout"):
        ObservationEncoder(None, SMALL_CNN, observation_space=undeclared)
    with pytest.raises(BuildError, match="2 images"):
        encoder(Dict(a=PIXELS, b=PIXELS), image_network=SMALL_CNN)


def test_specs_round_trip():
    made = ObservationEncoder(mlp([8]), SMALL_CNN, observation_space=Dict(a=PIXELS, b=IntBox(3)))
    again = from_spec(to_spec(made))
    assert to_spec(again) == to_spec(made)
    assert again.observation_space == made.observation_space


def test_one_encoder_serves_two_builds():
    made = ObservationEncoder(mlp([4]))
    for space in (FloatBox(shape=(3,)), Dict(a=IntBox(3), b=FloatBox())):
        executor = build(made, {"inputs": space.with_batch_rank()})
        assert executor.call(space.with_batch_rank().sample(2, rng=0))[0].shape == (2, 4)


def test_an_encoder_is_taken_as_it_is():
    encoder = ObservationEncoder(mlp([7]))
    assert make_encoder(encoder, None, None, None) is encoder
    layers = make_encoder(mlp([7]), None, None, None)
    assert isinstance(layers, ObservationEncoder)
    for more in ((mlp([7]), None), (None, FloatBox(shape=(3,)))):
        with pytest.raises(SpecError, match="belong to the encoder"):
            make_encoder(encoder, *more, None)
