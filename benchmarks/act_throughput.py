"""Actions per second over 1 to 64 environments, as Figure 5b of the RLgraph paper: all backends, and hand-written code.

Greedy actions of a dueling Q network, NumPy in and out: for images of Pong (uint8, 84 x 84 x 4, channels last, scaled
to [0, 1]) with the convolutions of Mnih et al. 2015, and for CartPole's four numbers. Each backend alternates with the
best hand-written form of the same framework, which checks nothing and knows nothing of new weights: torch under
`inference_mode` with channels-last filters, one jitted function of JAX, a concrete function of TensorFlow, and a
session of ONNX Runtime with weights as constants. (rlweave's has them as inputs: whoever trains has new ones at every
update, and a session with other constants takes 20 ms to make.) Nobody acts on images with NumPy by hand; there the
peer is torch.

Usage: python benchmarks/act_throughput.py [--environments 1 8 64] [--backends onnx torch]
"""

from __future__ import annotations

import argparse

from alternating import compare, one_thread, report

one_thread()

import numpy as np  # noqa: E402

from rlweave.backends import is_installed  # noqa: E402
from rlweave.components import DuelingPolicy  # noqa: E402
from rlweave.graph import build  # noqa: E402
from rlweave.spaces import FloatBox, IntBox  # noqa: E402

ENVIRONMENTS = (1, 2, 4, 8, 16, 32, 64)
BACKENDS = ("numpy", "torch", "jax", "tensorflow", "onnx")
DENSE = [{"type": "dense", "units": 64, "activation": "relu"}] * 2
CONVOLUTIONS = [
    {"type": "conv2d", "filters": 32, "kernel_size": 8, "stride": 4, "activation": "relu"},
    {"type": "conv2d", "filters": 64, "kernel_size": 4, "stride": 2, "activation": "relu"},
    {"type": "conv2d", "filters": 64, "kernel_size": 3, "stride": 1, "activation": "relu"},
    {"type": "flatten"},
    {"type": "dense", "units": 512, "activation": "relu"},
]
STRIDES = (4, 2, 1)
#: Bars by backend for numbers and for images; None: reported only.
BARS = {
    "numpy": (0.85, None),
    "torch": (0.95, 0.97),
    "jax": (0.95, 0.97),
    "tensorflow": (None, None),
    "onnx": (None, 0.85),
}
#: From so many environments on bars hold, for numbers and for images: below, single microseconds decide, or (ONNX
#: Runtime, two or three images) the order of a large kernel that it can keep only where the kernel is a constant.
SMALLEST_WITH_BAR = (2, 4)


def build_actor(backend, images):
    """The executor of a greedy policy, and (kernel, bias) of its layers: the trunk, the value, the advantages."""
    if images:
        state = IntBox(0, 256, shape=(84, 84, 4), dtype="uint8", layout="channels_last")
        policy = DuelingPolicy(None, IntBox(6), image_network=CONVOLUTIONS, observation_space=state)
    else:
        state = FloatBox(shape=(4,))
        policy = DuelingPolicy(DENSE, IntBox(2), observation_space=state)
    executor = build(policy, {"observations": state.with_batch_rank()}, backend=backend, methods=("greedy",))
    weights = executor.get_weights()
    names = sorted({path.rpartition("/")[0] for path in weights}, key=_place)
    return executor, [(weights[f"{name}/kernel"], weights[f"{name}/bias"]) for name in names]


def _place(path):
    return ("value-head" in path) + 2 * ("head" in path and "value-head" not in path), path


def observations(images, count):
    """Sampled observations."""
    rng = np.random.default_rng(count)
    if images:
        return rng.integers(0, 256, (count, 84, 84, 4), np.uint8)
    return rng.standard_normal((count, 4), np.float32)


