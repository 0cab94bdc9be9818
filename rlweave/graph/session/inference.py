"""Inference, while methods are traced: what a call returns, and which variables it touches.

The function is bound to small arrays and recording cells (`binding.py`) and tried by `abstract.py`; what that found is
kept for equal calls (`fingerprints.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlweave.backends import Backend, get_backend
from rlweave.backends.base import WIDE, fits
from rlweave.errors import BuildError, RlweaveError
from rlweave.graph.abstract import CellLog, Inference, RecordingCell, ScratchRandom, infer
from rlweave.graph.binding import bind_node_function, fill_arguments, make_binder, scratch_state
from rlweave.graph.composition import ComponentBase
from rlweave.graph.decorators import GraphFunction
from rlweave.graph.ir import HOST_RANDOM, RANDOM, Call, Structure, Value, unique
from rlweave.graph.session.components import BuiltComponents
from rlweave.graph.session.fingerprints import PLAIN, Key, frozen
from rlweave.graph.values import make_result, nested_boxes, to_space, variables_of_arguments
from rlweave.graph.variable import Variable
from rlweave.plugins import extension
from rlweave.spaces import Box
from rlweave.tree import has_leaf, leaves_of

#: Results of abstract evaluation, for the process; the functions and classes in the keys stay alive with them.
_CACHE: dict[Any, Inference] = {}
_CACHE_LIMIT = 20_000


@dataclass(frozen=True)
class _Effects:
    """What a call returns and touches: the parts of its node that are alike for all calls with equal arguments."""

    result: Structure
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    aliases: bool
    row_writes: tuple[str, ...]
    aliased_writes: tuple[str, ...]
    alias_variables: tuple[str, ...]
    integer_writes: tuple[str, ...]


class Session(BuiltComponents):
    """One build.

    Args:
        root: The root component.
        backend: Where device nodes run.
        rng: "fast" or "portable".
        device: Device of the root, or devices by component path, which come before those that components ask for.
    """

    def __init__(
        self,
        root: ComponentBase,
        backend: Backend,
        rng: str,
        device: str | Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(root, backend, device)
        self.rng, self.host_backend = rng, get_backend("numpy")
        self.result_counts: dict[tuple[int, str], int] = {}
        self._binders: dict[str, tuple[Any, ScratchRandom]] = {}
        #: By plain call: what it returns and touches.
        self._effects: dict[tuple[Any, ...], _Effects] = {}
        self.evaluation_seconds = 0.0

    def binder(self, host: bool) -> tuple[Any, ScratchRandom]:
        """The binder (and random cell) of abstract evaluation on the host or the device backend."""
        key = "host" if host else "device"
        if key not in self._binders:
            backend = self.host_backend if host else self.backend
            random = ScratchRandom(scratch_state(backend, self.rng))
            self._binders[key] = (
                make_binder(backend, self.rng, random, arrays=() if host else backend.evaluated_types),
                random,
            )
            backend.watch_ops(self._binders[key][0].ops)
        return self._binders[key]

    def infer(self, node: Call, declared: GraphFunction | None) -> None:
        """Fills in result, reads and writes of a call node."""
        if declared is not None and declared.spaces is not None:
            self._declared_spaces(node, declared, self._variables_seen_by(node, declared))
            return
        call = self._plain_call(node, declared)
        effects = self._effects.get(call) if call is not None else None
        if effects is None:
            variables = self._variables_seen_by(node, declared)
            effects = _effects_of(self._inference(node, declared, variables), variables, node.host)
            if call is not None:
                self._effects[call] = effects
        node.reads, node.writes, node.aliases = effects.reads, effects.writes, effects.aliases
        node.row_writes, node.aliased_writes = effects.row_writes, effects.aliased_writes
        node.alias_variables, node.integer_writes = effects.alias_variables, effects.integer_writes
        node.result = make_result(node, effects.result)

    def _plain_call(self, node: Call, declared: GraphFunction | None) -> tuple[Any, ...] | None:
        """A key for calls of one build with equal arguments; None where there are others than values and constants."""
        if node.substitution or node.kwargs:
            return None
        parts: list[Any] = [node.function, id(node.component), declared is None, node.host]
        for argument in node.args:
            if type(argument) is Value:
                parts.append(argument.space)
            elif type(argument) in PLAIN:
                parts += (type(argument), argument)
            else:
                return None
        try:
            parts.append(self.fingerprints.of(node.component))
        except TypeError:
            return None
        return tuple(parts)

    def _variables_seen_by(self, node: Call, declared: GraphFunction | None) -> list[Variable]:
        own = self.variables_of(node.component) if node.component is not None and declared else []
        return list(dict.fromkeys([*own, *variables_of_arguments((node.args, node.kwargs))]))

    def _inference(self, node: Call, declared: GraphFunction | None, variables: list[Variable]) -> Inference:
        """What abstract evaluation says, now or for an equal call before."""
        key = self._cache_key(node, variables)
        inference = _CACHE.get(key) if key is not None else None
        if inference is None:
            leaves = [value.space for value in leaves_of((node.args, node.kwargs), Value)]
            spaces = [node.substitution[v.path].space if v.path in node.substitution else v.space for v in variables]
            inference = self._evaluate(node, declared, leaves, variables, spaces)
            if key is not None:
                if len(_CACHE) >= _CACHE_LIMIT:
                    _CACHE.clear()
                    self.fingerprints.clear()
                _CACHE[key] = inference
        return inference

    def _evaluate(
        self,
        node: Call,
        declared: GraphFunction | None,
        leaves: list[Box],
        variables: list[Variable],
        spaces: list[Box],
    ) -> Inference:
        start = time.perf_counter()
        log = CellLog()
        cells = [
            RecordingCell(i, v.path, space, log) for i, (v, space) in enumerate(zip(variables, spaces, strict=True))
        ]
        by_variable = {id(variable): cell for variable, cell in zip(variables, cells, strict=True)}

        def cell_of(variable: Variable) -> RecordingCell:
            return by_variable[id(variable)]

        backend = self.host_backend if node.host else self.backend
        binder, random = self.binder(node.host)
        random.used = False
        function = bind_node_function(binder, node, cell_of, fixed_cells=False)
        for constant in leaves_of((node.args, node.kwargs), (np.ndarray, np.generic)):
            refuse_wide(backend, constant, node.label)

        def call(arrays: Any) -> Structure:
            args, kwargs = fill_arguments(node, list(arrays), lambda c: binder.collection(c, cell_of), backend.constant)
            return function(*args, **kwargs)

        try:
            result = infer(
                backend,
                call,
                leaves,
                cells,
                log,
                random,
                self.feature_sizes,
                mixes_batch=node.mixes_batch,
                where=node.label,
                host=node.host,
            )
        except RlweaveError:
            raise
        except Exception as error:
            raise extension("diagnosis").failed_call(node, error) from error
        self.evaluation_seconds += time.perf_counter() - start
        return result

    def _declared_spaces(self, node: Call, declared: GraphFunction, variables: list[Variable]) -> None:
        assert declared.spaces is not None
        method = getattr(node.component, declared.spaces)
        args = [to_space(a) if has_leaf(a, Value) else a for a in node.args]
        kwargs = {k: to_space(a) if has_leaf(a, Value) else a for k, a in node.kwargs.items()}
        result = method(*args, **kwargs)
        paths = unique([v.path for v in variables] + [HOST_RANDOM if node.host else RANDOM])
        node.reads = node.writes = paths
        node.row_writes = paths
        node.declared_spaces = True
        node.result = make_result(node, nested_boxes(result))

    def _cache_key(self, node: Call, variables: list[Variable]) -> Any:
        try:
            arguments = (frozen(node.args), frozen(node.kwargs))
            settings = self.fingerprints.of(node.component)
            substituted = tuple([(path, node.substitution[path].space) for path in sorted(node.substitution)])
            key = (
                self.backend.name if not node.host else "numpy",
                node.function,
                node.mixes_batch,  # decides on what is refused
                settings,
                arguments,
                tuple([variable.space for variable in variables]),
                substituted,
                self.rng,
            )
            return Key(key)
        except TypeError:
            return None


def refuse_wide(backend: Backend, constant: np.ndarray | np.generic, where: str) -> None:
    """Refuses integers that do not fit into the 32 bits in which a backend computes."""
    if not backend.wide and constant.dtype.name in WIDE and not fits(constant, WIDE[constant.dtype.name]):
        raise BuildError(
            f"the {backend.name} backend computes in 32 bits here, and a constant needs more",
            where=where,
            received=f"{constant.dtype} from {constant.min()} to {constant.max()}",
            fix='use smaller integers, or backend="torch" or "numpy"',
        )


def _effects_of(inference: Inference, variables: list[Variable], host: bool) -> _Effects:
    """What abstract evaluation said of positions, as paths of these variables."""

    def paths(positions: Iterable[int]) -> list[str]:
        return [variables[i].path for i in positions]

    random = [HOST_RANDOM if host else RANDOM] if inference.random else []
    return _Effects(
        result=inference.result,
        reads=unique([*paths((*inference.reads, *inference.row_writes)), *random]),
        writes=unique([*paths(inference.writes), *random]),
        aliases=inference.alias_arguments or bool(inference.alias_variables),
        row_writes=tuple(paths(inference.row_writes)),
        aliased_writes=tuple(paths(inference.aliased_writes)),
        alias_variables=tuple(paths(inference.alias_variables)),
        integer_writes=tuple([v.path for v in variables if not v.space.dtype.startswith("float")]),
    )
