"""The page in docs/browser plays CartPole in headless Chromium, without a network, as the policy does in Gymnasium."""

import functools
import http.server
import json
import queue
import shutil
import subprocess
import threading
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from rlweave.export import export_policy
from tests.export.test_deploy_page import policy_of

PAGE = Path(__file__).parents[2] / "docs/browser"
PACKAGE = PAGE / "node_modules/onnxruntime-web"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NO_NETWORK = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
START = [0.03, -0.02, 0.04, 0.01]

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
    pytest.mark.skipif(not PACKAGE.is_dir(), reason="onnxruntime-web is not installed: make browser"),
]


class Server(http.server.SimpleHTTPRequestHandler):
    """The files of the page, and a policy from elsewhere; what is sent to /report comes into a queue."""

    reports: "queue.Queue[dict]" = queue.Queue()
    policy: Path

    def translate_path(self, path):
        if path.startswith("/policy/"):
            return str(self.policy / path.removeprefix("/policy/"))
        return super().translate_path(path)

    def end_headers(self):
        # the browser itself refuses whatever is not from here
        self.send_header("Content-Security-Policy", "default-src 'self' 'unsafe-inline' 'wasm-unsafe-eval'")
        super().end_headers()

    def do_POST(self):
        self.reports.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def play(tmp_path):
    """`play(query)` opens the page with the policy in `tmp_path/policy`, and returns what it reports."""
    Server.policy = tmp_path / "policy"
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server, directory=PAGE))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()

    def run(query):
        command = [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
            "--disable-background-networking", "--disable-component-update", NO_NETWORK,
            f"--user-data-dir={tmp_path / 'profile'}",
            f"http://127.0.0.1:{server.server_port}/index.html?report=report&{query}",
        ]  # fmt: skip
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return Server.reports.get(timeout=90)
        finally:
            browser.terminate()
            browser.wait(timeout=30)

    yield run
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    "layer", [{"type": "dense", "units": 8, "activation": "tanh"}, {"type": "gru", "units": 5}], ids=["dense", "gru"]
)
def test_the_page_plays_as_the_policy_does(layer, play, tmp_path):
    with gymnasium.make("CartPole-v1") as env:
        policy = policy_of(env, layer)
        export_policy(policy, "onnx", tmp_path / "policy")
        episode = play("start=" + ",".join(map(str, START)))
        assert "error" not in episode, episode["error"]
        observations, actions = episode["observations"], episode["actions"]
        assert episode["return"] == len(actions) >= 475
        assert set(actions) == {0, 1}
        # step by step, as the last digits of a cosine grow over an episode
        assert [int(policy.act(np.array(observation, np.float32))) for observation in observations] == actions
        env.reset()
        assert observations[0] == START
        for state, action, following in zip(observations, actions, observations[1:], strict=False):
            env.unwrapped.state = np.array(state)
            env.step(action)
            np.testing.assert_allclose(env.unwrapped.state, following, rtol=1e-12, atol=1e-15)


def test_the_page_says_what_is_missing(play):
    assert "policy" in play("")["error"]
