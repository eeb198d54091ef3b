"""A window in the memory of a device, and the launches that update it."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from outgrid.codegen.slab import structure
from outgrid.device import Device, Rectangle
from outgrid.errors import ExecutionError
from outgrid.execute.profiles import NO_PROFILES, Profiles
from outgrid.execute.window import Rings, ring_bytes
from outgrid.native import Buffer
from outgrid.observe.points import Points
from outgrid.observe.watch import NOWHERE, Watch
from outgrid.plan.model import Plan
from outgrid.plan.program import Advance, levels
from outgrid.plan.schedule.rings import Ring
from outgrid.plan.schedule.trip import Trip
from outgrid.stencil.parameters import parameter_table
from outgrid.stencil.problem import Problem
from outgrid.storage import Store, Transfers
from outgrid.storage.staged import StagedStore, StagedTransfers

__all__ = ["DeviceKernel", "DeviceSite", "DeviceWindow", "Launches"]

Key = TypeVar("Key", bound=Hashable)

BLOCK = (64, 4, 1)  # threads along columns and rows: whole lines of memory, and some reuse of rows
DEEP = 16  # planes that a thread walks through: more are fewer threads, fewer read neighbours anew
OF_POINTS = ("injected", "amounts", "sampled", "samples")


class Tables:
    """Arrays that lie on a device for as long as a run takes."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._addresses: list[int] = []

    def put(self, values: NDArray[np.generic]) -> int:
        """Copy ``values`` to the device; where they lie there."""
        values = np.ascontiguousarray(values)
        address = self._device.allocate(max(1, values.nbytes))
        self._addresses.append(address)
        if values.nbytes:
            source = values.copy()  # a device may spoil what it copies from
            self._device.wait(self._device.upload([_line(address, source)], ()))
        return address

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


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """What updates are made with on a device, whose kernels are loaded there.

    ``parameters`` has one row per step of the run, as `Problem.parameter_table` gives it. There are
    no reductions and no snapshots.
    """

    device: Device
    parameters: NDArray[np.float64]
    points: Points | None = None
    profiles: Profiles = NO_PROFILES
    watch: Watch | None = None
    reductions: None = None
    snapshots: None = None

    @classmethod
    def of(cls, device: Device, problem: Problem) -> DeviceKernel:
        """With the numbers of a problem."""
        points = Points.of(problem) if problem.sources or problem.receivers else None
        return cls(device, parameter_table(problem), points, Profiles.of(problem))

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
        self._launches: Launches | None = None

    def reach(self, stores: Mapping[Key, Store]) -> Mapping[Key, Store]:
        """The stores through host memory."""
        copied: dict[Key, Store] = {}
        for key, store in stores.items():
            copied[key] = StagedStore(store, self.transfers)
        return copied

    def updates(self, plan: Plan, kernel: DeviceKernel) -> Launches:
        """The launches of ``kernel``; those of the one before it have ended."""
        if self._launches is not None:
            self._launches.release()
        self._launches = Launches(plan, kernel)
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
        self.release()


class Launches:
    """Updates the planes of a window by launches, which a device carries out in their order.

    An advance returns when the one ``ahead`` before it is done: slabs are computed while the next
    ones are prepared, and what is timed is the device's work.
    """

    def __init__(self, plan: Plan, kernel: DeviceKernel, ahead: int = 1) -> None:
        self._kernel, self._device, self._trips = kernel, kernel.device, plan.schedule.trips
        self._tables = Tables(self._device)
        self._ahead = ahead
        self._marks: deque[Hashable] = deque()
        self._row_bytes = 8 * kernel.parameters.shape[1]
        try:
            self._parameters = self._tables.put(kernel.parameters.astype(np.float64))
            lying = [self._tables.put(values) for values in kernel.profiles.values]
            self._profiles = self._tables.put(np.array(lying, np.int64))
            self._points = self._put_points()
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
        stride = plan.columns
        fronts = {part.trip: part.first for part in instruction.parts}
        for trip, step, stage, planes, rows in levels(plan, instruction):
            done, passage = trip.done + step - 1, plan.schedule.passage(trip)
            tables = window.plane_tables(trip, fronts[trip], range(step, step + 1)).tolist()
            slab = structure("cuda/slab.hpp", kRings=len(tables))(
                rings=(ctypes.c_void_p * len(tables))(*tables),
                parameters=self._parameters + done * self._row_bytes,
                profiles=self._profiles,
                broken=self._broken + 8 * trip.index if self._broken else 0,
                planes=passage.extents[0],
                rows=plan.layout.rows,
                columns=plan.schedule.shape[-1],
                row_stride=stride,
                base=passage.base,
                t=step,
                ring_step=0,
                z0=planes.start,
                z1=planes.stop,
                y0=rows.start,
                y1=rows.stop,
                row_offset=-stride * passage.row_origin,
                deep=DEEP,
                period=passage.periods[0],
                **self._in_step(done),
            )
            extents = (plan.schedule.shape[-1], len(rows), -(-len(planes) // DEEP))
            x, y, z = (-(-n // size) for n, size in zip(extents, BLOCK, strict=True))
            self._device.launch(f"outgrid_update_{stage}", (x, y, z), BLOCK, slab)
            if self._points:
                self._device.launch(f"outgrid_points_{stage}", (1, 1, 1), (1, 1, 1), slab)
            if self._looks(trip, step):
                self._device.launch(f"outgrid_watch_{stage}", (x, y, z), BLOCK, slab)
        self._marks.append(self._device.mark())
        while len(self._marks) > self._ahead:
            self._device.wait(self._marks.popleft())

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
