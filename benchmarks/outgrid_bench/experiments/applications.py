"""Two applications beyond memory: masks over an image, and Himeno's pressure solver.

Both in the way of everybody, a plain sweep in place over mapped files or over memory that is
swapped, beside what outgrid does; on one core and on all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from outgrid.machine import describe_machine
from outgrid_bench import himeno, mask
from outgrid_bench.experiments.beyond import (
    OURS,
    PLAIN,
    BeyondRow,
    Grid,
    Kind,
    Runs,
    Task,
    agree,
    kind_of,
)
from outgrid_bench.experiments.figure import spoken
from outgrid_bench.experiments.outcome import (
    Experiment,
    Outcome,
    Settings,
    Timed,
    judged,
)
from outgrid_bench.workloads import noise

__all__ = ["HIMENO", "MASK"]

MASKS = tuple(
    kind_of(name, f"{mask.__file__}:{name}", stencil.trace(2), "float64", {"u": noise(2)})
    for name, stencil in (("mask3", mask.mask3), ("mask15", mask.mask15))
)
PRESSURE = kind_of(
    "himeno", f"{Path(himeno.__file__)}:himeno", himeno.himeno.trace(3), "float32", himeno.INITIAL
)
MASK_STEPS = 2
# The limit where time is short: what a process takes, and as much for data. Of Himeno's 14 arrays
# the system could not keep in it what it reads around a page of each.
QUICK_MASK_BYTES = 160 << 20
MASK_FACTOR, HIMENO_FACTOR = 2.0, 3.4  # memory holds 50 % and 29 %


def _grid(settings: Settings, kind: Kind, factor: float) -> Grid:
    side = settings.by_size(256, 8192, 65536) if kind.stencil.ndim == 2 else 0
    edge = settings.by_size(32, 256, 1024)
    plane = (side,) if side else (edge, edge)
    limit = settings.limit_bytes
    if settings.size == "quick" and not settings.memory and kind in MASKS:
        limit = QUICK_MASK_BYTES
    return Grid(limit, factor / settings.by_size(100, 1, 1), plane, kind)


def _measure(
    settings: Settings, bench: str, kinds: Sequence[Kind], factor: float, steps: int
) -> tuple[Timed, list[BeyondRow], str, dict[str, Any]]:
    timed = Timed(bench, settings)
    runs = Runs(settings, timed)
    cores = describe_machine().cores
    tasks: list[Task] = []
    rates: dict[str, float] = {}
    for kind in kinds:
        grid = _grid(settings, kind, settings.factor or factor)
        for threads in dict.fromkeys((1, cores)):
            plain = runs.in_memory(grid, steps, threads=threads)
            rates[f"{kind.name} {threads}"] = plain
            methods = [replace(one, threads=threads) for one in (*PLAIN, *OURS)]
            if settings.size == "tiny":
                methods = methods[1::2]
            tasks += [Task(grid, method, steps, {}, plain) for method in methods]
    reference = f"plain sweeps in memory with as many threads, {runs.reference}"
    return timed, runs.measure(tasks), reference, {"in_memory": rates}


def _slower(rows: Sequence[BeyondRow], method: str, stencil: str) -> dict[int, float]:
    """Times slower than in memory, by threads."""
    return {
        row.threads: 1 / row.over_memory
        for row in rows
        if (row.method, row.stencil) == (method, stencil)
    }


def _ratio(over: float | None, under: float | None) -> float | None:
    return None if over is None or under is None else over / under


def measure_mask(settings: Settings) -> Outcome:
    """Masks of 3 x 3 and 15 x 15, two steps, memory for half of the image."""
    timed, rows, reference, details = _measure(
        settings,
        "mask",
        MASKS[: settings.by_size(1, 2, 2)],  # the large one takes long to compile
        MASK_FACTOR,
        MASK_STEPS,
    )
    cores = describe_machine().cores

    def slower(stencil: str, tier: str, threads: int) -> float | None:
        return _slower(rows, f"plain on {tier}", stencil).get(threads)

    def busy(stencil: str) -> float | None:
        wanted = (stencil, "plain on mmap", cores)
        return next((r.busy for r in rows if (r.stencil, r.method, r.threads) == wanted), None)

    both = [slower("mask3", tier, cores) for tier in ("mmap", "swap")]
    swapped = slower("mask3", "swap", cores)
    return timed.outcome(
        rows,
        [
            judged("mask15.cores", slower("mask15", "mmap", cores)),
            judged("mask3.cores", max((one for one in both if one is not None), default=None)),
            judged("mask15.one", slower("mask15", "mmap", 1)),
            judged("mask3.one", slower("mask3", "mmap", 1)),
            judged("mask3.swap", slower("mask3", "swap", 1)),
            judged("mask15.busy", busy("mask15")),
            judged("mask3.busy", busy("mask3")),
            judged("mask.mapped", _ratio(swapped, slower("mask3", "mmap", cores))),
            judged(
                "mask.suffers",
                _ratio(slower("mask3", "mmap", cores), slower("mask3", "mmap", 1)),
            ),
        ],
        reference=reference,
        agrees=agree(rows),
        details=details,
    )


def measure_himeno(settings: Settings) -> Outcome:
    """14 arrays of which memory holds 29 %."""
    timed, rows, reference, details = _measure(
        settings, "himeno", (PRESSURE,), HIMENO_FACTOR, settings.by_size(4, 2, 4)
    )
    cores = describe_machine().cores
    mapped, swapped = (_slower(rows, f"plain on {tier}", "himeno") for tier in ("mmap", "swap"))
    return timed.outcome(
        rows,
        [
            judged("himeno.mapped", _ratio(swapped.get(cores), mapped.get(cores))),
            judged("himeno.suffers", _ratio(mapped.get(cores), mapped.get(1))),
            judged("himeno.ours", _slower(rows, "skewed on direct", "himeno").get(cores)),
        ],
        reference=reference,
        agrees=agree(rows),
        notes=[f"MFLOPS are updates per second times {himeno.FLOPS}"],
        details=details,
    )


def draw(outcome: Outcome, figure: Any) -> None:
    """Time over that in memory, by method and number of threads."""
    stencils = list(dict.fromkeys(row["stencil"] for row in outcome.rows))
    panels = figure.subplots(1, len(stencils), squeeze=False)[0]
    for axes, stencil in zip(panels, stencils, strict=True):
        rows = [row for row in outcome.rows if row["stencil"] == stencil]
        threads = sorted({row["threads"] for row in rows})
        methods = list(dict.fromkeys(row["method"] for row in rows))
        for number, count in enumerate(threads):
            mine = {row["method"]: row for row in rows if row["threads"] == count}
            shown = [method for method in methods if method in mine]
            times = [1 / mine[method]["over_memory"] for method in shown]
            bars = axes.bar(
                [methods.index(method) + 0.4 * number for method in shown],
                [time - 1 for time in times],
                0.4,
                bottom=1,
                label=f"threads: {count}",
            )
            axes.bar_label(bars, [spoken(time, 2) for time in times], fontsize="x-small")
        axes.set_xticks(
            [index + 0.2 for index in range(len(methods))],
            [method.replace(" on ", "\n") for method in methods],
            fontsize="small",
        )
        axes.axhline(1, color="0.4", linewidth=1)
        axes.set_yscale("log")
        axes.margins(y=0.12)
        axes.set_ylabel("time over plain in memory, as many threads")
        axes.set_title(stencil)
        axes.legend(fontsize="small")


MASK = Experiment(
    "mask", "masks of 3 x 3 and 15 x 15 over an image beyond memory", measure_mask, draw
)
HIMENO = Experiment(
    "himeno", "Himeno's benchmark, 14 arrays of which memory holds 29 %", measure_himeno, draw
)
