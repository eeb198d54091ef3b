"""A store whose planes are the rows of another one, and whose rows are its planes.

Plane y of it has row y of every plane of the other store. So a grid passes along its second axis
without being laid out anew: neighbouring rows of a plane lie one behind the other in a file, and
some planes of this store are one piece of each plane of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from outgrid.axes import exchanged
from outgrid.storage.base import Planes, Store, Wrapping
from outgrid.storage.transfers import Transfers

__all__ = ["TransposedStore"]


class TransposedStore(Wrapping):
    """Another store, with planes and rows exchanged."""

    def __init__(self, store: Store, transfers: Transfers) -> None:
        super().__init__(store)
        self._transfers = transfers

    @property
    def shape(self) -> tuple[int, ...]:
        return exchanged(self._store.shape)

    @property
    def planes(self) -> int:
        return self._store.rows_per_plane

    @property
    def rows_per_plane(self) -> int:
        return self._store.planes

    @property
    def plane_bytes(self) -> int:
        return self._store.planes * self._store.row_bytes

    def get(self, planes: range, rows: range, into: Planes) -> int:
        return self._move(self._store.get, planes, rows, into)

    def put(self, planes: range, rows: range, source: Planes) -> int:
        return self._move(self._store.put, planes, rows, source)

    def flush(self) -> int:
        return self._store.flush()

    def _move(
        self, act: Callable[[range, range, Planes], int], planes: range, rows: range, memory: Planes
    ) -> int:
        """Move each run of planes that lie evenly apart in memory."""
        memory.require_natural(f"{self.name}, with planes and rows exchanged,")
        tickets = [
            act(rows, planes[run], _rows_of(memory.part(run), len(rows)))
            for run in _even(memory.addresses)
        ]
        return tickets[0] if len(tickets) == 1 else self._transfers.join(*tickets)


def _even(addresses: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Iterator[slice]:
    """Runs of addresses that rise by the same number of bytes."""
    first = 0
    while first < len(addresses):
        apart = np.diff(addresses[first:])
        uneven = np.flatnonzero((apart != apart[:1]) | (apart <= 0))
        end = first + 1 + (int(uneven[0]) if len(uneven) else len(apart))
        yield slice(first, end)
        first = end


def _rows_of(memory: Planes, rows: int) -> Planes:
    """The same memory as ``rows`` planes, each of which has one row of every plane."""
    first, apart = memory.addresses[0], np.diff(memory.addresses[:2])
    addresses = first + memory.row_stride_bytes * np.arange(rows, dtype=np.int64)
    return Planes(addresses, int(apart[0]) if len(apart) else 0, memory.owner)
