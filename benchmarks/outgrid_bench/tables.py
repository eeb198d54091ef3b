"""The figures as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outgrid.lines import format_share
from outgrid_bench.peers.compare import PeerRow
from outgrid_bench.rows import Row
from outgrid_bench.tune import CHOICE_BAR, PREDICTION_BAR

__all__ = ["columns", "peer_table", "row_table", "tune_table"]

HEADINGS = (
    "stencil",
    "dtype",
    "mode",
    "factor",
    "GLUP/s",
    "GFLOP/s",
    "over plain",
    "over best",
    "over tiled",
    "over resident",
    "over ceiling",
    "over peak",
    "waiting",
    "bytes/ideal",
    "answer",
)


def row_table(rows: Sequence[Row]) -> str:
    """One line per row, in columns."""
    return columns([HEADINGS, *(_cells(row) for row in rows)])


def tune_table(rows: Sequence[dict[str, Any]]) -> str:
    """Two lines per problem: the planner's choice, and the best that was found."""
    heading = ("problem", "", "GLUP/s", "choice/best", "predicted/measured", "settings")
    lines: list[tuple[str, ...]] = []
    for row in rows:
        over, predicted = row["choice_over_best"], row["predicted_over_measured"]
        lines += [
            (
                row["problem"],
                "choice",
                _number(row["choice_glups"]),
                f"{over:.2f}{'' if over >= CHOICE_BAR else ' below'}",
                f"{predicted:.2f}{'' if abs(predicted - 1) <= PREDICTION_BAR else ' off'}",
                row["choice"],
            ),
            ("", "best", _number(row["best_glups"]), "", "", row["best"]),
        ]
    bars = (
        f"bars: choice/best {CHOICE_BAR:g}, predicted/measured within {PREDICTION_BAR:.0%}; "
        "medians of rounds in changing order"
    )
    return f"{columns([heading, *lines])}\n{bars}"


def peer_table(rows: Sequence[PeerRow]) -> str:
    """One line per program, with what it says of itself or why it has no rate."""
    heading = ("program", "mode", "GLUP/s", "ours over it", "answer", "")
    lines = [
        (
            row.peer,
            row.mode,
            _number(row.glups, 3),
            _number(row.ours_over),
            "" if row.agrees is None else "agrees" if row.agrees else "DIFFERS",
            row.note,
        )
        for row in rows
    ]
    return columns([heading, *lines])


def columns(lines: Sequence[Sequence[str]]) -> str:
    """Texts in columns as wide as their widest text; the first line is the heading."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _cells(row: Row) -> tuple[str, ...]:
    if row.gigabytes_per_second is not None:
        rate = f"{row.gigabytes_per_second:.1f} GB/s"
        return (row.stencil, row.dtype, row.mode, "", rate, *[""] * 10)
    if row.mode == "peak":
        return (row.stencil, row.dtype, row.mode, "", "", _number(row.gflops, 1), *[""] * 9)
    return (
        row.stencil,
        row.dtype,
        f"{row.mode} along {row.axis}" if row.axis else row.mode,
        f"{row.factor:g}" if row.factor else "",
        _number(row.glups),
        _number(row.gflops, 1),
        _number(row.over_plain),
        _number(row.over_best),
        _number(row.over_tiled),
        _number(row.over_resident),
        _number(row.over_ceiling),
        _number(row.over_peak),
        "" if row.wait_share is None else format_share(row.wait_share),
        _number(row.io_over_ideal, 3),
        _answer(row),
    )


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _answer(row: Row) -> str:
    if row.identical is not None:
        return "identical" if row.identical else "DIFFERS"
    return "" if row.difference is None else f"within {row.difference:.0e}"
