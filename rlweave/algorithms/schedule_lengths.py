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
