"""Central inference: an operator that acts, in batches, for workers that only step environments (SEED RL).

Espeholt et al. 2020, https://arxiv.org/abs/1910.06591.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np

from rlweave.agents.agent import Agent
from rlweave.algorithms.environment_worker import Offer
from rlweave.algorithms.rollout_workers import AlternatingWorker
from rlweave.flow import END, NOT_READY, Envelope, Operator, SampleBatch
from rlweave.flow.codec import decode, encode
from rlweave.flow.envelope import ABSORBED, Pulled, Signal, merge
from rlweave.flow.gather_modes import GatherAsync
from rlweave.flow.operator import Port
from rlweave.flow.plan_errors import failure
from rlweave.tree import tree_map

#: Numbers of the operator's outputs.
ITEMS, ANSWERS = 0, 1


class Rows:
    """The environments of a worker elsewhere, as far as they are known at the server.

    Args:
        num_envs: How many there are.
        worker: Number of the worker.
    """

    def __init__(self, num_envs: int, worker: int) -> None:
        self.num_envs, self.worker = num_envs, worker
        self.observations: Any = None


class Slot:
    """What belongs to the environments of one worker: recurrent state, the step under way, and what was collected.

    Args:
        worker: The algorithm's own worker for these environments. It collects, and does not act.
    """

    def __init__(self, worker: AlternatingWorker) -> None:
        self.worker = worker
        self.items = 0
        """Items made so far."""
        self.version: int | None = None
        """Oldest version of the weights that acted in the item under way."""
        self._acted = False
        self._steps = 0
        """Environment steps that were counted and are in no item yet."""

    def take(self, offer: Offer) -> SampleBatch | None:
        """Takes in the step that led to what is offered; the item that is complete with it, if any.

        Where the worker has begun anew, what was collected and is not complete is dropped, and does not count.
        """
        result = offer.result()
        acted, self._acted = self._acted, False
        if result is None or not acted:
            self.worker.begin_with(offer.observations)
            self.worker.agent.count_steps(-self._steps)
            self.version, self._steps = None, 0
            return None
        item = self.worker.finish_step(result)
        self._steps += int(np.count_nonzero(result.valid)) - (0 if item is None else item.num_steps)
        return item

    def acts(self, chosen: tuple[Any, dict[str, Any], Any], version: int) -> None:
        """Notes what was chosen for its environments, with which version of the weights."""
        self.worker.begin_step(*chosen)
        self._acted = True
        self.version = version if self.version is None else self.version

    def finished(self) -> tuple[int, int]:
        """The number of an item that is complete, and the oldest version of the weights that acted in it."""
        number, version = self.items, self.version or 0
        self.items, self.version = self.items + 1, None
        return number, version

    def state_dict(self) -> dict[str, Any]:
        """All that the next item depends on."""
        state = self.worker.state_of_collecting()
        own = {"items": self.items, "version": self.version, "acted": self._acted, "steps": self._steps}
        encoded: dict[str, Any] = encode({**own, "worker": state}, "serve")
        return encoded

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` gave."""
        kept = decode(state)
        self.items, self.version, self._acted = kept["items"], kept["version"], kept["acted"]
        self._steps = kept["steps"]
        self.worker.load_collecting(kept["worker"])


