"""Tagged memory: rows of slots, files and seams that carry (sweep, plane, row, version)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import ExecutionError
from outgrid.plan.program import (
    Move,
)
from outgrid.plan.schedule.model import Passage, Schedule
from outgrid.plan.schedule.seam import SeamKey
from outgrid.plan.schedule.trip import Trip

VOID = -9  # neither a tag nor a state

Tags = NDArray[np.int64]


class Tagged:
    """The window, files and seams of one rank, in which rows carry tags instead of values."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.planes, self.rows = schedule.planes, schedule.rows
        self.tall = sum(schedule.depths) + 3  # versions that a row may have
        self.counts = {ring.field: schedule.ring_count(ring.field) for ring in schedule.rings}
        self.passages: dict[int, Passage] = {}
        self.grid_rows: dict[range, Tags] = {}
        self.slots: dict[tuple[str, int], Tags] = {
            key: np.full((ring.planes, schedule.window_rows), VOID, np.int64)
            for key, ring in schedule.ring_of.items()
        }
        # State held by each place of the two files of every level; VOID while it is written.
        self.files: dict[tuple[str, int, int], Tags] = {}
        for arrival in schedule.arrivals:
            stored = schedule.stored
            box = (stored.held if arrival.constant else stored.evolving)(schedule.depth)
            for parity in (0, 1):
                held = np.full((schedule.planes, self.rows), VOID, np.int64)
                held[box.planes.start : box.planes.stop, box.rows.start : box.rows.stop] = -parity
                self.files[arrival.field, arrival.level, parity] = held
        self.seams: dict[SeamKey, Tags] = {
            key: np.full(shape[:2], VOID, np.int64) for key, shape in schedule.places.items()
        }

    def held(self, move: Move) -> list[Tags]:
        """The rows of a move in the window, plane by plane."""
        return [
            self.slot(move.field, move.ring, move.trip, plane, move.rows)
            for plane in range(move.first, move.last)
        ]

    def slot(self, field: str, index: int, trip: Trip, plane: int, rows: range) -> Tags:
        slots, passage = self.slots[field, index], self.passage(trip)
        origin = passage.row_origin
        places = passage.places(self.schedule.ring_of[field, index], range(plane, plane + 1))
        slot = slots[places.start % len(slots)]
        if rows.start < origin or rows.stop > origin + len(slot):
            raise ExecutionError(f"rows {rows} of plane {plane} are outside the window in {trip}")
        return slot[rows.start - origin : rows.stop - origin]

    def exists(self, field: str, plane: int) -> bool:
        """Whether a field exists in a plane: it is +0 in others, and nothing holds them."""
        bands = self.schedule.bands(field)
        return bands is None or any(first <= plane < end for first, end in bands)

    def kept(self, field: str, rows: range) -> NDArray[np.bool_]:
        """Which rows are kept of a field, if these are not all."""
        bands = self.schedule.row_bands(field)
        numbers = np.arange(rows.start, rows.stop)
        if bands is None:
            return np.ones(len(rows), bool)
        return np.any([(first <= numbers) & (numbers < end) for first, end in bands], axis=0)

    def passage(self, trip: Trip) -> Passage:
        passage = self.passages.get(trip.index)
        if passage is None:
            passage = self.passages[trip.index] = self.schedule.passage(trip)
        return passage

    def rows_of_grid(self, rows: range) -> Tags:
        """Rows of a trip as the grid counts them: on a circle the first ones come again."""
        numbers = self.grid_rows.get(rows)
        if numbers is None:
            numbers = np.arange(rows.start, rows.stop, dtype=np.int64) % self.rows
            self.grid_rows[rows] = numbers
        return numbers

    def of_grid(self, plane: int) -> int:
        """A plane of the stream as the grid counts it."""
        return self.planes - 1 - plane if self.schedule.domain.downward else plane

    def place(self, move: Move) -> list[Tags]:
        """The rows of a move in their file or seam, plane by plane."""
        store = (
            self.seams[move.seam]
            if move.seam is not None
            else self.files[move.field, move.level, move.state % 2]
        )
        rows = move.there.rows
        return [store[plane, rows.start : rows.stop] for plane in move.there.planes]

    def version(self, field: str, trip: Trip, version: int, plane: int, rows: range) -> Tags:
        index = (self.passage(trip).base + version) % self.counts[field]
        return self.slot(field, index, trip, plane, rows)

    def tags(
        self, trip: Trip, plane: int, rows: range, version: int, *, evolving: bool = True
    ) -> Tags:
        """The tags of rows of a plane; a resident value keeps one name through all sweeps."""
        sweep = trip.sweep
        if self.schedule.resident:
            version = version + sum(self.schedule.depths[:sweep]) if evolving else version
            sweep = 0
        plane = self.of_grid(plane % self.planes)
        first = (sweep * self.planes + plane) * self.rows * self.tall + version + 1
        return first + self.tall * self.rows_of_grid(rows)

    def name(self, tag: int) -> str:
        if tag == VOID:
            return "nothing"
        place, version = divmod(tag, self.tall)
        plane, row = divmod(place, self.rows)
        sweep, plane = divmod(plane, self.planes)
        return f"sweep {sweep} plane {plane} row {row} version {version - 1}"
