"""Where the time of each rank went, as stacked bars. matplotlib is imported when they are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from outgrid.errors import UsageError
from outgrid.record import Measured, RankPart
from outgrid.report.picture import new_axes, save_figure

__all__ = ["ACTIVITIES", "draw_ranks", "rank_seconds"]

ACTIVITIES = ("compute", "get", "put", "exchange", "agree")
# What they are called in the picture, and their colours: what is waited for stands out.
SHOWN = {
    "compute": ("computing", "#4c78a8"),
    "get": ("waiting for reads", "#f2cf5b"),
    "put": ("waiting for writes", "#f58518"),
    "exchange": ("waiting for planes of others", "#e45756"),
    "agree": ("waiting for all to be durable", "#b279a2"),
    "other": ("other", "#d0d0d0"),
}
INCHES_PER_RANK = 0.35
MOST_TOLD = 32  # ranks with a share in their bar


def rank_seconds(measured: Measured) -> dict[str, float]:
    """Seconds of one rank by activity: updating, and waiting for each of the others; the rest of
    its time, if any, is ``other``."""
    seconds = {name: float(getattr(measured, f"{name}_seconds")) for name in ACTIVITIES}
    return seconds | {"other": max(0.0, measured.seconds - sum(seconds.values()))}


def draw_ranks(ranks: Sequence[RankPart], picture: Path) -> None:
    """Draw a bar for each rank into the PNG file ``picture``. Raises UsageError without ranks."""
    if not ranks:
        raise UsageError("a run of one process has no ranks to draw; start it with mpiexec")
    every = [rank_seconds(part.measured) for part in ranks]
    width = min(20.0, 6.5 + INCHES_PER_RANK * len(ranks))
    figure, (axes,) = new_axes((width, 5))
    base = [0.0] * len(ranks)
    for name in every[0]:
        heights = [seconds[name] for seconds in every]
        label, colour = SHOWN[name]
        axes.bar(range(len(ranks)), heights, bottom=base, label=label, color=colour)
        base = [low + height for low, height in zip(base, heights, strict=True)]
    if len(ranks) <= MOST_TOLD:
        for at, (seconds, whole) in enumerate(zip(every, base, strict=True)):
            told = f"{seconds['compute'] / whole:.0%}" if whole else ""
            axes.text(at, seconds["compute"] / 2, told, ha="center", va="center", color="white")
    step = -(-len(ranks) // 32)
    shown = ranks[::step]
    axes.set_xticks(range(0, len(ranks), step), [str(part.rank) for part in shown])
    axes.set_xlabel("rank")
    axes.set_ylabel("seconds of the sweeps")
    axes.margins(x=0.02)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=3, fontsize="small", frameon=False)
    save_figure(figure, picture)
