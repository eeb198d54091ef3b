"""What the ranks of the experiment `getput` run: rank 0 computes, the others lend.

Two programs by the same code, which differ in how a block comes and goes: by get and put, or by
copies from and to an array whose pages come and go. The data are in remote memory before, and
there again after, for both; local memory is what the blocks and the pages take together.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from threading import Lock
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outgrid import Pager, remote
from outgrid.errors import StoreError, UsageError
from outgrid.native import Buffer, as_array
from outgrid_bench.openmp import built_with_openmp

__all__ = ["WAYS", "Task", "Way", "main"]

Way = Literal["get/put", "copied pages", "pages"]
Part = Literal["copy_seconds", "compute_seconds"]
WAYS: dict[str, tuple[Way, ...]] = {
    "vector sum": ("get/put", "copied pages", "pages"),
    "heat7": ("get/put", "copied pages", "pages"),
}
BLOCK_SHARE = 1 / 3  # of local memory where pages take the rest, as the paper's 2 x 20 of 117 GiB
# Of each vector: more would have left the caches near a core before it is added up, either way.
LARGEST_CHUNK_BYTES = 2 << 20
K = 0.1
SOURCE = r"""
#include <cstdint>
#include <cstring>

extern "C" void outgrid_sum(const std::int32_t* __restrict a, const std::int32_t* __restrict b,
                            std::int32_t* __restrict c, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) c[i] = a[i] + b[i];
}

