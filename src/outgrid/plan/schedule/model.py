"""The schedule: which planes and rows each trip reads, updates and leaves. Integers alone.

Along each axis a trip covers an interval whose ends are walls, lean or shrink; see
`plan.schedule.interval`. A schedule says which (`Schedule.interval`), and `Passage` what a trip
reads, updates and leaves then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile

from outgrid.plan.schedule.blocks import Blocks
from outgrid.plan.schedule.interval import (
    ACROSS,
    AXES,
    STREAMED,
    Interval,
    Lean,
)
from outgrid.plan.schedule.rings import Arrival, Departure, Ring
from outgrid.plan.schedule.seam import Cut, Seam, SeamKey, Stair
from outgrid.plan.schedule.skew import UPRIGHT, Skew
from outgrid.plan.schedule.strips import Strips
from outgrid.plan.schedule.subgrid import Box, Exchanged, Subgrid
from outgrid.plan.schedule.trip import Point, Span, Trip, Trips, clip, mirrored


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What passes through the window, in planes, rows and steps; remembers what it derived.

    ``depths`` holds the steps of each sweep. Sweep p reads state p and writes state p + 1, in one
    trip through the window or, cut into strips, in several; plane z of trip i is plane
    ``i * pitch_planes + z`` of the stream. A ``resident`` schedule holds whole fields: planes
    arrive in the first sweep and leave in the last. Where there are ``blocks``, each of them is a
    trip and has the whole window to itself.

    A state is made durable bit by bit, every ``commit_planes`` planes (0: only as a whole; planes
    of strips and blocks count one after the other), that of a resident grid every ``commit_sweeps``
    sweeps (0: at the end). A schedule may ``begin`` at a point within its first sweep. An inward
    face then rises as ``face`` says: what it needs of state 0 begins so much lower.

    ``seams`` are those of each depth that sweeps have: at cuts between strips and between ranks,
    and where the first cells of an axis come round again at its end.

    The schedule of one rank of several is about its ``subgrid``: planes and rows keep their numbers
    in the whole grid, the rank's files hold those that it owns and a halo. A ``downward`` stream
    comes to the last plane first and counts planes from there: so do trips, and all that is said of
    the front.
    """

    shape: tuple[int, ...]
    depths: tuple[int, ...]
    slab_planes: int
    skew: Skew
    pitch_planes: int
    strips: Strips
    resident: bool
    rings: tuple[Ring, ...]
    arrivals: tuple[Arrival, ...]
    departures: tuple[Departure, ...]
    commit_planes: int = 0
    commit_sweeps: int = 0
    face: Skew = UPRIGHT
    begin: Point = field(default_factory=Point)
    seams: tuple[Seam, ...] = ()
    blocks: Blocks | None = None
    subgrid: Subgrid | None = None

    @cached_property
    def depth(self) -> int:
        """Steps of the deepest sweep."""
        return max(self.depths, default=0)

    @property
    def sweeps(self) -> int:
        """Trips of the grid through the window."""
        return len(self.depths)

    @property
    def planes(self) -> int:
        """Planes of the grid: the extent of axis 0."""
        return self.shape[0]

    @property
    def rows(self) -> int:
        """Rows of a plane of the grid; 1 in 2-D."""
        return self.shape[1] if len(self.shape) == 3 else 1

    @cached_property
    def extents(self) -> tuple[int, int]:
        """Planes and rows of the grid."""
        return self.planes, self.rows

    @property
    def slabs(self) -> int:
        """Number of slabs of the whole stream."""
        if not self.depths:
            return 0
        if self.blocks is not None:
            each = [min(5, 2 * depth) for depth in self.depths]
            return self.blocks.count() * sum(each) - self.begin.part * each[0]
        last = self.passage(self.trips[-1])
        return -(-(last.trip.index * self.pitch_planes + last.front_end) // self.slab_planes)

    @property
    def first_slab(self) -> int:
        """The slab that the stream begins with."""
        if not self.depths:
            return 0
        return self.passage(self.trips[0]).entering.start // self.slab_planes

    def seams_of(self, depth: int, axis: int) -> Iterator[Seam]:
        """The seams at cuts across an axis, of sweeps of ``depth`` steps."""
        return (each for each in self.seams if (each.depth, each.axis) == (depth, axis))

    def closing(self, depth: int, axis: int) -> Seam | None:
        """The seam through which the first cells of an axis come round again."""
        return next((each for each in self.seams_of(depth, axis) if each.closes), None)

    def cuts(self, depth: int) -> Iterator[tuple[Seam, Cut]]:
        """The seams of cuts between ranks."""
        for each in self.seams_of(depth, STREAMED):
            if each.cut is not None:
                yield each, each.cut

    @property
    def closes(self) -> bool:
        """Whether the first planes come round again."""
        return any(each.closes and each.axis == STREAMED for each in self.seams)

    @property
    def seam_places(self) -> int:
        """Places of the seams of strips: one, or two where a restart may need the one before."""
        return 2 if self.commit_planes and not self.closes else 1

    def place(self, seam: Seam, border: int) -> int:
        """The number of the place of a seam at a border: that below strip 1, 2... of a sweep.

        The seams below and above a strip lie in two places that take turns where a restart may need
        the one while the other is written. What closes an axis has a place of its own, and so has
        each cut between ranks.
        """
        if seam.cut is not None:
            return int(seam.cut.above)
        if seam.axis == STREAMED:
            return 0
        beside = 1 if self.closes else 0
        return beside + (self.seam_places if seam.closes else border % self.seam_places)

    @property
    def places(self) -> dict[SeamKey, tuple[int, ...]]:
        """Shapes of the places of all seams that are kept; none for whole planes.

        Record z of a place has a row for each row of plane z that goes through the seam, or record
        0 is the first plane that does, with all rows of the window.
        """
        found: dict[SeamKey, tuple[int, ...]] = {}
        for seam in () if self.resident else self.seams:
            if seam.cut is not None and seam.cut.given:
                continue
            several = not (seam.closes or seam.cut)
            borders = range(self.seam_places if several else 1)
            for stair in seam.stairs:
                cells = stair.high - stair.low
                if seam.axis == ACROSS:
                    shape = (self.planes, cells, self.shape[-1])
                elif seam.cut is not None:
                    shape = (cells, len(self.owned_rows), self.shape[-1])
                else:
                    shape = (stair.high, self.window_rows, self.shape[-1])
                for border in borders if cells or not several else ():
                    place = self.place(seam, border)
                    found[SeamKey(stair.field, stair.index, seam.depth, place)] = shape
        return found

    @property
    def window_rows(self) -> int:
        """Rows of a plane that the window holds."""
        if self.blocks is not None:
            return self.blocks.held(self.depth)[1]
        if self.strips.count(self.depth) > 1:
            return min(self.rows, self.strips.window_rows(self.depth))
        return len(self.held(self.depth).rows)

    @property
    def downward(self) -> bool:
        """Whether the stream begins with the last plane of the grid."""
        return self.subgrid is not None and self.subgrid.downward

    def streamed(self, planes: range) -> range:
        """Planes of the grid as the stream counts them; or the other way round."""
        return mirrored(planes, self.planes) if self.downward else planes

    @property
    def owned(self) -> range:
        """The planes that are carried from state to state."""
        return range(self.planes) if self.subgrid is None else self.subgrid.owned.planes

    @property
    def owned_rows(self) -> range:
        """The rows of these planes that are carried."""
        return range(self.rows) if self.subgrid is None else self.subgrid.owned.rows

    @property
    def part(self) -> tuple[range, ...]:
        """The planes, and in three dimensions their rows, that are carried."""
        return (self.owned, self.owned_rows)[: len(self.shape) - 1]

    def uncut(self, axis: int, depth: int) -> Interval:
        """What sweeps of ``depth`` steps are about along an axis, as the stream counts it."""
        if self.subgrid is None:
            return Interval(range(self.extents[axis]), self.extents[axis])
        interval = self.subgrid.interval(axis, depth)
        return interval.mirrored() if self.downward and axis == STREAMED else interval

    def interval(self, axis: int, depth: int, part: int = 0) -> Interval:
        """What a strip of a sweep covers of an axis, with the seams that lie at its ends."""
        count = self.strips.count(depth) if axis == ACROSS else 1
        key = axis, depth, part if count > 1 else 0
        if key not in self._intervals:
            self._intervals[key] = self._interval(*key, count)
        return self._intervals[key]

    @cached_property
    def _intervals(self) -> dict[tuple[int, int, int], Interval]:
        return {}

    def _interval(self, axis: int, depth: int, strip: int, count: int) -> Interval:
        interval = self.uncut(axis, depth)
        if count > 1:
            interval = replace(interval, cells=self.strips.cells(depth, strip))
        below, above, extent = interval.below, interval.above, interval.extent
        for seam in self.seams_of(depth, axis):
            # Beside strips lie all rows that steps reach; planes that come round are there again.
            beside = self.strips.beside(depth) if axis == ACROSS else 0
            if seam.cut is not None:
                end = Lean(seam, not seam.cut.given, 0 if seam.cut.given else seam.reach)
                below, above = (below, end) if seam.cut.above else (end, above)
            elif seam.closes:
                extent += beside if axis == ACROSS else seam.reach
                below = Lean(seam, False, 0) if strip == 0 else below
                above = Lean(seam, True, beside) if strip + 1 == count else above
            else:
                below = Lean(seam, True, beside) if strip > 0 else below
                above = Lean(seam, False, 0) if strip + 1 < count else above
        return Interval(interval.cells, extent, below, above)

    def passed(self, axis: int, depth: int, part: int) -> Interval:
        """What one trip of a sweep covers of an axis."""
        if self.blocks is not None:
            return self.blocks.interval(axis, depth, part)
        return self.interval(axis, depth, part)

    def held(self, depth: int) -> Box:
        """What a sweep of ``depth`` steps begins with."""
        planes, rows = self.interval(STREAMED, depth), self.uncut(ACROSS, depth)
        constant = any(arrival.constant for arrival in self.arrivals)
        return Box(self.streamed(planes.read if constant else planes.stored), rows.stored)

    def evolving(self, depth: int) -> Box:
        """What a sweep of ``depth`` steps reads of the levels that evolve, from their files."""
        planes, rows = (self.uncut(axis, depth) for axis in AXES)
        return Box(self.streamed(planes.stored), rows.stored)

    @property
    def stored(self) -> Box:
        """The planes, and their rows, that the files of a level hold."""
        return self.held(self.depth)

    @property
    def stored_apart(self) -> dict[str, range]:
        """The rows that lie in files of their own: what is owned, and halos on both sides of it.

        By what is added to the name of the file; "" are those that are owned.
        """
        held, owned = self.stored.rows, self.owned_rows
        halos = range(held.start, owned.start), range(owned.stop, held.stop)
        found = {"below": halos[0], "": owned, "above": halos[1]}
        return {name: rows for name, rows in found.items() if rows}

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape of the files of a level."""
        stored = self.stored
        held = len(stored.planes), len(stored.rows)
        return (*held[: len(self.shape) - 1], self.shape[-1])

    def exchanged(self, sweep: int) -> tuple[Exchanged, ...]:
        """What goes between ranks before ``sweep`` where they hold halos; none after the last."""
        if self.subgrid is None or sweep >= self.sweeps:
            return ()
        return tuple(self.subgrid.exchanged(self.depths[sweep]))

    def lean(self, depth: int) -> int:
        """Planes by which what a face needs begins below what it leaves, ``depth`` steps later."""
        return self.face.per_step * depth + max(self.face.shifts, default=0)

    @property
    def cut(self) -> tuple[int, ...]:
        """How a sweep is cut: (), the height of its strips, or (planes, rows) of its blocks."""
        if self.blocks is not None:
            return self.blocks.core
        return (self.strips.height,) if self.strips.count(self.depth) > 1 else ()

    def parts(self, depth: int) -> int:
        """Trips of a sweep of ``depth`` steps."""
        return self.strips.count(depth) if self.blocks is None else self.blocks.count()

    @property
    def states(self) -> int:
        """How many states are written to their files, the last one included.

        Streamed grids leave a state with every sweep. The files of a level take turns, state by
        state, so that none is written over the one before it.
        """
        return -(-self.sweeps // self._sweeps_apart)

    @property
    def _sweeps_apart(self) -> int:
        """Sweeps from one state to the next."""
        return (self.commit_sweeps or max(1, self.sweeps)) if self.resident else 1

    def sweeps_until(self, state: int) -> int:
        """Sweeps that lead to a state; 0 for state 0."""
        return min(state * self._sweeps_apart, self.sweeps)

    def states_in(self, sweeps: int) -> int:
        """States that so many sweeps lead to, state 0 not counted."""
        return self.states if sweeps >= self.sweeps else sweeps // self._sweeps_apart

    def state_after(self, sweeps: int) -> int | None:
        """The state that so many sweeps lead to; None where they lead to none."""
        state = self.states_in(sweeps)
        return state if self.sweeps_until(state) == sweeps else None

    def ring_count(self, field: str) -> int:
        """Number of rings of ``field``."""
        return sum(1 for ring in self.rings if ring.field == field)

    @property
    def trips(self) -> Trips:
        """All passages of a block, a strip or the whole grid through the window, in order."""
        return Trips(self.depths, self.parts, self._spans, self.begin.part)

    def passage(self, trip: Trip) -> Passage:
        """What a trip does."""
        return Passage(self, trip)

    def sweep(self, depth: int) -> Iterator[Passage]:
        """The passages of one sweep of ``depth`` steps."""
        for trip in Trips((depth,), self.parts, self._spans):
            yield Passage(self, trip)

    def _spans(self, sweep: int, part: int, depth: int) -> tuple[Span, Span]:
        """What a trip covers. A first trip that begins inside the grid has an inward face."""
        along, across = (self.passed(axis, depth, part).span for axis in AXES)
        if self.begin.planes and (sweep, part) == (0, self.begin.part):
            low = self.begin.planes - self.lean(depth)
            along = replace(along, low=low, rise=self.face.per_step, shifts=self.face.shifts)
        return along, across

    @property
    def row_updates(self) -> int:
        """Rows of planes times steps that the program updates, redundant ones included."""
        trips = self.trips
        if self.subgrid is not None:  # a trip for each sweep, and those of a depth are alike
            return sum(
                times * self.passage(trips[self.depths.index(depth)]).row_updates
                for depth, times in Counter(self.depths).items()
            )
        apart = self.begin.begun
        begun = takewhile(lambda trip: trip.sweep < apart, trips)
        rows = sum(self.passage(trip).row_updates for trip in begun)
        if self.blocks is not None:
            times = Counter(self.depths[apart:])
            return rows + sum(n * self.blocks.updated_rows(depth) for depth, n in times.items())
        return rows + self.planes * self.rows * sum(self.depths[apart:])

    @property
    def redundancy(self) -> float:
        """Updates that are made more than once, as a share of those that are needed."""
        if not any(self.passed(axis, self.depth, 0).shrinks for axis in AXES):
            return 0.0  # what a taker makes beyond a cut nobody else does
        needed = len(self.owned) * len(self.owned_rows) * sum(self.depths)
        return max(0.0, self.row_updates / needed - 1) if needed else 0.0


@dataclass(frozen=True, slots=True)
class Share:
    """What a ring gives to a ``seam``, or takes from it: rows of planes, as the trip counts them.

    The cut is ``at`` a cell of the seam's axis. They lie in the place ``key``, where plane and row
    ``origin`` are the first. What is taken
    was left by trip ``giver`` in its planes ``given``; what is given to ``peer``, or taken from it,
    goes through a message.
    """

    seam: Seam
    at: int
    ring: Ring
    planes: range
    rows: range
    key: SeamKey
    origin: tuple[int, int]
    giver: int = -1
    given: range = range(0)
    peer: int | None = None

    @property
    def count(self) -> int:
        """Rows of all planes together."""
        return len(self.planes) * len(self.rows)


@dataclass(frozen=True)
class Passage:
    """What a trip of a schedule ``of`` reads, updates and leaves; remembers what it derived."""

    of: Schedule
    trip: Trip

    @cached_property
    def intervals(self) -> tuple[Interval, Interval]:
        """What it covers of planes and rows."""
        planes, rows = (self.of.passed(axis, self.trip.depth, self.trip.part) for axis in AXES)
        return planes, rows

    @cached_property
    def periods(self) -> tuple[int, int]:
        """The planes, and rows, after which the first ones come again; 0 where they do not.

        Sweeps of one strip have whole circles of rows at once.
        """
        planes, rows = (
            extent if self.of.closing(self.trip.depth, axis) is not None else 0
            for axis, extent in enumerate(self.of.extents)
        )
        return planes, rows

    @cached_property
    def extents(self) -> tuple[int, int]:
        """Planes and rows: those of the grid, and the first ones again where they come round."""
        planes, rows = self.intervals
        return planes.extent, rows.extent

    def covered(self, step: int, stage: int = 0) -> Box:
        """The planes and rows that a stage of a step may update."""
        planes, rows = self.extents
        return Box(self.trip.planes.at(step, planes, stage), self.trip.rows.at(step, rows, stage))

    @cached_property
    def front_end(self) -> int:
        """The front position at which all planes are read and all updates are made."""
        lead = max(arrival.lead for arrival in self.of.arrivals)
        # A halo that shrinks from beyond the end of the grid may reach farthest in between.
        return max(
            self.entering.stop + lead,
            *(
                self.covered(step, stage).planes.stop + self.of.skew.per_step * step + shift
                for step in range(1, self.trip.depth + 1)
                for stage, shift in enumerate(self.of.skew.shifts)
            ),
        )

    @cached_property
    def row_updates(self) -> int:
        """Rows of planes times steps that are updated."""
        return sum(self.covered(step).count for step in range(1, self.trip.depth + 1))

    @cached_property
    def entering(self) -> range:
        """The planes that are read; of a first trip that goes on, those that its face needs."""
        planes = self.intervals[STREAMED].read
        needed = self.put_from - self.of.lean(self.trip.depth) if self.put_from else 0
        return range(max(planes.start, needed), planes.stop)

    @property
    def touched(self) -> range:
        """The planes that may be touched, those that come round again included."""
        return self.intervals[STREAMED].touched

    def arriving(self, arrival: Arrival) -> Box:
        """Rows of a level that come from its file, before any of its planes come again."""
        planes, rows = self.intervals
        if arrival.constant:
            return Box(self.entering, rows.coefficients(arrival.field))
        come = planes.arriving(arrival.field, arrival.level)
        come = range(max(come.start, self.entering.start), come.stop)
        return Box(come, rows.arriving(arrival.field, arrival.level))

    def rereads(self, arrival: Arrival) -> int:
        """Planes of a coefficient that come from its file once more, where they come round."""
        closing = self.of.closing(self.trip.depth, STREAMED)
        # What is resident is still there.
        return closing.reread(arrival.field) if closing is not None and not self.of.resident else 0

    @property
    def put_from(self) -> int:
        """The plane below which all that the trip leaves was there before."""
        return self.of.begin.planes if self.trip.index == 0 else 0

    def leaving(self, departure: Departure) -> Box:
        """Rows of a level that go to its file."""
        version = self.trip.depth + departure.level
        planes, rows = (each.leaving(departure.field, version) for each in self.intervals)
        return Box(range(max(planes.start, self.put_from), planes.stop), rows)

    def returned(self, departure: Departure) -> Iterator[tuple[Cut, range]]:
        """Planes of a level that go over cuts between ranks to where their files are."""
        version = self.trip.depth + departure.level
        for seam, cut in self.of.cuts(self.trip.depth):
            yield cut, seam.cells(0, abs(seam.edge(departure.field, version)), cut.at)

    def given(self) -> Iterator[Share]:
        """What the trip leaves in seams, ring by ring."""
        if not self.of.resident:
            yield from self._at_cuts(given=True)
            yield from self._across(given=True)
            yield from self._round(given=True)

    def taken(self) -> Iterator[Share]:
        """What it finds there."""
        if not self.of.resident:
            yield from self._across(given=False)
            yield from self._round(given=False)
            yield from self._at_cuts(given=False)

    def _at_cuts(self, *, given: bool) -> Iterator[Share]:
        """What goes over cuts between ranks."""
        for seam, cut in self.of.cuts(self.trip.depth):
            for stair in seam.stairs if cut.given == given else ():
                planes = seam.cells(stair.low, stair.high, cut.at)
                what = seam, cut.at, self._ring(stair), planes, self.of.owned_rows
                yield Share(*what, self._key(seam, stair), (planes.start, 0), peer=cut.peer)

    def _across(self, *, given: bool) -> Iterator[Share]:
        """What goes from strip to strip, and from the first one of a circle to the last."""
        closing = self.of.closing(self.trip.depth, STREAMED)
        for above in (1, 0) if given else (0, 1):
            rows = self.intervals[ACROSS]
            seam = (rows.above if above else rows.below).seam
            # The strip below a border gives, but where a circle closes.
            if seam is None or given != (bool(above) != seam.closes):
                continue
            at = (self.trip.rows.low, self.trip.rows.high)[above]
            for stair in seam.stairs:
                cells = seam.cells(stair.low, stair.high, at)
                rows = clip(cells.start, cells.stop, self.extents[ACROSS])
                # Planes that come round get their last steps then.
                turn = closing.stair(stair.field, stair.index).high if closing is not None else 0
                left = range(max(turn, self.put_from), turn + self.of.planes)
                ring, where = self._ring(stair), (self._key(seam, stair, above), (0, cells.start))
                if rows and given:
                    yield Share(seam, at, ring, left, rows, *where)
                elif rows:
                    giver = self.trip.index - (self.trip.part if seam.closes else 1)
                    begun = self.of.begin.planes if giver == 0 else 0
                    left = range(max(turn, begun), turn + self.of.planes)
                    yield Share(seam, at, ring, self.entering, rows, *where, giver, left)

    def _round(self, *, given: bool) -> Iterator[Share]:
        """What the first planes leave for when they come round again, at the end of the trip.

        Beside the trip's own rows those that it has got from other strips.
        """
        seam = self.of.closing(self.trip.depth, STREAMED)
        if seam is None:
            return
        got = [*self._across(given=False)]
        at = 0 if given else self.of.planes
        for stair in seam.stairs:
            ring, begun = self._ring(stair), self.put_from
            boxes = [(range(stair.low), each.rows) for each in got if each.ring is ring]
            boxes.append((range(stair.low, stair.high), self._filled(stair)))
            for planes, rows in boxes:
                first = max(planes.start, begun) if given else planes.start
                there = range(at + first, at + planes.stop)
                where = self._key(seam, stair), (at, self.row_origin)
                if there and rows:
                    left = range(begun, stair.high)
                    yield Share(seam, at, ring, there, rows, *where, self.trip.index, left)

    def _filled(self, stair: Stair) -> range:
        """Rows of a ring in which there is something once its first version is made."""
        interval, rows = self.intervals[ACROSS], self.trip.rows
        below, above, low, high = interval.below.seam, interval.above.seam, rows.low, rows.high
        if below is not None:
            here = below.stair(stair.field, stair.index)
            low = below.cells(here.low, here.high, low).start
        if above is not None:
            here = above.stair(stair.field, stair.index)
            high = above.cells(here.low, here.high, high).stop
        return clip(low, high, self.extents[ACROSS])

    def _key(self, seam: Seam, stair: Stair, above: int = 0) -> SeamKey:
        place = self.of.place(seam, self.trip.part + above)
        return SeamKey(stair.field, stair.index, seam.depth, place)

    def _ring(self, stair: Stair) -> Ring:
        key = stair.field, stair.index
        return next(ring for ring in self.of.rings if (ring.field, ring.index) == key)

    @cached_property
    def slot_origin(self) -> int:
        """What is added to a plane of the trip before it is taken modulo a ring's planes.

        A streamed trip goes on where the one before it ended; a resident field keeps its place.
        """
        if self.of.blocks is not None:
            return -self.entering.start
        return 0 if self.of.resident else self.trip.index * self.of.pitch_planes

    def lowest_plane(self, ring: Ring, front: int) -> int:
        """The lowest plane that a slab from ``front`` on may touch in ``ring``."""
        if self.of.blocks is not None:
            return self.entering.start
        return 0 if self.of.resident else front - ring.high

    @cached_property
    def row_origin(self) -> int:
        """The row of the grid that lies in row 0 of the window's planes."""
        if self.of.blocks is not None:
            return self.intervals[ACROSS].stored.start
        if self.of.subgrid is not None:
            return self.of.stored.rows.start
        return self.of.strips.origin(self.trip, self.of.window_rows)

    @property
    def base(self) -> int:
        """Version of level 0 of the sweep for the choice of rings.

        Levels of a streamed sweep are counted from its start; a resident field keeps its place
        between sweeps, so its levels are counted from the start of the run.
        """
        return self.trip.done if self.of.resident else 0

    @property
    def counted(self) -> Box:
        """The planes and rows whose cells count: what others compute as well, once."""
        planes, rows = self.intervals
        if planes.shrinks or rows.shrinks:
            return Box(self.of.streamed(planes.cells), rows.cells)
        return Box(*map(range, self.extents))
