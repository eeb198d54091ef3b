"""The schedule: which planes and rows each trip reads, updates and leaves. Integers alone.

Along each axis a trip covers an interval whose ends are walls, lean or shrink; see
`plan.schedule.interval`. A schedule says which (`Cutting.covered`), `Passage` what a trip reads,
updates and leaves then, and `plan.schedule.share` what it leaves in seams and finds there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate, takewhile

import msgspec
from msgspec.structs import replace

from outgrid.plan.schedule.blocks import Blocks
from outgrid.plan.schedule.cutting import Cutting
from outgrid.plan.schedule.domain import Domain
from outgrid.plan.schedule.interval import ACROSS, AXES, STREAMED, Interval
from outgrid.plan.schedule.places import SeamPlaces
from outgrid.plan.schedule.rings import (
    Arrival,
    Bands,
    Departure,
    Ring,
    numbered_plane,
    parts_within,
    planes_below,
)
from outgrid.plan.schedule.seam import Seam, SeamKey
from outgrid.plan.schedule.skew import UPRIGHT, Skew
from outgrid.plan.schedule.states import States
from outgrid.plan.schedule.stored import Stored
from outgrid.plan.schedule.strips import Strips
from outgrid.plan.schedule.subgrid import Box, Exchanged, Subgrid
from outgrid.plan.schedule.trip import Point, Span, Trip, Trips, remember


class Schedule(msgspec.Struct, frozen=True, kw_only=True, dict=True):
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
    begin: Point = msgspec.field(default_factory=Point)
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
        return self.domain.planes

    @property
    def rows(self) -> int:
        """Rows of a plane of the grid; 1 in 2-D."""
        return self.domain.rows

    @cached_property
    def domain(self) -> Domain:
        """The grid, what of it is owned, and the way in which planes are streamed."""
        return Domain.of(self.shape, self.subgrid)

    @cached_property
    def cutting(self) -> Cutting:
        """How sweeps are cut into trips, and the seams that lie at the cuts."""
        return Cutting(self.domain, self.strips, self.blocks, self.seams)

    @cached_property
    def stored(self) -> Stored:
        """The planes and rows of levels that lie in files."""
        constant = any(arrival.constant for arrival in self.arrivals)
        return Stored(self.cutting, self.depth, constant)

    @cached_property
    def seam_places(self) -> SeamPlaces:
        """Where seams are kept."""
        return SeamPlaces(self.cutting, take_turns=bool(self.commit_planes))

    @property
    def places(self) -> dict[SeamKey, tuple[int, ...]]:
        """Shapes of the places of all seams that are kept; none for whole planes."""
        return {} if self.resident else self.seam_places.shapes(self.window_rows)

    @cached_property
    def states(self) -> States:
        """The states that are written to files."""
        apart = (self.commit_sweeps or max(1, self.sweeps)) if self.resident else 1
        return States(self.sweeps, apart)

    @property
    def kept(self) -> tuple[Arrival, ...]:
        """The levels that lie in files of the run."""
        return tuple(arrival for arrival in self.arrivals if not arrival.given)

    @property
    def slabs(self) -> int:
        """Number of slabs of the whole stream."""
        if not self.depths:
            return 0
        if self.blocks is not None:
            advances = [min(5, 2 * depth) for depth in self.depths]
            return self.blocks.count() * sum(advances) - self.begin.part * advances[0]
        last = self.passage(self.trips[-1])
        return -(-(last.trip.index * self.pitch_planes + last.front_end) // self.slab_planes)

    @property
    def first_slab(self) -> int:
        """The slab that the stream begins with."""
        if not self.depths:
            return 0
        return self.passage(self.trips[0]).entering.start // self.slab_planes

    @property
    def cut(self) -> tuple[int, ...]:
        """How a sweep is cut: (), the height of its strips, or (planes, rows) of its blocks."""
        return self.cutting.sizes(self.depth)

    @property
    def whole_planes(self) -> bool:
        """Whether planes pass through the window as a whole, in neither strips nor blocks."""
        return self.blocks is None and self.strips.count(self.depth) == 1

    @property
    def window_rows(self) -> int:
        """Rows of a plane that the window holds."""
        if self.blocks is not None:
            return self.blocks.held(self.depth)[1]
        if self.strips.count(self.depth) > 1:
            return min(self.rows, self.strips.window_rows(self.depth))
        return len(self.stored.rows)

    @cached_property
    def ring_of(self) -> dict[tuple[str, int], Ring]:
        """The rings, by field and index."""
        return {(ring.field, ring.index): ring for ring in self.rings}

    def bands(self, field: str) -> Bands | None:
        """The planes that a field exists in, if these are not all."""
        ring = self.ring_of.get((field, 0))
        return ring.within if ring is not None else None

    def planes_of(self, field: str) -> int:
        """Planes of the grid that a field exists in."""
        return sum(map(len, parts_within(self.bands(field), range(self.planes))))

    def row_bands(self, field: str) -> Bands | None:
        """The rows of a field that are read and kept, if these are not all."""
        ring = self.ring_of.get((field, 0))
        return ring.rows if ring is not None else None

    def column_bands(self, field: str) -> Bands | None:
        """The columns of a field that are kept, if these are not all."""
        ring = self.ring_of.get((field, 0))
        return ring.columns if ring is not None else None

    def plane_at(self, ring: Ring, place: int) -> int:
        """The plane of the stream that has a number, from 0 on; see `Passage.places`."""
        if ring.within is None:
            return place
        trip, number = divmod(place, self.planes_of(ring.field))
        return trip * self.pitch_planes + numbered_plane(ring.within, number)

    def ring_count(self, field: str) -> int:
        """Number of rings of ``field``."""
        return sum(1 for ring in self.rings if ring.field == field)

    def exchanged(self, sweep: int) -> tuple[Exchanged, ...]:
        """What goes between ranks before ``sweep`` where they hold halos; none after the last."""
        if sweep >= self.sweeps:
            return ()
        return tuple(self.domain.subgrid.exchanged(self.depths[sweep]))

    def lean(self, depth: int) -> int:
        """Planes by which what a face needs begins below what it leaves, ``depth`` steps later."""
        return self.face.per_step * depth + max(self.face.shifts, default=0)

    def made(self, step: int, stage: int) -> range:
        """The planes of the grid that a stage of a step, counted through all sweeps, covers.

        With seams each plane is made by one rank, which need not own it. Where a grid closes along
        its planes, those that come again have numbers beyond its end.
        """
        sweep = bisect_left(self._ends, step)
        depth = self.depths[sweep]
        interval = self.cutting.interval(STREAMED, depth)
        return self.domain.streamed(interval.covered(step - self._ends[sweep] + depth, stage))

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        """The last step of each sweep."""
        return tuple(accumulate(self.depths))

    @property
    def trips(self) -> Trips:
        """All passages of a block, a strip or the whole grid through the window, in order."""
        return Trips(self.depths, self.cutting.trips, self._spans, self.begin.part)

    @cached_property
    def _recent(self) -> dict[int, Passage]:
        return {}

    def passage(self, trip: Trip) -> Passage:
        """What a trip does; of the last few trips it is remembered."""
        known = self._recent.get(trip.index)
        if known is not None and (known.trip is trip or known.trip == trip):
            return known
        return remember(self._recent, trip.index, Passage(self, trip))

    def sweep(self, depth: int) -> Iterator[Passage]:
        """The passages of one sweep of ``depth`` steps."""
        for trip in Trips((depth,), self.cutting.trips, self._spans):
            yield Passage(self, trip)

    def _spans(self, sweep: int, part: int, depth: int) -> tuple[Span, Span]:
        """What a trip covers. A first trip that begins inside the grid has an inward face."""
        along, across = (self.cutting.covered(axis, depth, part).span for axis in AXES)
        if self.begin.planes and (sweep, part) == (0, self.begin.part):
            low = self.begin.planes - self.lean(depth)
            along = replace(along, low=low, rise=self.face.per_step, shifts=self.face.shifts)
        return along, across

    @property
    def row_updates(self) -> int:
        """Rows of planes times steps that the program updates, redundant ones included."""
        trips = self.trips
        if (
            self.subgrid is not None and self.blocks is None
        ):  # a trip for each sweep, and those of a depth are alike
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
        if not any(self.cutting.covered(axis, self.depth, 0).shrinks for axis in AXES):
            return 0.0  # what a taker makes beyond a cut nobody else does
        needed = self.domain.owned.count * sum(self.depths)
        return max(0.0, self.row_updates / needed - 1) if needed else 0.0


class Passage(msgspec.Struct, frozen=True, dict=True):
    """What a trip of a schedule ``of`` reads, updates and leaves; remembers what it derived."""

    of: Schedule
    trip: Trip

    @cached_property
    def intervals(self) -> tuple[Interval, Interval]:
        """What it covers of planes and rows."""
        planes, rows = (
            self.of.cutting.covered(axis, self.trip.depth, self.trip.part) for axis in AXES
        )
        return planes, rows

    @cached_property
    def periods(self) -> tuple[int, int]:
        """The planes, and rows, after which the first ones come again; 0 where they do not.

        Sweeps of one strip have whole circles of rows at once.
        """
        planes, rows = (
            extent if self.of.cutting.closing(self.trip.depth, axis) is not None else 0
            for axis, extent in enumerate(self.of.domain.extents)
        )
        return planes, rows

    @cached_property
    def around(self) -> tuple[int, int]:
        """The planes, and rows, that come again before the first one: so many numbers below 0."""
        planes, rows = (-interval.first for interval in self.intervals)
        return planes, rows

    @cached_property
    def extents(self) -> tuple[int, int]:
        """Planes and rows: those of the grid, and the first ones again where they come round."""
        planes, rows = self.intervals
        return planes.extent, rows.extent

    def covered(self, step: int, stage: int = 0) -> Box:
        """The planes and rows that a stage of a step may update."""
        (planes, rows), (before, below) = self.extents, (one.first for one in self.intervals)
        along = self.trip.planes.at(step, planes, stage, before)
        return Box(along, self.trip.rows.at(step, rows, stage, below))

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

    def row_updates_of(self, first: int, last: int, steps: range) -> int:
        """Those of some steps under front positions [first, last): slabs are many."""
        planes, rows, skew = self.trip.planes, self.trip.rows, self.of.skew
        (end, bottom), (begin, top) = self.extents, (one.first for one in self.intervals)
        below, above = planes.ends(0)
        upright = len(rows.at(0, bottom, 0, top)) if rows.rise == rows.fall == 0 else None
        total = 0
        for step in steps:
            back = skew.per_step * step + skew.shifts[0]
            low = max(begin, first - back, planes.low + planes.rise * step + below)
            high = min(end, last - back, planes.high + planes.fall * step + above)
            if low < high:
                total += (high - low) * (upright or len(rows.at(step, bottom, 0, top)))
        return total

    @cached_property
    def entering(self) -> range:
        """The planes that are read; of a first trip that goes on, those that its face needs."""
        planes = self.intervals[STREAMED].read
        if not self.put_from:
            return planes
        return range(max(planes.start, self.put_from - self.of.lean(self.trip.depth)), planes.stop)

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
        closing = self.of.cutting.closing(self.trip.depth, STREAMED)
        # What is resident is still there.
        return closing.reread(arrival.field) if closing is not None and not self.of.resident else 0

    @property
    def put_from(self) -> int:
        """The plane below which all that the trip leaves was there before."""
        return self.of.begin.planes if self.trip.index == 0 else 0

    def leaving(self, departure: Departure) -> Box:
        """Rows of a level that go to its file."""
        version = self.trip.depth + departure.level
        planes, rows = (interval.leaving(departure.field, version) for interval in self.intervals)
        return Box(range(max(planes.start, self.put_from), planes.stop), rows)

    @cached_property
    def slot_origin(self) -> int:
        """What is added to a plane of the trip before it is taken modulo a ring's planes.

        A streamed trip goes on where the one before it ended; a resident field keeps its place.
        """
        if self.of.blocks is not None:
            return -self.entering.start
        return 0 if self.of.resident else self.trip.index * self.of.pitch_planes

    def places(self, ring: Ring, planes: range) -> range:
        """The numbers of planes in the stream, of which a ring keeps the last few.

        Of one with planes in which its field does not exist all others are counted.
        """
        if ring.within is None:
            return range(self.slot_origin + planes.start, self.slot_origin + planes.stop)
        origin = self.trip.index * self.of.planes_of(ring.field)
        first, end = (planes_below(ring.within, plane) for plane in (planes.start, planes.stop))
        return range(origin + first, origin + end)

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
            return Box(self.of.domain.streamed(planes.cells), rows.cells)
        return Box(*map(range, self.extents))
