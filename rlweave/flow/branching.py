"""Operators where streams split, join, queue and end."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from rlweave.errors import ConfigError
from rlweave.flow.envelope import ABSORBED, END, NOT_READY, Envelope, Pulled, Signal
from rlweave.flow.item_types import one_of, positive
from rlweave.flow.operator import Operator, Port, check_input


class Split(Operator):
    """Gives every item to each of n branches, as copies. A branch may be ahead of another by ``capacity`` items."""

    state = ("_waiting",)
    on_error_choices = ()

    def __init__(self, upstream: Port, n: int, capacity: int) -> None:
        check_input(upstream, "split")
        positive("n", n, "split")
        self.capacity = positive("capacity", capacity, "split")
        self.enter([upstream], "split")
        self.outputs = [Port(self, index, upstream.item_type, capacity=capacity) for index in range(n)]
        self._waiting: list[deque[Envelope]] = [deque() for _ in range(n)]

    def pull(self, output: int = 0) -> Pulled:
        """The next item of one branch; not ready when another branch has not taken ``capacity`` items yet."""
        mine = self._waiting[output]
        if mine:
            return mine.popleft()
        if self.ended:
            return END
        if any(len(waiting) >= self.capacity for waiting in self._waiting):
            return NOT_READY
        item = self.take()
        if isinstance(item, Signal):
            self.ended = item is END
            return item
        self.timer.items += 1
        for branch, waiting in enumerate(self._waiting):
            if branch != output:
                waiting.append(item.carrying(_copied(item.payload)))
        return item

    def obstacle(self) -> str:
        """A branch that is full."""
        full = [str(branch) for branch, waiting in enumerate(self._waiting) if len(waiting) >= self.capacity]
        return f"output {', '.join(full)} holds {self.capacity} items that nobody took" if full else ""


def _copied(payload: Any) -> Any:
    """A copy that shares no array with the original: branches must not see each other's mutations."""
    own_copy = getattr(payload, "copy", None)
    if own_copy is not None and not isinstance(payload, dict | list | set):  # their own copy is shallow
        return own_copy()
    return copy.deepcopy(payload)


class Unite(Operator):
    """Several streams as one.

    Branches take turns. A turn of ``round_robin`` lasts for as many movements as the branch's weight says, one of
    ``async`` for one. A movement is an item that comes out of the branch, or one that stays inside of it (buffered,
    filtered, stored): a branch that absorbs all it gets takes nothing away from the others. A branch that is not ready
    is passed over, and one that has ended left out.

    A weight need not be a whole number: a branch of weight 1/4 moves once in four turns. Where no other branch can go,
    it does not wait for that.
    """

    state = ("_turn", "_credit", "_over")
    on_error_choices = ()

    def __init__(
        self, branches: Sequence[Port], mode: str, weights: Sequence[float] | None, output: int | None
    ) -> None:
        if not branches:
            raise ConfigError("a union needs branches", where="Union", received="none", fix="give at least one stream")
        if mode not in ("round_robin", "async"):
            raise ConfigError("unknown mode", where="Union", received=repr(mode), fix="use 'round_robin' or 'async'")
        if weights is not None and (mode == "async" or len(weights) != len(branches)):
            raise ConfigError(
                "weights are for mode 'round_robin', one per branch",
                where="Union",
                received=f"weights {list(weights)}, {len(branches)} branches, mode {mode!r}",
                fix="leave weights out, or give one number per branch",
            )
        if output is not None and not 0 <= output < len(branches):
            raise ConfigError(
                "output is the number of a branch",
                where="Union",
                received=f"{output} of {len(branches)} branches",
                fix=f"use 0 to {len(branches) - 1}, or None for the items of all branches",
            )
        for branch in branches:
            check_input(branch, "union")
        self.mode, self.output = mode, output
        self.weights = list(weights) if weights is not None else [1] * len(branches)
        shares = [_share(weight) for weight in self.weights]
        whole = math.lcm(*(share.denominator for share in shares))
        self._earns = [int(share * whole) for share in shares]
        """What a branch gets with its turn."""
        self._price = min(whole, max(self._earns))
        """What a movement costs. Less where no weight reaches 1: only their ratios matter."""
        self.enter(branches, "union")
        shown = [branch.item_type for branch in branches] if output is None else [branches[output].item_type]
        self.outputs = [Port(self, 0, one_of(shown))]
        self._turn = 0
        self._credit = [self._earns[0], *[0] * (len(branches) - 1)]
        self._over = [False] * len(branches)

    def pull(self, output: int = 0) -> Pulled:
        """The next item of the branch whose turn it is. ABSORBED for an item of a branch that is not the output."""
        short: list[int] | None = None
        for _ in range(len(self._pullers)):
            turn = self._turn
            if not self._over[turn]:
                if self._credit[turn] >= self._price:
                    item = self._pullers[turn]()
                    if item is not NOT_READY:
                        return self._moved(turn, item)
                    self._credit[turn] %= self._price
                else:
                    short = [*(short or ()), turn]
            self._pass_on()
        for turn in short or ():  # whose turns are few, but nobody else can go
            item = self._pullers[turn]()
            if item is not NOT_READY:
                return self._moved(turn, item)
            self._credit[turn] %= self._price
        return END if self.ended else NOT_READY

    def _moved(self, branch: int, item: Pulled) -> Pulled:
        if item is END:
            self._over[branch] = True
            self.ended = all(self._over)
            if branch == self._turn:
                self._pass_on()
            # that a branch has ended may be what another one waits for, so something has moved
            return END if self.ended else ABSORBED
        left = self._credit[branch] - self._price
        self._credit[branch] = left if left > 0 else 0
        if left < self._price and branch == self._turn:
            self._pass_on()
        if item is ABSORBED:
            return ABSORBED
        self.timer.items += 1
        return item if self.output is None or self.output == branch else ABSORBED

    def _pass_on(self) -> None:
        turn = self._turn + 1
        self._turn = turn = turn if turn < len(self._over) else 0
        self._credit[turn] += self._earns[turn]

    def note(self) -> str:
        """Settings."""
        shown = "" if self.output is None else f", output={self.output}"
        return f"{self.mode}, weights={self.weights}{shown}"