class Serve(Operator):
    """Acts for workers that offer observations: `ITEMS` is the output with what is learned from, `ANSWERS` has actions.

    Offers are collected until they have `batch_size` rows, or all workers that are there wait, or `wait` seconds have
    passed since the first of them. Then what the steps complete comes out, and is learned from; and only then the
    agent acts on them, as one batch in the order of the workers.

    Args:
        upstream: The offers of all workers, gathered as they come.
        agent: The agent that acts: its weights are always the newest.
        workers: For the environments of each worker, what collects their steps.
        batch_size: Rows that are acted on at once; whole offers, so there may be more.
        wait: Seconds after which it acts on fewer; None waits for the whole batch.
        in_rounds: Whether workers whose item is complete wait until the items of all are, as at a barrier.
    """

    state: ClassVar[tuple[str, ...]] = (
        *("_slots", "_offers", "_made", "_uncounted", "_to_act", "_round"),
        *("acted_rows", "acted_batches"),
    )
    at_source = False
    may_wait = True
    on_error_choices = ()
    takes = Offer

    def __init__(
        self,
        upstream: Port,
        agent: Agent,
        workers: Sequence[AlternatingWorker],
        batch_size: int,
        wait: float | None,
        in_rounds: bool,
    ) -> None:
        self.enter([upstream], "serve")
        self.outputs = [Port(self, ITEMS, SampleBatch), Port(self, ANSWERS, list)]
        assert isinstance(upstream.node, GatherAsync)
        self._gather = upstream.node
        self._gather.waits_for_all = wait is None
        self.agent, self.batch_size, self.wait, self.in_rounds = agent, batch_size, wait, in_rounds
        self._slots = [Slot(worker) for worker in workers]
        self._rows = workers[0].env.num_envs
        self._offers: list[Envelope] = []
        """Offers that wait for others."""
        self._first_at = 0.0
        """When the first of them came."""
        self._made: deque[Envelope] = deque()
        """Items that are complete."""
        self._uncounted = 0
        """Environment steps of items that have left before others that were made together with them."""
        self._to_act: list[list[Any]] = []
        """Number of each worker whose step was taken in and that is to be acted for, with its offer."""
        self._round: list[list[Any]] = []
        """The same of workers that wait for a round to be complete, with their items."""
        self.acted_rows = self.acted_batches = 0

    # -- moving --------------------------------------------------------------------------------------------------

    def pull(self, output: int = ITEMS) -> Pulled:
        """The next item; or the next answers: a list, with the actions for each worker of a batch."""
        if output == ANSWERS:
            return self._answers()
        if not self._made:
            if self._to_act:
                return NOT_READY  # the other output goes first
            signal = self._collect()
            if signal is not None:
                return signal
            self._take_in()
        if not self._made:
            return ABSORBED
        item = self._made.popleft()
        self._uncounted += item.payload.num_steps
        if not self._made:  # so that a training does not pause between items that belong together
            self._counters.env_steps_sampled += self._uncounted
            self._uncounted = 0
        return item

    def _collect(self) -> Signal | None:
        """Takes an offer; None if it makes a batch of those that are here, or no more will come in time."""
        if len(self._offers) * self._rows < self.batch_size:
            item = self.take()
            if isinstance(item, Signal):
                self.ended = item is END
                return None if item is NOT_READY and (self._no_more_to_come() or self._round_is_whole()) else item
            if not self._offers:
                self._first_at = self._now()
            self._offers.append(item)
            self.timer.items += 1
        return None if len(self._offers) * self._rows >= self.batch_size else ABSORBED

    def _no_more_to_come(self) -> bool:
        """Whether the offers that are here have waited long enough, or for all others that are under way."""
        if not self._offers:
            return False
        if self.wait is not None and self._now() >= self._first_at + self.wait:
            return True
        return self._gather.source.waiting() <= len(self._offers) + len(self._round)

    def _round_is_whole(self) -> bool:
        """Whether all workers that are not given up have an item in the round."""
        given_up = self._context.given_up[self._gather.source.group.key]
        return bool(self._round) and len(self._round) >= len(self._slots) - sum(given_up)

    def _take_in(self) -> None:
        """Takes in the steps of a batch of offers, and makes the items that are complete."""
        complete: list[Envelope] = []
        offers, self._offers = sorted(self._offers, key=self._index), []
        for offer in offers:
            index = self._index(offer)
            slot = self._slots[index]
            try:
                item = slot.take(offer.payload)
            except Exception as error:
                raise failure(self.name, offer, error) from error
            if item is None:
                self._to_act.append([index, offer])
                continue
            number, version = slot.finished()
            made = Envelope(item, offer.source, number, version)
            if self.in_rounds:
                self._round.append([index, offer, made])
            else:
                self._to_act.append([index, offer])
                complete.append(made)
        if self._round_is_whole():
            entries, self._round = sorted(self._round, key=itemgetter(0)), []
            complete = [item for _, _, item in entries]
            self._to_act += [[index, offer] for index, offer, _ in entries]
        self._made.extend(_in_one(complete, self.name))
        self._to_act.sort(key=itemgetter(0))

    def _answers(self) -> Pulled:
        """Acts for the workers whose steps were taken in, after what these complete has been passed on."""
        if not self._to_act or self._made:
            return END if self.ended and not self._made else NOT_READY
        started = self._now()
        entries, self._to_act = self._to_act, []
        asked = merge([offer for _, offer in entries], None, self.name, self.acted_batches)
        try:
            answers = self._act([self._slots[index] for index, _ in entries])
        except Exception as error:
            raise failure(self.name, asked, error) from error
        self.acted_batches += 1
        self.acted_rows += len(entries) * self._rows
        self.timer.seconds += self._now() - started
        return asked.carrying(answers)

    def _act(self, slots: Sequence[Slot]) -> list[Any]:
        """Acts on the observations of some workers as one batch; the actions for each of them."""
        observations, states, starts = tree_map(_joined, *[slot.worker.act_on() for slot in slots])
        chosen = self.agent.act(observations, states, starts)
        actions = self.agent.env_actions(chosen[0])
        version, answers = self._context.version(), []
        for place, slot in enumerate(slots):
            rows = slice(place * self._rows, (place + 1) * self._rows)
            slot.acts(_of_rows(chosen, rows), version)
            answers.append(_of_rows(actions, rows))
        return answers

    def _index(self, offer: Envelope) -> int:
        found = self._context.worker_of(offer.source)
        assert found is not None
        return found[1]

    # -- waiting, reports ----------------------------------------------------------------------------------------

    def wakes_at(self) -> float | None:
        """When it acts on fewer offers than make a batch."""
        return self._first_at + self.wait if self._offers and self.wait is not None else None

    def note(self) -> str:
        """Settings."""
        wait = "" if self.wait is None else f", wait={self.wait:g} s"
        return f"batch_size={self.batch_size}{wait}{', in rounds' if self.in_rounds else ''}"

    def measures(self) -> dict[str, float]:
        """Mean number of rows that were acted on at once."""
        return {"batch": self.acted_rows / self.acted_batches} if self.acted_batches else {}


def _in_one(items: Sequence[Envelope], name: str) -> list[Envelope]:
    """Items that were completed together: rollouts one by one; rows as one, as a single worker would have them."""
    if len(items) < 2 or items[0].payload.layout != "rows":
        return list(items)
    whole = SampleBatch.concat([item.payload for item in items])
    return [merge(items, whole, items[0].source, items[0].sequence)]


def _joined(*parts: Any) -> np.ndarray:
    return np.asarray(parts[0]) if len(parts) == 1 else np.concatenate(parts)


def _of_rows(batch: Any, rows: slice) -> Any:
    return tree_map(lambda leaf: np.asarray(leaf)[rows], batch)
