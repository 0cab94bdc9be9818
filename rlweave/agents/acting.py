"""`acting_backend="auto"`: measures the acting graph of an agent on every backend that could run it."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlweave.backends import BACKENDS, is_installed
from rlweave.errors import RlweaveError
from rlweave.graph import GraphExecutor
from rlweave.graph.assembly import InputSpace
from rlweave.graph.component import api_methods
from rlweave.graph.ir import RANDOM_PATHS
from rlweave.spaces import Box, Space

#: Backends that act without a framework, tried besides the one that learns.
LIGHT_BACKENDS = tuple(name for name, offer in BACKENDS.items() if offer.acts_lightly)
#: Seconds of all measured calls together; building and the first calls come on top.
BUDGET = 0.8
_ROUNDS = 7
#: Seconds of one run of calls; backends that take so many times as long as the fastest in the first one drop out.
_RUN_SECONDS, _OUT = 0.008, 4.0


@dataclass(frozen=True)
class ActingChoice:
    """Which backend acts, and what was measured.

    Attributes:
        backend: The fastest.
        batch_size: Observations that were acted on at once.
        seconds: Median seconds of a call, by backend.
        failed: Why others could not be measured, by backend.
    """

    backend: str
    batch_size: int
    seconds: Mapping[str, float]
    failed: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        figures = ", ".join(
            f"{name} {1e6 * taken:,.0f} us" for name, taken in sorted(self.seconds.items(), key=_second)
        )
        text = f"acting on {self.backend}: measured for {self.batch_size} observations at once: {figures}"
        text += "".join(f"; {name} cannot ({why})" for name, why in self.failed.items())
        return f"{text} (agent.acting_backend={self.backend} says so without measuring)"


def _second(item: tuple[str, float]) -> float:
    return item[1]


def candidates(learning: str) -> tuple[str, ...]:
    """The installed backends that may act for an agent."""
    return tuple(name for name in dict.fromkeys((learning, *LIGHT_BACKENDS)) if is_installed(name))


def choose_acting(
    learning: GraphExecutor,
    make_acting: Callable[[str], GraphExecutor],
    method: str,
    input_spaces: Mapping[str, InputSpace],
    batch_size: int,
) -> tuple[ActingChoice, GraphExecutor]:
    """Measures which graph acts fastest: the one that learns, or one on a light backend.

    Args:
        learning: The graph that learns.
        make_acting: Builds the acting graph on a backend.
        method: As in `choose_acting_backend`, also for the others.
        input_spaces: As there.
        batch_size: As there.

    Returns:
        What was measured, and the executor of the fastest.
    """
    made = {learning.backend.name: learning}

    def executor(name: str) -> GraphExecutor:
        if name not in made:
            made[name] = make_acting(name)
        return made[name]

    executors = {name: functools.partial(executor, name) for name in candidates(learning.backend.name)}
    choice = choose_acting_backend(executors, method, input_spaces, batch_size)
    return choice, made[choice.backend]


def choose_acting_backend(
    executors: Mapping[str, Callable[[], GraphExecutor]],
    method: str,
    input_spaces: Mapping[str, InputSpace],
    batch_size: int,
    budget: float = BUDGET,
) -> ActingChoice:
    """Measures an acting method on several executors, in turn.

    Nothing is left of it: random states are afterwards what they were.

    Args:
        executors: By backend, what makes (or hands out) an executor.
        method: The API method that acts, with the defaults of its static arguments.
        input_spaces: As for `build`.
        batch_size: Observations at once.
        budget: Seconds of all measured calls together.
    """
    calls: dict[str, Callable[[], Any]] = {}
    failed: dict[str, str] = {}
    before: list[tuple[GraphExecutor, dict[str, np.ndarray]]] = []
    try:
        for name, make in executors.items():
            try:
                executor = make()
                before.append((executor, _random_state(executor)))
                calls[name] = _call(executor, method, input_spaces, batch_size)
                calls[name]()  # compiles
            except RlweaveError as error:
                calls.pop(name, None)
                failed[name] = error.what
        seconds = _measured(calls, budget)
    finally:
        for executor, state in before:
            executor.set_weights(state)
    return ActingChoice(min(seconds, key=lambda name: seconds[name]), batch_size, seconds, failed)


def _measured(calls: Mapping[str, Callable[[], Any]], budget: float) -> dict[str, float]:
    """Median seconds of a call; runs of calls alternate."""
    start = time.perf_counter()
    found = {name: [_timed(call, 1)] for name, call in calls.items()}
    fastest = min(times[0] for times in found.values())
    racing = [name for name, times in found.items() if times[0] <= _OUT * fastest]
    counts = {name: max(1, int(_RUN_SECONDS / found[name][0])) for name in racing}
    times: dict[str, list[float]] = {name: [] for name in racing}
    for _ in range(_ROUNDS):
        for name in racing:
            times[name].append(_timed(calls[name], counts[name]))
        if time.perf_counter() - start > budget:
            break
    return {name: statistics.median(times.get(name) or found[name]) for name in calls}


def _timed(call: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def _call(
    executor: GraphExecutor, method: str, input_spaces: Mapping[str, InputSpace], batch_size: int
) -> Callable[[], Any]:
    declared = api_methods(type(executor.root))[method]
    arguments: dict[str, Any] = {}
    for parameter in declared.parameters:
        space = input_spaces.get(f"{method}.{parameter}", input_spaces.get(parameter))
        if parameter not in declared.static and isinstance(space, Space):
            arguments[parameter] = _sampled(space, batch_size)
    function = getattr(executor, method)
    return lambda: function(**arguments)


def _sampled(space: Space, batch_size: int) -> Any:
    """Nested arrays of a space; open time axes have one step."""
    rng = np.random.default_rng(0)

    def draw(leaf: Box) -> np.ndarray:
        wanted = leaf.concrete_shape({"T": 1, "B": batch_size})
        plain = leaf.strip_ranks()
        leading = wanted[: len(wanted) - len(plain.shape)]
        count = int(np.prod(leading)) if leading else 1
        return np.asarray(plain.sample(count, rng=rng)).reshape(wanted)

    return space.unflatten({path: draw(leaf) for path, leaf in space.flatten().items()})


def _random_state(executor: GraphExecutor) -> dict[str, np.ndarray]:
    store = executor.store
    with store.lock:
        return {path: store.to_numpy(path) for path in RANDOM_PATHS if path in store.cells}
