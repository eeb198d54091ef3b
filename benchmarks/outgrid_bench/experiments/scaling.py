"""Effective rate over that in memory, as the grid grows from half of memory to many times of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outgrid_bench.experiments.beyond import BLOCKED, OURS, BeyondRow, Runs, Task, agree
from outgrid_bench.experiments.figure import look
from outgrid_bench.experiments.methods import grid_of, how, passes
from outgrid_bench.experiments.outcome import Experiment, Finding, Outcome, Settings, Timed

__all__ = ["SCALING"]

FACTORS = {
    "tiny": (0.5, 2.0),
    "quick": (0.5, 1.0, 2.0, 4.0),
    "full": (0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
}
PAPER = "temporal blocking on flash, figure 12"


def measure(settings: Settings) -> Outcome:
    """Every method at every factor, with the same depth and blocks."""
    timed = Timed("scaling", settings)
    notes: list[str] = []
    runs = Runs(settings, timed, notes)
    most = settings.factor or FACTORS[settings.size][-1]
    factors = (*(factor for factor in FACTORS[settings.size] if factor < most), most)
    largest = grid_of(settings, factors[-1])
    blocks = largest.blocks(settings.by_size(4, 256, 256))
    steps = settings.steps or passes(settings) * int(blocks["depth"])
    settings.say("in memory")
    plain = runs.in_memory(largest, min(steps, 16))
    methods = BLOCKED if settings.size != "tiny" else BLOCKED[1:]
    order = (*OURS, *reversed(methods))  # those that take longest come last
    rows = runs.measure(
        [
            Task(grid_of(settings, factor), method, steps, blocks, plain)
            for factor in factors
            for method in order
        ]
    )
    notes += how(settings, largest, blocks, FACTORS["full"][-1])
    return timed.outcome(
        rows,
        _findings(rows),
        reference=f"plain in memory {plain:.2f} GLUP/s, {runs.reference}",
        agrees=agree(rows),
        notes=notes,
        details={"in_memory": {"plain": plain}},
    )


def _findings(rows: Sequence[BeyondRow]) -> list[Finding]:
    largest = max(row.factor for row in rows)

    def share(method: str, factor: float) -> float | None:
        for row in rows:
            if (row.method, row.factor) == (method, factor):
                return row.over_memory
        return None

    findings: list[Finding] = []
    direct = share("overlapped on direct", largest)
    if direct is not None:
        findings.append(
            Finding(
                PAPER,
                "at 16 times the memory the blocked method keeps 40 to 65 % of the rate in memory",
                "40-65 % at 16 times",
                f"{direct:.0%} at {largest:g} times",
                direct >= 0.4,
            )
        )
    drop = share("overlapped on swap", 1.0)
    if drop is not None:
        findings.append(
            Finding(
                PAPER,
                "swap drops as soon as the grid is as large as memory",
                "0.52 of the rate in memory",
                f"{drop:.2f}",
                drop <= 0.6,
            )
        )
    names = list(dict.fromkeys(row.method for row in rows))
    factors = sorted({row.factor for row in rows})
    common = [
        factor for factor in factors if all(share(name, factor) is not None for name in names)
    ]
    if len(common) > 1:
        losses = {
            name: (share(name, common[-1]) or 0.0) / (share(name, common[0]) or 1.0)
            for name in names
        }
        least = max(losses, key=lambda name: losses[name])
        kept = ", ".join(f"{name} keeps {loss:.0%}" for name, loss in losses.items())
        findings.append(
            Finding(
                PAPER,
                "direct transfers lose least as the grid grows",
                "aio degrades least",
                f"from {common[0]:g} to {common[-1]:g} times the memory {kept}",
                "direct" in least,
            )
        )
    return findings


def draw(outcome: Outcome, figure: Any) -> None:
    """One line per method."""
    axes = figure.subplots()
    for number, method in enumerate(dict.fromkeys(row["method"] for row in outcome.rows)):
        mine = [row for row in outcome.rows if row["method"] == method]
        axes.plot(
            [row["factor"] for row in mine],
            [row["over_memory"] for row in mine],
            linestyle="-" if method.startswith("skewed") else "--",
            label=method,
            **look(number),
        )
    axes.axhline(1, color="0.4", linewidth=1, linestyle=":", label="plain in memory")
    axes.set_xscale("log", base=2)
    factors = sorted({row["factor"] for row in outcome.rows})
    axes.set_xticks(factors, [f"{factor:g}" for factor in factors])
    axes.set_xlabel("grid over memory limit")
    axes.set_ylabel("needed updates per second over plain in memory")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()


SCALING = Experiment(
    "scaling",
    "effective rate over that in memory for grids of half to 16 times the memory, by method",
    measure,
    draw,
)
