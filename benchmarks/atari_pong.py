"""Pong as the DQN papers play it, registered as ``rlweave-benchmarks/Pong-v0``; needs ale-py."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TransformObservation


def make_pong(**options: Any) -> gymnasium.Env[Any, Any]:
    """Pong with frame skip 4, grey 84 x 84 frames, four of them stacked as channels, the last axis."""
    import ale_py

    gymnasium.register_envs(ale_py)
    env = AtariPreprocessing(gymnasium.make("ALE/Pong-v5", frameskip=1, **options), noop_max=30, frame_skip=4)
    stacked = FrameStackObservation(env, 4)
    space = gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8)
    return TransformObservation(stacked, lambda frames: np.ascontiguousarray(np.moveaxis(frames, 0, -1)), space)


if "rlweave-benchmarks/Pong-v0" not in gymnasium.registry:
    gymnasium.register("rlweave-benchmarks/Pong-v0", make_pong)
