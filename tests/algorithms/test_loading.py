"""`rlweave.load`: what was trained acts as its training's evaluation does, in the environment's own terms."""

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces as gym

import rlweave
from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.registry import get_algorithm
from rlweave.errors import BackendError, CheckpointError, ExecutionError
from rlweave.runs.checkpoint import save_checkpoint
from rlweave.runs.run_directory import RunDirectory

LSTM = [{"type": "lstm", "units": 8}]
WORDS = gym.Text(20, charset="abcdefgh ")


class Told(gymnasium.Env):
    """Observations at random, episodes of four steps; remembers what it showed and what it was told to do."""

    log: list[tuple[object, object]]

    def __init__(self, observations, actions, masked=False):
        self.observation_space, self.action_space, self.masked = observations, actions, masked

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        Told.log.append(("reset", None))
        return self._look()

    def _look(self):
        self.seen = self.observation_space.sample()
        self.mask = np.ones(self.action_space.n, np.int8) if self.masked else None
        if self.masked:
            self.mask[self.np_random.integers(self.action_space.n)] = 0
        return self.seen, {"allowed": self.mask}

    def step(self, action):
        Told.log.append(((self.seen, self.mask), action))
        self.steps += 1
        observation, info = self._look()
        return observation, 0.0, False, self.steps == 4, info


CASES = {
    "box to discrete": ("ppo", gym.Box(-2, 2, (3,), np.float64), gym.Discrete(3, start=-1), {}),
    "q values": ("dqn", gym.Box(-2, 2, (3,), np.float32), gym.Discrete(3, start=5), {}),
    "discrete to box": ("ppo", gym.Discrete(5, start=2), gym.Box(-3, 10, (2,), np.float64), {}),
    "normalized": ("ppo", gym.Box(-9, 9, (2,), np.float32), gym.Box(-1, 1, (), np.float32), {
        "agent.normalize_observations": True}),
    "nested": ("a2c", gym.Dict({"z": gym.Box(0, 255, (2, 2, 1), np.uint8), "a": gym.Discrete(3, start=1)}),
               gym.Tuple([gym.Discrete(2), gym.Dict({"wheel": gym.Box(0, 1, (1,), np.float32)})]),
               {"image_layout": "channels_last"}),
    "many choices": ("ppo", gym.Tuple([gym.MultiBinary(3), gym.Box(0, 9, (2,), np.int64)]),
                     gym.MultiDiscrete([2, 5], start=[1, -3]), {}),
    "yes and no": ("a2c", gym.MultiDiscrete([3, 3]), gym.MultiBinary(2), {}),
    "text": ("ppo", gym.Dict({"said": WORDS, "x": gym.Box(0, 1, (1,), np.float32)}), gym.Discrete(2), {}),
    "masked": ("ppo", gym.Box(0, 1, (2,), np.float32), gym.Discrete(4), {"info_mask": "allowed"}),
    "evolved": ("es", gym.Box(-1, 1, (2,), np.float32), gym.Box(-2, 2, (1,), np.float32), {
        "agent.pairs": 1, "agent.noise_size": 10_000}),
    "recurrent": ("ppo", gym.Box(-2, 2, (3,), np.float32), gym.Discrete(4), {
        "agent.network": LSTM, "agent.minibatches": 1}),
    "recurrent q values": ("dqn", gym.Box(-2, 2, (3,), np.float32), gym.Discrete(4), {"agent.network": LSTM}),
}  # fmt: skip


def trained(algorithm, env, run=None, **settings):
    """A trainer on NumPy, which acts with its first weights: nothing has to be learned here."""
    spec = get_algorithm(algorithm)
    given = {"env": env, "backend": "numpy", "num_envs": 1, "seed": 3, **settings}
    return spec.make_trainer(resolve_config(spec.config_class, sets=given), run)


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize(("dtype", "value"), [(np.int32, 10), (np.int64, 2**32), (np.int8, -1)])
def test_integers_outside_of_their_box_are_refused(told, tmp_path, dtype, value, batch):
    told(gym.Box(0, 9, (2,), np.int32), gym.Discrete(2))
    trainer = trained("ppo", "Told-v0")
    try:
        trainer.agent.export_model(tmp_path / "model")
    finally:
        trainer.close()
    policy = rlweave.load(tmp_path / "model")
    observation = np.array([9, value], dtype)
    with pytest.raises(ExecutionError, match=rf"the observation does not lie in Box[\s\S]*{value} at \[1\]"):
        policy.act(observation[None] if batch else observation)
    policy.act(np.array([9, 0], dtype))


