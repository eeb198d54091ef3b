"""Effective rate as the grid grows: both of its states from half of memory to many times of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outgrid_bench.experiments.beyond import BLOCKED, OURS, BeyondRow, Runs, Task, agree
from outgrid_bench.experiments.figure import look
from outgrid_bench.experiments.methods import PASSES, grid_of, how
from outgrid_bench.experiments.outcome import Experiment, Finding, Outcome, Settings, Timed, judged

__all__ = ["SCALING"]

# One state over the limit: the paper counts both, so that its 16 times are 8 here.
FACTORS = {
    "tiny": (0.25, 2.0),
    "quick": (0.25, 0.5, 1.0, 2.0),
    "full": (0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
}
BASE_FACTOR = 0.25  # where the blocked run on swap has both states and its blocks in memory
BASE_SHARE = 0.45  # of the limit, for blocks and program there; the paper has smaller blocks too
SWAP_FACTOR, LARGE_FACTOR = 0.5, 8.0


def measure(settings: Settings) -> Outcome:
    """Every method at every factor, with the same depth and blocks."""
    timed = Timed("scaling", settings)
    runs = Runs(settings, timed)
    most = settings.factor or FACTORS[settings.size][-1]
    factors = (*(factor for factor in FACTORS[settings.size] if factor < most), most)
    largest = grid_of(settings, factors[-1])
    blocks = largest.blocks(settings.by_size(4, 256, 256))
    small = largest.blocks(settings.by_size(4, 256, 256), BASE_SHARE)
    steps = settings.steps or PASSES * int(blocks["depth"])
    plain = runs.in_memory(largest, min(steps, 16))
    methods = BLOCKED if settings.size != "tiny" else BLOCKED[1:]
    order = (*OURS, *reversed(methods))  # those that take longest come last
    rows = runs.measure(
        [
            Task(
                grid_of(settings, factor),
                method,
                steps,
                small if factor == BASE_FACTOR else blocks,
                plain,
            )
            for factor in factors
            for method in order
        ]
    )
    timed.notes += how(settings, largest, blocks, FACTORS["full"][-1])
    return timed.outcome(
        rows,
        _findings(rows),
        reference=f"plain in memory {plain:.2f} GLUP/s, {runs.reference}",
        agrees=agree(rows),
        details={"in_memory": {"plain": plain}},
    )


def _findings(rows: Sequence[BeyondRow]) -> list[Finding]:
    """Beside the blocked run on swap where all of it is in memory, as the paper has it."""

    def rate(method: str, factor: float) -> float | None:
        return next((r.glups for r in rows if (r.method, r.factor) == (method, factor)), None)

    def over(above: float | None, below: float | None) -> float | None:
        return None if above is None or below is None else above / below

    swap, mapped, direct = (method.name for method in BLOCKED)
    base = rate(swap, BASE_FACTOR)
    kept = {
        name: over(rate(name, LARGE_FACTOR), rate(name, BASE_FACTOR))
        for name in (swap, mapped, direct)
    }
    others = [share for name, share in kept.items() if share is not None and name != direct]
    return [
        judged("fig12.direct", over(rate(direct, LARGE_FACTOR), base)),
        judged("fig12.swap", over(rate(swap, SWAP_FACTOR), base)),
        judged("fig12.least", over(kept[direct], max(others, default=None))),
        judged("fig12.constant", over(rate(direct, BASE_FACTOR), base)),
    ]


def draw(outcome: Outcome, figure: Any) -> None:
    """One line per method."""
    axes = figure.subplots()
    for number, method in enumerate(dict.fromkeys(row["method"] for row in outcome.rows)):
        mine = [row for row in outcome.rows if row["method"] == method]
        axes.plot(
            [2 * row["factor"] for row in mine],
            [row["over_memory"] for row in mine],
            linestyle="-" if method.startswith("skewed") else "--",
            label=method,
            **look(number),
        )
    axes.axhline(1, color="0.4", linewidth=1, linestyle=":", label="plain in memory")
    axes.set_xscale("log", base=2)
    factors = sorted({2 * row["factor"] for row in outcome.rows})
    axes.set_xticks(factors, [f"{factor:g}" for factor in factors])
    axes.set_xlabel("both states over memory limit")
    axes.set_ylabel("needed updates per second over plain in memory")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()


SCALING = Experiment(
    "scaling",
    "effective rate of grids whose states take half to 16 times the memory, by method",
    measure,
    draw,
)
