"""Planes on their way between ranks: out of the window, and through a buffer into the files."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from outgrid.comm.base import Comm, Rows
from outgrid.execute.gates import Watermarks
from outgrid.native import Buffer
from outgrid.plan.border import Channel, channels
from outgrid.plan.model import Plan
from outgrid.plan.planner import RECEIVE_BUFFERS
from outgrid.plan.program import Move, Receive, Send, opposes
from outgrid.storage import Planes


class Exchange:
    """The sends and receives of a program. One message is one plane of one level, or of one ring.

    ``addresses`` says where the rows of a move lie in the window. Planes of a level from one
    neighbour come through buffers of their own, and so do those of a ring, so that a neighbour who
    is early never waits for one who is late.
    """

    def __init__(
        self, plan: Plan, addresses: Callable[[Move], NDArray[np.int64]], comm: Comm
    ) -> None:
        self._plan, self._addresses, self._comm = plan, addresses, comm
        self._sends: deque[Send] = deque()
        self._receives: dict[Channel, deque[Receive]] = {}
        named = [(each.field, each.level, False) for each in plan.departures]
        named += [(ring.field, ring.index, True) for ring in plan.rings]
        self._numbers = {each: number for number, each in enumerate(named)}
        self._moves: dict[int, Send | Receive] = {}  # by ticket of a message
        self._left: dict[Send | Receive, int] = {}  # messages under way
        self._agreeing: int | None = None
        self._free: dict[Channel, deque[Buffer]] = {}
        self._filled: dict[Receive, Buffer] = {}
        self.sent_bytes = self.received_bytes = 0
        for key, rows in _incoming(plan).items():
            nbytes = plan.slab_planes * rows * plan.layout.of(key[1]).row_bytes
            self._free[key] = deque(Buffer(nbytes) for _ in range(RECEIVE_BUFFERS))

    def queue(self, move: Send | Receive) -> None:
        """Carry out ``move`` as soon as its gate is open."""
        if isinstance(move, Send):
            self._sends.append(move)
        else:
            self._receives.setdefault(_channel(move), deque()).append(move)

    @property
    def pending(self) -> bool:
        """Whether anything is queued or under way."""
        return bool(self._sends or self._left or any(self._receives.values()) or self._filled)

    @property
    def moving(self) -> bool:
        """Whether another rank is waited for."""
        return bool(self._left or self._agreeing is not None)

    def start(self, marks: Watermarks) -> None:
        """Start the messages whose gates are open and, to receive, that have a buffer."""
        while self._sends and marks.open(self._sends[0].gate):
            send = self._sends.popleft()
            stride = self._plan.layout.of(send.field).row_stride_bytes
            self._post(send, self._addresses(send), stride)
        for key, queue in self._receives.items():
            while queue and self._free[key] and marks.open(queue[0].gate):
                receive = queue.popleft()
                self._filled[receive] = self._free[key].popleft()
                planes = self._planes(receive)
                reverse = opposes(self._plan, receive.peer)
                into = planes.addresses[::-1] if reverse else planes.addresses
                self._post(receive, into, planes.row_stride_bytes)

    def ended(self) -> Iterator[Send | Receive]:
        """What has been sent, or has come and is to be written from ``source``."""
        for ticket in self._comm.ended():
            if ticket == self._agreeing:
                self._agreeing = None
                continue
            move = self._moves.pop(ticket)
            self._left[move] -= 1
            if not self._left[move]:
                del self._left[move]
                nbytes = move.nbytes(self._plan)
                if isinstance(move, Send):
                    self.sent_bytes += nbytes
                else:
                    self.received_bytes += nbytes
                yield move

    def source(self, receive: Receive) -> Planes:
        """The memory in which received planes are."""
        return self._planes(receive)

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

    def release(self) -> None:
        """Give the buffers back."""
        for buffers in self._free.values():
            for buffer in buffers:
                buffer.release()

    def _planes(self, receive: Receive) -> Planes:
        row_bytes = self._plan.layout.of(receive.field).row_bytes
        steps = len(receive.rows) * row_bytes * np.arange(receive.last - receive.first)
        buffer = self._filled[receive]
        return Planes(buffer.address + steps.astype(np.int64), row_bytes, buffer)

    def _post(self, move: Send | Receive, addresses: np.ndarray, stride: int) -> None:
        act = self._comm.send if isinstance(move, Send) else self._comm.receive
        channel = self._numbers[_channel(move)[1:]]
        row_bytes = self._plan.layout.of(move.field).row_bytes
        self._left[move] = len(addresses)
        for address in addresses.tolist():
            rows = Rows(address, len(move.rows), row_bytes, stride)
            self._moves[act(move.peer, channel, rows)] = move


def _channel(move: Send | Receive) -> Channel:
    return move.peer, move.field, move.ring if move.seam else move.level, move.seam


def _incoming(plan: Plan) -> dict[Channel, int]:
    """What comes from other ranks, and how many rows of each plane."""
    levels = [(each.field, each.level) for each in plan.departures]
    if plan.subgrid is None:
        return {}
    if plan.subgrid.seams:
        found = channels(plan.borders, levels, seams=not plan.upright)
        return dict.fromkeys(found, len(plan.owned_rows))
    return {
        (each.peer, *level, False): len(each.received.rows)
        for each in plan.subgrid.exchanged(plan.depth)
        for level in levels
        if each.received.count
    }
