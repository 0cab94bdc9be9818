"""Components, losses and agents that are broken on purpose, each beside the right one.

Each is a bug that people really had; its docstring says in a line what happened. `check` has to find each, and to name
its cause. They are written as a user would write them: nothing in a wrong one helps to find it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlweave.graph import Component
from rlweave.spaces import BoolBox, FloatBox, IntBox, Space
from rlweave.testing.checks.findings import Cause
from rlweave.testing.descriptors import Descriptor


@dataclass(frozen=True)
class Mutant:
    """A bug and what is right instead.

    Args:
        name: Unique.
        wrong: What has the bug: of a component (or a loss) its `Descriptor`, of an agent its class.
        right: The same without the bug.
        cause: What a check has to name.
        env: Id of the environment that an agent is tried with; None for components.
        settings: Settings of an agent, small ones.
    """

    name: str
    wrong: Any
    right: Any
    cause: Cause
    env: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def what_happened(self) -> str:
        """The line about the real bug."""
        wrong = self.wrong.component if isinstance(self.wrong, Descriptor) else self.wrong
        return " ".join((wrong.__doc__ or "").split())


def mutant(
    right: type[Component],
    wrong: type[Component],
    cause: Cause,
    spaces: Mapping[str, Space],
    make: Callable[[type[Component]], Component] | None = None,
    **options: Any,
) -> Mutant:
    """A mutant of a component; both are described alike.

    Args:
        right: The class without the bug.
        wrong: The class with it.
        cause: What a check has to name.
        spaces: Input spaces, as in `Descriptor`.
        make: Makes an instance of either class; None: without arguments.
        options: Further fields of `Descriptor`.
    """
    name = _words(wrong.__name__)

    def described(cls: type[Component], name: str) -> Descriptor:
        return Descriptor(name, cls, lambda: cls() if make is None else make(cls), spaces, **options)

    return Mutant(name, described(wrong, name), described(right, f"{name} (right)"), cause)


def _words(name: str) -> str:
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in name).lstrip("-")


# -- spaces ----------------------------------------------------------------------------------------------------------


def floats(*shape: int, low: Any = None, high: Any = None) -> FloatBox:
    """Floats (B, *shape)."""
    return FloatBox(low, high, shape=shape, add_batch_rank=True)


def ints(number: int, *shape: int) -> IntBox:
    """Integers (B, *shape) below a number."""
    return IntBox(number, shape=shape, add_batch_rank=True)


def bools(*shape: int) -> BoolBox:
    """Booleans (B, *shape)."""
    return BoolBox(shape=shape, add_batch_rank=True)


def steps(*shape: int, low: Any = None, high: Any = None) -> FloatBox:
    """Floats (T, B, *shape)."""
    return FloatBox(low, high, shape=shape, add_batch_rank=True, add_time_rank=True)


def flags() -> BoolBox:
    """Booleans (T, B)."""
    return BoolBox(add_batch_rank=True, add_time_rank=True)
