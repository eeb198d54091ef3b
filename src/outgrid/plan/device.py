"""What a window in the memory of a device takes, there and in the memory of the process."""

from __future__ import annotations

from collections.abc import Iterable

from outgrid.errors import UsageError
from outgrid.machine import Accelerator
from outgrid.plan.layout import GUARD_BYTES, ITEM_BYTES, ring_start
from outgrid.plan.model import DeviceLevel, Layout
from outgrid.plan.schedule.rings import Ring
from outgrid.stencil.points import corners
from outgrid.stencil.problem import Problem

__all__ = ["check_offered", "device_level", "device_rate", "ring_tables_bytes", "tables_bytes"]

# Larger pieces of a transfer begin their second half of the way later, smaller ones are dearer to
# start; two of each way are under way at once.
PART_BYTES = 64 << 20
PARTS = 4
LEAST_PARTS = 2
SEEN_BYTES = 8
"""What a device notes of each trip: the first value there that is not finite. The process has it
twice while it is brought there."""


def check_offered(problem: Problem) -> None:
    """Raise UsageError for what kernels on a device do not do."""
    for what, given in (
        ("snapshots", problem.snapshots),
        ("reductions", problem.stencil.reductions),
    ):
        if given:
            raise UsageError(
                f"{what} are not supported on device gpu; leave them out, or use device cpu"
            )


def tables_bytes(problem: Problem) -> int:
    """Tables on a device, beside those of rings: parameters, profiles, sources and receivers.

    A source or receiver between cells has as many cells as it has neighbours.
    """
    cells = sum(
        len(list(corners(site.position))) for site in (*problem.sources, *problem.receivers)
    )
    rows = max(1, problem.steps)
    profiles = sum(problem.shape) * len(problem.stencil.profiles) * 3  # where axes close
    return 8 * (rows * (len(problem.parameters) + cells) + 4 * cells + profiles) + (1 << 16)


def ring_tables_bytes(rings: Iterable[Ring]) -> int:
    """Addresses of the slots of rings, twice, and what lies around each ring."""
    return sum(
        16 * ring.planes + ring_start(number) + GUARD_BYTES for number, ring in enumerate(rings)
    )


def device_rate(
    problem: Problem, accelerator: Accelerator, cells_per_plane: int, slab: int
) -> float:
    """Updates per second of one launch per stage and level, bound by the device's memory.

    Each level that is read comes once from there, each result goes there once.
    """
    stencil = problem.stencil
    item = {field.name: ITEM_BYTES[problem.dtype_of(field.name)] for field in stencil.fields}
    moved = sum(field.levels * item[field.name] for field in stencil.fields)
    moved += sum(item[field.name] for field in stencil.evolving)
    launches = len(stencil.stages) * accelerator.launch_seconds / (slab * cells_per_plane)
    return 1 / (moved / accelerator.memory_bandwidth + launches)


def device_level(
    accelerator: Accelerator,
    used_bytes: int,
    layout: Layout,
    slab: int,
    host_bytes: int,
) -> DeviceLevel | None:
    """The level of a plan whose window takes ``used_bytes`` on the device.

    Transfers pass in whole planes through at most ``host_bytes`` of the memory of the process; None
    where that is too little.
    """
    plane_bytes = layout.window_rows * layout.row_bytes
    most = min(PART_BYTES, slab * plane_bytes, host_bytes // PARTS)
    part_bytes = max(1, most // plane_bytes) * plane_bytes
    parts = min(PARTS, host_bytes // part_bytes)
    if parts < LEAST_PARTS:
        return None
    return DeviceLevel(accelerator.name, accelerator.memory_bytes, used_bytes, parts, part_bytes)
