"""How far a step trails the one before it: the skew of a stencil along the streamed axis.

Stage j of step t works on plane ``Z = F - (S*t + s_j)`` while the front stands at F. Two families
of constraints bind S and the stage shifts s_j:

* flow: stage i writes field g and stage j reads it at version ``t + dv`` and offsets up to
  ``high``, so the plane ``Z + high`` must already hold that version:
  ``s_j - s_i >= S*dv + high``;
* anti: stage j writes version t of field g into one of its m rings and stage k still reads version
  ``t + dv`` at offsets down to ``low``, so the plane that is overwritten must be out of use:
  ``s_j - s_k >= -low - S*(m + dv)``.

S is the smallest integer for which both can be met; then the constraint graph has no cycle of
positive length.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from outgrid.errors import DefinitionError

MAX_SKEW = 1024


class Reading(msgspec.Struct, frozen=True):
    """Stage ``reader`` reads ``field`` at version t + ``version`` on planes z+low..z+high."""

    reader: int
    field: str
    version: int
    low: int
    high: int


class Writing(msgspec.Struct, frozen=True):
    """Stage ``writer`` writes version t of ``field``, kept in ``rings`` rings."""

    writer: int
    field: str
    rings: int


class Slope(msgspec.Struct, frozen=True):
    """Edges of tiles that move ``per_step`` cells per step, downwards or upwards.

    Cell y of stage j of step t depends on cells with no larger ``y + per_step*t + falls[j]``, and
    with no larger ``-y + per_step*t + rises[j]``: both say on which side of an edge a cell lies.
    Edges stay on multiples of ``unit`` cells.
    """

    unit: int
    per_step: int
    falls: tuple[int, ...]
    rises: tuple[int, ...]


class Skew(msgspec.Struct, frozen=True):
    """``per_step`` planes from one step to the next; ``shifts[j]`` planes for stage j."""

    per_step: int
    shifts: tuple[int, ...]


UPRIGHT = Skew(0, ())
"""That of what does not move."""


class Halo(msgspec.Struct, frozen=True):
    """What a part of a grid needs around it to make some steps alone.

    ``per_step`` planes for each step beyond every end at which the grid goes on. Stage j of a step
    has to cover ``below[j]`` and ``above[j]`` planes more than the last one.
    """

    per_step: int
    below: tuple[int, ...]
    above: tuple[int, ...]

    @property
    def margin(self) -> int:
        """Planes needed beside those of the steps."""
        return max((*self.below, *self.above, 0))

    def cells(self, depth: int) -> int:
        """Planes needed beyond an end at which the grid goes on, for a sweep of ``depth`` steps."""
        return self.per_step * depth + self.margin


def solve(
    stages: int, readings: tuple[Reading, ...], writings: tuple[Writing, ...], unit: int = 1
) -> Skew:
    """The smallest skew, in units of ``unit`` planes, that satisfies every constraint."""
    whole = _in_units(readings, unit)
    for per_step in range(MAX_SKEW + 1):
        shifts = _shifts(stages, _edges(per_step, whole, writings))
        if shifts is not None:
            return Skew(unit * per_step, tuple(unit * shift for shift in shifts))
    raise DefinitionError(
        f"no skew up to {MAX_SKEW} planes per step orders the {stages} stages of this stencil; "
        "its stages depend on each other in a circle within one step"
    )


def solve_both_ways(
    stages: int, readings: tuple[Reading, ...], writings: tuple[Writing, ...], unit: int = 1
) -> Slope:
    """The smallest slope, at least ``unit``, of edges that may move either way.

    Edges stay on multiples of ``unit`` cells: offsets are counted in units, rounded outwards.
    """
    whole = _in_units(readings, unit)
    mirrored = tuple(replace(read, low=-read.high, high=-read.low) for read in whole)
    for per_step in range(1, MAX_SKEW + 1):
        falls = _shifts(stages, _edges(per_step, whole, writings))
        rises = _shifts(stages, _edges(per_step, mirrored, writings))
        if falls is not None and rises is not None:
            shifts = (tuple(unit * n for n in units) for units in (falls, rises))
            return Slope(unit, unit * per_step, *shifts)
    raise DefinitionError(f"no slope up to {MAX_SKEW} cells per step orders the {stages} stages")


def _in_units(readings: tuple[Reading, ...], unit: int) -> tuple[Reading, ...]:
    """Offsets in units of so many cells, rounded outwards."""
    return tuple(
        replace(read, low=read.low // unit, high=-(-read.high // unit)) for read in readings
    )


def solve_halo(
    stages: int,
    readings: tuple[Reading, ...],
    writings: tuple[Writing, ...],
    least: int,
    unit: int = 1,
) -> Halo:
    """The smallest halo of at least ``least`` planes per step, in whole units of ``unit``.

    Only what is read counts: level t of a part of the grid needs its own level t - 1 on so many
    planes more, whatever is overwritten in between.
    """
    whole = _in_units(readings, unit)
    mirrored = tuple(replace(read, low=-read.high, high=-read.low) for read in whole)
    for per_step in range(-(-least // unit), MAX_SKEW + 1):
        below = _shifts(stages, _flows(per_step, mirrored, writings))
        above = _shifts(stages, _flows(per_step, whole, writings))
        if below is not None and above is not None:
            low, high = max(below), max(above)
            return Halo(
                unit * per_step,
                tuple(unit * (low - shift) for shift in below),
                tuple(unit * (high - shift) for shift in above),
            )
    raise DefinitionError(
        f"no halo up to {MAX_SKEW} planes per step is enough for the {stages} stages"
    )


def _edges(
    per_step: int, readings: tuple[Reading, ...], writings: tuple[Writing, ...]
) -> list[tuple[int, int, int]]:
    """Constraints ``s_to - s_from >= length`` as (from, to, length)."""
    antis = [
        (read.reader, write.writer, -read.low - per_step * (write.rings + read.version))
        for read in readings
        for write in writings
        if read.field == write.field
    ]
    return [*_flows(per_step, readings, writings), *antis]


def _flows(
    per_step: int, readings: tuple[Reading, ...], writings: tuple[Writing, ...]
) -> list[tuple[int, int, int]]:
    """The constraints of what is read; see `_edges`."""
    return [
        (write.writer, read.reader, per_step * read.version + read.high)
        for read in readings
        for write in writings
        if read.field == write.field
    ]


def _shifts(stages: int, edges: list[tuple[int, int, int]]) -> tuple[int, ...] | None:
    """Longest paths from zero, or None where a cycle of positive length exists."""
    shifts = [0] * stages
    for _ in range(stages + 1):
        changed = False
        for source, target, length in edges:
            if shifts[source] + length > shifts[target]:
                if source == target:
                    return None
                shifts[target] = shifts[source] + length
                changed = True
        if not changed:
            return tuple(shifts)
    return None
