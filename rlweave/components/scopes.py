"""Scopes of components that are made for each leaf of a space."""

from __future__ import annotations

import re


def scope_of_path(prefix: str, path: str) -> str:
    """The scope of a component made for the leaf at a path; a leaf that stands alone gives the prefix.

    Siblings that end up with one scope are numbered by their owner, so two paths never collide.

    >>> scope_of_path("head", "arm/joint 1"), scope_of_path("head", "")
    ('head-arm.joint_1', 'head')
    """
    if not path:
        return prefix
    return f"{prefix}-" + re.sub(r"[^A-Za-z0-9_.\-]", "_", path.replace("/", "."))
