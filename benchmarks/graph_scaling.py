"""Cost of a build over the number of components: one prioritized memory, the 40 components of a DQN, up to 1,000.

Own cost, as in `graph_build.py`: everything but abstract evaluation, initializers and the frameworks' compilation,
lowering included. A chain of dense layers with an optimizer step is built at growing lengths; where the cost of a
component stays the same, it is linear. `ratio` is the cost of a component at the shortest chain over that at this
length: 1 is linear, below 1 grows faster. As figure 5a of the RLgraph paper (Schaarschmidt et al. 2019), which reports
about 1 s of overhead for a DQN.
"""

from __future__ import annotations

import gc
import statistics

from alternating import clock, judged, one_thread, report

one_thread()

import graph_build  # noqa: E402

from rlweave import ops  # noqa: E402
from rlweave.components import SGD, Dense, PrioritizedReplay  # noqa: E402
from rlweave.graph import Component, api, build, graph_fn  # noqa: E402
from rlweave.spaces import FloatBox, IntBox  # noqa: E402

LENGTHS = (30, 100, 300, 1000)
BAR = 0.67
BATCH = FloatBox(shape=(8,), add_batch_rank=True)


class Layers(Component):
    """Dense layers in a row."""

    def __init__(self, length):
        super().__init__("layers")
        self.layers = [Dense(8, "tanh") for _ in range(length)]

    @api
    def call(self, inputs):
        for layer in self.layers:
            inputs = layer.call(inputs)
        return inputs


class Chain(Component):
    """Dense layers in a row, and an optimizer step of all of them."""

    def __init__(self, length):
        super().__init__("chain")
        self.layers, self.optimizer = Layers(length), SGD(0.1)

    @api
    def call(self, inputs):
        return self.layers.call(inputs)

    @api
    def update(self, inputs):
        loss = self._loss(self.layers.call(inputs))
        self.optimizer.step(loss, self.layers.variables())
        return loss

    @graph_fn
    def _loss(self, outputs):
        return ops.mean(ops.square(outputs))


def own_ms(make, backend):
    """Milliseconds of rlweave's own cost of one build, and the number of components."""
    start = clock()
    root, inputs, static = make()
    executor = build(root, inputs, backend=backend, static=static)
    for graph in list(executor.graphs.values()):
        executor.program(graph.name, graph.static)
    parts = executor.build_seconds
    seconds = clock() - start - parts["abstract evaluation"] - parts["initializers"]
    return seconds * 1e3, len(list(root.tree()))


def memory():
    """One prioritized memory."""
    spaces = {
        "records": BATCH,
        "indices": IntBox(1000, add_batch_rank=True),
        "td_errors": FloatBox(add_batch_rank=True),
    }
    return PrioritizedReplay(1000), spaces, {"sample": {"batch_size": 32}}


def dqn():
    """The DQN of `graph_build.py`."""
    return *graph_build.make_root(), {"update": {"batch_size": 32}}


def rows():
    """All cases."""
    found = []
    for backend in ("torch", "jax", "tensorflow"):
        for name, make in (("one memory", memory), ("DQN", dqn)):
            cold, components = own_ms(make, backend)
            warm = statistics.median(own_ms(make, backend)[0] for _ in range(9))
            case = f"{backend}, {name} ({components} components)"
            found.append(row(case, components, warm, None, cold))
        rounds = [{n: chain_ms(n, backend) for n in LENGTHS} for _ in range(6)]
        for length in LENGTHS:
            components = length + 3
            times = [each[length] for each in rounds[1:]]
            ratios = [each[LENGTHS[0]] / (LENGTHS[0] + 3) / (each[length] / components) for each in rounds[1:]]
            case = f"{backend}, chain of {length}"
            found.append(row(case, components, statistics.median(times), ratios, rounds[0][length]))
    return found


def chain_ms(length, backend):
    """Own cost of one chain; what earlier builds left behind is collected before."""
    gc.collect()
    return own_ms(lambda: (Chain(length), {"inputs": BATCH}, {}), backend)[0]


def row(case, components, warm, ratios, cold):
    """One line of the table."""
    judgement = judged(ratios, BAR) if ratios else {"ratio": None, "bar": None, "ok": True, "spread": None}
    return {
        "case": case,
        "cold_ms": round(cold, 1),
        "warm_ms": round(warm, 1),
        "us_per_component": round(warm / components * 1e3),
        **judgement,
    }


if __name__ == "__main__":
    report("graph_scaling", rows(), "own cost of builds; one thread, one core")
