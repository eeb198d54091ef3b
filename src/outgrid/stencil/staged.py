"""Stages made in parts, one after the other: the same values, and planes closer behind each other.

The assignments of a stage read the values from before it. Those that read nothing of each other
may as well be made one after the other. Then each part has a shift of its own along the stream, and
a step may trail the one before it by fewer planes: of waves on staggered grids some components read
farther ahead, and others farther behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from outgrid.errors import DefinitionError
from outgrid.stencil import expression as ex
from outgrid.stencil.model import Stage, Staging, Stencil

__all__ = ["independent", "staged"]


def independent(stage: Stage) -> Staging:
    """The fields of a stage in the smallest parts that read nothing of each other.

    One part where there are reductions: they read the values from before the whole stage.
    """
    if stage.reductions:
        return (stage.updated,)
    parts: list[set[str]] = []
    for made in stage.assignments:
        read = {access.field for access in ex.accesses(made.expression)}
        linked = {made.field, *read.intersection(stage.updated)}
        apart = [part for part in parts if part.isdisjoint(linked)]
        parts = [*apart, linked.union(*(part for part in parts if part not in apart))]
    return tuple(tuple(name for name in stage.updated if name in part) for part in parts)


def staged(stencil: Stencil, staging: Iterable[Sequence[str]]) -> Stencil:
    """The stencil whose stages are made in these parts.

    Raises DefinitionError where they are not the parts of its stages in order, or read of each
    other.
    """
    left = [tuple(names) for names in staging]
    stages: list[Stage] = []
    for stage in stencil.stages:
        parts = {*independent(stage)}
        while parts:
            names = left.pop(0) if left else ()
            taken = {part for part in parts if {*part} <= {*names}}
            if not taken or {*names} != {name for part in taken for name in part}:
                raise DefinitionError(
                    f"the stages of {stencil.name} cannot be made in parts that begin with those "
                    f"that update {', '.join(names) or 'nothing'}"
                )
            made = tuple(one for one in stage.assignments if one.field in names)
            stages.append(replace(stage, assignments=made))
            parts -= taken
    if left:
        raise DefinitionError(f"{stencil.name} has no stage that updates {', '.join(left[0])}")
    fields = tuple(stage.updated for stage in stages)
    return replace(stencil, stages=tuple(stages), staged=fields)
