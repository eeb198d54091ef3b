"""Moves under way between a window and the stores behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from outgrid.errors import StoreError
from outgrid.observe.still import Seen, StillPlanes
from outgrid.plan.model import Plan
from outgrid.plan.program import Get, Move, Put
from outgrid.plan.schedule.seam import SeamKey
from outgrid.runs.seals import Sealing
from outgrid.seal import UNSEALED, Seal
from outgrid.storage import Completion, Planes, Store, Transfers
from outgrid.storage.zeroes import alike

StoreKey = tuple[str, int, int]  # field, level, state modulo 2


class Places(Protocol):
    """A window: where the rows of a move lie in it, plane by plane."""

    def addresses(self, move: Move) -> NDArray[np.int64]: ...


class Tickets(Protocol):
    """The transfers that the stores were made with."""

    def poll(self) -> list[Completion]: ...
    def wait(self, timeout_seconds: float) -> list[Completion]: ...
    def wake(self) -> None: ...
    def abandon(self) -> None: ...


W = TypeVar("W", bound=Places)


class Sparing(msgspec.Struct, frozen=True):
    """Leaves out transfers of planes that are ``still`` in the window and in a store."""

    still: StillPlanes
    window: Seen
    transfers: Transfers

    def start(
        self, plan: Plan, move: Get | Put, store: Store, planes: range, memory: Planes
    ) -> tuple[int, int]:
        """Begin a move of ``planes`` of a store; the ticket, and how many planes are moved."""
        reads, rows = isinstance(move, Get), move.there.rows
        known = self.still.known(plan, move, self.window)
        tickets: list[int] = []
        for run in alike(known):
            part = planes[run]
            if known[run.start] and (reads or store.leave(part, rows)):
                tickets.append(self.transfers.call(lambda: 0))
                continue
            known[run] = False
            act = store.get if reads else store.put
            tickets.append(act(part, rows, memory.part(run)))
        if isinstance(move, Put):
            self.still.left(move, known)
        count = len(planes) - int(np.count_nonzero(known))
        return tickets[0] if len(tickets) == 1 else self.transfers.join(*tickets), count


def _unsealed(_plan: Plan, _move: Move) -> Seal:
    return UNSEALED


class Hierarchy(msgspec.Struct, Generic[W], frozen=True):
    """The memory of a run: a window, and the stores that its planes come from and go to.

    The stores were made with ``transfers``; ``seams`` are those of what lies at cuts, where there
    are any. ``seal`` says of what the planes of a move are, for the checksums that stores keep.
    ``origin`` is the first plane and row that stores hold, where the plan does not say so.
    ``sparing`` moves nothing that is known to be +0 on both sides.
    """

    window: W
    stores: Mapping[StoreKey, Store]
    transfers: Tickets
    seams: Mapping[SeamKey, Store] = msgspec.field(default_factory=dict[SeamKey, Store])
    seal: Sealing = _unsealed
    origin: tuple[int, int] | None = None
    sparing: Sparing | None = None

    def store(self, move: Move) -> Store:
        """The store that the rows of a move lie in."""
        if move.seam is not None:
            return self.seams[move.seam]
        return self.stores[move.field, move.level, move.state % 2]


class Moves(Generic[W]):
    """The moves that were started and have not ended."""

    def __init__(self, plan: Plan, hierarchy: Hierarchy[W]) -> None:
        self.hierarchy = hierarchy
        stored = plan.schedule.stored
        self.origin = hierarchy.origin or (stored.planes.start, stored.rows.start)
        self.under_way: dict[int, tuple[Move, Store, int]] = {}

    def start(self, plan: Plan, move: Move, memory: Planes | None = None) -> None:
        """Begin a move between its store and ``memory``, which is its place in the window if None.

        It is one of ``plan``.
        """
        hierarchy, store = self.hierarchy, self.hierarchy.store(move)
        if memory is None:
            stride = plan.layout.of(move.field).row_stride_bytes
            window = hierarchy.window
            kept = _kept(plan, move) if isinstance(move, Put) else None
            parts = parts_of_rows(plan, move.field)
            memory = Planes(window.addresses(move), stride, window, plan.folded, kept, parts)
        store.hold(hierarchy.seal(plan, move))
        there = move.there
        if move.seam is None:
            there = there.counted_from(*self.origin)
        planes, nbytes = there.planes, move.nbytes(plan)
        if planes.step < 0:
            planes, memory = planes[::-1], replace(memory, addresses=memory.addresses[::-1])
        if hierarchy.sparing is not None and isinstance(move, Get | Put) and move.seam is None:
            ticket, count = hierarchy.sparing.start(plan, move, store, planes, memory)
            nbytes = nbytes * count // max(1, len(planes))
        else:
            act = store.get if isinstance(move, Get) else store.put
            ticket = act(planes, there.rows, memory)
        self.under_way[ticket] = move, store, nbytes

    def end(self, completion: Completion) -> tuple[Move, int] | None:
        """The move that a transfer was, and its bytes; None where it was none.

        Raises StoreError if it failed.
        """
        if completion.ticket not in self.under_way:
            return None
        move, store, nbytes = self.under_way.pop(completion.ticket)
        check(completion, store, _words(move))
        return move, nbytes


def _kept(plan: Plan, move: Put) -> tuple[range, ...] | None:
    """The rows of a move that its field exists in, counted from its first; None for all."""
    ring, first = plan.schedule.ring_of[move.field, move.ring], move.rows.start
    if ring.rows is None:
        return None
    return tuple(range(part.start - first, part.stop - first) for part in ring.read(move.rows))


def parts_of_rows(plan: Plan, field: str) -> tuple[tuple[int, int], ...]:
    """The bytes [first, end) of a row of a field that are kept in a window; none for all."""
    item = np.dtype(plan.dtype_of(field)).itemsize
    last = plan.schedule.shape[-1]
    bands = plan.schedule.column_bands(field) or ()
    return tuple((first * item, min(end, last) * item) for first, end in bands)


def _words(move: Move) -> str:
    act = "reading" if isinstance(move, Get) else "writing"
    what = f"the seam of {move.field}" if move.seam else move.field
    return f"{act} planes {move.first}..{move.last} of {what} in sweep {move.trip.sweep}"


def check(completion: Completion, store: Store, what: str) -> None:
    """Raise StoreError where ``what`` a store was to do failed."""
    if completion.error is not None:
        error = completion.error
        raise StoreError(
            f"{what}: {error.what}",
            path=error.path or store.name,
            offset=error.offset,
            length=error.length,
            errno=error.errno,
        ) from error
