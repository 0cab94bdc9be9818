"""What went wrong in the code of a component, as an error that says where and what to write instead."""

from __future__ import annotations

import traceback
import types

from rlweave.backends.base import ArrayUseError, is_user_file
from rlweave.backends.bound_ops import BoundOps
from rlweave.errors import BuildError, nearest
from rlweave.graph.abstract import RecordingCell
from rlweave.graph.decorators import describe
from rlweave.graph.ir import Call
from rlweave.ops import OP_NAMES


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
        fix = f"use an operator that exists: {nearest(str(error.name), OP_NAMES)}"
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
