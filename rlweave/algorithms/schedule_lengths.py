"""How long a schedule is that has no length of its own: as long as the training."""

from __future__ import annotations

from typing import Any

from rlweave.errors import ConfigError


def linear_schedule(value: Any, steps: int) -> Any:
    """Gives a schedule spec without a length the length of the whole training.

    >>> linear_schedule({"type": "linear", "start": 0.001, "end": 0.0}, 100)["steps"]
    100
    """
    if isinstance(value, dict) and value.get("type") in ("linear", "polynomial") and "steps" not in value:
        if steps < 1:
            raise ConfigError("a schedule over the whole training needs a training", received=f"{steps} steps")
        return {**value, "steps": steps}
    return value


def replay_updates(steps: int, learning_starts: int, samples_per_step: float, batch_size: int) -> int:
    """Updates from a memory in a training, as its rate limiter lets them through; at least 1.

    The first `learning_starts` environment steps make none, and none is owed for them later.

    Args:
        steps: Environment steps of the training.
        learning_starts: Those before the first update.
        samples_per_step: Samples that are trained on for each environment step after that.
        batch_size: Samples of an update.

    >>> replay_updates(100_000, 1_000, samples_per_step=8.0, batch_size=32)
    24750
    """
    return max(1, int((steps - learning_starts) * samples_per_step / batch_size))
