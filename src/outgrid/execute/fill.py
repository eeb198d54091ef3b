"""Bringing the initial values into the stores, a few planes or rows at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import cycle, islice
from math import prod

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from outgrid.axes import in_fortran_order
from outgrid.errors import DefinitionError, InfeasiblePlan, meaning
from outgrid.execute.inputs import Inputs
from outgrid.formats import Ahead, InputFile, boxes
from outgrid.formats.arrays import InputArray
from outgrid.native import Buffer, as_array
from outgrid.observe.finite import warning_of
from outgrid.plan.schedule.rings import Arrival, Bands, parts_within
from outgrid.plan.schedule.subgrid import Box
from outgrid.stencil.function import InitialFunction
from outgrid.stencil.initial import InitialExpression, evaluate, rows_together
from outgrid.stencil.layers import fixed_layers
from outgrid.stencil.problem import PREVIOUS, Problem
from outgrid.stencil.region import clear_outside
from outgrid.stencil.values import Initial
from outgrid.storage import Joined, Planes, Store, Transfers
from outgrid.storage.zeroes import alike, all_zero
from outgrid.units import BLOCK_BYTES, format_bytes

CHUNK_BYTES = 8 << 20
LEAST_CHUNK_BYTES = 1 << 19
BUFFERS = 2  # one is being made while the other is being written
# Blocks that a fill may have in memory at once: the buffers, what was read or evaluated in numbers
# of twice the size, and what an evaluation leaves on its way.
BLOCKS = 8
# What a buffer of a file in Fortran order may take, in such blocks: those that are read are less.
FORTRAN_SHARE = 3
# A thread that evaluates a formula takes a few MiB of its own.
EVALUATING_BYTES = 32 << 20


def rows_of_all_planes(problem: Problem) -> int:
    """Bytes of one row of each plane: what a fill in Fortran order moves at least together.

    They are as many with the first axis and the last one exchanged.
    """
    return problem.shape[0] * problem.shape[-1] * problem.item_bytes


def check_fits(problem: Problem, memory_bytes: int, limit_bytes: int) -> None:
    """Raise InfeasiblePlan where a fill in Fortran order has too little of a limit for itself."""
    needed = -(-rows_of_all_planes(problem) * BLOCKS // FORTRAN_SHARE)
    if needed > memory_bytes:
        raise InfeasiblePlan(
            "files in Fortran order are filled in rows of all planes, "
            f"{format_bytes(rows_of_all_planes(problem))} each, which takes "
            f"{format_bytes(needed)} of memory, above the {format_bytes(memory_bytes)} that there "
            f"are; set memory to {format_bytes(limit_bytes + needed - memory_bytes)} or more, or "
            "leave stream_axis out"
        )


Seen = Callable[[Arrival, range, range, NDArray[np.generic]], None]


class Filled(msgspec.Struct):
    """What the fill made and noticed; blocks of zeroes count as written, also where new files hold
    them without being written."""

    read_bytes: int = 0
    written_bytes: int = 0
    warnings: tuple[str, ...] = ()
    finite: bool = True


def initial_name(arrival: Arrival) -> str:
    """Name of the initial values of a level: "u", or "u.previous" for the level before."""
    return arrival.field + (PREVIOUS if arrival.level < 0 else "")


class InitialValues(msgspec.Struct, frozen=True):
    """Where the initial values of a ``problem`` come from, of what is ``held`` (else of all of it).

    ``given`` replaces some of them by those of files. ``inputs`` are the files and arrays of the
    problem, where they are open already. ``bands`` gives the planes of a field, where it exists in
    some only and the others are not to be filled. Formulas are evaluated by ``threads``. Files have
    planes along the axis ``transposed`` of the problem.
    """

    problem: Problem
    held: Box | None = None
    given: Mapping[str, Joined] = msgspec.field(default_factory=dict[str, Joined])
    inputs: Inputs | None = None
    bands: Callable[[str], Bands | None] = lambda _: None
    threads: int = 1
    transposed: int = 0

    @property
    def fortran(self) -> bool:
        """Whether files are in Fortran order."""
        return in_fortran_order(self.transposed)

    @property
    def box(self) -> Box:
        """The planes and rows that are to be filled."""
        return self.held or Box.whole(self.problem.shape)

    def source(self, name: str) -> Initial | Joined:
        """What the values of a level are made of."""
        return self.given[name] if name in self.given else self.problem.initial[name]


def fill(
    values: InitialValues,
    arrivals: tuple[Arrival, ...],
    stores: Callable[[Arrival], Store],
    transfers: Transfers,
    seen: Seen | None = None,
    told: Callable[[Filled], None] | None = None,
    memory_bytes: int = BLOCKS * CHUNK_BYTES,
) -> Filled:
    """Write state 0 of every level: all of it, or what the stores hold of it.

    ``memory_bytes`` are free by now. Files of initial values are closed in the end.

    ``seen(arrival, planes, rows, cells)`` looks at every block on its way, cells of shape
    (planes, rows, x). ``told(filled)`` hears of each block how much is filled by then. Warns of
    values that are not finite. Raises UsageError for inputs of the wrong shape or type, StoreError
    where bytes cannot be moved.
    """
    threads = min(values.threads, max(1, memory_bytes // EVALUATING_BYTES))
    values = replace(values, threads=threads)
    filling = _Filling(values, transfers, memory_bytes, seen, told)
    with values.inputs or Inputs(values.problem) as inputs:
        inputs.check_unchanged()
        for together in _alike(values, arrivals):
            arrival, *_ = together
            name, level = initial_name(arrival), arrival.level
            earlier = level < 0 and values.source(name) is not values.source(arrival.field)
            own = opened(values, inputs, name, memory_bytes).round(values.problem.shape[0])
            # The layer of an earlier level is that of the current one, since it never changes.
            layer = opened(values, inputs, arrival.field, 0) if earlier else None
            filling.levels(together, own, layer, [stores(each) for each in together])
        inputs.check_unchanged()
    return filling.filled


def _alike(values: InitialValues, arrivals: Iterable[Arrival]) -> Iterable[list[Arrival]]:
    """The levels, those of a field together that begin with the same values."""
    alike: dict[tuple[str, int], list[Arrival]] = {}
    for arrival in arrivals:
        source = values.source(initial_name(arrival))
        alike.setdefault((arrival.field, id(source)), []).append(arrival)
    return alike.values()


class Opened(msgspec.Struct, frozen=True):
    """Values that are there to be read: those of a box, of shape (planes, rows, x).

    ``begin`` says which box is read next. ``chunk`` says which planes and rows are best read
    together, ``stored_bytes`` what a cell takes in a file.
    """

    read: Callable[[Box], NDArray[np.generic]]
    begin: Callable[[Box], object] = lambda _: None
    chunk: tuple[int, int] = (1, 1)
    stored_bytes: int = 0

    def round(self, extent: int) -> Opened:
        """Also of planes beyond the ``extent`` of a ring of ranks, which come again there."""

        def read(box: Box) -> NDArray[np.generic]:
            turns = range(box.planes.start // extent, -(-box.planes.stop // extent))
            parts = [
                self.read(box.counted_from(turn * extent, 0).common(Box(range(extent), box.rows)))
                for turn in turns
            ]
            return np.concatenate(parts) if len(parts) > 1 else parts[0]

        def begin(box: Box) -> None:
            if 0 <= box.planes.start < box.planes.stop <= extent:
                self.begin(box)

        return replace(self, read=read, begin=begin)


def opened(wanted: InitialValues, inputs: Inputs, name: str, memory_bytes: int) -> Opened:
    """The values that ``name`` begins with. ``memory_bytes`` are free to decode them, if any."""
    problem, source = wanted.problem, wanted.source(name)
    if not isinstance(source, InputFile | InputArray):
        return _made(problem, name, source, wanted.threads)
    file = inputs.source(name)
    if file.decoded_bytes * 2 > memory_bytes > 0:
        raise InfeasiblePlan(
            f"the initial values of {name!r}: {source} is decoded in pieces of "
            f"{format_bytes(file.decoded_bytes)}, two of which are above the "
            f"{format_bytes(memory_bytes)} of the window; raise memory, or store smaller chunks"
        )

    def cells(box: Box) -> tuple[range, ...]:
        planes = (box.planes, box.rows) if problem.ndim == 3 else (box.planes,)
        return *planes, range(problem.shape[-1])

    def read(box: Box) -> NDArray[np.generic]:
        values = file.read(cells(box))
        return values.reshape(len(box.planes), len(box.rows), problem.shape[-1])

    def begin(box: Box) -> None:
        if isinstance(file, Ahead):
            file.begin(cells(box))

    chunk = file.chunk[0], file.chunk[1] if problem.ndim == 3 else 1
    held = isinstance(source, InputArray) and source.held_bytes
    return Opened(read, begin, chunk, 0 if held else file.dtype.itemsize)


def _made(problem: Problem, name: str, source: Initial | Joined, threads: int) -> Opened:
    """Values that are no file of the user's."""
    dtype = problem.dtype_of(name.removesuffix(PREVIOUS))

    def read(box: Box) -> NDArray[np.generic]:
        planes, rows = box.planes, box.rows
        shape = (len(planes), len(rows), problem.shape[-1])
        match source:
            case Joined():
                return source.read(planes, rows).reshape(shape)
            case InitialExpression() | InitialFunction():
                with meaning(f"the initial values of {name!r}"):
                    made = evaluate(source, planes, problem.shape, dtype, rows, threads)
                    return made.reshape(shape)
            case float():
                return np.full(shape, source, dtype=dtype)
            case _:
                raise DefinitionError(
                    f"the initial values of {name!r} were {source}, of which the run keeps only "
                    "a digest; pass them again"
                )

    formula = isinstance(source, InitialExpression | InitialFunction) and problem.ndim == 3
    return Opened(read, chunk=(1, rows_together(problem.shape) if formula else 1))


