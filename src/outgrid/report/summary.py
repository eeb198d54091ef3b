"""A record in a screenful: rate, bytes against the ideal, memory against the limit, prediction."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from outgrid.errors import Error, UsageError
from outgrid.lines import (
    align,
    format_count,
    format_share,
    format_wear,
    format_work,
)
from outgrid.record import Record
from outgrid.report.delay import compared
from outgrid.stencil.snapshot import snapshots_by_file
from outgrid.tiers import SWAPPED_TIERS
from outgrid.units import format_bytes, format_rate, format_seconds

__all__ = ["heading", "summarise", "summary_rows", "telling"]


@contextmanager
def telling(run: Path) -> Generator[None]:
    """Tell of the record of ``run``. Raises UsageError where its tables are none of this version.

    A record keeps the problem, the plan and the machine as they were written: as plain tables.
    """
    try:
        yield
    except Error:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise UsageError(
            f"the record of {run} does not hold a problem, a plan and a machine as this version "
            f"writes them: {type(error).__name__}: {error}"
        ) from error


def summarise(record: Record) -> str:
    """Text for `record`, one figure per line."""
    return align([(heading(record), ""), *summary_rows(record)])


def summary_rows(record: Record) -> Iterator[tuple[str, str]]:
    """Names of figures and what they are."""
    measured = record.measured
    if record.ended:
        yield "ended", record.ended
    yield "rate", _rate(record)
    if measured.still_updates:
        share = _share(measured.still_updates, measured.updates)
        yield "still", f"{format_share(share)} of the updates left out, of planes that stay +0"
    yield "time", compared(record)
    yield (
        "waiting",
        f"{format_share(_share(measured.wait_seconds, measured.seconds))} for transfers",
    )
    if measured.checksum_seconds:
        cores = max(1, record.planned["threads"])
        share = _share(measured.checksum_seconds, measured.seconds * cores)
        copies = ", including copies" if record.planned["layout"]["staged"] else ""
        yield (
            "checksums",
            f"{format_share(share)} of the time of {format_count(cores, 'processor')}{copies}",
        )
    if measured.packed_bytes:
        cores = max(1, record.planned["threads"])
        share = _share(measured.unpack_seconds, measured.seconds * cores)
        yield (
            "packed",
            f"{', '.join(record.planned['packed'])} in {format_bytes(measured.packed_bytes)}, in "
            f"{format_seconds(measured.packing_seconds)}; {format_share(share)} of the time of "
            f"{format_count(cores, 'processor')} for unpacking",
        )
    yield "read", format_bytes(measured.read_bytes)
    yield "written", format_bytes(measured.written_bytes)
    yield "moved", f"{measured.io_over_ideal:.3f} of the ideal {format_bytes(measured.ideal_bytes)}"
    yield "fill", _fill(record)
    yield "flash", _flash(record)
    yield "memory", _memory(record)
    yield "engine", measured.engine
    if measured.device:
        yield "device", _device(record)
    if record.spread:
        yield "places", record.spread
    for fallback in measured.fallbacks:
        yield "fallback", fallback
    if measured.buffered_bytes:
        yield "buffered", f"{format_bytes(measured.buffered_bytes)} through the page cache"
    for warning in record.warnings:
        yield "warning", warning
    for name, file in record.files.items():
        yield "result", f"{name} in {file}"
    for file, snapshot in snapshots_by_file(record.problem.get("snapshots", ())).items():
        yield "snapshots", f"{snapshot['field']} in {record.frames_file(Path(file).stem)}"


def heading(record: Record) -> str:
    """What was computed, and by which scheme; the plan of a resumed run is for its last steps."""
    plan, parts, last = record.planned, record.parts, ""
    steps = sum(plan["depths"])
    if len(parts) > 1:
        steps = record.steps
        last = f" for the last {format_count(steps - parts[-1].first_step, 'step')}"
    work, sweeps = format_work(plan, steps), format_count(plan["sweeps"], "sweep")
    return f"{work}: {plan['scheme']}, depth {plan['depth']}, {sweeps}{last}"


def _rate(record: Record) -> str:
    measured = record.measured
    return (
        f"{format_rate(measured.glups * 1e9)}, {measured.gflops:.3g} GFLOP/s"
        f" ({measured.updates:.3g} updates)"
    )


def _fill(record: Record) -> str:
    measured = record.measured
    return (
        f"{format_seconds(measured.fill_seconds)}: {format_bytes(measured.fill_read_bytes)} read,"
        f" {format_bytes(measured.fill_written_bytes)} written"
    )


def _flash(record: Record) -> str:
    nbytes = record.flash_written_bytes
    swapped = record.planned.get("tier") in SWAPPED_TIERS
    in_place = swapped and record.planned.get("resident")
    most = ", without what was swapped out" if in_place else " at most" if swapped else ""
    endurance = record.planned.get("endurance_bytes", 0)
    return f"{format_bytes(nbytes)} written{most}{format_wear(nbytes, endurance)}"


def _memory(record: Record) -> str:
    measured = record.measured
    return (
        f"peak {format_bytes(measured.peak_memory_bytes)}"
        f" of {format_bytes(measured.memory_limit_bytes)}"
        f" ({format_share(measured.peak_memory_over_limit)})"
    )


def _device(record: Record) -> str:
    measured = record.measured
    return (
        f"{measured.device}: {format_bytes(measured.uploaded_bytes)} copied to it,"
        f" {format_bytes(measured.downloaded_bytes)} from it"
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
