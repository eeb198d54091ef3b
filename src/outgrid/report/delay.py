"""What a run took beside what its plan expected, in words, and what was measured of the reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from outgrid.lines import format_share
from outgrid.record import Measured, Record
from outgrid.units import format_rate, format_seconds

__all__ = ["compared", "reasons"]

SAME = 0.01
NEAR = 1.25  # times as long or as short: no more needs to be said
TOLD = 0.2  # a reason is told that accounts for such a share of the delay
LEAST_SECONDS = 0.5  # delays below that have a hundred reasons
FAULT_SECONDS = 1e-3  # assumed for a page that is read from a disk or swap; 0.1 to 10 ms


def compared(record: Record) -> str:
    """The time of a run against the prediction for its last part, with the reasons of a delay."""
    whole, last = record.measured.seconds, _last(record).seconds
    expected = record.predicted_seconds
    text = format_seconds(whole)
    if len(record.parts) > 1:
        text += f", the last {format_seconds(last)} after a resume"
    if last <= 0 or expected <= 0:
        return f"{text} (predicted {format_seconds(expected)})"
    ratio = last / expected
    if abs(ratio - 1) < SAME:
        return f"{text}, as predicted"
    if 1 / NEAR <= ratio <= NEAR:
        longer = f"{format_share(abs(ratio - 1))} {'longer' if ratio > 1 else 'shorter'} than"
        return f"{text}, {longer} predicted ({format_seconds(expected)})"
    if ratio < 1:
        return f"{text}, {1 / ratio:.2g} times as fast as predicted ({format_seconds(expected)})"
    text += f", {ratio:.2g} times as long as predicted ({format_seconds(expected)})"
    if last - expected < LEAST_SECONDS:
        return text
    return f"{text}: {'; '.join(reasons(record)) or 'no measurement explains it'}"


def reasons(record: Record) -> list[str]:
    """What held up the last part of a run, in words, what cost most first."""
    delay = _last(record).seconds - record.predicted_seconds
    costs = sorted(_costs(record), reverse=True)
    return [words for seconds, words in costs if seconds > TOLD * delay]


def _costs(record: Record) -> Iterator[tuple[float, str]]:
    """Seconds that something may have cost, and what it is."""
    measured, plan = _last(record), record.planned
    prediction, threads = plan["prediction"], max(1, plan["threads"])
    ran = measured.compute_processor_seconds / threads
    idle = max(0.0, measured.compute_seconds - ran)
    share = format_share(min(1.0, ran / measured.compute_seconds)) if ran else ""
    stolen = measured.stolen_seconds / max(1, record.machine.get("cores", threads))
    others = measured.queued_seconds / threads
    if others > stolen:
        told = f" (the threads ran {share} of the time)" if share else ""
        yield min(idle, others), f"other programs held the processors{told}"
    yield stolen, f"the host of this machine held its processors for {format_seconds(stolen)}"
    yield (
        measured.major_faults * FAULT_SECONDS,
        f"memory was short: {measured.major_faults} pages were read back from a disk or swap",
    )
    beyond = prediction["transfer_seconds"] - prediction["compute_seconds"]
    yield measured.wait_seconds - max(0.0, beyond), _disk(measured, plan)
    if ran:
        expected = prediction["compute_seconds"]
        rate = measured.updates / ran
        yield (
            ran - expected,
            f"the processors made {format_rate(rate)} where "
            f"{format_rate(prediction['updates_per_second'])} were expected",
        )


def _disk(measured: Measured, plan: dict[str, Any]) -> str:
    moved = (measured.read_bytes + measured.written_bytes) / measured.seconds
    words = f"it waited {format_seconds(measured.wait_seconds)} for transfers"
    seconds = plan["prediction"]["transfer_seconds"]
    if seconds <= 0:
        return words
    expected = (plan["read_bytes"] + plan["written_bytes"]) / seconds
    return f"{words}: {moved / 1e9:.2f} GB/s where {expected / 1e9:.2f} GB/s were expected"


def _last(record: Record) -> Measured:
    return record.parts[-1].measured if record.parts else record.measured
