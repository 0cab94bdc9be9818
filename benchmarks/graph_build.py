"""Build of a dueling double DQN with prioritized replay (more than 40 components), cold and warm.

A build is everything from the first constructor to the first results of every API method. Its parts, each timed:
abstract evaluation (the frameworks tell shapes), initializers (weights and the empty memory), compilation (the first
calls, in which JAX traces and compiles), and rlweave's own cost, which is the rest: composition, assembly, passes,
lowering. Cold is the first build of a process that has imported everything; warm are the next ones, which find the
results of abstract evaluation. Garbage of earlier builds is collected before each.

The bars are milliseconds of the machine on which they were set. How fast this one is at pure Python is measured before
each build by steps of Gymnasium's CartPole, of which that machine took 184,000 per second; `ratio` is the bar over the
milliseconds that the build would have taken there, so 1 is the bar. The milliseconds in the table are this machine's.
"""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from alternating import clock, one_thread, report

one_thread()

#: Milliseconds: rlweave's own cost, and all but compilation.
OWN = 20.0
BUT_COMPILATION = {"torch": 150.0, "jax": 400.0}
PROCESSES, WARM_BUILDS = 5, 5
#: Steps of one CartPole per second on the machine of the bars, and how many steps measure this one.
STEPS_PER_SECOND, STEPS = 184_000, 4_000


def make_root():
    """The component graph, and the spaces of its inputs."""
    from rlweave.agents.dqn import DQNGraph
    from rlweave.components import Adam, DQNLoss, DuelingPolicy, EpsilonGreedy, PrioritizedReplay
    from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox

    def layers(count):
        return [{"type": "dense", "units": 64, "activation": "relu"}] * count

    state = Dict(position=FloatBox(shape=(3,)), velocity=FloatBox(shape=(3,)), mode=IntBox(4))
    policy = DuelingPolicy(
        layers(6), IntBox(4), observation_space=state, value_network=layers(3), advantage_network=layers(3)
    )
    root = DQNGraph(
        policy,
        DQNLoss(n_step=3),
        Adam(1e-3, max_grad_norm=10.0),
        EpsilonGreedy(),
        PrioritizedReplay(capacity=10_000),
    )
    records = Dict(
        observations=state,
        actions=IntBox(4),
        rewards=FloatBox(),
        terminated=BoolBox(),
        discounts=FloatBox(),
        next_observations=state,
    )
    inputs = {
        "observations": state.with_batch_rank(),
        "epsilon": FloatBox(add_batch_rank=True),
        "records": records.with_batch_rank(),
        "gradients": lambda root: root.policy.variables(),
    }
    return root, inputs


def call_all(executor, inputs):
    """Calls every API method once."""
    observations = inputs["observations"].sample(8, rng=0)
    records = inputs["records"].sample(64, rng=1)
    executor.act(observations, inputs["epsilon"].sample(8, rng=2))
    executor.act_greedily(observations)
    executor.q_values(observations)
    executor.insert(records)
    executor.update(batch_size=32)
    executor.update_from(records)
    executor.apply(executor.gradients(records))
    executor.sync_target()


def machine_speed():
    """Speed at pure Python relative to the machine of the bars."""
    import gymnasium

    env = gymnasium.make("CartPole-v1")
    env.reset(seed=0)
    start = clock()
    for step in range(STEPS):
        if any(env.step(step % 2)[2:4]):
            env.reset()
    return STEPS / (clock() - start) / STEPS_PER_SECOND


def one_build(backend, compiled):
    """Milliseconds of the parts of one build; compilation, which takes the longest, where it is asked for."""
    from rlweave.graph import build

    gc.collect()  # no build pays for what others left behind
    speed = machine_speed()
    start = clock()
    root, inputs = make_root()
    executor = build(root, inputs, backend=backend, static={"update": {"batch_size": 32}})
    graphs = list(executor.graphs.values())
    for graph in graphs:
        executor.program(graph.name, graph.static)
    built = clock()
    if compiled:
        call_all(executor, inputs)
    compilation = clock() - built if compiled else None
    parts = executor.build_seconds
    own = built - start - parts["abstract evaluation"] - parts["initializers"]
    assert len(graphs) == len(executor.programs) == 9
    return {
        "components": len(list(root.tree())),
        "nodes": sum(len(graph.nodes) for graph in graphs),
        "own_ms": own * 1e3,
        "abstract_ms": parts["abstract evaluation"] * 1e3,
        "initializers_ms": parts["initializers"] * 1e3,
        "compilation_ms": compilation and compilation * 1e3,
        "but_compilation_ms": (built - start) * 1e3,
        "machine_speed": speed,
    }


def in_this_process(backend):
    """A cold build and some warm ones, as JSON."""
    time.perf_counter = clock  # what the build reads, too
    import numpy as np

    if backend == "torch":
        import torch

        torch.set_num_threads(1)
        (torch.ones(2, 2, requires_grad=True) @ torch.ones(2, 2)).sum().backward()
    else:
        import jax

        np.asarray(jax.jit(lambda x: x + 1)(np.ones(2, np.float32)))
    import rlweave.agents.dqn
    import rlweave.components  # noqa: F401
    from rlweave.backends import get_backend

    get_backend(backend)
    print(json.dumps([one_build(backend, compiled=i < 2) for i in range(1 + WARM_BUILDS)]))


def rows():
    """All cases."""
    cold, warm = {"torch": [], "jax": []}, {"torch": [], "jax": []}
    for _ in range(PROCESSES):
        for backend in cold:
            command = [sys.executable, str(Path(__file__)), backend]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            first, *others = json.loads(output.splitlines()[-1])
            cold[backend].append(first)
            warm[backend] += others
    found = []
    for backend in cold:
        for name, builds in (("cold", cold[backend]), ("warm", warm[backend])):
            bars = {
                "own cost": ("own_ms", OWN),
                "all but compilation": ("but_compilation_ms", BUT_COMPILATION[backend]),
            }
            for what, (key, bar_ms) in bars.items():
                found.append(row(f"{backend} {name}, {what}", builds, key, bar_ms, barred=name == "warm"))
    return found


def row(case, builds, key, bar_ms, barred):
    """One line of the table: all parts, and the ratio of the bar to one of them."""
    ratios = [bar_ms / (build[key] * build["machine_speed"]) for build in builds]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    medians = {
        name: round(statistics.median(build[name] for build in builds if build[name] is not None), 2)
        for name in builds[0]
    }
    return {
        "case": case,
        **medians,
        "ratio": round(middle, 3),
        "bar": 1.0 if barred else None,
        "ok": not barred or middle >= 1.0,
        "spread": [round(low, 3), round(high, 3)],
    }


if __name__ == "__main__":
    if len(sys.argv) > 1:
        in_this_process(sys.argv[1])
    else:
        report(
            "graph_build",
            rows(),
            "medians; ratio = bar / (ms x machine speed); bars hold for warm builds; one thread, one core",
        )
