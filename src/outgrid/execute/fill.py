"""Bringing the initial values into the stores, a few planes at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import DefinitionError
from outgrid.native import Buffer, as_array
from outgrid.plan.model import Arrival
from outgrid.stencil.initial import InitialExpression, evaluate
from outgrid.stencil.problem import PREVIOUS, Problem
from outgrid.storage import Planes, Store, Transfers
from outgrid.storage.npy import read_header, stream_npy

CHUNK_BYTES = 8 << 20
BUFFERS = 2  # one is being made while the other is being written


@dataclass(slots=True)
class Filled:
    """What the fill moved and noticed."""

    read_bytes: int = 0
    written_bytes: int = 0
    warnings: tuple[str, ...] = ()


def initial_name(arrival: Arrival) -> str:
    """Name of the initial values of a level: "u", or "u.previous" for the level before."""
    return arrival.field + (PREVIOUS if arrival.level < 0 else "")


def fill(
    problem: Problem,
    arrivals: tuple[Arrival, ...],
    stores: Callable[[Arrival], Store],
    transfers: Transfers,
    seen: Callable[[Arrival, int, NDArray[np.generic]], None] | None = None,
) -> Filled:
    """Write state 0 of every level.

    ``seen(arrival, first, planes)`` looks at every chunk on its way. Warns of values that are not
    finite. Raises UsageError for inputs of the wrong shape or type, StoreError where bytes cannot
    be moved.
    """
    filled = Filled()
    for arrival in arrivals:
        _fill_level(problem, arrival, stores(arrival), transfers, filled, seen)
    return filled


def _fill_level(
    problem: Problem,
    arrival: Arrival,
    store: Store,
    transfers: Transfers,
    filled: Filled,
    seen: Callable[[Arrival, int, NDArray[np.generic]], None] | None,
) -> None:
    name = initial_name(arrival)
    source = problem.initial[name]
    stored_bytes = read_header(source).dtype.itemsize if isinstance(source, Path) else 0
    per_chunk = max(1, CHUNK_BYTES // problem.plane_bytes)
    buffers = [Buffer(per_chunk * problem.plane_bytes) for _ in range(BUFFERS)]
    cells = problem.cells // problem.shape[0]
    tickets = [0] * BUFFERS
    ended: set[int] = set()
    odd = 0
    turn = 0
    for (first, values), (_, layer) in zip(
        _chunks(problem, name, per_chunk), _layers(problem, arrival, per_chunk), strict=True
    ):
        count = len(values)
        _wait_for(tickets[turn], transfers, ended)
        buffer = as_array(buffers[turn], problem.dtype, count=count * cells)
        planes = buffer.reshape(count, *problem.shape[1:])
        planes[...] = values
        if layer is not None:
            _fix_layer(planes, first, problem.shape, problem.stencil.radius, layer)
        odd += int(planes.size - np.count_nonzero(np.isfinite(planes)))
        if seen is not None:
            seen(arrival, first, planes)
        addresses = buffers[turn].address + problem.plane_bytes * np.arange(count, dtype=np.int64)
        rows = range(store.rows_per_plane)
        memory = Planes(addresses, store.row_bytes)
        tickets[turn] = store.put(range(first, first + count), rows, memory)
        filled.written_bytes += planes.nbytes
        filled.read_bytes += planes.size * stored_bytes
        turn = (turn + 1) % BUFFERS
        del buffer, planes
    transfers.drain()
    for buffer in buffers:
        buffer.release()
    if odd:
        filled.warnings += (
            f"the initial values of {name!r} hold {odd} values that are NaN or infinite; "
            "every cell within reach of them becomes so too",
        )


def _wait_for(ticket: int, transfers: Transfers, ended: set[int]) -> None:
    """Wait until the buffer of ``ticket`` is free; 0 stands for a buffer that was never used."""
    while ticket and ticket not in ended:
        ended |= {completion.check().ticket for completion in transfers.wait()}
    ended.discard(ticket)


def _chunks(
    problem: Problem, name: str, per_chunk: int
) -> Iterator[tuple[int, NDArray[np.generic]]]:
    """(first plane, planes) of the initial values, in order."""
    source = problem.initial[name]
    match source:
        case Path():
            item_bytes = read_header(source).dtype.itemsize
            chunk_bytes = per_chunk * problem.plane_bytes // problem.item_bytes * item_bytes
            chunks = stream_npy(source, problem.dtype, shape=problem.shape, chunk_bytes=chunk_bytes)
            for part, values in chunks:
                yield from _at_most(per_chunk, part.start, values)
        case np.ndarray():
            yield from _at_most(per_chunk, 0, source)
        case _:
            for first in range(0, problem.shape[0], per_chunk):
                part = range(first, min(first + per_chunk, problem.shape[0]))
                yield first, _made(problem, name, part)


def _at_most(
    per_chunk: int, first: int, values: NDArray[np.generic]
) -> Iterator[tuple[int, NDArray[np.generic]]]:
    for start in range(0, len(values), per_chunk):
        yield first + start, values[start : start + per_chunk]


def _made(problem: Problem, name: str, part: range) -> NDArray[np.generic]:
    source = problem.initial[name]
    if isinstance(source, InitialExpression):
        return evaluate(source, part, problem.shape, problem.dtype)
    if isinstance(source, float):
        return np.full((len(part), *problem.shape[1:]), source, dtype=problem.dtype)
    raise DefinitionError(
        f"the initial values of {name!r} were an array in memory, of which only a digest is left; "
        "give the array again"
    )


def _layers(
    problem: Problem, arrival: Arrival, per_chunk: int
) -> Iterator[tuple[int, NDArray[np.generic] | float | None]]:
    """What the boundary layer of each chunk is set to; None leaves it as it is.

    The layer of an earlier level is that of the current one, since it never changes.
    """
    value = problem.boundary.value
    earlier = (
        arrival.level < 0
        and problem.initial[initial_name(arrival)] is not (problem.initial[arrival.field])
    )
    if earlier and value is None:
        yield from _chunks(problem, arrival.field, per_chunk)
        return
    for first in range(0, problem.shape[0], per_chunk):
        yield first, None if arrival.constant else value


def _fix_layer(
    planes: NDArray[np.generic],
    first: int,
    shape: tuple[int, ...],
    radius: tuple[int, ...],
    layer: NDArray[np.generic] | float,
) -> None:
    """Set the boundary layer of planes [first, first + len) to that of ``layer``."""
    given = np.broadcast_to(np.asarray(layer, dtype=planes.dtype), planes.shape)
    for index in range(len(planes)):
        if not radius[0] <= first + index < shape[0] - radius[0]:
            planes[index] = given[index]
    for axis in range(1, len(shape)):
        if radius[axis]:
            inner, outer = np.moveaxis(planes, axis, 0), np.moveaxis(given, axis, 0)
            inner[: radius[axis]] = outer[: radius[axis]]
            inner[shape[axis] - radius[axis] :] = outer[shape[axis] - radius[axis] :]
