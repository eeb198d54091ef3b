"""Grids of one axis, x, as the one row of a grid of two.

A stencil on a line is traced with one offset, and what it makes is moved to the row. So is all that
a problem says of cells; beyond this module there are grids of two and three axes.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from outgrid.errors import DefinitionError
from outgrid.formats.arrays import computed, is_array
from outgrid.stencil import expression as ex
from outgrid.stencil.boundary import SIDES, Boundary
from outgrid.stencil.expression import Access, Expression, Profile
from outgrid.stencil.initial import InitialExpression
from outgrid.stencil.model import Stage

__all__ = ["ROW", "bounded_row", "check_line", "in_a_row", "row_of"]

ROW = 1
"""The extent of the axis that a line lacks."""


def in_a_row(stages: Iterable[Stage]) -> tuple[Stage, ...]:
    """The stages of a stencil on a line, for a grid of two axes."""
    return tuple(_moved(stage) for stage in stages)


def _moved(stage: Stage) -> Stage:
    moved: dict[Expression, Expression] = {}
    for node in ex.nodes(*stage.expressions):
        if isinstance(node, Access):
            moved[node] = Access(node.field, node.level, (0, *node.offset))
        elif isinstance(node, Profile):
            moved[node] = Profile(node.name, 1)
    values = iter(ex.substitute_all(stage.expressions, moved))
    return Stage(
        tuple(replace(made, expression=next(values)) for made in stage.assignments),
        tuple(replace(made, expression=next(values)) for made in stage.reductions),
    )


def bounded_row(boundary: Boundary) -> Boundary:
    """The boundary of a line as that of a row, beside which nothing is read."""
    beside = tuple((f"y{side}", Boundary("dirichlet")) for side in SIDES)
    given = tuple(face for face in boundary.faces if face not in beside)
    for name, _ in given:
        if not name.startswith("x"):
            raise DefinitionError(f"the boundary names the face {name!r} of a grid of one axis, x")
    return dataclasses.replace(
        boundary,
        faces=(*given, *beside),
        fields=tuple((name, bounded_row(own)) for name, own in boundary.fields),
    )


def row_of(initial: Mapping[str, Any], extent: int) -> dict[str, Any]:
    """Initial values on a line as those of the row: its arrays have one axis more."""
    return {name: _row(given, extent) for name, given in initial.items()}


def _row(given: Any, extent: int) -> Any:
    if is_array(given) and tuple(given.shape) == (extent,):
        return computed(given[:]).reshape(ROW, extent)
    return given


def check_line(initial: Mapping[str, Any]) -> None:
    """Raise DefinitionError where a formula uses what a line has not."""
    for name, value in initial.items():
        if isinstance(value, InitialExpression) and value.names & {"z", "y", "nz", "ny"}:
            raise DefinitionError(
                f"{value} of {name!r} uses another axis than x; a grid of one axis has x only"
            )
