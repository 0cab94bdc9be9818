"""Choices: shares that are named probabilities add up to one, and what a mask forbids is not chosen."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlweave.testing.checks.distributions import maker, not_a_density, takes_many
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.randomness import draws
from rlweave.testing.checks.subject import Situation, Subject

#: Words in the name of an input that says what is allowed.
_MASK_NAMES = ("mask", "allowed", "legal", "valid", "available")
#: Names of inputs that say of each action how good or likely it is.
_SCORES = ("q_values", "action_values", "logits", "preferences", "scores")
_CHOOSING = ("act", "get_action", "choose", "select", "greedy", "mode", "sample", "explore", "call")


def shares_add_up(subject: Subject) -> Iterator[Finding]:
    """Results that are named probabilities are none below 0, and add up to one."""
    for situation in subject.situations():
        for path, array in situation.base.result.items():
            name = situation.name_of(path)
            if not name.startswith(("prob", "action_prob")) or array.dtype.kind != "f" or array.ndim < 2:
                continue
            totals = array.sum(axis=-1)
            if array.shape[-1] > 1 and (np.min(array) < -1e-6 or np.any(np.abs(totals - 1.0) > 1e-3)):
                worst = float(totals.reshape(-1)[np.argmax(np.abs(totals - 1.0))])
                what = f"a row of result {path!r}" if path else "a row of its result"
                seen = f"{situation.where}: {what} adds up to {worst:.3f}, and the least entry is {array.min():.3f}"
                yield not_a_density(maker(situation, path), seen)


def masks_hold(subject: Subject) -> Iterator[Finding]:
    """Whatever chooses one of N actions, and gets a mask of N, chooses what is allowed."""
    for situation in subject.situations():
        if situation.method.startswith(_CHOOSING) and takes_many(situation):
            for path, array in situation.flat.items():
                if any(word in path.rpartition("/")[2] for word in _MASK_NAMES) and np.asarray(array).ndim == 2:
                    yield from _chosen_by_mask(situation, path)


def _chosen_by_mask(situation: Situation, mask: str) -> Iterator[Finding]:
    count = 512
    rows = situation.rows(np.arange(count) % situation.sizes["B"])
    number = rows[mask].shape[-1]
    allowed = np.random.default_rng(0).random((count, number)) < 0.4
    allowed[np.arange(count), np.arange(count) % number] = True
    recording = situation.run({**rows, mask: allowed.astype(rows[mask].dtype)})
    for path, chosen in recording.result.items():
        if chosen.dtype.kind == "i" and chosen.shape == (count,) and path in ("", "0"):
            inside = (chosen >= 0) & (chosen < number)
            fine = inside & allowed[np.arange(count), np.clip(chosen, 0, number - 1)]
            if not fine.all():
                row = int(np.argmin(fine))
                seen = (
                    f"{situation.where}: with {mask!r} at random it chose action {chosen[row]} where the mask is "
                    f"{allowed[row].astype(int).tolist()}, and in {int((~fine).sum())} of {count} rows"
                )
                fix = "give what is forbidden no probability: ops.where(mask, logits, -1e9), before the choice"
                yield Finding("masks hold", maker(situation, path), seen, Cause.MASK_IGNORED, fix)


def all_are_chosen(subject: Subject) -> Iterator[Finding]:
    """Where N actions are equally good, what draws one of them draws each of them now and then."""
    for situation in subject.situations():
        if draws(situation) and takes_many(situation):
            for path, array in situation.flat.items():
                array = np.asarray(array)
                if path.rpartition("/")[2] in _SCORES and array.dtype.kind == "f" and array.ndim == 2:
                    yield from _never_chosen(situation, path)


def _never_chosen(situation: Situation, scores: str) -> Iterator[Finding]:
    count = 512
    rows = situation.rows(np.zeros(count, int))
    number = rows[scores].shape[-1]
    equal = {scores: np.zeros_like(rows[scores])}
    for path, array in rows.items():
        if any(word in path.rpartition("/")[2] for word in _MASK_NAMES):
            equal[path] = np.ones_like(array)
    chosen: dict[str, set[int]] = {}
    for seed in range(4):
        for path, array in situation.run({**rows, **equal}, situation.seeded(seed)).result.items():
            if array.dtype.kind == "i" and array.shape == (count,) and path in ("", "0"):
                chosen.setdefault(path, set()).update(array.tolist())
    for path, found in chosen.items():
        never = sorted(set(range(number)) - found)
        if never and len(found) > 1 and 4 * count > 50 * number:
            yield Finding(
                "all are chosen",
                maker(situation, path),
                f"{situation.where}: with {scores!r} the same for all {number} actions it chose {sorted(found)} in "
                f"{4 * count} draws, and never {never}",
                Cause.NEVER_CHOSEN,
                "the upper bound of ops.random.randint(shape, low, high) is left out: (0, number of actions)",
            )
