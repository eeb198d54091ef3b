"""What a window in the memory of a device takes, there and in the memory of the process."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from outgrid.errors import UsageError
from outgrid.machine import Accelerator, Machine
from outgrid.plan.layout import GUARD_BYTES, ITEM_BYTES, ring_start
from outgrid.plan.model import DeviceLevel, Layout
from outgrid.plan.onchip import ChipTile
from outgrid.plan.schedule.rings import Ring
from outgrid.stencil.points import corners
from outgrid.stencil.problem import Problem

__all__ = [
    "between_bytes",
    "check_offered",
    "device_level",
    "device_rate",
    "host_copies",
    "ring_tables_bytes",
    "tables_bytes",
]

# Larger pieces of a transfer begin their second half of the way later, smaller ones are dearer to
# start; two of each way are under way at once.
PART_BYTES = 64 << 20
PARTS = 4
LEAST_PARTS = 2
PLAIN_SHARE = 0.85  # of the bandwidth of copies that a level by itself attains; see gpu.md
CHIP_GAIN = 1.9  # of levels that are made together, over one level after the other
LAUNCHES = 3  # of levels that are made together, with those that copy what lies between slabs
LEAST_PLANES = 8  # that several levels in one launch pay for
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


def between_bytes(tile: ChipTile, layout: Layout) -> int:
    """What lies between two slabs of which a launch makes several levels, on one side."""
    return tile.between_planes * layout.window_rows * layout.row_stride_bytes


def device_rate(
    problem: Problem,
    accelerator: Accelerator,
    cells_per_plane: int,
    depth: int,
    slab: int,
    tile: ChipTile | None,
) -> float:
    """Updates per second in slabs of sweeps of ``depth`` steps, bound by the device's memory.

    Each level that is read comes once from there, each result goes there once; of levels that a
    ``tile`` makes together only the first and the last. Launches are started meanwhile.
    """
    stencil = problem.stencil
    item = {field.name: ITEM_BYTES[problem.dtype_of(field.name)] for field in stencil.fields}
    moved = sum(field.levels * item[field.name] for field in stencil.fields)
    moved += sum(item[field.name] for field in stencil.evolving)
    seconds = moved / (PLAIN_SHARE * accelerator.memory_bandwidth)
    launches: float = len(stencil.stages)
    if tile is not None and slab >= LEAST_PLANES and depth >= tile.levels:
        alone = depth % tile.levels
        together = depth - alone
        filled = 1 + tile.levels * tile.lag / slab
        seconds *= (together * filled / CHIP_GAIN + alone) / depth
        launches *= (LAUNCHES * together / tile.levels + alone) / depth
    return 1 / max(seconds, launches * accelerator.launch_seconds / (slab * cells_per_plane))


def host_copies(machine: Machine) -> Machine:
    """The machine where fields lie in memory: a transfer is a copy from there or to there.

    A byte of one is read, written, and read or written by the device.
    """
    rate = machine.memory_bandwidth / 3
    return replace(
        machine,
        read_bandwidth=rate,
        write_bandwidth=rate,
        mixed_bandwidth=rate,
        flushing_seconds=0.0,
    )


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
