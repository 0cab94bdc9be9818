"""What makes an operator of the NumPy backend one that also writes ONNX nodes.

An operator without symbols among its arguments is the NumPy one: constants are computed while the model is written, and
abstract evaluation is that of NumPy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlweave.errors import BackendError
from rlweave.extensions.onnx_.model import Model
from rlweave.extensions.onnx_.symbol import EXAMPLES, Size, Symbol, calling_component

Array = Any
Operator = Callable[..., Any]
_SYMBOLIC = (Symbol, Size)


class Target:
    """What an operator writes to: the model, and what NumPy says of the result.

    Attributes:
        model: The model.
        example: The result at the first of `EXAMPLE_SIZES`.
    """

    def __init__(self, model: Model, example: Any) -> None:
        self.model, self.example = model, example

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.example.dtype)

    def name(self, x: Any, dtype: Any = None) -> str:
        """The value of an argument in the model, in a dtype."""
        if isinstance(x, Size):
            x = x.as_symbol()
        if isinstance(x, Symbol):
            return x.name if dtype is None or x.dtype == dtype else self.model.cast(x.name, dtype)
        return self.model.constant(x, dtype)

    def node(self, op_type: str, inputs: Sequence[str], **attributes: Any) -> Any:
        """See `Model.node`."""
        return self.model.node(op_type, inputs, **attributes)

    def shape(self, sizes: Sequence[Any]) -> str:
        """A shape as an int64 value (axes,)."""
        if all(not isinstance(n, Size) for n in sizes):
            return self.model.constant([int(n) for n in sizes], np.int64)
        front = self.model.constant([0], np.int64)
        parts = [
            self.node("Unsqueeze", [n.name, front]) if isinstance(n, Size) else self.model.constant([int(n)], np.int64)
            for n in sizes
        ]
        return parts[0] if len(parts) == 1 else str(self.node("Concat", parts, axis=0))


def symbolic(reference: Operator) -> Callable[[Callable[..., Any]], Operator]:
    """Makes an operator out of a function `(target, *arguments) -> name (or names) of values`.

    Args:
        reference: The operator of the NumPy backend.
    """

    def decorate(write: Callable[..., Any]) -> Operator:
        @functools.wraps(reference)
        def run(*args: Any, **kwargs: Any) -> Any:
            model = model_of((args, kwargs))
            if model is None:
                return reference(*args, **kwargs)
            with np.errstate(all="ignore"):
                examples = [reference(*at(args, i), **at(kwargs, i)) for i in range(EXAMPLES)]
            if isinstance(examples[0], tuple):
                found = write(Target(model, examples[0]), *args, **kwargs)
                rows = zip(found, *examples, strict=True)
                return tuple([Symbol(model, name, [np.asarray(e) for e in each]) for name, *each in rows])
            examples = [np.asarray(example) for example in examples]
            return Symbol(model, write(Target(model, examples[0]), *args, **kwargs), examples)

        return run

    return decorate


def composed(reference: Operator) -> Callable[[Operator], Operator]:
    """Makes an operator out of a function that calls others; without symbols it is NumPy's."""

    def decorate(write: Operator) -> Operator:
        @functools.wraps(reference)
        def run(*args: Any, **kwargs: Any) -> Any:
            return (reference if model_of((args, kwargs)) is None else write)(*args, **kwargs)

        return run

    return decorate


def without_form(reference: Operator) -> Operator:
    """An operator that ONNX does not have."""

    @functools.wraps(reference)
    def run(*args: Any, **kwargs: Any) -> Any:
        if model_of((args, kwargs)) is None:
            return reference(*args, **kwargs)
        raise no_form(f"ops.{reference.__name__}")

    return run


def no_form(what: str) -> BackendError:
    """The error for something that a model cannot hold."""
    return BackendError(
        f"{what} has no ONNX form",
        where=calling_component(),
        fix="act with another backend (acting_backend): numpy, torch, jax or tensorflow",
    )


def model_of(tree: Any) -> Model | None:
    """The model of the first symbol among nested arguments."""
    if isinstance(tree, _SYMBOLIC):
        return tree.model
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, (tuple, list)):
        return None
    for item in tree:
        found = model_of(item)
        if found is not None:
            return found
    return None


def at(tree: Any, example: int) -> Any:
    """Nested arguments with examples in place of symbols."""
    if isinstance(tree, Symbol):
        return tree.examples[example]
    if isinstance(tree, Size):
        return tree.values[example]
    if isinstance(tree, dict):
        return {key: at(item, example) for key, item in tree.items()}
    if isinstance(tree, (tuple, list)):
        items = [at(item, example) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    return tree
