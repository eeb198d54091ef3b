"""Bringing the initial values into the stores, a few planes or rows at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import DefinitionError, meaning
from outgrid.formats.npy import read_header, stream_npy
from outgrid.native import Buffer, as_array
from outgrid.plan.schedule.rings import Arrival
from outgrid.plan.schedule.subgrid import Box
from outgrid.stencil.boundary import STORED
from outgrid.stencil.function import InitialFunction
from outgrid.stencil.initial import InitialExpression, evaluate, rows_together
from outgrid.stencil.problem import PREVIOUS, Problem
from outgrid.stencil.symbol import AXES
from outgrid.stencil.values import Initial
from outgrid.storage import Joined, Planes, Store, Transfers

CHUNK_BYTES = 8 << 20
LEAST_CHUNK_BYTES = 1 << 19
BUFFERS = 2  # one is being made while the other is being written
# Blocks that a fill may have in memory at once: the buffers, what was read or evaluated in numbers
# of twice the size, and what an evaluation leaves on its way.
BLOCKS = 8

Seen = Callable[[Arrival, range, range, NDArray[np.generic]], None]


@dataclass(slots=True)
class Filled:
    """What the fill moved and noticed."""

    read_bytes: int = 0
    written_bytes: int = 0
    warnings: tuple[str, ...] = ()
    finite: bool = True


def initial_name(arrival: Arrival) -> str:
    """Name of the initial values of a level: "u", or "u.previous" for the level before."""
    return arrival.field + (PREVIOUS if arrival.level < 0 else "")


def fill(
    problem: Problem,
    arrivals: tuple[Arrival, ...],
    stores: Callable[[Arrival], Store],
    transfers: Transfers,
    seen: Seen | None = None,
    held: Box | None = None,
    given: Mapping[str, Joined] | None = None,
    told: Callable[[Filled], None] | None = None,
    memory_bytes: int = BLOCKS * CHUNK_BYTES,
) -> Filled:
    """Write state 0 of every level: all of it, or what the stores hold of it.

    ``given`` replaces initial values by those of files. ``memory_bytes`` are free by now.

    ``seen(arrival, planes, rows, cells)`` looks at every block on its way, cells of shape
    (planes, rows, x). ``told(filled)`` hears of each block how much is filled by then. Warns of
    values that are not finite. Raises UsageError for inputs of the wrong shape or type, StoreError
    where bytes cannot be moved.
    """
    filled = Filled()
    block_bytes = min(CHUNK_BYTES, max(LEAST_CHUNK_BYTES, memory_bytes // BLOCKS))
    values = _Values(problem, held or Box.whole(problem.shape), given or {}, block_bytes)
    for arrival in arrivals:
        _fill_level(values, arrival, stores(arrival), transfers, filled, seen, told)
    return filled


@dataclass(frozen=True, slots=True)
class _Values:
    """Where the initial values of what is held come from."""

    problem: Problem
    held: Box
    given: Mapping[str, Joined]
    block_bytes: int

    def source(self, name: str) -> Initial | Joined:
        """What the values of a level are made of."""
        return self.given[name] if name in self.given else self.problem.initial[name]


def _blocks(wanted: _Values) -> Iterator[Box]:
    """Pieces of a field that are made and written at once, in order, of about ``block_bytes``.

    Some planes, or some rows of one; in 2-D a plane has one row.
    """
    problem, held = wanted.problem, wanted.held
    row_bytes = problem.shape[-1] * problem.item_bytes  # of the largest field
    per_block = wanted.block_bytes // (len(held.rows) * row_bytes)
    planes, rows = held.planes, held.rows
    whole = problem.ndim == 2 or len(rows) == problem.shape[1]
    if problem.ndim == 2 or (per_block and whole):
        step = max(1, per_block)
        for first in range(planes.start, planes.stop, step):
            yield Box(range(first, min(first + step, planes.stop)), rows)
        return
    together = rows_together(problem.shape)
    step = max(1, wanted.block_bytes // row_bytes // together) * together
    for plane in planes:
        first = rows.start
        while first < rows.stop:
            last = min(first - first % together + step, rows.stop)
            yield Box(range(plane, plane + 1), range(first, last))
            first = last


def _fill_level(
    wanted: _Values,
    arrival: Arrival,
    store: Store,
    transfers: Transfers,
    filled: Filled,
    seen: Seen | None,
    told: Callable[[Filled], None] | None,
) -> None:
    name, problem, held = initial_name(arrival), wanted.problem, wanted.held
    source, dtype = wanted.source(name), problem.dtype_of(arrival.field)
    stored_bytes = read_header(source).dtype.itemsize if isinstance(source, Path) else 0
    columns = problem.shape[-1]
    largest = max(len(block.planes) * len(block.rows) for block in _blocks(wanted))
    buffers = [Buffer(largest * columns * problem.item_bytes) for _ in range(BUFFERS)]
    tickets = [0] * BUFFERS
    ended: set[int] = set()
    odd = 0
    turn = 0
    for block, values, layer in zip(
        _blocks(wanted), _values(wanted, arrival), _layers(wanted, arrival), strict=True
    ):
        shape = (len(block.planes), len(block.rows), columns)
        _wait_for(tickets[turn], transfers, ended)
        cells = as_array(buffers[turn], dtype, count=math.prod(shape)).reshape(shape)
        cells[...] = values
        _fix_layers(cells, block, problem, arrival, layer)
        odd += int(cells.size - np.count_nonzero(np.isfinite(cells)))
        if seen is not None:
            seen(arrival, block.planes, block.rows, cells)
        steps = store.row_bytes * len(block.rows) * np.arange(len(cells), dtype=np.int64)
        memory = Planes(buffers[turn].address + steps, store.row_bytes, buffers[turn])
        there = block.counted_from(held.planes.start, held.rows.start)
        tickets[turn] = store.put(there.planes, there.rows, memory)
        filled.written_bytes += cells.nbytes
        filled.read_bytes += cells.size * stored_bytes
        if told is not None:
            told(filled)
        turn = (turn + 1) % BUFFERS
        del cells
    transfers.drain()
    for buffer in buffers:
        buffer.release()
    if odd:
        filled.finite = False
        filled.warnings += (
            f"the initial values of {name!r} hold {odd} values that are NaN or infinite; "
            "every cell within reach of them becomes so too, and the run is not watched for others",
        )


def _wait_for(ticket: int, transfers: Transfers, ended: set[int]) -> None:
    """Wait until the buffer of ``ticket`` is free; 0 stands for a buffer that was never used."""
    while ticket and ticket not in ended:
        ended |= {completion.check().ticket for completion in transfers.wait()}
    ended.discard(ticket)


def _values(
    wanted: _Values, arrival: Arrival, name: str | None = None
) -> Iterator[NDArray[np.generic]]:
    """The initial values of each block, of shape (planes, rows, x), of what has that ``name``."""
    problem, name = wanted.problem, name or initial_name(arrival)
    source, dtype = wanted.source(name), problem.dtype_of(arrival.field)
    blocks = _blocks(wanted)
    if isinstance(source, Path):
        parts = ((block.planes, block.rows) for block in blocks)
        yield from stream_npy(source, dtype, parts, shape=problem.shape)
        return
    for block in blocks:
        planes, rows = block.planes, block.rows
        shape = (len(planes), len(rows), problem.shape[-1])
        match source:
            case np.ndarray():
                given = source[planes.start : planes.stop]
                given = given[:, rows.start : rows.stop] if problem.ndim == 3 else given
                yield given.reshape(shape)
            case Joined():
                yield source.read(planes, rows).reshape(shape)
            case InitialExpression() | InitialFunction():
                with meaning(f"the initial values of {name!r}"):
                    cells = evaluate(source, planes, problem.shape, dtype, rows)
                yield cells.reshape(shape)
            case float():
                yield np.full(shape, source, dtype=dtype)
            case _:
                raise DefinitionError(
                    f"the initial values of {name!r} were {source}, of which only a digest is "
                    "left; give it again"
                )


def _layers(wanted: _Values, arrival: Arrival) -> Iterator[NDArray[np.generic] | None]:
    """Where fixed layers without a value have theirs from; None leaves them as they are.

    The layer of an earlier level is that of the current one, since it never changes.
    """
    name = initial_name(arrival)
    if arrival.level < 0 and wanted.source(name) is not wanted.source(arrival.field):
        yield from _values(wanted, arrival, arrival.field)
        return
    for _ in _blocks(wanted):
        yield None


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
    axes = {0: (0, block.planes.start), problem.ndim - 1: (2, 0)}
    if problem.ndim == 3:
        axes[1] = (1, block.rows.start)
    parts: list[tuple[tuple[slice, ...], float | None]] = []
    for axis, inside in enumerate(problem.interior):
        place, begin = axes[axis]
        for side, ends in (("-", (0, inside.start)), ("+", (inside.stop, problem.shape[axis]))):
            if problem.edges.rule(arrival.field, axis)[side == "+"] == STORED:
                start, stop = (max(0, end - begin) for end in ends)
                value = problem.boundary.face(arrival.field, AXES[axis - problem.ndim], side).value
                parts.append(((*[slice(None)] * place, slice(start, stop)), value))
    for part, _ in parts:
        if given is not None:
            cells[part] = given[part]
    for part, value in parts:
        if value is not None:
            cells[part] = value
