"""How planes and rows lie in the window."""

from __future__ import annotations

from outgrid.plan.model import Layout
from outgrid.units import format_bytes

BLOCK_BYTES = 4096
LINE_BYTES = 64
# Whole vectors are read around a row, up to the radius beyond it: what they find before the first
# row of a ring and after the last is thrown away, but it must be there.
GUARD_BYTES = 4096
# Planes smaller than this keep their natural pitch: a spare page would be felt as lost memory.
PADDED_PLANE_BYTES = 256 << 10

ITEM_BYTES = {"float32": 4, "float64": 8}


def layout(shape: tuple[int, ...], dtype: str, window_rows: int | None = None) -> Layout:
    """Rows on whole cache lines, planes on whole pages where the file allows both.

    A plane that fills whole 4 KiB blocks, with rows on whole cache lines, is moved by direct I/O
    straight between file and window. Any other shape is staged: its rows are padded in the window
    and pass through a bounce buffer. Strips begin at any row: theirs must fill whole blocks. The
    window holds ``window_rows`` rows of a plane, all of them if left out.
    """
    rows = shape[1] if len(shape) == 3 else 1
    held = rows if window_rows is None else min(window_rows, rows)
    row_bytes = shape[-1] * ITEM_BYTES[dtype]
    moved_bytes = rows * row_bytes if held == rows else row_bytes
    staged = row_bytes % LINE_BYTES != 0 or moved_bytes % BLOCK_BYTES != 0
    stride = -(-row_bytes // LINE_BYTES) * LINE_BYTES
    unit = LINE_BYTES if staged else BLOCK_BYTES
    pitch = -(-held * stride // unit) * unit
    # Planes an even number of pages apart compete for the same sets of the caches.
    if pitch >= PADDED_PLANE_BYTES and (pitch // unit) % 2 == 0:
        pitch += unit
    return Layout(rows, row_bytes, held, stride, pitch, staged)


def describe(found: Layout) -> str:
    """One line for a reader of the plan."""
    way = "through a staging buffer" if found.staged else "straight into the window"
    plane = format_bytes(found.rows * found.row_bytes)
    return f"planes of {plane} move {way}"
