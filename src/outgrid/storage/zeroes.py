"""Memory that holds bytes of 0 alone: told and made by functions that let other threads run."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import CDLL, c_int, c_size_t, c_void_p, string_at
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["alike", "all_zero", "clear"]

_HEAD_BYTES = 64

_libc = CDLL(None)
_memcmp, _memset = _libc.memcmp, _libc.memset
_memcmp.argtypes, _memcmp.restype = (c_void_p, c_void_p, c_size_t), c_int
_memset.argtypes, _memset.restype = (c_void_p, c_int, c_size_t), c_void_p


def all_zero(cells: NDArray[Any]) -> bool:
    """Whether all bytes of values are 0: the first ones are, and each is as one before it."""
    if not cells.flags.c_contiguous:
        return not cells.view(np.bool_).any()
    address, head = cells.ctypes.data, min(cells.nbytes, _HEAD_BYTES)
    if any(string_at(address, head)):
        return False
    return _memcmp(address, address + head, cells.nbytes - head) == 0


def clear(address: int, nbytes: int) -> None:
    """Set all bytes there to 0."""
    _memset(address, 0, nbytes)


def alike(marks: NDArray[np.bool_]) -> Iterator[slice]:
    """Runs of neighbours that are all marked, or all not."""
    ends = [0, *(np.flatnonzero(marks[1:] != marks[:-1]) + 1).tolist(), len(marks)]
    yield from (slice(first, end) for first, end in pairwise(ends))
