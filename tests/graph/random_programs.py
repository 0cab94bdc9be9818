"""Random straight-line programs over named state, and what they mean, computed by a small independent interpreter.

The interpreter keeps expressions in float64 and differentiates them symbolically, so that gradients of gradients come
out of the same rules. A read of a variable is a leaf; the derivative by a variable is the sum over its reads.
"""

import math

import numpy as np

from rlweave import graph, ops
from rlweave.graph import Component, api, graph_fn
from tests.graph.toys import Cell

NAMES = ("a", "b", "c")
KINDS = ("read", "times", "binary", "binary", "unary", "write", "silent", "gradient", "gradient", "step", "stop", "by")


class Refused(Exception):  # noqa: N818 - an outcome that is expected
    """The program differentiates through a write: the build has to refuse it."""


# -- programs ----------------------------------------------------------------------------------------------------


def random_program(rng, length):
    """A list of statements; values are named by their position in the list of values made so far."""
    program = [("read", "a"), ("read", "b")]
    values, gradients = 2, []
    for _ in range(length):
        kind = str(rng.choice(KINDS))
        pick = lambda: int(rng.integers(max(0, values - 6), values))  # noqa: E731, B023
        name = str(rng.choice(NAMES))
        if kind == "read":
            program.append(("read", name))
            values += 1
        elif kind == "times":
            program.append(("times", name, pick()))
            values += 1
        elif kind == "binary":
            program.append((str(rng.choice(["add", "multiply"])), pick(), pick()))
            values += 1
        elif kind in ("unary", "stop"):
            program.append(("sin" if kind == "unary" else "stop", pick()))
            values += 1
        elif kind in ("write", "silent"):
            program.append((kind, name, pick()))
        elif kind == "gradient":
            by = tuple(str(n) for n in rng.choice(NAMES, size=int(rng.integers(1, 4)), replace=False))
            program.append(("gradient", pick(), by))
            gradients.append((by, values))
            values += len(by)
        elif kind == "by":
            by = tuple(sorted({pick() for _ in range(int(rng.integers(1, 3)))}))
            program.append(("by", values - 1, by))
            values += len(by)
        elif gradients:
            by, first = gradients[-1]
            program.append(("step", by, first))
    return program


# -- the program as a component ----------------------------------------------------------------------------------


class Program(Component):
    """Runs a program in one API method."""

    def __init__(self, program, scope="program"):
        super().__init__(scope)
        self.program = tuple(program)
        self.a, self.b, self.c = Cell(0.7, scope="a"), Cell(-0.4, scope="b"), Cell(1.1, scope="c")

    @api
    def run(self, x):
        values = []
        cell = {"a": self.a, "b": self.b, "c": self.c}
        for kind, *rest in self.program:
            if kind == "read":
                values.append(cell[rest[0]].read())
            elif kind == "times":
                values.append(cell[rest[0]].times(values[rest[1]]))
            elif kind in ("add", "multiply"):
                values.append(getattr(self, f"_{kind}")(values[rest[0]], values[rest[1]]))
            elif kind == "sin":
                values.append(self._sin(values[rest[0]]))
            elif kind == "stop":
                values.append(self._stop(values[rest[0]]))
            elif kind == "write":
                cell[rest[0]].set(self._scaled(values[rest[1]], x))
            elif kind == "silent":
                cell[rest[0]].add_silently(values[rest[1]])
            elif kind == "gradient":
                collection = sum((cell[n].variables() for n in rest[1][1:]), cell[rest[1][0]].variables())
                slopes = graph.gradients(values[rest[0]], collection)
                values += [slopes[f"program/{name}/content"] for name in rest[1]]
            elif kind == "by":
                values += list(graph.gradients(values[rest[0]], tuple(values[i] for i in rest[1])))
            elif kind == "step":
                for offset, name in enumerate(rest[0]):
                    self._step(cell[name].variables(), values[rest[1] + offset])
        return tuple(values)

    @graph_fn
    def _add(self, a, b):
        return a + b

    @graph_fn
    def _multiply(self, a, b):
        return a * b

    @graph_fn
    def _sin(self, a):
        return ops.sin(a)

    @graph_fn
    def _scaled(self, a, x):
        return a * 0.5 * x

    @graph_fn(differentiable=False)
    def _stop(self, a):
        return a * 2.0

    @graph_fn(differentiable=False)
    def _step(self, variables, slope):
        for variable in variables:
            variable.assign(variable.value - 0.1 * slope)


