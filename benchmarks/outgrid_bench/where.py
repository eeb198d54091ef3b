"""Where the time of an update beyond memory goes, from rates that were measured beside each other.

Counters of a processor are not to be had on most virtual machines, so the parts are differences of
measured times: each row of the chain from the peak of the cores to the run out of core leaves out
one thing less. They add up to the measured time. A part below 0 says that the rate of which it is
the difference was taken in a worse minute, or that a larger grid has better tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import mean

from outgrid_bench.rows import Row

__all__ = ["HEADING", "Parts", "parts", "where_lines"]

HEADING = (
    "stencil",
    "ns per update",
    "operations at the peak",
    "loads, cuts, first and second level",
    "third level and memory",
    "longer planes",
    "borders, checksums, copies",
    "waiting",
)


@dataclass(frozen=True, slots=True)
class Parts:
    """Nanoseconds of an update out of core, by all threads together, and what they are spent on.

    ``operations``: as many as the stencil has, at the rate of multiply-adds of all cores. ``near``:
    what the fastest ceiling in cache takes beside them. ``far``: what tiles in memory take beside
    that. ``planes``: what they take on planes as large as those out of core. ``border``: what the
    run takes beside these without ``waiting`` for transfers.
    """

    total: float
    operations: float
    near: float
    far: float
    planes: float
    border: float
    waiting: float


def parts(rows: Sequence[Row], peak_gflops: float) -> Parts | None:
    """The parts of the rows of one stencil and type, of its largest grid out of core.

    None where a rate is missing.
    """
    rates = {row.mode: row for row in rows if row.glups}
    ceilings = [row for mode, row in rates.items() if mode.startswith("ceiling")]
    streamed = max(
        (row for row in rows if row.mode == "outofcore" and row.glups),
        key=lambda row: row.factor,
        default=None,
    )
    if streamed is None or not ceilings or "tiled" not in rates:
        return None
    fastest = max(ceilings, key=_rate)
    near = 1 / _rate(fastest)
    operations = (fastest.gflops or 0) * near / peak_gflops
    tiled = 1 / mean(streamed.tiled_beside) if streamed.tiled_beside else 1 / _rate(rates["tiled"])
    resident = 1 / mean(streamed.resident_beside) if streamed.resident_beside else tiled
    total = 1 / _rate(streamed)
    waiting = (streamed.wait_share or 0) * total
    return Parts(
        total,
        operations,
        near - operations,
        tiled - near,
        resident - tiled,
        total - resident - waiting,
        waiting,
    )


def where_lines(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """One line for each stencil that has all rates: nanoseconds, and the share of each part."""
    peaks = {row.dtype: row.gflops for row in rows if row.mode == "peak"}
    measured = [row for row in rows if row.steps or row.mode.startswith("ceiling")]
    measured.sort(key=lambda row: (row.stencil, row.dtype))
    lines: list[tuple[str, ...]] = []
    for (stencil, dtype), own in groupby(measured, key=lambda row: (row.stencil, row.dtype)):
        peak = peaks.get(dtype)
        found = parts([*own], peak) if peak else None
        if found is None:
            continue
        shares = (found.operations, found.near, found.far, found.planes, found.border)
        texts = (f"{part / found.total:.0%}" for part in (*shares, found.waiting))
        lines.append((f"{stencil} {dtype}", f"{found.total:.3f}", *texts))
    return lines


def _rate(row: Row) -> float:
    assert row.glups
    return row.glups
