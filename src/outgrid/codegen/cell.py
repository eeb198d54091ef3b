"""Statements that compute the cells of one thread, whatever they read them from."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

from outgrid.codegen.names import Names
from outgrid.codegen.walk import walk
from outgrid.stencil.expression import Access, Constant, Expression, Profile, nodes
from outgrid.stencil.symbol import AXES

__all__ = ["statements"]

PLACE = {axis: axis for axis in AXES}


def statements(
    names: Names,
    expressions: Sequence[Expression],
    read: Callable[[Access], Generator[str, None, str]],
    values: dict[Expression, str],
    prefix: str = "v",
    place: Mapping[str, str] = PLACE,
) -> Generator[str, None, list[str]]:
    """Statements that compute trees in the cell at ``place``, and the names of what they are.

    ``read`` says what an access is, after statements of its own. ``values`` are there already, and
    get what is made; their names begin with ``prefix``.
    """

    def leaf(node: Expression) -> str | None:
        if node in names.uniform:
            return f"u.{names.uniform[node]}"
        if isinstance(node, Constant):
            return names.scalar(node)
        if isinstance(node, Profile):
            axis = ("z", *AXES[4 - names.stencil.ndim :])[node.axis]
            return f"s.profiles[{names.profiles.index(node.name)}][{place[axis]}]"
        return None

    yield from walk(nodes(*expressions), values, leaf, read, names.type, prefix)
    return [values[expression] for expression in expressions]
