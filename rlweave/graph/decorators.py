"""`@api` and `@graph_fn`: how components declare their methods."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, overload

from rlweave.errors import BuildError, ExecutionError
from rlweave.graph.current import TRACE
from rlweave.graph.ir import Structure, Value
from rlweave.tree import leaves_of


class _Declared:
    """What both decorators share: the undecorated function, its signature and the options."""

    kind = "API method"

    def __init__(self, function: Callable[..., Any], *, flatten: bool, split: bool, with_key: bool) -> None:
        if with_key and not split:
            raise BuildError(
                "with_key needs split", where=function.__qualname__, fix="add split=True, or leave with_key out"
            )
        if flatten and split:
            raise BuildError("flatten and split contradict", where=function.__qualname__, fix="choose one of them")
        self.function = function
        self.flatten, self.split, self.with_key = flatten, split, with_key
        self.name = function.__name__
        self.signature = inspect.signature(function)
        self.parameters = tuple(self.signature.parameters)[1 + with_key :]
        self.all_positional = all(
            parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
            for parameter in self.signature.parameters.values()
        )
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def bind(self, component: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments by parameter name, defaults filled in.

        Raises:
            BuildError: Wrong number or names of arguments.
        """
        if self.all_positional and not kwargs and len(args) == len(self.parameters):  # most calls
            return dict(zip(self.parameters, args, strict=True))
        key = ("",) if self.with_key else ()
        try:
            bound = self.signature.bind(component, *key, *args, **kwargs)
        except TypeError as error:
            raise BuildError(
                f"wrong arguments for {self.kind} {self.name!r}: {error}",
                where=f"{component.path}.{self.name}",
                received=_describe_call(args, kwargs),
                fix=f"call it as {self.name}({', '.join(self.parameters)})",
            ) from None
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        for name in tuple(self.signature.parameters)[: 1 + self.with_key]:
            del arguments[name]
        return arguments


class ApiMethod(_Declared):
    """An API method: pure dataflow over symbolic values. Made by `@api`."""

    kind = "API method"

    def __init__(
        self, function: Callable[..., Any], *, static: tuple[str, ...], flatten: bool, split: bool, with_key: bool
    ) -> None:
        super().__init__(function, flatten=flatten, split=split, with_key=with_key)
        unknown = [name for name in static if name not in self.parameters]
        if unknown:
            raise BuildError(
                f"static names no parameter {unknown[0]!r}",
                where=function.__qualname__,
                fix=f"parameters are {list(self.parameters)}",
            )
        self.static = tuple(static)
        parameters = {name: self.signature.parameters[name] for name in self.static}
        self.static_defaults = {n: p.default for n, p in parameters.items() if p.default is not p.empty}

    @overload
    def __get__(self, component: None, cls: type) -> ApiMethod: ...
    @overload
    def __get__(self, component: Any, cls: type) -> Callable[..., Any]: ...
    def __get__(self, component: Any, cls: type) -> Any:
        if component is None:
            return self
        if getattr(type(component), "bound_function", None) is not None:
            raise ExecutionError(
                f"API method {self.name!r} was called inside a graph function",
                where=type(component).__name__,
                fix="call API methods in API methods, and pass their results to the graph function",
            )
        return BoundMethod(component, self)


class GraphFunction(_Declared):
    """A graph function: the only place where numbers are computed. Made by `@graph_fn`."""

    kind = "graph function"
    static: tuple[str, ...] = ()
    static_defaults: Mapping[str, Any] = MappingProxyType({})

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        flatten: bool,
        split: bool,
        with_key: bool,
        host: bool,
        returns: int | None,
        mixes_batch: bool,
        looks_ahead: bool,
        differentiable: bool,
        spaces: str | None,
    ) -> None:
        super().__init__(function, flatten=flatten, split=split, with_key=with_key)
        self.host, self.returns, self.mixes_batch, self.looks_ahead = host, returns, mixes_batch, looks_ahead
        self.differentiable, self.spaces = differentiable, spaces

    @overload
    def __get__(self, component: None, cls: type) -> GraphFunction: ...
    @overload
    def __get__(self, component: Any, cls: type) -> Callable[..., Any]: ...
    def __get__(self, component: Any, cls: type) -> Any:
        if component is None:
            return self
        bound_function = getattr(type(component), "bound_function", None)
        if bound_function is not None:  # in a lowered graph function: super().call(x)
            return types.MethodType(bound_function(self.function), component)
        return BoundMethod(component, self)