def _share(weight: Any) -> Fraction:
    """A weight as an exact number.

    Raises:
        ConfigError: It is no number, or too small to be told from 0.
    """
    number = isinstance(weight, (float, int, np.number)) and not isinstance(weight, bool) and math.isfinite(weight)
    share = Fraction(float(weight)).limit_denominator(1000) if number else Fraction(0)
    if share <= 0:
        raise ConfigError(
            "a branch's weight is a number of movements per turn",
            where="Union",
            received=repr(weight),
            fix="give numbers of at least 0.001: 0.25 for one movement in four turns",
        )
    return share


class Queue(Operator):
    """A bounded queue: upstream goes on while downstream is busy, as far as its capacity and ``when_full`` allow.

    The scheduler gives every queue one chance to take an item in each step, before it pulls the end of the plan. An
    item in a queue is done as far as its source is concerned.
    """

    policies = ("block", "drop_oldest", "drop_newest")
    state = ("_waiting", "_upstream_over")
    on_error_choices = ()

    def __init__(self, upstream: Port, capacity: int, policy: str) -> None:
        check_input(upstream, "queue")
        if policy not in self.policies:
            raise ConfigError(
                "unknown policy of a full queue",
                where="queue",
                received=repr(policy),
                fix="use one of: " + ", ".join(repr(known) for known in self.policies),
            )
        self.capacity = positive("capacity", capacity, "queue")
        self.policy = policy
        self.enter([upstream], "queue")
        self.outputs = [Port(self, 0, upstream.item_type, capacity=capacity, when_full=policy)]
        self._waiting: deque[Envelope] = deque()
        self._upstream_over = False

    def __len__(self) -> int:
        """Items in the queue."""
        return len(self._waiting)

    def fill(self) -> bool:
        """Takes one item from upstream if that is allowed, and says whether anything moved."""
        full = len(self._waiting) >= self.capacity
        if self._upstream_over or (full and self.policy == "block"):
            return False
        item = self.take()
        if isinstance(item, Signal):
            self._upstream_over = item is END
            return item is not NOT_READY
        self.timer.items += 1
        if full:
            self._counters.drop(self.name)
            if self.policy == "drop_newest":
                return True
            self._waiting.popleft()
        self._waiting.append(item)
        return True

    def pull(self, output: int = 0) -> Pulled:
        """The oldest item in the queue."""
        if self._waiting:
            return self._waiting.popleft()
        self.ended = self._upstream_over
        return END if self.ended else NOT_READY

    def measures(self) -> dict[str, float]:
        """Items in the queue."""
        return {"fill": len(self._waiting)}

    def note(self) -> str:
        """Settings."""
        return f"capacity={self.capacity}, {self.policy}"


class Sink(Operator):
    """The end of a plan: counts what arrives."""

    on_error_choices = ()

    def __init__(self, upstream: Port) -> None:
        check_input(upstream, "report_metrics")
        self.enter([upstream], "report_metrics")

    def pull(self, output: int = 0) -> Pulled:
        """The next item of the plan."""
        item = self.take()
        if isinstance(item, Signal):
            self.ended = item is END
        else:
            self._counters.items += 1
            self.timer.items += 1
        return item
