"""Workers for plans on Ray: they live in processes of their own, and fail there in all the ways that processes do."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlweave.flow import Episode, Gradients, SampleBatch


class Gate:
    """What workers in other processes wait for before an item, until a test lets them: an event, and no pause.

    Args:
        path: Of a pipe to be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        os.mkfifo(self.path)
        self._pipe = os.open(self.path, os.O_RDWR)

    def let(self, items: int) -> None:
        """Lets workers make so many more items, all of them together."""
        os.write(self._pipe, b"." * items)

    def close(self) -> None:
        """Holds nobody up any more."""
        self.let(10_000)
        os.close(self._pipe)


class ProcessWorker:
    """Makes batches that say who made them, when, and with which weights.

    Args:
        number: Which worker.
        steps: Rows of a batch.
        pause: Seconds that a batch takes.
        fails: By item: "raise", "exit" or "hang"; only while nobody was replaced, unless ``always``.
        always: Whether replacements fail as well.
        size: Numbers in an array that comes along.
        items: How many batches there are.
        gate: Path of a `Gate` that each batch waits at.
    """

    def __init__(
        self,
        number: int,
        steps: int = 4,
        pause: float = 0.0,
        fails: dict[int, str] | None = None,
        always: bool = False,
        size: int = 0,
        items: int | None = None,
        gate: str | None = None,
    ) -> None:
        self.gate = None if gate is None else os.open(gate, os.O_RDWR)
        self.number, self.steps, self.pause = number, steps, pause
        self.fails, self.always, self.size, self.items = fails or {}, always, size, items
        self.made, self.replaces, self.version, self.normalizer = 0, 0, -1, -1.0
        self.messages: list[Any] = []
        self.rng = np.random.default_rng(number)
        self.episodes: list[Episode] = []

    def replacing(self, number: int) -> None:
        self.replaces = number
        self.rng = np.random.default_rng([self.number, number])

    def sample(self) -> SampleBatch:
        started = time.monotonic()
        if self.items is not None and self.made >= self.items:
            raise StopIteration
        item, self.made = self.made, self.made + 1
        if self.always or not self.replaces:
            how = self.fails.get(item, "")
            if how == "raise":
                raise ZeroDivisionError(f"worker {self.number} at {item}")
            if how == "exit":
                os._exit(1)
            if how == "hang":
                time.sleep(600)
        if self.pause:
            time.sleep(self.pause)
        if self.gate is not None:
            os.read(self.gate, 1)
        self.episodes.append(Episode(float(self.number), self.steps))
        facts = {
            "worker": self.number,
            "made": item,
            "version": self.version,
            "normalizer": self.normalizer,
            "replaces": self.replaces,
            "drawn": self.rng.integers(1 << 40),
            "pid": os.getpid(),
            "started": started,
        }
        data = {name: np.full(self.steps, value) for name, value in facts.items()}
        return SampleBatch({**data, "pixels": np.zeros((self.steps, self.size), np.uint8)})

    def set_weights(self, weights: Any, version: int) -> None:
        self.version, self.normalizer = int(weights["w"]), float(weights.get("normalizer", -1.0))

    def episode_stats(self) -> Sequence[Episode]:
        episodes, self.episodes = self.episodes, []
        return episodes

    def greet(self, message: Any, version: int) -> None:
        self.messages.append((message, version))

    def tell(self) -> dict[str, Any]:
        return {"pid": os.getpid(), "messages": self.messages, "replaces": self.replaces, "version": self.version}


class BrokenAtBirth(ProcessWorker):
    def __init__(self) -> None:
        raise FileNotFoundError("no such environment")


class PickyError(Exception):
    """Cannot be made anew from its own arguments, as many errors of libraries."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")


class PickyWorker(ProcessWorker):
    def sample(self) -> SampleBatch:
        raise PickyError(7, "picky")


class CountingLearner:
    """Its weights say how many updates it made, as does its normalizer."""

    def __init__(self) -> None:
        self.updates = 0

    def update(self, batch: SampleBatch) -> dict[str, float]:
        self.updates += 1
        return {"pid": float(os.getpid())}

    def get_weights(self) -> dict[str, Any]:
        return {"w": np.array(self.updates), "normalizer": np.array(10.0 * self.updates)}


class RestorableLearner(CountingLearner):
    """Can be made anew from its state, and can be told to break down with its next update."""

    how = ""

    def update(self, batch: SampleBatch) -> dict[str, float]:
        if self.how == "exits":
            os._exit(1)
        if self.how == "hangs":
            time.sleep(600)
        if self.how == "raises":
            raise FloatingPointError("diverged")
        return {**super().update(batch), "updates": float(self.updates)}

    def break_down(self, how: str) -> None:
        self.how = how

    def state_dict(self) -> dict[str, Any]:
        return {"updates": np.array(self.updates), "slots": np.zeros(300_000)}  # too large to travel with an answer

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.updates = int(state["updates"])


class BrokenLearner(CountingLearner):
    def get_weights(self) -> dict[str, Any]:
        if self.updates:
            raise OverflowError("weights are gone")
        return super().get_weights()


def explode_at_second(batch: SampleBatch) -> SampleBatch:
    """An operator at the workers."""
    if batch["made"][0] == 1:
        raise LookupError("exploded")
    return batch


def loaded_frameworks(batch: SampleBatch) -> list[str]:
    """Deep-learning frameworks in the process where a batch was made."""
    names = ("torch", "jax", "jaxlib", "tensorflow", "optax", "flax", "keras")
    return [name for name in names if name in sys.modules]


class ComputingWorker(ProcessWorker):
    """Its gradient says with which weights it was computed, and in which process."""

    def compute_gradients(self, batch: SampleBatch) -> Gradients:
        values = {"version": np.array([self.version]), "pid": np.array([os.getpid()])}
        return Gradients(values, batch.num_steps, {"made_with": float(batch["version"][0])})


class ApplyingLearner(CountingLearner):
    """Keeps what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[Gradients] = []

    def apply_gradients(self, gradients: Gradients) -> dict[str, float]:
        self.updates += 1
        self.given.append(gradients)
        return {}
