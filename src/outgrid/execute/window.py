"""The window: rings of planes in memory, and where each plane of the stream lies."""

from __future__ import annotations

import numpy as np

from outgrid.native import Buffer, as_array
from outgrid.plan.layout import GUARD_BYTES, ITEM_BYTES
from outgrid.plan.model import Plan, Ring

PAGE_BYTES = 4096


class Window:
    """One buffer per ring. Slot ``Z mod planes`` of a ring holds plane Z of the stream."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._rings = {(ring.field, ring.index): ring for ring in plan.rings}
        self._buffers = [
            Buffer(ring.planes * plan.layout.pitch_bytes + 2 * GUARD_BYTES) for ring in plan.rings
        ]
        for buffer in self._buffers:
            # Memory is given page by page at the first touch, which may cost seconds per GiB: once,
            # here, and not in the first sweep. Only what the plan counts is touched.
            as_array(buffer, np.uint8)[::PAGE_BYTES] = 0
        # Addresses of the slots, twice in a row, so that any range of planes is a range of entries.
        self._tables: dict[tuple[str, int], np.ndarray] = {}
        for ring, buffer in zip(plan.rings, self._buffers, strict=True):
            slots = np.arange(2 * ring.planes, dtype=np.int64) % ring.planes
            table = buffer.address + GUARD_BYTES + slots * plan.layout.pitch_bytes
            self._tables[ring.field, ring.index] = table

    def addresses(self, field: str, index: int, sweep: int, first: int, last: int) -> np.ndarray:
        """Addresses of planes [first, last) of ``sweep`` in a ring."""
        table = self._tables[field, index]
        slot = (self._plan.slot_origin(sweep) + first) % self._rings[field, index].planes
        return table[slot : slot + last - first]

    def views(self, field: str, index: int, sweep: int, first: int, last: int) -> list[np.ndarray]:
        """Planes [first, last) of ``sweep`` as arrays on the window's own memory."""
        layout = self._plan.layout
        ring = self._rings[field, index]
        buffer = self._buffers[self._plan.rings.index(ring)]
        columns = layout.row_stride_bytes // ITEM_BYTES[self._plan.dtype]
        found: list[np.ndarray] = []
        for address in self.addresses(field, index, sweep, first, last).tolist():
            offset_bytes = address - buffer.address
            cells = as_array(
                buffer, self._plan.dtype, offset_bytes=offset_bytes, count=layout.rows * columns
            )
            found.append(cells.reshape(layout.rows, columns)[:, : self._plan.shape[-1]])
        return found

    def plane_tables(self, sweep: int, front: int) -> np.ndarray:
        """Per ring the address of a table in which entry z is plane z of ``sweep``.

        Valid for the planes that a slab from ``front`` on touches. One int64 per ring, in the
        order of the plan's rings.
        """
        return np.array([self._table(r, sweep, front) for r in self._plan.rings], dtype=np.int64)

    def _table(self, ring: Ring, sweep: int, front: int) -> int:
        lowest = 0 if self._plan.resident else front - ring.high
        slot = (self._plan.slot_origin(sweep) + lowest) % ring.planes
        return self._tables[ring.field, ring.index].ctypes.data + 8 * (slot - lowest)

    def fill(self, noise: np.random.Generator) -> None:
        """Set all cells to numbers in [0, 1), the same block of them again and again."""
        block = noise.random(1 << 16).astype(self._plan.dtype)
        for buffer in self._buffers:
            cells = as_array(buffer, self._plan.dtype)
            for first in range(0, cells.size, block.size):
                part = cells[first : first + block.size]
                part[:] = block[: part.size]

    def release(self) -> None:
        """Give the memory back; addresses handed out are void from here on."""
        for buffer in self._buffers:
            buffer.release()
