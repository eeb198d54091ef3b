"""Temporaries that are computed again where they are read, in place of being kept in the window.

A temporary beyond a face follows its boundary, and its expression at an offset reads fields beyond
the face: the two differ there. So near faces a temporary that is computed again is made and read as
one that is kept, and in all other cells its expression stands in the place of what reads it: the
same operations on the same numbers. Which of them these are (`Stencil.recomputed`) changes the
order of updates and the kernel, and no byte of a result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from outgrid.stencil import expression as ex
from outgrid.stencil.boundary import Edges
from outgrid.stencil.expression import (
    Access,
    Constant,
    Expression,
    Operation,
    Profile,
    the_one,
)
from outgrid.stencil.model import Assignment, Stencil
from outgrid.stencil.region import regional

if TYPE_CHECKING:
    from outgrid.stencil.problem import Problem

__all__ = [
    "INSIDE",
    "far_flops",
    "far_from_faces",
    "far_reach",
    "far_share",
    "inlined",
    "involved",
    "read_by",
    "recomputable",
    "recomputing",
]

Offsets = frozenset[tuple[int, ...]]
Box = tuple[range, ...]
FARTHEST = 200  # cells along a row from which a cell may follow without what is kept
MOST_MADE = 32  # times that a cell may need temporaries
INSIDE = "inside a row"
"""A profile along rows that generated code alone has: 1 in cells that are updated, else 0.

