"""Who acts: ONNX Runtime beside a learner, and `acting_backend="auto"`, which measures and leaves nothing behind."""

import numpy as np
import pytest

from rlweave.agents import acting
from rlweave.agents.acting import ActingChoice, candidates
from rlweave.agents.dqn import DQN
from rlweave.agents.ppo import PPO
from rlweave.backends import is_installed
from rlweave.errors import BackendError
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox
from rlweave.testing.component_test import assert_close
from tests.agents.rollouts import NESTED_ACTIONS, NESTED_OBSERVATIONS, SMALL, SMALL_CONV, rollout

needs_onnx = pytest.mark.skipif(not is_installed("onnx"), reason="onnxruntime and onnx are not installed")
IMAGE = IntBox(0, 256, shape=(12, 12, 3), dtype="uint8", layout="channels_last")
PPO_CONFIG = {"network": SMALL, "rollout_steps": 6, "epochs": 1, "minibatches": 2, "lr": 1e-2}


def make_ppo(backend, acting_backend, **settings):
    config = {**PPO_CONFIG, "image_network": SMALL_CONV, "normalize_observations": True, **settings}
    config["acting_backend"] = acting_backend
    return PPO(NESTED_OBSERVATIONS, NESTED_ACTIONS, config, num_envs=4, backend=backend, seed=3)


def make_dqn(backend, acting_backend, observations=IMAGE):
    network = SMALL_CONV if observations is IMAGE else []
    config = {"network": SMALL, "image_network": network, "epsilon": 0.5, "acting_backend": acting_backend}
    return DQN(observations, IntBox(3), config, backend=backend, seed=3)


@needs_onnx
def test_ppo_acts_on_onnx_as_on_numpy_while_it_learns():
    onnx, numpy = make_ppo("torch", "onnx"), make_ppo("torch", "numpy")
    for seed in range(2):  # the normalization has statistics from the second update on
        batch = rollout(onnx, seed)
        assert_close(batch, rollout(numpy, seed), 1e-4, 1e-5, "rollout")
        onnx.update(batch)
        numpy.update(batch)
        for size in (1, 2, 7):
            observations = NESTED_OBSERVATIONS.with_batch_rank().sample(size, rng=seed)
            for explore in (True, False):
                acted = [agent.act(observations, explore=explore) for agent in (onnx, numpy)]
                assert_close(*acted, 1e-4, 1e-5, f"explore={explore}")
    assert onnx.acting.backend.name == "onnx"
    observations = NESTED_OBSERVATIONS.with_batch_rank().sample(5, rng=9)
    state = onnx.state_dict()
    first = onnx.act(observations)
    onnx.load_state_dict(state)
    assert_close(onnx.act(observations), first, 0, 0, "from the same state")


