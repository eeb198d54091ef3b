"""A window in the memory of a device, and the launches that update it."""

from __future__ import annotations

import ctypes
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from outgrid.codegen.slab import structure
from outgrid.device import Device, Extents, Rectangle
from outgrid.errors import ExecutionError
from outgrid.execute.profiles import NO_PROFILES, Profiles
from outgrid.execute.window import Rings, ring_bytes
from outgrid.machine import memory_limit_bytes
from outgrid.native import Buffer
from outgrid.observe.points import Points
from outgrid.observe.watch import NOWHERE, Watch
from outgrid.plan.device import LEAST_PLANES, between_bytes
from outgrid.plan.model import Plan
from outgrid.plan.onchip import ChipTile, tile_of
from outgrid.plan.program import Advance, levels
from outgrid.plan.schedule.rings import Ring
from outgrid.plan.schedule.trip import Trip
from outgrid.stencil.parameters import parameter_table
from outgrid.stencil.problem import Problem
from outgrid.storage import Store, Transfers
from outgrid.storage.staged import TURN_SECONDS, StagedStore, StagedTransfers
from outgrid.storage.swap import HeldStore

__all__ = ["DeviceKernel", "DeviceSite", "DeviceWindow", "Launches"]

Key = TypeVar("Key", bound=Hashable)

BLOCK = (64, 4, 1)  # threads along columns and rows: whole lines of memory, and some reuse of rows
DEEP = 32  # planes that a thread walks through: more are fewer threads, fewer read neighbours anew
PINNED_SHARE = 0.5  # of the memory that the process may use: fields in more are copied in parts
OF_POINTS = ("injected", "amounts", "sampled", "samples")


class Tables:
    """Arrays that lie on a device for as long as a run takes."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._addresses: list[int] = []

    def put(self, values: NDArray[np.generic]) -> int:
        """Copy ``values`` to the device; where they lie there."""
        values = np.ascontiguousarray(values)
        address = self.take(max(1, values.nbytes))
        if values.nbytes:
            source = values.copy()  # a device may spoil what it copies from
            self._device.wait(self._device.upload([_line(address, source)], ()))
        return address

    def take(self, nbytes: int) -> int:
        """Memory on the device, whatever it holds."""
        self._addresses.append(self._device.allocate(nbytes))
        return self._addresses[-1]

    def get(self, address: int, into: NDArray[np.generic]) -> None:
        """Copy back what lies at ``address`` after all launches so far."""
        if into.nbytes:
            part = Rectangle(
                into.ctypes.data, into.nbytes, address, into.nbytes, into.nbytes, rows=1
            )
            self._device.wait(self._device.download([part], (self._device.mark(),)))

    def release(self) -> None:
        """Give the memory back."""
        while self._addresses:
            self._device.release(self._addresses.pop())


def _line(address: int, values: NDArray[np.generic]) -> Rectangle:
    return Rectangle(
        address, values.nbytes, values.ctypes.data, values.nbytes, values.nbytes, rows=1
    )


def _blocks(extents: Extents, block: Extents) -> Extents:
    """Blocks that cover so many cells."""
    x, y, z = (-(-cells // size) for cells, size in zip(extents, block, strict=True))
    return x, y, z


class Level(msgspec.Struct, frozen=True):
    """What a stage updates of a step of a sweep, in one slab."""

    trip: Trip
    step: int
    stage: int
    planes: range
    rows: range

    @property
    def done(self) -> int:
        """Steps of the run before it."""
        return self.trip.done + self.step - 1


class DeviceWindow(Rings):
    """One part of a device's memory per ring.

    Raises DeviceError where the device has too little.
    """

    def __init__(self, plan: Plan, device: Device) -> None:
        self._device, self._held = device, list[int]()
        self._laid = Tables(device)
        try:
            for number in range(len(plan.schedule.rings)):
                self._held.append(device.allocate(ring_bytes(plan, number)))
            super().__init__(plan, self._held, self._laid.put)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give the memory back."""
        self._laid.release()
        while self._held:
            self._device.release(self._held.pop())


