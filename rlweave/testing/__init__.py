"""Test harness: components alone."""

from rlweave.testing.component_test import ComponentTest

__all__ = ["ComponentTest"]