@pytest.fixture
def told(monkeypatch):
    """Registers `Told` with spaces."""
    monkeypatch.setattr(Told, "log", [], raising=False)

    def register(observations, actions, masked=False):
        entry = lambda: Told(observations, actions, masked)  # noqa: E731
        monkeypatch.setitem(
            gymnasium.registry, "Told-v0", gymnasium.envs.registration.EnvSpec("Told-v0", entry_point=entry)
        )

    return register


def equal(first, second):
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(equal(first[key], second[key]) for key in first)
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(equal, first, second))
    return type(first) is type(second) and first.dtype == second.dtype and np.array_equal(first, second)


@pytest.mark.parametrize("case", CASES)
def test_a_loaded_policy_does_what_the_evaluation_of_its_training_did(case, told, tmp_path):
    algorithm, observations, actions, settings = CASES[case]
    told(observations, actions, masked="info_mask" in settings)
    trainer = trained(algorithm, "Told-v0", **settings)
    trainer.export_model(tmp_path / "model")
    Told.log.clear()
    trainer.evaluate(2, seed=7)
    trainer.close()
    policy = rlweave.load(tmp_path / "model")
    if case != "text":  # of which the policy knows the numbers of words that it takes
        assert policy.observation_space == observations
    assert policy.action_space == actions
    assert policy.environment["id"] == "Told-v0"
    state, steps = None, 0
    for seen, done in Told.log:
        if seen == "reset":
            policy.reset()
            state = None
            continue
        observation, mask = seen
        action = policy.act(observation, mask=mask)
        assert actions.contains(action)
        assert equal(action, done), (action, done)
        passed, state = policy.act_with_state(observation, state, mask=mask)
        assert equal(passed, done)
        steps += 1
    assert steps == 8


@pytest.mark.parametrize("case", ["box to discrete", "nested", "text", "masked", "recurrent"])
def test_a_batch_is_its_rows(case, told, tmp_path):
    algorithm, observations, actions, settings = CASES[case]
    told(observations, actions, masked="info_mask" in settings)
    trainer = trained(algorithm, "Told-v0", **settings)
    policy = rlweave.load(trainer.agent.export_model(tmp_path / "model"))
    trainer.close()
    observations.seed(1)
    rows = [observations.sample() for _ in range(6)]
    masks = [None] * 6 if "info_mask" not in settings else [np.eye(4, dtype=np.int8)[i % 4] for i in range(6)]
    batch = gymnasium.vector.utils.concatenate(observations, rows, gymnasium.vector.utils.create_empty_array(
        observations, 6))  # fmt: skip
    together = policy.act(batch, mask=None if masks[0] is None else np.stack(masks))
    for row, action in enumerate(gymnasium.vector.utils.iterate(
        gymnasium.vector.utils.batch_space(actions, 6), together)):  # fmt: skip
        policy.reset()
        alone = policy.act(rows[row], mask=masks[row])
        assert actions.contains(alone)
        np.testing.assert_allclose(gym.flatten(actions, alone), gym.flatten(actions, action), rtol=1e-5)
        if masks[row] is not None:
            assert alone == row % 4


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    """Model of an agent for CartPole."""
    trainer = trained("ppo", "CartPole-v1")
    path = tmp_path_factory.mktemp("cartpole") / "model"
    trainer.export_model(path)
    trainer.close()
    return path


LOOKS = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)


def test_observations_are_converted_and_checked(cartpole):
    policy = rlweave.load(cartpole)
    expected = policy.act(LOOKS[0])
    assert type(expected) is np.int64
    for same in (LOOKS[0].astype(np.float64), LOOKS[0].tolist(), tuple(LOOKS[0].tolist())):
        assert policy.act(same) == expected
    assert policy.act(LOOKS[:3].tolist()).tolist() == policy.act(LOOKS[:3]).tolist()
    assert policy.act(LOOKS[:0]).shape == (0,)
    for wrong, named in (
        (LOOKS[0, :3], r"shape \(4,\)[\s\S]*shape \(3,\)[\s\S]*Box"),
        (LOOKS[None, :2], r"shape \(4,\)[\s\S]*\(1, 2, 4\)"),
        ("left", r"shape \(4,\)"),
        (None, r"shape \(4,\)"),
        (np.zeros(4, complex), "dtype that fits float32[\\s\\S]*complex"),
        ([[1.0], [2.0, 3.0]], "no array of numbers"),
        (np.array([0, np.nan, 0, 0]), "NaN or infinity"),
        (np.array([[0, 0, 0, 0], [0, np.inf, 0, 0]]), "NaN or infinity[\\s\\S]*row 1"),
    ):
        with pytest.raises(ExecutionError, match=named):
            policy.act(wrong)
    with pytest.raises(ExecutionError, match="takes no mask"):
        policy.act(LOOKS[0], mask=[1, 1])