class _Filling:
    """The fill of level after level, and what it has moved and noticed so far."""

    def __init__(
        self,
        values: InitialValues,
        transfers: Transfers,
        memory_bytes: int,
        seen: Seen | None,
        told: Callable[[Filled], None] | None,
    ) -> None:
        self.values, self.transfers = values, transfers
        self.most_bytes = max(LEAST_CHUNK_BYTES, memory_bytes // BLOCKS)
        self.seen, self.told = seen, told
        self.filled = Filled()

    def blocks(self, chunk: tuple[int, int]) -> Iterator[Box]:
        """Pieces of a field that are written at once, in order.

        Of about ``CHUNK_BYTES``, or as memory has room where files are in Fortran order: as many
        rows of all planes, whole blocks of the disk of each plane of the files.
        """
        if not self.values.fortran:
            yield from self._parts(chunk, self.values.box)
            return
        problem = self.values.problem
        planes, rows = (range(extent) for extent in problem.shape[:2])
        row_bytes = rows_of_all_planes(problem)
        together = max(1, self.most_bytes * FORTRAN_SHARE // row_bytes)
        unit = BLOCK_BYTES // math.gcd(BLOCK_BYTES, len(planes) * problem.item_bytes)
        if together > unit:
            together -= together % unit
        for _, some in boxes((planes, rows), (len(planes), 1), together * len(planes)):
            yield Box(planes, some)

    def parts(self, chunk: tuple[int, int], block: Box) -> list[Box]:
        """Pieces of a block that are made at once, in order: where it lies otherwise in files,
        several, so that there is memory to make them in."""
        return [*self._parts(chunk, block)] if self.values.fortran else [block]

    def _parts(self, chunk: tuple[int, int], box: Box) -> Iterator[Box]:
        """Pieces of a box of about ``CHUNK_BYTES``, in order.

        They begin at multiples of a ``chunk``, the planes and rows that are best made together; one
        that is larger is made at once where memory has room for it.
        """
        problem = self.values.problem
        row_bytes = problem.shape[-1] * problem.item_bytes  # of the largest field
        whole = prod(map(min, chunk, (len(box.planes), len(box.rows))))
        wanted = max(CHUNK_BYTES // row_bytes, whole)
        fitting = max(1, min(wanted, self.most_bytes // row_bytes))
        for planes, rows in boxes((box.planes, box.rows), chunk, fitting):
            yield Box(planes, rows)

    def levels(
        self,
        together: Sequence[Arrival],
        own: Opened,
        layer: Opened | None,
        stores: Sequence[Store],
    ) -> None:
        """Write levels of a field that are alike; fixed layers without a value are those of
        ``layer``, if any."""
        problem, filled, transfers = self.values.problem, self.filled, self.transfers
        arrival, *_ = together
        dtype, columns = problem.dtype_of(arrival.field), problem.shape[-1]
        bands = self.values.bands(arrival.field)
        blocks = [
            Box(planes, block.rows)
            for block in self.blocks(own.chunk)
            for planes in parts_within(bands, block.planes)
        ]
        largest = max(block.count for block in blocks)
        buffers = [Buffer(largest * columns * problem.item_bytes) for _ in range(BUFFERS)]
        tickets: list[list[int]] = [[] for _ in range(BUFFERS)]
        ended: set[int] = set()
        odd = 0
        parts = [self.parts(own.chunk, block) for block in blocks]
        after = iter([part for several in parts for part in several][1:])
        for turn, block, several in zip(cycle(range(BUFFERS)), blocks, parts, strict=False):
            shape = (len(block.planes), len(block.rows), columns)
            laid = shape[::-1] if self.values.fortran else shape
            for ticket in tickets[turn]:
                wait_for(ticket, transfers, ended)
            kept = as_array(buffers[turn], dtype, count=math.prod(shape)).reshape(laid)
            cells = kept.T if self.values.fortran else kept
            self._make(cells, block, several, after, arrival, own, layer)
            if arrival.field in problem.regions:
                begin = (block.planes.start, block.rows.start, 0)
                clear_block(cells, problem, arrival.field, begin)
            odd += int(cells.size - np.count_nonzero(np.isfinite(cells)))
            if self.seen is not None:
                for each in together:
                    self.seen(each, block.planes, block.rows, cells)
            row_bytes = stores[0].row_bytes
            steps = row_bytes * len(block.rows) * np.arange(len(kept), dtype=np.int64)
            memory = Planes(buffers[turn].address + steps, row_bytes, buffers[turn])
            box = self.values.box
            there = block.counted_from(box.planes.start, box.rows.start)
            if self.values.fortran:
                there = Box(range(columns), block.rows)
            # By one value of each: few planes have to be looked at as a whole.
            zeroes = kept[:, len(block.rows) // 2, kept.shape[-1] // 2] == 0
            for plane in np.flatnonzero(zeroes):
                zeroes[plane] = all_zero(kept[plane])
            tickets[turn] = [
                store.put(there.planes[run], there.rows, memory.part(run))
                for run in alike(zeroes)
                for store in stores
                if not (zeroes[run.start] and store.leave(there.planes[run], there.rows))
            ]
            filled.written_bytes += cells.nbytes * len(stores)
            filled.read_bytes += cells.size * own.stored_bytes
            if self.told is not None:
                self.told(filled)
            del cells, kept
        transfers.drain()
        for buffer in buffers:
            buffer.release()
        if odd:
            filled.finite = False
            filled.warnings += tuple(warning_of(initial_name(each), str(odd)) for each in together)

    def _make(
        self,
        cells: NDArray[np.generic],
        block: Box,
        parts: Iterable[Box],
        after: Iterator[Box],
        arrival: Arrival,
        own: Opened,
        layer: Opened | None,
    ) -> None:
        """Make the ``parts`` of a block in its ``cells``; sources hear what comes ``after``."""
        for part in parts:
            here = part.counted_from(block.planes.start, block.rows.start)
            planes, rows = (slice(some.start, some.stop) for some in (here.planes, here.rows))
            place = cells[planes, rows]
            place[...] = own.read(part)
            for following in islice(after, 1):
                own.begin(following)
            given = layer.read(part) if layer else None
            _fix_layers(place, part, self.values.problem, arrival, given)


def wait_for(ticket: int, transfers: Transfers, ended: set[int]) -> None:
    """Wait until the buffer of ``ticket`` is free; 0 stands for a buffer that was never used."""
    while ticket and ticket not in ended:
        ended |= {completion.check().ticket for completion in transfers.wait()}
    ended.discard(ticket)


def clear_block(
    cells: NDArray[np.generic], problem: Problem, field: str, begin: tuple[int, ...]
) -> None:
    """Set the cells of a block, from ``begin`` on, to +0 where a field does not exist."""
    region, block = problem.regions[field], cells
    if problem.ndim == 2:
        block, begin = cells[:, 0], (begin[0], begin[2])
    clear_outside(block, region, begin)


def _fix_layers(
    cells: NDArray[np.generic],
    block: Box,
    problem: Problem,
    arrival: Arrival,
    given: NDArray[np.generic] | None,
) -> None:
    """Set the fixed layers of a block: from ``given``, then by value."""
    if arrival.constant:
        return
    places = {0: (0, block.planes.start), problem.ndim - 1: (2, 0)}
    if problem.ndim == 3:
        places[1] = (1, block.rows.start)
    parts: list[tuple[tuple[slice, ...], float | None]] = []
    for (axis, *ends), value in fixed_layers(problem, arrival.field).items():
        place, begin = places[axis]
        start, stop = (max(0, end - begin) for end in ends)
        parts.append(((*[slice(None)] * place, slice(start, stop)), value))
    for part, _ in parts:
        if given is not None:
            cells[part] = given[part]
    for part, value in parts:
        if value is not None:
            cells[part] = value
