"""From any observation space to one vector of features, which policies and value functions are computed from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlweave import ops
from rlweave.components.initializers import InitializerSpec
from rlweave.components.leaf_encoding import encode_leaf, leaf_encoding, without_leaves
from rlweave.components.network import Network, NetworkSpec, carries_state
from rlweave.components.scopes import scope_of_path
from rlweave.components.text import TokenEmbedding
from rlweave.errors import BuildError, SpecError
from rlweave.graph import Component, api, graph_fn, register
from rlweave.graph.composition import Shared
from rlweave.graph.ir import Unknown, Value
from rlweave.spaces import IntBox, Space, Tuple
from rlweave.spaces.box import TOKENS
from rlweave.tree import flatten_tree, has_leaf


@register("observation_encoder")
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
                "an image network was given, but no leaf of the observation space is declared as an image",
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
                "observations do not fit the observation space",
                where=self.path,
                received=f"{inputs!r}; observation_space={known!r}",
                fix="pass the environment's observation space as observation_space",
            )
        space = inputs if known is None else known
        self.leaves = {
            path: leaf_encoding(leaf, f"{self.path}, leaf {path!r}") for path, leaf in sorted(space.flatten().items())
        }
        if not self.leaves:
            raise without_leaves(space, self.path)
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
    """What two descriptions of one observation have to agree in: paths, shapes, and dtypes.

    Floats may be of any width: normalized float64 is float32.
    """
    dtypes = {path: "float" if leaf.dtype.startswith("float") else leaf.dtype for path, leaf in space.flatten().items()}
    return sorted((path, leaf.shape, dtypes[path]) for path, leaf in space.flatten().items())
