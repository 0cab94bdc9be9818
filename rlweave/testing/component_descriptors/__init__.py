"""Descriptors of all components of the library. A component without one fails CI."""

from rlweave.testing.component_descriptors import learning, losses, networks, policies  # noqa: F401 - they add theirs
from rlweave.testing.component_descriptors.common import DESCRIPTORS

__all__ = ["DESCRIPTORS"]
