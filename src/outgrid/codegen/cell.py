"""Statements that compute the cells of one thread, whatever they read them from."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

from outgrid.codegen.names import Names
from outgrid.codegen.spelling import SPELLING
from outgrid.stencil.expression import Access, Constant, Expression, Operation, Profile, nodes
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
    for node in nodes(*expressions):
        if node in values:
            continue
        if node in names.uniform:
            values[node] = f"u.{names.uniform[node]}"
        elif isinstance(node, Constant):
            values[node] = names.scalar(node)
        elif isinstance(node, Profile):
            axis = ("z", *AXES[4 - names.stencil.ndim :])[node.axis]
            values[node] = f"s.profiles[{names.profiles.index(node.name)}][{place[axis]}]"
        elif isinstance(node, Access):
            found = yield from read(node)
            values[node] = f"{prefix}{len(values)}"
            yield f"const {names.real} {values[node]} = {found};"
        elif isinstance(node, Operation):
            operands = [values[operand] for operand in node.operands]
            values[node] = f"{prefix}{len(values)}"
            spelled = SPELLING[node.name].format(*operands)
            yield f"const {names.type(node)} {values[node]} = {spelled};"
    return [values[expression] for expression in expressions]
