"""DQN as an agent: spaces, memory, targets, schedules, API."""

import gc
import resource

import numpy as np
import pytest

from rlweave.agents.dqn import DQN
from rlweave.errors import ConfigError, ExecutionError, SpaceError
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Tuple
from tests.agents.rollouts import NESTED_OBSERVATIONS, SMALL, SMALL_CONV, transitions

LEARNING = ["torch", "jax", "tensorflow"]
CONFIG = {"network": SMALL, "memory_capacity": 64, "learning_starts": 8, "batch_size": 8, "target_update_interval": 501}


def make(backend, observations=None, actions=None, **settings):
    return DQN(
        FloatBox(shape=(3,)) if observations is None else observations,
        IntBox(3) if actions is None else actions,
        {**CONFIG, **settings},
        backend=backend,
        seed=3,
    )


@pytest.mark.parametrize("backend", LEARNING)
@pytest.mark.parametrize(
    "actions",
    [IntBox(3), IntBox([0, -1], [2, 2]), BoolBox(shape=(2,)), Dict(arm=Tuple(IntBox(3), BoolBox()), go=IntBox(2, 6))],
    ids=str,
)
def test_any_observation_and_discrete_action_space(backend, actions):
    agent = make(backend, NESTED_OBSERVATIONS, actions, image_network=SMALL_CONV)
    agent.insert(transitions(agent, 16))
    agent.count_steps(16)
    metrics = agent.update()
    assert np.isfinite(metrics["loss"])
    observations = NESTED_OBSERVATIONS.with_batch_rank().sample(5, rng=0)
    for explore in (True, False):
        assert agent.action_space.with_batch_rank().why_not(agent.get_actions(observations, explore=explore)) is None


@pytest.mark.parametrize("actions", [FloatBox(shape=(2,)), Dict(a=IntBox(2), b=IntBox())], ids=str)
def test_action_spaces_without_q_values_are_refused(actions):
    with pytest.raises(SpaceError, match="such as PPO|a range of at most"):
        make("jax", actions=actions)


@pytest.mark.parametrize("prioritized", [True, False])
@pytest.mark.parametrize("dueling", [True, False])
@pytest.mark.parametrize("double", [True, False])
def test_variants_give_the_same_numbers_on_torch_and_jax(prioritized, dueling, double):
    agents = [make(backend, prioritized=prioritized, dueling=dueling, double=double) for backend in ("torch", "jax")]
    for agent in agents:
        agent.insert(transitions(agent, 32))
        agent.count_steps(32)
    losses = [[agent.update()["loss"] for _ in range(6)] for agent in agents]
    np.testing.assert_allclose(losses[0], losses[1], rtol=2e-4)
    assert len(set(losses[0])) == 6


@pytest.mark.parametrize("prioritized", [True, False])
@pytest.mark.parametrize("backend", LEARNING)
def test_a_memory_in_the_graph_is_a_setting(backend, prioritized):
    agent = make(backend, prioritized=prioritized, memory_place="graph")
    agent.insert(transitions(agent, 32))
    agent.count_steps(32)
    before = agent.executor.get_weights()
    assert np.isfinite([agent.update()["loss"] for _ in range(20)]).all()
    after = agent.executor.get_weights()
    moved = {path for path, value in after.items() if not np.array_equal(value, before[path])}
    assert any(path.startswith("dqn/policy") for path in moved)
    assert ("dqn/memory/sum-tree" in moved) == prioritized
    program = agent.executor.program("update", {"batch_size": agent.config.batch_size})
    assert "to_host" not in program.source
    assert len(program.runs) == (backend != "torch")  # one program, where there are programs
    restored = make(backend, prioritized=prioritized, memory_place="graph")
    restored.load_state_dict(agent.state_dict())
    restored.load_counters(agent.counters())
    np.testing.assert_allclose(restored.update()["loss"], agent.update()["loss"], rtol=1e-5)


@pytest.mark.parametrize("backend", LEARNING)
def test_training_before_the_memory_can_serve_waits_and_says_so(backend):
    agent = make(backend)
    assert not agent.ready()
    with pytest.raises(ExecutionError, match=r"not enough to learn from(.|\n)*learning_starts"):
        agent.update()
    agent.insert(transitions(agent, 8))
    agent.count_steps(8)
    assert agent.ready()
    agent.update()