// One step of the planes [z0, z1) and rows [y0, y1) of a block; the faces of the grid, of which
// `faces` are the planes and rows where they are seen from the block, stay as they are.
extern "C" void outgrid_heat7(const double* __restrict in, double* __restrict out,
                              std::int64_t plane, std::int64_t out_plane,
                              std::int64_t columns, std::int64_t z0, std::int64_t z1,
                              std::int64_t y0, std::int64_t y1,
                              const std::int64_t* faces, double k, int threads) {
#pragma omp parallel for collapse(2) num_threads(threads) schedule(static)
  for (std::int64_t z = z0; z < z1; ++z)
    for (std::int64_t y = y0; y < y1; ++y) {
      const double* p = in + z * plane + y * columns;
      double* q = out + z * out_plane + y * columns;
      if (z == faces[0] || z == faces[1] || y == faces[2] || y == faces[3]) {
        std::memcpy(q, p, sizeof(double) * columns);
        continue;
      }
      q[0] = p[0];
      q[columns - 1] = p[columns - 1];
      for (std::int64_t x = 1; x < columns - 1; ++x)
        q[x] = p[x] + k * ((p[x - 1] + p[x + 1]) + (p[x - columns] + p[x + columns]) +
                           (p[x - plane] + p[x + plane]) - 6.0 * p[x]);
    }
}
"""


@dataclass(frozen=True, slots=True)
class Task:
    """What is measured. ``shape`` is that of one array; ``depth`` and ``passes`` are for heat7.

    The program "moving" measures regions of ``sizes_bytes`` and has no shares.
    """

    program: str
    shape: tuple[int, ...]
    shares: tuple[float, ...]
    page_bytes: int
    rounds: int
    threads: int
    depth: int = 1
    passes: int = 1
    sizes_bytes: tuple[int, ...] = ()


@dataclass(slots=True)
class Spent:
    """Where the time of one way went, the mean of its threads: ``fault_seconds`` is waiting for
    pages, ``flush_seconds`` the writing back of what is left at the end; ``moved_bytes`` came from
    remote memory or went there."""

    seconds: float = 0.0
    copy_seconds: float = 0.0
    compute_seconds: float = 0.0
    fault_seconds: float = 0.0
    flush_seconds: float = 0.0
    moved_bytes: int = 0


@dataclass(slots=True)
class Carrier:
    """How regions of ``arrays`` come here and go: one way, with one amount of local memory.

    So many ``threads`` move and compute, each for itself.
    """

    way: Way
    arrays: list[remote.RemoteArray]
    local_bytes: int
    page_bytes: int
    threads: int = 1
    spent: Spent = field(default_factory=Spent)
    lock: Lock = field(default_factory=Lock)
    blocked: bool = True  # whether local memory holds blocks beside pages
    pager: Pager | None = None
    paged: list[NDArray[Any]] = field(default_factory=list[NDArray[Any]])

    def __post_init__(self) -> None:
        if self.way != "get/put":
            blocks = self.block_bytes if self.blocked else 0
            self.pager = Pager(self.local_bytes - blocks, page=self.page_bytes)
            self.paged = [array.paged(pager=self.pager) for array in self.arrays]

    @property
    def block_bytes(self) -> int:
        """Local memory for blocks."""
        return int(self.local_bytes * (1 if self.way == "get/put" else BLOCK_SHARE))

    def get(self, array: int, region: tuple[slice, ...], out: NDArray[Any]) -> None:
        """Bring a region."""
        with self._timing("copy_seconds", out.nbytes):
            if self.pager is None:
                self.arrays[array].get(region, out)
            else:
                out[...] = self.paged[array][region]

    def put(self, array: int, region: tuple[slice, ...], values: NDArray[Any]) -> None:
        """Carry a region away."""
        with self._timing("copy_seconds", values.nbytes):
            if self.pager is None:
                self.arrays[array].put(region, values)
            else:
                self.paged[array][region] = values

    def compute(self, work: Callable[[], None]) -> None:
        """Do some of the work itself."""
        with self._timing("compute_seconds"):
            work()

    @contextmanager
    def _timing(self, part: Part, nbytes: int = 0) -> Generator[None]:
        """Count the time inside as one part, and bytes that are moved."""
        begin = time.perf_counter()
        yield
        seconds = time.perf_counter() - begin
        with self.lock:
            self.spent.moved_bytes += nbytes
            setattr(self.spent, part, getattr(self.spent, part) + seconds / self.threads)

    def run(self, program: Callable[[Carrier], None]) -> Spent:
        """All of a program, until its results are in remote memory."""
        begin = time.perf_counter()
        program(self)
        if self.pager is not None:
            written = time.perf_counter()
            self.pager.flush()
            self.spent.flush_seconds = time.perf_counter() - written
        self.spent.seconds = time.perf_counter() - begin
        if self.pager is not None:
            statistics = self.pager.statistics()
            self.spent.moved_bytes = statistics.fetched_bytes + statistics.written_bytes
            # Whoever touches pages waits for them.
            part: Part = "compute_seconds" if self.way == "pages" else "copy_seconds"
            touching = getattr(self.spent, part)
            waited = min(touching, statistics.service_seconds / self.threads)
            self.spent.fault_seconds += waited
            setattr(self.spent, part, touching - waited)
            self.paged.clear()
            self.pager.close()
        return self.spent


@cache
def _library() -> ctypes.CDLL:
    library = built_with_openmp(SOURCE)
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    library.outgrid_sum.argtypes = [pointer, pointer, pointer, integer]
    library.outgrid_heat7.argtypes = [pointer, pointer, *[integer] * 7, pointer]
    library.outgrid_heat7.argtypes += [ctypes.c_double, ctypes.c_int]
    return library


def _touched(nbytes: int, dtype: str) -> NDArray[Any]:
    """Local memory that the system has given already."""
    values = as_array(Buffer(nbytes), dtype)
    values[...] = 0
    return values


class VectorSum:
    """c = a + b of int32, chunk by chunk by as many threads as there are cores, or all at once on
    arrays that are paged."""

    def __init__(self, task: Task) -> None:
        self.task, (self.count,) = task, task.shape
        self.arrays = [remote.array(self.count, "int32") for _ in range(3)]
        self.nbytes = sum(array.nbytes for array in self.arrays)
        for region in _chunks(self.count, 1 << 22):
            index = np.arange(region.start, region.stop, dtype=np.int32)
            self.arrays[0].put(region, 3 * index)
            self.arrays[1].put(region, index ^ 0x55AA)
        a, b, c = (np.zeros(1 << 10, np.int32) for _ in range(3))
        self._sum(a, b, c)  # compiles

    def clear(self) -> None:
        """Forget the sum."""
        for region in _chunks(self.count, 1 << 22):
            self.arrays[2].put(region, np.full(region.stop - region.start, -1, np.int32))

    def agrees(self) -> bool:
        """Whether all of the sum is in remote memory."""
        for region in _chunks(self.count, 1 << 22):
            index = np.arange(region.start, region.stop, dtype=np.int32)
            if not np.array_equal(self.arrays[2].get(region), 3 * index + (index ^ 0x55AA)):
                return False
        return True

    def prepare(self, carrier: Carrier) -> Callable[[Carrier], None]:
        """The program, its blocks made."""
        if carrier.way == "pages":
            return self._whole
        threads = self.task.threads
        block_bytes = min(carrier.block_bytes // threads, 3 * LARGEST_CHUNK_BYTES)
        chunk = max(1, min(self.count, block_bytes // 12))
        blocks = [[_touched(4 * chunk, "int32")[:chunk] for _ in range(3)] for _ in range(threads)]
        carrier.threads = threads

        def program(carrier: Carrier) -> None:
            chunks = iter(_chunks(self.count, chunk))
            with ThreadPoolExecutor(threads) as pool:
                begun = [pool.submit(self._add, carrier, chunks, *block) for block in blocks]
            for future in begun:
                future.result()

        return program

    def _add(
        self,
        carrier: Carrier,
        chunks: Iterator[slice],
        a: NDArray[Any],
        b: NDArray[Any],
        c: NDArray[Any],
    ) -> None:
        """What one thread does: it takes the chunk that is next, until none are left."""
        for region in chunks:
            part = slice(0, region.stop - region.start)
            carrier.get(0, (region,), a[part])
            carrier.get(1, (region,), b[part])
            carrier.compute(lambda part=part: self._sum(a[part], b[part], c[part]))
            carrier.put(2, (region,), c[part])

    def _whole(self, carrier: Carrier) -> None:
        a, b, c = carrier.paged
        carrier.compute(lambda: self._sum(a, b, c))

    def _sum(self, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]) -> None:
        _library().outgrid_sum(*(array.ctypes.data for array in (a, b, c)), len(a))


class Heat7:
    """Blocks of two local arrays make ``depth`` steps of heat7 each, pass by pass.

    A block is cut in z, and in y where it does not hold the grid, and brings a halo as deep as its
    steps are many.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.arrays = [remote.array(task.shape, "float64") for _ in range(2)]
        self.nbytes = sum(array.nbytes for array in self.arrays)
        self.plane_bytes = self.arrays[0].nbytes // task.shape[0]
        self.state = [np.empty(task.shape) for _ in range(2)]
        for z in range(task.shape[0]):
            self.state[0][z] = np.random.default_rng(z).random(task.shape[1:])
        self.initial = self.state[0].copy()
        for _ in range(task.depth * task.passes):
            self._step(self.state[0], self.state[1], (0, 0), (slice(0, None), slice(0, None)))
            self.state.reverse()

    def clear(self) -> None:
        """Begin anew."""
        self.arrays[0].put((), self.initial)
        self.arrays[1].put((), np.full(self.task.shape, np.nan))

    def agrees(self) -> bool:
        """Whether remote memory holds what plain sweeps of the whole grid left."""
        array = self.arrays[self.task.passes % 2]
        return all(
            array.get(z).tobytes() == self.state[0][z].tobytes() for z in range(self.task.shape[0])
        )

    def prepare(self, carrier: Carrier) -> Callable[[Carrier], None]:
        """The program, its blocks made. On pages the first step of a block reads them, and the last
        one writes them."""
        planes, rows, columns = self.task.shape
        halo = self.task.depth
        rows_together = carrier.block_bytes // 2 // (8 * columns)  # rows of all planes of a block
        own_rows = rows if rows_together >= planes * rows else -(-rows // 2)
        held_planes = rows_together // min(rows, own_rows + halo)
        own_planes = planes if held_planes >= planes else held_planes - 2 * halo
        if own_planes < 1:
            raise UsageError(
                f"blocks of {carrier.block_bytes} bytes do not hold {2 * halo + 1} planes of "
                f"{own_rows + halo} rows"
            )
        buffers = [_touched(8 * columns * rows_together, "float64") for _ in range(2)]

        def program(carrier: Carrier) -> None:
            for number in range(self.task.passes):
                for z in _chunks(planes, own_planes):
                    for y in _chunks(rows, own_rows):
                        self._block(carrier, number % 2, z, y, buffers)

        return program

    def _block(
        self, carrier: Carrier, source: int, z: slice, y: slice, buffers: list[NDArray[Any]]
    ) -> None:
        shape, depth = self.task.shape, self.task.depth
        region = tuple(
            slice(max(0, own.start - depth), min(extent, own.stop + depth))
            for own, extent in zip((z, y), shape, strict=False)
        )
        origin = (region[0].start, region[1].start)
        extents = (*(cells.stop - cells.start for cells in region), shape[2])
        blocks = [buffer[: int(np.prod(extents))].reshape(extents) for buffer in buffers]
        paged, ends = carrier.way == "pages", list[NDArray[Any]]()
        if paged:  # seen from the block
            begin = tuple(slice(first, None) for first in origin)
            ends = [array[begin] for array in carrier.paged]
        else:
            carrier.get(source, region, blocks[0])

        def work() -> None:
            for left in reversed(range(depth)):
                grown = tuple(
                    slice(max(0, own.start - left), min(extent, own.stop + left))
                    for own, extent in zip((z, y), shape, strict=False)
                )
                begins, finishes = paged and left == depth - 1, paged and left == 0
                values = ends[source] if begins else blocks[0]
                into = ends[1 - source] if finishes else blocks[1]
                self._step(values, into, origin, grown)
                blocks.reverse()

        carrier.compute(work)
        if paged:
            return
        own = tuple(
            slice(cells.start - first, cells.stop - first)
            for cells, first in zip((z, y), origin, strict=True)
        )
        carrier.put(1 - source, (z, y), blocks[0][own])

    def _step(
        self,
        values: NDArray[Any],
        into: NDArray[Any],
        origin: tuple[int, int],
        cells: tuple[slice, ...],
    ) -> None:
        """One step of ``cells`` (of z and y, of the grid) of a block that begins at ``origin``."""
        bounds = [
            int(bound) - first
            for cell, first, extent in zip(cells, origin, self.task.shape, strict=False)
            for bound in (cell.start, extent if cell.stop is None else cell.stop)
        ]
        ends = [
            face - first
            for first, extent in zip(origin, self.task.shape, strict=False)
            for face in (0, extent - 1)
        ]
        _library().outgrid_heat7(
            values.ctypes.data,
            into.ctypes.data,
            values.strides[0] // 8,
            into.strides[0] // 8,
            values.shape[2],
            *bounds,
            (ctypes.c_int64 * 4)(*ends),
            K,
            self.task.threads,
        )


def _chunks(extent: int, size: int) -> list[slice]:
    return [slice(first, min(first + size, extent)) for first in range(0, extent, size)]


def _compare(task: Task) -> dict[str, Any]:
    """Every way at every share, in turns."""
    program = VectorSum(task) if task.program == "vector sum" else Heat7(task)
    runs: list[dict[str, Any]] = []
    refused = ""
    for _ in range(task.rounds):
        for share in task.shares:
            for way in WAYS[task.program]:
                local = int(share * program.nbytes)
                program.clear()
                try:
                    carrier = Carrier(
                        way,
                        program.arrays,
                        local,
                        task.page_bytes,
                        blocked=way != "pages" or task.program == "heat7",
                    )
                except StoreError as error:  # the kernel lets nobody page here
                    refused = str(error)
                    continue
                spent = carrier.run(program.prepare(carrier))
                runs.append(
                    {
                        "way": way,
                        "share": share,
                        "local_bytes": local,
                        "data_bytes": program.nbytes,
                        "agrees": program.agrees(),
                        **asdict(spent),
                    }
                )
    return {"runs": runs, "refused": refused}


def _moving(task: Task) -> dict[str, Any]:
    """Regions by get and put beside plain calls of MPI, between memory that is touched already."""
    most = max(task.sizes_bytes)
    ours = remote.array(most, "uint8")
    plain = remote.array(most, "uint8", placement="contiguous")
    here, there = _touched(most, "uint8"), _touched(most, "uint8")
    here[...] = np.resize(np.arange(251, dtype=np.uint8), most)
    ours.put((), here)
    plain.put((), here)
    moves: list[dict[str, Any]] = []
    agrees = True

    def timed(size: int, how: str, move: Callable[[], object]) -> None:
        begin = time.perf_counter()
        move()
        seconds = time.perf_counter() - begin
        moves.append({"bytes": size, "how": how, "seconds": seconds})

    for size in task.sizes_bytes:
        region = slice(0, size)
        for _ in range(task.rounds):
            timed(size, "MPI_Get", lambda size=size: _plain(plain, there[:size], put=False))
            agrees &= np.array_equal(there[:size], here[:size])
            there[:size] = 0
            timed(size, "get", lambda region=region: ours.get(region, there[region]))
            agrees &= np.array_equal(there[:size], here[:size])
            timed(size, "get into new memory", lambda region=region: ours.get(region))
            here[:size] += 1
            timed(size, "MPI_Put", lambda size=size: _plain(plain, here[:size], put=True))
            timed(size, "put", lambda region=region: ours.put(region, here[region]))
    agrees &= np.array_equal(ours.get(), here) and np.array_equal(plain.get(), here)
    return {"moves": moves, "agrees": bool(agrees)}


def _plain(array: remote.RemoteArray, local: NDArray[Any], put: bool) -> None:
    """One call of MPI for each rank, and a flush."""
    from mpi4py import MPI

    move = array.mpi.Put if put else array.mpi.Get
    done = 0
    for nbytes, rank, displacement in array.parts.tolist():
        count = min(nbytes, len(local) - done)
        if count > 0:
            move([local[done : done + count], count, MPI.BYTE], rank, displacement)
            done += count
    array.mpi.Flush_all()


def main() -> None:
    """What every rank of the experiment runs."""
    remote.start()
    entries = json.loads(sys.argv[1])
    for name in ("shape", "shares", "sizes_bytes"):
        entries[name] = tuple(entries[name])
    task = Task(**entries)
    told = _moving(task) if task.program == "moving" else _compare(task)
    sys.stdout.write(json.dumps(told))
