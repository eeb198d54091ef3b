"""Subgrids: the planes and rows that each rank of a run owns, and what it holds around them.

A rank makes all steps of a sweep without hearing from its neighbours: along each axis that is cut
it holds ``per_step`` cells for each step of the sweep beyond every end at which the grid goes on,
and the cells that it updates shrink towards those that it owns,

    level t of a sweep of T steps:  [low - per_step*(T - t), high + per_step*(T - t))

so the cells of the halo are computed by both ranks. What others need of the next state is sent
as soon as it is final; a sweep never waits for a message of its own. Neighbours stream their planes
in opposite directions: what one makes first the other needs first, a sweep later, so that every
message has about a sweep to arrive in. Where parts are thinner than a halo, planes come from ranks
farther off as well: one could begin with what another ends with, and the other way round, and all
go upward.

Who sends what follows from one rule for faces, edges and parts thinner than a halo: a rank receives
what it holds and another one owns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise, product
from typing import Any

import msgspec
from msgspec.structs import replace

from outgrid.plan.schedule.interval import ACROSS, AXES, STREAMED, Interval, shrinking
from outgrid.plan.schedule.skew import Halo

NO_HALO = Halo(0, (), ())


class Box(msgspec.Struct, frozen=True):
    """Rows of planes."""

    planes: range
    rows: range

    @classmethod
    def whole(cls, shape: Sequence[int]) -> Box:
        """All of a grid of that shape; in 2-D a plane has one row."""
        return cls(range(shape[0]), range(shape[1] if len(shape) == 3 else 1))

    @property
    def count(self) -> int:
        """Rows of all planes together."""
        return len(self.planes) * len(self.rows)

    @property
    def transposed(self) -> Box:
        """The same cells where rows are taken for planes."""
        return Box(self.rows, self.planes)

    def counted_from(self, plane: int, row: int) -> Box:
        """The same cells, as who begins with that plane and that row counts them."""
        planes, rows = self.planes, self.rows
        return Box(
            range(planes.start - plane, planes.stop - plane, planes.step),
            range(rows.start - row, rows.stop - row, rows.step),
        )

    def within(self, other: Box) -> bool:
        """Whether all of it lies in another box."""
        return (
            other.planes.start <= self.planes.start
            and other.rows.start <= self.rows.start
            and self.planes.stop <= other.planes.stop
            and self.rows.stop <= other.rows.stop
        )

    def holds(self, planes: Any, rows: Any) -> Any:
        """Whether cells lie in it, for arrays of their planes and rows."""
        inside = (planes >= self.planes.start) & (planes < self.planes.stop)
        return inside & (rows >= self.rows.start) & (rows < self.rows.stop)

    def common(self, other: Box) -> Box:
        """What lies in both."""
        return Box(common(self.planes, other.planes), common(self.rows, other.rows))


def common(one: range, other: range) -> range:
    """Cells that are in both."""
    low = max(one.start, other.start)
    return range(low, max(low, min(one.stop, other.stop)))


class Exchanged(msgspec.Struct, frozen=True):
    """What a rank sends to ``peer`` and receives from it between two sweeps.

    Round a ring who receives holds it so many turns on: -1 below its first plane.
    """

    peer: int
    sent: Box
    received: Box
    turn: int = 0


class Subgrid(msgspec.Struct, frozen=True):
    """The part of a grid that ``rank`` owns where axes are cut at ``bounds``.

    These are of planes and of rows; they begin with 0 and end with the extent of their axis. Ranks
    are numbered along the rows first. ``beyond`` says of each axis what a rank holds where the grid
    goes on. Neighbours along the planes stream in ``opposite`` directions, or all of them upward.
    With ``seams`` no rank holds a halo of planes: those with an even number along the planes are
    upright, the others inverted; see `plan.schedule.seam`. In a ``ring`` the first planes follow on
    the last ones; all go upward.
    """

    rank: int
    bounds: tuple[tuple[int, ...], tuple[int, ...]]
    beyond: tuple[Halo, Halo]
    opposite: bool = False
    seams: bool = False
    ring: bool = False

    @classmethod
    def whole(cls, shape: Sequence[int]) -> Subgrid:
        """All of a grid of that shape, of the only rank."""
        grid = Box.whole(shape)
        return cls(0, ((0, len(grid.planes)), (0, len(grid.rows))), (NO_HALO, NO_HALO))

    @property
    def cut(self) -> tuple[int, int]:
        """Into how many parts planes and rows are cut."""
        planes, rows = (len(bounds) - 1 for bounds in self.bounds)
        return planes, rows

    @property
    def ranks(self) -> int:
        """All ranks together."""
        along, across = self.cut
        return along * across

    @property
    def downward(self) -> bool:
        """Whether its planes are streamed from the last one to the first."""
        return self.opposite and self.rank // self.cut[1] % 2 == 1

    @property
    def upright(self) -> bool:
        """Whether its faces at cuts lean inwards, where ranks leave seams."""
        return self.rank // self.cut[1] % 2 == 0

    def beside(self, above: bool) -> int | None:
        """The rank whose planes come after its own in its stream, or before them."""
        after = above != self.downward
        other = self.rank + (self.cut[1] if after else -self.cut[1])
        return other if 0 <= other < self.ranks else None

    def turned(self, depth: int) -> Subgrid:
        """With neighbours in opposite directions, if parts are thick enough for ``depth`` steps."""
        thinnest = min(high - low for low, high in pairwise(self.bounds[STREAMED]))
        enough = thinnest >= self.beyond[STREAMED].cells(depth)
        return replace(self, opposite=(self.seams or enough) and not self.ring)

    def interval(self, axis: int, depth: int) -> Interval:
        """What it covers of an axis in sweeps of ``depth`` steps; seams are not looked at."""
        extent = self.bounds[axis][-1]
        if self.seams and axis == STREAMED:
            return Interval(self.cells(axis), extent)
        ring = self.ring and axis == STREAMED
        return shrinking(self.cells(axis), extent, depth, self.beyond[axis], ring=ring)

    def cells(self, axis: int) -> range:
        """The cells of an axis that it owns."""
        bounds, index = self.bounds[axis], divmod(self.rank, len(self.bounds[ACROSS]) - 1)[axis]
        return range(bounds[index], bounds[index + 1])

    @property
    def owned(self) -> Box:
        """What no other rank owns."""
        return Box(*map(self.cells, AXES))

    @property
    def ends(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The same as [low, high) of planes and of rows."""
        planes, rows = ((cells.start, cells.stop) for cells in map(self.cells, AXES))
        return planes, rows

    def held(self, depth: int) -> Box:
        """What a sweep of ``depth`` steps begins with."""
        return Box(*(self.interval(axis, depth).stored for axis in AXES))

    def _round(self, depth: int) -> Iterator[Exchanged]:
        """The same round a ring."""
        mine, held, extent = self.owned, self.held(depth), self.bounds[STREAMED][-1]
        for turn in (-1, 0, 1):
            for rank in range(self.ranks):
                other = self.of(rank)
                received = held.common(other.owned.counted_from(-turn * extent, 0))
                sent = other.held(depth).counted_from(turn * extent, 0).common(mine)
                if rank != self.rank and (sent.count or received.count):
                    yield Exchanged(rank, sent, received, turn)

    def of(self, rank: int) -> Subgrid:
        """The part of another rank."""
        return replace(self, rank=rank)

    def exchanged(self, depth: int) -> Iterator[Exchanged]:
        """What goes between ranks before a sweep of ``depth`` steps, by their numbers."""
        mine, held = self.owned, self.held(depth)
        if self.ring:
            yield from self._round(depth)
            return
        along, across = _within(self.bounds[0], held.planes), _within(self.bounds[1], held.rows)
        for plane, row in product(along, across):
            rank = plane * self.cut[1] + row
            if rank != self.rank:
                other = self.of(rank)
                exchange = Exchanged(rank, other.held(depth).common(mine), held.common(other.owned))
                if exchange.sent.count or exchange.received.count:
                    yield exchange