def numpy_peer(layers, images):
    """Whole arrays, in place where it can be."""
    if images:
        return None
    (w0, b0), (w1, b1), (wv, bv), (wa, ba) = layers

    def act(observations):
        x = observations.dot(w0)
        x += b0
        np.maximum(x, 0.0, out=x)
        x = x.dot(w1)
        x += b1
        np.maximum(x, 0.0, out=x)
        advantages = x.dot(wa)
        advantages += ba
        advantages -= np.add.reduce(advantages, axis=-1, keepdims=True) / np.float32(advantages.shape[-1])
        value = x.dot(wv)
        value += bv
        advantages += value
        return advantages.argmax(-1).astype(np.int32)

    return act


def torch_peer(layers, images):
    """Functional torch under `inference_mode`."""
    import torch
    from torch.nn import functional

    torch.set_num_threads(1)
    filters = []
    for kernel, bias in layers[:3] if images else ():
        weight = torch.tensor(np.ascontiguousarray(kernel.transpose(3, 2, 0, 1)))
        filters.append((weight.contiguous(memory_format=torch.channels_last), torch.tensor(bias)))
    dense = [(torch.tensor(kernel), torch.tensor(bias)) for kernel, bias in layers[3 if images else 0 : -2]]
    (wv, bv), (wa, ba) = [(torch.tensor(kernel), torch.tensor(bias)) for kernel, bias in layers[-2:]]

    def act(observations):
        with torch.inference_mode():
            x = torch.from_numpy(observations)
            if images:
                x = x.permute(0, 3, 1, 2).to(torch.float32).div_(255.0)
                for (weight, bias), stride in zip(filters, STRIDES, strict=True):
                    x = functional.conv2d(x, weight, bias, stride=stride).relu_()
                x = x.permute(0, 2, 3, 1).reshape(len(observations), -1)
            for weight, bias in dense:
                x = torch.addmm(bias, x, weight).relu_()
            advantages = torch.addmm(ba, x, wa)
            advantages -= advantages.mean(-1, keepdim=True)
            advantages += torch.addmm(bv, x, wv)
            return advantages.argmax(-1).int().numpy()

    return act