@needs_onnx
def test_dqn_on_images_acts_on_onnx_as_on_numpy_and_on_the_learner():
    agents = [make_dqn("torch", name) for name in ("onnx", "numpy", None)]
    observations = IMAGE.with_batch_rank().sample(33, rng=0)
    weights = {path: value + 0.03 for path, value in agents[0].get_weights().items()}
    for agent in agents:
        agent.set_weights(weights)
    values = [agent.acting.q_values(observations)[0] for agent in agents]
    greedy = [agent.get_actions(observations, explore=False) for agent in agents]
    for value, actions in zip(values[1:], greedy[1:], strict=True):
        np.testing.assert_allclose(values[0], value, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(greedy[0], actions)
    explored = [agent.get_actions(observations) for agent in agents[:2]]
    np.testing.assert_array_equal(*explored)
    assert np.any(explored[0] != greedy[0]), "epsilon is 0.5"


@pytest.mark.parametrize("backend", ["torch", "jax", pytest.param("tensorflow", marks=pytest.mark.slow)])
def test_measuring_leaves_nothing_behind(backend):
    if not is_installed(backend):
        pytest.skip(f"{backend} is not installed")
    plain = make_dqn(backend, None, FloatBox(shape=(4,))).build()
    agent = make_dqn(backend, "auto", FloatBox(shape=(4,)))
    agent.acting_batch_size = 3
    agent.build()
    choice = agent.acting_choice
    assert set(choice.seconds) == set(candidates(backend))
    assert choice.backend == min(choice.seconds, key=choice.seconds.get) == agent.config.acting_backend
    assert choice.batch_size == 3
    assert choice.backend in str(choice)
    assert agent.counters() == plain.counters()
    for path, value in plain.executor.state_dict().items():
        np.testing.assert_array_equal(agent.executor.state_dict()[path], value, err_msg=path)
    # what acts is what a named backend would have been: weights, random state, actions
    named = make_dqn(backend, choice.backend, FloatBox(shape=(4,)))
    assert agent.acting.backend.name == choice.backend
    for path, value in named.acting.state_dict().items():
        np.testing.assert_array_equal(agent.acting.state_dict()[path], value, err_msg=path)
    observations = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    np.testing.assert_array_equal(agent.get_actions(observations), named.get_actions(observations))


def test_a_named_backend_is_not_measured(monkeypatch):
    monkeypatch.setattr("rlweave.agents.acting.choose_acting_backend", lambda *args: pytest.fail("measured"))
    assert make_dqn("torch", "numpy").build().acting_choice is None
    assert make_dqn("torch", None).build().acting_choice is None


@needs_onnx
def test_who_cannot_act_is_named_with_the_reason(monkeypatch):
    make_acting = DQN.make_acting

    def fails_on_onnx(self, backend, seed=None):
        if backend == "onnx":
            raise BackendError("ops.lgamma has no ONNX form", where="policy.act")
        return make_acting(self, backend, seed)

    monkeypatch.setattr(DQN, "make_acting", fails_on_onnx)
    choice = make_dqn("torch", "auto", FloatBox(shape=(4,))).build().acting_choice
    assert choice.failed == {"onnx": "ops.lgamma has no ONNX form"}
    assert set(choice.seconds) == {"torch", "numpy"}
    assert "onnx cannot (ops.lgamma has no ONNX form)" in str(choice)


def test_the_median_of_alternating_runs_decides_and_the_slow_are_not_waited_for(monkeypatch):
    # the first run of each, then rounds; one outlier of "steady" and a good beginning of "wavering" decide nothing
    script = {"steady": [3e-3, 2e-3, 2e-3, 9e-3, *[2e-3] * 4], "wavering": [1e-3, *[4e-3] * 7], "slow": [1.0]}
    order = []

    def timed(call, count):
        name = call()
        order.append((name, count))
        return script[name].pop(0)

    monkeypatch.setattr(acting, "_timed", timed)
    seconds = acting._measured({name: (lambda name=name: name) for name in script}, budget=1e9)
    assert seconds == {"steady": 2e-3, "wavering": 4e-3, "slow": 1.0}
    assert order[:7] == [("steady", 1), ("wavering", 1), ("slow", 1), *[("steady", 2), ("wavering", 8)] * 2]
    assert [name for name, _ in order].count("slow") == 1


def test_measuring_ends_when_its_time_is_over(monkeypatch):
    calls = []
    monkeypatch.setattr(acting, "_timed", lambda call, count: calls.append(count) or 1e-3)
    acting._measured({"one": int, "other": int}, budget=0.0)
    assert len(calls) == 4, "the first run of each, and one round"


def test_a_choice_in_words():
    choice = ActingChoice("numpy", 8, {"torch": 1.5e-4, "numpy": 2e-5})
    assert str(choice).startswith(
        "acting on numpy: measured for 8 observations at once: numpy 20 us, torch 150 us (agent.acting_backend=numpy"
    )


@needs_onnx
@pytest.mark.parametrize("network", [[{"type": "dense", "units": 4}], [{"type": "lstm", "units": 4}]])
def test_the_order_of_keys_does_not_matter(network):
    # leaves are bound by their names, whatever the order of the caller's dicts
    space = Dict(a=FloatBox(shape=(3,)), b=FloatBox(shape=(3,)), flag=BoolBox(shape=(2,)))
    agents = [
        DQN(space, IntBox(3), {"network": network, "acting_backend": acting}, backend="torch", seed=1)
        for acting in ("onnx", "numpy")
    ]
    observations = space.with_batch_rank().sample(40, rng=0)
    turned = dict(reversed(observations.items()))
    results = [agent.get_actions(s, explore=False) for agent in agents for s in (observations, turned)]
    for agent in agents:  # a recurrent agent goes on from here: the second look is compared with the second
        agent.begin_episodes()
    again = [agent.get_actions(turned, explore=False) for agent in agents]
    np.testing.assert_array_equal(results[0], results[2])
    np.testing.assert_array_equal(results[1], results[3])
    for greedy in again:
        np.testing.assert_array_equal(greedy, results[0])


def test_portable_random_numbers_are_a_setting_and_the_same_on_every_backend():
    observations = NESTED_OBSERVATIONS.with_batch_rank().sample(16, rng=1)
    names = [name for name in ("numpy", "torch", "jax", "onnx") if is_installed(name)]
    agents = [make_ppo("torch", name, rng="portable") for name in names]
    first, *others = [(agent.get_actions(observations), agent.get_actions(observations)) for agent in agents]
    for name, actions in zip(names[1:], others, strict=True):
        assert_close(actions, first, 1e-4, 1e-5, name)
    assert not np.allclose(first[0]["steer"], first[1]["steer"])  # drawn, not the likeliest