No profile of a stencil has such a name, with blanks in it.
"""


def recomputing(stencil: Stencil, names: Iterable[str]) -> Stencil:
    """The stencil that computes temporaries of these names again."""
    wanted = frozenset(names)
    made = (made.field for made in stencil.assignments)
    return replace(stencil, recomputed=tuple(name for name in made if name in wanted))


def involved(stencil: Stencil, stage: int) -> bool:
    """Whether a stage makes or reads a temporary that is computed again."""
    made = {assignment.field for assignment in stencil.stages[stage].assignments}
    read = _fields_read(stencil.stages[stage].expressions)
    return not stencil.recomputed_set.isdisjoint(made | read)


def inlined(
    assignments: Sequence[Assignment], stages: Iterable[Sequence[Assignment]], names: frozenset[str]
) -> tuple[Assignment, ...]:
    """What a stage of `assignments` does far from faces, without the temporaries of these `names`.

    ``stages`` are all stages, in the form that `assignments` have. Nothing is folded, and sums that
    are fused by now stay so. Beyond the end of a row, a profile, `INSIDE`, says where, stands the
    temporary itself, for generated code to give it: it is an image, or 0.
    """
    makers: dict[str, Expression] = {}
    for stage in stages:
        for made in stage:
            if made.field in names:
                makers[made.field] = _without(made.expression, makers)
    return tuple(
        Assignment(made.field, _without(made.expression, makers))
        for made in assignments
        if made.field not in names
    )


def read_by(stencil: Stencil, stage: int) -> tuple[Access, ...]:
    """What a stage reads, near faces and far from them."""
    near = stencil.stages[stage].expressions
    found = [access for value in near for access in ex.accesses(value)]
    if involved(stencil, stage):
        own = stencil.stages[stage].assignments
        stages = [one.assignments for one in stencil.stages]
        for made in inlined(own, stages, stencil.recomputed_set):
            read = ex.accesses(made.expression)
            found += [one for one in read if one.field not in stencil.recomputed_set]
    return tuple(dict.fromkeys(found))


@lru_cache(maxsize=64)  # each candidate of a plan asks for that of the same stencil
def far_flops(stencil: Stencil) -> int:
    """Operations per cell and step far from faces; see `Stencil.flops`."""
    stages = [stage.assignments for stage in stencil.stages]
    far = (inlined(stage, stages, stencil.recomputed_set) for stage in stages)
    return sum(ex.flops(*(made.expression for made in stage)) for stage in far)


def _places(stencil: Stencil, stage: int) -> Offsets:
    """The offsets of all that the value of a cell follows from far from faces.

    Those of temporaries that are computed again on the way are among them.
    """
    makers = {made.field: made.expression for made in stencil.assignments}
    known: dict[Expression, Offsets] = {}

    def of(expression: Expression) -> Offsets:
        if expression not in known:
            found: set[tuple[int, ...]] = set()
            for access in ex.accesses(expression):
                found.add(access.offset)
                if access.field in stencil.recomputed_set:
                    for beyond in of(makers[access.field]):
                        found.add(_sum(access.offset, beyond))
            known[expression] = frozenset(found)
        return known[expression]

    values = (
        made.expression
        for made in stencil.stages[stage].assignments
        if made.field not in stencil.recomputed_set
    )
    none: Offsets = frozenset()
    return none.union(*map(of, values))


def far_reach(stencil: Stencil) -> int:
    """How many cells along a row a cell follows from far from faces, at the most."""
    stages = (_places(stencil, stage) for stage in range(len(stencil.stages)))
    return max((abs(offset[-1]) for offsets in stages for offset in offsets), default=0)


def far_from_faces(
    stencil: Stencil, edges: Edges, shape: tuple[int, ...]
) -> tuple[Box | None, ...]:
    """For each stage the cells in which it computes temporaries again; None where it has no part.

    In other cells, near faces, it makes or reads them as if they were kept. Where one is read so,
    it is made so. Rows are taken whole. None at all if the grid is too small.
    """
    far: list[Box | None] = [None] * len(stencil.stages)
    for number in reversed(range(len(far))):
        if not involved(stencil, number):
            continue
        boxes: list[list[range]] = []
        if not _fields_read(stencil.stages[number].expressions).isdisjoint(stencil.recomputed_set):
            boxes.append(_within(edges, shape, _places(stencil, number)))
        made = {one.field for one in stencil.stages[number].assignments} & stencil.recomputed_set
        for later in range(number + 1, len(far)):
            read = [
                access.offset
                for value in stencil.stages[later].expressions
                for access in ex.accesses(value)
                if access.field in made
            ]
            box = far[later]
            if read and box is None:
                return (None,) * len(far)
            if read and box is not None:
                boxes.append(_narrowed(box, shape, read))
        box = tuple(
            range(max(part.start for part in parts), min(part.stop for part in parts))
            for parts in zip(*boxes, strict=True)
        )
        far[number] = box
        if not all(box):
            return (None,) * len(far)
    return tuple(far)


def far_share(problem: Problem) -> float:
    """The share of cells in which a problem computes temporaries again, in the stage of least."""
    boxes = far_from_faces(problem.stencil, problem.edges, problem.shape)
    shares = (math.prod(map(len, box)) / problem.cells for box in boxes if box)
    return min(shares, default=0.0)


def _within(edges: Edges, shape: tuple[int, ...], offsets: Offsets) -> list[range]:
    """The cells from which nothing at these offsets lies beyond the cells that are updated.

    Round a circle, and in a row, that is all of them, if these are enough.
    """
    box: list[range] = []
    for axis, (extent, (low, high)) in enumerate(zip(shape, edges.layers, strict=True)):
        along = [offset[axis] for offset in offsets]
        reach = max(map(abs, along), default=0)
        if edges.periodic(axis) or axis + 1 == len(shape):
            box.append(range(extent if extent - low - high >= 2 * reach else 0))
        else:
            box.append(range(low + reach, extent - high - reach))
    return box


def _narrowed(box: Box, shape: tuple[int, ...], offsets: list[tuple[int, ...]]) -> list[range]:
    """The cells that are read at none of these offsets from outside of a box."""
    narrowed: list[range] = []
    for axis, (part, extent) in enumerate(zip(box, shape, strict=True)):
        reach = max(abs(offset[axis]) for offset in offsets)
        whole = part == range(extent)
        narrowed.append(part if whole else range(part.start + reach, part.stop - reach))
    return narrowed


def recomputable(problem: Problem) -> dict[str, str]:
    """All temporaries, and why each cannot be computed again; nothing where it can be.

    Of a chain of them the last ones are: what a cell takes grows with the length of the chain as
    fast as powers do.
    """
    stencil, able = problem.stencil, list[str]()
    why: dict[str, str] = {}
    for field in reversed([one for one in stencil.evolving if one.temporary]):
        why[field.name] = _kept_because(problem, field.name)
        if not why[field.name] and _made(stencil, {field.name, *able}) > MOST_MADE:
            why[field.name] = "it would be computed too often"
        if not why[field.name]:
            able.append(field.name)
    return {field.name: why[field.name] for field in stencil.evolving if field.temporary}


def _made(stencil: Stencil, names: set[str]) -> int:
    """How often temporaries are made for a cell, if all are that something reads, in some stage."""
    makers = {made.field: made.expression for made in stencil.assignments}
    known: dict[str, int] = {}

    def of(values: Iterable[Expression]) -> int:
        read = [a.field for value in values for a in ex.accesses(value) if a.field in names]
        for name in {*read} - known.keys():
            known[name] = 1 + of([makers[name]])
        return sum(known[name] for name in read)

    return max(of(stage.expressions) for stage in stencil.stages)


def _kept_because(problem: Problem, name: str) -> str:
    """Why a temporary cannot be computed again for itself; nothing where it can."""
    stencil = problem.stencil
    maker = stencil.writer(name)
    assert maker is not None
    value = next(made.expression for made in stencil.assignments if made.field == name)
    if problem.regions or regional(stencil):
        return "some fields exist in regions"
    if name in problem.dtypes:
        return f"it is rounded to {problem.dtypes[name]}"
    if any(name in _fields_read([one.expression]) for one in stencil.reductions):
        return "a reduction reads it"
    if any(point.field == name for point in (*problem.sources, *problem.receivers)):
        return "sources or receivers are at it"
    if not ex.accesses(value):
        return "it reads no field"
    if stencil.radius[-1] * len(stencil.stages) > FARTHEST:
        return "it is read too far along rows"
    if any(isinstance(node, Operation) and node.name == "random" for node in ex.nodes(value)):
        return "it holds random numbers"
    read = [access for access in stencil.accesses if stencil.field(access.field).temporary]
    axes = {axis for access in read for axis, offset in enumerate(access.offset) if offset}
    if any(isinstance(node, Profile) and node.axis in axes for node in ex.nodes(value)):
        return "it has a profile along an axis along which temporaries are read at an offset"
    last = _last_reader(stencil, name)
    for field in _fields_read([value]):
        writer = stencil.writer(field)
        if writer is not None and maker <= writer < last:
            return f"{field} is updated before it is read"
    return ""


def _last_reader(stencil: Stencil, name: str) -> int:
    """The last stage in which a temporary may be computed, by itself or for another one."""
    last = 0
    for number, stage in enumerate(stencil.stages):
        for made in stage.assignments:
            if name in _fields_read([made.expression]):
                through = stencil.field(made.field).temporary
                last = max(last, number, _last_reader(stencil, made.field) if through else 0)
    return last


def _without(expression: Expression, makers: Mapping[str, Expression]) -> Expression:
    """The tree with temporaries replaced by what makes them, so far away as they are read."""
    moved: dict[Expression, Expression] = {}
    for node in _leaves(expression):
        if isinstance(node, Access) and node.field in makers:
            value = _moved(makers[node.field], node.offset)
            if node.offset[-1]:
                inside = Profile(INSIDE, len(node.offset) - 1, node.offset[-1])
                value = _node("where", _node("ne", inside, Constant(0.0)), value, node)
            moved[node] = value
    return _replaced(expression, moved)


def _moved(expression: Expression, offset: tuple[int, ...]) -> Expression:
    moved: dict[Expression, Expression] = {}
    for node in _leaves(expression):
        if isinstance(node, Access):
            moved[node] = replace(node, offset=_sum(node.offset, offset))
        elif isinstance(node, Profile) and node.name == INSIDE:
            moved[node] = replace(node, offset=node.offset + offset[-1])
    return _replaced(expression, moved) if any(offset) else expression


def _replaced(expression: Expression, leaves: Mapping[Expression, Expression]) -> Expression:
    """The tree with other leaves, and otherwise as it is: nothing is folded."""
    done: dict[Expression, Expression] = {}
    for node in ex.nodes(expression):
        if isinstance(node, Operation):
            done[node] = _node(node.name, *(done[operand] for operand in node.operands))
        else:
            done[node] = leaves.get(node, node)
    return done[expression]


def _node(name: str, *operands: Expression) -> Operation:
    """An operation as it is: nothing is folded."""
    return the_one(Operation(name, operands))


def _leaves(expression: Expression) -> Iterator[Expression]:
    return (node for node in ex.nodes(expression) if not isinstance(node, Operation))


def _fields_read(expressions: Iterable[Expression]) -> set[str]:
    return {access.field for value in expressions for access in ex.accesses(value)}


def _sum(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))
