"""Statements that compute trees, each value once, whatever it is a value of."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable

from outgrid.codegen.spelling import SPELLING
from outgrid.stencil.expression import Access, Expression, Operation

__all__ = ["walk"]


def walk(
    order: Iterable[Expression],
    values: dict[Expression, str],
    leaf: Callable[[Expression], str | None],
    read: Callable[[Access], Generator[str, None, str]],
    type_of: Callable[[Expression], str],
    prefix: str = "v",
) -> Generator[str, None, None]:
    """A statement for each node of ``order``, operands first, that ``values`` does not name yet.

    ``leaf`` spells what needs no statement, ``read`` what an access is, after statements of its
    own. ``values`` get what is made; their names begin with ``prefix``.
    """
    for node in order:
        if node in values:
            continue
        spelled = leaf(node)
        if spelled is not None:
            values[node] = spelled
            continue
        if isinstance(node, Access):
            spelled = yield from read(node)
        else:
            assert isinstance(node, Operation), node
            spelled = SPELLING[node.name].format(*(values[operand] for operand in node.operands))
        values[node] = f"{prefix}{len(values)}"
        yield f"const {type_of(node)} {values[node]} = {spelled};"
