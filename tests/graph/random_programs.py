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


def random_program(rng, length, bodies=0):
    """A list of statements; values are named by their position in the list of values made so far.

    Args:
        rng: NumPy generator.
        length: Number of statements.
        bodies: How deep scans and conditions may be nested.
    """
    return [("read", "a"), ("read", "b"), *_statements(rng, length, 2, bodies)]


def _statements(rng, length, values, bodies):
    program, gradients = [], []
    for _ in range(length):
        kind = str(rng.choice((*KINDS, "scan", "cond") if bodies else KINDS))
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
        elif kind == "scan":
            # the body starts with the carry and a value from outside; it hands on its last value
            body = _statements(rng, int(rng.integers(1, 5)), 2, bodies - 1)
            program.append(("scan", int(rng.integers(1, 4)), pick(), pick(), body))
            values += 2
        elif kind == "cond":
            branches = [_statements(rng, int(rng.integers(1, 4)), 2, bodies - 1) for _ in range(2)]
            program.append(("cond", pick(), pick(), pick(), *branches))
            values += 1
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
        return tuple(self._statements(self.program, [], x))

    def _statements(self, program, values, x):
        cell = {"a": self.a, "b": self.b, "c": self.c}
        for kind, *rest in program:
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
                slopes = graph.gradients(values[rest[0]], collection, allow_unused=True)
                values += [slopes[f"program/{name}/content"] for name in rest[1]]
            elif kind == "by":
                by = tuple(values[i] for i in rest[1])
                values += list(graph.gradients(values[rest[0]], by, allow_unused=True))
            elif kind == "step":
                for offset, name in enumerate(rest[0]):
                    self._step(cell[name].variables(), values[rest[1] + offset])
            elif kind == "scan":
                length, carry, captured, body = rest

                def step(carry, _, captured=values[captured], body=body):
                    last = self._sin(self._statements(body, [carry, captured], x)[-1])
                    return last, self._add(last, carry)

                last, ys = graph.scan(step, values[carry], None, length)
                values += [last, self._sum(ys)]
            elif kind == "cond":
                flag, one, two, *bodies = rest
                given = [values[one], values[two]]
                branches = [lambda body=body: self._sin(self._statements(body, list(given), x)[-1]) for body in bodies]  # noqa: B023
                values.append(graph.cond(self._positive(values[flag]), *branches))
        return values

    @graph_fn
    def _add(self, a, b):
        return a + b

    @graph_fn
    def _multiply(self, a, b):
        return a * b

    @graph_fn
    def _sum(self, ys):
        return ops.sum(ys)

    @graph_fn
    def _positive(self, a):
        return a > 0.05

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

    def __init__(self, value, operands=(), local=None, variable=None, origin=None, frame=None):
        self.value, self.operands, self.local = value, operands, local
        self.variable, self.origin, self.frame = variable, origin, frame


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
    """Values and state after a program; raises `Refused` where it differentiates through a write or into a body."""
    run = _Interpreter({name: (value, None) for name, value in state.items()}, x)
    values = run.statements(program, [], None)
    return [value.value for value in values], {name: value for name, (value, _) in run.state.items()}


class _Interpreter:
    def __init__(self, state, x):
        self.state, self.x = state, x

    def read(self, name, frame):
        value, origin = self.state[name]
        return Expr(value, variable=name, origin=origin, frame=frame)

    def statements(self, program, values, frame):
        """Runs statements; `frame` is the pass through a body that they are in."""
        state = self.state
        for kind, *rest in program:
            if kind == "read":
                values.append(add(self.read(rest[0], frame), constant(0.0)))
            elif kind == "times":
                values.append(multiply(self.read(rest[0], frame), values[rest[1]]))
            elif kind == "add":
                values.append(add(values[rest[0]], values[rest[1]]))
            elif kind == "multiply":
                values.append(multiply(values[rest[0]], values[rest[1]]))
            elif kind == "sin":
                values.append(sin(values[rest[0]]))
            elif kind == "stop":
                values.append(constant(2.0 * values[rest[0]].value))
            elif kind == "write":
                written = multiply(values[rest[1]], constant(0.5 * self.x))
                state[rest[0]] = (written.value, written)
            elif kind == "silent":
                state[rest[0]] = (state[rest[0]][0] + values[rest[1]].value, None)
            elif kind == "gradient":
                values += self.gradient(values[rest[0]], rest[1], frame)
            elif kind == "by":
                values += self.by(values[rest[0]], [values[i] for i in rest[1]])
            elif kind == "step":
                for offset, name in enumerate(rest[0]):
                    state[name] = (state[name][0] - 0.1 * values[rest[1] + offset].value, None)
            elif kind == "scan":
                length, carry, captured, body = rest
                carry, captured, total = values[carry], values[captured], constant(0.0)
                for _ in range(length):
                    given = [add(carry, constant(0.0)), captured]  # the carry of a pass is a value of its own
                    last = sin(self.statements(body, given, (frame, object()))[-1])
                    total, carry = add(total, add(last, given[0])), last
                values += [add(carry, constant(0.0)), total]
            elif kind == "cond":
                flag, one, two, yes, no = rest
                body = yes if values[flag].value > 0.05 else no
                values.append(sin(self.statements(body, [values[one], values[two]], (frame, object()))[-1]))
        return values

    def gradient(self, loss, names, frame):
        order, found = cotangents_of(loss)
        if any(e.origin is not None and depends(e.origin, names, set()) for e in order):
            raise Refused
        if any(e.variable in names and not inside(e.frame, frame) for e in order):
            raise Refused
        totals = []
        for name in names:
            total = constant(0.0)
            for expr in order:
                if expr.variable == name:
                    total = add(total, found[id(expr)])
            totals.append(total)
        return totals

    def by(self, loss, wanted):
        order, found = cotangents_of(loss)
        ids = {id(v) for v in wanted}
        if any(e.origin is not None and any(id(i) in ids for i in full_order(e.origin)) for e in order):
            raise Refused
        return [add(found.get(id(v), constant(0.0)), constant(0.0)) for v in wanted]


def inside(frame, outer):
    """Whether a pass through a body lies in another one (or is the same)."""
    while frame is not outer:
        if frame is None:
            return False
        frame = frame[0]
    return True


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