class BoundMethod:
    """A declared method of one component; calling it is only possible while a graph is traced."""

    __slots__ = ("component", "declared")

    def __init__(self, component: Any, declared: ApiMethod | GraphFunction) -> None:
        self.component, self.declared = component, declared

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        trace = TRACE.get()
        if trace is None:
            raise ExecutionError(
                f"{self.declared.kind} {self.declared.name!r} was called on an unbuilt component",
                where=f"{self.component.path}.{self.declared.name}",
                received=_describe_call(args, kwargs),
                fix="build a graph first: executor = build(component, input_spaces); executor."
                f"{self.declared.name}(...), or use rlweave.testing.ComponentTest",
            )
        return trace.call(self.component, self.declared, args, kwargs)

    def __repr__(self) -> str:
        return f"<{self.declared.kind} {self.component.path}.{self.declared.name}>"


def _describe_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    parts = [describe(value) for value in args] + [f"{name}={describe(value)}" for name, value in kwargs.items()]
    return f"({', '.join(parts)})"


def describe(structure: Structure) -> str:
    """Short text for a nested argument: spaces of values, types of the rest."""
    values = list(leaves_of(structure, Value))
    if isinstance(structure, Value):
        return repr(structure.space)
    if values:
        return "{" + ", ".join(repr(value.space) for value in values) + "}"
    if hasattr(structure, "shape") and hasattr(structure, "dtype"):
        return f"array of shape {tuple(structure.shape)}, {structure.dtype}"
    text = repr(structure)
    return text if len(text) <= 60 else f"{type(structure).__name__}"


def api(
    function: Callable[..., Any] | None = None,
    *,
    static: tuple[str, ...] | str = (),
    flatten: bool = False,
    split: bool = False,
    with_key: bool = False,
) -> Any:
    """Declares an API method of a component.

    Args:
        function: The method (when used without parentheses).
        static: Parameters that are Python constants in the graph; each combination is a compiled variant.
        flatten: Containers arrive as flat dicts with path keys.
        split: The body is called once per leaf; results are nested again; arguments that are no containers are
            broadcast to every leaf.
        with_key: With split: the leaf's path key comes first.
    """
    names = (static,) if isinstance(static, str) else static

    def decorate(fn: Callable[..., Any]) -> ApiMethod:
        return ApiMethod(fn, static=names, flatten=flatten, split=split, with_key=with_key)

    return decorate if function is None else decorate(function)


def graph_fn(
    function: Callable[..., Any] | None = None,
    *,
    flatten: bool = False,
    split: bool = False,
    with_key: bool = False,
    host: bool = False,
    returns: int | None = None,
    mixes_batch: bool = False,
    looks_ahead: bool = False,
    differentiable: bool = True,
    spaces: str | None = None,
) -> Any:
    """Declares a graph function, written once with `rlweave.ops`. With a public name it is an API method as well.

    Args:
        function: The method (when used without parentheses).
        flatten: Containers arrive as flat dicts with path keys; a returned dict with these keys is nested again.
        split: The body is called once per leaf; results are nested again; arguments that are no containers are
            broadcast to every leaf.
        with_key: With split: the leaf's path key comes first.
        host: Runs in NumPy on the host.
        returns: Number of results, where it cannot be read from the return statements.
        mixes_batch: The body mixes rows of the batch (as into (B, B) arrays, or by random numbers that all rows share);
            replicas run it once, on the full batch.
        looks_ahead: Results at a time step depend on later steps, as returns do; `rlweave check` refuses it elsewhere.
        differentiable: False: gradients stop here (synchronization, optimizers, memories).
        spaces: Name of a method with the same parameters that takes the input spaces and returns the result
            spaces; skips abstract evaluation. The body is not traced, so it is assumed to write every variable of the
            component, and on the device it has to return and assign fresh arrays, no views.
    """

    def decorate(fn: Callable[..., Any]) -> GraphFunction:
        return GraphFunction(
            fn,
            flatten=flatten,
            split=split,
            with_key=with_key,
            host=host,
            returns=returns,
            mixes_batch=mixes_batch,
            looks_ahead=looks_ahead,
            differentiable=differentiable,
            spaces=spaces,
        )

    return decorate if function is None else decorate(function)
