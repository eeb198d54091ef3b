"""Planes on their way between ranks: from a window into a message, and from one into files."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from outgrid.comm.base import Comm, Rows
from outgrid.execute.gates import Watermarks
from outgrid.native import Buffer, unfold
from outgrid.plan.model import Plan
from outgrid.plan.planner import EXCHANGE_BUFFERS
from outgrid.plan.program import Move, Receive, Send, opposes
from outgrid.plan.schedule.seam import Channel as Crossing
from outgrid.plan.schedule.seam import channels
from outgrid.storage import NATURAL, Planes

Channel = tuple[Crossing, int]  # and by how many turns of a ring it goes


class Exchange:
    """The sends and receives of a program. One message is a slab of planes of a level, or a ring.

    ``addresses`` says where the rows of a move lie in the window. What is sent is copied into the
    buffer of its message, which goes when all of its planes are there. Each level has buffers of
    its own for each neighbour and way, and so has each ring, so that a neighbour who is early never
    waits for one who is late.
    """

    def __init__(
        self, plan: Plan, addresses: Callable[[Move], NDArray[np.int64]], comm: Comm
    ) -> None:
        self._plan, self._addresses, self._comm = plan, addresses, comm
        self._sends: dict[Channel, deque[Send]] = {}
        self._receives: dict[Channel, deque[Receive]] = {}
        named = [
            (departure.field, departure.level, False) for departure in plan.schedule.departures
        ]
        named += [(ring.field, ring.index, True) for ring in plan.schedule.rings]
        turned = [(name, turn) for name in named for turn in (-1, 0, 1)]
        self._numbers = {key: number for number, key in enumerate(turned)}
        self._moves: dict[int, Send | Receive] = {}  # by ticket of a message under way
        self._agreeing: int | None = None
        self._spare = _buffers(plan, arriving=False)
        self._packed: dict[Channel, Buffer] = {}  # what the next message is gathered in
        self._leaving: dict[int, Buffer] = {}  # by ticket
        self._free = _buffers(plan, arriving=True)
        self._filled: dict[Receive, Buffer] = {}
        self.sent_bytes = self.received_bytes = 0
        self._told = np.zeros((comm.size, 0), np.uint8)  # by all ranks
        self._telling: set[int] = set()  # by ticket

    def queue(self, move: Send | Receive) -> None:
        """Carry out ``move`` as soon as its gate is open."""
        if isinstance(move, Send):
            self._sends.setdefault(_channel(move), deque()).append(move)
        else:
            self._receives.setdefault(_channel(move), deque()).append(move)

    @property
    def pending(self) -> bool:
        """Whether anything is queued or under way."""
        queues = (*self._sends.values(), *self._receives.values())
        return bool(self._moves or self._filled or any(queues))

    @property
    def moving(self) -> bool:
        """Whether another rank is waited for."""
        return bool(self._moves or self._telling or self._agreeing is not None)

    def start(self, marks: Watermarks, sweep: int) -> None:
        """Start what has its gate open and a buffer; what is in a message has left the window.

        Only what comes of sweeps up to ``sweep``: later ones may not take place.
        """

        def due(queue: deque[Send] | deque[Receive]) -> bool:
            return bool(queue) and queue[0].trip.sweep <= sweep and marks.open(queue[0].gate)

        for key, queue in self._sends.items():
            while due(queue) and self._pack(key, queue[0]):
                marks.sent.complete(queue.popleft().index)
        for key, queue in self._receives.items():
            while self._free[key] and due(queue):
                receive = queue.popleft()
                self._filled[receive] = self._free[key].popleft()
                rows = self._rows(receive, self._filled[receive], receive.count)
                ticket = self._comm.receive(receive.peer, self._number(receive), rows)
                self._moves[ticket] = receive

    def ended(self) -> Iterator[Receive]:
        """What has come and is to be written from ``source``."""
        for ticket in self._comm.ended():
            if ticket == self._agreeing:
                self._agreeing = None
                continue
            if ticket in self._telling:
                self._telling.remove(ticket)
                continue
            move = self._moves.pop(ticket)
            if isinstance(move, Receive):
                self.received_bytes += move.nbytes(self._plan)
                yield move
            else:
                self._spare[_channel(move)].append(self._leaving.pop(ticket))

    def source(self, receive: Receive) -> Planes:
        """The memory in which received planes are."""
        buffer, count = self._filled[receive], receive.last - receive.first
        row_bytes = self._plan.layout.of(receive.field).row_bytes
        addresses = buffer.address + len(receive.rows) * row_bytes * np.arange(count)
        if opposes(self._plan.schedule, receive.peer):
            addresses = addresses[::-1]
        return Planes(addresses.astype(np.int64), row_bytes, buffer)

    def written(self, receive: Receive) -> None:
        """The planes are in their file: their buffer is free."""
        self._free[_channel(receive)].append(self._filled.pop(receive))

    def agree(self) -> None:
        """Begin to ask whether all ranks have come as far."""
        self._agreeing = self._comm.agree()

    @property
    def agreed(self) -> bool:
        """Whether all have."""
        return self._agreeing is None

    def tell(self, what: bytes) -> None:
        """Begin to tell all ranks something, of as many bytes as they tell."""
        comm, channel = self._comm, len(self._numbers)
        self._told = np.zeros((comm.size, len(what)), np.uint8)
        self._told[comm.rank] = np.frombuffer(what, np.uint8)
        rows = [Rows(message.ctypes.data, 1, len(what)) for message in self._told]
        for peer in range(comm.size):
            if peer != comm.rank:
                self._telling.add(comm.receive(peer, channel, rows[peer]))
                self._telling.add(comm.send(peer, channel, rows[comm.rank]))

    @property
    def telling(self) -> bool:
        """Whether some have not said it yet, or not heard it."""
        return bool(self._telling)

    @property
    def told(self) -> list[bytes]:
        """What all ranks said, in their order."""
        return [message.tobytes() for message in self._told]

    def end(self, sweeps: int) -> None:
        """Let go of what is not under way and comes of later sweeps than these."""
        for queue in (*self._sends.values(), *self._receives.values()):
            while queue and queue[-1].trip.sweep >= sweeps:
                queue.pop()

    def release(self) -> None:
        """Give the buffers back."""
        for buffers in (*self._spare.values(), *self._free.values()):
            for buffer in buffers:
                buffer.release()

    def _pack(self, key: Channel, send: Send) -> bool:
        """Copy planes into their message, which goes when they are the last; if it has a buffer."""
        if key not in self._packed:
            if not self._spare[key]:
                return False
            self._packed[key] = self._spare[key].popleft()
        buffer, layout = self._packed[key], self._plan.layout.of(send.field)
        nbytes = len(send.rows) * layout.row_bytes
        to = buffer.address + (send.first - send.piece.start) * nbytes
        at = Planes(self._addresses(send), layout.row_stride_bytes, buffer, self._plan.folded)
        folding = at.folded(send.rows, layout.row_bytes)
        for address in at.addresses.tolist():
            if folding != NATURAL:
                unfold(address, 0, nbytes, to, folding)
            else:
                _gather(address, len(send.rows), layout.row_bytes, layout.row_stride_bytes, to)
            to += nbytes
        self.sent_bytes += send.nbytes(self._plan)
        if send.last == send.piece.stop:
            rows = self._rows(send, buffer, len(send.piece) * len(send.rows))
            ticket = self._comm.send(send.peer, self._number(send), rows)
            self._moves[ticket], self._leaving[ticket] = send, self._packed.pop(key)
        return True

    def _rows(self, move: Send | Receive, buffer: Buffer, count: int) -> Rows:
        return Rows(buffer.address, count, self._plan.layout.of(move.field).row_bytes)

    def _number(self, move: Send | Receive) -> int:
        crossing, turn = _channel(move)
        return self._numbers[crossing[1:], turn]


def _channel(move: Send | Receive) -> Channel:
    seam = move.seam is not None
    return (move.peer, move.field, move.ring if seam else move.level, seam), move.turn


def _buffers(plan: Plan, *, arriving: bool) -> dict[Channel, deque[Buffer]]:
    """Two buffers of a slab for all that comes from other ranks, or goes to them."""
    nbytes_of = {
        key: plan.schedule.slab_planes * rows * plan.layout.of(key[0][1]).row_bytes
        for key, rows in _exchanged(plan, arriving).items()
    }
    return {
        key: deque(Buffer(nbytes) for _ in range(EXCHANGE_BUFFERS))
        for key, nbytes in nbytes_of.items()
    }


def _exchanged(plan: Plan, arriving: bool) -> dict[Channel, int]:
    """What comes from other ranks or goes to them, and how many rows of each plane."""
    schedule, subgrid = plan.schedule, plan.schedule.domain.subgrid
    levels = [(departure.field, departure.level) for departure in schedule.departures]
    crossing = channels(schedule.seams, levels, given=subgrid.upright != arriving)
    boxes = [
        (exchange.peer, exchange.turn, exchange.received if arriving else exchange.sent)
        for exchange in subgrid.exchanged(plan.depth)
    ]
    seams = {(channel, 0): len(schedule.domain.owned.rows) for channel in crossing}
    return seams | {
        ((peer, *level, False), turn): len(box.rows)
        for peer, turn, box in boxes
        for level in levels
        if box.count
    }


def _gather(address: int, rows: int, row_bytes: int, stride: int, to: int) -> None:
    """Copy rows that are ``stride`` bytes apart to where they lie one behind the other."""
    if stride == row_bytes or rows == 1:
        ctypes.memmove(to, address, rows * row_bytes)
        return
    source = (ctypes.c_uint8 * ((rows - 1) * stride + row_bytes)).from_address(address)
    into = (ctypes.c_uint8 * (rows * row_bytes)).from_address(to)
    apart = np.ndarray((rows, row_bytes), np.uint8, memoryview(source), 0, (stride, 1))
    np.copyto(np.ndarray((rows, row_bytes), np.uint8, memoryview(into)), apart)
