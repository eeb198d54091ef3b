"""Watching for values that are no finite numbers, in a run that begins without any.

What a sweep leaves is looked at by its kernel, in the tile where it was made, while it is in a
cache: no state that holds such a value is ever said to be there. Values within a sweep that are
gone at its end, as a condition may have it, are not noticed.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from outgrid.axes import exchanged
from outgrid.plan.model import Plan
from outgrid.plan.schedule.trip import Trip
from outgrid.stencil.until import Until

NOWHERE = np.iinfo(np.int64).max
# A grid that stays in memory is looked at about every so many steps, and where they lead to a
# state: a sweep of few steps would be held up by more than it is worth.
RESIDENT_STEPS = 64


class Place(msgspec.Struct, frozen=True, order=True):
    """Where a value is not finite: ``step`` counts from 1, on from the plan's state 0.

    Places are ordered as they are made: by step, stage and cell.
    """

    step: int
    stage: int
    cell: tuple[int, ...]
    field: str
    nan: bool
    sweep: int

    def words(self, done: int, steps: int) -> str:
        """What happened, in a run of ``steps`` steps of which ``done`` came before the plan."""
        what = "NaN" if self.nan else "infinite"
        axes = "z, y, x" if len(self.cell) == 3 else "y, x"
        return (
            f"{self.field} became {what} in step {done + self.step} of {steps}, first in cell "
            f"({axes}) = {self.cell}"
        )


class NotFinite(Exception):  # noqa: N818 - it is told as an ExecutionError
    """A run has to end: sweep ``sweep`` made what is not finite, ``state`` is the last without."""

    def __init__(self, sweep: int, state: int) -> None:
        super().__init__(sweep, state)
        self.sweep, self.state = sweep, state


class Watch:
    """Where to look, and what was seen: of ``fields``, in the order of the kernel.

    With ``every_step`` all steps are looked at, else those that stay when their sweep has ended.
    Where the run may end, as ``until`` has it, is looked at as well. While initial values arrive,
    ``begins_finite`` says whether they are finite, those that are still to come included: a run is
    not watched where they are not, whatever is made of the others before.
    """

    def __init__(
        self,
        plan: Plan,
        fields: tuple[str, ...],
        *,
        every_step: bool = False,
        until: Until | None = None,
        begins_finite: Callable[[], bool] = lambda: True,
    ) -> None:
        self._begins_finite = begins_finite
        self._plan, self._fields, self._every_step = plan, fields, every_step
        self._until = until
        self._levels = -min((departure.level for departure in plan.schedule.departures), default=0)
        self._state = 0
        self._stopped = False
        self.first: Place | None = None

    def level(self, trip: Trip) -> int:
        """The first level of a trip that is looked at; 0 for none."""
        if self._every_step:
            return 1
        if self._stopped:
            return 0
        steps = trip.done + trip.depth
        due = trip.done // RESIDENT_STEPS < steps // RESIDENT_STEPS
        kept = self._plan.schedule.states.after(trip.sweep + 1) is not None
        ends = self._until is not None and self._until.looks(steps)
        return max(1, trip.depth - self._levels) if due or kept or ends else 0

    def note(self, trip: Trip, place: int) -> None:
        """Take down a place as the kernel counts it. Raises NotFinite if the run has to end."""
        if place == NOWHERE:
            return
        if not (trip.sweep or self._stopped or self._begins_finite()):
            self.stop()
        index = self._place(trip, place)
        if self.first is None or index < self.first:
            self.first = index
        self._end_after(self._state)

    def check(self, state: int) -> None:
        """Raise NotFinite where ``state``, of which something is about to be kept, is spoilt."""
        if self.first is not None and state > self._sound and not self._stopped:
            raise NotFinite(self.first.sweep, self._sound)

    def kept(self, state: int) -> None:
        """All of ``state`` is kept. Raises NotFinite where it is the last one to be."""
        self._state = state
        self._end_after(state)

    def end(self, plan: Plan) -> None:
        """Look no further than the last sweep of ``plan``, which is the end of the run."""
        self._plan = plan
        if self.first is not None and self.first.sweep >= plan.sweeps:
            self.first = None

    @property
    def stopped(self) -> bool:
        """Whether it looks no further."""
        return self._stopped

    def stop(self) -> None:
        """Look no further: the run did not begin with finite numbers alone."""
        self._stopped = True

    def _end_after(self, state: int) -> None:
        stays = self._every_step or self._stopped
        if self.first is not None and not stays and state >= self._sound:
            raise NotFinite(self.first.sweep, state)

    @property
    def _sound(self) -> int:
        """The last state that was made before what was seen."""
        return (
            self._plan.schedule.states.count
            if self.first is None
            else self._plan.schedule.states.within(self.first.sweep)
        )

    def _place(self, trip: Trip, place: int) -> Place:
        plan = self._plan
        place, nan = divmod(place, 2)
        place, field = divmod(place, len(self._fields))
        place, x = divmod(place, plan.schedule.shape[-1])
        place, y = divmod(place, plan.layout.rows)
        passage = plan.schedule.passage(trip)
        planes = passage.extents[0] + passage.around[0]
        place, z = divmod(place, planes)
        level, stage = divmod(place, len(plan.schedule.skew.shifts))
        return Place(
            step=trip.done + level + 1,
            stage=stage,
            cell=self._cell(z, y, x),
            field=self._fields[field],
            nan=bool(nan),
            sweep=trip.sweep,
        )

    def _cell(self, plane: int, row: int, column: int) -> tuple[int, ...]:
        """The indices of a cell of the grid."""
        if len(self._plan.schedule.shape) == 2:
            return plane, column
        cell = plane, row, column
        return exchanged(cell, self._plan.transposed)
