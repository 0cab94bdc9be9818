"""Checks of environments: `check_env`."""

from rlweave.testing.checks.environments.checking import check_env

__all__ = ["check_env"]
