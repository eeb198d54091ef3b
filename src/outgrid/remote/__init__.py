"""Memory of other nodes for programs: arrays to get from and put to, and arrays that are paged.

Start a program with `mpiexec -n 3 python program.py` and call `start()` first: rank 0 returns from
it and goes on, the other ranks lend their memory until rank 0 ends.
"""

from __future__ import annotations

import atexit
import math
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outgrid.errors import UsageError
from outgrid.remote.moving import Moving, moving
from outgrid.remote.placement import Placement, block_bytes, cut, shares, spread
from outgrid.remote.store import RemoteSpace
from outgrid.storage import Pager
from outgrid.storage.paging import PAGE_BYTES
from outgrid.units import parse_bytes

if TYPE_CHECKING:
    from mpi4py import MPI

    from outgrid.remote.lending import Lenders, Window

__all__ = ["RemoteArray", "array", "empty", "start"]

Index = int | slice | tuple[int | slice, ...]

_lenders: Lenders | None = None


def start(lend: str | int | None = None) -> None:
    """Make rank 0 the one that computes, and all others lend memory until it ends.

    No rank lends more than `lend`, nor more than most of what its host has free. Only rank 0
    returns. Raises UsageError where there are no other ranks.
    """
    global _lenders
    if _lenders is not None:
        return
    try:
        from outgrid.remote.lending import lending
    except ImportError as error:
        raise UsageError(
            f"remote memory needs MPI ({error}); install it with: pip install 'outgrid[mpi]'"
        ) from error
    stack = ExitStack()
    lenders = stack.enter_context(lending(None if lend is None else parse_bytes(lend)))
    if lenders is None:
        stack.close()
        sys.exit(0)
    _lenders = lenders
    atexit.register(stack.close)


def empty(
    shape: int | tuple[int, ...],
    dtype: DTypeLike = "float64",
    *,
    local: str | int = "1GiB",
    page: str | int = PAGE_BYTES,
    pager: Pager | None = None,
    placement: Placement = "cyclic",
) -> NDArray[Any]:
    """A NumPy array of zeroes in remote memory, of which at most `local` bytes are here at once.

    Its pages, of `page` bytes, come and go as they are touched. With a `pager` it shares that one's
    memory, and its size of pages, with other arrays. It ends with the program.
    """
    return array(shape, dtype, placement=placement).paged(local, page=page, pager=pager, blank=True)


def array(
    shape: int | tuple[int, ...], dtype: DTypeLike = "float64", *, placement: Placement = "cyclic"
) -> RemoteArray:
    """An array in remote memory, of undefined content, moved by `get` and `put`."""
    return RemoteArray(shape, dtype, placement)


class RemoteArray:
    """An array in the memory of other nodes. Regions of it are moved; nothing is computed there.

    A region is what slices of step 1 and numbers select. `get` and `put` wait; `start_get` and
    `start_put` return what to wait for, and until then the local array belongs to the transfer.
    Local arrays may be views with gaps, such as the inner part of a block.

    `parts` says where the bytes lie: int64 of shape (n, 3), bytes, rank and displacement in `mpi`,
    the window of MPI.
    """

    def __init__(
        self, shape: int | tuple[int, ...], dtype: DTypeLike, placement: Placement = "cyclic"
    ) -> None:
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        axes = range(len(self.shape))
        self._strides = [math.prod(self.shape[n + 1 :]) * self.dtype.itemsize for n in axes]
        self._window, self.parts = _borrow(self.nbytes, placement)
        self._lent = _Lent(self.parts)

    @property
    def mpi(self) -> MPI.Win:
        """The window, in an epoch of MPI_Win_lock_all."""
        return self._window.mpi

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return math.prod(self.shape) * self.dtype.itemsize

    def get(self, index: Index = (), out: NDArray[Any] | None = None) -> NDArray[Any]:
        """The values of a region, in `out` where that is given (of the same shape and type).

        Memory that is touched for the first time costs more than the transfer does: what is got
        again and again should go to the same `out`.
        """
        ranges, kept = _region(index, self.shape)
        values = np.empty([len(ranges[axis]) for axis in kept], self.dtype) if out is None else out
        self._moving(index, values, put=False).start(spared=1).wait()
        return values

    def put(self, index: Index, values: Any) -> None:
        """Change the values of a region."""
        ranges, kept = _region(index, self.shape)
        region = [len(ranges[axis]) for axis in kept]
        given = np.broadcast_to(np.asarray(values, self.dtype), region)
        if not _ascends(given):
            given = np.ascontiguousarray(given)
        self._moving(index, given, put=True).start(spared=1).wait()

    def start_get(self, index: Index, out: NDArray[Any]) -> Moving:
        """Begin to bring a region into `out`."""
        return self._moving(index, out, put=False).start()

    def start_put(self, index: Index, values: NDArray[Any]) -> Moving:
        """Begin to carry `values` to a region."""
        return self._moving(index, values, put=True).start()

    def __getitem__(self, index: Index) -> NDArray[Any]:
        return self.get(index)

    def __setitem__(self, index: Index, values: Any) -> None:
        self.put(index, values)

    def paged(
        self,
        local: str | int = "1GiB",
        *,
        page: str | int = PAGE_BYTES,
        pager: Pager | None = None,
        blank: bool = False,
    ) -> NDArray[Any]:
        """This array as a NumPy array of which at most `local` bytes are here at once.

        They come and go in pages of `page` bytes. With a `pager` it shares that one's memory, and
        its size of pages, with other arrays. What is changed in it is there for `get` after the
        pager's `flush`; what is `put` is seen in pages that come later. `blank` takes the content
        for zeroes and drops it in the end.
        """
        space = RemoteSpace(
            self._window.calls, int(self.parts[:, 0].sum()), partial(cut, self.parts)
        )
        backing = space.take("remote memory", self.nbytes)
        used = pager or Pager(local, page=page)
        return used.array(backing, self.shape, self.dtype, blank=blank, keep=not blank)

    def _moving(self, index: Index, local: NDArray[Any], put: bool) -> Moving:
        ranges, kept = _region(index, self.shape)
        region = tuple(len(ranges[axis]) for axis in kept)
        if local.shape != region or local.dtype != self.dtype:
            raise UsageError(
                f"the region holds {self.dtype} of shape {region}; the local array is "
                f"{local.dtype} of shape {local.shape}"
            )
        if not (put or local.flags.writeable):
            raise UsageError("the local array is read-only, and a region is to be got into it")
        if not _ascends(local):
            raise UsageError(
                f"the local array has strides of {local.strides} bytes; they must be above 0: copy "
                "it first"
            )
        here = [0] * len(ranges)
        for axis, stride in zip(kept, local.strides, strict=True):
            here[axis] = stride
        runs = _runs(ranges, self._strides, here, self.dtype.itemsize)
        return moving(self._window.calls, self._lent.pieces(*runs), local, put)


