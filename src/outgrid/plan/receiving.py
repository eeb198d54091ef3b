"""Receives: what other ranks give of states and of seams, as early as there is room for it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

import msgspec
from msgspec.structs import replace

from outgrid.plan.flow import Flow, Flows
from outgrid.plan.instruction import Gate, Receive, opposes
from outgrid.plan.schedule.model import Passage
from outgrid.plan.schedule.rings import Departure
from outgrid.plan.schedule.seam import Cut, SeamKey
from outgrid.plan.schedule.share import Share, Shares
from outgrid.plan.schedule.trip import Trip


class _Message(msgspec.Struct, frozen=True):
    """Planes and rows that come from ``peer`` into a ring's share of a seam, or to a level.

    They are needed before plane ``due`` is read.
    """

    due: int
    peer: int
    field: str
    level: int
    ring: int
    planes: range
    rows: range
    seam: SeamKey | None = None
    origin: tuple[int, int] = (0, 0)
    turn: int = 0


class Receiving:
    """The receives of one rank: which were emitted so far, and what of them is waited for."""

    def __init__(self, flows: Flows) -> None:
        self.flows, self.schedule = flows, flows.schedule
        self.received = 0
        # By sweep, and place where seams are taken: pairs of first plane and watermark of what is
        # received before it, planes rising.
        self.landed_by_place: dict[tuple[int, int | None], list[tuple[int, int]]] = {}
        self.expected = 1  # the next state to be received
        self.landed = 0  # watermark of what is received of states
        # How many seams were asked for, sweep after sweep, and the watermarks of the gets that read
        # those at each border last.
        self.asked = 0
        self.seam_got: dict[tuple[int, int], int] = {}

    def run(
        self, arrived: int, got: int, durable: Callable[[int], int | None]
    ) -> Iterator[Receive]:
        """What neighbours send, as early as there is room for it in its place.

        The gets of slabs before ``arrived`` were emitted, ``got`` in all. ``durable`` says after
        how many commits all of a state is durable, None while there are none.
        """
        yield from self._seams(arrived)
        yield from self._state(arrived, got, durable)

    def read(self, flow: Flow, trip: Trip, got: int) -> None:
        """What a flow brings of a seam is read by so many gets."""
        if flow.seam is not None and self.schedule.subgrid is not None:
            self.seam_got[trip.sweep, flow.seam.place] = got

    def after(self, flow: Flow, trip: Trip, planes: range) -> int | None:
        """Receives after which what others own of ``planes`` is in its place.

        None where they were not emitted yet.
        """
        alone = self.schedule.domain.subgrid.ranks == 1
        if alone or flow.constant or not (trip.sweep or flow.seam):
            return 0
        place = flow.seam.place if flow.seam is not None else None
        taken = self.landed_by_place.get((trip.sweep, place))
        if taken is None:
            return None
        index = bisect_left(taken, (planes.stop, 0))
        return taken[index - 1][1] if index else 0

    def _state(
        self, arrived: int, got: int, durable: Callable[[int], int | None]
    ) -> Iterator[Receive]:
        """What neighbours send of the next state, as early as its files may be written to.

        The state before the last one is in them: it was read, and is not needed by a restart.
        """
        schedule, state = self.schedule, self.expected
        returned = any(schedule.cutting.between_ranks(schedule.depths[0]))
        last = schedule.sweeps if returned else schedule.sweeps - 1  # which none goes on from
        if state > last or not self._is_read(state - 2, arrived):
            return
        committed = durable(state - 1)
        if committed is None:
            return
        self.expected += 1
        gate, trip = Gate(committed=committed, got=got), self.flows.trips[state - 1]
        before = self.received
        yield from self._receives(self._of_state(state), trip, (state, None), gate)
        if self.received > before:
            self.landed = self.received

    def _seams(self, arrived: int) -> Iterator[Receive]:
        """The seams of a sweep, in the order in which they are read.

        Each goes to where that of the sweep before was, and waits until that was read.
        """
        while taken := self._taken(self.asked):
            trip, side, shares = taken
            got = 0
            if trip.sweep:
                if self._last_slab(trip.index - 1, side) >= arrived:
                    return
                got = self.seam_got.pop((trip.sweep - 1, side))
            self.asked += 1
            yield from self._receives(
                self._of_seam(shares), trip, (trip.sweep, side), Gate(got=got)
            )

    def _receives(
        self, messages: list[_Message], trip: Trip, place: tuple[int, int | None], gate: Gate
    ) -> Iterator[Receive]:
        """Messages to a ``place``, of a state or of a seam, in the order in which they are needed.

        The one of two sweeps before is not asked for any more.
        """
        sweep, side = place
        self.landed_by_place.pop((sweep - 2, side), None)
        landed = self.landed_by_place.setdefault(place, [])
        for message in messages:
            self.received += 1
            there = self.flows.there(message.seam, message.planes, message.rows, message.origin)
            yield Receive(
                self.received - 1,
                trip,
                message.field,
                message.level,
                trip.sweep + 1,
                message.ring,
                message.planes.start,
                message.planes.stop,
                message.rows,
                message.seam,
                there,
                gate,
                message.peer,
                message.turn,
            )
            if landed and landed[-1][0] == message.due:
                landed.pop()
            landed.append((message.due, self.received))

    def _taken(self, number: int) -> tuple[Trip, int, list[Share]] | None:
        """The trip, and the place and the shares of a seam that is taken from another rank.

        None where no more are.
        """
        schedule = self.schedule
        taken = (share for share in Shares(self.flows.passage(0)).taken() if share.peer is not None)
        sides = list(dict.fromkeys(share.key.place for share in taken))
        sweep = number // len(sides) if sides else schedule.sweeps
        if sweep >= schedule.sweeps:
            return None
        side = sides[number % len(sides)]
        return self.flows.trips[sweep], side, self._shares(sweep, side)

    def _shares(self, index: int, side: int) -> list[Share]:
        """What a trip takes through the cut at one of its sides."""
        return [
            share for share in Shares(self.flows.passage(index)).taken() if share.key.place == side
        ]

    def _last_slab(self, index: int, side: int) -> int:
        """The slab whose gets are the last ones of the seam of a trip at one of its sides."""
        shares = self._shares(index, side)
        last = max(share.planes.stop - 1 + share.ring.low for share in shares)
        return (index * self.schedule.pitch_planes + last) // self.schedule.slab_planes

    def _in_slabs(self, planes: range, *, opposite: bool = False) -> list[range]:
        """Planes in messages of a slab, as they are sent: from the first on, or from the last."""
        slab = self.schedule.slab_planes
        if opposite:
            ends = range(planes.stop, planes.start, -slab)
            return [range(max(planes.start, end - slab), end) for end in ends]
        starts = range(planes.start, planes.stop, slab)
        return [range(first, min(first + slab, planes.stop)) for first in starts]

    def _of_seam(self, shares: list[Share]) -> list[_Message]:
        """What is received of a seam: all of it is there before its first plane is read."""
        due = min(share.planes.start for share in shares)
        return [
            _Message(
                due,
                share.peer if share.peer is not None else -1,
                share.ring.field,
                0,
                share.ring.index,
                planes,
                share.rows,
                share.key,
                share.origin,
            )
            for share in shares
            for planes in self._in_slabs(share.planes, opposite=True)
        ]

    def _of_state(self, state: int) -> list[_Message]:
        """What is received of a state, in the order of its planes.

        Those of a neighbour come in the order in which it streams. Where that is the opposite one,
        all of them are there when the last one is: the first plane that is needed.
        """
        schedule, messages = self.schedule, list[_Message]()
        for exchanged in schedule.exchanged(state):
            every = schedule.domain.streamed(exchanged.received.planes)
            opposite = opposes(schedule, exchanged.peer)
            for planes in self._in_slabs(every, opposite=opposite):
                due = every.start if opposite else planes.start
                for departure in schedule.departures:
                    level = departure.field, departure.level, -1
                    rows = exchanged.received.rows
                    message = _Message(due, exchanged.peer, *level, planes, rows)
                    messages.append(replace(message, turn=exchanged.turn))
        passage = self.flows.passage(self.flows.trips.number(state - 1, 0))
        for cut, departure, every in _coming(passage):
            for planes in self._in_slabs(every, opposite=True):
                level, rows = (departure.field, departure.level, -1), schedule.domain.owned.rows
                messages.append(_Message(every.start, cut.peer, *level, planes, rows))
        return sorted(messages, key=lambda message: (message.due, message.peer))

    def _is_read(self, sweep: int, arrived: int) -> bool:
        """Whether all gets of a sweep were emitted."""
        if sweep < 0:
            return True
        passage = self.flows.passage(sweep)  # of ranks, who have one trip for each sweep
        last = passage.entering.stop - 1 + max(arrival.lead for arrival in self.schedule.arrivals)
        return arrived > (last + passage.slot_origin) // self.schedule.slab_planes


def _coming(passage: Passage) -> Iterator[tuple[Cut, Departure, range]]:
    """What takers of a trip's seams return of each level that leaves, cut by cut."""
    coming = [
        (cut, departure, planes)
        for departure in passage.of.departures
        for cut, planes in Shares(passage).returned(departure)
        if cut.given
    ]
    yield from sorted(coming, key=lambda returned: returned[0].above)
