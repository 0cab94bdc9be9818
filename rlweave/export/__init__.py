"""Trained policies as artefacts that run without rlweave, verified when they are written."""

from rlweave.export.exporting import export_policy
from rlweave.export.targets import TARGETS

__all__ = ["TARGETS", "export_policy"]
