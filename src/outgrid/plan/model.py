"""The plan: a frozen value that says which bytes move when, before any byte moves."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from outgrid.axes import exchanged, in_fortran_order, in_rows_of_files
from outgrid.folding import Folding
from outgrid.lines import format_work
from outgrid.markup import bars, facts, shares
from outgrid.plan import form
from outgrid.plan.explain import explain, explain_rows
from outgrid.plan.schedule.model import Schedule
from outgrid.plan.schedule.subgrid import Box
from outgrid.stencil.model import Staging
from outgrid.tiers import TIERS
from outgrid.units import format_bytes

MOST_RINGS = 16  # that a notebook shows


class Layout(msgspec.Struct, frozen=True):
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
        return next((layout for layout in self.apart if layout.field == field), self)


class Apart(msgspec.Struct, frozen=True):
    """How a field lies in the window that is kept in a ``dtype`` of its own, or in parts of rows.

    See `Layout`. Rows of which parts are kept are less than ``row_bytes`` apart.
    """

    field: str
    dtype: str
    row_bytes: int
    row_stride_bytes: int
    pitch_bytes: int


MOST_GROUP = 8  # planes that a row may be updated in at once


class Tile(msgspec.Struct, frozen=True):
    """Order of the updates inside a slab.

    ``level``: level after level, stage after stage over the whole slab. ``front``: level after
    level, all stages of one behind a front that moves ``planes`` planes at a time. ``diamond``:
    within diamonds of rows (of columns in two dimensions) and levels, through which the front moves
    as far. ``rows`` is the height of a block (0: the whole plane) or the width of a diamond.
    ``columns`` is the length of a block, or of the parts of a diamond in 3-D (0: whole rows).
    There a step of the front goes through the levels of ``band`` rows after the other (0: of all).
    A row is updated in ``group`` planes at once, or in as many as the kernel can and are there.
    ``fetch``: what the edges of a diamond read is fetched one step of the front ahead. ``stream``:
    updates level after level are stored past the caches.
    """

    order: str
    rows: int
    planes: int
    columns: int = 0
    band: int = 0
    group: int = MOST_GROUP
    fetch: bool = False
    stream: bool = False


class DeviceLevel(msgspec.Struct, frozen=True):
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


class Prediction(msgspec.Struct, frozen=True):
    """What the cost model expects. Seconds exclude the initial fill."""

    seconds: float
    compute_seconds: float
    transfer_seconds: float
    updates_per_second: float
    bound_by: str
    exchange_seconds: float = 0.0
    copy_seconds: float = 0.0
    wait_seconds: float = 0.0

    def after(self, seconds: float) -> Prediction:
        """The same with so many seconds more, in which nothing is computed or moved."""
        return replace(self, seconds=self.seconds + seconds)


class Work(msgspec.Struct, frozen=True):
    """What is computed: the problem by its digest, and how much that is."""

    problem_digest: str
    stencil: str
    dtype: str
    updates: int
    flops: int


class Memory(msgspec.Struct, frozen=True):
    """What the process takes of the memory that it may take, ``limit_bytes``.

    That is ``fixed_bytes`` in any case. Of a window that is larger than memory ``held_bytes`` are
    in use at a time. Transfers between a disk and the window, or a device, pass through others, and
    so does what ranks exchange. Planes of snapshots take ``unfinished_bytes`` until all tiles have
    left their rows of them.
    """

    limit_bytes: int
    fixed_bytes: int
    window_bytes: int
    held_bytes: int
    transfer_bytes: int
    exchange_bytes: int = 0
    unfinished_bytes: int = 0

    @property
    def before_bytes(self) -> int:
        """What is free before the window is made: as much, or more where it takes not all."""
        others = self.fixed_bytes + self.transfer_bytes + self.exchange_bytes
        return max(self.window_bytes, self.limit_bytes - others)


class Volume(msgspec.Struct, frozen=True):
    """What is kept on disk, and what moves.

    That is what files begin with, packed copies of coefficients, what sweeps read and write, what
    is left of it: results that are exported, snapshots; and what goes between ranks. The disk is
    rated to be written ``endurance_bytes``, if that is known.
    """

    disk_bytes: int
    read_bytes: int
    written_bytes: int
    fill_bytes: int
    exported_bytes: int = 0
    packed_bytes: int = 0
    snapshot_bytes: int = 0
    endurance_bytes: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that an executor needs to know: a schedule, in bytes and seconds as well.

    ``tier`` is where the fields live: "direct", "mmap", "swap" or "remote" (of which ``keep``
    "disk" keeps a copy), or "memory" for resident ones; a resident plan of tier "mmap" or "swap"
    works in place, in rings that may be larger than memory. ``pin`` keeps each thread on one
    processor. Of ``packed`` coefficients sweeps read packed copies; temporaries that are
    ``recomputed`` are computed again where they are read, except near faces. What was written is
    flushed after every ``flush_bytes``, or, where that is 0, in commits alone. Levels that are
    ``uncopied`` begin in files of others, and are read where they lie. Rows may be ``folded`` in
    the window. With a ``device`` the window lies in its memory, and nothing of it in that of the
    process. A grid passes along its axis ``transposed``: 0 is the first. Along the second, planes
    of the schedule, the layout and the tile are rows of files, and rows are planes; along the last,
    files are in Fortran order, and their planes are those of the schedule. Stages may be
    ``staged``: made in parts that update these fields, one after the other.
    """

    work: Work
    scheme: str
    schedule: Schedule
    layout: Layout
    tile: Tile
    threads: int
    memory: Memory
    volume: Volume
    prediction: Prediction
    notes: tuple[str, ...] = ()
    pin: bool = False
    tier: str = "direct"
    keep: str = "none"
    device: DeviceLevel | None = None
    packed: tuple[str, ...] = ()
    flush_bytes: int = 0
    recomputed: tuple[str, ...] = ()
    uncopied: tuple[str, ...] = ()
    transposed: int = 0
    folded: Folding | None = None
    staged: Staging = ()

    @property
    def depth(self) -> int:
        """Steps of the deepest sweep."""
        return self.schedule.depth

    @property
    def sweeps(self) -> int:
        """Trips of the grid through the window."""
        return self.schedule.sweeps

    @property
    def in_place(self) -> bool:
        """Whether sweeps work right in the memory that the fields live in, beyond the limit."""
        return self.schedule.resident and self.tier != "memory"

    @property
    def flash_written_bytes(self) -> int:
        """What goes to the device; at most so much where the system decides what it writes.

        A sweep in place changes a ring of each evolving field in each of its steps: in a file, all
        of that is written out sooner or later.
        """
        changed, schedule, volume = 0, self.schedule, self.volume
        if self.in_place:
            constant = {arrival.field for arrival in schedule.arrivals if arrival.constant}
            for field in {ring.field for ring in schedule.rings} - constant:
                rings = schedule.ring_count(field)
                levels = sum(min(depth, rings) for depth in schedule.depths)
                changed += levels * schedule.planes * self.plane_bytes(field)
        beside = volume.fill_bytes + volume.packed_bytes + volume.exported_bytes
        beside += volume.snapshot_bytes
        return volume.written_bytes + beside + changed

    @property
    def store_tier(self) -> str:
        """The tier of the stores that planes come from and go to."""
        return "direct" if self.schedule.resident and not TIERS[self.tier].files else self.tier

    @property
    def stored(self) -> Box:
        """The planes and rows of files that hold something of the grid."""
        return self._in_files(self.schedule.stored.box)

    @property
    def owned(self) -> Box:
        """The planes and rows of files that are carried from state to state."""
        return self._in_files(self.schedule.domain.owned)

    def _in_files(self, box: Box) -> Box:
        return box.transposed if self.in_rows_of_files else box

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape of what files hold of a field, in the order in which it lies there."""
        shape = self.schedule.stored.shape
        return shape if self.fortran else exchanged(shape, self.transposed)

    @property
    def in_rows_of_files(self) -> bool:
        """Whether planes of the schedule are rows of files, and rows are planes."""
        return in_rows_of_files(self.transposed)

    @property
    def fortran(self) -> bool:
        """Whether fields are kept in Fortran order."""
        return in_fortran_order(self.transposed)

    @property
    def outlives(self) -> bool:
        """Whether what is put survives the process: not where fields are in memory alone."""
        return not TIERS[self.tier].passing or self.schedule.resident or self.keep == "disk"

    @property
    def columns(self) -> int:
        """Cells from row to row in the window, of all fields but those of `narrow_columns`."""
        return self.layout.row_stride_bytes // np.dtype(self.work.dtype).itemsize

    @property
    def narrow_columns(self) -> int:
        """Cells from row to row of fields that are kept in some columns only, if there are any."""
        kept = (ring.field for ring in self.schedule.rings if ring.columns is not None)
        return next(map(self.columns_of, kept), self.columns)

    def columns_of(self, field: str) -> int:
        """Cells from row to row of a field in the window."""
        return self.layout.of(field).row_stride_bytes // np.dtype(self.dtype_of(field)).itemsize

    def dtype_of(self, field: str) -> str:
        """The type that a field is kept in."""
        apart = (layout.dtype for layout in self.layout.apart if layout.field == field)
        return next(apart, self.work.dtype)

    def plane_bytes(self, field: str) -> int:
        """Bytes of one plane of a field on disk."""
        return len(self.schedule.stored.rows) * self.layout.of(field).row_bytes

    @property
    def result_bytes(self) -> int:
        """Bytes of all levels that sweeps leave."""
        schedule = self.schedule
        return schedule.planes * sum(
            self.plane_bytes(departure.field) for departure in schedule.departures
        )

    @property
    def working_bytes(self) -> int:
        """Bytes of two states of what is updated, and of all coefficients."""
        constants = (arrival.field for arrival in self.schedule.kept if arrival.constant)
        return 2 * self.result_bytes + sum(map(self.plane_bytes, constants)) * self.schedule.planes

    @property
    def predicted_seconds(self) -> float:
        """Expected time of the sweeps."""
        return self.prediction.seconds

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form, with the derived figures that readers of a plan look for."""
        return form.of(self) | {
            "depth": self.depth,
            "sweeps": self.sweeps,
            "slabs": self.schedule.slabs,
            "redundancy": self.schedule.redundancy,
            "predicted_seconds": self.predicted_seconds,
            "flash_written_terabytes": self.flash_written_bytes / 1e12,
        }

    def explain(self) -> str:
        """The plan in words and figures."""
        return explain(self.to_dict())

    def __str__(self) -> str:
        """What `explain` says."""
        return self.explain()

    def _repr_html_(self) -> str:
        """What a notebook shows: bytes and seconds, the memory, and the rings of the window."""
        memory, plain = self.memory, self.to_dict()
        transfers = memory.transfer_bytes + memory.exchange_bytes + memory.unfinished_bytes
        used = memory.held_bytes + transfers + memory.fixed_bytes
        parts = {
            "window": 0 if self.device else memory.held_bytes,
            "transfers": transfers,
            "interpreter, libraries, tables": memory.fixed_bytes,
        }
        named = [(f"{name} {format_bytes(size)}", size) for name, size in parts.items() if size]
        free = f"{format_bytes(max(0, memory.limit_bytes - used))} of the limit are free"
        rings = [
            (f"{ring.field}, ring {ring.index}: {ring.planes} planes", ring.planes)
            for ring in self.schedule.rings[:MOST_RINGS]
        ]
        more = len(self.schedule.rings) - len(rings)
        return facts(
            f"plan: {format_work(plain, sum(self.schedule.depths))}",
            explain_rows(plain),
            facts(f"memory: {free}", [], shares(named, memory.limit_bytes)),
            facts(f"window{f', without {more} further rings' if more else ''}", [], bars(rings)),
        )

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Plan:
        """Inverse of `to_dict`. Raises msgspec.ValidationError for what is no plan."""
        return form.read(plain, cls)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON form."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
