"""Python's parser, used by one thread at a time.

Until Python 3.11 its trees count their depth per interpreter: two threads that build trees at once
end in SystemError ("AST constructor recursion depth mismatch").
"""

import ast
from threading import Lock

__all__ = ["PARSER", "expression_tree", "literal_value"]

PARSER = Lock()
"""Held by whoever parses, also inside of libraries."""


def expression_tree(text: str) -> ast.expr:
    """The tree of an expression. Raises what `ast.parse` does."""
    with PARSER:
        return ast.parse(text, mode="eval").body


def literal_value(text: str) -> object:
    """The value of a literal. Raises what `ast.literal_eval` does."""
    with PARSER:
        return ast.literal_eval(text)
