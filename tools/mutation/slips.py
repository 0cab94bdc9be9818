"""What is taken for what by mistake: operators, comparisons, functions and names."""

from __future__ import annotations

import ast

BINARY: dict[type, tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "%"),
    ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
COMPARISONS: dict[type, tuple[str, tuple[str, ...]]] = {
    ast.Lt: ("<", ("<=", ">")),
    ast.LtE: ("<=", ("<", ">=")),
    ast.Gt: (">", (">=", "<")),
    ast.GtE: (">=", (">", "<=")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: ("is not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: ("not in", ("in",)),
}
#: Functions that a slip takes for one another.
FUNCTIONS = {
    **{"minimum": "maximum", "maximum": "minimum", "min": "max", "max": "min", "argmax": "argmin", "argmin": "argmax"},
    **{"sum": "mean", "mean": "sum", "prod": "sum", "any": "all", "all": "any", "std": "var", "var": "std"},
    **{"zeros": "ones", "ones": "zeros", "zeros_like": "ones_like", "ones_like": "zeros_like"},
    **{"logical_and": "logical_or", "logical_or": "logical_and", "floor": "ceil", "ceil": "floor"},
    **{"log": "log1p", "log1p": "log", "exp": "expm1", "expm1": "exp", "sin": "cos", "cos": "sin"},
    **{"square": "abs", "abs": "negative", "tanh": "sigmoid", "sigmoid": "tanh", "softmax": "log_softmax"},
    **{"log_softmax": "softmax", "greater": "greater_equal", "less": "less_equal", "set_at": "add_at"},
}
#: Functions of one argument that a slip leaves out.
LEFT_OUT = {"abs", "exp", "log", "square", "sqrt", "tanh", "softplus", "sigmoid", "logical_not", "negative", "floor"}
LEFT_OUT |= {"softmax", "log_softmax", "flip", "cumulative_sum", "sign", "log1p", "expm1", "stop_gradient"}
#: Where the order of arguments does not matter.
COMMUTATIVE = {"maximum", "minimum", "logical_and", "logical_or", "add", "multiply", "equal", "max", "min"}
#: Names that a slip takes for one another, in either direction.
PAIRS = (
    ("terminated", "truncated"),
    ("observations", "next_observations"),
    ("values", "next_values"),
    ("log_probs", "old_log_probs"),
    ("target_log_probs", "behaviour_log_probs"),
    ("target_policy", "policy"),
    ("target_critic", "critic"),
    ("low", "high"),
    ("first", "last"),
    ("mean", "std"),
    ("loc", "scale"),
    ("chosen", "targets"),
    ("q_values", "target_q_next"),
    ("target_q_next", "online_q_next"),
    ("returns", "advantages"),
    ("rewards", "values"),
)
RENAMED: dict[str, list[str]] = {}
for _one, _other in PAIRS:
    RENAMED.setdefault(_one, []).append(_other)
    RENAMED.setdefault(_other, []).append(_one)
