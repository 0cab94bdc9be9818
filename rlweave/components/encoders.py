"""From any observation space to one vector of features, which policies and value functions are computed from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlweave import ops
from rlweave.components.initializers import InitializerSpec
from rlweave.components.network import Network, NetworkSpec, carries_state
from rlweave.components.scopes import scope_of_path
from rlweave.components.text import TokenEmbedding
from rlweave.errors import BuildError, SpecError
from rlweave.graph import Component, api, graph_fn, register
from rlweave.graph.composition import Shared
from rlweave.graph.ir import Unknown, Value
from rlweave.spaces import BoolBox, Box, FloatBox, IntBox, Space, TextBox, Tuple
from rlweave.spaces.box import FRAMES_FIRST, TOKENS
from rlweave.tree import flatten_tree, has_leaf

MAX_CATEGORIES = 65536
"""Integers with more values than this in one dimension are taken as numbers instead of being one-hot encoded."""


@dataclass(frozen=True)
class LeafEncoding:
    """How one leaf of an observation becomes features.

    Args:
        kind: "float" (as it is), "bool" (0 and 1), "one_hot", "number" (integers without a range), "scale" (integer
            images and bytes: to [0, 1]), or "tokens" (numbers of words, which an embedding takes).
        shape: The leaf's feature shape.
        low: Lowest value by dimension ("one_hot"), or of all ("scale").
        sizes: Number of categories by dimension ("one_hot"), or the whole range ("scale").
        layout: Declared layout of an image, or None.
        dtype: The leaf's dtype.

    Attributes:
        widest: The largest number of categories of any dimension.
        offset: What is subtracted to make indices from 0: a number, or an array of the leaf's shape; None for 0.
        columns: Which columns of equally wide one-hot codes stand for a category; None for all of them.
    """

    kind: str
    shape: tuple[int, ...]
    low: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    layout: str | None = None
    dtype: str = "float32"
    widest: int = field(init=False, repr=False, compare=False, default=0)
    offset: Any = field(init=False, repr=False, compare=False, default=None)
    columns: np.ndarray | None = field(init=False, repr=False, compare=False, default=None)

    @property
    def width(self) -> int:
        """How many features it makes."""
        return sum(self.sizes) if self.kind == "one_hot" else math.prod(self.shape)

    @property
    def is_identity(self) -> bool:
        """Whether the leaf is its own vector of features."""
        return self.is_float32 and len(self.shape) == 1

    @property
    def is_float32(self) -> bool:
        """Whether its numbers are taken as they are."""
        return self.kind == "float" and self.dtype == "float32"

    def __post_init__(self) -> None:
        widest = max(self.sizes, default=0)
        object.__setattr__(self, "widest", widest)
        if len(set(self.sizes)) > 1:
            columns = [i * widest + j for i, size in enumerate(self.sizes) for j in range(size)]
            object.__setattr__(self, "columns", np.asarray(columns, np.int32))
        if self.kind == "one_hot" and any(self.low):
            offset = np.asarray(self.low, np.int32).reshape(self.shape)
            object.__setattr__(self, "offset", self.low[0] if len(set(self.low)) == 1 else offset)


def leaf_encoding(space: Box, where: str) -> LeafEncoding:
    """Chooses how a leaf becomes features.

    Raises:
        BuildError: The leaf holds text.
    """
    shape = space.feature_shape
    if isinstance(space, FloatBox):
        return LeafEncoding("float", shape, layout=space.layout, dtype=space.dtype)
    if isinstance(space, BoolBox):
        return LeafEncoding("bool", shape, layout=space.layout, dtype=space.dtype)
    if isinstance(space, TextBox) or not isinstance(space, IntBox):
        raise BuildError(
            "an observation with text cannot be encoded",
            where=where,
            received=repr(space),
            fix="hash its words: make_env does it for an environment, hash_text for others",
        )
    if space.layout == TOKENS:
        return LeafEncoding("tokens", shape, layout=TOKENS, dtype=space.dtype)
    low, last = space.low, space.last
    whole_bytes = space.dtype == "uint8" and bool(np.all(low == 0) and np.all(last == 255))
    if space.layout is not None or whole_bytes:
        first, final = (int(low.min()), int(last.max())) if low.size else (0, 1)
        if not np.all(space.bounded):
            raise BuildError(
                "an integer image has no bounds to scale it by",
                where=where,
                received=repr(space),
                fix="IntBox(0, 256, shape=..., dtype='uint8', layout=...), or convert it to floats before",
            )
        return LeafEncoding("scale", shape, (first,), (max(final - first, 1),), space.layout, space.dtype)
    sizes = last.reshape(-1).astype(object) - low.reshape(-1).astype(object) + 1
    if np.all(space.bounded) and all(size <= MAX_CATEGORIES for size in sizes):
        return LeafEncoding(
            "one_hot", shape, tuple(int(n) for n in low.reshape(-1)), tuple(int(n) for n in sizes), dtype=space.dtype
        )
    return LeafEncoding("number", shape, dtype=space.dtype)


def encode_leaf(x: Any, leaf: LeafEncoding, flat: bool = True) -> Any:
    """Encodes the arrays of one leaf (inside a graph function).

    Args:
        x: (..., *shape).
        leaf: How.
        flat: False leaves the feature axes apart and brings channels to the end (images on their way into a
            convolution).

    Returns:
        float32, (..., width), or (..., height, width, channels).
    """
    leading = tuple(x.shape[: len(x.shape) - len(leaf.shape)])
    if leaf.kind == "one_hot":
        return _one_hot(x, leaf, leading)
    if not flat:  # before they are floats: bytes are a quarter of what is to be moved
        x = channels_last(x, leaf.layout)
    if leaf.kind == "scale":
        x = ops.astype(x, "float32")
        if leaf.low[0]:
            x = x - float(leaf.low[0])
        x = x / float(leaf.sizes[0])
    elif leaf.dtype != "float32":
        x = ops.astype(x, "float32")
    return x if not flat or len(leaf.shape) == 1 else ops.reshape(x, (*leading, leaf.width))


def _one_hot(x: Any, leaf: LeafEncoding, leading: tuple[int, ...]) -> Any:
    if leaf.offset is not None:
        x = ops.subtract(ops.astype(x, "int32"), leaf.offset)
    codes = ops.reshape(ops.one_hot(x, leaf.widest), (*leading, leaf.widest * len(leaf.sizes)))
    return codes if leaf.columns is None else ops.take(codes, leaf.columns, axis=-1)


def channels_last(x: Any, layout: str | None) -> Any:
    """Images (..., C, H, W), or frames (..., N, H, W), as (..., H, W, C); others stay (inside a graph function)."""
    if layout not in ("channels_first", FRAMES_FIRST):
        return x
    n = len(x.shape)
    return ops.permute_dims(x, (*range(n - 3), n - 2, n - 1, n - 3))


@register("state_encoder")
class ObservationEncoder(Network):
    """Turns observations of any space into one vector of features, and passes that through a network.

    `call` and `look_ahead` take nested observations, (..., *shape) each, as their inputs.

    Leaves are joined in the order of their paths. Floats stay as they are, booleans become 0 and 1, integers with a
    range become one-hot codes (one per dimension), integers without a range become numbers. Bytes that use their
    whole range (and all integer images) are scaled to [0, 1], once; images of floats are taken to be scaled.
    What is an image, and in which layout, is declared by `layout=` of its space and never guessed. Text comes as the
    numbers of its words (`layout="tokens"`); each such leaf has a `TokenEmbedding` of its own.

    A single vector of float32 passes without any operation.

    Args:
        network: Layers over the vector of features (see `NetworkSpec`); None for none.
        image_network: Layers over each image, channels last, usually `nature_cnn()`. What comes out is flattened and
            joined with the other features. None: images are flattened themselves.
        observation_space: The observation space. It may be left out when every caller passes values that carry its
            bounds and layouts (API inputs and memories do, results of other components do not).
        kernel_initializer: For layers that do not choose one themselves; see `make_initializer`.
        text_units: Size of the embedding of each text.
        scope: Name within the owner.

    Raises:
        SpecError: Several images and an `image_network`, but no `observation_space`.
        BuildError: A leaf that cannot be encoded; an `image_network` without an image.
    """

    #: Policies and value functions take a component with this mark as it is, and put others into an ObservationEncoder.
    encodes_observations = True

    def __init__(
        self,
        network: NetworkSpec = None,
        image_network: NetworkSpec = None,
        observation_space: Space | Mapping[str, Any] | None = None,
        kernel_initializer: InitializerSpec = None,
        text_units: int = 32,
        scope: str = "encoder",
    ) -> None:
        super().__init__(network, kernel_initializer, scope)
        self.observation_space = (
            Space.from_json(observation_space) if isinstance(observation_space, Mapping) else observation_space
        )
        known = {} if self.observation_space is None else self.observation_space.flatten()
        self.text_units = text_units
        self.embeddings = {
            path: TokenEmbedding(text_units, number=int(leaf.last.max()) + 1, scope=scope_of_path("text", path))
            for path, leaf in known.items()
            if isinstance(leaf, IntBox) and leaf.layout == TOKENS
        }
        self.image_networks: dict[str, Any] = {}
        if image_network is not None:
            self.image_networks = self._make_image_networks(image_network, kernel_initializer)
        if any(network.is_recurrent for network in self.image_networks.values()):
            raise SpecError(
                "an image network cannot be recurrent", where=scope, fix="move the recurrent layer into the network"
            )

    def _make_image_networks(self, spec: NetworkSpec, kernel_initializer: InitializerSpec) -> dict[str, Any]:
        if self.observation_space is None:
            return {"": Network(spec, kernel_initializer, scope="image")}
        paths = [path for path, leaf in self.observation_space.flatten().items() if leaf.is_image]
        if not paths:
            raise SpecError(
                "an image network was given, but no leaf of the state space is declared as an image",
                where=self.scope,
                received=repr(self.observation_space),
                fix="declare layout='channels_last' (or 'channels_first') in its space, or leave image_network out",
            )
        if len(paths) == 1:
            return {paths[0]: Network(spec, kernel_initializer, scope="image")}
        first = Network(spec, kernel_initializer, scope=scope_of_path("image", paths[0]))
        others = {path: first.copy(scope_of_path("image", path), initial="fresh") for path in paths[1:]}
        return {paths[0]: first, **others}

    def create_variables(self, inputs: Any) -> None:
        """No variables of its own; decides how each leaf is encoded."""
        known = self.observation_space
        if known is not None and _layout_of(known) != _layout_of(inputs):
            raise BuildError(
                "observations do not fit the state space",
                where=self.path,
                received=f"{inputs!r}; observation_space={known!r}",
                fix="pass the environment's observation space as observation_space",
            )
        space = inputs if known is None else known
        self.leaves = {
            path: leaf_encoding(leaf, f"{self.path}, leaf {path!r}") for path, leaf in sorted(space.flatten().items())
        }
        if not self.leaves:
            raise BuildError(
                "an observation without any leaf has no batch size",
                where=self.path,
                received=repr(space),
                fix="add a leaf, such as FloatBox(shape=(0,))",
            )
        texts = {path for path, leaf in self.leaves.items() if leaf.kind == "tokens"}
        if texts != set(self.embeddings):
            raise BuildError(
                "an observation with text needs its space beforehand, for an embedding of each text",
                where=self.path,
                received=repr(space),
                fix="pass the observation space as observation_space",
            )
        images = [path for path, leaf in self.leaves.items() if leaf.layout is not None and path not in texts]
        self.image_paths = tuple(images) if self.image_networks else ()
        if len(self.image_paths) != len(self.image_networks):
            raise BuildError(
                f"{len(self.image_networks)} image network(s) for {len(self.image_paths)} images",
                where=self.path,
                received=repr(space),
                fix="declare the layout of every image in its space, and pass the space as observation_space",
            )

    @api
    def encoded(self, inputs: Any) -> Any:
        """Encodes observations only.

        Args:
            inputs: Nested observations, (..., *shape) each.

        Returns:
            float32, (..., F).
        """
        if has_leaf(inputs, Unknown):
            return self._joined({"": inputs}, (), 0)
        flat = flatten_tree(inputs)
        path, leaf = next(iter(self.leaves.items()))
        if len(flat) == 1 and not self.image_paths and leaf.is_identity:
            return flat[path]
        ranks = len(flat[path].space.axes) - len(leaf.shape)
        for path, embedding in self.embeddings.items():
            flat[path] = embedding.call(flat[path])
        if len(flat) == len(self.embeddings) == 1:
            return flat[path]
        for path in self.image_paths:
            network = self.image_networks.get(path) or self.image_networks[""]
            ready = self.leaves[path].is_float32 and self.leaves[path].layout == "channels_last"
            flat[path], _ = network.call(flat[path] if ready else self._pixels(flat[path], path))
            if len(flat) == 1 and isinstance(flat[path], Value) and len(flat[path].space.axes) == ranks + 1:
                return flat[path]
        encoded = (*self.image_paths, *self.embeddings)
        return self._joined({path: flat[path] for path in self.leaves}, encoded, ranks)

    @graph_fn
    def _pixels(self, image: Any, path: str) -> Any:
        return encode_leaf(image, self.leaves[path], flat=False)

    @graph_fn
    def _joined(self, flat: dict[str, Any], encoded: tuple[str, ...], ranks: int) -> Any:
        parts = []
        for path, leaf in self.leaves.items():
            x = flat[path]
            if path in encoded:
                parts.append(ops.reshape(x, (*x.shape[:ranks], math.prod(x.shape[ranks:]))))
            else:
                parts.append(encode_leaf(x, leaf))
        return parts[0] if len(parts) == 1 else ops.concat(parts, axis=-1)


def make_encoder(
    network: NetworkSpec,
    image_network: NetworkSpec,
    observation_space: Space | Mapping[str, Any] | None,
    kernel_initializer: InitializerSpec,
) -> Any:
    """What turns observations into features for a policy or a value function.

    A component (or `shared(component)`) that encodes observations itself (an `ObservationEncoder`, or anything with the
    attribute `encodes_observations = True`) is taken as it is; everything else becomes the network of one.

    Raises:
        SpecError: An image network or observation space for an encoder that is finished.
    """
    component = network.component if isinstance(network, Shared) else network
    if isinstance(component, Component) and getattr(component, "encodes_observations", False):
        if image_network is not None or observation_space is not None:
            raise SpecError(
                "image_network and observation_space belong to the encoder",
                where=component.path,
                received=f"a {type(component).__name__} as network",
                fix="give them to the encoder's own constructor",
            )
        return network
    return ObservationEncoder(network, image_network, observation_space, kernel_initializer, scope="network")


class HasEncoder:
    """Components with an encoder of observations as `network`; what they compute is computed from its features.

    An encoder takes a recurrent state and returns the one after, nested (B, ...) as `recurrent_space` says: `()` of a
    network without memory, which is called with observations alone.
    """

    network: Any

    @property
    def is_recurrent(self) -> bool:
        """Whether the encoder carries a state from step to step."""
        return carries_state(self.network)

    @property
    def recurrent_space(self) -> Space:
        """Space of the recurrent state of one environment, without ranks; `Tuple()` without memory."""
        return self.network.recurrent_space if isinstance(self.network, Network) else Tuple()

    def offers(self, method: str) -> bool:
        """What is about a state alone is built by itself only where there is one."""
        return self.is_recurrent or (method != "initial_state" and "look_ahead" not in method)

    @api(static=("batch_size",))
    def initial_state(self, batch_size: int) -> Any:
        """The recurrent state at the start of an episode, nested (B, ...).

        Args:
            batch_size: Static.
        """
        return self.network.initial_state(batch_size=batch_size)

    @api
    def features(self, observations: Any, recurrent_state: Any = (), episode_start: Any = None) -> Any:
        """What the encoder makes of observations, in sequences or single steps.

        Args:
            observations: Nested, (..., *shape); of recurrent networks (T, B, *shape) or (B, *shape).
            recurrent_state: Before the first step, nested (B, ...).
            episode_start: Bool (T, B) or (B,): the observation is the first of its episode; None without memory.

        Returns:
            (..., F), and the recurrent state after the last step.
        """
        if not isinstance(self.network, Network):  # a module of a framework
            return self.network.call(observations), ()
        return self.network.call(observations, recurrent_state, episode_start)

    @api
    def look_ahead(
        self, observations: Any, next_observations: Any, recurrent_state: Any = (), episode_start: Any = None
    ) -> Any:
        """Features of observations, and of those that each step led to.

        Args:
            observations: Nested; of recurrent networks sequences (T, B, *shape).
            next_observations: The true next ones, the final ones where an episode ended, of the same shape.
            recurrent_state: Before the first step.
            episode_start: Bool (T, B), of `observations`; None without memory.

        Returns:
            (..., F); (..., F) by the state after each step; and the recurrent state after the last step.
        """
        if not isinstance(self.network, Network):
            return self.network.call(observations), self.network.call(next_observations), ()
        return self.network.look_ahead(observations, next_observations, recurrent_state, episode_start)


def _layout_of(space: Any) -> Any:
    """What two descriptions of one observation have to agree in: paths, shapes, and dtypes."""
    return sorted((path, leaf.shape, leaf.dtype) for path, leaf in space.flatten().items())
