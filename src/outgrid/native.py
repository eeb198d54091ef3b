"""The door to the compiled module: aligned memory, files, queues and paging.

Everything here is a class of C++ (`core/`), passed on unchanged; nothing else imports that module.

- `Buffer(nbytes, huge_pages=True, lock=False)`: zeroed memory outside Python's heap, page aligned,
  and 2 MiB aligned from 2 MiB on. It supports the buffer protocol; `release` raises BufferError
  while an array uses the memory.
- `File(path, mode, direct=True)`: mode "r", "rw" or "create" (never opens an existing file).
  `direct` says whether transfers pass the page cache by. `reserve(nbytes)` sets space aside and
  answers False where the file system cannot (the length is set all the same). `address` is that of
  the memory of an `anonymous` one, which stays there until it is closed, and 0 of others.
- `Queue(engine, depth, request_bytes, staging_bytes)`: up to `depth` requests of `request_bytes`
  under way. `submit_read`, `submit_write` and `submit_flush` return a ticket at once. Segments are
  an int64 array of rows (file offset, address, bytes), sorted and disjoint in the file; their
  memory belongs to the queue until `poll` or `wait` hand out the Completion of the ticket. A flush
  covers the writes that were complete when it was submitted. `wait` returns at least one
  Completion, or none after the timeout or when no ticket is outstanding; it raises RuntimeError
  where a thread of the queue failed. `close` drops tickets not begun and waits for those under way;
  where that takes longer than its patience, it answers False and does what `abandon` does: waits
  for nothing and keeps what they may touch.
  With `row_bytes` above 0 the completion brings the checksums (XXH3, 64 bits) of the rows that the
  segments consist of, computed beside the transfers.
  `submit_read_packed` reads packed planes, int64 rows (address of the packed bytes, how many, their
  checksum, address of the plane, rows, bytes of a row, from row to row, of an item), which are
  unpacked before the Completion; EBADMSG says that they are not what was packed.
  With a `folding` (rows of a group, bytes of a vector, of a row, from row to row, parts) rows lie
  folded in memory, and row after row in the file. Segments, or planes that are packed, begin with a
  group then; what the memory of the last group has beyond the rows, and beyond their ends, becomes
  0. Memory that is written from does not change. With parts of a row (first and last byte of each)
  only these are in memory, row after row at a stride at which they do not meet, and zeroes are
  written for all others.
- `pack(address, rows, row_bytes, item_bytes, into, room, margin)`: packs a plane of numbers of 4 or
  8 bytes exactly, into fewer than `room` bytes that can be unpacked where they end at most `margin`
  before the plane does; returns how many, 0 where that cannot be, and their checksum. `unpack` is
  its inverse; False where the bytes are not what was packed.
- `fold(address, nbytes, folding)`: folds `nbytes` of rows in groups where they lie: vector v of a
  group has the chunk [v * c, (v + 1) * c) of the bytes of each row in turn, where c is the bytes of
  a vector by the rows. `unfold(from_, begin, end, to, folding)` copies the bytes from `begin` to
  `end` of what the rows were before, without gaps. `put_parts(from_, begin, end, parted, folding)`
  does the inverse for rows that lie in parts.
- `Outlet(descriptors, held_bytes)`: what kernels call to leave bytes in these files, which
  stay open as long; `drain` waits until they are written; `address` is that of its C side.
  `failure` is the number of a file and why it could not be written, or (0, 0).
- `set_slice(nanoseconds)`: for how long at a time the calling thread, and threads that it starts,
  ask to run, 0 being what the system thinks best; returns what it was. One that asks for little
  (`PROMPT_SLICE`, as the threads of a queue do) comes before others when it wakes. A wish that
  Linux before 6.12 does not know.
- `TEAM_ADDRESS`: of functions that let kernels compute in several threads. Each thread that calls a
  kernel has a team of its own; its threads wait for the next call, and end with the calling one.
- `Completion`: `errno` is 0, or the reason of the first request that failed, at `offset`, of
  `length` bytes, in the file `path`; ENODATA says that the file ended. `sums` are the checksums,
  uint64 numbers as bytes.
- `Pager(local_bytes, page_bytes, ahead_pages, movers, tracks_writes)`: ranges of memory of which
  at most `local_bytes` are resident; `map(backing, writable, blank, keep)` makes a `PagedMemory`,
  which supports the buffer protocol like a Buffer. `Backing` is where pages come from and go to.
- `MpiWindow(table, seen)`: memory lent by other ranks; those whose address here is not 0 are seen.
  `backing(name, parts)` makes a Backing of its parts, int64 of shape (n, 3): bytes, rank,
  displacement. `move(put, pieces, address)` moves pieces, int64 of shape (n, 4): rank,
  displacement there, offset from `address`, bytes; it waits for them without the interpreter.
  `lose` ends all use of a rank; `close` that of the window, when transfers under way have ended.

System calls refused at once raise OSError, a wrong argument ValueError.
"""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outgrid._core import (
    BLOCK_BYTES,
    PROMPT_SLICE,
    TEAM_ADDRESS,
    Backing,
    Buffer,
    Completion,
    File,
    MpiWindow,
    Outlet,
    PagedMemory,
    Pager,
    PagerStatistics,
    Queue,
    Statistics,
    engines,
    fold,
    pack,
    put_parts,
    set_slice,
    unfold,
    unpack,
)

__all__ = [
    "BLOCK_BYTES",
    "PROMPT_SLICE",
    "TEAM_ADDRESS",
    "Backing",
    "Buffer",
    "Completion",
    "File",
    "MpiWindow",
    "Outlet",
    "PagedMemory",
    "Pager",
    "PagerStatistics",
    "Queue",
    "Statistics",
    "as_array",
    "engines",
    "fold",
    "pack",
    "put_parts",
    "set_slice",
    "unfold",
    "unpack",
]


def as_array(
    buffer: Buffer, dtype: DTypeLike, *, offset_bytes: int = 0, count: int = -1
) -> NDArray[Any]:
    """A writable one-dimensional array on the buffer's own memory, without a copy.

    `count` elements from `offset_bytes` on; -1 takes as many as fit.
    """
    if count < 0:
        count = (buffer.nbytes - offset_bytes) // np.dtype(dtype).itemsize
    return np.frombuffer(memoryview(buffer), dtype, count, offset_bytes)
