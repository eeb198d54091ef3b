"""The plan: a frozen value that says which bytes move when, before any byte moves."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import takewhile
from typing import Any

import msgspec
import numpy as np

from outgrid.plan.blocks import Blocks
from outgrid.plan.border import Border, span
from outgrid.plan.explain import explain
from outgrid.plan.skew import Skew
from outgrid.plan.strips import Strips
from outgrid.plan.subgrid import Box, Subgrid
from outgrid.plan.trip import Point, Span, Trip, Trips, mirrored
from outgrid.plan.wrap import Wrap
from outgrid.purposes import PASSING_TIERS

# A disk that is busy for minutes, beside cores that are, moves less than in a probe of seconds:
# plans are chosen as if transfers took so much longer.
SUSTAINED = 1.7


@dataclass(frozen=True, slots=True)
class Ring:
    """Planes of one field resident in the window; plane Z of the stream lives in slot Z mod planes.

    ``low`` and ``high`` are the front positions, relative to a plane, of its first and last touch.
    """

    field: str
    index: int
    planes: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Arrival:
    """A time level of a field that enters the window: planes with ``Z + lead < F1`` must be in.

    ``level`` is 0 or -1. A constant field arrives in level 0 of ring 0 in every sweep. Of a strip
    [low, high) the rows up to ``high - row_lead`` must be in.
    """

    field: str
    level: int
    lead: int
    constant: bool
    row_lead: int = 0


@dataclass(frozen=True, slots=True)
class Departure:
    """A time level of a field that leaves: version ``depth + level`` of the sweep.

    ``shift`` is that of the stage that writes the field, ``rise`` its shift along an inward face;
    ``row_shift`` and ``row_rise`` are the same along the rows. ``lead`` and ``row_lead`` are those
    of the field's arrival.
    """

    field: str
    level: int
    shift: int
    lead: int
    row_lead: int = 0
    rise: int = 0
    row_shift: int = 0
    row_rise: int = 0

    def lag(self, depth: int, skew: int) -> int:
        """Planes with ``Z + lag < F1`` are final once the slab that ends at F1 is done.

        A sweep of one step passes its arrived level on: it cannot leave before it came.
        """
        return max(self.lead, skew * (depth + self.level) + self.shift)

    def first(self, depth: int, face: int) -> int:
        """The first plane of the level above an inward face that begins at plane 0."""
        version = depth + self.level
        return face * version + self.rise if version > 0 else 0

    def row_lag(self, depth: int, fall: Skew) -> int:
        """Rows by which those of a strip that leave lie below its own, where its ends fall."""
        version = depth + self.level
        return fall.per_step * version + self.row_shift if version > 0 else self.row_lead

    def row_first(self, depth: int, rise: Skew) -> int:
        """Rows by which they lie above an end of a strip that rises."""
        version = depth + self.level
        return rise.per_step * version + self.row_rise if version > 0 else 0


@dataclass(frozen=True, slots=True)
class Layout:
    """How a plane lies in the window. Rows are ``row_stride_bytes`` apart, planes ``pitch_bytes``.

    That is said of fields that are kept in the type that is computed in; those ``apart`` have sizes
    of their own, with as many cells from row to row.

    ``rows`` are those of the grid, of which the window holds ``window_rows`` at a time.

    ``staged`` planes pass through a bounce buffer because the file's rows or planes do not fall
    on the boundaries that direct I/O and whole vectors need. It is said of all fields if it holds
    for any.
    """

    rows: int
    row_bytes: int
    window_rows: int
    row_stride_bytes: int
    pitch_bytes: int
    staged: bool
    apart: tuple[Apart, ...] = ()

    def of(self, field: str) -> Layout | Apart:
        """Bytes of the rows of a field, and from row to row and plane to plane."""
        return next((each for each in self.apart if each.field == field), self)


@dataclass(frozen=True, slots=True)
class Apart:
    """How a field lies in the window that is kept in a ``dtype`` of its own; see `Layout`."""

    field: str
    dtype: str
    row_bytes: int
    row_stride_bytes: int
    pitch_bytes: int


@dataclass(frozen=True, slots=True)
class Tile:
    """Order of the updates inside a slab.

    ``level``: level after level over the whole slab. ``diamond``: within diamonds of rows (of
    columns in two dimensions) and levels, through which the front moves ``planes`` planes at a
    time. ``rows`` is the height of a block (level; 0: the whole plane) or the width of a diamond.
    ``columns`` is the length of a block, or of the parts of a diamond in 3-D (0: whole rows).
    There a step of the front goes through the levels of ``band`` rows after the other (0: of all).
    """

    order: str
    rows: int
    planes: int
    columns: int = 0
    band: int = 0


@dataclass(frozen=True, slots=True)
class DeviceLevel:
    """The window lies on a device, of whose ``memory_bytes`` the plan takes ``used_bytes``.

    Transfers pass through ``parts`` pieces of ``part_bytes`` in the memory of the process.
    """

    name: str
    memory_bytes: int
    used_bytes: int
    parts: int
    part_bytes: int

    @property
    def host_bytes(self) -> int:
        """Memory of the process that transfers pass through."""
        return self.parts * self.part_bytes


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the cost model expects. Seconds exclude the initial fill."""

    seconds: float
    compute_seconds: float
    transfer_seconds: float
    updates_per_second: float
    bound_by: str
    exchange_seconds: float = 0.0
    copy_seconds: float = 0.0
    wait_seconds: float = 0.0

    @property
    def sustained_seconds(self) -> float:
        """What plans are chosen by: with a disk that moves less when it is busy for minutes.

        Ranks that wait do so for what goes through the disk, too.
        """
        moving = self.transfer_seconds + self.wait_seconds
        waiting = (SUSTAINED - 1) * self.wait_seconds
        return max(self.seconds + waiting, SUSTAINED * moving)

    def after(self, seconds: float) -> Prediction:
        """The same with so many seconds more, in which nothing is computed or moved."""
        return replace(self, seconds=self.seconds + seconds)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that an executor needs to know, in bytes, planes and seconds.

    ``depths`` holds the steps of each sweep. Sweep p reads state p and writes state p + 1, in one
    trip through the window or, cut into strips, in several; plane z of trip i is plane
    ``i * pitch_planes + z`` of the stream. A ``resident`` plan holds whole fields: planes arrive
    in the first sweep and leave in the last. ``tier`` is where the fields live: "direct", "mmap",
    "swap" or "remote" (of which ``keep`` "disk" keeps a copy), or "memory" for resident ones; a
    resident plan of tier "mmap" or "swap" works in place, in rings that may be larger than memory,
    of which ``held_bytes`` are in use at a time. Where there are ``blocks``, of the scheme
    ``overlapped``, each of them is a trip and has the whole window to itself. ``pin`` keeps each
    thread on one processor.

    A state is made durable bit by bit, every ``commit_planes`` planes (0: only as a whole; planes
    of strips and blocks count one after the other), that of a resident grid every ``commit_sweeps``
    sweeps (0: at the end). A plan may ``begin`` at a point within its first sweep. An inward face
    then leans by ``face`` planes per step, with ``face_shifts`` for the stages: what it
    needs of state 0 begins so much lower. Every sweep begins so where there are ``wraps``, one for
    each depth: the grid is periodic along the streamed axis, and the first planes come round again
    at the end, by way of a seam unless they are resident. Where strips go round a circle, ``turns``
    are the same for rows; ``stairs`` are what each strip leaves to the next one, in rows that are
    counted downwards from their border.

    With a ``device`` the window lies in its memory, and nothing of it in that of the process.

    The plan of one rank of several is about its ``subgrid``: planes and rows keep their numbers in
    the whole grid, the rank's files hold those that it owns and a halo. A ``downward`` stream comes
    to the last plane first and counts planes from there: so do trips, and all that is said of the
    front. Where its subgrid has ``seams``, ``borders`` are its cuts, one for each of them and each
    depth.
    """

    problem_digest: str
    stencil: str
    scheme: str
    shape: tuple[int, ...]
    dtype: str
    depths: tuple[int, ...]
    slab_planes: int
    skew: int
    shifts: tuple[int, ...]
    pitch_planes: int
    strips: Strips
    resident: bool
    rings: tuple[Ring, ...]
    arrivals: tuple[Arrival, ...]
    departures: tuple[Departure, ...]
    layout: Layout
    tile: Tile
    threads: int
    memory_bytes: int
    fixed_bytes: int
    window_bytes: int
    transfer_bytes: int
    disk_bytes: int
    read_bytes: int
    written_bytes: int
    fill_bytes: int
    updates: int
    flops: int
    prediction: Prediction
    notes: tuple[str, ...] = ()
    commit_planes: int = 0
    commit_sweeps: int = 0
    face: int = 0
    face_shifts: tuple[int, ...] = ()
    begin: Point = field(default_factory=Point)
    wraps: tuple[Wrap, ...] = ()
    turns: tuple[Wrap, ...] = ()
    stairs: tuple[Wrap, ...] = ()
    pin: bool = False
    tier: str = "direct"
    keep: str = "none"
    held_bytes: int = 0
    exported_bytes: int = 0
    snapshot_bytes: int = 0
    endurance_bytes: int = 0
    blocks: Blocks | None = None
    subgrid: Subgrid | None = None
    sent_bytes: int = 0
    received_bytes: int = 0
    exchange_bytes: int = 0
    device: DeviceLevel | None = None
    borders: tuple[Border, ...] = ()

    @property
    def depth(self) -> int:
        """Steps of the deepest sweep."""
        return max(self.depths, default=0)

    @property
    def sweeps(self) -> int:
        """Trips of the grid through the window."""
        return len(self.depths)

    @property
    def in_place(self) -> bool:
        """Whether sweeps work right in the memory that the fields live in, beyond the limit."""
        return self.resident and self.tier != "memory"

    @property
    def flash_written_bytes(self) -> int:
        """What goes to the device; at most so much where the system decides what it writes.

        A sweep in place changes a ring of each evolving field in each of its steps: in a file, all
        of that is written out sooner or later.
        """
        changed = 0
        if self.in_place:
            for field in {departure.field for departure in self.departures}:
                rings = self.ring_count(field)
                levels = sum(min(depth, rings) for depth in self.depths)
                changed += levels * self.planes * self.plane_bytes(field)
        beside = self.fill_bytes + self.exported_bytes + self.snapshot_bytes
        return self.written_bytes + beside + changed

    @property
    def store_tier(self) -> str:
        """The tier of the stores that planes come from and go to."""
        anonymous = self.tier == "memory" or (self.tier == "swap" and self.resident)
        return "direct" if anonymous else self.tier

    @property
    def outlives(self) -> bool:
        """Whether what is put survives the process: not where fields are in memory alone."""
        return self.tier not in PASSING_TIERS or self.resident or self.keep == "disk"

    @property
    def planes(self) -> int:
        """Planes of the grid: the extent of axis 0."""
        return self.shape[0]

    @property
    def columns(self) -> int:
        """Cells from row to row in the window, the same for all fields."""
        return self.layout.row_stride_bytes // np.dtype(self.dtype).itemsize

    def dtype_of(self, field: str) -> str:
        """The type that a field is kept in."""
        return next((each.dtype for each in self.layout.apart if each.field == field), self.dtype)

    def plane_bytes(self, field: str) -> int:
        """Bytes of one plane of a field on disk."""
        return len(self.stored_rows) * self.layout.of(field).row_bytes

    @property
    def result_bytes(self) -> int:
        """Bytes of all levels that sweeps leave."""
        return sum(self.planes * self.plane_bytes(each.field) for each in self.departures)

    @property
    def working_bytes(self) -> int:
        """Bytes of two states of what is updated, and of all coefficients."""
        constants = (each.field for each in self.arrivals if each.constant)
        return 2 * self.result_bytes + sum(map(self.plane_bytes, constants)) * self.planes

    @property
    def predicted_seconds(self) -> float:
        """Expected time of the sweeps."""
        return self.prediction.seconds

    @property
    def slabs(self) -> int:
        """Number of slabs of the whole stream."""
        if not self.depths:
            return 0
        if self.blocks is not None:
            each = [min(5, 2 * depth) for depth in self.depths]
            return self.blocks.count() * sum(each) - self.begin.part * each[0]
        last = self.trips[-1]
        return -(-(last.index * self.pitch_planes + self.front_end(last)) // self.slab_planes)

    def wrap(self, depth: int) -> Wrap | None:
        """What comes round again in sweeps of ``depth`` steps."""
        return next((wrap for wrap in self.wraps if wrap.depth == depth), None)

    def extent(self, trip: Trip) -> int:
        """Planes of a trip: those of the grid, and the first ones again where they come round."""
        wrap = self.wrap(trip.depth)
        return self.planes + (wrap.planes if wrap is not None else 0)

    def row_extent(self, trip: Trip) -> int:
        """Rows of a trip: those of the grid, and the first ones again where they come round."""
        return self.strips.extent(trip.depth) if self.turns else self.layout.rows

    def turn(self, depth: int) -> Wrap | None:
        """The rows that come round again in the last strip of sweeps of ``depth`` steps."""
        return next((turn for turn in self.turns if turn.depth == depth), None)

    def covered(self, trip: Trip, step: int, stage: int) -> range:
        """The planes that a stage of a step may update."""
        return trip.planes.at(step, self.extent(trip), stage)

    def front_end(self, trip: Trip) -> int:
        """The front position at which a trip has read all planes and made all of its updates."""
        lead = max(arrival.lead for arrival in self.arrivals)
        # A halo that shrinks from beyond the end of the grid may reach farthest in between.
        shrinks = self.subgrid is not None
        steps = range(1, trip.depth + 1) if shrinks else (1, trip.depth)
        return max(
            self.entering(trip).stop + lead,
            *(
                self.covered(trip, step, stage).stop + self.skew * step + shift
                for step in steps
                for stage, shift in enumerate(self.shifts)
            ),
        )

    @property
    def downward(self) -> bool:
        """Whether the stream begins with the last plane of the grid."""
        return self.subgrid is not None and self.subgrid.downward

    def streamed(self, planes: range) -> range:
        """Planes of the grid as the stream counts them; or the other way round."""
        return mirrored(planes, self.planes) if self.downward else planes

    @property
    def owned(self) -> range:
        """The planes that this plan carries from state to state."""
        return range(self.planes) if self.subgrid is None else self.subgrid.owned.planes

    @property
    def owned_rows(self) -> range:
        """The rows of these planes that it carries."""
        return range(self.layout.rows) if self.subgrid is None else self.subgrid.owned.rows

    @property
    def part(self) -> tuple[range, ...]:
        """The planes, and in three dimensions their rows, that it carries."""
        return (self.owned, self.owned_rows)[: len(self.shape) - 1]

    def held(self, depth: int) -> Box:
        """What a sweep of ``depth`` steps begins with."""
        if self.subgrid is None:
            return Box(range(self.planes), range(self.layout.rows))
        if not self.subgrid.seams:
            return self.subgrid.held(depth)
        constant = any(arrival.constant for arrival in self.arrivals)
        planes = self.streamed(self._reached(depth)) if constant else self.owned
        return Box(planes, self.owned_rows)

    def evolving(self, depth: int) -> Box:
        """What a sweep of ``depth`` steps reads of the levels that evolve, from their files."""
        seams = self.subgrid is not None and self.subgrid.seams
        return Box(self.owned, self.owned_rows) if seams else self.held(depth)

    def _reached(self, depth: int) -> range:
        """The planes of the stream that a sweep touches of a rank that has seams."""
        owned = self.streamed(self.owned)
        ends = [owned, *(range(*each.touched) for each in self.cuts(depth))]
        return range(min(each.start for each in ends), max(each.stop for each in ends))

    def cuts(self, depth: int) -> tuple[Border, ...]:
        """The cuts at which a sweep of ``depth`` steps leaves or takes seams."""
        return tuple(each for each in self.borders if each.depth == depth)

    @property
    def upright(self) -> bool:
        """Whether seams are left at cuts, and not taken there."""
        return self.subgrid is None or self.subgrid.upright

    @property
    def stored(self) -> range:
        """The planes that the files of a level hold."""
        return self.held(self.depth).planes

    @property
    def stored_rows(self) -> range:
        """The rows of these planes that the files hold."""
        return self.held(self.depth).rows

    @property
    def stored_apart(self) -> dict[str, range]:
        """The rows that lie in files of their own: what is owned, and halos on both sides of it.

        By what is added to the name of the file; "" are those that are owned.
        """
        held, owned = self.stored_rows, self.owned_rows
        halos = range(held.start, owned.start), range(owned.stop, held.stop)
        found = {"below": halos[0], "": owned, "above": halos[1]}
        return {name: rows for name, rows in found.items() if rows}

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape of the files of a level."""
        held = len(self.stored), len(self.stored_rows)
        return (*held[: len(self.shape) - 1], self.shape[-1])

    def entering(self, trip: Trip) -> range:
        """The planes that a trip reads."""
        if self.subgrid is None:
            return range(max(0, trip.planes.low), self.planes)
        if self.subgrid.seams:
            return self._reached(trip.depth)
        return self.streamed(self.subgrid.held(trip.depth).planes)

    def arriving_planes(self, arrival: Arrival, trip: Trip) -> range:
        """Planes of a level that come from its file in ``trip``, before any of them come again."""
        if self.subgrid is None or arrival.constant:
            return self.entering(trip)
        return self.streamed(self.evolving(trip.depth).planes)

    def touched(self, trip: Trip) -> range:
        """The planes that a trip may touch, those that come round again included."""
        return range(self.extent(trip)) if self.subgrid is None else self.entering(trip)

    def lean(self, depth: int) -> int:
        """Planes by which what a face needs begins below what it leaves, ``depth`` steps later."""
        return self.face * depth + max(self.face_shifts, default=0)

    def put_from(self, trip: Trip) -> int:
        """The plane below which all that a trip leaves was there before."""
        return self.begin.planes if trip.index == 0 else 0

    def put_planes(self, departure: Departure, trip: Trip) -> range:
        """The planes of a trip in which a level leaves."""
        begin = self.put_from(trip)
        if not self.wraps:
            owned = self.streamed(self.owned)
            low, high = max(begin, owned.start), owned.stop
            for each in self.cuts(trip.depth) if self.upright else ():
                first, last = each.returned[self.departures.index(departure)]
                low, high = (low, min(high, first)) if each.above else (max(low, last), high)
            return range(low, high)
        first = departure.first(trip.depth, self.face)
        return range(max(begin, first), first + self.planes)

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
    def first_slab(self) -> int:
        """The slab that the stream begins with."""
        return self.entering(self.trips[0]).start // self.slab_planes if self.depths else 0

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

    def ring(self, field: str, index: int) -> Ring:
        """The ring that holds versions ``index`` modulo the number of rings of ``field``."""
        return next(r for r in self.rings if r.field == field and r.index == index)

    def ring_count(self, field: str) -> int:
        """Number of rings of ``field``."""
        return sum(1 for ring in self.rings if ring.field == field)

    def slot_origin(self, trip: Trip) -> int:
        """What is added to a plane of ``trip`` before it is taken modulo a ring's planes.

        A streamed trip goes on where the one before it ended; a resident field keeps its place.
        """
        if self.blocks is not None:
            return -trip.planes.at(0, self.planes).start
        return 0 if self.resident else trip.index * self.pitch_planes

    def lowest_plane(self, ring: Ring, trip: Trip, front: int) -> int:
        """The lowest plane of ``trip`` that a slab from ``front`` on may touch in ``ring``."""
        if self.blocks is not None:
            return trip.planes.at(0, self.planes).start
        return 0 if self.resident else front - ring.high

    def row_origin(self, trip: Trip) -> int:
        """The row of the grid that lies in row 0 of the window's planes during ``trip``."""
        if self.blocks is not None:
            return trip.rows.at(0, self.layout.rows).start
        if self.subgrid is not None:
            return self.stored_rows.start
        return self.strips.origin(trip, self.layout.window_rows)

    def arriving(self, arrival: Arrival, trip: Trip) -> range:
        """Rows of a level that come from its file in ``trip``."""
        if self.subgrid is not None:
            return self.held(trip.depth).rows
        rows = self.strips.constant if arrival.constant else self.strips.owned
        return rows(trip, arrival.row_lead)

    def leaving(self, departure: Departure, trip: Trip) -> range:
        """Rows of a level that go to its file in ``trip``."""
        if self.subgrid is not None:
            return self.owned_rows
        lag = departure.row_lag(trip.depth, self.strips.fall)
        return self.strips.owned(trip, lag, departure.row_first(trip.depth, self.strips.rise))

    def seam(self, ring: Ring, depth: int) -> tuple[int, int]:
        """(most, least) rows below a border of strips between which ``ring`` holds a seam."""
        left = (stair for each in self.stairs if each.depth == depth for stair in each.seams)
        found = ((s.high, s.low) for s in left if (s.field, s.index) == (ring.field, ring.index))
        return next(found, (0, 0))

    def left(self, trip: Trip) -> Iterator[tuple[Ring, range, range]]:
        """(ring, planes, rows) of what a trip leaves to its own end, where planes come round."""
        wrap = self.wrap(trip.depth)
        if wrap is None or self.resident:
            return
        seams = {(ring.field, ring.index): self.seam(ring, trip.depth) for ring in self.rings}
        for stair, planes, rows in wrap.left(trip, self.strips, seams, self.turn(trip.depth)):
            yield self.ring(stair.field, stair.index), planes, rows

    @property
    def seam_places(self) -> int:
        """Places of the seams of strips: one, or two where a restart may need the one before."""
        return 2 if self.commit_planes and not self.wraps else 1

    @property
    def turn_place(self) -> int:
        """The place of what closes a circle of strips."""
        return 2 if self.wraps else self.seam_places

    @property
    def seams(self) -> dict[tuple[str, int, int, int], tuple[int, ...]]:
        """Shapes of the places of all seams; none for whole planes.

        By field, ring, depth of the sweep and number of the place. Record z of a place has a row
        for each row of plane z that a strip leaves to the next, or that comes over a border: place
        0 is for the one below, 1 for the one above.
        """
        found: dict[tuple[str, int, int, int], tuple[int, ...]] = {}
        for each in self.borders if not self.upright else ():
            for stair in each.seams:
                shape = (stair.high - stair.low, len(self.owned_rows), self.shape[-1])
                found[stair.field, stair.index, each.depth, int(each.above)] = shape
        for wrap in () if self.resident else self.wraps:
            cut = self.strips.count(wrap.depth) > 1
            for stair in wrap.seams:
                rows = self.layout.window_rows if cut else self.layout.rows
                shape = (stair.high, rows, self.shape[-1])
                found[stair.field, stair.index, wrap.depth, 0] = shape
        for depth in sorted({each for each in self.depths if self.strips.count(each) > 1}):
            for ring in self.rings:
                most, least = self.seam(ring, depth)
                places = (1,) if self.wraps else range(self.seam_places)
                for place in places if most > least else ():
                    shape = (self.planes, most - least, self.shape[-1])
                    found[ring.field, ring.index, depth, place] = shape
        for turn in self.turns:
            for stair in turn.seams:
                shape = (self.planes, stair.high - stair.low, self.shape[-1])
                found[stair.field, stair.index, turn.depth, self.turn_place] = shape
        return found

    def base(self, trip: Trip) -> int:
        """Version of level 0 of a trip's sweep for the choice of rings.

        Levels of a streamed sweep are counted from its start; a resident field keeps its place
        between sweeps, so its levels are counted from the start of the run.
        """
        return trip.done if self.resident else 0

    @property
    def trips(self) -> Trips:
        """All passages of a block, a strip or the whole grid through the window, in order."""
        return Trips(self.depths, self.parts, self._spans, self.begin.part)

    def _spans(self, sweep: int, part: int, depth: int) -> tuple[Span, Span]:
        """What a trip covers.

        A first trip that begins inside the grid has an inward face, and so have all that wrap.
        """
        if self.subgrid is not None:
            planes, rows = self.subgrid.planes, self.subgrid.rows
            planes = planes.mirrored() if self.downward else planes
            if self.subgrid.seams:
                faces = Skew(self.skew, self.shifts), Skew(self.face, self.face_shifts)
                return span(planes, self.upright, *faces), rows.span(depth)
            return planes.span(depth), rows.span(depth)
        if self.blocks is not None:
            return self.blocks.spans(depth, part)
        face, rows = self.face if self.wraps else 0, self.strips.span(depth, part)
        along = Span(0, self.planes, face, face, self.face_shifts if self.wraps else ())
        if self.begin.planes and (sweep, part) == (0, self.begin.part):
            low = self.begin.planes - self.lean(depth)
            along = replace(along, low=low, rise=self.face, shifts=self.face_shifts)
        return along, rows

    @property
    def row_updates(self) -> int:
        """Rows of planes times steps that the program updates, redundant ones included."""
        trips = self.trips
        if self.subgrid is not None:  # a trip for each sweep, and those of a depth are alike
            return sum(
                times * self._trip_updates(trips[self.depths.index(depth)])
                for depth, times in Counter(self.depths).items()
            )
        apart = self.begin.begun
        begun = takewhile(lambda trip: trip.sweep < apart, trips)
        rows = sum(self._trip_updates(trip) for trip in begun)
        if self.blocks is not None:
            return rows + sum(self.blocks.updated_rows(depth) for depth in self.depths[apart:])
        return rows + self.planes * self.layout.rows * sum(self.depths[apart:])

    def _trip_updates(self, trip: Trip) -> int:
        return sum(
            len(self.covered(trip, step, 0)) * len(trip.rows.at(step, self.row_extent(trip)))
            for step in range(1, trip.depth + 1)
        )

    @property
    def redundancy(self) -> float:
        """Updates that are made more than once, as a share of those that are needed."""
        if self.subgrid is not None and self.subgrid.seams:
            return 0.0  # what an inverted rank makes beyond its planes nobody else does
        needed = len(self.owned) * len(self.owned_rows) * sum(self.depths)
        return max(0.0, self.row_updates / needed - 1) if needed else 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form, with the derived figures that readers of a plan look for."""
        found = asdict(self)
        found |= {
            "depth": self.depth,
            "sweeps": self.sweeps,
            "slabs": self.slabs,
            "redundancy": self.redundancy,
            "predicted_seconds": self.predicted_seconds,
            "flash_written_terabytes": self.flash_written_bytes / 1e12,
        }
        return found

    def explain(self) -> str:
        """The plan in words and figures."""
        return explain(self.to_dict())

    def __str__(self) -> str:
        """What `explain` says."""
        return self.explain()

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Plan:
        """Inverse of `to_dict`. Raises msgspec.ValidationError for what is no plan."""
        return msgspec.convert({name: found[name] for name in cls.__dataclass_fields__}, cls)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON form."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