def jax_peer(layers, images):
    """One jitted function of weights and observations."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    params = [(jnp.array(kernel), jnp.array(bias)) for kernel, bias in layers]

    def forward(params, x):
        if images:
            x = x.astype(jnp.float32) / 255.0
            for (kernel, bias), stride in zip(params[:3], STRIDES, strict=True):
                x = lax.conv_general_dilated(
                    x, kernel, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
                )
                x = jax.nn.relu(x + bias)
            x = x.reshape(x.shape[0], -1)
        for kernel, bias in params[3 if images else 0 : -2]:
            x = jax.nn.relu(x @ kernel + bias)
        (wv, bv), (wa, ba) = params[-2:]
        advantages = x @ wa + ba
        return (x @ wv + bv + advantages - advantages.mean(-1, keepdims=True)).argmax(-1)

    jitted = jax.jit(forward)

    def act(observations):
        return np.asarray(jitted(params, observations))

    return act


def tensorflow_peer(layers, images):
    """A concrete function with an open batch axis."""
    import tensorflow as tf

    params = [(tf.constant(kernel), tf.constant(bias)) for kernel, bias in layers]
    shape, dtype = ((None, 84, 84, 4), tf.uint8) if images else ((None, 4), tf.float32)

    @tf.function(input_signature=[tf.TensorSpec(shape, dtype)])
    def forward(x):
        if images:
            x = tf.cast(x, tf.float32) / 255.0
            for (kernel, bias), stride in zip(params[:3], STRIDES, strict=True):
                x = tf.nn.relu(tf.nn.conv2d(x, kernel, stride, "VALID") + bias)
            x = tf.reshape(x, (-1, 3136))
        for kernel, bias in params[3 if images else 0 : -2]:
            x = tf.nn.relu(x @ kernel + bias)
        (wv, bv), (wa, ba) = params[-2:]
        advantages = x @ wa + ba
        q_values = x @ wv + bv + advantages - tf.reduce_mean(advantages, -1, keepdims=True)
        return tf.argmax(q_values, -1, tf.int32)

    concrete = forward.get_concrete_function()

    def act(observations):
        return concrete(tf.constant(observations)).numpy()

    return act


def onnx_peer(layers, images):
    """A session with weights as constants, which ONNX Runtime brings into the order that its kernels like."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    nodes, constants = [], {}

    def node(op_type, *inputs, **attributes):
        name = f"value_{len(nodes)}"
        nodes.append(helper.make_node(op_type, list(inputs), [name], **attributes))
        return name

    def constant(array):
        name = f"constant_{len(constants)}"
        constants[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    x = "x"
    if images:
        x = node("Mul", node("Cast", x, to=TensorProto.FLOAT), constant(np.array(1 / 255, np.float32)))
        x = node("Transpose", x, perm=[0, 3, 1, 2])
        for (kernel, bias), stride in zip(layers[:3], STRIDES, strict=True):
            filters = constant(kernel.transpose(3, 2, 0, 1))
            x = node("Relu", node("Conv", x, filters, constant(bias), strides=[stride, stride]))
        x = node("Reshape", node("Transpose", x, perm=[0, 2, 3, 1]), constant(np.array([-1, 3136])))
    for kernel, bias in layers[3 if images else 0 : -2]:
        x = node("Relu", node("Gemm", x, constant(kernel), constant(bias)))
    value, advantages = [node("Gemm", x, constant(kernel), constant(bias)) for kernel, bias in layers[-2:]]
    mean = node("ReduceMean", advantages, constant(np.array([-1])))
    best = node("ArgMax", node("Add", value, node("Sub", advantages, mean)), axis=-1, keepdims=0)
    node("Cast", best, to=TensorProto.INT32)
    shape, dtype = (["B", 84, 84, 4], TensorProto.UINT8) if images else (["B", 4], TensorProto.FLOAT)
    graph = helper.make_graph(
        nodes,
        "by_hand",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.INT32, ["B"])],
        list(constants.values()),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    content = model.SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [nodes[-1].output[0]]

    def act(observations):
        return session.run(names, {"x": observations})[0]

    return act


PEERS = {
    "numpy": numpy_peer,
    "torch": torch_peer,
    "jax": jax_peer,
    "tensorflow": tensorflow_peer,
    "onnx": onnx_peer,
}


def rows(backends, environments):
    """All cases."""
    found = []
    for images in (True, False):
        for backend in filter(is_installed, backends):
            executor, layers = build_actor(backend, images)
            peer, against = PEERS[backend](layers, images), backend
            if peer is None:
                peer, against = torch_peer(layers, images), "torch"
            for count in environments:
                batch = observations(images, count)
                mine, other = executor.greedy(batch), peer(batch)
                assert np.mean(mine == other) > 0.9, "the peers act otherwise"  # near-ties may round differently
                bar = BARS[backend][int(images)] if against == backend and count >= SMALLEST_WITH_BAR[images] else None
                name = f"{backend}, {'images' if images else 'numbers'}, {count} environments"
                row = compare(
                    name if against == backend else f"{name}, against {against} by hand",
                    lambda greedy=executor.greedy, x=batch: greedy(x),
                    lambda act=peer, x=batch: act(x),
                    bar,
                    rounds=11 if images else 25,
                    target=0.03 if images else 0.01,
                )
                row["actions_per_s"] = round(count / row["ours_us"] * 1e6)
                row["by_hand_per_s"] = round(count / row["peer_us"] * 1e6)
                found.append(row)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--environments", type=int, nargs="+", default=list(ENVIRONMENTS))
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    chosen = parser.parse_args()
    note = "greedy actions per second; one thread, one core; NumPy in and out"
    report("act_throughput", rows(chosen.backends, chosen.environments), note)
