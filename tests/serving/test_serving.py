"""`rlweave serve`: single observations and batches by HTTP, validated, recurrent states in and out."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest
import uvicorn
from gymnasium import spaces as gym

from rlweave.agents.ppo import PPO
from rlweave.agents.trained_policy import TrainedPolicy
from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.registry import get_algorithm
from rlweave.runs.run_directory import RunDirectory
from rlweave.serving import make_application
from rlweave.spaces.gymnasium_json import gymnasium_to_json
from rlweave.spaces.gymnasium_spaces import Tokens, from_gymnasium

BOX = gym.Box(-2, 2, (3,), np.float32)
NESTED = gym.Dict({
    "floor": gym.Discrete(4, start=-1), "image": gym.Box(0, 255, (2, 2), np.uint8),
    "pair": gym.Tuple([gym.Box(-1, 1, (), np.float64), gym.MultiBinary(2)]),
})  # fmt: skip
ACTIONS = gym.Tuple([gym.Discrete(3, start=5), gym.Box(-1, 1, (2,), np.float32), gym.MultiBinary(2)])
LSTM = [{"type": "lstm", "units": 4}]


def policy_of(observations, actions, network=({"type": "dense", "units": 8},), **settings):
    config = {"network": list(network), "minibatches": 1, **settings}
    agent = PPO(from_gymnasium(observations), from_gymnasium(actions), config, backend="numpy", seed=2)
    agent.made_for = {
        "id": "Own-v0",
        "info_mask": "allowed" if "mask_leaf" in settings else None,
        "observation_space": gymnasium_to_json(observations),
        "action_space": gymnasium_to_json(actions),
    }
    return TrainedPolicy(agent, agent.model().weights, "numpy")


def plain(value):
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, tuple) else np.asarray(value).tolist()


@contextlib.contextmanager
def served(policies):
    """`request(path, content=None)` of a server in a thread: status and JSON of the answer."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(make_application(policies), log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()

    def request(path, content=None):
        address = f"http://127.0.0.1:{listening.getsockname()[1]}{path}"
        try:
            with urllib.request.urlopen(urllib.request.Request(address, content), timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                text = error.read()
            return error.code, json.loads(text) if text.startswith(b"{") else text

    try:
        yield request
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def ask(request, **asked):
    status, answer = request("/act", json.dumps(asked).encode())
    assert status == 200, answer
    return answer


def refusal(request, **asked):
    status, answer = request("/act", json.dumps(asked).encode())
    assert status == 422, answer
    return answer["error"]


def test_single_observations_and_batches_of_nested_spaces():
    policy = policy_of(NESTED, ACTIONS)
    NESTED.seed(1)
    seen = [NESTED.sample() for _ in range(4)]
    with served(policy) as client:
        wanted = [plain(policy.act(observation)) for observation in seen]
        found = [ask(client, observation=plain(observation))["action"] for observation in seen]
        batch = ask(client, observations=[plain(observation) for observation in seen])["actions"]
        assert ask(client, observations=[])["actions"] == []
        drawn = {json.dumps(ask(client, observation=plain(seen[0]), deterministic=False)) for _ in range(10)}
    for other in (found, batch):
        for (category, numbers, bits), row in zip(wanted, other, strict=True):
            assert [category, bits] == [row[0], row[2]]
            np.testing.assert_allclose(numbers, row[1], atol=1e-6)
    assert len(drawn) == 10


def test_the_description_has_the_spaces():
    with served(policy_of(NESTED, ACTIONS)) as client:
        described = client("/")[1]
        assert client("/health") == (200, {"status": "ok"})
        assert client("/act")[0] == 405
    assert described["observation_space"] == gymnasium_to_json(NESTED)
    assert described["action_space"] == gymnasium_to_json(ACTIONS)
    assert (described["agent"], described["environment"], described["recurrent"]) == ("ppo", "Own-v0", False)


def test_a_recurrent_policy_acts_on_no_rows():
    policy, none = policy_of(BOX, gym.Discrete(4), LSTM), np.zeros((0, 3), np.float32)
    actions, _ = policy.act_with_state(none, None)
    assert actions.shape == policy.act(none).shape == (0,)


def test_recurrent_states_go_out_and_come_back():
    policy = policy_of(BOX, gym.Discrete(4), LSTM)
    rng = np.random.default_rng(0)
    with served(policy) as client:
        state, kept, rows = {}, None, 3
        for step in range(4):
            seen, starts = rng.uniform(-2, 2, (rows, 3)).astype(np.float32), np.arange(rows) == step
            wanted, kept = policy.act_with_state(seen, kept, episode_start=starts)
            answer = ask(client, observations=seen.tolist(), episode_start=starts.tolist(), **state)
            assert answer["actions"] == wanted.tolist()
            state = {"state": answer["state"]}
        single = ask(client, observation=[0.1, 0.2, 0.3])
        again = ask(client, observation=[0.1, 0.2, 0.3], state=single["state"])
        started = ask(client, observation=[0.1, 0.2, 0.3], state=single["state"], episode_start=True)
        assert started["state"] == single["state"] != again["state"]
        wrong = refusal(client, observations=seen.tolist(), state=single["state"])
        assert wrong["what"] == "an array has another shape"
        assert "expected" in refusal(client, observation=[0, 0, 0], state={"h": []})["what"]
        assert refusal(client, observation=[0, 0, 0], episode_start=[True])["where"] == "episode_start"
        unknown = {path: [float("nan")] * len(values) for path, values in single["state"].items()}
        assert refusal(client, observation=[0, 0, 0], state=unknown)["what"] == "a state holds NaN or infinity"


@pytest.mark.parametrize(
    ("asked", "where", "what"),
    [
        ({}, None, "one observation or a batch"),
        ({"observation": {}, "observations": []}, None, "one observation or a batch"),
        ({"observation": [1, 2, 3]}, "observation", "an object is expected"),
        ({"observation": {"floor": 9}}, "observation/floor", "outside of its range"),
        ({"observation": {"floor": 1.5}}, "observation/floor", "outside of its range"),
        ({"observation": {"image": [[[1], [2]]]}}, "observation/image", "another shape"),
        ({"observation": {"image": [[1, 2], [3]]}}, "observation/image", "unequal length"),
        ({"observation": {"image": [[1, 2], [3, "red"]]}}, "observation/image", "numbers are expected"),
        ({"observation": {"pair": [0.5]}}, "observation/pair", "a list is expected"),
        ({"observation": {"pair": [0.5, [0, 2]]}}, "observation/pair/1", "outside of its range"),
        ({"observations": [{"floor": 0}]}, "observations/0", "an object is expected"),
        ({"observations": {"floor": [1]}}, "observations", "a batch is a list"),
        ({"observation": {}, "deterministic": 1}, "observation", "an object is expected"),
        ({"observation": {"floor": 0}, "deterministic": 1}, "deterministic", "true or false"),
        ({"observation": {"floor": 0}, "state": {}}, "state", "carries no state"),
        ({"observation": {"floor": 0}, "mask": [1]}, "act", "takes no mask"),
        ({"observation": {"floor": 0}, "policy": "a"}, "policy", "there is one policy"),
        ({"observation": {"floor": 0}, "observatoin": 1}, None, "unknown field"),
    ],
)
def test_what_does_not_fit_is_named(asked, where, what, client_of_nested):
    whole = {"floor": 0, "image": [[1, 2], [3, 4]], "pair": [0.5, [0, 1]]}
    if asked.get("observation") and isinstance(asked["observation"], dict):
        asked = {**asked, "observation": {**whole, **asked["observation"]}}
    error = refusal(client_of_nested, **asked)
    assert what in error["what"]
    assert error.get("where") == where


@pytest.fixture(scope="module")
def client_of_nested():
    with served(policy_of(NESTED, ACTIONS)) as client:
        yield client


def test_what_is_no_json_and_what_is_not_finite(client_of_nested):
    assert client_of_nested("/act", b"{")[0] == 400
    assert client_of_nested("/act", b"[" * 100_000 + b"]" * 100_000)[0] == 400
    assert client_of_nested("/act", b"[1]")[0] == 422
    assert len(refusal(client_of_nested, observation=["far too long"] * 10_000)["received"]) < 300
    with served(policy_of(BOX, gym.Discrete(2))) as client:
        assert client("/act", b'{"observation": [NaN, 0, 0]}')[0] == 422


def test_masks_text_and_several_policies():
    masked = gym.Dict({"action_mask": gym.MultiBinary(3), "observation": gym.Discrete(2)})
    texts = gym.Dict({"said": Tokens(4, 20), "x": gym.Box(0, 1, (1,), np.float32)})
    policies = {
        "masked": policy_of(masked, gym.Discrete(3), mask_leaf="action_mask"),
        "text": policy_of(texts, gym.Box(-1, 1, (1,), np.float32)),
    }
    with served(policies) as client:
        for allowed in range(3):
            mask = [action == allowed for action in range(3)]
            assert ask(client, policy="masked", observation=1, mask=mask) == {"action": allowed}
        several = ask(client, policy="masked", observations=[0, 1], mask=[[1, 0, 0], [0, 1, 0]])
        assert several == {"actions": [0, 1]}
        assert "not told" in refusal(client, policy="masked", observation=1)["what"]
        said = ask(client, policy="text", observations=[{"said": "go left", "x": [0]}, {"said": "stay", "x": [0]}])
        wanted = [policies["text"].act({"said": text, "x": [0.0]}) for text in ("go left", "stay")]
        np.testing.assert_allclose(said["actions"], wanted, atol=1e-6)
        assert "did you mean 'masked'" in refusal(client, policy="maskd", observation=1)["fix"]
        assert set(client("/")[1]["policies"]) == {"masked", "text"}


def test_the_command_serves_a_run(tmp_path):
    spec = get_algorithm("ppo")
    config = resolve_config(spec.config_class, sets={"env": "CartPole-v1", "backend": "numpy", "num_envs": 1})
    trainer = spec.make_trainer(config, RunDirectory.create("ppo", config.to_data(), path=tmp_path / "run"))
    trainer.save()
    trainer.close()
    command = [
        sys.executable,
        "-c",
        "from rlweave.cli import main; main()",
        "serve",
        str(tmp_path / "run"),
        "--port",
        "0",
    ]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        line = server.stdout.readline()
        address = next(word for word in line.split() if word.startswith("http://"))
        body = json.dumps({"observation": [0, 0, 0, 0]}).encode()
        with urllib.request.urlopen(urllib.request.Request(f"{address}/act", body), timeout=30) as answer:
            assert json.load(answer)["action"] in (0, 1)
        with pytest.raises(urllib.error.HTTPError, match="422"):
            urllib.request.urlopen(urllib.request.Request(f"{address}/act", b"{}"), timeout=30)
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=30) in (0, 130)
    finally:
        server.kill()
        server.stdout.close()
        server.wait()
