"""Size of a block against depth: a deeper block moves less and repeats more.

In memory blocks of the second level go through the caches; out of core blocks of the first level go
between disk and memory, with the same grid on files. Rates count needed updates only. The reference
in the same run are plain sweeps in memory, and our skewed sweeps out of core.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outgrid import Problem, pipeline
from outgrid.config import RunOptions
from outgrid.errors import InfeasiblePlan
from outgrid.machine import describe_machine
from outgrid.units import format_bytes, format_seconds
from outgrid_bench.experiments.figure import look
from outgrid_bench.experiments.outcome import Experiment, Finding, Outcome, Settings, Timed
from outgrid_bench.measure import in_memory, update_rate
from outgrid_bench.workloads import noise

__all__ = ["BLOCKING"]

PAPER = "temporal blocking on flash"
SLOW = 5  # times as long as the fastest of a map: no candidate, and not worth an hour
LEAST_SECONDS = 5.0  # which any combination may take


@dataclass(frozen=True, slots=True)
class BlockingRow:
    """One combination. ``block`` is the edge of a block in z and y, ``inner`` that of the second
    level (0: none; with more steps than one in z alone), ``inner_depth`` its steps at once;
    ``series`` names the map. A combination that does not fit the limit, or is planned to take
    ``expected_seconds``, far more than the fastest of its map, has no rate."""

    series: str
    scheme: str
    block: int
    depth: int
    inner: int
    inner_depth: int
    threads: int
    seconds: float | None
    glups: float | None
    over_memory: float | None
    read_bytes: int | None
    checksum: str
    expected_seconds: float | None = None


def measure(settings: Settings) -> Outcome:
    """Maps of block and depth in memory and out of core; levels against threads."""
    timed = Timed("blocking", settings)
    bench = _Bench(settings)
    cores = describe_machine().cores
    blocks = {"tiny": (8, 16), "quick": (32, 64, 128), "full": (32, 64, 128, 256, 512)}
    depths = {"tiny": (2, 4), "quick": (4, 8, 16, 32), "full": (4, 8, 16, 32, 64, 128)}
    inner = {"tiny": (8,), "quick": (16, 32, 64), "full": (16, 32, 64, 128)}
    at_once = {"tiny": (1, 2), "quick": (1, 2, 4, 8), "full": (1, 2, 4, 8, 16)}
    usual = bench.usual(blocks[settings.size])
    rows: list[BlockingRow] = []
    for block in reversed(blocks[settings.size]):  # the fastest come early
        for depth in depths[settings.size]:
            rows.append(bench.overlapped("out of core", block, depth, None, 1, cores))
    rows.append(bench.skewed(max(depths[settings.size]), cores))
    for edge in inner[settings.size]:
        for steps in at_once[settings.size]:
            rows.append(bench.overlapped("in memory", *usual, edge, steps, cores))
    threads = sorted({1, *range(2, cores, max(1, cores // 4)), cores})
    for count in threads:
        rows.append(bench.overlapped("levels", *usual, None, 1, count))
        rows.append(bench.overlapped("levels", *usual, inner[settings.size][0] * 2, 1, count))
    checksums = {row.checksum for row in rows if row.checksum}
    return timed.outcome(
        rows,
        _findings(rows),
        reference=f"plain in memory {bench.plain:.2f} GLUP/s",
        agrees=len(checksums) <= 1,
        notes=[*bench.notes.values()],
        details={"plain": bench.plain, "shape": list(bench.problem.shape)},
    )


class _Bench:
    """One grid, run in many ways."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.notes: dict[str, str] = {}  # the first by each reason
        self.folder = settings.folders[0]
        steps = settings.by_size(4, 32, 128)
        self.memory = settings.by_size(256 << 20, 512 << 20, settings.memory_bytes)
        beyond = round(self.memory ** (1 / 3)) // 64 * 64  # 8 times the memory, of 8 bytes a cell
        edge = settings.by_size(32, 256, max(64, beyond))
        self.fastest: dict[str, float] = {}
        self.problem = Problem(
            "heat7", (edge, edge, edge), "float64", steps, {"k": 0.1}, "frozen", {"u": noise(3)}
        )
        settings.say("in memory")
        small = self.problem.shape if settings.size == "tiny" else (256, 256, 256)
        reference = Problem(
            "heat7", small, "float64", min(8, steps), {"k": 0.1}, "frozen", {"u": noise(3)}
        )
        place = self._place()
        try:
            self.plain = update_rate(in_memory(reference, "plain", place)[0])
        finally:
            shutil.rmtree(place)

    def usual(self, blocks: Sequence[int]) -> tuple[int, int]:
        """The largest block that fits, and an eighth of its edge as the depth."""
        for block in reversed(blocks):
            depth = max(2, block // 8)
            given = {"depth": depth, "block": self._block(block)}
            try:
                pipeline.plan(self.problem, self._options("overlapped", given))
            except InfeasiblePlan:
                continue
            return block, depth
        raise InfeasiblePlan(
            f"not even blocks of {blocks[0]} cells fit {format_bytes(self.memory)}; "
            "a larger --memory fits some"
        )

    def _options(self, scheme: str, given: dict[str, Any], out: Path | None = None) -> RunOptions:
        return RunOptions.of(memory=self.memory, out=out, tier="direct", scheme=scheme, **given)

    def overlapped(
        self,
        series: str,
        block: int,
        depth: int,
        inner: int | None,
        inner_depth: int,
        threads: int,
    ) -> BlockingRow:
        """Blocks of ``block`` cells in z and y, as long as the grid in x."""
        given: dict[str, Any] = {"depth": depth, "block": self._block(block)}
        if inner is not None:
            given |= {"inner": self._block(inner), "inner_depth": inner_depth}
        elif series == "levels":
            given["inner"] = self._block(block + 2 * depth)  # the whole block: one level
        return self._run(
            series, "overlapped", given, block, depth, inner or 0, inner_depth, threads
        )

    def skewed(self, depth: int, threads: int) -> BlockingRow:
        """Our scheme on the same grid and limit, as the planner has it."""
        return self._run("out of core", "skewed", {}, 0, depth, 0, 1, threads)

    def _block(self, edge: int) -> list[int]:
        planes, rows, columns = self.problem.shape
        return [min(edge, planes - 2), min(edge, rows - 2), columns - 2]

    def _place(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="outgrid-bench-", dir=self.folder))

    def _run(
        self,
        series: str,
        scheme: str,
        given: dict[str, Any],
        block: int,
        depth: int,
        inner: int,
        inner_depth: int,
        threads: int,
    ) -> BlockingRow:
        second = f"inner {inner}, {inner_depth} at once" if inner else "one level"
        self.settings.say(f"{series}: {scheme}, block {block}, depth {depth}, {second}")
        place = self._place()
        options = self._options(scheme, {"threads": threads} | given, place / "run")

        def row(
            seconds: float | None = None,
            glups: float | None = None,
            read: int | None = None,
            checksum: str = "",
            expected: float | None = None,
        ) -> BlockingRow:
            over = None if glups is None else glups / self.plain
            return BlockingRow(
                series,
                scheme,
                block,
                depth,
                inner,
                inner_depth,
                threads,
                seconds,
                glups,
                over,
                read,
                checksum,
                expected,
            )

        try:
            expected = pipeline.plan(self.problem, options).prediction.seconds
            fastest = self.fastest.get(series)
            if fastest is not None and expected > max(LEAST_SECONDS, SLOW * fastest):
                self.notes.setdefault(
                    "slow",
                    f"left out: what is planned to take {SLOW} times as long as the fastest, "
                    f"{format_seconds(expected)} and more",
                )
                return row(expected=expected)
            record = pipeline.run(self.problem, options).record
        except InfeasiblePlan as refusal:
            self.notes.setdefault("large", f"not everything fits: {refusal}")
            return row()
        finally:
            shutil.rmtree(place)
        measured = record.measured
        self.fastest[series] = min(measured.seconds, self.fastest.get(series, measured.seconds))
        sums = " ".join(record.checksums.values())
        return row(measured.seconds, measured.glups, measured.read_bytes, sums)


