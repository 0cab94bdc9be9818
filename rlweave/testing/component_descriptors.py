"""Descriptors of all components of the library. A component without one fails CI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlweave import components as c
from rlweave import ops
from rlweave.components.exploration import EpsilonGreedy
from rlweave.components.memories.graph_n_step import NStepWindow
from rlweave.components.normalization import RunningNormalization
from rlweave.envs import in_graph, make_env
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Space, TextBox, Tuple
from rlweave.testing.descriptors import Descriptor, Registry

DESCRIPTORS = Registry()

FEATURES = FloatBox(shape=(4,), add_batch_rank=True)
STATES = Dict(position=FloatBox(shape=(2, 2)), kind=IntBox(1, 4), flag=BoolBox(shape=(2,))).with_batch_rank()
SEQUENCE = FloatBox(add_batch_rank=True, add_time_rank=True)
SEQUENCE_FLAGS = BoolBox(add_batch_rank=True, add_time_rank=True)
#: Every kind of action: integers with several components of different sizes, a boolean, floats with and without bounds.
ACTIONS = Dict(
    bounded=FloatBox(low=-1.0, high=[1.0, 3.0], shape=(2,)),
    choice=IntBox(low=[0, 1], high=[2, 4], shape=(2,)),
    free=FloatBox(),
    switch=BoolBox(),
)
#: Policies, memories and losses hold integers as indices from 0, and floats in units of their box.
TAKEN_ACTIONS = Dict(
    bounded=FloatBox(low=-1.0, high=1.0, shape=(2,)),
    choice=IntBox(low=0, high=[2, 3], shape=(2,)),
    free=FloatBox(),
    switch=BoolBox(),
).with_batch_rank()
COUNTABLE_ACTIONS = Tuple(IntBox(3), Dict(pair=IntBox(low=[0, 0], high=[2, 3], shape=(2,)), switch=BoolBox()))


def _floats(*shape: int, low: float | None = None, high: float | None = None) -> FloatBox:
    return FloatBox(low=low, high=high, shape=shape, add_batch_rank=True)


def _ints(number: int, *shape: int) -> IntBox:
    return IntBox(number, shape=shape, add_batch_rank=True)


def _bools(*shape: int) -> BoolBox:
    return BoolBox(shape=shape, add_batch_rank=True)


def _add(
    name: str, component: type[Component], make: Callable[[], Component], spaces: dict[str, Space], **options: Any
) -> None:
    DESCRIPTORS.add(Descriptor(name, component, make, spaces, **options))


# -- layers and networks -----------------------------------------------------------------------------------------

_add("dense", c.Dense, lambda: c.Dense(3), {"inputs": FEATURES})
_add("dense-relu", c.Dense, lambda: c.Dense(3, "relu"), {"inputs": FEATURES})
_add("dense-tanh", c.Dense, lambda: c.Dense(3, "tanh"), {"inputs": FEATURES})
_add(
    "dense-parameters",
    c.Dense,
    lambda: c.Dense(3, "leaky_relu", use_bias=False, activation_parameters={"negative_slope": 0.3}),
    {"inputs": FloatBox(shape=(4,), add_batch_rank=True, add_time_rank=True)},
)
_add("activation", c.Activation, lambda: c.Activation("elu"), {"inputs": FEATURES})
_add("flatten", c.Flatten, lambda: c.Flatten(), {"inputs": _floats(2, 3)})
_add("concat", c.Concat, lambda: c.Concat(), {"inputs": Dict(b=_floats(2), a=Tuple(_floats(1), _floats(3)))})
_add(
    "conv2d",
    c.Conv2D,
    lambda: c.Conv2D(2, 3, stride=2, padding="same", activation="tanh"),
    {"inputs": FloatBox(shape=(5, 4, 2), add_batch_rank=True, layout="channels_last")},
)
_add(
    "conv2d-channels-first",
    c.Conv2D,
    lambda: c.Conv2D(2, (2, 3), padding="valid"),
    {"inputs": FloatBox(shape=(2, 4, 4), add_batch_rank=True, add_time_rank=True, layout="channels_first")},
)
for _name, _layer in (("lstm", c.LSTM), ("gru", c.GRU)):
    for _steps in (True, False):  # sequences, and single steps
        _inputs = FloatBox(shape=(2,), add_batch_rank=True, add_time_rank=_steps)
        _add(
            _name if _steps else f"{_name}-step",
            _layer,
            lambda layer=_layer: layer(3),  # type: ignore[misc]
            {
                "inputs": _inputs,
                "state": Dict({part: _floats(3) for part in _layer.state_names}),
                "episode_start": BoolBox(add_batch_rank=True, add_time_rank=_steps),
                **({"next_inputs": _inputs} if _steps else {}),
            },
            static={"initial_state": {"batch_size": 2}},
        )
_RECURRENT = [{"type": "dense", "units": 3, "activation": "tanh"}, {"type": "lstm", "units": 3}]
_RECURRENT_INPUTS: dict[str, Space] = {
    "recurrent_state": Tuple(Dict(hidden=_floats(3), cell=_floats(3))),
    "episode_start": SEQUENCE_FLAGS,
    "states": FloatBox(shape=(4,), add_batch_rank=True, add_time_rank=True),
    "next_states": FloatBox(shape=(4,), add_batch_rank=True, add_time_rank=True),
}
_add(
    "value-function-recurrent",
    c.ValueFunction,
    lambda: c.ValueFunction(_RECURRENT),
    _RECURRENT_INPUTS,
    calls=("recurrent_values", "look_ahead_values"),
)
_add(
    "q-policy-recurrent",
    c.DuelingPolicy,
    lambda: c.DuelingPolicy(_RECURRENT, IntBox(3)),
    _RECURRENT_INPUTS,
    calls=("recurrent_q_values", "look_ahead_q_values"),
)
_add(
    "policy-recurrent",
    c.Policy,
    lambda: c.Policy(_RECURRENT, IntBox(3)),
    {**_RECURRENT_INPUTS, "actions": IntBox(3, add_batch_rank=True, add_time_rank=True)},
    calls=("recurrent_log_prob_and_entropy",),
)
_add(
    "network",
    c.Network,
    lambda: c.Network([{"type": "dense", "units": 5, "activation": "tanh"}, {"type": "dense", "units": 2}]),
    {"inputs": FEATURES},
)
_add("state-encoder", c.StateEncoder, lambda: c.StateEncoder([{"type": "dense", "units": 3}]), {"inputs": STATES})
TOKENS = IntBox(20, shape=(3,), layout="tokens")
_add("hash-text", c.HashText, lambda: c.HashText(4, 50), {"texts": TextBox(12, charset="ab ", add_batch_rank=True)})
_add("token-embedding", c.TokenEmbedding, lambda: c.TokenEmbedding(4), {"inputs": TOKENS.with_batch_rank()})
_add(
    "state-encoder-text",
    c.StateEncoder,
    lambda: c.StateEncoder([{"type": "dense", "units": 3}], state_space=Dict(order=TOKENS, speed=FloatBox())),
    {"inputs": Dict(order=TOKENS, speed=FloatBox()).with_batch_rank()},
)
_add(
    "state-encoder-image",
    c.StateEncoder,
    lambda: c.StateEncoder(
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
_add("torch-module", c.TorchModule, _torch_module, {"inputs": FEATURES}, backends=("torch",), reference="torch")
_add("flax-module", c.FlaxModule, _flax_module, {"inputs": FEATURES}, backends=("jax",), reference="jax")
_add(
    "keras-module", c.KerasModule, _keras_module, {"inputs": FEATURES}, backends=("tensorflow",), reference="tensorflow"
)

# -- distributions -----------------------------------------------------------------------------------------------

_add(
    "categorical",
    c.Categorical,
    lambda: c.Categorical(),
    {"logits": _floats(3), "others": _floats(3), "values": _ints(3), "allowed": _bools(3)},
)
_add(
    "bernoulli",
    c.Bernoulli,
    lambda: c.Bernoulli(),
    {"logits": _floats(2), "others": _floats(2), "values": _bools(2)},
)
_add(
    "normal",
    c.Normal,
    lambda: c.Normal(),
    {
        "mean": _floats(2),
        "log_std": _floats(2, low=-2.0, high=1.0),
        "values": _floats(2),
        "other_mean": _floats(2),
        "other_log_std": _floats(2, low=-2.0, high=1.0),
    },
)
_add(
    "squashed-normal",
    c.SquashedNormal,
    lambda: c.SquashedNormal(-1.0, 3.0),
    {
        "mean": _floats(2),
        "log_std": _floats(2, low=-2.0, high=1.0),
        "values": _floats(2, low=-0.9, high=2.9),
        "other_mean": _floats(2),
        "other_log_std": _floats(2, low=-2.0, high=1.0),
    },
)
_add(
    "beta",
    c.Beta,
    lambda: c.Beta(-1.0, 3.0),
    {
        "a": _floats(2, low=0.3, high=4.0),
        "b": _floats(2, low=0.3, high=4.0),
        "values": _floats(2, low=-0.9, high=2.9),
        "other_a": _floats(2, low=0.3, high=30.0),
        "other_b": _floats(2, low=0.3, high=30.0),
    },
    gradients=("mode", "mean", "log_prob", "entropy", "kl"),  # samples are constants
)


def _normal_parameters(*shape: int) -> Dict:
    return Dict(mean=_floats(*shape), log_std=_floats(*shape, low=-2.0, high=1.0))


PARAMETERS = Dict(bounded=_normal_parameters(2), choice=_floats(2, 3), free=_normal_parameters(), switch=_floats())
_add(
    "joint",
    c.Joint,
    lambda: c.Joint(ACTIONS),
    {"parameters": PARAMETERS, "others": PARAMETERS, "actions": TAKEN_ACTIONS},
    # the other API methods are parts of these
    calls=("sample_and_log_prob", "mode_and_log_prob", "log_prob_and_entropy", "kl", "env_actions", "own_actions"),
)
_add(
    "joint-squashed",
    c.Joint,
    lambda: c.Joint(ACTIONS, squash=True),
    {"parameters": PARAMETERS, "actions": TAKEN_ACTIONS},
    calls=("sample_and_log_prob", "mode_and_log_prob", "log_prob_and_entropy"),
)

# -- policies and values -----------------------------------------------------------------------------------------

HIDDEN = [{"type": "dense", "units": 5, "activation": "tanh"}]

_add(
    "policy",
    c.Policy,
    lambda: c.Policy(HIDDEN, IntBox(3), initializer="orthogonal"),
    {"states": FEATURES, "features": _floats(5), "actions": _ints(3)},
    calls=("features", "parameters_of_features", "act", "mode", "log_prob_and_entropy", "env_actions"),
)
_add(
    "policy-nested",
    c.Policy,
    lambda: c.Policy(HIDDEN, ACTIONS, log_std="head", squash=True),
    {"states": STATES, "features": _floats(5), "actions": TAKEN_ACTIONS},
    calls=("parameters", "act", "log_prob_and_entropy"),
)
MASKED_STATES = Dict(action_mask=BoolBox(shape=(3,)), x=FloatBox(shape=(2,)))
_add(
    "policy-masked",
    c.Policy,
    lambda: c.Policy(HIDDEN, IntBox(3), state_space=MASKED_STATES, mask_leaf="action_mask"),
    {"states": MASKED_STATES.with_batch_rank(), "actions": _ints(3)},
    calls=("parameters", "act", "log_prob_and_entropy"),
)
_add(
    "q-policy-masked",
    c.QPolicy,
    lambda: c.QPolicy(HIDDEN, IntBox(3), state_space=MASKED_STATES, mask_leaf="action_mask"),
    {"states": MASKED_STATES.with_batch_rank()},
    calls=("q_values", "greedy"),
)
_add(
    "policy-greedy",
    c.Policy,
    lambda: c.Policy(HIDDEN, FloatBox(low=-1.0, high=2.0, shape=(2,))),
    {"states": FEATURES, "actions": _floats(2)},
    calls=("act", "log_prob_and_entropy"),
    static={"act": {"explore": False}},
)
_add(
    "q-policy",
    c.QPolicy,
    lambda: c.QPolicy(HIDDEN, COUNTABLE_ACTIONS),
    {
        "states": FEATURES,
        "q_values": Tuple(_floats(3), Dict(pair=_floats(2, 3), switch=_floats(2))),
        "actions": COUNTABLE_ACTIONS.with_batch_rank(),
    },
)
_add(
    "dueling-policy",
    c.DuelingPolicy,
    lambda: c.DuelingPolicy(HIDDEN, IntBox(3), value_network=HIDDEN),
    {"states": FEATURES},
)
_add(
    "dueling-policy-nested",
    c.DuelingPolicy,
    lambda: c.DuelingPolicy(HIDDEN, COUNTABLE_ACTIONS, advantage_network=HIDDEN),
    {"states": FEATURES},
    calls=("q_values", "greedy"),
)
_add(
    "value-function",
    c.ValueFunction,
    lambda: c.ValueFunction(HIDDEN, initializer="orthogonal"),
    {"states": STATES, "features": _floats(5)},
)
_add(
    "epsilon-greedy",
    EpsilonGreedy,
    lambda: EpsilonGreedy({"type": "linear", "start": 1.0, "end": 0.1, "steps": 100}),
    {"q_values": _floats(3), "time_step": IntBox(0, 200), "epsilon": FloatBox(low=0.0, high=1.0)},
)
_add(
    "epsilon-greedy-nested",
    EpsilonGreedy,
    lambda: EpsilonGreedy(0.5, Dict(pair=IntBox(3, shape=(2,)), switch=BoolBox())),
    {"q_values": Dict(pair=_floats(2, 3), switch=_floats(2)), "epsilon": _floats(low=0.0, high=1.0)},
)

FLOAT_ACTIONS = Dict(free=FloatBox(), pair=FloatBox(low=-1.0, high=[1.0, 3.0], shape=(2,)))
OWN_FLOATS = Dict(free=FloatBox(), pair=FloatBox(low=-1.0, high=1.0, shape=(2,))).with_batch_rank()
_add("stacked-dense", c.StackedDense, lambda: c.StackedDense(2, 3, "tanh"), {"inputs": FEATURES})
_add("critics", c.Critics, lambda: c.Critics(HIDDEN), {"states": STATES, "actions": OWN_FLOATS})
_add(
    "temperature",
    c.Temperature,
    lambda: c.Temperature(-2.0),
    {"log_probs": _floats()},
    gradients=("loss",),
    constants={"loss": ("log_probs",)},
)
_add("gaussian-noise", c.GaussianNoise, lambda: c.GaussianNoise(FLOAT_ACTIONS, 0.2, 0.5), {"actions": OWN_FLOATS})
_add(
    "noisy-action",
    c.NoisyAction,
    lambda: c.NoisyAction(FLOAT_ACTIONS),
    {"parameters": Dict(free=Dict(mean=_floats()), pair=Dict(mean=_floats(2))), "actions": OWN_FLOATS},
)
_add(
    "deterministic-policy",
    c.DeterministicPolicy,
    lambda: c.DeterministicPolicy(HIDDEN, FLOAT_ACTIONS),
    {"states": STATES, "actions": OWN_FLOATS},
    calls=("parameters", "mode", "sample", "env_actions"),
)

# -- losses and returns ------------------------------------------------------------------------------------------


def _first(result: Any) -> Any:
    return result[0]


def _q_losses(q_values: Space, actions: Space) -> dict[str, Space]:
    return {
        "q_values": q_values,
        "actions": actions,
        "rewards": _floats(),
        "terminated": _bools(),
        "target_q_next": q_values,
    }


_TARGETS = ("rewards", "target_q_next", "online_q_next", "discounts")
_add(
    "critic-loss",
    c.CriticLoss,
    lambda: c.CriticLoss(),
    {
        "rewards": _floats(),
        "terminated": _bools(),
        "discounts": _floats(low=0.0, high=1.0),
        "next_values": _floats(2),
        "next_log_probs": _floats(),
        "alpha": FloatBox(low=0.0, high=1.0),
        "values": _floats(2),
        "targets": _floats(),
        "weights": _floats(low=0.0, high=1.0),
    },
    gradients=("loss",),  # targets are constants
    constants={"loss": ("targets",)},
)
_add(
    "soft-policy-loss",
    c.SoftPolicyLoss,
    lambda: c.SoftPolicyLoss(),
    {"log_probs": _floats(), "values": _floats(2), "alpha": FloatBox(low=0.0, high=1.0)},
    constants={"loss": ("alpha",)},
)
_add(
    "dqn-loss",
    c.DQNLoss,
    lambda: c.DQNLoss(),
    {
        **_q_losses(_floats(3), _ints(3)),
        "online_q_next": _floats(3),
        "weights": _floats(low=0.1, high=1.0),
        "discounts": _floats(low=0.5, high=1.0),
    },
    differentiated={"td_loss": _first, "loss_per_item": _first},
    constants={"td_loss": _TARGETS, "loss_per_item": _TARGETS},
)
_add(
    "dqn-loss-components",
    c.DQNLoss,
    lambda: c.DQNLoss(n_step=3, double=False, huber_delta=None, reduce_components="td"),
    _q_losses(Dict(a=_floats(2, 3), b=_floats(2)), Dict(a=_ints(3, 2), b=_bools())),
    calls=("td_loss",),
    differentiated={"td_loss": _first},
    constants={"td_loss": _TARGETS},
)
_SEQUENCE_TARGETS = ("rewards", "target_q_next", "online_q_next")


def _sequence_losses(q_values: Space, actions: Space) -> dict[str, Space]:
    q_values, actions = (space.with_batch_rank().with_time_rank() for space in (q_values, actions))
    return {
        **dict.fromkeys(("q_values", "target_q_next", "online_q_next"), q_values),
        "actions": actions,
        "rewards": SEQUENCE,
        **dict.fromkeys(("terminated", "truncated", "mask"), SEQUENCE_FLAGS),
        "weights": _floats(low=0.1, high=1.0),
    }


_add(
    "sequence-dqn-loss",
    c.SequenceDQNLoss,
    lambda: c.SequenceDQNLoss(n_step=2),
    _sequence_losses(FloatBox(shape=(3,)), IntBox(3)),
    calls=("sequence_loss",),
    differentiated={"sequence_loss": _first},
    constants={"sequence_loss": _SEQUENCE_TARGETS},
)
_add(
    "sequence-dqn-loss-components",
    c.SequenceDQNLoss,
    lambda: c.SequenceDQNLoss(n_step=3, huber_delta=None, reduce_components="td"),
    _sequence_losses(
        Dict(a=FloatBox(shape=(2, 3)), b=FloatBox(shape=(2,))), Dict(a=IntBox(3, shape=(2,)), b=BoolBox())
    ),
    calls=("sequence_loss",),
    differentiated={"sequence_loss": _first},
    constants={"sequence_loss": _SEQUENCE_TARGETS},
)
_PPO_CONSTANTS = ("old_log_probs", "advantages", "returns", "old_values")
_PPO_INPUTS: dict[str, Space] = {
    "log_probs": _floats(low=-2.0, high=-0.5),
    "old_log_probs": _floats(low=-2.0, high=-0.5),
    "advantages": _floats(),
    "values": _floats(),
    "returns": _floats(),
    "entropies": _floats(low=0.0, high=2.0),
}
_add(
    "ppo-loss",
    c.PPOLoss,
    lambda: c.PPOLoss(entropy_coefficient=0.1),
    _PPO_INPUTS,
    differentiated={"loss": _first},
    constants={"loss": _PPO_CONSTANTS},
)
_add(
    "ppo-loss-masked",
    c.PPOLoss,
    lambda: c.PPOLoss({"type": "linear", "start": 0.3, "end": 0.1, "steps": 50}, value_clip=0.4),
    {**_PPO_INPUTS, "old_values": _floats(), "mask": _bools(), "count": IntBox(0, 60)},
    differentiated={"loss": _first},
    constants={"loss": _PPO_CONSTANTS},
)
_ACTOR_CRITIC_INPUTS = {name: space for name, space in _PPO_INPUTS.items() if name != "old_log_probs"}
_add(
    "actor-critic-loss",
    c.ActorCriticLoss,
    lambda: c.ActorCriticLoss(entropy_coefficient=0.1),
    _ACTOR_CRITIC_INPUTS,
    differentiated={"loss": _first},
    constants={"loss": ("advantages", "returns")},
)
_add(
    "actor-critic-loss-masked",
    c.ActorCriticLoss,
    lambda: c.ActorCriticLoss(),
    {**_ACTOR_CRITIC_INPUTS, "mask": _bools()},
    differentiated={"loss": _first},
    constants={"loss": ("advantages", "returns")},
)
_add(
    "impala-loss",
    c.IMPALALoss,
    lambda: c.IMPALALoss(),
    {name: _PPO_INPUTS[name] for name in ("log_probs", "advantages", "values", "entropies")}
    | {"value_targets": _floats()},
    differentiated={"loss": _first},
    constants={"loss": ("advantages", "value_targets")},
)
_add(
    "gae",
    c.GeneralizedAdvantageEstimation,
    lambda: c.GeneralizedAdvantageEstimation(),
    {
        "rewards": SEQUENCE,
        "values": SEQUENCE,
        "next_values": SEQUENCE,
        "terminated": SEQUENCE_FLAGS,
        "truncated": SEQUENCE_FLAGS,
    },
    gradients=(),  # its results are constants
)
_add(
    "vtrace",
    c.VTrace,
    lambda: c.VTrace(0.9, rho_clip=1.5, policy_rho_clip=None, lambda_=0.9),
    {
        "target_log_probs": FloatBox(-3.0, 0.0, add_batch_rank=True, add_time_rank=True),
        "behaviour_log_probs": FloatBox(-3.0, 0.0, add_batch_rank=True, add_time_rank=True),
        "rewards": SEQUENCE,
        "values": SEQUENCE,
        "next_values": SEQUENCE,
        "terminated": SEQUENCE_FLAGS,
        "truncated": SEQUENCE_FLAGS,
    },
    gradients=(),  # its results are constants
)
_add(
    "running-normalization",
    RunningNormalization,
    lambda: RunningNormalization(),
    {"inputs": Dict(x=_floats(3), kind=_ints(3)), "update.mask": _bools()},
    calls=("call", "update", "call"),
)

_ROLLOUT: dict[str, Any] = {"add_batch_rank": 3, "add_time_rank": True}
_add(
    "reward-normalization",
    c.RewardNormalization,
    lambda: c.RewardNormalization(0.9),
    {"rewards": FloatBox(**_ROLLOUT), "terminated": BoolBox(**_ROLLOUT), "truncated": BoolBox(**_ROLLOUT)},
    calls=("call", "update", "call", "update", "call"),
)

# -- memories ----------------------------------------------------------------------------------------------------


def _existing_records(method: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A round inserts as many records as it updates, so lower indices are taken."""
    if method == "update_priorities":
        arguments["indices"] = arguments["indices"] % len(arguments["indices"])
    return arguments


