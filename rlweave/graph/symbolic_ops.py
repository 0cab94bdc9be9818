"""Ops and operators on symbolic values: each call in an API method becomes a node."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from rlweave import ops
from rlweave.graph.current import require_trace
from rlweave.graph.ir import Unknown, Value
from rlweave.ops.dispatch import register_backend


class SymbolicOps:
    """The vocabulary over symbolic values; registered with `rlweave.ops` as a backend of its own."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in ops.OP_NAMES:
            raise AttributeError(name)

        def emit(*args: Any, **kwargs: Any) -> Any:
            trace = require_trace(f"ops.{name}")
            return trace.call_internal(getattr(ops, name), f"ops_{name}", args, kwargs=kwargs, op=name)

        return emit


register_backend("symbolic", SymbolicOps(), lambda cls: issubclass(cls, Value | Unknown))


def _binary(name: str, reflected: bool = False) -> Callable[[Any, Any], Any]:
    def apply(self: Any, other: Any) -> Any:
        if other is None or isinstance(other, str):
            return NotImplemented
        trace = require_trace(f"ops.{name}")
        args = (other, self) if reflected else (self, other)
        return trace.call_internal(getattr(ops, name), f"ops_{name}", args, op=name)

    return apply


def _unary(name: str) -> Callable[[Any], Any]:
    def apply(self: Any) -> Any:
        trace = require_trace(f"ops.{name}")
        return trace.call_internal(getattr(ops, name), f"ops_{name}", (self,), op=name)

    return apply


def item(x: Any, key: Any) -> Any:
    """Graph function body of indexing a value."""
    return operator.getitem(x, key)


def _getitem(self: Value, key: Any) -> Any:
    return require_trace("indexing").call_internal(item, "item", (self, key))


_ARITHMETIC = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "pow", "matmul": "matmul",
}  # fmt: skip
_COMPARISONS = {
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal",
}  # fmt: skip
for _kind in (Value, Unknown):
    for _name, _op in _ARITHMETIC.items():
        setattr(_kind, f"__{_name}__", _binary(_op))
        setattr(_kind, f"__r{_name}__", _binary(_op, reflected=True))
    for _name, _op in _COMPARISONS.items():
        setattr(_kind, f"__{_name}__", _binary(_op))
    for _name, _op in {"neg": "negative", "abs": "abs"}.items():
        setattr(_kind, f"__{_name}__", _unary(_op))
    # comparing gives a value; in dicts and sets a value is itself
    setattr(_kind, "__hash__", object.__hash__)  # noqa: B010
setattr(Value, "__getitem__", _getitem)  # noqa: B010
