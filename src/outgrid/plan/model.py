"""The plan: a frozen value that says which bytes move when, before any byte moves."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any

import msgspec

from outgrid.plan.blocks import Blocks
from outgrid.plan.explain import explain
from outgrid.plan.strips import Strips
from outgrid.plan.trip import Span, Trip


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

    ``shift`` is that of the stage that writes the field, ``lead`` and ``row_lead`` are those of the
    field's arrival.
    """

    field: str
    level: int
    shift: int
    lead: int
    row_lead: int = 0

    def lag(self, depth: int, skew: int) -> int:
        """Planes with ``Z + lag < F1`` are final once the slab that ends at F1 is done.

        A sweep of one step passes its arrived level on: it cannot leave before it came.
        """
        return max(self.lead, skew * (depth + self.level) + self.shift)

    def row_lag(self, depth: int, row_skew: int) -> int:
        """The same along the rows: those of a strip that leave lie so much lower."""
        return max(self.row_lead, row_skew * (depth + self.level))


@dataclass(frozen=True, slots=True)
class Layout:
    """How a plane lies in the window. Rows are ``row_stride_bytes`` apart, planes ``pitch_bytes``.

    ``rows`` are those of the grid, of which the window holds ``window_rows`` at a time.

    ``staged`` planes pass through a bounce buffer because the file's rows or planes do not fall
    on the boundaries that direct I/O and whole vectors need.
    """

    rows: int
    row_bytes: int
    window_rows: int
    row_stride_bytes: int
    pitch_bytes: int
    staged: bool


