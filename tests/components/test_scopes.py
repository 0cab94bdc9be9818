"""Scopes of components that belong to a leaf."""

import pytest

from rlweave.components.scopes import scope_of_path


@pytest.mark.parametrize(
    ("path", "scope"),
    [
        ("", "head"),
        ("a", "head-a"),
        ("a/b/0", "head-a.b.0"),
        ("left_arm-2.x", "head-left_arm-2.x"),
        ("a b:ü", "head-a_b__"),
    ],
)
def test_scopes_are_paths_with_dots_and_without_what_no_scope_has(path, scope):
    assert scope_of_path("head", path) == scope
