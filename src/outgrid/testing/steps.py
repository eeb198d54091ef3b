"""Steps: every update is made once, and finds the versions that it reads."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from outgrid.errors import ExecutionError
from outgrid.plan.model import Plan
from outgrid.plan.program import (
    Advance,
    levels,
)
from outgrid.plan.schedule.lifetime import dependences
from outgrid.plan.schedule.trip import Trip
from outgrid.stencil.model import Stencil
from outgrid.testing.tagged import Tagged


class _Reading(msgspec.Struct, frozen=True):
    """What one step reads, in planes and rows around the updated one."""

    field: str
    version: int
    planes: range
    rows: tuple[int, int]


class Steps:
    """The updates that a program makes: each once, of what it has to read.

    ``done`` are those made so far, by sweep, step and stage.
    """

    def __init__(
        self,
        plan: Plan,
        stencil: Stencil,
        memory: Tagged,
        done: dict[tuple[int, int, int], NDArray[np.bool_]],
        closed: bool,
    ) -> None:
        self.plan, self.schedule, self.memory = plan, plan.schedule, memory
        self.done, self.closed = done, closed
        self.readings = _readings(stencil, plan.schedule.domain.downward)
        self.evolving = {field.name for field in stencil.evolving}
        self.given = {one.field for one in self.schedule.arrivals if one.given}
        self.written = [
            [assignment.field for assignment in stage.assignments] for stage in stencil.stages
        ]
        self.row_updates = 0

    def advance(self, advance: Advance) -> None:
        for trip, step, stage, planes, rows in levels(self.plan, advance):
            for plane in planes:
                self._update(trip, step, stage, plane, rows)

    def _update(self, trip: Trip, step: int, stage: int, plane: int, rows: range) -> None:
        done = self.done.get((trip.sweep, step, stage))
        if done is None:
            done = np.zeros((self.memory.planes, self.memory.rows), bool)
            self.done[trip.sweep, step, stage] = done
        at, there = self.memory.of_grid(plane % self.memory.planes), self.memory.rows_of_grid(rows)
        if self.schedule.blocks is None and done[at, there].any():
            raise ExecutionError(f"plane {at} of sweep {trip.sweep} is updated twice to {step}")
        done[at, there] = True
        self._check_reads(trip, step, stage, plane, rows)
        for field in self.written[stage]:
            if not self.memory.exists(field, plane):
                continue
            slot = self.memory.version(field, trip, step, plane, rows)
            slot[:] = self.memory.tags(trip, plane, rows, step)
        self.row_updates += len(rows) if stage == 0 else 0

    def _check_reads(self, trip: Trip, step: int, stage: int, plane: int, rows: range) -> None:
        passage = self.memory.passage(trip)
        (most, last), (closes, turns) = passage.extents, passage.periods
        around = passage.around[0]
        for read in self.readings[stage]:
            evolving = read.field in self.evolving
            changes = evolving or read.field in self.given
            version = step + read.version if changes else 0
            reached = range(rows.start + read.rows[0], rows.stop + read.rows[1])
            if turns and not (reached.start >= 0 and reached.stop <= last):
                raise ExecutionError(
                    f"the update of rows {rows} to {step} in sweep {trip.sweep} reads rows "
                    f"{reached}, which do not come round"
                )
            reached = range(max(0, reached.start), min(last, reached.stop))
            for offset in read.planes:
                at = plane + offset
                if not -around <= at < most:
                    if closes:
                        raise ExecutionError(
                            f"the update of plane {plane} to {step} in sweep {trip.sweep} reads "
                            f"plane {at}, which does not come round"
                        )
                    if not self.closed:
                        continue  # a mirror's image, which lies no farther off
                    at %= self.memory.planes
                if not self.memory.exists(read.field, at % self.memory.planes):
                    continue
                tags = self.memory.version(read.field, trip, version, at, reached)
                wrong = tags != self.memory.tags(trip, at, reached, version, evolving=evolving)
                wrong &= self.memory.kept(read.field, reached)
                if wrong.any():
                    row = int(np.argmax(wrong))
                    raise ExecutionError(
                        f"the update of plane {plane} to {step} in sweep {trip.sweep} reads "
                        f"{self.memory.name(int(tags[row]))} of {read.field} at plane {at}, row "
                        f"{reached[row]}, instead of version {version}"
                    )


def _readings(stencil: Stencil, downward: bool) -> list[list[_Reading]]:
    """What each stage reads, on planes as the stream counts them."""
    reads = dependences(stencil)
    along = (reads.mirrored() if downward else reads).readings
    across = dependences(stencil, axis=1).readings if stencil.ndim == 3 else along
    by_stage: list[list[_Reading]] = [[] for _ in stencil.stages]
    for one, other in zip(along, across, strict=True):
        rows = (other.low, other.high) if stencil.ndim == 3 else (0, 0)
        planes = range(one.low, one.high + 1)
        by_stage[one.reader].append(_Reading(one.field, one.version, planes, rows))
    return by_stage
