"""A compiled kernel as a call: the structure it takes, and the addresses that fill it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from functools import partial

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from outgrid.build.compiler import Library
from outgrid.codegen.slab import structure
from outgrid.errors import ExecutionError
from outgrid.execute.absence import NOWHERE_ABSENT, Absence
from outgrid.execute.heap import give_back
from outgrid.execute.profiles import NO_PROFILES, Profiles
from outgrid.execute.reference import is_reference
from outgrid.execute.site import HostSite
from outgrid.execute.window import Window
from outgrid.native import TEAM_ADDRESS, Buffer
from outgrid.observe.accumulators import Accumulators
from outgrid.observe.points import Points
from outgrid.observe.snapshots import SnapshotTable
from outgrid.observe.still import StillPlanes
from outgrid.observe.watch import NOWHERE, Watch
from outgrid.plan.model import Plan, Tile
from outgrid.plan.program import Advance, Stretch
from outgrid.plan.schedule.model import Passage
from outgrid.plan.schedule.rings import Ring
from outgrid.plan.schedule.trip import Span, Trip
from outgrid.stencil.parameters import parameter_table
from outgrid.stencil.problem import Problem
from outgrid.storage import Transfers

ORDERS = {"level": 0, "diamond": 1, "front": 2}
Slab = structure("cpu/slab.hpp")


class Kernel(msgspec.Struct, frozen=True):
    """Updates the planes of a window.

    ``parameters`` has one row per step of the run, as `Problem.parameter_table` gives it. With
    ``changing`` coefficients each step of a sweep reads rings of its own.
    """

    library: Library
    parameters: NDArray[np.float64]
    points: Points | None = None
    profiles: Profiles = NO_PROFILES
    reductions: Accumulators | None = None
    watch: Watch | None = None
    snapshots: SnapshotTable | None = None
    changing: bool = False
    absence: Absence = NOWHERE_ABSENT
    still: StillPlanes | None = None

    @classmethod
    def of(
        cls,
        library: Library,
        problem: Problem,
        steps: int | None = None,
        points: Points | None = None,
    ) -> Kernel:
        """With the numbers of a problem, for ``steps`` steps, as many as it has if left out."""
        return cls(
            library,
            parameter_table(problem, steps),
            points,
            Profiles.of(problem),
            Accumulators.of(problem),
            changing=bool(problem.series),
            absence=Absence.of(problem),
        )

    @property
    def device_name(self) -> str:
        """Of the processor there is no need to speak."""
        return ""

    @property
    def compiler(self) -> str:
        """The compiler and the flags that made it."""
        return self.library.compiler

    @property
    def measurable(self) -> bool:
        """Whether plans are to know its rates: of the reference executor they are not."""
        return not is_reference(self.compiler)

    @property
    def notes(self) -> tuple[str, ...]:
        """How it was come by, where that was not the usual way."""
        return (self.library.note,) if self.library.note else ()

    @property
    def apart(self) -> bool:
        """Any thread may ask for advances."""
        return True

    def after(self, rest: Problem) -> Kernel:
        """The kernel of the ``rest`` of a problem, for all of its steps."""
        made = Kernel.of(self.library, rest, points=Points.of(rest))
        return replace(made, parameters=self.parameters[len(self.parameters) - rest.steps :])

    def site(
        self, plan: Plan, take: Callable[[Ring, int], Buffer], transfers: Transfers
    ) -> HostSite[Kernel]:
        """A window of its own, in memory that ``take`` gets."""
        give_back(plan.memory.window_bytes)
        return HostSite(Window(plan, partial(self.touch, plan), take), transfers)

    def advance(self, plan: Plan, window: Window, instruction: Advance) -> None:
        """Carry out one advance, all of its parts in order. Releases the interpreter lock."""
        for part in self._parts(plan, window, instruction):
            self._advance(plan, window, part)
        if self.snapshots is not None:
            self.snapshots.outlet.check()

    def _advance(self, plan: Plan, window: Window, part: Stretch) -> None:
        """Carry out one part of an advance."""
        stride, trip, done = plan.columns, part.trip, part.trip.done
        passage = plan.schedule.passage(trip)
        planes, rows = passage.extents
        # What comes again below 0 has numbers below 0: the kernel counts a turn more.
        around, above = passage.around
        apart = trip.depth if self.changing else 1
        pointers = window.plane_tables(trip, part.first, range(1, apart + 1)) - 8 * around
        plane_shifts, row_shifts = (
            _shifts(span, len(plan.schedule.skew.shifts)) for span in (trip.planes, trip.rows)
        )
        broken, narrow = np.full(1, NOWHERE), _narrow(plan)
        slab = Slab(
            rings=pointers.ctypes.data,
            parameters=self.parameters[done:].ctypes.data,
            profiles=self.profiles.address,
            plane_shifts=plane_shifts.ctypes.data,
            row_shifts=row_shifts.ctypes.data,
            broken=broken.ctypes.data,
            watch=self.watch.level(trip) if self.watch is not None else 0,
            period=passage.periods[0] or around,
            row_period=passage.periods[1] or above,
            downward=plan.schedule.domain.downward,
            planes=planes + around,
            rows=rows + above,
            columns=plan.schedule.shape[-1],
            row_stride=stride,
            row_offset=-stride * (passage.row_origin + above),
            narrow_stride=plan.narrow_columns,
            narrow_columns=narrow.ctypes.data,
            narrow_parts=len(narrow),
            first=part.first + around,
            last=part.last + around,
            since=part.since,
            depth=part.steps.stop - 1,
            base=passage.base,
            skew=plan.schedule.skew.per_step,
            ring_step=len(pointers) // apart if self.changing else 0,
            team=TEAM_ADDRESS,
            threads=plan.threads,
            pin=plan.pin,
            **_bounds(passage),
            **_tile(plan.tile),
            **self._points(done),
            **self._kept(done),
            **self._totals(trip, done),
            **self.absence.members(plan),
        )
        status = self.library.handle.outgrid_advance(ctypes.byref(slab))
        if status != 0:
            where = f"sweep {trip.sweep}, front at {part.first}..{part.last}"
            raise ExecutionError(f"{_refused(status, plan.threads)}: {where}")
        if self.watch is not None:
            self.watch.note(trip, int(broken[0]))

    def _parts(self, plan: Plan, window: Window, instruction: Advance) -> Iterator[Stretch]:
        """The parts of an advance, without steps of planes that are +0 and stay so."""
        for part in instruction.parts:
            yield from (part,) if self.still is None else self.still.parts(plan, window, part)

    def touch(self, plan: Plan, buffer: Buffer) -> None:
        """Write to every page of ``buffer`` with the threads that will compute.

        Memory then lies near them, and comes as fast as all of them can take it.
        """
        sizes = (ctypes.c_int64(n) for n in (buffer.nbytes, plan.threads, plan.pin))
        team, first = ctypes.c_void_p(TEAM_ADDRESS), ctypes.c_void_p(buffer.address)
        status = self.library.handle.outgrid_touch(team, first, *sizes)
        if status != 0:
            raise ExecutionError(_refused(status, plan.threads))

    def _points(self, done: int) -> dict[str, int]:
        """Tables of sources and receivers from step ``done`` on."""
        points = self.points
        if points is None:
            return {}
        return {
            "injected": points.injected.ctypes.data,
            "amounts": points.amounts[done:].ctypes.data,
            "sampled": points.sampled.ctypes.data,
            "samples": points.samples[done:].ctypes.data,
            "injections": len(points.injected),
            "receptions": len(points.sampled),
        }

    def _kept(self, done: int) -> dict[str, int]:
        """Snapshots, and how many of their steps are made."""
        snapshots = self.snapshots
        if snapshots is None:
            return {}
        return {
            "kept": snapshots.rows.ctypes.data,
            "outlet": snapshots.outlet.address,
            "snapshots": len(snapshots.rows),
            "made": done,
        }

    def _totals(self, trip: Trip, done: int) -> dict[str, int]:
        """Where reductions are kept."""
        if self.reductions is None:
            return {}
        return {"totals": self.reductions.address(trip.sweep, done, trip.depth)}

    def repeat(self, plan: Plan, window: Window, steps: int, planes: range, rows: range) -> None:
        """Update ``rows`` of ``planes`` of a resident grid ``steps`` times, with one thread.

        All around them is only read and keeps its values, in every ring: a part of a grid, without
        the layer of fixed cells that a grid has. There are no more steps than rows of
        ``parameters``. Releases the interpreter lock.
        """
        pointers = window.plane_tables(plan.schedule.trips[0], 0)
        shifts = np.zeros(2 * len(plan.schedule.skew.shifts), np.int64)
        slab = Slab(
            plane_shifts=shifts.ctypes.data,
            row_shifts=shifts.ctypes.data,
            rings=pointers.ctypes.data,
            parameters=self.parameters.ctypes.data,
            profiles=self.profiles.address,
            planes=plan.schedule.planes,
            rows=plan.layout.rows,
            columns=plan.schedule.shape[-1],
            row_stride=plan.columns,
            narrow_stride=plan.narrow_columns,
            first=planes.start,
            last=planes.stop,
            depth=steps,
            since=1,
            plane_high=plan.schedule.planes,
            row_low=rows.start,
            row_high=rows.stop,
            order=ORDERS["level"],
            tile_planes=plan.tile.planes,
            tile_group=plan.tile.group,
            threads=1,
            **self.absence.members(plan),
        )
        status = self.library.handle.outgrid_advance(ctypes.byref(slab))
        if status != 0:
            raise ExecutionError(f"the kernel failed with status {status} on planes {planes}")


def _narrow(plan: Plan) -> NDArray[np.int64]:
    """The columns, [first, end) each, that fields are kept in which are not kept in all."""
    bands = (ring.columns for ring in plan.schedule.rings if ring.columns is not None)
    return np.array(next(bands, ()), np.int64).reshape(-1, 2)


def _bounds(passage: Passage) -> dict[str, int]:
    """The planes and rows that a trip updates, and those whose cells it counts."""
    trip, counted, (around, above) = passage.trip, passage.counted, passage.around
    return {
        "plane_low": trip.planes.low + around,
        "plane_high": trip.planes.high + around,
        "plane_rise": trip.planes.rise,
        "plane_fall": trip.planes.fall,
        "row_low": trip.rows.low + above,
        "row_high": trip.rows.high + above,
        "row_rise": trip.rows.rise,
        "row_fall": trip.rows.fall,
        "own_z0": counted.planes.start + around,
        "own_z1": counted.planes.stop + around,
        "own_y0": counted.rows.start + above,
        "own_y1": counted.rows.stop + above,
    }


def _tile(tile: Tile) -> dict[str, int]:
    """The order of the updates."""
    return {
        "order": ORDERS[tile.order],
        "tile_rows": tile.rows,
        "tile_planes": tile.planes,
        "tile_columns": tile.columns,
        "tile_band": tile.band,
        "tile_group": tile.group,
        "tile_fetch": tile.fetch,
        "tile_stream": tile.stream,
    }


def _refused(status: int, threads: int) -> str:
    """Why a kernel did nothing, and the way out."""
    if status < 0:
        return f"{threads} threads cannot be started ({os.strerror(-status)}); use fewer threads"
    return f"threads cannot be pinned to processors ({os.strerror(status)}); run without pin"


def _shifts(span: Span, stages: int) -> NDArray[np.int64]:
    """How much higher both ends of each stage lie: those of the lower end first."""
    ends = np.array([span.ends(stage) for stage in range(stages)], np.int64)
    return np.ascontiguousarray(ends.T)
