"""From a depth and a slab to rings and bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from outgrid.plan.border import Border, border, channels, leans_up, span, thickness
from outgrid.plan.layout import layout
from outgrid.plan.lifetime import (
    Dependences,
    Lifetime,
    dependences,
    field_is_constant,
    lifetimes,
    needed_from,
    ring_count,
    write_shift,
)
from outgrid.plan.model import Arrival, Departure, Layout, Ring
from outgrid.plan.skew import Halo, Skew
from outgrid.plan.strips import Strips
from outgrid.plan.subgrid import Box, Interval, Subgrid
from outgrid.plan.trip import Span, mirrored
from outgrid.plan.wrap import Wrap, wrap
from outgrid.purposes import PASSING_TIERS
from outgrid.stencil.problem import Problem

# Planes of slack, in slabs, between the write of a place and its next read: one slab under the
# front, one being written, one being read ahead.
TURNAROUND_SLABS = 3


@dataclass(frozen=True)
class Sizing:
    """What follows from a problem alone, for any depth and slab; remembers what it derived.

    Of a ``subgrid``, if there is one, else of the whole grid.
    """

    problem: Problem
    subgrid: Subgrid | None = None

    @cached_property
    def rows(self) -> int:
        """Rows of a plane of the grid; 1 in 2-D."""
        return self.problem.shape[1] if self.problem.ndim == 3 else 1

    @property
    def cells_per_plane(self) -> int:
        """Cells of one plane, those of the fixed layer included."""
        return self.rows * self.problem.shape[-1]

    def held(self, depth: int) -> Box:
        """What a sweep of ``depth`` steps begins with."""
        if self.subgrid is None:
            return Box(range(self.problem.shape[0]), range(self.rows))
        if not self.subgrid.seams:
            return self.subgrid.held(depth)
        constant = any(each.constant for each in self.arrivals)
        planes = self._of_grid(self._reached(depth)) if constant else self.subgrid.owned.planes
        return Box(planes, self.subgrid.owned.rows)

    @property
    def owned(self) -> Box:
        """What is carried from state to state."""
        return self.held(0) if self.subgrid is None else self.subgrid.owned

    @property
    def with_seams(self) -> bool:
        """Whether it is of a rank that leaves seams at its cuts, or takes them."""
        return self.subgrid is not None and self.subgrid.seams

    @property
    def _streamed(self) -> Interval:
        """The planes of a rank as its stream counts them."""
        assert self.subgrid is not None
        planes = self.subgrid.planes
        return planes.mirrored() if self.subgrid.downward else planes

    def _reached(self, depth: int) -> range:
        """The planes of the stream that a sweep touches of a rank that leaves or takes seams."""
        ends = [self._streamed.owned]
        ends += [range(*each.touched) for each in self.borders((depth,))]
        return range(min(each.start for each in ends), max(each.stop for each in ends))

    def _of_grid(self, planes: range) -> range:
        """Planes of the stream as the grid counts them."""
        downward = self.subgrid is not None and self.subgrid.downward
        return mirrored(planes, self.problem.shape[0]) if downward else planes

    def borders(self, depths: tuple[int, ...]) -> tuple[Border, ...]:
        """The cuts of a rank at which seams are left or taken, for each depth."""
        if self.subgrid is None or not self.subgrid.seams:
            return ()
        for depth in {*depths} - {0, *self._known_borders}:
            peers = ((above, self.subgrid.beside(above)) for above in (False, True))
            self._known_borders[depth] = tuple(
                self._border(depth, peer, above) for above, peer in peers if peer is not None
            )
        return tuple(
            each for depth in sorted({*depths} - {0}) for each in self._known_borders[depth]
        )

    @cached_property
    def _known_borders(self) -> dict[int, tuple[Border, ...]]:
        return {}

    def _border(self, depth: int, peer: int, above: bool) -> Border:
        upright = self.subgrid is None or self.subgrid.upright
        up = leans_up(upright, above)
        found, face = (self.found, self.face) if up else (self.found.mirrored(), self.skew)
        returned: list[int] = []
        for each in self.departures:
            version = depth + each.level
            shift = write_shift(each.field, found, face)
            returned.append(face.per_step * version + shift if version > 0 else 0)
        cut = self._streamed.high if above else self._streamed.low
        left = wrap(found, face, self._levels, depth)
        return border(cut, peer, above, upright, left, returned)

    def least_owned(self, depths: tuple[int, ...]) -> int:
        """Planes that a rank must own for sweeps of ``depths`` steps if it leaves seams."""
        upright = self.subgrid is None or self.subgrid.upright
        return thickness(self.borders(depths)) if upright else 1

    def span(self, depth: int) -> Span:
        """The planes of each step of a sweep, of a rank."""
        assert self.subgrid is not None
        if self.subgrid.seams:
            return span(self._streamed, self.subgrid.upright, self.skew, self.face)
        return self._streamed.span(depth)

    @property
    def updates(self) -> int:
        """Cell updates that are needed: interior cells times steps, of what is owned."""
        problem = self.problem
        if self.subgrid is None or not problem.steps:
            return problem.updates
        inside = Box(problem.interior[0], problem.interior[1] if problem.ndim == 3 else range(1))
        return problem.updates // inside.count * self.owned.common(inside).count

    def updated_rows(self, depths: tuple[int, ...]) -> int:
        """Rows of planes that the steps of sweeps update, those of halos included."""
        if self.subgrid is None:
            return sum(depths) * self.problem.shape[0] * self.rows
        return sum(times * self._updated_rows(depth) for depth, times in Counter(depths).items())

    def _updated_rows(self, depth: int) -> int:
        assert self.subgrid is not None
        rows = self.subgrid.rows
        along, across = self.span(depth), rows.span(depth)
        return sum(
            len(along.at(step, self.problem.shape[0])) * len(across.at(step, rows.extent))
            for step in range(1, depth + 1)
        )

    @cached_property
    def halo(self) -> Halo:
        """What a part of the grid needs beyond the planes that it makes."""
        return self.found.halo()

    @cached_property
    def row_halo(self) -> Halo:
        """What a part of the grid needs beyond the rows that it makes; nothing in 2-D."""
        if self.problem.ndim == 2:
            none = (0,) * len(self.problem.stencil.stages)
            return Halo(0, none, none)
        return dependences(self.problem.stencil, self.problem.edges, axis=1).halo()

    @cached_property
    def found(self) -> Dependences:
        """Readings and writings along the streamed axis, in the direction of the stream."""
        found = dependences(self.problem.stencil, self.problem.edges)
        return found.mirrored() if self.subgrid is not None and self.subgrid.downward else found

    @cached_property
    def skew(self) -> Skew:
        """Planes by which a step trails the one before it."""
        return self.found.skew()

    @cached_property
    def face(self) -> Skew:
        """How the first updated plane rises, step by step, where a sweep begins inside the grid."""
        return self.found.face()

    @property
    def closed(self) -> bool:
        """Whether the first plane is the neighbour of the last one."""
        return self.problem.edges.periodic(0)

    def wraps(
        self, depths: tuple[int, ...], resident: bool = False, strips: Strips | None = None
    ) -> tuple[Wrap, ...]:
        """What comes round again in sweeps, one for each depth; none for open grids.

        In whole planes, unless there are ``strips``.
        None either where a ``resident`` grid has too few planes for a front that goes over it, or
        one step at a time to make: all planes then make each step together.
        """
        if not self.closed or (resident and max(depths, default=0) < 2):
            return ()
        found = tuple(
            wrap(
                self.found,
                self.face,
                self._levels,
                depth,
                strips is not None and strips.count(depth) > 1,
            )
            for depth in sorted({*depths} - {0})
        )
        few = any(each.planes > self.problem.shape[0] for each in found)
        return () if resident and few else found

    def least_planes(self, depths: tuple[int, ...], slab: int) -> int:
        """Planes that a grid must have for streamed sweeps.

        The first planes of a closed grid have left the window before they come round again.
        """
        if not self.closed or not depths:
            return 1
        longest = max(ring.high - ring.low for ring in self.rings(depths, slab, resident=False))
        most = max(each.planes for each in self.wraps(depths))
        return max(longest + TURNAROUND_SLABS * slab, most)

    @cached_property
    def across(self) -> Dependences:
        """Readings and writings along the rows."""
        return dependences(self.problem.stencil, self.problem.edges, axis=1)

    @cached_property
    def fall(self) -> Skew:
        """How borders of strips fall, step by step; not at all where planes are not cut."""
        return self.across.skew() if self.can_cut else self._upright

    @cached_property
    def row_face(self) -> Skew:
        """How the first updated row rises where strips go round a circle."""
        return self.across.face() if self.circle else self._upright

    @property
    def _upright(self) -> Skew:
        return Skew(0, (0,) * len(self.problem.stencil.stages))

    @property
    def can_cut(self) -> bool:
        """Whether planes may pass in strips: those of a whole grid, in 3-D."""
        return self.problem.ndim == 3 and self.subgrid is None

    @property
    def circle(self) -> bool:
        """Whether strips go round a circle."""
        return self.can_cut and self.problem.edges.periodic(1)

    def strips(self, depth: int, height: int | None = None) -> Strips:
        """Strips of ``height`` rows, or whole planes, for sweeps of up to ``depth`` steps."""
        edges = self.fall, self.row_face, self._row_reach
        if height is None:
            whole = Strips(self.rows, self.rows, *edges)
            return replace(whole, height=self.rows + whole.lean(depth))
        return Strips(self.rows, height, *edges, self.circle)

    @cached_property
    def _row_reach(self) -> int:
        """Rows that steps reach beyond those of a strip and the skew of its ends."""
        if not self.can_cut:
            return 0
        found = [(self.across, self.fall)]
        if self.circle:
            found.append((self.across.mirrored(), self.row_face))
        return max(
            skew.shifts[read.reader] - read.low for each, skew in found for read in each.readings
        )

    def turns(self, depths: tuple[int, ...], strips: Strips) -> tuple[Wrap, ...]:
        """What the first strip of a circle leaves to the last, in rows, one for each depth."""
        if not strips.circle:
            return ()
        return tuple(
            wrap(self.across, strips.rise, self._levels, depth, self.closed)
            for depth in self._cut_depths(depths, strips)
        )

    def stairs(self, depths: tuple[int, ...], strips: Strips) -> tuple[Wrap, ...]:
        """What strips leave to the next ones, in rows below their border, one for each depth."""
        leads = {(a.field, a.level): a.row_lead for a in self.arrivals if not a.constant}
        return tuple(
            wrap(self.across.mirrored(), strips.fall, self._levels, depth, True, leads)
            for depth in self._cut_depths(depths, strips)
        )

    @staticmethod
    def _cut_depths(depths: tuple[int, ...], strips: Strips) -> list[int]:
        """The depths of sweeps that pass in more than one strip."""
        return sorted({depth for depth in depths if depth and strips.count(depth) > 1})

    @property
    def _levels(self) -> list[tuple[str, int, int]]:
        """(field, time levels, rings) of each evolving field."""
        stencil = self.problem.stencil
        return [(each.name, each.levels, ring_count(each, stencil)) for each in stencil.evolving]

    def layout(self, strips: Strips, depth: int) -> Layout:
        """Planes and rows in the window."""
        cut = strips.count(depth) > 1
        held = strips.window_rows(depth) if cut else len(self.held(depth).rows)
        return layout(self.problem.shape, self.problem.dtype, held, self.problem.dtypes)

    @cached_property
    def arrivals(self) -> tuple[Arrival, ...]:
        """Levels that enter the window in every sweep."""
        return tuple(
            Arrival(
                field.name,
                level,
                self._lead(field.name, level),
                not field.evolving,
                self._row_lead(field.name, level),
            )
            for field in self.problem.stencil.fields
            for level in ((0, -1) if field.levels > 1 else (0,))
        )

    def _lead(self, field: str, level: int) -> int:
        return needed_from(field, level, self.found, self.skew)

    def _row_lead(self, field: str, level: int) -> int:
        """Rows by which the first step that reads ``level`` (0 or -1) trails what it needs."""
        return needed_from(field, level, self.across, self.fall) if self.can_cut else 0

    @cached_property
    def departures(self) -> tuple[Departure, ...]:
        """Levels that leave the window in every sweep."""
        return tuple(
            Departure(
                field.name,
                level,
                write_shift(field.name, self.found, self.skew),
                self._lead(field.name, 0),
                self._row_lead(field.name, 0),
                write_shift(field.name, self.found, self.face),
                write_shift(field.name, self.found, self.fall),
                write_shift(field.name, self.found, self.row_face),
            )
            for field in self.problem.stencil.evolving
            for level in ((0, -1) if field.levels > 1 else (0,))
        )

    @cached_property
    def row_bytes(self) -> dict[str, int]:
        """Bytes of a row on disk, by field."""
        fields = self.problem.stencil.fields
        return {field.name: self.problem.row_bytes(field.name) for field in fields}

    @property
    def arriving_bytes(self) -> int:
        """Bytes of a row of all levels that enter the window."""
        return sum(self.row_bytes[each.field] for each in self.arrivals)

    @property
    def leaving_bytes(self) -> int:
        """Bytes of a row of all levels that leave it."""
        return sum(self.row_bytes[each.field] for each in self.departures)

    def moved_bytes(
        self, depths: tuple[int, ...], strips: Strips, resident: bool = False
    ) -> tuple[int, int]:
        """Bytes that sweeps of ``depths`` steps (read, write), seams and halos included."""
        if self.subgrid is not None:
            read = sum(n * self._arriving_bytes(depth) for depth, n in Counter(depths).items())
            _, received = self.exchanged(depths)
            written = self.leaving_bytes * self.owned.count * len(depths)
            if not self.subgrid.seams:
                return read, written + received
            if self.subgrid.upright:  # what is returned is part of what is owned
                return read, written
            return read + received, written + received
        each = {depth: self._plane_bytes(depth, strips) for depth in set(depths)}
        planes = self.problem.shape[0]
        read, written = (sum(each[depth][way] for depth in depths) * planes for way in (0, 1))
        if resident:
            return read, written
        again_read, again_written = self._round_bytes(depths, strips)
        return read + again_read, written + again_written

    def _arriving_bytes(self, depth: int) -> int:
        """Bytes that a sweep of a rank reads from files of fields."""
        held = self.held(depth).count
        evolving = self.owned.count if self.with_seams else held
        return sum(
            self.row_bytes[each.field] * (held if each.constant else evolving)
            for each in self.arrivals
        )

    def _round_bytes(self, depths: tuple[int, ...], strips: Strips) -> tuple[int, int]:
        """Bytes that streamed sweeps (read, write) besides, for the planes that come round."""
        read = written = 0
        for found in self.wraps(depths, strips=strips):
            seams, again, times = self.seams(found.depth, strips), 0, depths.count(found.depth)
            left, turn = 0, next(iter(self.turns((found.depth,), strips)), None)
            for trip in strips.trips(found.depth, self.problem.shape[0]):
                left += sum(
                    len(planes) * len(rows) * self.row_bytes[stair.field]
                    for stair, planes, rows in found.left(trip, strips, seams, turn)
                )
                again += sum(
                    found.again(each.field)
                    * len(strips.constant(trip, each.row_lead))
                    * self.row_bytes[each.field]
                    for each in self.arrivals
                    if each.constant
                )
            read += times * (left + again)
            written += times * left
        return read, written

    def exchanged(self, depths: tuple[int, ...]) -> tuple[int, int]:
        """Bytes (sent, received) between sweeps of ``depths`` steps, and of seams within them."""
        sent = received = 0
        if self.subgrid is not None and self.subgrid.seams:
            left = returned = 0
            for depth, times in Counter(depths).items():
                for each in self.borders((depth,)):
                    left += times * self._seam_bytes(each)
                    returned += times * self._returned_bytes(each)
            return (left, returned) if self.subgrid.upright else (returned, left)
        if self.subgrid is not None:
            for depth, times in Counter(depths[1:]).items():
                for each in self.subgrid.exchanged(depth):
                    sent += times * each.sent.count
                    received += times * each.received.count
        return sent * self.leaving_bytes, received * self.leaving_bytes

    def _seam_bytes(self, at: Border) -> int:
        """Bytes of what is left at a border."""
        each = ((stair.high - stair.low) * self.row_bytes[stair.field] for stair in at.seams)
        return sum(each) * self.rows

    def _returned_bytes(self, at: Border) -> int:
        """Bytes of what is given back over it."""
        levels = zip(self.departures, at.returned, strict=True)
        each = ((high - low) * self.row_bytes[level.field] for level, (low, high) in levels)
        return sum(each) * self.rows

    def seam_read_bytes(self, depth: int) -> int:
        """Bytes that have to be there when the first plane beyond a cut is updated."""
        return max((self._seam_bytes(each) for each in self.borders((depth,))), default=0)

    def buffered_bytes(self, depths: tuple[int, ...], slab: int) -> int:
        """Bytes of a slab of all that goes between ranks, each way, level and ring for itself."""
        if self.subgrid is None:
            return 0
        if not self.subgrid.seams:
            deepest = max(depths, default=0)
            rows = sum(
                len(box.rows)
                for each in self.subgrid.exchanged(deepest)
                for box in (each.sent, each.received)
                if box.count
            )
            return slab * rows * self.leaving_bytes
        levels = [(each.field, each.level) for each in self.departures]
        found = [
            field
            for seams in (False, True)
            for _, field, _, _ in channels(self.borders(depths), levels, seams=seams)
        ]
        return slab * self.rows * sum(self.row_bytes[field] for field in found)

    def _plane_bytes(self, depth: int, strips: Strips) -> tuple[int, int]:
        """Bytes of each plane that a sweep (reads, writes)."""
        each = list(self._plane_bytes_by_trip(depth, strips))
        return sum(read for read, _ in each), sum(written for _, written in each)

    def _turned_bytes(self, depths: tuple[int, ...], strips: Strips) -> int:
        """Bytes of each plane that the first strips of a circle leave to the last."""
        stairs = (stair for turn in self.turns(depths, strips) for stair in turn.seams)
        return sum((each.high - each.low) * self.row_bytes[each.field] for each in stairs)

    def _plane_bytes_by_trip(self, depth: int, strips: Strips) -> Iterator[tuple[int, int]]:
        """Bytes of each plane that the trips of a sweep (read, write)."""
        seams, last = self.seams(depth, strips).items(), strips.count(depth) - 1
        turned = self._turned_bytes((depth,), strips)
        for trip in strips.trips(depth, self.problem.shape[0]):
            read = written = 0
            for arrival in self.arrivals:
                rows = strips.constant if arrival.constant else strips.owned
                read += len(rows(trip, arrival.row_lead)) * self.row_bytes[arrival.field]
            for departure in self.departures:
                lag = departure.row_lag(depth, strips.fall)
                left = strips.owned(trip, lag, departure.row_first(depth, strips.rise))
                written += len(left) * self.row_bytes[departure.field]
            for (field, _), (most, least) in seams:
                below, above = (
                    len(strips.clip(border - most, border - least)) * self.row_bytes[field]
                    for border in (trip.rows.low, trip.rows.high)
                )
                read += below if trip.part > 0 else 0
                written += above if trip.part < last else 0
            written += turned if trip.part == 0 else 0
            read += turned if trip.part == last else 0
            yield read, written

    def lean(self, depth: int) -> int:
        """Planes by which what an inward face needs begins below what it leaves."""
        return self.face.per_step * depth + max(self.face.shifts)

    def spared_bytes(self, depth: int, strips: Strips, part: int, planes: int) -> tuple[int, int]:
        """Bytes that a sweep need not (read, write) where it goes on at a trip and a plane of it.

        The trips before are left out, and of this one what it writes below ``planes``.
        """
        low = max(0, planes - self.lean(depth))
        read = written = 0
        for number, nbytes in enumerate(self._plane_bytes_by_trip(depth, strips)):
            if number < part:
                read += nbytes[0] * self.problem.shape[0]
                written += nbytes[1] * self.problem.shape[0]
            elif number == part:
                read += nbytes[0] * low
                written += nbytes[1] * planes
        wraps = self.wraps((depth,))
        if not wraps:
            return read, written
        left = 0
        for each in self.departures:
            above = max(0, planes - each.first(depth, self.face.per_step))
            left += min(above, self.problem.shape[0]) * self.row_bytes[each.field]
        for stair in wraps[0].seams:
            above = max(0, min(planes, stair.high) - stair.low)
            left += above * self.row_bytes[stair.field]
        return read, left * self.rows

    def seams(self, depth: int, strips: Strips) -> dict[tuple[str, int], tuple[int, int]]:
        """For rings of evolving fields, (most, least) rows of their seams below a border."""
        found = (stair for each in self.stairs((depth,), strips) for stair in each.seams)
        return {(stair.field, stair.index): (stair.high, stair.low) for stair in found}

    def disk_bytes(
        self,
        depths: tuple[int, ...],
        strips: Strips,
        tier: str = "direct",
        mapped_bytes: int = 0,
        resident: bool = False,
        seam_places: int = 1,
    ) -> int:
        """Bytes reserved in scratch: two files for each evolving level, one for a coefficient, and
        for each depth ``seam_places`` for the seams of each ring where planes are cut into strips,
        one where they come round again.

        A grid that is streamed from memory leaves its results only. ``mapped_bytes`` are those of
        rings in files."""
        planes, rows = self.problem.shape[0], self.rows
        if tier in PASSING_TIERS:
            return self.leaving_bytes * planes * rows
        files = 2 * self.leaving_bytes
        files += sum(self.row_bytes[each.field] for each in self.arrivals if each.constant)
        deepest = max(depths, default=0)
        fields = files * self.held(deepest).count + mapped_bytes
        if self.subgrid is not None and self.subgrid.seams:
            taken = self.borders(depths) if not self.subgrid.upright else ()
            return fields + sum(map(self._seam_bytes, taken))
        if self.closed and not resident:
            for found in self.wraps(depths, strips=strips):
                cut = strips.count(found.depth) > 1
                held = strips.window_rows(deepest) if cut else rows
                fields += held * sum(each.high * self.row_bytes[each.field] for each in found.seams)
        seams = sum(
            (most - least) * self.row_bytes[field]
            for depth in set(depths)
            for (field, _), (most, least) in self.seams(depth, strips).items()
        )
        return fields + (seam_places * seams + self._turned_bytes(depths, strips)) * planes

    def pitch_planes(
        self,
        depth: int,
        slab: int,
        resident: bool,
        seams: bool = False,
        depths: tuple[int, ...] = (),
    ) -> int:
        """Planes of the stream from one trip to the next, a multiple of the slab.

        Levels leave one after the other. A sweep begins so late that none of its levels leaves
        before the last one of the sweep before: that write would wait for a commit that waits for
        writes queued behind it. With ``seams`` a trip reads what the one before it leaves when it
        reads a plane for the last time, and leaves its own seam after all that the one before
        leaves. Only sweeps of unequal ``depths`` overtake one another.
        """
        reach = self.skew.per_step * depth + max(self.skew.shifts)
        reach += self.problem.stencil.radius[0] if seams else 0
        planes = len(self.held(depth).planes)
        lags = {each: self._put_lags(each) for each in {depth, *depths}}
        ahead = [0, max(lags[depth]) - min(lags[depth]) - 1]
        ahead += [max(lags[last]) - min(lags[first]) - 1 for last, first in pairwise(depths)]
        if not resident:
            ahead += self._seams_ahead(lags, seams)
        again = max((wrap.planes for wrap in self.wraps((depth,))), default=0)
        apart = planes + max(again, *ahead)
        if self.borders((depth,)):
            apart = max(apart, self._pitch_of_borders({depth, *depths} - {0}, slab))
        if self.closed:  # the first planes are the last ones that a sweep writes
            reach += planes
        least = max(apart, reach + TURNAROUND_SLABS * slab)
        if resident:
            least = self.whole_planes(depth)
            # Planes that come round leave at the end of a sweep, before the next one touches them.
            least += min(slab, self.lean(depth)) if self.wraps(depths or (depth,), resident) else 0
        return -(-least // slab) * slab

    def _pitch_of_borders(self, depths: set[int], slab: int) -> int:
        """Planes between sweeps of a rank so that none waits for what comes after the one before.

        All that a sweep leaves, seams and what is returned included, leaves before the next one
        writes: that waits until all ranks have done with the sweep. An inverted rank has left all
        of a sweep before it needs the first seam of the next, and an upright one what leads to a
        plane that is returned before it needs that plane.
        """
        begins, ends, least = list[int](), list[int](), list[int]()
        for depth in depths:
            highs = {
                (field.name, index): life
                for field in self.problem.stencil.evolving
                for index, life in enumerate(
                    self._lives(field.name, sweeps_by_base(tuple(depths), resident=False))
                )
            }
            owned, sides = self._streamed.owned, self.borders((depth,))
            upright = self.subgrid is None or self.subgrid.upright
            last = [self._front_end(depth) - 1]
            for number, each in enumerate(self.departures):
                lag = each.lag(depth, self.skew.per_step)
                low, high = owned.start, owned.stop
                for side in sides:
                    first, end = side.returned[number]
                    if upright:
                        low, high = (low, first) if side.above else (end, high)
                    else:
                        low, high = min(low, first), max(high, end)
                begins.append(low + lag)
                last.append(high - 1 + lag)
            for side in sides:
                for stair in side.seams:
                    life = highs[stair.field, stair.index]
                    if not upright:
                        begins.append(stair.low + life.low - slab)
                        continue
                    left = min(stair.high - 1 + life.high, max(last))
                    wanted = min(low for low, _ in side.returned)
                    least.append(left - wanted + slab + 1)
            ends.append(max(last))
            least.append(len(self._reached(depth)))
        return max(max(ends) - min(begins) + 1, *least)

    def _front_end(self, depth: int) -> int:
        """The front position at which a sweep of a rank with borders has made all updates."""
        along, extent = self.span(depth), self.problem.shape[0]
        lead = max(arrival.lead for arrival in self.arrivals)
        return max(
            self._reached(depth).stop + lead,
            *(
                along.at(step, extent, stage).stop + self.skew.per_step * step + shift
                for step in range(1, depth + 1)
                for stage, shift in enumerate(self.skew.shifts)
            ),
        )

    def _seams_ahead(self, lags: dict[int, list[int]], seams: bool) -> list[int]:
        """Planes by which the first of what a trip leaves would overtake the last seam before.

        A restart within the trip needs that seam as a whole.
        """
        depths = tuple(lags)
        sweeps = sweeps_by_base(depths, resident=False)
        highs = {
            (field.name, index): life.high
            for field in self.problem.stencil.evolving
            for index, life in enumerate(self._lives(field.name, sweeps))
        }
        last = max(max(each) for each in lags.values())
        if self.closed:
            stairs = [stair for wrap in self.wraps(depths) for stair in wrap.seams]
            return [last - stair.low - highs[stair.field, stair.index] - 1 for stair in stairs]
        first = min(*highs.values(), *(min(each) for each in lags.values()))
        return [max(last, *highs.values()) - first - 1] if seams else []

    def _put_lags(self, depth: int) -> list[int]:
        """Front positions, from a sweep's first one on, at which its levels begin to leave."""
        skew, face = self.skew.per_step, self.face.per_step
        return [
            each.lag(depth, skew) + (each.first(depth, face) if self.closed else 0)
            for each in self.departures
        ]

    def whole_planes(self, depth: int) -> int:
        """A slab in which a whole sweep of ``depth`` steps begins and ends."""
        return self.problem.shape[0] + self.skew.per_step * depth + max(self.skew.shifts)

    def rings(
        self, depths: tuple[int, ...], slab: int, resident: bool, seams: bool = False
    ) -> tuple[Ring, ...]:
        """All rings of the window, just large enough for full overlap of I/O and computation.

        With ``seams``, and where planes come round again, every ring of an evolving field has
        something to read and to write. None where there is no sweep.
        """
        if not depths:
            return ()
        seams = seams or (self.closed and not resident) or bool(self.borders(depths))
        sweeps = sweeps_by_base(depths, resident)
        return tuple(
            Ring(
                field.name,
                index,
                self._ring_planes(field.name, index, life, sweeps, slab, resident, seams),
                life.low,
                life.high,
            )
            for field in self.problem.stencil.fields
            for index, life in enumerate(self._lives(field.name, sweeps))
        )

    def _lives(self, field: str, sweeps: frozenset[tuple[int, int]]) -> tuple[Lifetime, ...]:
        """Lifetimes that begin no later than arrival, which is timed for sweeps of any depth."""
        rings = ring_count(self.problem.stencil.field(field), self.problem.stencil)
        lives = list(lifetimes(field, rings, self.found, self.skew, sweeps))
        for arrival in self.arrivals:
            if arrival.field == field:
                life = lives[arrival.level % rings]
                lives[arrival.level % rings] = Lifetime(min(life.low, arrival.lead), life.high)
        return tuple(lives)

    def _ring_planes(
        self,
        field: str,
        index: int,
        life: Lifetime,
        sweeps: frozenset[tuple[int, int]],
        slab: int,
        resident: bool,
        seams: bool,
    ) -> int:
        if resident:
            return self.problem.shape[0]
        if seams and not field_is_constant(field, self.found):
            return life.span + 3 * slab
        rings = ring_count(self.problem.stencil.field(field), self.problem.stencil)
        spare = 0
        if any(a.field == field and a.level % rings == index for a in self.arrivals):
            spare += slab  # the next slab is being read
        if not field_is_constant(field, self.found) and any(
            d.field == field and (base + depth + d.level) % rings == index
            for d in self.departures
            for base, depth in sweeps
        ):
            spare += slab  # the last slab is being written
        return life.span + slab + spare


