"""What would make a run faster, from what was measured of it."""

from __future__ import annotations

from collections.abc import Iterator

from outgrid.lines import format_count, format_share
from outgrid.record import Record
from outgrid.report.delay import reasons
from outgrid.units import BLOCK_BYTES, format_bytes

__all__ = ["advice", "over_plain"]

WAITING = 0.1  # a share of the time that is worth a remedy
LEAST_SECONDS = 0.5  # of waiting, in runs long enough to be made faster
BUFFERED = 0.01  # a share of the bytes; the ends of files that are no whole blocks are less


def over_plain(record: Record) -> float | None:
    """How many times as fast a run was as one step per sweep would be at the planned bandwidth.

    Only the transfers of such sweeps are counted: on the disk, or for a grid in memory between
    memory and processors. None where nothing was measured or the bandwidth is unknown.
    """
    measured, plan = record.measured, record.planned
    if measured.seconds <= 0 or not plan["sweeps"] or not record.steps:
        return None
    if plan["depth"] == 1:
        return 1.0
    if plan["resident"]:
        passes, bandwidth = 1, float(record.machine.get("memory_bandwidth", 0))
    else:
        passes, seconds = plan["sweeps"], plan["prediction"]["transfer_seconds"]
        moved = plan["read_bytes"] + plan["written_bytes"]
        bandwidth = moved / seconds if seconds > 0 else 0.0
    if not bandwidth:
        return None
    seconds = measured.ideal_bytes / passes * record.steps / bandwidth
    return seconds / measured.seconds


def advice(record: Record) -> list[str]:
    """Remedies in sentences, what costs most first; none where nothing stands out."""
    return [*dict.fromkeys(_advice(record))]


def _advice(record: Record) -> Iterator[str]:
    measured, plan, machine = record.measured, record.planned, record.machine
    waiting = measured.wait_seconds / measured.seconds if measured.seconds > 0 else 0.0
    slow = waiting > WAITING and measured.wait_seconds > LEAST_SECONDS
    if slow and not plan["resident"]:
        told = f"The run waited for transfers for {format_share(waiting)} of its time."
        if plan["sweeps"] > 1:
            told += (
                f" With a larger memory limit than {format_bytes(measured.memory_limit_bytes)} a "
                f"sweep makes more than {format_count(plan['depth'], 'step')} and moves fewer bytes"
                " per step."
            )
        yield f"{told} More disks add their bandwidths: name several folders in scratch."
    for reason in reasons(record):
        yield f"The run took longer than planned: {reason}."
    if not machine.get("measured", True):
        yield (
            "The plan assumed the speed of the disk and of memory. Run outgrid probe with "
            "--scratch once, and plans use measured values."
        )
    # Several ranks may share the cores of a host.
    if not record.ranks and 0 < plan["threads"] < machine.get("cores", 0):
        yield (
            f"{format_count(plan['threads'], 'thread')} computed on "
            f"{format_count(machine['cores'], 'core')}; threads sets their number."
        )
    if plan["layout"]["staged"] and not plan["resident"]:
        yield (
            f"Planes pass through a staging buffer, because rows of "
            f"{format_bytes(plan['layout']['row_bytes'])} do not end on blocks of the disk. A last "
            f"axis whose rows are a multiple of {format_bytes(BLOCK_BYTES)} avoids that copy."
        )
    for fallback in measured.fallbacks:
        yield f"A slower path was taken: {fallback}."
    moved = measured.read_bytes + measured.written_bytes
    if measured.buffered_bytes > BUFFERED * moved:
        yield (
            f"{format_bytes(measured.buffered_bytes)} went through the page cache. A file system "
            "with direct I/O for scratch avoids that."
        )
    if waiting <= WAITING and plan["dtype"] == "float64":
        yield (
            "The processors bound the run. Where single precision is enough, dtype float32 halves "
            "the bytes and doubles the cells per instruction; it changes the result."
        )
