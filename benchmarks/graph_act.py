"""Greedy acting, NumPy in and out, inputs validated: through the component graph / hand-written.

The peers are written for this network and for speed, and check nothing: NumPy and torch work in place, torch
under `inference_mode`, JAX is one jitted function. All hand out the same int32 actions.
"""

from __future__ import annotations

from alternating import compare, one_thread, report

one_thread()

import numpy as np  # noqa: E402

from rlweave.components import QPolicy  # noqa: E402
from rlweave.graph import build  # noqa: E402
from rlweave.spaces import FloatBox, IntBox  # noqa: E402

MLP = [{"type": "dense", "units": 64, "activation": "relu"}] * 2
CONV = [
    {"type": "conv2d", "filters": 32, "kernel_size": 8, "stride": 4, "activation": "relu"},
    {"type": "conv2d", "filters": 64, "kernel_size": 4, "stride": 2, "activation": "relu"},
    {"type": "conv2d", "filters": 64, "kernel_size": 3, "stride": 1, "activation": "relu"},
    {"type": "flatten"},
    {"type": "dense", "units": 512, "activation": "relu"},
]
STRIDES = (4, 2, 1)
#: Bar by backend for the MLP with small and with larger batches, and for the conv net; None: reported only.
BARS = {"numpy": (0.85, 0.85, None), "torch": (None, 0.95, 0.97), "jax": (None, 0.95, 0.97)}


def build_actor(backend, conv):
    """The executor of a greedy policy, and (kernel, bias) of its layers in order."""
    if conv:
        state = FloatBox(shape=(84, 84, 4), layout="channels_last")
        policy = QPolicy(None, IntBox(6), image_network=CONV, observation_space=state)
    else:
        state = FloatBox(shape=(4,))
        policy = QPolicy(MLP, IntBox(2), observation_space=state)
    executor = build(policy, {"observations": state.with_batch_rank()}, backend=backend, methods=("greedy",))
    weights = executor.get_weights()
    names = sorted({path.rpartition("/")[0] for path in weights}, key=lambda path: ("head" in path, path))
    return executor, [(weights[f"{name}/kernel"], weights[f"{name}/bias"]) for name in names]


def numpy_peer(layers, conv):
    """Whole-array NumPy, in place where it can be."""
    if conv:
        return None  # nobody acts with a conv net in NumPy
    (w0, b0), (w1, b1), (w2, b2) = layers

    def act(observations):
        x = observations.dot(w0)
        x += b0
        np.maximum(x, 0.0, out=x)
        x = x.dot(w1)
        x += b1
        np.maximum(x, 0.0, out=x)
        x = x.dot(w2)
        x += b2
        return x.argmax(-1).astype(np.int32)

    return act


def torch_peer(layers, conv):
    """Functional torch under `inference_mode`."""
    import torch
    from torch.nn import functional

    torch.set_num_threads(1)
    rest = layers[3:] if conv else layers
    (w0, b0), *others = [(torch.tensor(kernel), torch.tensor(bias)) for kernel, bias in rest]
    filters = []
    for kernel, bias in layers[:3] if conv else ():
        weight = torch.tensor(np.ascontiguousarray(kernel.transpose(3, 2, 0, 1)))
        filters.append((weight.contiguous(memory_format=torch.channels_last), torch.tensor(bias)))

    def act_mlp(observations):
        with torch.inference_mode():
            x = torch.addmm(b0, torch.from_numpy(observations), w0).relu_()
            x = torch.addmm(b1, x, w1).relu_()
            return torch.addmm(b2, x, w2).argmax(-1).int().numpy()

    def act_conv(observations):
        with torch.inference_mode():
            x = torch.from_numpy(observations).permute(0, 3, 1, 2)
            for (weight, bias), stride in zip(filters, STRIDES, strict=True):
                x = functional.conv2d(x, weight, bias, stride=stride).relu_()
            x = torch.addmm(b0, x.permute(0, 2, 3, 1).reshape(len(observations), -1), w0).relu_()
            return torch.addmm(b1, x, w1).argmax(-1).int().numpy()

    if conv:
        ((w1, b1),) = others
        return act_conv
    (w1, b1), (w2, b2) = others
    return act_mlp


def jax_peer(layers, conv):
    """One jitted function of weights and observations."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    params = [(jnp.array(kernel), jnp.array(bias)) for kernel, bias in layers]

    def forward(params, x):
        if conv:
            for (kernel, bias), stride in zip(params[:3], STRIDES, strict=True):
                x = lax.conv_general_dilated(
                    x, kernel, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
                )
                x = jax.nn.relu(x + bias)
            x = x.reshape(x.shape[0], -1)
        for kernel, bias in params[3 if conv else 0 : -1]:
            x = jax.nn.relu(x @ kernel + bias)
        return (x @ params[-1][0] + params[-1][1]).argmax(-1)

    jitted = jax.jit(forward)

    def act(observations):
        return np.asarray(jitted(params, observations))

    return act


PEERS = {"numpy": numpy_peer, "torch": torch_peer, "jax": jax_peer}


def rows():
    """All cases."""
    found = []
    rng = np.random.default_rng(0)
    for backend in PEERS:
        for conv in (False, True):
            executor, layers = build_actor(backend, conv)
            peer = PEERS[backend](layers, conv)
            if peer is None:
                continue
            for batch in (8,) if conv else (1, 8, 64):
                shape = (batch, 84, 84, 4) if conv else (batch, 4)
                observations = rng.standard_normal(shape, np.float32)
                mine, other = executor.greedy(observations), peer(observations)
                np.testing.assert_array_equal(mine, other)
                assert mine.dtype == other.dtype == np.int32
                bar = BARS[backend][2 if conv else int(batch > 1)]
                name = f"{backend} {'conv' if conv else 'MLP 4-64-64-2'}, batch {batch}"
                ours = lambda greedy=executor.greedy, x=observations: greedy(x)  # noqa: E731
                theirs = lambda act=peer, x=observations: act(x)  # noqa: E731
                rounds, target = (41, 0.06) if conv else (121, 0.01)  # many short ones: the machine's speed changes
                found.append(compare(name, ours, theirs, bar, rounds=rounds, target=target))
    return found


if __name__ == "__main__":
    report("graph_act", rows(), "greedy actions; one thread, one core; NumPy in and out")
