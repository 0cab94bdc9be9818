"""Descriptors of layers, networks and native modules."""

from __future__ import annotations

from rlweave import components as c
from rlweave.graph import Component
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Space, TextBox, Tuple
from rlweave.testing.component_descriptors.common import (
    FEATURES,
    OBSERVATIONS,
    SEQUENCE_FLAGS,
    add,
    floats,
)

add("dense", c.Dense, lambda: c.Dense(3), {"inputs": FEATURES})
add("dense-relu", c.Dense, lambda: c.Dense(3, "relu"), {"inputs": FEATURES})
add("dense-tanh", c.Dense, lambda: c.Dense(3, "tanh"), {"inputs": FEATURES})
add(
    "dense-parameters",
    c.Dense,
    lambda: c.Dense(3, "leaky_relu", use_bias=False, activation_parameters={"negative_slope": 0.3}),
    {"inputs": FloatBox(shape=(4,), add_batch_rank=True, add_time_rank=True)},
)
add("activation", c.Activation, lambda: c.Activation("elu"), {"inputs": FEATURES})
add("layer-norm", c.LayerNorm, lambda: c.LayerNorm(), {"inputs": FEATURES})
add("flatten", c.Flatten, lambda: c.Flatten(), {"inputs": floats(2, 3)})
add("concat", c.Concat, lambda: c.Concat(), {"inputs": Dict(b=floats(2), a=Tuple(floats(1), floats(3)))})
add(
    "conv2d",
    c.Conv2D,
    lambda: c.Conv2D(2, 3, stride=2, padding="same", activation="tanh"),
    {"inputs": FloatBox(shape=(5, 4, 2), add_batch_rank=True, layout="channels_last")},
)
add(
    "conv2d-channels-first",
    c.Conv2D,
    lambda: c.Conv2D(2, (2, 3), padding="valid"),
    {"inputs": FloatBox(shape=(2, 4, 4), add_batch_rank=True, add_time_rank=True, layout="channels_first")},
)
for _name, _layer in (("lstm", c.LSTM), ("gru", c.GRU)):
    for _steps in (True, False):  # sequences, and single steps
        _inputs = FloatBox(shape=(2,), add_batch_rank=True, add_time_rank=_steps)
        add(
            _name if _steps else f"{_name}-step",
            _layer,
            lambda layer=_layer: layer(3),  # type: ignore[misc]
            {
                "inputs": _inputs,
                "state": Dict({part: floats(3) for part in _layer.state_names}),
                "episode_start": BoolBox(add_batch_rank=True, add_time_rank=_steps),
                **({"next_inputs": _inputs} if _steps else {}),
            },
            static={"initial_state": {"batch_size": 2}},
        )
_RECURRENT = [{"type": "dense", "units": 3, "activation": "tanh"}, {"type": "lstm", "units": 3}]
_RECURRENT_INPUTS: dict[str, Space] = {
    "recurrent_state": Tuple(Dict(hidden=floats(3), cell=floats(3))),
    "episode_start": SEQUENCE_FLAGS,
    "observations": FloatBox(shape=(4,), add_batch_rank=True, add_time_rank=True),
    "next_observations": FloatBox(shape=(4,), add_batch_rank=True, add_time_rank=True),
}
add(
    "value-function-recurrent",
    c.ValueFunction,
    lambda: c.ValueFunction(_RECURRENT),
    _RECURRENT_INPUTS,
    calls=("call", "look_ahead_values"),
)
add(
    "q-policy-recurrent",
    c.DuelingPolicy,
    lambda: c.DuelingPolicy(_RECURRENT, IntBox(3)),
    _RECURRENT_INPUTS,
    calls=("q_values", "look_ahead_q_values"),
)
add(
    "policy-recurrent",
    c.Policy,
    lambda: c.Policy(_RECURRENT, IntBox(3)),
    {**_RECURRENT_INPUTS, "actions": IntBox(3, add_batch_rank=True, add_time_rank=True)},
    calls=("log_prob_and_entropy",),
)
add(
    "network",
    c.Network,
    lambda: c.Network([{"type": "dense", "units": 5, "activation": "tanh"}, {"type": "dense", "units": 2}]),
    {"inputs": FEATURES},
)
add(
    "state-encoder",
    c.ObservationEncoder,
    lambda: c.ObservationEncoder([{"type": "dense", "units": 3}]),
    {"inputs": OBSERVATIONS},
)
TOKENS = IntBox(20, shape=(3,), layout="tokens")
add("hash-text", c.HashText, lambda: c.HashText(4, 50), {"texts": TextBox(12, charset="ab ", add_batch_rank=True)})
add("token-embedding", c.TokenEmbedding, lambda: c.TokenEmbedding(4), {"inputs": TOKENS.with_batch_rank()})
add(
    "state-encoder-text",
    c.ObservationEncoder,
    lambda: c.ObservationEncoder(
        [{"type": "dense", "units": 3}], observation_space=Dict(order=TOKENS, speed=FloatBox())
    ),
    {"inputs": Dict(order=TOKENS, speed=FloatBox()).with_batch_rank()},
)
add(
    "state-encoder-image",
    c.ObservationEncoder,
    lambda: c.ObservationEncoder(
        image_network=[{"type": "conv2d", "filters": 2, "kernel_size": 2, "activation": "tanh"}, {"type": "flatten"}]
    ),
    {
        "inputs": Dict(
            image=IntBox(0, 256, shape=(3, 3, 1), dtype="uint8", layout="channels_last"), speed=FloatBox()
        ).with_batch_rank()
    },
)


def _torch_module() -> Component:
    import torch

    generator = torch.Generator().manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.LayerNorm(3))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return c.TorchModule(module)


def _flax_module() -> Component:
    from flax import nnx

    return c.FlaxModule(nnx.Linear(4, 3, rngs=nnx.Rngs(0)))


def _keras_module() -> Component:
    import keras

    start = keras.initializers.GlorotUniform(seed=0)
    return c.KerasModule(keras.Sequential([keras.Input(shape=(4,)), keras.layers.Dense(3, kernel_initializer=start)]))


# One backend each; their gradients are the framework's own, and cannot be compared with NumPy.
add("torch-module", c.TorchModule, _torch_module, {"inputs": FEATURES}, backends=("torch",), reference="torch")
add("flax-module", c.FlaxModule, _flax_module, {"inputs": FEATURES}, backends=("jax",), reference="jax")
add(
    "keras-module", c.KerasModule, _keras_module, {"inputs": FEATURES}, backends=("tensorflow",), reference="tensorflow"
)
