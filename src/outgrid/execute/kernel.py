"""A compiled kernel as a call: the structure it takes, and the addresses that fill it."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outgrid.build.compiler import Library
from outgrid.errors import ExecutionError
from outgrid.execute.points import Points
from outgrid.execute.window import Window
from outgrid.native import Buffer
from outgrid.plan.layout import ITEM_BYTES
from outgrid.plan.model import Plan
from outgrid.plan.program import Advance

ORDERS = {"level": 0, "diamond": 1}


class _Slab(ctypes.Structure):
    """Mirror of the generated ``struct Slab``."""

    _fields_ = [
        ("rings", ctypes.c_void_p),
        ("parameters", ctypes.c_void_p),
        ("injected", ctypes.c_void_p),
        ("amounts", ctypes.c_void_p),
        ("sampled", ctypes.c_void_p),
        ("samples", ctypes.c_void_p),
        *(
            (name, ctypes.c_int64)
            for name in (
                "injections",
                "receptions",
                "planes",
                "rows",
                "columns",
                "row_stride",
                "first",
                "last",
                "depth",
                "base",
                "skew",
                "since",
                "plane_low",
                "plane_high",
                "plane_rise",
                "plane_fall",
                "row_low",
                "row_high",
                "row_rise",
                "row_fall",
                "row_offset",
                "order",
                "tile_rows",
                "tile_planes",
                "tile_columns",
                "threads",
                "pin",
            )
        ),
    ]


@dataclass(frozen=True, slots=True)
class Kernel:
    """Updates the planes of a window.

    ``parameters`` has one row per step of the run, as `Problem.parameter_table` gives it.
    """

    library: Library
    parameters: NDArray[np.float64]
    points: Points | None = None

    def advance(self, plan: Plan, window: Window, instruction: Advance) -> None:
        """Carry out one advance, all of its parts in order. Releases the interpreter lock."""
        stride = plan.layout.row_stride_bytes // ITEM_BYTES[plan.dtype]
        for part in instruction.parts:
            trip = part.trip
            done = sum(plan.depths[: trip.sweep])
            pointers = window.plane_tables(trip, part.first)
            slab = _Slab(
                rings=pointers.ctypes.data,
                parameters=self.parameters[done:].ctypes.data,
                planes=plan.planes,
                rows=plan.layout.rows,
                columns=plan.shape[-1],
                row_stride=stride,
                first=part.first,
                last=part.last,
                depth=part.steps.stop - 1,
                base=plan.base(trip.sweep),
                skew=plan.skew,
                since=part.since,
                plane_low=trip.planes.low,
                plane_high=trip.planes.high,
                plane_rise=trip.planes.rise,
                plane_fall=trip.planes.fall,
                row_low=trip.rows.low,
                row_high=trip.rows.high,
                row_rise=trip.rows.rise,
                row_fall=trip.rows.fall,
                row_offset=-stride * plan.row_origin(trip),
                order=ORDERS[plan.tile.order],
                tile_rows=plan.tile.rows,
                tile_planes=plan.tile.planes,
                tile_columns=plan.tile.columns,
                threads=plan.threads,
                pin=plan.pin,
                **self._points(done),
            )
            status = self.library.handle.outgrid_advance(ctypes.byref(slab))
            if status != 0:
                raise ExecutionError(
                    f"threads cannot be kept on processors ({os.strerror(status)}); run without "
                    f"pin: sweep {trip.sweep}, front positions {part.first}..{part.last}"
                )

    def touch(self, plan: Plan, buffer: Buffer) -> None:
        """Write to every page of ``buffer`` with the threads that will compute.

        Memory then lies near them, and comes as fast as all of them can take it.
        """
        sizes = (ctypes.c_int64(n) for n in (buffer.nbytes, plan.threads, plan.pin))
        status = self.library.handle.outgrid_touch(ctypes.c_void_p(buffer.address), *sizes)
        if status != 0:
            raise ExecutionError(
                f"threads cannot be kept on processors ({os.strerror(status)}); run without pin"
            )

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

    def repeat(self, plan: Plan, window: Window, steps: int, planes: range, rows: range) -> None:
        """Update ``rows`` of ``planes`` of a resident grid ``steps`` times, with one thread.

        All around them is only read and keeps its values, in every ring: a part of a grid, without
        the layer of fixed cells that a grid has. There are no more steps than rows of
        ``parameters``. Releases the interpreter lock.
        """
        pointers = window.plane_tables(plan.trips[0], 0)
        slab = _Slab(
            rings=pointers.ctypes.data,
            parameters=self.parameters.ctypes.data,
            planes=plan.planes,
            rows=plan.layout.rows,
            columns=plan.shape[-1],
            row_stride=plan.layout.row_stride_bytes // ITEM_BYTES[plan.dtype],
            first=planes.start,
            last=planes.stop,
            depth=steps,
            since=1,
            plane_high=plan.planes,
            row_low=rows.start,
            row_high=rows.stop,
            order=ORDERS["level"],
            tile_planes=plan.tile.planes,
            threads=1,
        )
        status = self.library.handle.outgrid_advance(ctypes.byref(slab))
        if status != 0:
            raise ExecutionError(f"the kernel failed with status {status} on planes {planes}")
