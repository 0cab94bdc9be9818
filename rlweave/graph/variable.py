"""Variables as components declare them, collections of them, and synchronization of two."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from rlweave import ops
from rlweave.backends.base import fits
from rlweave.errors import BuildError, nearest
from rlweave.graph.composition import ComponentBase
from rlweave.graph.current import require_trace
from rlweave.graph.stand_ins import NoArray
from rlweave.spaces import Box, from_axes

Initializer = str | float | int | np.ndarray | Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


class Variable(NoArray):
    """A named piece of state of one component.

    Inside a graph function, `.value` reads it, `.assign(x)` writes it, `.assign_at(indices, x)` writes rows of it.

    Args:
        owner: The component that declared it.
        name: Its name within the component.
        space: Feature shape and dtype (no ranks).
        initializer: A name in `INITIALIZERS`, a number, an array, or a function of (generator, shape).
        trainable: Whether optimizers see it.
        axis_order: Its axes in the order in which they should lie in memory, slowest first, on a backend where that
            can be chosen (torch); None: row-major.
        beside: A variable on whose device it lives; None: on that of its owner.
    """

    def __init__(
        self,
        owner: ComponentBase,
        name: str,
        space: Box,
        initializer: Initializer,
        trainable: bool,
        axis_order: tuple[int, ...] | None = None,
        beside: Variable | None = None,
    ) -> None:
        self.owner, self.name, self.space, self.initializer, self.trainable = owner, name, space, initializer, trainable
        self.axis_order = axis_order
        #: The component whose device is the variable's.
        self.placed_with: ComponentBase = owner if beside is None else beside.placed_with
        self.shape = space.concrete_shape({})
        #: Where the store keeps it. It is made by a build, in which no component moves any more.
        self.path = f"{owner.path}/{name}"

    @property
    def dtype(self) -> str:
        return self.space.dtype

    def _outside(self, *args: Any) -> Any:
        raise BuildError(
            "a variable was used outside a graph function",
            where=self.path,
            fix="read and write variables only inside methods decorated with @graph_fn",
        )

    def refuse(self) -> NoReturn:
        raise BuildError(
            "a variable was used as if it were its array",
            where=self.path,
            fix="read it in a graph function: self.<name>.value; all of a component in an API method: "
            "component.variables().read()",
        )

    value = property(_outside, _outside)
    assign = assign_at = _outside

    def __repr__(self) -> str:
        return f"Variable({self.path!r}, {self.space!r})"

    def initial_value(self, seed: int) -> np.ndarray:
        """Its initial value, a fresh array: a function of the graph seed and of the path, never of the build order."""
        if isinstance(self.initializer, bool | int | float | np.generic):
            self._refuse_loss(self.initializer)
            # zeros take memory only where they are written: an empty replay memory costs nothing
            zero = self.initializer == 0
            return np.zeros(self.shape, self.dtype) if zero else np.full(self.shape, self.initializer, self.dtype)
        if isinstance(self.initializer, np.ndarray):
            value = self.initializer
        else:
            fn = initializer_by_name(self.initializer) if isinstance(self.initializer, str) else self.initializer
            value = fn(_generator(seed, f"{self.owner.seed_path}/{self.name}"), self.shape)
        self._refuse_loss(value)
        # row-major, as it comes back from a checkpoint: matrix products round differently for other layouts
        value = np.array(value, dtype=self.dtype, order="C")
        if value.shape != self.shape:
            raise BuildError(
                "an initializer returned the wrong shape",
                where=self.path,
                received=f"shape {value.shape}, wanted {self.shape}",
                fix="return an array of the variable's shape",
            )
        return value

    def _refuse_loss(self, value: Any) -> None:
        """Refuses initial values that integers of the variable's dtype cannot hold."""
        if self.space.dtype.startswith("float"):  # most variables
            return
        value = np.asarray(value)
        if not fits(value, self.dtype):
            raise BuildError(
                f"an initial value does not fit into a variable of {self.dtype}",
                where=self.path,
                received=f"{value.dtype} from {value.min()} to {value.max()}",
                fix="choose a dtype that can hold it, self.variable(..., dtype=...), or another value",
            )


def _generator(seed: int, path: str) -> np.random.Generator:
    digest = hashlib.blake2b(path.encode(), digest_size=16).digest()
    return np.random.Generator(np.random.PCG64([seed & 0xFFFFFFFFFFFFFFFF, *np.frombuffer(digest, dtype=np.uint32)]))


def _fans(shape: tuple[int, ...]) -> tuple[float, float]:
    if len(shape) < 2:
        size = float(shape[0]) if shape else 1.0
        return size, size
    receptive = float(np.prod(shape[:-2])) if len(shape) > 2 else 1.0
    return shape[-2] * receptive, shape[-1] * receptive


