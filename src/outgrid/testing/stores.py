"""Stores that behave as badly as a store may."""

import ctypes
import errno
import math
import random
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from outgrid.errors import StoreError
from outgrid.native import File, unfold
from outgrid.storage.base import NATURAL, FoldedRows, Planes, Store, Wrapping
from outgrid.storage.memory import MemoryStore
from outgrid.storage.transfers import Completion, Moved, Transfers

__all__ = ["Fault", "Faulty", "Shuffled", "Volatile"]

_GARBAGE = 0xFF  # floating-point numbers of these bytes are NaN


def _written(address: int, nbytes: int, folding: FoldedRows) -> Iterator[tuple[int, int]]:
    """Where a read of so many bytes writes: an address and bytes, part by part."""
    _, _, row_bytes, stride, parts = folding
    if not parts:
        yield address, nbytes
        return
    for row in range(nbytes // row_bytes):
        yield from ((address + row * stride + begin, end - begin) for begin, end in parts)


class Shuffled(Transfers):
    """Transfers that begin late, in random order, and say so later still.

    A store made with it moves nothing until its completion is about to be handed out: who uses
    memory before that reads garbage, which is written over it at once, and who changes memory
    before that has the change written out. `poll` hands out a ticket with probability `haste`, and
    `wait`, if it need not wait for ever, often none.
    """

    def __init__(self, seed: int = 0, *, haste: float = 0.3, engine: str = "threads") -> None:
        super().__init__(engine, depth=2, request_bytes=1 << 16, staging_bytes=1 << 15)
        self._random = random.Random(seed)
        self._haste = haste
        self._waiting: dict[int, Callable[[], int]] = {}
        self._last = 0

    @property
    def outstanding(self) -> int:
        return len(self._waiting)

    def read(
        self,
        file: File,
        segments: NDArray[Any],
        owner: object,
        row_bytes: int = 0,
        moved: Moved | None = None,
        folding: FoldedRows = NATURAL,
    ) -> int:
        for _, address, nbytes in segments.tolist():
            for first, size in _written(address, nbytes, folding):
                ctypes.memset(first, _GARBAGE, size)
        given = segments, owner, row_bytes, moved, folding
        return self._defer(lambda: super(Shuffled, self).read(file, *given))

    def read_packed(
        self,
        file: File,
        segments: NDArray[Any],
        planes: NDArray[np.int64],
        owner: object,
        folding: FoldedRows = NATURAL,
    ) -> int:
        for plane in planes.tolist():
            _, _, _, address, rows, row_bytes, stride, _ = plane
            for row in range(rows):
                ctypes.memset(address + row * stride, _GARBAGE, row_bytes)
        given = segments, planes, owner, folding
        return self._defer(lambda: super(Shuffled, self).read_packed(file, *given))

    def write(
        self,
        file: File,
        segments: NDArray[Any],
        owner: object,
        row_bytes: int = 0,
        moved: Moved | None = None,
        folding: FoldedRows = NATURAL,
    ) -> int:
        given = segments, owner, row_bytes, moved, folding
        return self._defer(lambda: super(Shuffled, self).write(file, *given))

    def flush(self, *files: File) -> int:
        return self._defer(lambda: super(Shuffled, self).flush(*files))

    def call(self, action: Callable[[], int]) -> int:
        return self._defer(lambda: super(Shuffled, self).call(action))

    def fail(self, error: StoreError) -> int:
        return self._defer(lambda: super(Shuffled, self).fail(error))

    def join(self, *tickets: int) -> int:
        parts = [self._waiting.pop(ticket) for ticket in tickets]
        return self._defer(lambda: super(Shuffled, self).join(*(part() for part in parts)))

    def poll(self) -> list[Completion]:
        chosen = [ticket for ticket in self._waiting if self._random.random() < self._haste]
        self._random.shuffle(chosen)
        return [self._carry_out(ticket) for ticket in chosen]

    def wait(self, timeout_seconds: float = math.inf) -> list[Completion]:
        if not self._waiting:
            return []
        ended = self.poll()
        if ended or (timeout_seconds < math.inf and self._random.random() > self._haste):
            return ended
        return [self._carry_out(self._random.choice([*self._waiting]))]

    def wake(self) -> None:
        """Nothing waits for long."""

    def _defer(self, begin: Callable[[], int]) -> int:
        self._last += 1
        self._waiting[self._last] = begin
        return self._last

    def _carry_out(self, ticket: int) -> Completion:
        self._waiting.pop(ticket)()
        completions: list[Completion] = []
        while not completions:  # a flush of several files has parts, which say nothing
            completions = super().wait()
        (ended,) = completions
        return Completion(ticket, ended.nbytes, ended.seconds, ended.error)


class Volatile(MemoryStore):
    """A store whose writes are lost with the power until a flush that began after them has ended.

    ``happened`` is called after every write and every flush.
    """

    def __init__(
        self,
        name: str,
        array: NDArray[Any],
        transfers: Transfers,
        happened: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name, array, transfers)
        self._stable = array.copy()
        self._pending: dict[int, tuple[int, int, NDArray[Any]]] = {}  # in the order of writes
        self._numbers = count()
        self._happened = happened

    def put(self, planes: range, rows: range, source: Planes) -> int:
        segments = self._layout.segments(planes, rows, source)
        folding = source.folded(rows, self.row_bytes)

        def write() -> int:
            for stored, address, nbytes in segments.tolist():
                unfold(address, 0, nbytes, stored, folding)
                offset = stored - self.array.ctypes.data
                values = self._bytes(self.array)[offset : offset + nbytes].copy()
                self._pending[next(self._numbers)] = offset, nbytes, values
            self._happened()
            return int(segments[:, 2].sum())

        return self._transfers.call(write)

    def flush(self) -> int:
        covered = list(self._pending)

        def settle() -> int:
            for number in covered:
                if number in self._pending:  # else another flush was sooner
                    self._write(self._stable, *self._pending.pop(number))
            self._happened()
            return 0

        return self._transfers.call(settle)

    def after_power_loss(self, choose: random.Random) -> NDArray[Any]:
        """What may be found: writes that were not flushed are there, not there or torn."""
        survived = self._stable.copy()
        pending = list(self._pending.values())
        choose.shuffle(pending)
        for offset, nbytes, values in pending:
            first, last = sorted((choose.randint(0, nbytes), choose.randint(0, nbytes)))
            match choose.randrange(3):
                case 0:
                    self._write(survived, offset, nbytes, values)
                case 1:
                    self._write(survived, offset + first, last - first, values[first:last])
                case _:
                    pass
        return survived

    @staticmethod
    def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
        return array.reshape(-1).view(np.uint8)

    def _write(self, array: NDArray[Any], offset: int, nbytes: int, values: NDArray[Any]) -> None:
        self._bytes(array)[offset : offset + nbytes] = values


class Fault(msgspec.Struct, frozen=True):
    """The request that fails: the `index`-th `operation` on the store, counted from 0."""

    operation: Literal["get", "put", "flush"]
    index: int
    errno: int = errno.EIO


class Faulty(Wrapping):
    """A store of which chosen requests fail, without moving anything."""

    def __init__(self, store: Store, transfers: Transfers, faults: Iterable[Fault]) -> None:
        super().__init__(store)
        self._transfers = transfers
        self._faults = {(fault.operation, fault.index): fault for fault in faults}
        self._counts = {"get": 0, "put": 0, "flush": 0}

    def get(self, planes: range, rows: range, into: Planes) -> int:
        fault = self._next("get")
        return self._fail(fault, planes) if fault else self._store.get(planes, rows, into)

    def put(self, planes: range, rows: range, source: Planes) -> int:
        fault = self._next("put")
        return self._fail(fault, planes) if fault else self._store.put(planes, rows, source)

    def flush(self) -> int:
        fault = self._next("flush")
        return self._fail(fault, range(0)) if fault else self._store.flush()

    def _next(self, operation: Literal["get", "put", "flush"]) -> Fault | None:
        index = self._counts[operation]
        self._counts[operation] += 1
        return self._faults.get((operation, index))

    def _fail(self, fault: Fault, planes: range) -> int:
        error = StoreError(
            f"{fault.operation} failed on purpose",
            path=self.name,
            offset=planes.start * self.plane_bytes,
            length=len(planes) * self.plane_bytes,
            errno=fault.errno,
        )
        return self._transfers.fail(error)
