"""Settings tuned for environments: a YAML file beside the code of their algorithm."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlweave.settings.sources import read_settings_file


class PresetFile(Mapping[str, Mapping[str, Any]]):
    """Nested settings by environment id, or pattern of ids such as `ALE/*`; read at the first look.

    Args:
        module_file: `__file__` of the algorithm's module; its presets stand beside it, as `.yaml`.
    """

    def __init__(self, module_file: str) -> None:
        self.path = Path(module_file).with_suffix(".yaml")

    @functools.cached_property
    def _presets(self) -> dict[str, Any]:
        return read_settings_file(self.path)

    def __getitem__(self, environment: str) -> Mapping[str, Any]:
        preset: Mapping[str, Any] = self._presets[environment]
        return preset

    def __iter__(self) -> Iterator[str]:
        return iter(self._presets)

    def __len__(self) -> int:
        return len(self._presets)
