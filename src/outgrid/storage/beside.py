"""A field whose rows lie in several stores: parts of every plane that are written apart.

A file in which every plane is written in two goes, some rows now and others later, takes many small
writes, and a disk block at each joint is written twice. In files of their own both are whole runs.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from outgrid.seal import Seal
from outgrid.storage.base import Planes, Store, Wrapping
from outgrid.storage.transfers import Transfers

__all__ = ["BesideStore"]


class BesideStore(Wrapping):
    """Stores of the same planes; each holds the rows that follow those of the one before it.

    All of them were made with ``transfers``. Number ``main`` of the ``parts`` gives its name.
    """

    def __init__(self, parts: Sequence[Store], main: int, transfers: Transfers) -> None:
        super().__init__(parts[main])
        self._parts, self._main, self._transfers = tuple(parts), main, transfers
        self._firsts = [0]
        for part in parts:
            self._firsts.append(self._firsts[-1] + part.rows_per_plane)

    @property
    def shape(self) -> tuple[int, ...]:
        planes, _, columns = self._store.shape
        return planes, self._firsts[-1], columns

    @property
    def rows_per_plane(self) -> int:
        return self._firsts[-1]

    @property
    def plane_bytes(self) -> int:
        return self.rows_per_plane * self.row_bytes

    def hold(self, seal: Seal) -> None:
        """Say it to all of them: a part beside the main one is of something else than that."""
        for number, part in enumerate(self._parts, -self._main):
            part.hold(replace(seal, name=f"{seal.name}{number or ''}"))

    def get(self, planes: range, rows: range, into: Planes) -> int:
        return self._move(planes, rows, into, lambda part: part.get)

    def put(self, planes: range, rows: range, source: Planes) -> int:
        return self._move(planes, rows, source, lambda part: part.put)

    def flush(self) -> int:
        return self._transfers.join(*(part.flush() for part in self._parts))

    def close(self) -> None:
        """Close all of them."""
        for part in self._parts:
            part.close()

    def _move(
        self,
        planes: range,
        rows: range,
        memory: Planes,
        way: Callable[[Store], Callable[[range, range, Planes], int]],
    ) -> int:
        if rows.start < 0 or rows.stop > self.rows_per_plane or rows.stop < rows.start:
            raise ValueError(f"rows {rows} requested of a field with {self.rows_per_plane}")
        tickets: list[int] = []
        for part, first in zip(self._parts, self._firsts, strict=False):
            low, high = max(rows.start, first), min(rows.stop, first + part.rows_per_plane)
            if low < high or (not rows and part is self._store):
                within = range(low - first, high - first) if low < high else range(0)
                at = memory.from_row(max(0, low - rows.start), len(within))
                tickets.append(way(part)(planes, within, at))
        return self._transfers.join(*tickets)
