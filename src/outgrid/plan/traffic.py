"""The bytes of a schedule: what its sweeps read, write, exchange and keep on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from math import ceil

import msgspec

from outgrid.plan.schedule.interval import ACROSS, End
from outgrid.plan.schedule.model import Passage, Schedule
from outgrid.plan.schedule.rings import parts_within
from outgrid.plan.schedule.seam import channels
from outgrid.plan.schedule.share import Share, Shares
from outgrid.plan.schedule.subgrid import common
from outgrid.tiers import PASSING_TIERS


class Traffic(msgspec.Struct, frozen=True, dict=True):
    """What moves by a schedule whose fields have rows of so many bytes in files.

    Of ``packed`` coefficients only a share of the bytes is read: that of their packed copies.
    """

    schedule: Schedule
    row_bytes: Mapping[str, int]
    packed: Mapping[str, float] = msgspec.field(default_factory=dict[str, float])

    @property
    def arriving_bytes(self) -> int:
        """Bytes of a row of all levels that enter the window."""
        return sum(self.row_bytes[arrival.field] for arrival in self.schedule.arrivals)

    @property
    def leaving_bytes(self) -> int:
        """Bytes of a row of all levels that leave it."""
        return sum(self.row_bytes[departure.field] for departure in self.schedule.departures)

    @property
    def fill_bytes(self) -> int:
        """Bytes that files begin with."""
        return sum(self._kept_bytes(arrival.field) for arrival in self.schedule.kept)

    def _kept_bytes(self, field: str) -> int:
        """Bytes of a file of a level, of the planes in which its field exists."""
        stored = self.schedule.stored
        planes = stored.count // len(stored.rows)
        if self.schedule.bands(field) is not None:
            planes = self.schedule.planes_of(field)
        return planes * len(stored.rows) * self.row_bytes[field]

    @cached_property
    def unpacked_bytes(self) -> int:
        """Bytes of all packed coefficients, as they are in the window."""
        return sum(self._kept_bytes(name) for name in self.packed)

    @cached_property
    def packed_bytes(self) -> int:
        """Bytes of their packed copies."""
        return sum(ceil(self._kept_bytes(name) * share) for name, share in self.packed.items())

    @cached_property
    def moved_bytes(self) -> tuple[int, int]:
        """Bytes that sweeps (read, write), seams and halos included; of a grid in memory, one."""
        schedule = self.schedule
        depths = schedule.depths[-1:] if schedule.resident else schedule.depths
        read, written = 0, self.exchanged_bytes[1]
        for depth, times in Counter(depths).items():
            moved = self._sweep_bytes(depth)
            read, written = read + times * moved[0], written + times * moved[1]
        return read, written

    def _sweep_bytes(self, depth: int, parts: int | None = None) -> tuple[int, int]:
        """Bytes that a sweep (reads, writes), or its first ``parts`` trips."""
        schedule = self.schedule
        if schedule.blocks is not None:  # of which there may be very many
            rows = schedule.blocks.moved_rows(depth, parts)
            return rows[0] * self.arriving_bytes, rows[1] * self.leaving_bytes
        read = written = 0
        before, moved = None, (0, 0)
        for passage in islice(schedule.sweep(depth), parts):
            kind = _kind(passage)
            if kind is None or kind != before:
                before, moved = kind, self._moved(passage)
            read, written = read + moved[0], written + moved[1]
        return read, written

    def _moved(
        self, passage: Passage, low: int | None = None, end: int | None = None
    ) -> tuple[int, int]:
        """Bytes that a trip (reads, writes); only those in planes below ``low``, and ``end``."""

        def below(planes: range, most: int | None, field: str) -> int:
            if most is not None:
                planes = common(planes, range(min(0, most), most))
            return sum(map(len, parts_within(self.schedule.bands(field), planes)))

        read = written = 0
        for arrival in self.schedule.arrivals:
            if not arrival.of(passage.trip.depth):
                continue
            box = passage.arriving(arrival)
            again = passage.rereads(arrival) if low is None else 0
            planes = below(box.planes, low, arrival.field) + again
            share = self.packed.get(arrival.field, 1.0)
            rows = parts_within(self.schedule.row_bands(arrival.field), box.rows)
            nbytes = sum(map(len, rows)) * self.row_bytes[arrival.field]
            read += ceil(planes * nbytes * share)
        for departure in self.schedule.departures:
            box = passage.leaving(departure)
            planes = below(box.planes, end, departure.field)
            written += planes * len(box.rows) * self.row_bytes[departure.field]
        for share in Shares(passage).taken():
            nbytes = len(share.rows) * self.row_bytes[share.ring.field]
            read += below(share.planes, low, share.ring.field) * nbytes
        for share in Shares(passage).given():
            if share.peer is None:
                nbytes = len(share.rows) * self.row_bytes[share.ring.field]
                written += below(share.planes, end, share.ring.field) * nbytes
        return read, written

    def spared_bytes(self, depth: int, part: int, planes: int) -> tuple[int, int]:
        """Bytes that a sweep need not (read, write) where it goes on at a trip and a plane of it.

        The trips before are left out, and of this one what it writes below ``planes``.
        """
        if not (part or planes):
            return 0, 0
        read, written = self._sweep_bytes(depth, part)
        if planes:
            low = max(0, planes - self.schedule.lean(depth))
            passage = next(islice(self.schedule.sweep(depth), part, None))
            moved = self._moved(passage, low, planes)
            read, written = read + moved[0], written + moved[1]
        return read, written

    @cached_property
    def exchanged_bytes(self) -> tuple[int, int]:
        """Bytes (sent, received) between sweeps, and of seams within them."""
        sent = received = 0
        schedule, subgrid = self.schedule, self.schedule.domain.subgrid
        for depth, times in Counter(schedule.depths).items() if subgrid.seams else ():
            passage = next(schedule.sweep(depth))
            seams = sum(self._bytes(share) for share in self._at_cuts(passage))
            back = self._returned_bytes(passage)
            to, come = (seams, back) if subgrid.upright else (back, seams)
            sent, received = sent + times * to, received + times * come
        for depth, times in Counter(schedule.depths[1:]).items():
            for exchange in subgrid.exchanged(depth):
                sent += times * exchange.sent.count * self.leaving_bytes
                received += times * exchange.received.count * self.leaving_bytes
        return sent, received

    @staticmethod
    def _at_cuts(passage: Passage) -> Iterator[Share]:
        """What goes through seams between ranks."""
        for share in (*Shares(passage).given(), *Shares(passage).taken()):
            if share.peer is not None:
                yield share

    def _bytes(self, share: Share) -> int:
        return share.count * self.row_bytes[share.ring.field]

    def _returned_bytes(self, passage: Passage) -> int:
        """Bytes of what is given back over cuts between ranks."""
        return sum(
            len(planes) * len(self.schedule.domain.owned.rows) * self.row_bytes[departure.field]
            for departure in self.schedule.departures
            for _, planes in Shares(passage).returned(departure)
        )

    def seam_read_bytes(self, depth: int) -> int:
        """Bytes that have to be there when the first plane beyond a cut is updated."""
        by_side: Counter[bool] = Counter()
        for share in self._at_cuts(next(self.schedule.sweep(depth))):
            by_side[bool(share.key.place)] += self._bytes(share)
        return max(by_side.values(), default=0)

    def buffered_bytes(self, slab: int) -> int:
        """Bytes of a slab of all that goes between ranks, each way, level and ring for itself."""
        schedule = self.schedule
        rows = sum(
            len(box.rows)
            for exchange in schedule.domain.subgrid.exchanged(schedule.depth)
            for box in (exchange.sent, exchange.received)
            if box.count
        )
        levels = [(departure.field, departure.level) for departure in schedule.departures]
        fields = [
            field
            for given in (False, True)
            for _, field, _, _ in channels(schedule.seams, levels, given=given)
        ]
        seams = schedule.rows * sum(self.row_bytes[field] for field in fields)
        return slab * (rows * self.leaving_bytes + seams)

    def disk_bytes(self, tier: str = "direct", mapped_bytes: int = 0) -> int:
        """Bytes reserved in scratch: two files for each evolving level, one for a coefficient, and
        the places of seams.

        A grid that is streamed from memory leaves its results only. ``mapped_bytes`` are those of
        rings in files.
        """
        schedule = self.schedule
        if tier in PASSING_TIERS:
            return self.leaving_bytes * schedule.planes * schedule.rows
        files = 2 * sum(self._kept_bytes(departure.field) for departure in schedule.departures)
        files += sum(self._kept_bytes(kept.field) for kept in schedule.kept if kept.constant)
        seams = (
            planes * rows * self.row_bytes[key.field]
            for key, (planes, rows, *_) in schedule.places.items()
        )
        return files + mapped_bytes + sum(seams) + self.packed_bytes


def _kind(passage: Passage) -> tuple[int, End, End] | None:
    """What the bytes of a trip follow from, if it touches neither end of the rows: its strip.

    A grid has very many strips, and nearly all are alike.
    """
    rows = passage.intervals[ACROSS]
    touched = rows.touched
    if passage.trip.part == 0 or touched.start <= rows.first or touched.stop >= rows.extent:
        return None
    return len(rows.cells), rows.below, rows.above