def test_a_policy_that_needs_masks_says_where_they_are(told, tmp_path):
    algorithm, observations, actions, settings = CASES["masked"]
    told(observations, actions, masked=True)
    trainer = trained(algorithm, "Told-v0", **settings)
    policy = rlweave.load(trainer.agent.export_model(tmp_path / "model"))
    trainer.close()
    with pytest.raises(ExecutionError, match=r"mask=info\['allowed'\]"):
        policy.act(np.zeros(2, np.float32))
    with pytest.raises(ExecutionError, match="no action is allowed"):
        policy.act(np.zeros(2, np.float32), mask=[0, 0, 0, 0])


def test_exploration_is_seeded(cartpole):
    policy = rlweave.load(cartpole, seed=1)
    first = [policy.act(LOOKS, deterministic=False) for _ in range(3)]
    assert not np.array_equal(first[0], first[1])
    policy.seed(1)
    again = [policy.act(LOOKS, deterministic=False) for _ in range(3)]
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(
        first, [rlweave.load(cartpole, seed=1).act(LOOKS, deterministic=False)] * 1 + first[1:]
    )
    assert not np.array_equal(rlweave.load(cartpole, seed=2).act(LOOKS, deterministic=False), first[0])
    np.testing.assert_array_equal(policy.act(LOOKS), policy.act(LOOKS))


def in_threads(work, count=8):
    found, failed = [None] * count, []

    def run(index):
        try:
            found[index] = work(index)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed[0]
    return found


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax"])
def test_many_threads_act_as_one(backend, cartpole):
    policy = rlweave.load(cartpole, backend)
    serial = policy.act(LOOKS)
    assert serial.dtype == np.int64
    found = in_threads(lambda index: [policy.act(look) for look in np.roll(LOOKS, index, axis=0)])
    for index, actions in enumerate(found):
        np.testing.assert_array_equal(actions, np.roll(serial, index))


def test_each_thread_has_a_recurrent_state_of_its_own(told, tmp_path):
    algorithm, observations, actions, settings = CASES["recurrent"]
    told(observations, actions)
    trainer = trained(algorithm, "Told-v0", **settings)
    policy = rlweave.load(trainer.agent.export_model(tmp_path / "model"))
    trainer.close()
    looks = np.random.default_rng(1).normal(size=(8, 12, 3)).astype(np.float32)
    serial = []
    for sequence in looks:
        policy.reset()
        serial.append([policy.act(look) for look in sequence])
    assert in_threads(lambda index: [policy.act(look) for look in looks[index]]) == serial
    # sequences side by side: row 0 begins anew in the middle
    policy.reset()
    for step in range(6):
        policy.act(looks[:2, step])
    with pytest.raises(ExecutionError, match=r"another number of observations[\s\S]*reset\(\)"):
        policy.act(looks[:3, 0])
    policy.reset([True, False])
    rows = [policy.act(np.stack([looks[0, step], looks[1, 6 + step]])) for step in range(6)]
    assert [row.tolist() for row in rows] == [[serial[0][step], serial[1][6 + step]] for step in range(6)]


def test_runs_checkpoints_and_models_are_found(tmp_path):
    run = RunDirectory.create("ppo", {"env": "CartPole-v1", "seed": 3}, path=tmp_path / "run")
    trainer = trained("ppo", "CartPole-v1", run)
    checkpoint = trainer.save()
    expected = trainer.agent.get_actions(LOOKS, explore=False)
    trainer.close()
    for path in (run.path, run.checkpoints, checkpoint, checkpoint / "model"):
        np.testing.assert_array_equal(rlweave.load(path).act(LOOKS), expected)
    for nothing in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(CheckpointError, match="no checkpoint there"):
            rlweave.load(nothing)
    with pytest.raises(BackendError, match="unknown backend"):
        rlweave.load(run.path, "numpi")