def test_the_target_network_is_copied_once_per_crossing_of_its_interval():
    agent = make("torch", lr=0.1)
    agent.insert(transitions(agent, 16))
    agent.count_steps(8)
    copies = []
    for _ in range(130):
        agent.count_steps(8)  # 16, 24, ...: never a multiple of 501
        before = agent.executor.get_weights("dqn/target-policy")
        agent.update()
        after = agent.executor.get_weights("dqn/target-policy")
        if any(not np.array_equal(before[path], after[path]) for path in before):
            copies.append(agent.env_steps)
            for path, value in agent.executor.get_weights("dqn/policy").items():
                np.testing.assert_array_equal(after[path.replace("policy", "target-policy", 1)], value)
    assert copies == [504, 1008]


def test_the_target_network_starts_with_the_same_weights():
    agent = make("jax")
    target = agent.executor.get_weights("dqn/target-policy")
    for path, value in agent.executor.get_weights("dqn/policy").items():
        np.testing.assert_array_equal(target[path.replace("policy", "target-policy", 1)], value)


@pytest.mark.parametrize("backend", LEARNING)
def test_terminal_states_are_not_bootstrapped_and_truncated_ones_are(backend):
    """Q(s, a) goes to r at a terminal state, and to r + g V(final observation) at a truncated one (faults 1, 2, 4)."""
    agent = make(
        backend,
        n_step=1,
        discount=0.5,
        lr=0.2,
        huber_delta=None,
        dueling=False,
        network=[],
        prioritized=False,
        optimizer={"type": "sgd"},
        max_grad_norm=None,
        learning_starts=1,
    )
    hot = np.eye(3, dtype=np.float32)
    rows = [
        # state, action, reward, terminated, truncated, next state
        (hot[0], 0, 1.0, True, False, hot[2]),
        (hot[1], 0, 1.0, False, True, hot[2]),
        (hot[1], 1, 1.0, True, True, hot[2]),
        (hot[2], 0, 4.0, True, False, hot[0]),
    ]
    for env, (state, action, reward, terminated, truncated, following) in enumerate(rows):
        agent.observe(state, action, reward, terminated, truncated, following, env_id=env)
    weights = agent.executor.get_weights()
    agent.set_weights({path: np.zeros_like(weights[path]) for path in weights if "policy" in path})
    for _ in range(400):
        agent.update()
        agent.executor.sync_target()
    q, _ = agent.executor.q_values(hot)
    assert q[0, 0] == pytest.approx(1.0, abs=0.02)
    assert q[1, 1] == pytest.approx(1.0, abs=0.02)
    assert q[1, 0] == pytest.approx(1.0 + 0.5 * q[2].max(), abs=0.02)
    assert q[2].max() > 3.0


@pytest.mark.early_on_tensorflow
@pytest.mark.parametrize("backend", LEARNING)
def test_an_external_batch_and_computed_gradients_are_the_same_step(backend):
    agent, twin = make(backend), make(backend)
    batch = transitions(agent, 8)
    agent.update(batch)
    twin.apply_gradients(twin.compute_gradients(batch))
    for path, value in agent.executor.get_weights("dqn/policy").items():
        np.testing.assert_allclose(twin.executor.get_weights()[path], value, atol=1e-6, err_msg=path)


def test_exploration_follows_its_schedule_and_repeats_with_the_seed():
    schedule = {"type": "linear", "start": 1.0, "end": 0.0, "steps": 100}
    first, second = make("numpy", epsilon=schedule), make("numpy", epsilon=schedule)
    observations = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    np.testing.assert_array_equal(first.get_actions(observations), second.get_actions(observations))
    greedy = first.get_actions(observations, explore=False)
    assert 0.4 < np.mean(first.get_actions(observations) != greedy) < 0.9
    first.count_steps(50)
    assert first.epsilon == 0.5
    first.count_steps(1000)
    np.testing.assert_array_equal(first.get_actions(observations), greedy)