_MEMORIES: dict[str, type[Component]] = {
    "replay": c.ReplayMemory,
    "prioritized-replay": c.PrioritizedReplay,
    "graph-replay": c.GraphReplay,
    "graph-prioritized-replay": c.GraphPrioritizedReplay,
}
for _name, _memory in _MEMORIES.items():
    _add(
        _name,
        _memory,
        lambda memory=_memory: memory(capacity=8),  # type: ignore[misc]
        {
            "records": Dict(states=_floats(2), actions=_ints(3), terminated=_bools()),
            "indices": _ints(8),
            "td_errors": _floats(),
        },
        calls=("insert", "size", "sample", "update_priorities", "sample"),
        static={"sample": {"batch_size": 5}},
        adapt=_existing_records,
        gradients=(),
    )

_RECORDS = Dict(states=_floats(2), actions=_ints(3), terminated=_bools())
_add(
    "fifo-queue",
    c.FIFOQueue,
    lambda: c.FIFOQueue(5),
    {"records": _RECORDS},
    calls=("put", "size", "get", "put", "get"),
    static={"get": {"count": 3}},
    gradients=(),
)
_add(
    "ring-buffer",
    c.RingBuffer,
    lambda: c.RingBuffer(5),
    {"records": _RECORDS},
    calls=("insert", "size", "latest", "insert", "latest"),
    static={"latest": {"count": 3}},
    gradients=(),
)