def _scaled_normal(scale: float, mode: str) -> Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]:
    def initialize(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        fan_in, fan_out = _fans(shape)
        fan = {"in": fan_in, "average": (fan_in + fan_out) / 2}[mode]
        return rng.standard_normal(shape) * np.sqrt(scale / max(fan, 1.0))

    return initialize


def _scaled_uniform(scale: float, mode: str) -> Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]:
    def initialize(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        fan_in, fan_out = _fans(shape)
        fan = {"in": fan_in, "average": (fan_in + fan_out) / 2}[mode]
        limit = np.sqrt(3.0 * scale / max(fan, 1.0))
        return rng.uniform(-limit, limit, shape)

    return initialize


def orthogonal(gain: float = 1.0) -> Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]:
    """Orthogonal initialization (Saxe et al. 2013) of a kernel whose last axis is the output.

    Args:
        gain: Factor on the orthogonal matrix.
    """

    def initialize(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        rows, columns = int(np.prod(shape[:-1])), shape[-1]
        matrix = rng.standard_normal((max(rows, columns), min(rows, columns)))
        q, r = np.linalg.qr(matrix)
        q = q * np.sign(np.diag(r))
        return gain * (q if rows >= columns else q.T).reshape(shape)

    return initialize


INITIALIZERS: Mapping[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "zeros": lambda rng, shape: np.zeros(shape),
    "ones": lambda rng, shape: np.ones(shape),
    "lecun_normal": _scaled_normal(1.0, "in"),
    "he_normal": _scaled_normal(2.0, "in"),
    "glorot_normal": _scaled_normal(1.0, "average"),
    "lecun_uniform": _scaled_uniform(1.0, "in"),
    "he_uniform": _scaled_uniform(2.0, "in"),
    "glorot_uniform": _scaled_uniform(1.0, "average"),
    "torch_default": _scaled_uniform(1.0 / 3.0, "in"),
    "orthogonal": orthogonal(1.0),
    "standard_normal": lambda rng, shape: rng.standard_normal(shape),
}


def initializer_by_name(name: str) -> Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]:
    """Looks an initializer up."""
    if name not in INITIALIZERS:
        raise BuildError("unknown initializer", received=repr(name), fix=nearest(name, INITIALIZERS))
    return INITIALIZERS[name]


def variable_space(shape_or_space: Any, dtype: str | None) -> Box:
    """The space of a variable from a shape or a space without ranks."""
    if isinstance(shape_or_space, Box):
        space = shape_or_space
        return space if dtype is None or dtype == space.dtype else from_axes(space.shape, dtype)
    shape = (shape_or_space,) if isinstance(shape_or_space, int | np.integer) else tuple(shape_or_space)
    if not all(isinstance(size, int | np.integer) for size in shape):
        raise BuildError(
            "a variable needs a concrete shape",
            received=f"shape {shape!r}",
            fix="build it from feature sizes (space.shape), not from the batch or time rank",
        )
    return _space_of_shape(tuple(int(size) for size in shape), dtype or "float32")


@functools.lru_cache(maxsize=4096)
def _space_of_shape(shape: tuple[int, ...], dtype: str) -> Box:
    """One space for all variables of a shape and dtype: builds compare them again and again."""
    return from_axes(shape, dtype)


class VariableCollection:
    """Variables by path, in a stable order; what optimizers, gradients and synchronization take.

    Collections add up: `policy.variables() + value_function.variables()`.
    """

    def __init__(self, variables: Mapping[str, Variable], root: str = "") -> None:
        self._by_path = dict(variables)
        self.root = root

    def __getitem__(self, path: str) -> Variable:
        return self._by_path[path]

    def __iter__(self) -> Iterator[Variable]:
        return iter(self._by_path.values())

    def __len__(self) -> int:
        return len(self._by_path)

    def keys(self) -> Any:
        return self._by_path.keys()

    def values(self) -> Any:
        return self._by_path.values()

    def items(self) -> Any:
        return self._by_path.items()

    def __add__(self, other: VariableCollection) -> VariableCollection:
        return VariableCollection({**self._by_path, **other._by_path})

    def __hash__(self) -> int:
        return hash(tuple(self._by_path))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VariableCollection) and list(self._by_path) == list(other._by_path)

    def relative(self) -> dict[str, Variable]:
        """Variables by path relative to the component they were asked from."""
        cut = len(self.root) + 1 if self.root else 0
        return {path[cut:]: variable for path, variable in self._by_path.items()}

    def read(self) -> dict[str, Any]:
        """Their present values, as a dict of symbolic values by path (inside an API method)."""
        trace = require_trace("VariableCollection.read")
        by_place: dict[Any, dict[str, Variable]] = {}
        for path, variable in self._by_path.items():
            by_place.setdefault(trace.session.place_of(variable), {})[path] = variable
        if len(by_place) < 2:
            return trace.call_internal(read_variables, "read", (self,))
        parts = [
            trace.call_internal(read_variables, "read", (VariableCollection(part, self.root),))
            for part in by_place.values()
        ]
        found = {path: value for part in parts for path, value in part.items()}
        return {path: found[path] for path in self._by_path}

    def __repr__(self) -> str:
        return f"VariableCollection({list(self._by_path)})"