class DeviceKernel(msgspec.Struct, frozen=True):
    """What updates are made with on a device, whose kernels are loaded there.

    ``parameters`` has one row per step of the run, as `Problem.parameter_table` gives it. There are
    no reductions and no snapshots.
    """

    device: Device
    parameters: NDArray[np.float64]
    tile: ChipTile | None = None
    points: Points | None = None
    profiles: Profiles = NO_PROFILES
    watch: Watch | None = None
    reductions: None = None
    snapshots: None = None

    @classmethod
    def of(cls, device: Device, problem: Problem) -> DeviceKernel:
        """With the numbers of a problem."""
        points = Points.of(problem) if problem.sources or problem.receivers else None
        tile = tile_of(problem, device.shared_bytes)
        return cls(device, parameter_table(problem), tile, points, Profiles.of(problem))

    @property
    def device_name(self) -> str:
        """What the device calls itself."""
        return self.device.name

    @property
    def compiler(self) -> str:
        """It is the driver that compiles."""
        return ""

    @property
    def notes(self) -> tuple[str, ...]:
        """There is one way to come by it."""
        return ()

    def after(self, rest: Problem) -> DeviceKernel:
        """The kernel of the ``rest`` of a problem, for all of its steps."""
        return DeviceKernel.of(self.device, rest)

    def site(
        self, plan: Plan, take: Callable[[Ring, int], Buffer], transfers: Transfers
    ) -> DeviceSite:
        """A window on the device; ``take`` is for windows in the memory of the process."""
        return DeviceSite(plan, self.device, transfers)


class DeviceSite:
    """A window on a device, and the host memory through which stores reach it."""

    def __init__(self, plan: Plan, device: Device, transfers: Transfers) -> None:
        """Raises DeviceError where the device has too little memory."""
        level = plan.device
        if level is None:
            raise ExecutionError("the plan has no window on a device")
        self.window = DeviceWindow(plan, device)
        try:
            self.transfers = StagedTransfers(transfers, device, level.parts, level.part_bytes)
        except BaseException:
            self.window.release()
            raise
        self._device, self._pinned = device, dict[int, HeldStore]()
        self._launches: Launches | None = None

    def reach(self, stores: Mapping[Key, Store]) -> Mapping[Key, Store]:
        """The stores through host memory."""
        held = [each for each in stores.values() if isinstance(each, HeldStore) and each.address]
        if sum(store.nbytes for store in held) <= PINNED_SHARE * memory_limit_bytes():
            for store in held:
                if self._device.pin(store.address, store.nbytes):
                    self._pinned[store.address] = store
        copied: dict[Key, Store] = {}
        for key, store in stores.items():
            own = store.address if isinstance(store, HeldStore) else 0
            copied[key] = StagedStore(store, self.transfers, own if own in self._pinned else 0)
        return copied

    def updates(self, plan: Plan, kernel: DeviceKernel) -> Launches:
        """The launches of ``kernel``; those of the one before it have ended."""
        if self._launches is not None:
            self._launches.release()
        self._launches = Launches(plan, kernel, self.transfers.attend)
        return self._launches

    def settle(self) -> None:
        """Let all launches end, and bring what they have seen to their kernel."""
        if self._launches is not None:
            self._launches.settle()

    def copied_bytes(self) -> tuple[int, int]:
        """Bytes that were copied to the device, and from it."""
        return self.transfers.uploaded_bytes, self.transfers.downloaded_bytes

    def release(self) -> None:
        """Give all memory on the device back."""
        if self._launches is not None:
            self._launches.release()
            self._launches = None
        self.window.release()

    def close(self) -> None:
        """Let the transfers and launches under way end, and give all memory back."""
        self.transfers.close()
        while self._pinned:
            self._device.unpin(self._pinned.popitem()[0])
        self.release()