def _findings(rows: Sequence[BlockingRow]) -> list[Finding]:
    findings: list[Finding] = []
    outer = _fastest([row for row in rows if row.series == "out of core" and row.block])
    if outer is not None:
        findings.append(
            Finding(
                f"{PAPER}, figure 9",
                "out of core the best are the largest block that fits and depth 128, an eighth of "
                "its edge",
                "1024 cubed, depth 128, in 32 GiB",
                f"{outer.block} squared, depth {outer.depth}",
                outer.block == max(row.block for row in rows if row.glups and row.block),
            )
        )
    inner = _fastest([row for row in rows if row.series == "in memory"])
    level = [row for row in rows if row.series == "in memory" and row.glups]
    spatial = _fastest([row for row in level if row.inner_depth == 1])
    if inner is not None and spatial is not None:
        gain = (inner.glups or 0) / (spatial.glups or 1)
        findings.append(
            Finding(
                f"{PAPER}, figure 8",
                "between cache and memory blocks of 32 to 64 cells with 4 to 8 steps are best",
                "32-64 cubed, depth 4-8",
                f"{_second_level(inner)}, depth {inner.inner_depth}",
                32 <= inner.inner <= 64 and 4 <= inner.inner_depth <= 8,
            )
        )
        findings.append(
            Finding(
                f"{PAPER}, second level",
                "temporal blocking of the second level is not worth its overhead",
                "tried and left out",
                f"{gain:.2f} times the rate of spatial blocks alone",
                gain < 1.05,
            )
        )
    levels = [row for row in rows if row.series == "levels" and row.glups]
    gains = {
        row.threads: (row.glups or 0) / (other.glups or 1)
        for row in levels
        for other in levels
        if row.inner and not other.inner and row.threads == other.threads
    }
    if len(gains) > 1:
        findings.append(
            Finding(
                f"{PAPER}, figure 10",
                "two levels gain more over one the more threads there are",
                "gain grows from 1 to 8 threads",
                ", ".join(f"threads {count}: {gain:.2f}" for count, gain in gains.items()),
                gains[max(gains)] > gains[min(gains)],
            )
        )
    ours = [row for row in rows if row.scheme == "skewed"]
    if outer is not None and ours and ours[0].glups and outer.glups:
        findings.append(
            Finding(
                f"{PAPER}, future work",
                "computing nothing twice should pay: skewed over the best block",
                "named as future work",
                f"{ours[0].glups / outer.glups:.2f} times as fast",
                ours[0].glups > outer.glups,
            )
        )
    return findings


