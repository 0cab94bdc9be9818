"""The PyTorch backend."""

from rlweave.backends.torch_.runtime import BACKEND

__all__ = ["BACKEND"]