class Launches:
    """Updates the planes of a window by launches, which a device carries out in their order.

    Where there is a tile, several levels are made by one launch. An advance returns when the one
    ``ahead`` before it is done, and looks after transfers by ``attend`` meanwhile: slabs are
    computed while the next ones are prepared, and what is timed is the device's work.
    """

    def __init__(
        self,
        plan: Plan,
        kernel: DeviceKernel,
        attend: Callable[[], None] | None = None,
        ahead: int = 1,
    ) -> None:
        self._kernel, self._device, self._trips = kernel, kernel.device, plan.schedule.trips
        self._tables = Tables(self._device)
        self._tile, self._between = kernel.tile, (0, 0)
        self._parts: dict[int, int] = {}  # of so many planes
        self._attend, self._ahead = attend, ahead
        self._marks: deque[Hashable] = deque()
        self._row_bytes = 8 * kernel.parameters.shape[1]
        # Steps whose parameters, but for the step itself, are not those of the step before; and
        # whether some rings change with the step.
        given = kernel.parameters[:, :-1]
        self._changes: list[int] = (1 + np.flatnonzero((given[1:] != given[:-1]).any(1))).tolist()
        self._given = any(arrival.given for arrival in plan.schedule.arrivals)
        try:
            self._parameters = self._tables.put(kernel.parameters.astype(np.float64))
            lying = [self._tables.put(values) for values in kernel.profiles.values]
            self._profiles = self._tables.put(np.array(lying, np.int64))
            self._points = self._put_points()
            if kernel.tile is not None:
                nbytes = between_bytes(kernel.tile, plan.layout)
                self._between = (self._tables.take(nbytes), self._tables.take(nbytes))
            self._broken = 0
            if kernel.watch is not None:
                self._broken = self._tables.put(np.full(len(self._trips), NOWHERE, np.int64))
        except BaseException:
            self.release()
            raise

    def _put_points(self) -> dict[str, int]:
        points = self._kernel.points
        if points is None:
            return {}
        arrays = {name: getattr(points, name) for name in OF_POINTS}
        return {name: self._tables.put(values) for name, values in arrays.items()}

    @property
    def apart(self) -> bool:
        """A device is for one thread, which copies what is moved as well."""
        return False

    def advance(self, plan: Plan, window: DeviceWindow, instruction: Advance) -> None:
        """Launch one advance: each stage over the whole slab before the next."""
        fronts = {part.trip: part.first for part in instruction.parts}
        made = deque(Level(*one) for one in levels(plan, instruction))
        slab, trip = None, None
        while made:
            if slab is None or made[0].trip is not trip or self._given:
                trip = made[0].trip
                slab = self._slab(plan, window, made[0], fronts[trip])
            self._begin(made[0], slab)
            group = self._together(plan, made)
            if self._tile is not None and len(group) > 1:
                self._launch_levels(group, self._tile, slab)
            else:
                self._launch_level(group[0], slab)
            self._look(group[-1], slab)
            for _ in group:
                made.popleft()
        self._marks.append(self._device.mark())
        while len(self._marks) > self._ahead:
            self._wait_for(self._marks.popleft())

    def _wait_for(self, mark: Hashable) -> None:
        """Wait for launches; the transfers beside them need somebody who looks after them."""
        while self._attend is not None and not self._device.done(mark):
            self._attend()
            time.sleep(TURN_SECONDS)
        self._device.wait(mark)

    def _together(self, plan: Plan, made: Sequence[Level]) -> list[Level]:
        """The levels that come next and are made in one launch."""
        first, tile = made[0], self._tile
        if tile is None or len(made) < tile.levels or self._points:
            return [first]
        group = [made[number] for number in range(tile.levels)]
        passage = plan.schedule.passage(first.trip)
        whole = range(plan.layout.rows)
        if passage.periods[0] or len(group[-1].planes) < LEAST_PLANES:
            return [first]
        for number, level in enumerate(group):
            follows = level.trip is first.trip and level.step == first.step + number
            seen = level is not group[-1] and self._looks(level.trip, level.step)
            if level.rows != whole or not follows or seen:
                return [first]
        ends = (first.done, first.done + tile.levels - 1)
        before, behind = (bisect_right(self._changes, step) for step in ends)
        chained = tile.chain([level.planes for level in group], passage.extents[0])
        return group if chained and before == behind else [first]

    def _slab(self, plan: Plan, window: DeviceWindow, level: Level, front: int) -> Any:
        """What the launches of a trip are given: a structure, to be completed by each."""
        trip, passage = level.trip, plan.schedule.passage(level.trip)
        tables = window.plane_tables(trip, front, range(level.step, level.step + 1)).tolist()
        return structure("cuda/slab.hpp", kRings=len(tables))(
            rings=(ctypes.c_void_p * len(tables))(*tables),
            profiles=self._profiles,
            broken=self._broken + 8 * trip.index if self._broken else 0,
            planes=passage.extents[0],
            rows=plan.layout.rows,
            columns=plan.schedule.shape[-1],
            row_stride=plan.columns,
            base=passage.base,
            ring_step=0,
            row_offset=-plan.columns * passage.row_origin,
            period=passage.periods[0],
            came=self._between[0],
            left=self._between[1],
        )

    def _begin(self, level: Level, slab: Any) -> None:
        """Let launches begin with ``level``."""
        slab.t, slab.leaving = level.step, 0
        slab.parameters = self._parameters + level.done * self._row_bytes
        for name, value in self._in_step(level.done).items():
            setattr(slab, name, value)

    def _walk(self, level: Level, slab: Any) -> Extents:
        """Let threads walk through the cells of a level; the blocks of that launch."""
        planes, rows = level.planes, level.rows
        slab.z0, slab.z1, slab.y0, slab.y1 = planes.start, planes.stop, rows.start, rows.stop
        slab.deep = DEEP
        return _blocks((slab.columns, len(rows), -(-len(planes) // DEEP)), BLOCK)

    def _launch_level(self, level: Level, slab: Any) -> None:
        """One stage of one level, and its sources and receivers."""
        grid = self._walk(level, slab)
        self._device.launch(f"outgrid_update_{level.stage}", grid, BLOCK, slab)
        if self._points:
            self._device.launch(f"outgrid_points_{level.stage}", (1, 1, 1), (1, 1, 1), slab)

    def _launch_levels(self, group: Sequence[Level], tile: ChipTile, slab: Any) -> None:
        """The levels of a group, and copies of what lies between this slab and others."""
        for number, level in enumerate(group, 1):
            slab.low[number], slab.high[number] = level.planes.start, level.planes.stop
        planes = len(group[-1].planes)
        copied = _blocks((slab.columns, slab.rows, 1), BLOCK)
        if slab.low[1] > 0:
            self._device.launch("outgrid_borders", copied, BLOCK, slab)
        x, y, _ = _blocks((slab.columns, slab.rows, 1), (*tile.stored, 1))
        if planes not in self._parts:
            self._parts[planes] = tile.parts(planes, x * y, self._device.processors)
        slab.deep = -(-planes // self._parts[planes])
        grid = (x, y, -(-planes // slab.deep))
        behind = slab.high[tile.levels] < slab.planes
        name = "outgrid_levels" if slab.low[1] > 0 or behind else "outgrid_levels_whole"
        self._device.launch(name, grid, tile.block, slab, tile.shared_bytes)
        slab.leaving = 1
        if behind:
            self._device.launch("outgrid_borders", copied, BLOCK, slab)

    def _look(self, level: Level, slab: Any) -> None:
        """Look for values that are not finite in a level that was made, where it is due."""
        if self._looks(level.trip, level.step):
            slab.t = level.step
            grid = self._walk(level, slab)
            self._device.launch(f"outgrid_watch_{level.stage}", grid, BLOCK, slab)

    def _looks(self, trip: Trip, step: int) -> bool:
        """Whether a level is looked at for values that are not finite."""
        watch = self._kernel.watch
        return watch is not None and 0 < watch.level(trip) <= step

    def _in_step(self, done: int) -> dict[str, int]:
        """Tables of sources and receivers in step ``done``."""
        points = self._kernel.points
        if points is None:
            return {}
        injections, receptions = len(points.injected), len(points.sampled)
        return {
            "injected": self._points["injected"],
            "amounts": self._points["amounts"] + 8 * injections * done,
            "sampled": self._points["sampled"],
            "samples": self._points["samples"] + 8 * receptions * done,
            "injections": injections,
            "receptions": receptions,
        }

    def settle(self) -> None:
        """Wait for all launches, and bring what receivers and the watch saw.

        Raises NotFinite where the watch says that the run has to end.
        """
        while self._marks:
            self._device.wait(self._marks.popleft())
        kernel = self._kernel
        if kernel.points is not None:
            self._tables.get(self._points["samples"], kernel.points.samples)
        if kernel.watch is not None:
            seen = np.empty(len(self._trips), np.int64)
            self._tables.get(self._broken, seen)
            for number in np.flatnonzero(seen != NOWHERE).tolist():
                kernel.watch.note(self._trips[number], int(seen[number]))

    def release(self) -> None:
        """Give the memory on the device back."""
        while self._marks:
            self._device.wait(self._marks.popleft())
        self._tables.release()
