"""The TensorFlow backend."""

from rlweave.backends.tensorflow_.runtime import BACKEND

__all__ = ["BACKEND"]