@pytest.mark.parametrize("backend", LEARNING)
def test_batches_of_changing_size_compile_nothing_new_and_leave_no_memory_behind(backend):
    agent = make(backend, acting_backend="numpy")
    rng = np.random.default_rng(0)
    agent.count_steps(8)
    agent.insert(transitions(agent, 8))
    agent.update()
    before = agent.executor.compilations
    resident = []
    for iteration in range(1000):
        if iteration in (300, 999):
            gc.collect()
            resident.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        agent.insert(transitions(agent, int(rng.integers(1, 9))))
        agent.get_actions(rng.normal(size=(int(rng.integers(1, 9)), 3)).astype(np.float32))
        agent.update()
    assert agent.executor.compilations == before
    assert resident[1] - resident[0] < 20_000, "kilobytes of peak memory"
    if backend == "jax":
        program = agent.executor.program("update", {"batch_size": 8})
        assert [run._cache_size() for run in program.runs.values()] == [1]


def test_learning_that_can_never_start_is_refused():
    with pytest.raises(ConfigError, match="learning would never start"):
        make("jax", learning_starts=65)


def test_observed_steps_are_cast_to_the_spaces_and_checked():
    agent = make("numpy", n_step=1, prioritized=False)
    agent.observe([0, 0, 0], 1, 1, False, False, np.array([1, 0, 0]))
    agent.observe(np.array([0.5, 0.25, 0.9]), np.int64(2), 1.0, False, True, [0.7, 0.7, 0.7])
    stored = agent.executor.get_weights("dqn/memory/records")
    np.testing.assert_allclose(stored["dqn/memory/records/observations"][:2], [[0, 0, 0], [0.5, 0.25, 0.9]])
    np.testing.assert_allclose(
        stored["dqn/memory/records/next_observations"][:2], [[1, 0, 0], [0.7, 0.7, 0.7]], rtol=1e-6
    )
    state = np.zeros(3, np.float32)
    for step, text in (
        ((state[:1], 0, 0.0, False, False, state), "another shape"),
        ((state, 3, 0.0, False, False, state), "out of its range"),
        ((state, -1, 0.0, False, False, state), "out of its range"),
        ((state, 0, np.nan, False, False, state), "reward is not finite"),
        ((state, 0, 0.0, False, False, state * np.nan), "not finite"),
    ):
        with pytest.raises(ExecutionError, match=text):
            agent.observe(*step)


@pytest.mark.parametrize("backend", LEARNING)
def test_a_training_that_diverges_is_noticed(backend):
    agent = make(backend, prioritized=False)
    batch = transitions(agent, 8)
    batch["rewards"][:] = np.inf
    with pytest.raises(ExecutionError, match=r"training has diverged(.|\n)*loss"):
        agent.update(batch)
    with pytest.raises(ExecutionError, match="without transitions"):
        agent.update(transitions(agent, 0))


@pytest.mark.parametrize("backend", LEARNING)
def test_a_batch_that_is_drawn_staged_and_learned_at_once_is_an_update(backend):
    plain, ahead = make(backend), make(backend, prefetch=1)
    for agent in (plain, ahead):
        agent.insert(transitions(agent, 32))
        agent.count_steps(32)
    for _ in range(4):
        expected, found = plain.update(), ahead.update(ahead.stage(ahead.draw()))
        assert found["trained_samples"] == expected["trained_samples"] == 8
        np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-5)
    state = ahead.state_dict()
    for path, value in plain.state_dict().items():
        np.testing.assert_allclose(state[path], value, rtol=1e-4, atol=1e-5, err_msg=path)


def test_what_cannot_be_prefetched_is_refused():
    with pytest.raises(ConfigError, match="has nothing to prefetch"):
        make("jax", prefetch=1, memory_place="graph")
    with pytest.raises(ExecutionError, match="not enough to learn from"):
        make("torch", prefetch=1).draw()


def test_places_and_replicas_are_settings():
    placed = make("jax", device={"target-policy": "cpu:1", "memory": "host"}, replicas=["cpu:0", "cpu:2"])
    plain = make("jax")
    for agent in (placed, plain):
        agent.insert(transitions(agent, 32))
        agent.count_steps(32)
    losses = [[agent.update()["loss"] for _ in range(4)] for agent in (placed, plain)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    store = placed.executor.store
    store.release()
    for path, cell in store.cells.items():
        if path.startswith(("dqn/target-policy", "dqn/policy", "dqn/optimizer")):
            assert {d.id for d in cell.value.devices()} == ({1} if "target" in path else {0, 2}), path
    placed.executor.sync_target()
    online = placed.executor.get_weights("dqn/policy")
    for path, value in placed.executor.get_weights("dqn/target-policy").items():
        np.testing.assert_array_equal(value, online[path.replace("target-policy", "policy")])
