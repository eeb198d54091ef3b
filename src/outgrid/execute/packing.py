"""Packing coefficients, which every sweep reads and none writes, before the first sweep."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import numpy as np

from outgrid.errors import Error, StoreError
from outgrid.execute.fill import InitialValues, clear_block, opened, wait_for
from outgrid.execute.inputs import Inputs
from outgrid.native import Buffer, File, pack
from outgrid.plan.schedule.rings import Arrival
from outgrid.plan.schedule.subgrid import Box
from outgrid.stencil.problem import Problem
from outgrid.storage import Joined, Planes, Store, Transfers
from outgrid.storage.packed import (
    MARGIN_BYTES,
    PACKED_ITEMS,
    WORTH_PACKING,
    PackedStore,
    index_of,
    packed_room,
    whole_blocks,
)

__all__ = ["packed", "sampled"]

BATCH_BYTES = 8 << 20
TURNS = 2  # batches: one moves while the next is packed
SAMPLES = 3  # planes that a share is estimated from
SAMPLED_BYTES = 16 << 20  # of each, at most


class Stored(Protocol):
    """Fields that an earlier process has left in files."""

    def fields(self, arrivals: tuple[Arrival, ...]) -> dict[str, Joined]: ...


def sampled(
    problem: Problem, inputs: Inputs, stored: Stored | None = None
) -> Callable[[tuple[Arrival, ...]], Mapping[str, float]]:
    """Who says of some levels which share of its bytes each coefficient takes packed.

    Of those for which that is worth it, from some of their planes, which are read when this is
    asked for the first time: from what is ``stored``, else the initial values. Nothing where they
    cannot be read: what is against them is said by `check_inputs`.
    """
    known: dict[str, float] = {}

    def shares(levels: tuple[Arrival, ...]) -> Mapping[str, float]:
        coefficients = tuple(
            level
            for level in levels
            if level.constant and np.dtype(problem.dtype_of(level.field)).itemsize in PACKED_ITEMS
        )
        if known.keys() != {level.field for level in coefficients}:
            given = stored.fields(coefficients) if stored is not None else {}
            values = InitialValues(problem, given=given)
            try:
                known.update(
                    (name.field, _share(values, inputs, name.field)) for name in coefficients
                )
            except Error:
                return {}
        return {name: share for name, share in known.items() if share < WORTH_PACKING}

    return shares


def _share(values: InitialValues, inputs: Inputs, name: str) -> float:
    problem, dtype = values.problem, np.dtype(values.problem.dtype_of(name))
    box, columns = values.box, problem.shape[-1]
    own = opened(values, inputs, name, 0)
    rows = min(len(box.rows), max(1, SAMPLED_BYTES // (columns * dtype.itemsize)))
    first = box.rows.start + (len(box.rows) - rows) // 2
    taken = packed_bytes = 0
    for plane in _spread(box.planes):
        block = Box(range(plane, plane + 1), range(first, first + rows))
        cells = own.read(block).astype(dtype, order="C")
        if name in problem.regions:
            clear_block(cells, problem, name, (plane, first, 0))
        there = Buffer(cells.nbytes)
        address = cells.ctypes.data
        room = packed_room(cells.nbytes)
        size = (rows, columns * dtype.itemsize, dtype.itemsize)
        nbytes, _ = pack(address, *size, there.address, room, MARGIN_BYTES)
        there.release()
        taken += cells.nbytes
        packed_bytes += whole_blocks(nbytes) if nbytes else cells.nbytes
    return packed_bytes / taken


def _spread(planes: range) -> Iterator[int]:
    """Some planes, spread over all of them."""
    count = min(SAMPLES, len(planes))
    for number in range(count):
        yield planes[(2 * number + 1) * len(planes) // (2 * count)]


def packed(
    store: Store, path: Path, transfers: Transfers, memory_bytes: int, threads: int
) -> PackedStore:
    """The ``store`` of a coefficient, with a packed copy of its planes in a file that is made here.

    The file has no name any more when this returns: it is gone with the process. ``path`` is what
    it is called meanwhile. ``memory_bytes`` are free by now, for all batches together. Raises
    StoreError where the disk is full, or a plane cannot be read.
    """
    path.unlink(missing_ok=True)  # of a process that was killed meanwhile
    try:
        file = File(path, "create")
    except OSError as error:
        raise StoreError("cannot create", path=path, errno=error.errno) from error
    try:
        os.unlink(path)
        return _Packing(store, file, transfers, memory_bytes, threads).made()
    except BaseException:
        file.close()
        raise


class _Packing:
    """Batches of planes on their way: read, packed by several threads, and written."""

    def __init__(
        self, store: Store, file: File, transfers: Transfers, memory_bytes: int, threads: int
    ) -> None:
        self.store, self.file, self.transfers = store, file, transfers
        self.threads = threads
        self.slot_bytes = whole_blocks(store.plane_bytes)
        fitting = memory_bytes // (2 * TURNS * self.slot_bytes)
        self.count = max(1, min(BATCH_BYTES // self.slot_bytes, fitting))
        self.room = packed_room(store.plane_bytes)
        self.counts: list[tuple[int, int]] = []
        self.ended: set[int] = set()

    def made(self) -> PackedStore:
        store = self.store
        batches = [
            range(first, min(first + self.count, store.planes))
            for first in range(0, store.planes, self.count)
        ]
        sources = [Buffer(self.count * self.slot_bytes) for _ in range(TURNS)]
        targets = [Buffer(self.count * self.slot_bytes) for _ in range(TURNS)]
        reads, writes, offset = [0] * TURNS, [0] * TURNS, 0
        with ThreadPoolExecutor(self.threads) as pool:
            reads[0] = self._read(batches[0], sources[0])
            for number, planes in enumerate(batches):
                turn, after = number % TURNS, (number + 1) % TURNS
                if number + 1 < len(batches):
                    reads[after] = self._read(batches[number + 1], sources[after])
                wait_for(reads[turn], self.transfers, self.ended)
                wait_for(writes[turn], self.transfers, self.ended)
                places = self._places(planes, sources[turn]), self._places(planes, targets[turn])
                counts = [*pool.map(self._pack, *places)]
                writes[turn] = self._write(counts, places[1], offset, targets[turn])
                offset += int(index_of(counts).file_bytes.sum())
                self.counts += counts
        self.transfers.drain()
        for buffer in (*sources, *targets):
            buffer.release()
        return PackedStore(store, self.file, index_of(self.counts), self.transfers)

    def _places(self, planes: range, buffer: Buffer) -> list[int]:
        return [buffer.address + number * self.slot_bytes for number in range(len(planes))]

    def _read(self, planes: range, into: Buffer) -> int:
        addresses = np.array(self._places(planes, into), np.int64)
        rows = range(self.store.rows_per_plane)
        return self.store.get(planes, rows, Planes(addresses, self.store.row_bytes, into))

    def _pack(self, source: int, target: int) -> tuple[int, int]:
        store = self.store
        size = (store.rows_per_plane, store.row_bytes, store.dtype.itemsize)
        return pack(source, *size, target, self.room, MARGIN_BYTES)

    def _write(
        self, counts: list[tuple[int, int]], places: list[int], offset: int, owner: Buffer
    ) -> int:
        """Start to write packed planes; 0 where there are none."""
        index = index_of(counts)
        segments = np.stack(
            [index.offsets + offset, np.array(places, np.int64), index.file_bytes], axis=1
        )[index.nbytes > 0]
        if not len(segments):
            return 0
        return self.transfers.write(self.file, np.ascontiguousarray(segments), owner)
