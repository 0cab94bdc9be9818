"""The TensorFlow backend."""

from rlweave.extensions.tensorflow_.runtime import BACKEND

__all__ = ["BACKEND"]
