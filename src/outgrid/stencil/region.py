"""Parts of the grid in which fields exist: boxes, and the cells next to faces.

Outside of its region a field is +0 by definition: its initial values are, and what a step gives it
is ``where(inside, value, 0)``. The condition is made of profiles, one number per index of an axis,
so the reference, every kernel and every scheme evaluate the same expression. Who stores planes or
updates rows may leave out what lies outside, since it is known.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias, cast

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from outgrid.errors import DefinitionError
from outgrid.stencil import expression as ex
from outgrid.stencil.boundary import STORED, Edges
from outgrid.stencil.expression import Constant, Expression, Profile, operation
from outgrid.stencil.given import checked_count, is_whole, value_of
from outgrid.stencil.model import Assignment, Stencil
from outgrid.stencil.symbol import AXES
from outgrid.units import suggest

__all__ = [
    "Box",
    "Cells",
    "Region",
    "Shell",
    "blocks",
    "bounded",
    "clear_outside",
    "kinds_of_regions",
    "numbered",
    "plain",
    "regional",
    "regions_of",
]

Cells: TypeAlias = tuple[range, ...]
"""A box of cells: a range of indices for each axis, the slowest first."""
Region: TypeAlias = tuple[Cells, ...]
"""The cells of one box or of several, which may overlap."""

MOST_KINDS = 3  # of fields, by the axes that cut their regions, that kernels tell apart
KIND_BITS = 8  # for them in the tables of kernels, `kKinds` of regions.hpp; above is one per field
MOST_BOXES = 64
MOST_NUMBERED = 1 << 26  # cells of an axis; a profile of numbers takes 40 bytes for each
_SIDES = {"both": (True, True), "low": (True, False), "high": (False, True)}


@dataclass(frozen=True, slots=True)
class Box:
    """The cells whose indices are in a range along each axis: `Box(y=(10, 20))`, end excluded.

    An axis that is left out is taken whole. Slices work as well; negative indices count from the
    end, as in slices.
    """

    z: Any = None
    y: Any = None
    x: Any = None

    def cells(self, axes: str, shape: tuple[int, ...]) -> Region:
        """The box in a grid of `shape`, whose axes are called `axes`. Raises DefinitionError."""
        for axis in AXES:
            if axis not in axes and getattr(self, axis) is not None:
                raise DefinitionError(f"{self} has a range along {axis}, and the grid has {axes}")
        ranges = tuple(
            _range(axis, getattr(self, axis), extent)
            for axis, extent in zip(axes, shape, strict=True)
        )
        if not all(ranges):
            raise DefinitionError(f"{self} contains no cell of a grid of {shape}")
        return (ranges,)


@dataclass(frozen=True, slots=True)
class Shell:
    """The cells at most `width` from a face: those of absorbing layers.

    `axes` are those whose faces count, as in "x" or "zy"; all of the grid if left out. `sides` are
    "both", "low" or "high". Cells are counted from the face, fixed layers included.
    """

    width: int
    axes: str | None = None
    sides: str = "both"

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", checked_count("shell", "width", self.width))
        if self.sides not in _SIDES:
            raise DefinitionError(
                "the sides of a shell must be known, not "
                f"{self.sides!r}{suggest(self.sides, _SIDES)}"
            )
        for axis in self.axes or ():
            if axis not in AXES:
                raise DefinitionError(
                    f"the axis of a shell must be known, not {axis!r}{suggest(axis, AXES)}"
                )

    def cells(self, axes: str, shape: tuple[int, ...]) -> Region:
        """The boxes of the shell in a grid of `shape`. Raises DefinitionError."""
        whole = tuple(map(range, shape))
        found: list[Cells] = []
        for axis in self.axes or [name for name, n in zip(axes, shape, strict=True) if n > 1]:
            if axis not in axes:
                raise DefinitionError(f"{self} is at faces of {axis}, and the grid has {axes}")
            number = axes.index(axis)
            extent = shape[number]
            if self.width * sum(_SIDES[self.sides]) >= extent:
                return (whole,)
            ends = (range(self.width), range(extent - self.width, extent))
            for end, wanted in zip(ends, _SIDES[self.sides], strict=True):
                if wanted:
                    found.append((*whole[:number], end, *whole[number + 1 :]))
        return tuple(found)


def _range(axis: str, given: object, extent: int) -> range:
    """The indices of an axis that a range, as users write it, means."""
    if given is None:
        return range(extent)
    part: Any = given
    if isinstance(given, tuple | list) and len(cast("list[Any]", given)) == 2:
        part = slice(*cast("tuple[Any, Any]", given))
    if not isinstance(part, slice):
        raise DefinitionError(f"{axis} of a box must be a range, such as (10, 20), not {given!r}")
    ends = cast("Any", part).start, cast("Any", part).stop
    whole = all(end is None or is_whole(end) for end in ends)
    if not whole or cast("Any", part).step not in (None, 1):
        raise DefinitionError(
            f"{axis} of a box must be a range of whole numbers without a step, not {given!r}"
        )
    return range(*slice(*ends).indices(extent))


def blocks(mask: Any, beside: int = 0, most: int = 16) -> list[Box]:
    """Boxes that hold all cells in which `mask`, an array of the grid's shape, is not 0.

    They are cut where whole planes, rows or columns between have none, into `most` at the most, and
    have `beside` more cells on all sides. Raises DefinitionError for a mask that is 0 everywhere.
    """
    cells = np.asarray(mask) != 0
    if cells.ndim not in (1, 2, 3) or not cells.any():
        raise DefinitionError(
            f"a mask must have 1 to 3 axes and at least one cell that is not 0; this one has shape "
            f"{cells.shape} and {int(np.count_nonzero(cells))} such cells"
        )
    found = [_bounds(cells, tuple(map(range, cells.shape)))]
    for _ in range(most - 1):
        cuts = ((box, _cut(cells, box)) for box in found)
        box, cut = next(((box, cut) for box, cut in cuts if cut is not None), (None, None))
        if box is None or cut is None:
            break
        found.remove(box)
        found += [_bounds(cells, part) for part in cut]
    wider = (
        [
            (max(0, part.start - beside), min(extent, part.stop + beside))
            for part, extent in zip(box, cells.shape, strict=True)
        ]
        for box in found
    )
    return [Box(**dict(zip(AXES[-cells.ndim :], ranges, strict=True))) for ranges in wider]


def _bounds(cells: NDArray[np.bool_], box: Cells) -> Cells:
    """The smallest box that holds the cells of a box."""
    part = cells[tuple(slice(one.start, one.stop) for one in box)]
    places = np.nonzero(part)
    return tuple(
        range(one.start + int(at.min()), one.start + int(at.max()) + 1)
        for one, at in zip(box, places, strict=True)
    )


def _cut(cells: NDArray[np.bool_], box: Cells) -> tuple[Cells, Cells] | None:
    """Two parts of a box that is empty between them, the widest gap first; None if it is not."""
    part = cells[tuple(slice(one.start, one.stop) for one in box)]
    widest, cut = 0, None
    for axis, one in enumerate(box):
        others = tuple(other for other in range(part.ndim) if other != axis)
        filled = np.flatnonzero(part.any(axis=others))
        gaps = np.diff(filled) - 1
        at = int(gaps.argmax()) if len(gaps) else 0
        if len(gaps) and gaps[at] > widest:
            widest = int(gaps[at])
            low = range(one.start, one.start + int(filled[at]) + 1)
            high = range(one.start + int(filled[at + 1]), one.stop)
            cut = (*box[:axis], low, *box[axis + 1 :]), (*box[:axis], high, *box[axis + 1 :])
    return cut


def regions_of(given: object, stencil: Stencil, shape: tuple[int, ...]) -> dict[str, Region]:
    """The regions of fields that do not exist in the whole grid, by name.

    `given` names fields, or vectors and tensors whole, and for each a Box, a Shell, a mapping of
    the arguments of one, or several of these. Raises DefinitionError.
    """
    if not isinstance(given, Mapping):
        raise DefinitionError(
            "regions must be a mapping of fields to regions, such as "
            f'{{"{stencil.fields[-1].name}": outgrid.Shell(10)}}, not {given!r}'
        )
    names = [field.name for field in stencil.fields]
    axes = "".join(AXES[-len(shape) :])
    regions: dict[str, Region] = {}
    for name, region in stencil.wholes_first(cast("Mapping[str, Any]", given).items()):
        parts = stencil.components(name)
        if not parts:
            raise DefinitionError(
                f"stencil {stencil.name!r} has no field {name!r}, which regions "
                f"names{suggest(name, names)}"
            )
        cells = tuple(dict.fromkeys(_cells(name, region, axes, shape)))
        if len(cells) > MOST_BOXES:
            raise DefinitionError(
                f"the region of {name!r} must have at most {MOST_BOXES} boxes, not {len(cells)}"
            )
        regions |= dict.fromkeys(parts, cells)
    everywhere = tuple(map(range, shape))
    return {n: regions[n] for n in names if everywhere not in regions.get(n, (everywhere,))}


def _cells(name: str, given: object, axes: str, shape: tuple[int, ...]) -> Iterator[Cells]:
    """The boxes that a region, as users write it, means."""
    if isinstance(given, Mapping):
        given = value_of(Shell if "width" in given else Box, cast("object", given))
    if isinstance(given, Box | Shell):
        yield from given.cells(axes, shape)
        return
    parts = list(cast("Iterable[Any]", given)) if isinstance(given, list | tuple) else []
    if not parts:
        raise DefinitionError(
            f"the region of {name!r} must not be {given!r}; give outgrid.Shell(10), "
            "outgrid.Box(x=(10, 20)), or several of these"
        )
    for part in parts:
        yield from _cells(name, part, axes, shape)


def plain(region: Region) -> list[dict[str, list[int]]]:
    """JSON-able form of a region, which `regions_of` reads."""
    return [
        {axis: [part.start, part.stop] for axis, part in zip(AXES[-len(box) :], box, strict=True)}
        for box in region
    ]


def clear_outside(cells: NDArray[Any], region: Region, begin: tuple[int, ...]) -> None:
    """Set the cells outside of a region to +0, of a part of the grid that begins at `begin`."""
    outside = np.ones(cells.shape, bool)
    for box in region:
        ends = (
            slice(max(0, part.start - first), max(0, part.stop - first))
            for part, first in zip(box, begin, strict=True)
        )
        outside[tuple(ends)] = False
    cells[outside] = 0


def bounded(
    stencil: Stencil,
    regions: Mapping[str, Region],
    shape: tuple[int, ...],
    parameters: Mapping[str, Any],
    vanishing: Container[str] = (),
) -> tuple[Stencil, dict[str, Any]]:
    """The stencil with what it makes outside of regions +0, and its parameters.

    What is so already stays as it is, with the profiles that are among the parameters. The values
    of ``vanishing`` fields are 0 outside by themselves: they become +0 there wherever the stage
    that makes them uses them, so that nothing is left of them where kernels leave these fields out.
    """
    profiles = {
        name: np.asarray(given, np.float64)
        for name, given in parameters.items()
        if name.startswith(ex.WITHIN)
    }
    conditions = {name: _condition(region, shape, profiles) for name, region in regions.items()}
    stages = tuple(
        replace(stage, assignments=_bounded(stage.assignments, conditions, vanishing))
        for stage in stencil.stages
    )
    made = replace(stencil, stages=stages) if stages != stencil.stages else stencil
    used = {profile.name for profile in made.profiles}
    return made, {**parameters, **{name: profiles[name] for name in profiles if name in used}}


def _bounded(
    assignments: tuple[Assignment, ...],
    conditions: Mapping[str, Expression],
    vanishing: Container[str],
) -> tuple[Assignment, ...]:
    """What a stage assigns, with the fields of ``conditions`` +0 where these do not hold."""
    own = {
        made.expression: conditions.get(made.field)
        for made in assignments
        if made.field in vanishing
    }
    everywhere = {value: _inside(value, condition) for value, condition in own.items()}
    values = [made.expression for made in assignments]
    if everywhere:
        values = ex.substitute_all(values, everywhere)
    return tuple(
        Assignment(made.field, _inside(value, conditions.get(made.field)))
        for made, value in zip(assignments, values, strict=True)
    )


def _inside(value: Expression, condition: Expression | None) -> Expression:
    """A value in the cells where a condition holds, and +0 in others."""
    if condition is None or any(node is condition for node in ex.nodes(value)):
        return value
    return operation("where", condition, value, Constant(0.0))


def _condition(
    region: Region, shape: tuple[int, ...], profiles: dict[str, NDArray[np.float64]]
) -> Expression:
    """Whether a cell is in a region, by profiles that are made for it."""
    boxes: list[Expression] = []
    for box in region:
        ends = [
            operation("lt", Constant(0.0), _profile(axis, part, shape, profiles))
            for axis, part in enumerate(box)
            if part != range(shape[axis])
        ]
        boxes.append(reduce(lambda a, b: operation("and", a, b), ends))
    return reduce(lambda a, b: operation("or", a, b), boxes)


def numbered(letter: str, extent: int) -> int:
    """The extent of an axis whose cells get a number each. Raises DefinitionError for a long one.

    The memory that a run may use is not known where a problem is made.
    """
    if extent > MOST_NUMBERED:
        raise DefinitionError(
            f"regions and boundaries with layers or values need a number for each of the {extent} "
            f"cells along {letter}, and at most {MOST_NUMBERED} are kept; shorten the axis, or "
            "leave them out along it"
        )
    return extent


def _profile(
    axis: int, part: range, shape: tuple[int, ...], profiles: dict[str, NDArray[np.float64]]
) -> Profile:
    """The profile that is 1 in a range of an axis and 0 elsewhere.

    Names say nothing of the range: a stencil, and its kernel, are the same for grids of any shape.
    """
    letter = AXES[axis - len(shape)]
    values = np.zeros(numbered(letter, shape[axis]))
    values[part.start : part.stop] = 1
    known = [name for name in profiles if name.startswith(f"{ex.WITHIN}{letter} ")]
    for name in known:
        if np.array_equal(profiles[name], values):
            return Profile(name, axis)
    names = (f"{ex.WITHIN}{letter} {number}" for number in range(1, len(known) + 2))
    name = next(name for name in names if name not in profiles)
    profiles[name] = values
    return Profile(name, axis)


def regional(stencil: Stencil) -> dict[str, Expression]:
    """The fields of a stencil that exist in a region, and by which condition, as it stands there.

    Only those that are updated: coefficients are +0 outside by their values.
    """
    found: dict[str, Expression] = {}
    for made in stencil.assignments:
        node = made.expression
        while isinstance(node, ex.Operation) and node.name in ("min", "max", "round"):
            node = node.operands[0]  # of whole numbers, which are rounded to those that they hold
        if not (isinstance(node, ex.Operation) and node.name == "where"):
            continue
        given = node.operands[0]
        read = [leaf for leaf in ex.nodes(given) if not isinstance(leaf, ex.Operation)]
        if all(
            isinstance(leaf, Constant)
            or (isinstance(leaf, Profile) and leaf.name.startswith(ex.WITHIN))
            for leaf in read
        ) and node.operands[2] == Constant(0.0):
            found[made.field] = given
    return found


def kept_in_columns(stencil: Stencil, edges: Edges) -> frozenset[str]:
    """Fields that exist in some columns only, whose rows may be kept in these columns alone.

    Every update that reads or makes one is told where it is absent, nothing is read in its place
    beyond a face, and no reduction reads it. Whoever lays rows out so does it with all of them.
    """
    ways = [_axes(condition) for condition in regional(stencil).values()]
    plain = stencil.folded is None and not stencil.recomputed_set and len({*ways}) <= MOST_KINDS
    stored = all(rule == (STORED, STORED) for _, rules in edges.rules for rule in rules)
    if stencil.ndim != 3 or not plain or not stored:
        return frozenset()
    names, across = {*regional(stencil)}, frozenset((2,))
    found = {name for name, axes in zip(regional(stencil), ways, strict=True) if axes == across}
    for stage in stencil.stages:
        reads = [node for each in stage.reductions for node in ex.accesses(each.expression)]
        if not any(made.field in names for made in stage.assignments):
            reads += [node for each in stage.assignments for node in ex.accesses(each.expression)]
        found -= {access.field for access in reads}
    return frozenset(found)


def _axes(condition: Expression) -> frozenset[int]:
    """The axes along which a condition cuts the grid."""
    return frozenset(node.axis for node in ex.nodes(condition) if isinstance(node, Profile))


def kinds_of_regions(stencil: Stencil) -> tuple[tuple[str, ...], ...]:
    """The fields that exist in a region only, by the axes along which their regions are cut.

    Fields of one kind come and go together: those of a layer at the faces of one axis. More than
    three kinds count as one.
    """
    kinds: dict[frozenset[int], list[str]] = {}
    for name, condition in regional(stencil).items():
        kinds.setdefault(_axes(condition), []).append(name)
    if len(kinds) > MOST_KINDS:
        return (tuple(regional(stencil)),)
    return tuple(tuple(names) for names in kinds.values())
