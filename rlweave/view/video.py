"""Videos: pictures that are written as they come, as GIF or MP4."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from rlweave.errors import ConfigError, install_command

#: What writes a kind of video, by suffix.
_NEEDED = {".gif": "imageio", ".mp4": "imageio_ffmpeg"}


class Video:
    """Writes pictures into a file, which is there when the block ends.

    Args:
        path: The file: `.gif` or `.mp4`.

    Raises:
        ConfigError: Another suffix, or what writes it is not installed.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        suffix = self.path.suffix.lower()
        if suffix not in _NEEDED:
            raise ConfigError(
                "a video is a GIF or an MP4", where="video", received=str(path), fix="name it .gif or .mp4"
            )
        if any(importlib.util.find_spec(module) is None for module in ("imageio", _NEEDED[suffix])):
            raise ConfigError(
                "videos are written by packages that are not installed", where="video", fix=install_command("video")
            )
        self.frames = 0
        self._writer: Any = None

    def show(self, picture: np.ndarray, pictures_per_second: float) -> None:
        """Appends a picture, uint8 (height, width, 3)."""
        if self._writer is None:
            self._writer = self._open(pictures_per_second)
        if self.path.suffix.lower() == ".mp4":  # which has even sizes
            height, width = picture.shape[:2]
            picture = np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        self._writer.append_data(picture)
        self.frames += 1

    def _open(self, pictures_per_second: float) -> Any:
        import imageio

        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.suffix.lower() == ".gif":
            return imageio.get_writer(self.path, mode="I", duration=1000 / pictures_per_second, loop=0)
        return imageio.get_writer(self.path, mode="I", fps=pictures_per_second, macro_block_size=None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()
