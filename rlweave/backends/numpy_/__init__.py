"""The NumPy backend: host graph functions, acting without a framework, and the oracle of parity checks."""

from rlweave.backends.numpy_.runtime import BACKEND

__all__ = ["BACKEND"]