def _within(bounds: Sequence[int], cells: range) -> Iterator[int]:
    """The numbers of the intervals that have a part of ``cells``."""
    for index, (low, high) in enumerate(pairwise(bounds)):
        if low < cells.stop and high > cells.start:
            yield index


def balanced_seams(extent: int, parts: int, lean: float, depth: int) -> tuple[int, ...]:
    """Bounds of ``parts`` intervals of planes, upright and inverted ones, with as much to do.

    Faces lean by ``lean`` planes per step, so that of a sweep of ``depth`` steps an upright part
    leaves a triangle at each cut to the inverted one.
    """
    every = extent / parts
    left = min(lean * (depth + 1) / 2, max(0.0, (every - 1) / 2))
    ends = [(part > 0) + (part + 1 < parts) for part in range(parts)]
    shares = [every + (left if part % 2 == 0 else -left) * ends[part] for part in range(parts)]
    return (0, *(int(total + 0.5) for total in accumulate(shares[:-1])), extent)


def balanced(extent: int, parts: int, halo: Halo, depth: int = 1) -> tuple[int, ...]:
    """Bounds of ``parts`` intervals of an axis of ``extent`` cells, with as much to do for all.

    Sweeps have ``depth`` steps. A part at an end of the grid computes one halo less, so it owns
    more.
    """
    redundant = halo.per_step * (depth - 1) / 2
    ends = [(part > 0) + (part + 1 < parts) for part in range(parts)]
    every = (extent + redundant * sum(ends)) / parts
    shares = [every - redundant * cuts for cuts in ends]
    if min(shares) < 1:
        shares = [extent / parts] * parts
    inside = [int(total + 0.5) for total in accumulate(shares)][:-1]
    return (0, *inside, extent)
