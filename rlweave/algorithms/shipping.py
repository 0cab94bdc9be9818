"""Factories that take the registration of their environment along to the process where they make something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlweave.algorithms.config import import_modules
from rlweave.envs.registration import receive_registration, registration_to_ship


class ShipsEnvironment:
    """Base of factories with a ``config``: an id that only the user's script registers is known where they arrive.

    The modules of the setting ``imports`` are imported there, too.
    """

    config: Any

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_registration": registration_to_ship(self.config.env)}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        kept = dict(state)
        import_modules(kept["config"].imports)
        registration = kept.pop("_registration")
        if registration is not None:
            receive_registration(registration)
        self.__dict__.update(kept)
