"""How operations and types of cells are spelled in C++; templates/ defines what is not built in."""

from __future__ import annotations

SPELLING = {
    "add": "({0} + {1})",
    "sub": "({0} - {1})",
    "mul": "({0} * {1})",
    "div": "({0} / {1})",
    "neg": "(-{0})",
    "fma": "fma({0}, {1}, {2})",
    "min": "least({0}, {1})",
    "max": "most({0}, {1})",
    "sqrt": "root({0})",
    "abs": "magnitude({0})",
    "round": "nearest({0})",
    "exp": "exp_of({0})",
    "log": "log_of({0})",
    "sin": "sin_of({0})",
    "cos": "cos_of({0})",
    "tanh": "tanh_of({0})",
    "pow": "pow_of({0}, {1})",
    "random": "random_of({0}, {1}, {2}, {3}, {4}, {5})",
    "lt": "({0} < {1})",
    "le": "({0} <= {1})",
    "eq": "({0} == {1})",
    "ne": "({0} != {1})",
    "and": "({0} & {1})",
    "or": "({0} | {1})",
    "not": "negated({0})",
    "where": "choose({0}, {1}, {2})",
}

ELEMENTARY = frozenset({"exp", "log", "sin", "cos", "tanh", "pow"})
"""Operations that templates/elementary.hpp defines."""

CELLS = {
    "float32": "float",
    "float64": "double",
    "float16": "Half",
    "bfloat16": "UpperHalf",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "uint16": "uint16_t",
    "int32": "int32_t",
}
