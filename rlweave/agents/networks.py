"""The networks that an agent has where its settings leave them open: which ones depends on what is observed."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from rlweave.components.network import is_recurrent, nature_cnn
from rlweave.errors import ConfigError
from rlweave.settings.config import Config
from rlweave.spaces import IntBox, Space

ConfigT = TypeVar("ConfigT", bound=Config)

IMAGE_NETWORK_HELP = (
    "layers that image observations go through first; null: those of Mnih et al. 2015, smaller ones for images below "
    "36 x 36; []: none, pixels are taken as numbers"
)

#: Images with fewer rows or columns do not fit under the kernels of the Nature network.
_SMALL_IMAGE = 36


def with_networks(config: ConfigT, observation_space: Space) -> ConfigT:
    """Settings of an agent with the networks written out that were left open (null).

    Args:
        config: Settings; those without a `network` and an `image_network` stay as they are.
        observation_space: Space of one observation, with images declared as such.

    Raises:
        ConfigError: The layout of images is not declared, or a recurrent encoder is to be shared.
    """
    if "image_network" not in type(config).model_fields:
        return config
    given: Any = config
    by_path = observation_space.flatten()
    leaves = list(by_path.values())
    images = [leaf for leaf in leaves if leaf.is_image]
    if given.image_network != []:
        _refuse_unknown_layouts(by_path, bool(given.image_network) and not images)
    update: dict[str, Any] = {}
    if given.image_network is None:
        layers = default_image_network(images) if images else []
        update["image_network"] = with_layer_norm(layers) if given.normalizes_layers else layers
    if given.network is None:
        # the default network of images ends in a dense layer: where there is nothing else, no more come behind it
        complete = update.get("image_network") and len(images) == len(leaves)
        update["network"] = [] if complete else [dict(layer) for layer in given.default_network]
    if "shared_network" in type(config).model_fields:
        recurrent = is_recurrent(update.get("network", given.network))
        if given.shared_network is None:
            update["shared_network"] = bool(images) and not recurrent
        elif given.shared_network and recurrent:
            raise ConfigError(
                "policy and value function cannot share a recurrent network: each carries a state of its own",
                where="shared_network",
                received="true",
                fix="--set agent.shared_network=false, or a network without recurrent layers",
            )
    return config.model_copy(update=update)


def _refuse_unknown_layouts(leaves: dict[str, Any], missing: bool) -> None:
    """Refuses to feed pixels to dense layers without a word: what looks like an image has to be declared.

    Args:
        leaves: Spaces of the leaves of an observation, by path.
        missing: Whether an image network was asked for, and nothing is declared as an image.
    """
    unknown = [path for path, leaf in leaves.items() if not leaf.is_image and (missing or _looks_like_image(leaf))]
    if unknown:
        path = unknown[0]
        raise ConfigError(
            "where images have their channels is not known, and is never guessed",
            where="image_layout" + (f", observation {path!r}" if path else ""),
            received=repr(leaves[path]),
            fix="--set image_layout=channels_last for (height, width, channels), channels_first for (channels, height, "
            "width), frames_first for stacked frames in grey (in Python, layout= of the space); or "
            "agent.image_network=[] to take pixels as numbers",
        )


def _looks_like_image(leaf: Any) -> bool:
    """Whether a leaf has three axes of whole bytes, as images do."""
    if not isinstance(leaf, IntBox) or leaf.dtype != "uint8" or len(leaf.shape) != 3:
        return False
    return bool(np.all(leaf.low == 0) and np.all(leaf.last == 255))


def default_image_network(images: list[Any]) -> list[dict[str, Any]]:
    """Layers over images: those of Mnih et al. 2015, or for small images two convolutions that fit any size.

    Args:
        images: Their spaces.
    """
    if min(min(_size(image)) for image in images) >= _SMALL_IMAGE:
        return nature_cnn()
    convolution = {"type": "conv2d", "kernel_size": 3, "padding": "same", "activation": "relu"}
    return [
        {**convolution, "filters": 16},
        {**convolution, "filters": 32, "stride": 2},
        {"type": "flatten"},
        {"type": "dense", "units": 128, "activation": "relu"},
    ]


def with_layer_norm(layers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same layers, with layer normalization before each activation; after a convolution over its channels."""
    normalized: list[dict[str, Any]] = []
    for layer in layers:
        own = {key: value for key, value in layer.items() if key != "activation"}
        normalized.append(own)
        if "activation" in layer:
            normalized += [{"type": "layer_norm"}, {"type": "activation", "activation": layer["activation"]}]
    return normalized


def _size(image: Any) -> tuple[int, int]:
    shape = image.feature_shape
    return (shape[0], shape[1]) if image.layout == "channels_last" else (shape[1], shape[2])
