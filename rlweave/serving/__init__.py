"""Trained policies behind HTTP: JSON in, JSON out."""

from rlweave.serving.application import make_application

__all__ = ["make_application"]
