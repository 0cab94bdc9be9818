"""What went wrong in a build, as an error that says where and what to write instead; asked for when something has."""

from __future__ import annotations

import traceback
import types
from collections.abc import Mapping

from rlweave.backends.base import ArrayUseError, is_user_file
from rlweave.backends.bound_ops import BoundOps
from rlweave.errors import BuildError, nearest
from rlweave.graph.abstract import RecordingCell
from rlweave.graph.component import api_methods
from rlweave.graph.composition import ComponentBase
from rlweave.graph.decorators import describe
from rlweave.graph.ir import Call
from rlweave.graph.session.inference import Session
from rlweave.ops import OP_NAMES

#: Functions by the names that they have in other frameworks.
_OTHER_NAMES = {
    "cast": "astype",
    "cat": "concat",
    "clamp": "clip",
    "clip_by_value": "clip",
    "concatenate": "concat",
    "cumsum": "cumulative_sum",
    "detach": "stop_gradient",
    "gather": "take_along_axis",
    "amax": "max",
    "amin": "min",
    "permute": "permute_dims",
    "power": "pow",
    "reduce_max": "max",
    "reduce_mean": "mean",
    "reduce_sum": "sum",
    "transpose": "permute_dims",
    "unbind": "unstack",
    "unsqueeze": "expand_dims",
}


def failed_call(node: Call, error: Exception) -> BuildError:
    """The build error for an exception inside a graph function."""
    line = _line_of(error)
    line = f", {line}" if line else ""
    inputs = [describe(argument) for argument in node.args]
    inputs += [f"{name}={describe(argument)}" for name, argument in node.kwargs.items()]
    if not isinstance(error, ArrayUseError):
        error = _misused_variable(error.__traceback__) or error
    if isinstance(error, ArrayUseError):
        return BuildError(error.what, where=f"{node.label}{line}", received=f"({', '.join(inputs)})", fix=error.fix)
    missing = _missing_entry(error)
    if missing is not None:
        return BuildError(missing[0], where=f"{node.label}{line}", received=f"({', '.join(inputs)})", fix=missing[1])
    message = str(error).partition("\n")[0]
    fix = "correct the function, or what its callers pass"
    if isinstance(error, AttributeError) and isinstance(error.obj, BoundOps):
        name = str(error.name)
        known = f"ops.{_OTHER_NAMES[name]}" if name in _OTHER_NAMES else nearest(name, OP_NAMES)
        fix = f"use an operator that exists: {known}"
    return BuildError(
        f"a graph function failed when it was tried on small arrays: {type(error).__name__}: {message}",
        where=f"{node.label}{line}",
        received=f"({', '.join(inputs)})",
        fix=fix,
    )


def _misused_variable(trace: types.TracebackType | None) -> ArrayUseError | None:
    """The error for a variable that a function of a framework got in place of an array, if that is what happened."""
    found = None
    while trace is not None:
        code = trace.tb_frame.f_code
        if is_user_file(code.co_filename):
            found = None
        elif found is None and "/rlweave/graph/" not in code.co_filename.replace("\\", "/"):
            values = [trace.tb_frame.f_locals.get(name) for name in code.co_varnames]
            items = [item for value in values for item in (value if isinstance(value, list | tuple) else (value,))]
            found = next((item.misuse() for item in items if isinstance(item, RecordingCell)), None)
        trace = trace.tb_next
    return found


def failed_method(where: str, error: KeyError) -> BuildError | None:
    """The build error for a wrong key in an API method; None where it is no key of a container of values."""
    missing = _missing_entry(error)
    if missing is None:
        return None
    return BuildError(missing[0], where=f"{where}, {_line_of(error)}", fix=missing[1])


def _missing_entry(error: Exception) -> tuple[str, str] | None:
    """What is wrong and what to do about the key of a KeyError, by the dicts that its line can see."""
    if not isinstance(error, KeyError) or len(error.args) != 1 or not isinstance(error.args[0], str):
        return None
    key, frame = error.args[0], _innermost(error)
    dicts = [value for value in (frame.f_locals.values() if frame is not None else ()) if isinstance(value, dict)]
    keys = [name for found in dicts if key not in found for name in found if isinstance(name, str)]
    if not keys:
        return None
    return f"there is no entry {key!r}", nearest(key, dict.fromkeys(keys))


def _innermost(error: Exception) -> types.FrameType | None:
    """The innermost frame of a component's code."""
    found, trace = None, error.__traceback__
    while trace is not None:
        if is_user_file(trace.tb_frame.f_code.co_filename):
            found = trace.tb_frame
        trace = trace.tb_next
    return found


def _line_of(error: Exception) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_user_file(f.filename)]
    return f"{frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line}" if frames else ""


def stuck(session: Session, reasons: Mapping[str, str]) -> BuildError:
    """The build error for a round in which no component became complete.

    Args:
        session: The build.
        reasons: By API method why it stopped.
    """
    lines = []
    for component in session.components:
        state = session.states[id(component)]
        if state.complete:
            continue
        missing = [name for name in state.needs if name not in state.inputs]
        lines += [f"{component.path}: {_why_missing(session, component, name)}" for name in missing]
    lines += [f"{session.root.path}.{name} stopped at: {reason}" for name, reason in reasons.items() if reason]
    details = "\n    ".join(lines)
    return BuildError(
        "the build is stuck: no component became complete in the last round",
        where=", ".join(f"{session.root.path}.{name}" for name in reasons),
        received="\n    " + details,
        fix="feed each missing input from an API method that is called with known spaces, or take the parameter "
        "out of create_variables",
    )


def _why_missing(session: Session, component: ComponentBase, name: str) -> str:
    declared = api_methods(type(component))
    suppliers = [method for method, d in declared.items() if name in d.parameters]
    if not suppliers:
        parameters = sorted({p for d in declared.values() for p in d.parameters})
        hint = nearest(name, parameters) if parameters else "it has none"
        return f"create_variables needs {name!r}, which is no parameter of its API methods; {hint}"
    circle = session.unknown_inputs.get((id(component), name))
    if circle:
        return (
            f"input {name!r} is only ever passed values that are unknown themselves, in a circle: "
            f"{', '.join(dict.fromkeys(circle))}"
        )
    return f"input {name!r} is never fed; API methods that would supply it: {', '.join(suppliers)}, called by nobody"
