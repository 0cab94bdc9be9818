"""The JAX backend."""

from rlweave.backends.jax_.runtime import BACKEND

__all__ = ["BACKEND"]
