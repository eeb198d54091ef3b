"""The door to the compiled module: aligned memory, files, and the queue between them.

Everything here is a class of C++ (`core/`), passed on unchanged; nothing else imports that module.

- `Buffer(nbytes, huge_pages=True, lock=False)`: zeroed memory outside Python's heap, page aligned,
  and 2 MiB aligned from 2 MiB on. It supports the buffer protocol; `release` raises BufferError
  while an array uses the memory.
- `File(path, mode, direct=True)`: mode "r", "rw" or "create" (never opens an existing file).
  `direct` says whether transfers pass the page cache by. `reserve(nbytes)` sets space aside and
  answers False where the file system cannot (the length is set all the same).
- `Queue(engine, depth, request_bytes, staging_bytes)`: up to `depth` requests of `request_bytes`
  under way. `submit_read`, `submit_write` and `submit_flush` return a ticket at once. Segments are
  an int64 array of rows (file offset, address, bytes), sorted and disjoint in the file; their
  memory belongs to the queue until `poll` or `wait` hand out the Completion of the ticket. A flush
  covers the writes that were complete when it was submitted. `wait` returns at least one
  Completion, or none after the timeout or when no ticket is outstanding. `close` drops tickets not
  begun and waits for those under way; `abandon` waits for nothing and keeps what they may touch.
  With `row_bytes` above 0 the completion brings the checksums (XXH3, 64 bits) of the rows that the
  segments consist of, computed beside the transfers.
- `Completion`: `errno` is 0, or the reason of the first request that failed, at `offset`, of
  `length` bytes, in the file `path`; ENODATA says that the file ended. `sums` are the checksums,
  uint64 numbers as bytes.

System calls refused at once raise OSError, a wrong argument ValueError.
"""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outgrid._core import (
    BLOCK_BYTES,
    Buffer,
    Completion,
    File,
    Queue,
    Statistics,
    engines,
)

__all__ = [
    "BLOCK_BYTES",
    "Buffer",
    "Completion",
    "File",
    "Queue",
    "Statistics",
    "as_array",
    "engines",
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