def sweeps_by_base(depths: tuple[int, ...], resident: bool) -> frozenset[tuple[int, int]]:
    """Distinct (base, depth) of the sweeps, bases modulo the numbers of rings in use (1, 2, 3)."""
    found: set[tuple[int, int]] = set()
    base = 0
    for depth in depths:
        found.add((base % 6 if resident else 0, depth))
        base += depth
    return frozenset(found)


def split_steps(steps: int, depth: int) -> tuple[int, ...]:
    """Steps per sweep, none above ``depth``, balanced and even where possible, shorter first.

    Shorter first because a shorter sweep that follows a longer one would overtake its last
    planes; even because then results leave from the ring that they arrived in.
    """
    rest, each, others = _balanced(steps, depth)
    return (rest, *([each] * others)) if steps else ()


def deepest_of_split(steps: int, depth: int) -> int:
    """The deepest sweep of `split_steps`, without listing all of them."""
    rest, each, others = _balanced(steps, depth)
    return each if others else rest


def _balanced(steps: int, depth: int) -> tuple[int, int, int]:
    """(steps of the first sweep, of each other one, how many others) of `split_steps`."""
    if steps == 0:
        return 0, 0, 0
    sweeps = -(-steps // depth)
    each = -(-steps // sweeps)
    if each % 2 and each < depth:
        each += 1
    sweeps = -(-steps // each)  # an even depth may need one sweep less
    return steps - (sweeps - 1) * each, each, sweeps - 1


def sweep_steps(problem: Problem, depth: int, *, given: bool) -> tuple[int, ...]:
    """Steps per sweep of a problem: sweeps end wherever the run may end.

    A ``depth`` that was asked for is kept where it is ``given``, else it is balanced.
    """
    split = given_steps if given else split_steps
    return tuple(each for stretch in problem.stretches for each in split(stretch, depth))


def given_steps(steps: int, depth: int) -> tuple[int, ...]:
    """Steps per sweep where the depth was asked for: first what is over, then that depth."""
    full, rest = divmod(steps, depth)
    return (*((rest,) if rest else ()), *([depth] * full))
