"""The fixed layers of a field: cells beside the interior that no update writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from outgrid.stencil.boundary import STORED
from outgrid.stencil.problem import Problem
from outgrid.stencil.symbol import AXES

__all__ = ["Layer", "fixed_layers"]

Layer: TypeAlias = tuple[int, int, int]
"""An axis, and the first index along it and the one behind the last."""


def fixed_layers(problem: Problem, field: str) -> dict[Layer, float | None]:
    """Those of a field, with the value that the boundary gives all cells of one, if it does."""

    def found() -> Iterator[tuple[Layer, float | None]]:
        for axis, inside in enumerate(problem.interior):
            extent, rules = problem.shape[axis], problem.edges.rule(field, axis)
            for side, rule, ends in (
                ("-", rules[0], (0, inside.start)),
                ("+", rules[1], (inside.stop, extent)),
            ):
                if rule == STORED and ends[0] < ends[1]:
                    face = problem.boundary.face(field, AXES[axis - problem.ndim], side)
                    yield (axis, *ends), face.number

    return dict(found())