OWN_LAYER = """
from rlweave import ops
from rlweave.graph import Component, graph_fn, register

@register("own_doubling")
class Doubling(Component):
    @graph_fn
    def call(self, inputs):
        return ops.multiply(inputs, 2.0)
"""


def test_components_of_the_users_module_are_known_where_its_run_is_loaded(tmp_path, monkeypatch):
    (tmp_path / "own_layers.py").write_text(OWN_LAYER)
    monkeypatch.syspath_prepend(tmp_path)
    network = [{"type": "own_doubling"}, {"type": "dense", "units": 4}]
    settings = {"imports": ["own_layers"], "agent.network": network}
    data = {"env": "CartPole-v1", "seed": 3, "imports": ["own_layers"]}
    run = RunDirectory.create("ppo", data, path=tmp_path / "run")
    trainer = trained("ppo", "CartPole-v1", run, **settings)
    trainer.save()
    trainer.close()
    script = f"import rlweave; assert rlweave.load({str(run.path)!r}).act([0.0, 0.1, 0.2, 0.3]) in (0, 1)"
    path = os.pathsep.join([str(tmp_path), *sys.path])
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "PYTHONPATH": path})


def test_policies_that_were_trained_side_by_side_are_loaded_by_name(tmp_path):
    policies = {"a": {"algorithm": "ppo", "agent": {}}, "b": {"algorithm": "dqn", "agent": {}}}
    trainer = trained(
        "multi-agent", "rlweave/MultiCartPole-v0", policies=policies, mapping={"*": "a", "cart_0": "b"}, num_envs=2
    )
    trainer.export_model(tmp_path / "model")
    loaded = rlweave.load(tmp_path / "model")
    assert sorted(loaded) == ["a", "b"]
    for name, policy in loaded.items():
        looks = np.stack([policy.observation_space.sample() for _ in range(5)])
        np.testing.assert_array_equal(policy.act(looks), trainer.agent[name].get_actions(looks, explore=False))
    trainer.close()


def test_meta_learned_weights_act_anywhere(tmp_path):
    spec = get_algorithm("maml")
    config = resolve_config(spec.config_class, sets={"env": "rlweave/PointNavigation-v0", "backend": "torch"})
    trainer = spec.make_trainer(config, None)
    trainer.export_model(tmp_path / "model")
    looks = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    expected = trainer.agent.get_actions(looks, explore=False)
    trainer.close()
    np.testing.assert_allclose(rlweave.load(tmp_path / "model").act(looks), expected, atol=1e-6)


@pytest.mark.parametrize(("learns", "acts"), [("torch", "jax"), ("jax", "torch"), ("torch", "onnx")])
def test_weights_act_on_any_installed_backend(learns, acts, tmp_path):
    trainer = trained("ppo", "Pendulum-v1", backend=learns)
    trainer.export_model(tmp_path / "model")
    looks = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
    expected = trainer.agent.get_actions(looks, explore=False)
    trainer.close()
    for backend in (None, acts):
        np.testing.assert_allclose(rlweave.load(tmp_path / "model", backend).act(looks), expected, atol=1e-5)


def test_neither_framework_nor_plan_is_imported(cartpole):
    script = (
        "import sys, rlweave\n"
        f"assert rlweave.load({str(cartpole)!r}).act([0.0, 0.1, 0.2, 0.3]) in (0, 1)\n"
        "unwanted = {'torch', 'jax', 'tensorflow', 'onnxruntime', 'ray', 'rlweave.flow', 'rlweave.cli'}\n"
        "assert not unwanted & set(sys.modules), unwanted & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("file", ["manifest.json", "model.json"])
def test_a_policy_is_loaded_while_its_training_replaces_the_best(file, cartpole, tmp_path, monkeypatch):
    written, read_text = iter((1, 20, 300)), Path.read_text

    def save():
        write = functools.partial(shutil.copytree, cartpole)
        save_checkpoint(tmp_path / "checkpoints", 0, {}, {"written": next(written)}, write_model=write, name="best")

    def read_and_replace(path, *args, **kwargs):
        text = read_text(path, *args, **kwargs)
        if path.name == file and path.is_relative_to(tmp_path):
            with contextlib.suppress(StopIteration):
                save()
        return text

    save()
    expected = rlweave.load(cartpole).act(LOOKS)
    monkeypatch.setattr(Path, "read_text", read_and_replace)
    np.testing.assert_array_equal(rlweave.load(tmp_path).act(LOOKS), expected)
    assert next(written, None) is None