def _second_level(row: BlockingRow) -> str:
    """Planes and rows of its blocks: of diamonds, two rows for each step of a radius of 1."""
    if row.inner_depth == 1:
        return f"{row.inner} squared"
    return f"{row.inner} planes and {2 * row.inner_depth} rows"


def _fastest(rows: Sequence[BlockingRow]) -> BlockingRow | None:
    return max((row for row in rows if row.glups), key=lambda row: row.glups or 0.0, default=None)


def draw(outcome: Outcome, figure: Any) -> None:
    """Two maps, and the levels by threads."""
    panels = figure.subplots(1, 3)
    outer = [row for row in outcome.rows if row["series"] == "out of core" and row["block"]]
    _draw_map(panels[0], outer, "block", "depth")
    panels[0].set_title("out of core: blocks of the first level", fontsize="small")
    inner = [row for row in outcome.rows if row["series"] == "in memory"]
    _draw_map(panels[1], inner, "inner", "inner_depth")
    panels[1].set_xlabel("edge of a block in z, and in y for one step")
    panels[1].set_title("in memory: blocks of the second level", fontsize="small")
    levels = [row for row in outcome.rows if row["series"] == "levels" and row["glups"]]
    for number, (name, two) in enumerate((("one level", False), ("two levels", True))):
        mine = [row for row in levels if bool(row["inner"]) == two]
        panels[2].plot(
            [row["threads"] for row in mine],
            [row["glups"] for row in mine],
            label=name,
            **look(number),
        )
    panels[2].set_xlabel("threads")
    panels[2].set_ylabel("needed GLUP/s")
    panels[2].set_ylim(bottom=0)
    panels[2].set_xticks(sorted({row["threads"] for row in levels}))
    panels[2].legend()
    panels[2].set_title("levels", fontsize="small")


def _draw_map(axes: Any, rows: Sequence[dict[str, Any]], edge: str, depth: str) -> None:
    edges = sorted({row[edge] for row in rows})
    depths = sorted({row[depth] for row in rows})
    values = [[float("nan")] * len(edges) for _ in depths]
    slow = set[tuple[int, int]]()
    for row in rows:
        y, x = depths.index(row[depth]), edges.index(row[edge])
        if row["glups"] is not None:
            values[y][x] = row["glups"]
        elif row.get("expected_seconds"):
            slow.add((y, x))
    image = axes.imshow(values, origin="lower", aspect="auto", cmap="viridis")
    known = [value for line in values for value in line if value == value]
    middle = (min(known) + max(known)) / 2 if known else 0
    for y, line in enumerate(values):
        for x, value in enumerate(line):
            lacking = "too\nslow" if (y, x) in slow else "does not\nfit"
            text = f"{value:.2f}" if value == value else lacking
            colour = "black" if value != value or value > middle else "white"
            axes.text(x, y, text, ha="center", va="center", color=colour, fontsize="small")
    axes.set_xticks(range(len(edges)), [str(value) for value in edges])
    axes.set_yticks(range(len(depths)), [str(value) for value in depths])
    axes.set_xlabel("edge of a block in z and y")
    axes.set_ylabel("steps at once")
    axes.figure.colorbar(image, ax=axes, label="needed GLUP/s", shrink=0.7)


BLOCKING = Experiment(
    "blocking", "size of blocks against depth, in memory and out of core", measure, draw
)
