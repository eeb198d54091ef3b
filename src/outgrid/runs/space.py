"""Space on disk and in swap: whether it is there, and setting it aside before a run starts."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from outgrid.config import RunOptions
from outgrid.durable import existing, mount_of, partial_path
from outgrid.errors import InfeasiblePlan, StoreError, UsageError
from outgrid.formats.npy import HEADER_BYTES
from outgrid.machine import anonymous_bytes
from outgrid.plan.model import Plan
from outgrid.regular import resolved
from outgrid.runs.seals import level_name
from outgrid.runs.state import RunFolder
from outgrid.storage.sums import sums_path
from outgrid.tiers import TIERS
from outgrid.units import format_bytes

DEVICES = Path("/dev")


def check_space(
    chosen: Plan,
    folder: RunFolder,
    freed_bytes: Mapping[int, int] | None = None,
    *,
    fields_copied: bool = False,
    frames_copied: bool = False,
    beside_bytes: int = 0,
) -> None:
    """Raise InfeasiblePlan if the disks have not the space for the working files and results.

    ``freed_bytes`` are those that become free before the run begins, by device. ``fields_copied``
    and ``frames_copied`` say that all fields but the first, and snapshots, are copied into the one
    file of the results. ``beside_bytes`` are those of what the run leaves beside its fields and
    snapshots.

    Raises UsageError for a folder that would be among the devices, as a misspelled one would, and
    StoreError where nothing can be made, or a device is too small. Makes nothing.
    """
    _check_swap(chosen)
    files = 2 * len(chosen.schedule.departures) + sum(
        level.constant and level_name(level) not in chosen.uncopied
        for level in chosen.schedule.kept
    )
    wanted = [(folder.scratch, chosen.volume.disk_bytes + files * _sums_bytes(chosen))]
    if folder.spread is not None:
        results = _bytes_at_end(chosen)
        wanted = [(folder.scratch, results + files * _sums_bytes(chosen))]
        folder.spread.check_size(_largest_bytes(chosen))
        if not folder.spread.on_devices:
            wanted += folder.spread.needed_bytes(_largest_bytes(chosen)).items()
    if mount_of(folder.out) != mount_of(folder.scratch):
        wanted.append((folder.out, _bytes_at_end(chosen)))
    if fields_copied:
        others = [_result_bytes(chosen, level.field) for level in chosen.schedule.departures]
        wanted.append((folder.out, sum(others[1:])))
    frames = (1 + frames_copied) * chosen.volume.snapshot_bytes
    wanted.append((folder.out, frames + beside_bytes))
    on_device: dict[int, list[tuple[Path, int]]] = {}
    for path, nbytes in wanted:
        _check_apart(path)
        check_usable(path)
        on_device.setdefault(_device(path), []).append((path, nbytes))
    for device, parts in on_device.items():
        path, nbytes = parts[0][0], sum(part for _, part in parts)
        free = free_bytes(path) + (freed_bytes or {}).get(device, 0)
        if nbytes > free:
            raise InfeasiblePlan(
                f"{path} has {format_bytes(free)} of free space and the run needs "
                f"{format_bytes(nbytes)}; free {format_bytes(nbytes - free)} or name another "
                "folder with scratch"
            )


def check_parents(options: RunOptions) -> None:
    """Raise UsageError for a scratch folder that is to be made in one that does not exist either.

    Such a name is a slip, or a disk that is not mounted: what is written would fill another one.
    Folders above that of the results are made, and told with their disk.
    """
    for name, place in _to_make(options):
        if name == "out" or os.path.lexists(place.parent):
            continue
        there = existing(place)
        raise UsageError(
            f"{name} {place}: {place.parent} does not exist, and the folder would be made on "
            f"{_where(there)}; the nearest folder that exists is {there}: make {place.parent} or "
            "mount its disk, or name another folder"
        )


def folders_to_make(options: RunOptions) -> tuple[str, ...]:
    """The folders that a run is going to make, and on which disks, in words."""
    return tuple(
        f"{name} {place} is a new folder on {_where(place)}"
        for name, place in _to_make(options)
        if name == "out" or place.parent.is_dir()
    )


def _to_make(options: RunOptions) -> Iterator[tuple[str, Path]]:
    """The folders that were named and do not exist; those inside others need no word."""
    out = options.results.absolute()
    places = (place.absolute() for place in options.places)
    apart = (("scratch", place) for place in places if not place.is_relative_to(out))
    for name, place in (("out", out), *apart):
        if not os.path.lexists(place):
            yield name, place


def _where(folder: Path) -> str:
    """The disk that a folder is on, or is going to be, in words."""
    place = resolved(existing(folder))
    above = (place, *place.parents)
    mount = next((parent for parent in above if os.path.ismount(parent)), above[-1])
    what = _mounts().get(os.fspath(mount), "")
    return f"{mount}{what}, which has {format_bytes(free_bytes(place))} of free space"


def _mounts(table: Path = Path("/proc/self/mountinfo")) -> dict[str, str]:
    """What is mounted where, in words: " (/dev/sda1, ext4)"; what was mounted last is seen."""
    mounts: dict[str, str] = {}
    for line in table.read_text(errors="surrogateescape").splitlines():
        mount, _, source = line.partition(" - ")
        point = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), mount.split(" ")[4])
        kind, device, *_ = source.split(" ")
        mounts[point] = f" ({device}, {kind})"
    return mounts


def _check_apart(folder: Path) -> None:
    """Raise UsageError if ``folder`` is where devices are, which is memory and no disk."""
    place = resolved(existing(folder))
    if DEVICES in (place, *place.parents) and place.stat().st_dev == DEVICES.stat().st_dev:
        raise UsageError(
            f"{folder} is not a block device, and a folder there would be in memory; name an "
            "existing device, or a folder on a disk"
        )


def check_usable(folder: Path) -> None:
    """Raise StoreError where ``folder`` is none, cannot be made, or nothing can be made in it.

    Raises UsageError where its path is no UTF-8, which manifests and records are written in.
    """
    try:
        os.fspath(resolved(folder)).encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"the path {os.fsencode(resolved(folder))!r} is not UTF-8, as manifests and records "
            "need; name a folder with a path in UTF-8"
        ) from None
    place = existing(folder)
    parts = folder.absolute().relative_to(place).parts
    reason = 0
    if parts and os.path.lexists(place / parts[0]):  # a file, or a link that leads nowhere
        reason = errno.ENOTDIR
    elif not os.access(place, os.W_OK | os.X_OK):
        read_only = os.statvfs(place).f_flag & os.ST_RDONLY
        reason = errno.EROFS if read_only else errno.EACCES
    if reason:
        what = "cannot make the folder" if parts else "cannot create a file in the folder"
        raise StoreError(what, path=folder, errno=reason)


def free_bytes(folder: Path) -> int:
    """Bytes that may still be written where ``folder`` is, or is going to be."""
    status = os.statvfs(existing(folder))
    return status.f_bavail * status.f_frsize


def _check_swap(chosen: Plan) -> None:
    """Raise InfeasiblePlan if what is to be swapped out has no place to go."""
    if not TIERS[chosen.tier].swapped:
        return
    grid = chosen.memory.window_bytes
    if not chosen.schedule.resident:
        grid += chosen.working_bytes
    needed = grid + chosen.memory.transfer_bytes + chosen.memory.fixed_bytes
    memory, swap = anonymous_bytes()
    if needed > memory + swap:
        raise InfeasiblePlan(
            f"tier {chosen.tier} needs {format_bytes(needed)} of memory and swap; "
            f"{format_bytes(memory)} of memory and {format_bytes(swap)} of swap are free, "
            f"together {format_bytes(memory + swap)}: add "
            f"{format_bytes(needed - memory - swap)} of swap, or choose tier mmap or direct"
        )


def reserve_results(chosen: Plan, folder: RunFolder) -> None:
    """Set space aside for results that have to be copied to another file system in the end.

    Where they are renamed they need none. Raises StoreError where the disk has it no more.
    """
    if mount_of(folder.out) == mount_of(folder.scratch):
        return
    for level in (arrival for arrival in chosen.schedule.kept if not arrival.constant):
        result = folder.result(level)
        for place, nbytes in (
            (result, _result_bytes(chosen, level.field)),
            (sums_path(result), _sums_bytes(chosen)),
        ):
            path = partial_path(place)
            try:
                with path.open("xb") as file:
                    os.posix_fallocate(file.fileno(), 0, nbytes)
            except OSError as error:
                raise StoreError(
                    f"cannot reserve {format_bytes(nbytes)} for a result",
                    path=path,
                    errno=error.errno,
                ) from error


def _result_bytes(chosen: Plan, field: str) -> int:
    return HEADER_BYTES + len(chosen.schedule.stored.planes) * chosen.plane_bytes(field)


def _largest_bytes(chosen: Plan) -> int:
    """Bytes of the largest field: places set as much aside for each."""
    return chosen.schedule.planes * max(
        chosen.plane_bytes(arrival.field) for arrival in chosen.schedule.kept
    )


def _sums_bytes(chosen: Plan) -> int:
    return HEADER_BYTES + len(chosen.schedule.stored.planes) * len(chosen.schedule.stored.rows) * 8


def _bytes_at_end(chosen: Plan) -> int:
    results = (_result_bytes(chosen, departure.field) for departure in chosen.schedule.departures)
    return sum(results) + len(chosen.schedule.departures) * _sums_bytes(chosen)


def _device(path: Path) -> int:
    return existing(path).stat().st_dev
