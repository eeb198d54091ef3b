"""Copying a field from a store into another one, a few planes at a time."""

from __future__ import annotations

import numpy as np

from outgrid.native import Buffer
from outgrid.storage import Planes, Store, Transfers

CHUNK_BYTES = 8 << 20
BUFFERS = 2  # one is being read while the other is being written


def export(source: Store, target: Store, transfers: Transfers, planes: range | None = None) -> None:
    """Copy all planes, or some, and flush. Raises StoreError where bytes cannot be moved.

    After an error the buffers go with its traceback, not before: what interrupts the waiting leaves
    transfers under way, which end when whoever made ``transfers`` closes them.
    """
    together = max(1, min(source.planes, CHUNK_BYTES // max(1, source.plane_bytes)))
    rows = _rows_together(source)
    buffers = [Buffer(together * len(rows[0]) * source.row_bytes) for _ in range(BUFFERS)]
    wanted = range(source.planes) if planes is None else planes
    for first in range(wanted.start, wanted.stop, together):
        block = range(first, min(first + together, wanted.stop))
        for part in rows:
            buffers.reverse()
            _copy(source, target, block, part, buffers[0], transfers)
    transfers.drain()
    target.flush()
    transfers.drain()
    for buffer in buffers:
        buffer.release()


def _rows_together(store: Store) -> list[range]:
    """All rows of a plane, or parts of them where a plane is larger than a chunk."""
    step = max(1, min(store.rows_per_plane, CHUNK_BYTES // max(1, store.row_bytes)))
    return [
        range(first, min(first + step, store.rows_per_plane))
        for first in range(0, store.rows_per_plane, step)
    ]


def _copy(
    source: Store, target: Store, planes: range, rows: range, buffer: Buffer, transfers: Transfers
) -> None:
    """Read a region while the one before it is being written, then begin to write it."""
    pitch = len(rows) * source.row_bytes
    steps = pitch * np.arange(len(planes), dtype=np.int64)
    memory = Planes(buffer.address + steps, source.row_bytes, buffer)
    source.get(planes, rows, memory)
    transfers.drain()
    target.put(planes, rows, memory)
