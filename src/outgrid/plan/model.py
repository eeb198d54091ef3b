"""The plan: a frozen value that says which bytes move when, before any byte moves."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from outgrid.plan.explain import explain


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

    ``level`` is 0 or -1. A constant field arrives in level 0 of ring 0 in every sweep.
    """

    field: str
    level: int
    lead: int
    constant: bool


@dataclass(frozen=True, slots=True)
class Departure:
    """A time level of a field that leaves: version ``depth + level`` of the sweep.

    ``shift`` is that of the stage that writes the field, ``lead`` that of the field's arrival.
    """

    field: str
    level: int
    shift: int
    lead: int

    def lag(self, depth: int, skew: int) -> int:
        """Planes with ``Z + lag < F1`` are final once the slab that ends at F1 is done.

        A sweep of one step passes its arrived level on: it cannot leave before it came.
        """
        return max(self.lead, skew * (depth + self.level) + self.shift)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a plane lies in the window. Rows are ``row_stride_bytes`` apart, planes ``pitch_bytes``.

    ``staged`` planes pass through a bounce buffer because the file's rows or planes do not fall
    on the boundaries that direct I/O and whole vectors need.
    """

    rows: int
    row_bytes: int
    row_stride_bytes: int
    pitch_bytes: int
    staged: bool


@dataclass(frozen=True, slots=True)
class Tile:
    """Order of the updates inside a slab.

    ``level``: level after level over the whole slab. ``diamond``: within diamonds of rows (of
    columns in two dimensions) and levels, through which the front moves ``planes`` planes at a
    time. ``rows`` is the height of a block (level; 0: the whole plane) or the width of a diamond.
    """

    order: str
    rows: int
    planes: int


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

    ``depths`` holds the steps of each sweep. Sweep p reads state p and writes state p + 1; its
    plane z is plane ``p * pitch_planes + z`` of the stream. A ``resident`` plan holds whole
    fields: planes arrive in the first sweep and leave in the last.
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
        end = (self.sweeps - 1) * self.pitch_planes + self.planes
        end += self.skew * self.depths[-1] + max(self.shifts)
        return -(-end // self.slab_planes)

    def ring(self, field: str, index: int) -> Ring:
        """The ring that holds versions ``index`` modulo the number of rings of ``field``."""
        return next(r for r in self.rings if r.field == field and r.index == index)

    def ring_count(self, field: str) -> int:
        """Number of rings of ``field``."""
        return sum(1 for ring in self.rings if ring.field == field)

    def slot_origin(self, sweep: int) -> int:
        """What is added to a plane of ``sweep`` before it is taken modulo a ring's planes.

        A streamed sweep goes on where the one before it ended; a resident field keeps its place.
        """
        return 0 if self.resident else sweep * self.pitch_planes

    def base(self, sweep: int) -> int:
        """Version of level 0 of ``sweep`` for the choice of rings.

        Levels of a streamed sweep are counted from its start; a resident field keeps its place
        between sweeps, so its levels are counted from the start of the run.
        """
        return sum(self.depths[:sweep]) if self.resident else 0

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form, with the derived figures that readers of a plan look for."""
        found = asdict(self)
        found |= {
            "depth": self.depth,
            "sweeps": self.sweeps,
            "slabs": self.slabs,
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