@dataclass(frozen=True, slots=True)
class Tile:
    """Order of the updates inside a slab.

    ``level``: level after level over the whole slab. ``diamond``: within diamonds of rows (of
    columns in two dimensions) and levels, through which the front moves ``planes`` planes at a
    time. ``rows`` is the height of a block (level; 0: the whole plane) or the width of a diamond.
    ``columns`` is the length of a block (0: whole rows), in level order only.
    """

    order: str
    rows: int
    planes: int
    columns: int = 0


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the cost model expects. Seconds exclude the initial fill."""

    seconds: float
    compute_seconds: float
    transfer_seconds: float
    updates_per_second: float
    bound_by: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that an executor needs to know, in bytes, planes and seconds.

    ``depths`` holds the steps of each sweep. Sweep p reads state p and writes state p + 1, in one
    trip through the window or, cut into strips, in several; plane z of trip i is plane
    ``i * pitch_planes + z`` of the stream. A ``resident`` plan holds whole fields: planes arrive
    in the first sweep and leave in the last. Where there are ``blocks``, of the scheme
    ``overlapped``, each of them is a trip and has the whole window to itself. ``pin`` keeps each
    thread on one processor.

    A state is made durable bit by bit, every ``commit_planes`` planes (0: only as a whole), that of
    a resident grid every ``commit_sweeps`` sweeps (0: at the end). A plan may begin within its
    first sweep: planes below ``begin_planes`` of state 1 are there already. An inward face then
    leans by ``face`` planes per step: what it needs of state 0 begins ``face * depth`` lower.
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
    begin_planes: int = 0
    pin: bool = False
    blocks: Blocks | None = None

    @property
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
    def plane_bytes(self) -> int:
        """Bytes of one plane of one field on disk."""
        return self.layout.rows * self.layout.row_bytes

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
            return self.blocks.count() * sum(min(5, 2 * depth) for depth in self.depths)
        trips = sum(self.strips.count(depth) for depth in self.depths)
        end = (trips - 1) * self.pitch_planes + self.planes
        end += self.skew * self.depths[-1] + max(self.shifts)
        return -(-end // self.slab_planes)

    def first_put(self, sweep: int) -> int:
        """The first plane that a sweep writes."""
        return self.begin_planes if sweep == 0 else 0

    @property
    def first_slab(self) -> int:
        """The slab that the stream begins with."""
        return self.trips[0].planes.low // self.slab_planes if self.depths else 0

    @property
    def kept(self) -> tuple[int, ...]:
        """After how many sweeps each state is written to its files, state 1 first.

        Streamed grids leave a state with every sweep. The files of a level take turns, state by
        state, so that none is written over the one before it.
        """
        every = (self.commit_sweeps or max(1, self.sweeps)) if self.resident else 1
        return tuple(range(self.sweeps, 0, -every))[::-1]

    def sweeps_until(self, state: int) -> int:
        """Sweeps that lead to a state; 0 for state 0."""
        return self.kept[state - 1] if state else 0

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
        return self.strips.origin(trip, self.layout.window_rows)

    def arriving(self, arrival: Arrival, trip: Trip) -> range:
        """Rows of a level that come from its file in ``trip``."""
        rows = self.strips.constant if arrival.constant else self.strips.owned
        return rows(trip, arrival.row_lead)

    def leaving(self, departure: Departure, trip: Trip) -> range:
        """Rows of a level that go to its file in ``trip``."""
        return self.strips.owned(trip, departure.row_lag(trip.depth, self.strips.skew))

    def seam(self, ring: Ring, depth: int) -> tuple[int, int]:
        """(most, least) rows below a border of strips between which ``ring`` holds a seam."""
        leads = {
            arrival.level: arrival.row_lead
            for arrival in self.arrivals
            if arrival.field == ring.field and not arrival.constant
        }
        return self.strips.seam(depth, leads, self.ring_count(ring.field), ring.index)

    @property
    def seams(self) -> dict[tuple[str, int], tuple[int, ...]]:
        """Shapes of the places of all seams, by field and ring; none for whole planes.

        Record z of a place has a row for each row of plane z that a strip leaves to the next.
        """
        cut = {depth for depth in self.depths if self.strips.count(depth) > 1}
        found: dict[tuple[str, int], tuple[int, ...]] = {}
        for ring in self.rings:
            rows = max(
                (most - least for most, least in (self.seam(ring, d) for d in cut)), default=0
            )
            if rows:
                found[ring.field, ring.index] = (self.planes, rows, self.shape[-1])
        return found

    def base(self, sweep: int) -> int:
        """Version of level 0 of ``sweep`` for the choice of rings.

        Levels of a streamed sweep are counted from its start; a resident field keeps its place
        between sweeps, so its levels are counted from the start of the run.
        """
        return sum(self.depths[:sweep]) if self.resident else 0

    @property
    def trips(self) -> tuple[Trip, ...]:
        """All passages of a block, a strip or the whole grid through the window, in order.

        A first sweep that begins inside the grid has an inward face.
        """
        if self.blocks is not None:
            return self.blocks.trips(self.depths)
        trips = self.strips.trips(self.depths, self.planes)
        if not self.begin_planes:
            return trips
        low = self.begin_planes - self.face * self.depths[0]
        face = Span(low, self.planes, rise=self.face)
        return (replace(trips[0], planes=face), *trips[1:])

    @property
    def row_updates(self) -> int:
        """Rows of planes times steps that the program updates, redundant ones included."""
        if self.blocks is not None:
            return sum(self.blocks.updated_rows(depth) for depth in self.depths)
        missing = sum(
            self.planes - len(trip.planes.at(step, self.planes))
            for trip in self.trips[:1]
            for step in range(1, trip.depth + 1)
        )
        return self.layout.rows * (self.planes * sum(self.depths) - missing)

    @property
    def redundancy(self) -> float:
        """Updates that are made more than once, as a share of those that are needed."""
        needed = self.planes * self.layout.rows * sum(self.depths)
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
            "flash_written_terabytes": (self.written_bytes + self.fill_bytes) / 1e12,
        }
        return found

    def explain(self) -> str:
        """The plan in words and figures."""
        return explain(self.to_dict())

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Plan:
        """Inverse of `to_dict`. Raises msgspec.ValidationError for what is no plan."""
        return msgspec.convert({name: found[name] for name in cls.__dataclass_fields__}, cls)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON form."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
