"""Item types of a plan: what an operator takes and gives, read from annotations, and whether one fits the other."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from rlweave.errors import ConfigError, PlanError
from rlweave.flow.envelope import Signal
from rlweave.flow.protocols import methods_of


class Signature(typing.NamedTuple):
    """What a one-argument callable takes and gives; ``gives`` may be the same type variable as ``takes``."""

    takes: Any
    gives: Any

    def produced(self, received: Any) -> Any:
        """The type that comes out when ``received`` goes in: a type variable passes it on."""
        if isinstance(self.gives, TypeVar):
            return received if self.gives is self.takes else Any
        return self.gives


def signature_of(function: Callable[..., Any]) -> Signature:
    """Reads the types of a callable's first argument and result; what is not annotated is ``Any``.

    >>> def double(x: int) -> float: return 2.0 * x
    >>> signature_of(double)
    Signature(takes=<class 'int'>, gives=<class 'float'>)
    """
    target = function
    if not isinstance(function, types.FunctionType | types.MethodType | types.BuiltinFunctionType | type):
        target = type(function).__call__
    try:
        hints = typing.get_type_hints(getattr(target, "__init__") if isinstance(target, type) else target)  # noqa: B009
    except (NameError, TypeError, AttributeError):  # built-ins, and names that only a type checker knows
        hints = {}
    takes = next((hint for name, hint in hints.items() if name != "return"), Any)
    gives = function if isinstance(function, type) else hints.get("return", Any)
    return Signature(takes, without_signals(gives))


def check_arguments(function: Callable[..., Any], count: int, where: str, what: str) -> None:
    """Checks that something can be called with so many arguments, as far as that is known.

    Args:
        function: What is to be called.
        count: How many arguments it gets, by position.
        where: Who calls it, for the error.
        what: What it is to the caller.

    Raises:
        PlanError: If it takes more or fewer.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # built-ins
        return
    try:
        signature.bind(*[None] * count)
    except TypeError as error:
        needed = {0: "without arguments", 1: "with one item"}[count]
        raise PlanError(
            f"{what} is called {needed}",
            where=where,
            received=f"{getattr(function, '__name__', type(function).__name__)}{signature}: {error}",
            fix="bind what else it needs by functools.partial, or give it defaults",
        ) from None


def positive(name: str, value: int, operator: str) -> int:
    """Checks a count.

    Raises:
        ConfigError: If it is not a whole number above 0.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(
            f"{name} must be a whole number above 0", where=f"operator {operator!r}", received=repr(value)
        )
    return value


def is_a(value: Any, item_type: Any) -> bool:
    """Whether a value is of an item type. Where that cannot be told, it is.

    >>> is_a([1], list[str]), is_a(1, float), is_a("a", int | None), is_a(None, int | None)
    (True, True, False, True)
    """
    if item_type is Any or isinstance(item_type, TypeVar):
        return True
    if len(_members(item_type)) > 1:
        return any(is_a(value, member) for member in _members(item_type))
    if item_type is None:
        return value is None
    expected = typing.get_origin(item_type) or item_type
    if not isinstance(expected, type) or typing.is_typeddict(expected):
        return True
    if getattr(expected, "_is_protocol", False):
        return fits(type(value), expected)
    if expected in (int, float, complex, bool) and getattr(value, "shape", None) == ():
        return True  # a single number of some array library
    return isinstance(value, expected) or (expected in (float, complex) and isinstance(value, int | float))


def check_type(value: Any, item_type: Any) -> None:
    """Checks that what somebody gave is what its annotation says.

    Raises:
        TypeError: If it is something else.
    """
    if not is_a(value, item_type):
        raise TypeError(f"gave {type_name(type(value))}, where the annotation says {type_name(item_type)}")


def without_signals(item_type: Any) -> Any:
    """The item type of a result that may also be a signal such as ``ABSORBED``."""
    members = [member for member in _members(item_type) if not _is_signal(member)]
    return one_of(members) if members else Any


def _is_signal(member: Any) -> bool:
    if typing.get_origin(member) is typing.Literal:
        return all(isinstance(value, Signal) for value in typing.get_args(member))
    return member is Signal


def one_of(item_types: list[Any]) -> Any:
    """The union of item types, without duplicates."""
    if any(item_type is Any for item_type in item_types):
        return Any
    union: Any = item_types[0]
    for item_type in item_types[1:]:
        union = typing.Union[union, item_type]  # noqa: UP007  (`|` fails for names given as strings)
    return union


def _members(item_type: Any) -> tuple[Any, ...]:
    if typing.get_origin(item_type) in (typing.Union, types.UnionType):
        return typing.get_args(item_type)
    return (item_type,)


def fits(produced: Any, expected: Any) -> bool:
    """Whether every item of type ``produced`` may go where ``expected`` is asked for. ``Any`` fits both ways.

    >>> fits(list[int], list[int]), fits(list[int], list[str]), fits(bool, int | str)
    (True, False, True)
    """
    if isinstance(expected, TypeVar):
        expected = expected.__bound__ or Any
    if produced is Any or expected is Any or isinstance(produced, TypeVar):
        return True
    if len(_members(produced)) > 1:
        return all(fits(member, expected) for member in _members(produced))
    if len(_members(expected)) > 1:
        return any(fits(produced, member) for member in _members(expected))
    produced_class = typing.get_origin(produced) or produced
    expected_class = typing.get_origin(expected) or expected
    if not isinstance(produced_class, type) or not isinstance(expected_class, type):
        return bool(produced == expected)
    if getattr(expected_class, "_is_protocol", False):
        return all(callable(getattr(produced_class, name, None)) for name in methods_of(expected_class))
    if produced_class is int and expected_class is float:
        return True
    if not issubclass(produced_class, expected_class):
        return False
    pairs = zip(typing.get_args(produced), typing.get_args(expected), strict=False)
    return all(fits(inner, wanted) for inner, wanted in pairs)


def snake_case(name: str) -> str:
    """A class name as an operator name.

    >>> snake_case("TrainOneStep")
    'train_one_step'
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_<>")


def type_name(item_type: Any) -> str:
    """How an item type is written in explanations and errors.

    >>> type_name(list[int]), type_name(int | None), type_name(Any)
    ('list[int]', 'int | None', 'Any')
    """
    if item_type is Any:
        return "Any"
    if item_type is type(None):
        return "None"
    if len(_members(item_type)) > 1:
        return " | ".join(type_name(member) for member in _members(item_type))
    origin, arguments = typing.get_origin(item_type), typing.get_args(item_type)
    if origin is not None and arguments:
        return f"{getattr(origin, '__name__', str(origin))}[{', '.join(type_name(inner) for inner in arguments)}]"
    if isinstance(item_type, TypeVar):
        return type_name(item_type.__bound__ or Any)
    return getattr(item_type, "__name__", str(item_type))