_add(
    "n-step-window",
    NStepWindow,
    lambda: NStepWindow(2, 0.9, num_envs=3),
    {
        "steps": Dict(
            states=FloatBox(shape=(2,)),
            actions=IntBox(3),
            rewards=FloatBox(),
            terminated=BoolBox(),
            truncated=BoolBox(),
            next_states=FloatBox(shape=(2,)),
        ).with_batch_rank(3)
    },
    calls=("push", "push", "push"),
    gradients=(),
    batch_sizes=(3,),
)

# -- optimizers --------------------------------------------------------------------------------------------------


class OptimizedLayer(Component):
    """A layer and the optimizer that trains it."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__("learner")
        self.layer = c.Dense(2, "tanh")
        self.optimizer = optimizer

    @api
    def call(self, inputs: Any) -> Any:
        """The layer."""
        return self.layer.call(inputs)

    @api
    def apply(self, gradients: Any) -> Any:
        """Gradients from outside: kernel and bias."""
        self.optimizer.apply([gradients["kernel"], gradients["bias"]], self.layer.variables())

    @api
    def step(self, inputs: Any) -> Any:
        """A step down the gradient of a loss, which it returns."""
        loss = self._loss(self.layer.call(inputs))
        self.optimizer.step(loss, self.layer.variables())
        return loss

    @graph_fn
    def _loss(self, outputs: Any) -> Any:
        return ops.mean(ops.square(outputs - 0.5))


_SCHEDULE = {"type": "linear", "start": 0.1, "end": 0.01, "steps": 4}
_OPTIMIZERS: dict[str, tuple[type[Component], Callable[[], Component]]] = {
    "sgd": (c.SGD, lambda: c.SGD(0.1)),
    "sgd-nesterov": (c.SGD, lambda: c.SGD(0.1, momentum=0.9, nesterov=True)),
    "adam": (c.Adam, lambda: c.Adam(_SCHEDULE, max_grad_norm=0.5)),
    "adamw": (c.AdamW, lambda: c.AdamW(0.1)),
    "rmsprop": (c.RMSProp, lambda: c.RMSProp(0.1)),
}
for _name, (_optimizer, _make) in _OPTIMIZERS.items():
    _add(
        _name,
        _optimizer,
        lambda make=_make: OptimizedLayer(make()),  # type: ignore[misc]
        {"inputs": FEATURES, "gradients": Dict(kernel=FloatBox(shape=(4, 2)), bias=FloatBox(shape=(2,)))},
        calls=("call", "apply", "call", "apply"),
        gradients=(),
    )
    # NumPy has no gradients, so whole steps are compared between the backends that have.
    _add(
        f"{_name}-step",
        _optimizer,
        lambda make=_make: OptimizedLayer(make()),  # type: ignore[misc]
        {"inputs": FEATURES},
        calls=("step", "step"),
        backends=("torch", "jax", "tensorflow"),
        reference="torch",
        gradients=(),
    )


# -- populations, evolution, adaptation ---------------------------------------------------------------------------


class ScaledMembers(Component):
    """A policy, and a population of it whose members have its weights times factors."""

    def __init__(self) -> None:
        super().__init__("members")
        self.policy = c.Policy([{"type": "dense", "units": 3, "activation": "tanh"}], IntBox(3))
        self.population = c.Population(self.policy)

    @api
    def act(self, states: Any) -> Any:
        """Of the policy alone."""
        return self.policy.parameters(states)

    @api
    def assign(self, factors: Any) -> None:
        """Gives members their weights."""
        self.population.assign(self._scaled(factors, self.policy.variables()))

    @api
    def parameters(self, states: Any) -> Any:
        """Of all members."""
        return self.population.parameters(states)

    @graph_fn(differentiable=False)
    def _scaled(self, factors: Any, variables: Any) -> Any:
        return {
            path: ops.reshape(factors, (-1,) + (1,) * len(cell.shape)) * cell.value for path, cell in variables.items()
        }


_add(
    "population",
    c.Population,
    ScaledMembers,
    {
        "states": FEATURES,
        "factors": FloatBox(add_batch_rank=3),
        "parameters.states": FloatBox(shape=(4,), add_batch_rank=3),
    },
    calls=("act", "assign", "parameters"),
    gradients=(),
)
_add(
    "noise-table",
    c.NoiseTable,
    lambda: c.NoiseTable(40),
    {"offsets": IntBox(38, add_batch_rank=True), "weights": _floats()},
    static={"rows": {"length": 3}, "combine": {"length": 3}},
    gradients=(),
)
_add(
    "evolution-strategy",
    c.EvolutionStrategy,
    lambda: c.EvolutionStrategy(0.1),
    {"centre": FloatBox(shape=(3,)), "noise": _floats(3), "signs": _floats(), "returns": _floats(2)},
    gradients=("perturb",),
)
_add(
    "linear-baseline",
    c.LinearBaseline,
    lambda: c.LinearBaseline(0.9),
    {
        "states": FloatBox(shape=(2,), add_batch_rank=True, add_time_rank=True),
        "rewards": SEQUENCE,
        "terminated": SEQUENCE_FLAGS,
        "truncated": SEQUENCE_FLAGS,
    },
    gradients=(),
)
_add("squared-error-loss", c.SquaredErrorLoss, c.SquaredErrorLoss, {"predictions": FEATURES, "targets": FEATURES})
for _name, _clip in (("surrogate-loss", None), ("surrogate-loss-clipped", 0.2)):
    _add(
        _name,
        c.SurrogateLoss,
        lambda clip=_clip: c.SurrogateLoss(clip),  # type: ignore[misc]
        {
            "log_probs": _floats(low=-2.0, high=0.0),
            "old_log_probs": _floats(low=-2.0, high=0.0),
            "advantages": _floats(),
        },
        constants={"loss": ("old_log_probs", "advantages")},
    )

# -- environments ------------------------------------------------------------------------------------------------

_ENVIRONMENTS: dict[str, Callable[[], in_graph.GraphEnvironment]] = {
    "cart_pole": lambda: in_graph.CartPole(2, max_episode_steps=3),
    "pendulum": lambda: in_graph.Pendulum(2, max_episode_steps=3),
    "catch": lambda: in_graph.Catch(2, rows=3, columns=4),
    "cue_recall": lambda: in_graph.CueRecall(2, length=2, max_length=3),
    "grid_world": lambda: in_graph.GridWorld(2, "2x2", one_hot=True, max_episode_steps=3),
}
for _name, _make_environment in _ENVIRONMENTS.items():
    _add(
        _name,
        type(_make_environment()),
        _make_environment,
        {"actions": _make_environment().action_space.with_batch_rank(2)},
        calls=("observations", "step", "step", "step", "step", "reset", "step"),
        gradients=(),
        batch_sizes=(2,),
    )


def _external() -> in_graph.ExternalEnvironment:
    return in_graph.ExternalEnvironment(make_env("rlweave/GridWorld-v0", 2, seed=0))


# what it holds is outside of the graph's state: only what follows a reset can be compared, where all begins alike
_add(
    "external",
    in_graph.ExternalEnvironment,
    _external,
    {"actions": IntBox(4).with_batch_rank(2)},
    calls=("reset", "step", "observations", "step"),
    gradients=(),
    batch_sizes=(2,),
)
