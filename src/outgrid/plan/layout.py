"""How planes and rows lie in the window."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from outgrid.numbers import item_bytes
from outgrid.plan.model import Apart, Layout
from outgrid.plan.schedule.rings import Ring
from outgrid.stencil.dtypes import STORED
from outgrid.units import BLOCK_BYTES, format_bytes

LINE_BYTES = 64
# What direct transfers ask of an address in memory. Where a disk asks for more, the queue stages.
SECTOR_BYTES = 512
PAGE_BYTES = 4096
# Whole vectors are read around a row, up to the radius beyond it: what they find before the first
# row of a ring and after the last is thrown away, but it must be there.
GUARD_BYTES = 4096
# Rings begin so far apart, going round within what a way of a second-level cache holds: as buffers
# begin on huge pages, planes of one number would all want the same few sets of it. An odd number of
# sectors, since a first-level cache has no room for a line of very many arrays at one or two places
# of a page: with stores of half a line each line would be fetched and pushed out twice.
RING_STEP_BYTES = 21 * SECTOR_BYTES
RING_TURN_BYTES = 128 << 10
# Planes smaller than this keep their natural pitch: spare bytes would be felt as lost memory.
PADDED_PLANE_BYTES = 16 << 10
# With so many arrays planes that are sectors apart want more lines of the same sets of a
# first-level cache than it has.
MANY_ARRAYS = 8

ITEM_BYTES = {dtype: item_bytes(dtype) for dtype in STORED}


def layout(
    shape: tuple[int, ...],
    dtype: str,
    window_rows: int | None = None,
    apart: Mapping[str, str] | None = None,
    in_pieces: bool = False,
    lines: bool = False,
    row_unit: int = 1,
    narrow: Mapping[str, int] | None = None,
) -> Layout:
    """Rows on whole cache lines, planes on whole sectors where the file allows both.

    A plane that fills whole 4 KiB blocks, with rows on whole cache lines, is moved by direct I/O
    straight between file and window. Any other shape is staged: its rows are padded in the window
    and pass through a bounce buffer. Strips begin at any row: theirs must fill whole blocks. The
    window holds ``window_rows`` rows of a plane, all of them if left out, in whole groups of
    ``row_unit``; blocks of a circle may hold more, and then all come ``in_pieces``, as the rows of
    a transposed grid do. Planes that may begin on any of the ``lines`` of the caches are copied on
    their way to a disk that writes from whole sectors.

    All fields have as many cells from row to row as one of ``dtype``: ``apart``, the types of those
    that are kept in another, have rows of whole vectors, if not of whole lines. So have those that
    are ``narrow``, which have so many cells from row to row and lie in parts of rows: the last one
    ends where a whole row would.
    """
    rows = shape[1] if len(shape) == 3 else 1
    held = rows if window_rows is None else window_rows
    whole = held == rows
    held = -(-held // row_unit) * row_unit
    line = LINE_BYTES // ITEM_BYTES[dtype]
    columns = -(-shape[-1] // line) * line

    def sizes(item: int, near: int = columns) -> tuple[int, int, int, bool]:
        """Bytes of a row, from row to row and from plane to plane; whether these are staged."""
        row_bytes, stride = shape[-1] * item, columns * item
        moved_bytes = rows * row_bytes if whole and not in_pieces else row_bytes
        staged = row_bytes != stride or moved_bytes % BLOCK_BYTES != 0
        # Of staged rows most go straight if they are whole sectors, in the file and in memory.
        straight = not staged or (row_bytes == stride and row_bytes % SECTOR_BYTES == 0)
        beyond = SECTOR_BYTES if straight and not lines else SECTOR_BYTES + LINE_BYTES
        held_bytes = (held - 1) * near * item + stride
        pitch = -(-held_bytes // LINE_BYTES) * LINE_BYTES
        # A first-level cache tells addresses apart by what they are within a page: planes whole
        # pages apart compete for the same few of its lines. Those an odd number of sectors apart
        # share them with every eighth, and a line more with none.
        if pitch >= PADDED_PLANE_BYTES:
            pitch += (beyond - pitch) % (2 * SECTOR_BYTES)
        elif straight:
            pitch = -(-pitch // SECTOR_BYTES) * SECTOR_BYTES
        return row_bytes, near * item, pitch, staged

    row_bytes, stride, pitch, staged = sizes(ITEM_BYTES[dtype])
    fields: list[Apart] = []
    types, near = apart or {}, narrow or {}
    for field in (*types, *(name for name in near if name not in types)):
        kept = types.get(field, dtype)
        *own, own_staged = sizes(ITEM_BYTES[kept], near.get(field, columns))
        fields.append(Apart(field, kept, *own))
        staged = staged or own_staged
    return Layout(rows, row_bytes, held, stride, pitch, staged, tuple(fields))


def ring_start(number: int) -> int:
    """Bytes from the beginning of a ring's memory to its first plane, by the ring's number."""
    return GUARD_BYTES + number * RING_STEP_BYTES % RING_TURN_BYTES


def window_bytes(rings: Iterable[Ring], held: Layout) -> int:
    """Bytes of the planes of rings, laid out as found."""
    return sum(ring.held * plane_bytes(ring, held) for ring in rings)


def plane_bytes(ring: Ring, held: Layout) -> int:
    """Bytes of memory from a plane of a ring to the next one: pages that are written to."""
    layout = held.of(ring.field)
    if ring.rows is None:
        return layout.pitch_bytes
    sizes = ((end - first) * layout.row_stride_bytes for first, end in ring.rows)
    # Neither end of the rows need be the end of a page.
    pages = sum(-(-size // PAGE_BYTES) + 1 for size in sizes)
    return min(layout.pitch_bytes, pages * PAGE_BYTES)


def describe(held: Layout) -> str:
    """One line for a reader of the plan."""
    way = "through a staging buffer" if held.staged else "straight into the window"
    if not held.staged and held.pitch_bytes % SECTOR_BYTES:
        way = "into the window, where they begin on lines of the caches and not on sectors"
    plane = format_bytes(held.rows * held.row_bytes)
    own = [layout for layout in held.apart if layout.row_bytes != held.row_bytes]
    sizes = [f"{format_bytes(held.rows * layout.row_bytes)} of {layout.field}" for layout in own]
    narrow = [layout.field for layout in held.apart if layout.row_stride_bytes < layout.row_bytes]
    parts = f"; of {', '.join(narrow)} the columns that exist are kept" if narrow else ""
    others = f" ({', '.join(sizes)})" if sizes else ""
    return f"planes of {plane}{others} move {way}{parts}"