def read_variables(variables: Any) -> dict[str, Any]:
    """Graph function body of `VariableCollection.read`."""
    return {path: variable.value for path, variable in variables.items()}


def copy_variables(target: Any, source: Any) -> None:
    """Graph function body: `target = source`."""
    for to, of in zip(target, source, strict=True):
        to.assign(of.value)


def move_variables(target: Any, source: Any, tau: Any) -> None:
    """Graph function body: `target += tau * (source - target)`."""
    for to, of in zip(target, source, strict=True):
        value = to.value
        to.assign(value + tau * (ops.stop_gradient(of.value) - value))


def copy_values(target: Any, values: Any) -> None:
    """Graph function body: `target = values`."""
    for to, value in zip(target, values, strict=True):
        to.assign(value)


def move_by_values(target: Any, values: Any, tau: Any) -> None:
    """Graph function body: `target += tau * (values - target)`."""
    for to, of in zip(target, values, strict=True):
        value = to.value
        to.assign(value + tau * (ops.stop_gradient(of) - value))


def sync_variables(
    target: ComponentBase,
    source: ComponentBase,
    all_ours: VariableCollection,
    all_theirs: VariableCollection,
    tau: Any,
) -> None:
    """Moves the variables of `target` towards those of `source`; see `Component.sync`.

    Args:
        target: A component.
        source: A component that was built equally.
        all_ours: All variables of `target`, those of components shared from outside among them.
        all_theirs: All variables of `source`, likewise.
        tau: How far.

    Raises:
        BuildError: The components do not have the same variables.
    """
    trace = require_trace("sync")
    ours, theirs = _own(target, all_ours), _own(source, all_theirs)
    if list(ours) != list(theirs):
        missing = [name for name in ours if name not in theirs] or [name for name in theirs if name not in ours]
        raise BuildError(
            "components with different variables cannot be synchronized",
            where=f"{target.path} from {source.path}",
            received=f"{missing[0]!r} is in one of them only" if missing else "the order differs",
            fix=nearest(missing[0], list(theirs)) if missing else "build both the same way, or use copy()",
        )
    wrong = [name for name in ours if ours[name].shape != theirs[name].shape]
    if wrong:
        raise BuildError(
            "variables of different shapes cannot be synchronized",
            where=ours[wrong[0]].path,
            received=f"{ours[wrong[0]].shape} from {theirs[wrong[0]].shape}",
            fix="build both components from the same spaces",
        )
    to = VariableCollection({v.path: v for v in ours.values()})
    of = VariableCollection({v.path: v for v in theirs.values()})
    plain = isinstance(tau, int | float) and float(tau) == 1.0
    places = {trace.session.place_of(v) for v in (*ours.values(), *theirs.values())}
    if len(places) > 1:
        # read where the source is, and written where the target is: what lies between is a transfer
        for place in dict.fromkeys(trace.session.place_of(v) for v in ours.values()):
            here = {name: v for name, v in ours.items() if trace.session.place_of(v) == place}
            values = VariableCollection({theirs[name].path: theirs[name] for name in here}).read()
            part = VariableCollection({v.path: v for v in here.values()})
            ordered = [values[theirs[name].path] for name in here] if isinstance(values, dict) else values
            arguments = (part, ordered) if plain else (part, ordered, tau)
            body = copy_values if plain else move_by_values
            trace.call_internal(body, "sync", arguments, component=target, differentiable=False)
        return
    if plain:
        trace.call_internal(copy_variables, "sync", (to, of), component=target, differentiable=False)
        return
    trace.call_internal(move_variables, "sync", (to, of, tau), component=target, differentiable=False)


def _own(component: ComponentBase, variables: VariableCollection) -> dict[str, Any]:
    """Variables below a component by relative path, without those of components shared from outside."""
    prefix = component.path + "/"
    return {path[len(prefix) :]: variable for path, variable in variables.items() if path.startswith(prefix)}
