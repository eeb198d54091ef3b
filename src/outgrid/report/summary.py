"""A record in a screenful: rate, bytes against the ideal, memory against the limit, prediction."""

from collections.abc import Iterator
from typing import Any

from outgrid.lines import align, format_count, format_share, format_signed_share
from outgrid.record import Record
from outgrid.units import format_bytes, format_rate, format_seconds

__all__ = ["summarise"]


def summarise(record: Record) -> str:
    """Text for `record`, one figure per line."""
    return align(_rows(record))


def _rows(record: Record) -> Iterator[tuple[str, str]]:
    measured = record.measured
    yield _heading(record.plan), ""
    yield "rate", _rate(record)
    yield "time", _time(record)
    yield (
        "waiting",
        f"{format_share(_share(measured.wait_seconds, measured.seconds))} for transfers",
    )
    yield "read", format_bytes(measured.read_bytes)
    yield "written", format_bytes(measured.written_bytes)
    yield "moved", f"{measured.io_over_ideal:.3f} of the ideal {format_bytes(measured.ideal_bytes)}"
    yield "fill", _fill(record)
    yield "memory", _memory(record)
    yield "engine", measured.engine
    for fallback in measured.fallbacks:
        yield "fallback", fallback
    if measured.buffered_bytes:
        yield "buffered", f"{format_bytes(measured.buffered_bytes)} through the page cache"
    for warning in record.warnings:
        yield "warning", warning
    for name, file in record.fields.items():
        yield "result", f"{name} in {file}"


def _heading(plan: dict[str, Any]) -> str:
    extents = " x ".join(str(extent) for extent in plan["shape"])
    steps, sweeps = format_count(sum(plan["depths"]), "step"), format_count(plan["sweeps"], "sweep")
    return (
        f"{plan['stencil']} on {extents} {plan['dtype']}, {steps}:"
        f" {plan['scheme']}, depth {plan['depth']}, {sweeps}"
    )


def _rate(record: Record) -> str:
    measured = record.measured
    return (
        f"{format_rate(measured.glups * 1e9)}, {measured.gflops:.3g} GFLOP/s"
        f" ({measured.updates:.3g} updates)"
    )


def _time(record: Record) -> str:
    return (
        f"{format_seconds(record.measured.seconds)}"
        f" (predicted {format_seconds(record.predicted_seconds)},"
        f" {format_signed_share(record.prediction_error)})"
    )


def _fill(record: Record) -> str:
    measured = record.measured
    return (
        f"{format_seconds(measured.fill_seconds)}: {format_bytes(measured.fill_read_bytes)} read,"
        f" {format_bytes(measured.fill_written_bytes)} written"
    )


def _memory(record: Record) -> str:
    measured = record.measured
    return (
        f"peak {format_bytes(measured.peak_memory_bytes)}"
        f" of {format_bytes(measured.memory_limit_bytes)}"
        f" ({format_share(measured.peak_memory_over_limit)})"
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
