"""Latency of `rlweave serve`: one observation, and 64 of them, over one connection on this machine.

The policy is PPO's default one for CartPole, on NumPy. What remains when the policy's own time is taken away is HTTP,
JSON, and the checks. The last line is JSON.

Usage: python benchmarks/serve_latency.py [--requests 2000] [--backend numpy]
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import threading
import time

from alternating import one_thread

one_thread()

import numpy as np  # noqa: E402
import uvicorn  # noqa: E402

from rlweave.agents.ppo import PPO  # noqa: E402
from rlweave.agents.trained_policy import TrainedPolicy  # noqa: E402
from rlweave.serving import make_application  # noqa: E402
from rlweave.spaces import FloatBox, IntBox  # noqa: E402

ROWS = (1, 64)


def microseconds(call, count):
    """Sorted times of calls, after a tenth of them that is not counted."""
    times = []
    for number in range(count + count // 10):
        start = time.perf_counter()
        call()
        if number >= count // 10:
            times.append(1e6 * (time.perf_counter() - start))
    return np.sort(times)


def main():
    """Prints a table, and a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=2000, help="requests of each size")
    parser.add_argument("--backend", default="numpy", help="what computes the actions")
    arguments = parser.parse_args()
    agent = PPO(FloatBox(shape=(4,)), IntBox(2), backend=arguments.backend)
    policy = TrainedPolicy(agent, agent.model().weights, arguments.backend)
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(make_application(policy), log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    connection = http.client.HTTPConnection(*listening.getsockname())
    rng, found = np.random.default_rng(0), {}
    print(f"{'rows':>6} {'policy p50':>12} {'answer p50':>12} {'answer p99':>12}   microseconds")
    for rows in ROWS:
        seen = rng.uniform(-1, 1, (rows, 4)).astype(np.float32)
        given = seen[0] if rows == 1 else seen
        body = json.dumps({"observation" if rows == 1 else "observations": given.tolist()})

        def ask(body=body):
            connection.request("POST", "/act", body)
            answer = connection.getresponse()
            content = answer.read()
            assert answer.status == 200, content

        own = microseconds(lambda given=given: policy.act(given), arguments.requests)
        whole = microseconds(ask, arguments.requests)
        figures = {
            "policy_p50": np.median(own),
            "p50": np.median(whole),
            "p99": np.quantile(whole, 0.99),
        }
        print(f"{rows:>6} {figures['policy_p50']:>12.0f} {figures['p50']:>12.0f} {figures['p99']:>12.0f}")
        found[f"rows_{rows}"] = {name: round(float(value), 1) for name, value in figures.items()}
    connection.close()
    server.should_exit = True
    thread.join()
    listening.close()
    print(json.dumps({"benchmark": "serve_latency", "unit": "microseconds", "backend": arguments.backend, **found}))


if __name__ == "__main__":
    main()