def _borrow(nbytes: int, placement: Placement) -> tuple[Window, NDArray[np.int64]]:
    if _lenders is None:
        raise UsageError("no rank lends memory yet: call outgrid.remote.start() first")
    unit = block_bytes(nbytes, len(_lenders.offers))
    amounts = shares(nbytes, [offer.nbytes for offer in _lenders.offers], unit)
    return _lenders.window(amounts), spread(amounts, placement, unit)


def _region(index: Index, shape: Sequence[int]) -> tuple[list[range], list[int]]:
    """The range along every axis, and the axes that are left when numbers have taken theirs."""
    given = index if isinstance(index, tuple) else (index,)
    if len(given) > len(shape):
        raise UsageError(f"{len(given)} indices for an array of {len(shape)} axes")
    ranges: list[range] = []
    kept: list[int] = []
    for axis, extent in enumerate(shape):
        part = given[axis] if axis < len(given) else slice(None)
        if isinstance(part, slice):
            ranges.append(range(*part.indices(extent)))
            kept.append(axis)
        else:
            first = part + extent if part < 0 else part
            ranges.append(range(first, first + 1))
        chosen = ranges[-1]
        if chosen.step != 1 or chosen.start < 0 or (chosen and chosen.stop > extent):
            raise UsageError(f"{part} on axis {axis} of {extent}: slices of step 1 and numbers")
    return ranges, kept


def _ascends(local: NDArray[Any]) -> bool:
    """Whether no element comes before, or in the place of, one of lower indices."""
    paired = zip(local.shape, local.strides, strict=True)
    return local.size == 0 or all(stride > 0 for extent, stride in paired if extent > 1)


def _runs(
    ranges: Sequence[range], there: Sequence[int], here: Sequence[int], itemsize: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """The pieces of a region that are contiguous on both sides, of which the strides are given.

    Their offsets in bytes there and here, int64 of shape (n,), and the bytes of each.
    """
    if not all(map(len, ranges)):
        return np.empty(0, np.int64), np.empty(0, np.int64), 0
    nbytes, axis = itemsize, len(ranges)
    while axis > 0 and (len(ranges[axis - 1]) == 1 or there[axis - 1] == here[axis - 1] == nbytes):
        axis -= 1
        nbytes *= len(ranges[axis])
    far = np.array([sum(cells.start * stride for cells, stride in zip(ranges, there, strict=True))])
    near = np.zeros(1, np.int64)
    for outer in range(axis):
        steps = np.arange(len(ranges[outer]))
        far = (far[:, None] + steps * there[outer]).reshape(-1)
        near = (near[:, None] + steps * here[outer]).reshape(-1)
    return far, near, nbytes


class _Lent:
    """Where the bytes of an array lie, made ready for looking them up."""

    def __init__(self, parts: NDArray[np.int64]) -> None:
        self._ends = np.cumsum(parts[:, 0])
        self._begins = self._ends - parts[:, 0]
        self._ranks, self._places = parts[:, 1], parts[:, 2] - self._begins

    def pieces(
        self, far: NDArray[np.int64], near: NDArray[np.int64], nbytes: int
    ) -> NDArray[np.int64]:
        """Runs cut where the memory of one rank ends: rank, displacement there, local offset,
        bytes."""
        first = np.searchsorted(self._ends, far, "right")
        last = np.searchsorted(self._begins, far + nbytes, "left")
        counts = last - first
        if len(far) == 1:  # the most usual: in a third of the time
            part, run = slice(first[0], last[0]), slice(None)
        else:
            run = np.repeat(np.arange(len(far)), counts)
            part = np.arange(len(run)) - np.repeat(np.cumsum(counts) - counts, counts) + first[run]
        low = np.maximum(far[run], self._begins[part])
        high = np.minimum(far[run] + nbytes, self._ends[part])
        table = np.empty((len(low), 4), np.int64)
        table[:, 0] = self._ranks[part]
        table[:, 1] = self._places[part] + low
        table[:, 2] = near[run] + low - far[run]
        table[:, 3] = high - low
        return table