# -- the interpreter ---------------------------------------------------------------------------------------------


class Expr:
    """An expression with its value; `local` gives the derivative by each operand, as expressions."""

    def __init__(self, value, operands=(), local=None, variable=None, origin=None):
        self.value, self.operands, self.local, self.variable, self.origin = value, operands, local, variable, origin


def constant(value):
    return Expr(value)


def add(a, b):
    return Expr(a.value + b.value, (a, b), lambda: (constant(1.0), constant(1.0)))


def multiply(a, b):
    return Expr(a.value * b.value, (a, b), lambda: (b, a))


def sin(a):
    return Expr(math.sin(a.value), (a,), lambda: (cos(a),))


def cos(a):
    return Expr(math.cos(a.value), (a,), lambda: (multiply(constant(-1.0), sin(a)),))


def order_of(loss):
    seen, order, stack = set(), [], [(loss, False)]
    while stack:
        expr, done = stack.pop()
        if done:
            order.append(expr)
        elif id(expr) not in seen:
            seen.add(id(expr))
            stack.append((expr, True))
            stack.extend((operand, False) for operand in expr.operands)
    return order


def cotangents_of(loss):
    order = order_of(loss)
    found = {id(loss): constant(1.0)}
    for expr in reversed(order):
        if id(expr) in found and expr.operands:
            for operand, slope in zip(expr.operands, expr.local(), strict=True):
                term = multiply(found[id(expr)], slope)
                found[id(operand)] = add(found[id(operand)], term) if id(operand) in found else term
    return order, found


def depends(expr, names, seen):
    """Whether an expression depends on reads of variables, writes in between included."""
    for inner in order_of(expr):
        if id(inner) in seen:
            continue
        seen.add(id(inner))
        if inner.variable in names or (inner.origin is not None and depends(inner.origin, names, seen)):
            return True
    return False


def interpret(program, state, x):
    """Values and state after a program; raises `Refused` where it differentiates through a write."""
    values = []
    state = {name: (value, None) for name, value in state.items()}

    def read(name):
        value, origin = state[name]
        return Expr(value, variable=name, origin=origin)

    for kind, *rest in program:
        if kind == "read":
            values.append(add(read(rest[0]), constant(0.0)))
        elif kind == "times":
            values.append(multiply(read(rest[0]), values[rest[1]]))
        elif kind == "add":
            values.append(add(values[rest[0]], values[rest[1]]))
        elif kind == "multiply":
            values.append(multiply(values[rest[0]], values[rest[1]]))
        elif kind == "sin":
            values.append(sin(values[rest[0]]))
        elif kind == "stop":
            values.append(constant(2.0 * values[rest[0]].value))
        elif kind == "write":
            written = multiply(values[rest[1]], constant(0.5 * x))
            state[rest[0]] = (written.value, written)
        elif kind == "silent":
            state[rest[0]] = (state[rest[0]][0] + values[rest[1]].value, None)
        elif kind == "gradient":
            loss, names = values[rest[0]], rest[1]
            order, found = cotangents_of(loss)
            if any(e.origin is not None and depends(e.origin, names, set()) for e in order):
                raise Refused
            for name in names:
                total = constant(0.0)
                for expr in order:
                    if expr.variable == name:
                        total = add(total, found[id(expr)])
                values.append(total)
        elif kind == "by":
            order, found = cotangents_of(values[rest[0]])
            by = [values[i] for i in rest[1]]
            wanted = {id(v) for v in by}
            if any(e.origin is not None and any(id(i) in wanted for i in full_order(e.origin)) for e in order):
                raise Refused
            values += [found.get(id(v), constant(0.0)) for v in by]
        elif kind == "step":
            for offset, name in enumerate(rest[0]):
                state[name] = (state[name][0] - 0.1 * values[rest[1] + offset].value, None)
    return [value.value for value in values], {name: value for name, (value, _) in state.items()}


def full_order(expr):
    """All expressions below, through writes as well."""
    found = []
    for inner in order_of(expr):
        found.append(inner)
        if inner.origin is not None:
            found += full_order(inner.origin)
    return found


def finite(numbers):
    return bool(np.all(np.isfinite(numbers)) and np.all(np.abs(numbers) < 1e3))
