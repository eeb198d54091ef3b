"""The window: rings of planes in memory, and where each plane of the stream lies."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.folding import Folding
from outgrid.native import Buffer, as_array
from outgrid.plan.layout import GUARD_BYTES, PAGE_BYTES, ring_start
from outgrid.plan.model import Plan
from outgrid.plan.program import Move
from outgrid.plan.schedule.model import Passage
from outgrid.plan.schedule.rings import Bands, Ring
from outgrid.plan.schedule.trip import Trip


def touch_alone(buffer: Buffer) -> None:
    """Write to every page of ``buffer`` with the calling thread."""
    as_array(buffer, np.uint8)[::PAGE_BYTES] = 0


def ring_bytes(plan: Plan, number: int) -> int:
    """Memory that a ring takes, by its number."""
    ring = plan.schedule.rings[number]
    held = ring.held * plan.layout.of(ring.field).pitch_bytes
    return ring_start(number) + held + GUARD_BYTES


def _within(cells: NDArray[Any], bands: Bands) -> NDArray[Any]:
    """Rows whose cells are kept in some columns only, shape (rows, columns): a copy, else 0."""
    natural = np.zeros(cells.shape, cells.dtype)
    for first, end in bands:
        natural[:, first:end] = cells[:, first:end]
    return natural


def unfolded(cells: NDArray[Any], folded: Folding) -> NDArray[Any]:
    """Rows of cells, shape (rows, columns), as they lie in files: a copy of folded ones."""
    rows, columns = cells.shape
    across = folded.columns(cells.itemsize)
    vectors = cells.reshape(rows // folded.rows, columns // across, folded.rows, across)
    return vectors.transpose(0, 2, 1, 3).reshape(rows, columns)


class Rings:
    """Where planes lie: slot ``Z mod planes`` of a ring holds plane Z of the stream.

    ``addresses`` are those of the memory of the plan's rings. ``lay`` puts a table of addresses
    where the updates can read it, and says where it then lies.
    """

    def __init__(
        self, plan: Plan, addresses: Sequence[int], lay: Callable[[NDArray[np.int64]], int]
    ) -> None:
        self._plan = plan
        # Addresses of the slots, twice in a row, so that any range of planes is a range of entries.
        self._tables: dict[tuple[str, int], NDArray[np.int64]] = {}
        self._seen: dict[tuple[str, int], NDArray[np.int64]] = {}
        self._lying: dict[tuple[str, int], int] = {}
        # Of fields that exist in some planes only: the plane of +0, and the tables of a slab.
        self._nothing: dict[str, int] = {}
        self._made: dict[tuple[str, int], NDArray[np.int64]] = {}
        for number, (ring, address) in enumerate(zip(plan.schedule.rings, addresses, strict=True)):
            slots = np.arange(2 * ring.planes, dtype=np.int64) % ring.planes
            first = address + ring_start(number)
            table = first + slots * plan.layout.of(ring.field).pitch_bytes
            self._tables[ring.field, ring.index] = table
            if ring.within is not None:
                self._nothing[ring.field] = first + (
                    ring.planes * plan.layout.of(ring.field).pitch_bytes
                )
            # By planes of the grid, as updates count them, the other way round if those fall.
            seen = self._seen[ring.field, ring.index] = (
                np.ascontiguousarray(table[::-1]) if plan.schedule.domain.downward else table
            )
            self._lying[ring.field, ring.index] = lay(seen)
        self._rings = {(ring.field, ring.index): ring for ring in plan.schedule.rings}
        self._by_step: dict[int, tuple[Ring, ...]] = {}

    def addresses(self, move: Move) -> NDArray[np.int64]:
        """Addresses of the first row of ``move`` in each of its planes."""
        ring = self._rings[move.field, move.ring]
        passage = self._plan.schedule.passage(move.trip)
        slot = passage.places(ring, range(move.first, move.last)).start % ring.planes
        row = move.rows.start - passage.row_origin
        offset_bytes = row * self._plan.layout.of(move.field).row_stride_bytes
        table = self._tables[move.field, move.ring]
        return table[slot : slot + move.last - move.first] + offset_bytes

    def slot_memory(self, field: str, index: int, slot: int) -> Iterator[tuple[int, int]]:
        """Address and bytes of each part of a slot of a ring that is written to."""
        layout, address = self._plan.layout, int(self._tables[field, index][slot])
        own = layout.of(field)
        stride, last = own.row_stride_bytes, max(own.row_stride_bytes, own.row_bytes)
        for rows in self._rings[field, index].read(range(layout.window_rows)):
            yield address + rows.start * stride, (len(rows) - 1) * stride + last

    def plane_tables(self, trip: Trip, front: int, steps: range = range(1, 2)) -> NDArray[np.int64]:
        """Per ring the address of a table in which entry z is plane z of the grid in ``trip``.

        Valid for the planes that a slab from ``front`` on touches, until this is called again. One
        int64 per ring that a step of the sweep works with, in the order of the kernel's rings, for
        one of ``steps`` after the other.
        """
        passage = self._plan.schedule.passage(trip)
        rings = [ring for step in steps for ring in self._at(step)]
        where = {ring: self._table(ring, passage, front) for ring in dict.fromkeys(rings)}
        return np.array([where[ring] for ring in rings], dtype=np.int64)

    def _at(self, step: int) -> tuple[Ring, ...]:
        """The rings of a step: what changes with every step has one for each."""
        if step not in self._by_step:
            schedule = self._plan.schedule
            given = {arrival.field for arrival in schedule.arrivals if arrival.given}
            self._by_step[step] = tuple(
                self._rings[ring.field, step - 1] if ring.field in given else ring
                for ring in schedule.rings
                if ring.field not in given or ring.index == 0
            )
        return self._by_step[step]

    def _table(self, ring: Ring, passage: Passage, front: int) -> int:
        lowest = passage.lowest_plane(ring, front)
        if ring.within is not None:
            return self._partial(ring, passage, lowest) - 8 * lowest
        slot = (passage.slot_origin + lowest) % ring.planes
        first = slot - lowest
        if self._plan.schedule.domain.downward:
            first = 2 * ring.planes - first - self._plan.schedule.planes
        return self._lying[ring.field, ring.index] + 8 * first

    def _partial(self, ring: Ring, passage: Passage, lowest: int) -> int:
        """Where the table of planes from ``lowest`` on is made, of a field that exists in some."""
        # Of the slab's planes and those that it reads; fetching ahead looks at a few more.
        touched = ring.high - ring.low + 3 * self._plan.schedule.slab_planes
        table = np.full(touched, self._nothing[ring.field], np.int64)
        for part in ring.present(range(lowest, lowest + touched)):
            slots = np.array(passage.places(ring, part)) % ring.planes
            there = self._tables[ring.field, ring.index][slots]
            table[part.start - lowest : part.stop - lowest] = there
        self._made[ring.field, ring.index] = table
        return table.ctypes.data


class Window(Rings):
    """One buffer per ring, in the memory of the process.

    ``touch`` writes to all pages of a buffer for the first time; ``take`` gets the memory of a
    ring, of so many bytes.
    """

    def __init__(
        self,
        plan: Plan,
        touch: Callable[[Buffer], None] | None = None,
        take: Callable[[Ring, int], Buffer] | None = None,
    ) -> None:
        self._buffers: list[Buffer] = []
        for number, ring in enumerate(plan.schedule.rings):
            nbytes = ring_bytes(plan, number)
            self._buffers.append(
                take(ring, nbytes)
                if take is not None
                else Buffer(nbytes, huge_pages=ring.huge_pages)
            )
        if not plan.in_place:
            for ring, buffer in zip(plan.schedule.rings, self._buffers, strict=True):
                # Memory is given page by page at the first touch, which may cost seconds per GiB:
                # once, here, and not in the first sweep. Only what the plan counts is touched.
                if ring.huge_pages:
                    (touch or touch_alone)(buffer)
        addresses = [buffer.address for buffer in self._buffers]
        super().__init__(plan, addresses, lambda table: table.ctypes.data)
        self._memory = {
            (ring.field, ring.index): (buffer, np.dtype(plan.dtype_of(ring.field)))
            for ring, buffer in zip(plan.schedule.rings, self._buffers, strict=True)
        }

    def views(self, move: Move, which: slice = slice(None)) -> list[np.ndarray]:
        """The rows of ``move``, plane by plane, as arrays on the window's own memory.

        Of all its planes, or of those ``which`` of them. Of folded rows, and of such of which parts
        are kept, they are copies.
        """
        addresses, folded = self.addresses(move)[which].tolist(), self._plan.folded
        count, columns = len(move.rows), self._plan.schedule.shape[-1]
        unit = 1 if folded is None else folded.rows
        held = -(-count // unit) * unit
        rows = (self._rows(move.field, move.ring, at, held) for at in addresses)
        if folded is not None:
            rows = (unfolded(part, folded) for part in rows)
        natural = [part[:count, :columns] for part in rows]
        bands = self._plan.schedule.column_bands(move.field)
        return natural if bands is None else [_within(part, bands) for part in natural]

    def some_set(self, move: Move, places: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
        """Of each plane of ``move``, whether a value at one of ``places`` is not +0.

        Those count that are in its rows; where rows lie folded, other ones in their place.
        """
        buffer, dtype = self._memory[move.field, move.ring]
        bits = as_array(buffer, np.dtype(f"u{dtype.itemsize}"))
        first = (self.addresses(move) - buffer.address) // dtype.itemsize
        begin, columns = move.rows.start, self._plan.columns_of(move.field)
        bands = self._plan.schedule.column_bands(move.field)
        there = np.array(
            [
                (row - begin) * columns + column
                for row, column in places
                if row in move.rows
                and (bands is None or any(first <= column < end for first, end in bands))
            ],
            np.int64,
        )
        found: NDArray[np.bool_] = np.any(bits[first[:, None] + there], axis=1)
        return found

    def slots(self, field: str, index: int) -> list[np.ndarray]:
        """All slots of a ring as arrays on the window's own memory, rows as they lie there."""
        ring = self._rings[field, index]
        addresses = self._tables[field, index][: ring.planes].tolist()
        rows, columns = self._plan.layout.window_rows, self._plan.schedule.shape[-1]
        return [self._rows(field, index, at, rows)[:, :columns] for at in addresses]

    def _rows(self, field: str, index: int, address: int, rows: int) -> np.ndarray:
        (buffer, dtype), columns = self._memory[field, index], self._plan.columns
        apart, offset_bytes = self._plan.columns_of(field), address - buffer.address
        cells = as_array(
            buffer, dtype, offset_bytes=offset_bytes, count=(rows - 1) * apart + columns
        )
        strides = apart * dtype.itemsize, dtype.itemsize
        return np.ndarray((rows, columns), dtype, cells, strides=strides)

    def fill(
        self, noise: np.random.Generator, zero: Container[str] = (), below: float = 1.0
    ) -> None:
        """Set all cells to numbers in [0, ``below``), the same block of them again and again.

        Those of the fields in ``zero`` are set to +0.
        """
        numbers = noise.random(1 << 16) * below
        for ring, buffer in zip(self._plan.schedule.rings, self._buffers, strict=True):
            block = numbers.astype(self._plan.dtype_of(ring.field))
            if ring.field in zero:
                block[:] = 0
            cells = as_array(buffer, block.dtype)
            for first in range(0, cells.size, block.size):
                part = cells[first : first + block.size]
                part[:] = block[: part.size]

    def release(self) -> None:
        """Give the memory back; addresses handed out are void from here on."""
        for buffer in self._buffers:
            buffer.release()
