"""Size of a block against depth: a deeper block moves less and repeats more.

In memory cubes go through the caches, by a loop in C as the paper has it: no disk is near them. Out
of core blocks of the first level go between disk and memory, with a grid of which memory holds half
of both states. Rates count needed updates only. The reference in the same run are plain sweeps in
memory, and our skewed sweeps out of core.
"""

from __future__ import annotations

import math
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from outgrid import Problem, pipeline
from outgrid.config import RunOptions
from outgrid.errors import InfeasiblePlan
from outgrid.machine import describe_machine
from outgrid.units import format_bytes, format_seconds
from outgrid_bench.cubes import Blocking, Cubes, repeated
from outgrid_bench.experiments.figure import look
from outgrid_bench.experiments.outcome import Experiment, Finding, Outcome, Settings, Timed, judged
from outgrid_bench.measure import in_memory, update_rate
from outgrid_bench.workloads import noise

__all__ = ["BLOCKING"]

SLOW = 5  # times as long as the fastest of a map: no candidate, and not worth an hour
LEAST_SECONDS = 5.0  # which any combination may take
TILE = 32  # edge of blocks of space, as the paper has it
MOST_REPEATED = 8
ROUNDS = 3
FULL_BYTES, FULL_EDGE = 768 << 20, 512  # two blocks of 256 with a depth of 32 fit, with 64 not


@dataclass(frozen=True, slots=True)
class BlockingRow:
    """One combination. ``block`` is the edge of a block in z and y (in memory in x as well),
    ``inner`` that of the second level (0: none; with more steps than one in z alone),
    ``inner_depth`` its steps at once; ``series`` names the map, ``repeated`` is what is computed
    over what is needed, where that is counted; ``agrees`` whether a cube has the answer of plain
    sweeps. A combination that does not fit the limit, or is
    planned to take ``expected_seconds``, far more than the fastest of its map, has no rate."""

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
    repeated: float | None = None
    agrees: bool = True


def measure(settings: Settings) -> Outcome:
    """Maps of block and depth in memory and out of core; levels against threads."""
    timed = Timed("blocking", settings)
    bench = _Bench(settings, timed)
    cores = describe_machine().cores
    blocks = {"tiny": (8, 16), "quick": (32, 64, 128), "full": (32, 64, 128, 256)}[settings.size]
    depths = {"tiny": (2, 4), "quick": (8, 16, 32), "full": (4, 8, 16, 32, 64)}[settings.size]
    inner = {"tiny": (8,), "quick": (16, 32), "full": (16, 32, 64, 128)}[settings.size]
    at_once = {"tiny": (1, 2), "quick": (1, 4), "full": (1, 2, 4, 8, 16)}[settings.size]
    cubes = _Cubes(settings, timed)
    rows = list(cubes.rows(cores))
    usual = bench.usual(blocks)
    for block in reversed(blocks):  # the fastest come early
        for depth in depths:
            rows.append(bench.overlapped("out of core", block, depth, None, 1, cores))
    rows.append(bench.skewed(max(depths), cores))
    for edge in inner:
        for steps in at_once:
            rows.append(bench.overlapped("second level", *usual, edge, steps, cores))
    checksums = {row.checksum for row in rows if row.checksum and row.scheme != "cubes"}
    return timed.outcome(
        rows,
        _findings(rows),
        reference=f"plain in memory {bench.plain:.2f} GLUP/s",
        agrees=len(checksums) <= 1 and all(row.agrees for row in rows),
        details={
            "plain": bench.plain,
            "shape": list(bench.problem.shape),
            "shape in memory": list(cubes.cubes.shape),
        },
    )


class _Cubes:
    """Cubes between memory and caches, and two levels of blocks in memory: no run of outgrid."""

    def __init__(self, settings: Settings, timed: Timed) -> None:
        self.settings, self.timed = settings, timed
        edge = settings.by_size(34, 258, 514)
        self.steps = settings.by_size(4, 16, 32)
        self.tile = settings.by_size(8, TILE, TILE)
        self.cubes = Cubes((edge, edge, edge))
        self._answers: dict[int, int] = {}

    def rows(self, cores: int) -> Iterator[BlockingRow]:
        """Blocks of space alone, cubes of each edge and depth, then levels by threads."""
        size = self.settings.size
        edges = {"tiny": (8, 16), "quick": (32, 64, 128), "full": (32, 64, 128, 256, 512)}[size]
        depths = {"tiny": (1, 4), "quick": (1, 4, 8, 16)}.get(size, tuple(2**n for n in range(9)))
        yield self._row("space alone", Blocking(self.tile, 0), cores)
        for edge in edges:
            for depth in depths:
                yield self._row("in memory", Blocking(edge, depth), cores)
        block = (self.cubes.shape[0] - 2) // 2
        depth = max(2, block // 8)
        for threads in sorted({1, *range(2, cores, max(1, cores // 4)), cores}):
            for tile in (block + 2 * depth, self.tile):
                blocking = Blocking(block, depth, tile)
                yield self._row("levels", blocking, threads)

    def _row(self, series: str, blocking: Blocking, threads: int) -> BlockingRow:
        depth, tile = blocking.depth, blocking.tile
        edge = blocking.edge
        second = tile if tile is not None and tile < edge else 0
        over = repeated(self.cubes.shape, blocking) if depth else 1.0
        empty = BlockingRow(
            *(series, "cubes", edge, depth, second, 1, threads, None, None, None, None, ""),
            repeated=over,
        )
        if over > MOST_REPEATED:
            self.timed.note(
                f"in memory left out: cubes that compute more than {MOST_REPEATED} times as much"
            )
            return empty
        name = f"{series}: cubes of {edge}, depth {depth}, tiles of {tile}, threads {threads}"
        return self.timed.piece(name, BlockingRow, lambda: self._measured(name, empty, blocking))

    def _measured(self, name: str, empty: BlockingRow, blocking: Blocking) -> BlockingRow:
        depth, threads = blocking.depth, empty.threads
        self.settings.say(name)
        steps = max(depth, self.steps)
        steps += -steps % max(1, depth)
        results = [self.cubes.run(blocking, steps, threads) for _ in range(ROUNDS)]
        seconds = statistics.median(result[0] for result in results)
        cells = math.prod(extent - 2 for extent in self.cubes.shape)
        answers = {result[1] for result in results} | {self._answer(steps, threads)}
        return replace(
            empty,
            seconds=seconds,
            glups=steps * cells / seconds / 1e9,
            over_memory=None,
            checksum=str(results[0][1]),
            agrees=len(answers) == 1,
        )

    def _answer(self, steps: int, threads: int) -> int:
        """What plain sweeps leave."""
        if steps not in self._answers:
            plain = Blocking(self.tile, 0)
            self._answers[steps] = self.cubes.run(plain, steps, threads)[1]
        return self._answers[steps]


class _Bench:
    """One grid, run in many ways."""

    def __init__(self, settings: Settings, timed: Timed) -> None:
        self.settings, self.timed = settings, timed
        self.folder = settings.folders[0]
        steps = settings.by_size(4, 32, 64)
        self.memory = settings.by_size(256 << 20, 208 << 20, settings.memory or FULL_BYTES)
        scaled = FULL_EDGE * (self.memory / FULL_BYTES) ** (1 / 3)
        edge = settings.by_size(32, 256, max(64, round(scaled) // 64 * 64))
        self.fastest: dict[str, float] = {}
        self.problem = Problem(
            "heat7", (edge, edge, edge), "float64", steps, {"k": 0.1}, "frozen", {"u": noise(3)}
        )
        small = self.problem.shape if settings.size == "tiny" else (256, 256, 256)
        reference = Problem(
            "heat7", small, "float64", min(8, steps), {"k": 0.1}, "frozen", {"u": noise(3)}
        )
        self.plain = timed.piece("plain in memory", float, lambda: self._plain(reference))

    def _plain(self, reference: Problem) -> float:
        self.settings.say("in memory")
        place = self._place()
        try:
            return update_rate(in_memory(reference, "plain", place)[0])
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
        name = f"{series}: {scheme}, block {block}, depth {depth}, {second}, threads {threads}"
        empty = BlockingRow(
            *(series, scheme, block, depth, inner, inner_depth, threads),
            *(None, None, None, None, ""),
        )
        settings = {"threads": threads} | given
        row, seconds = self.timed.piece(
            name,
            tuple[BlockingRow, float | None],
            lambda: self._made(name, empty, settings),
        )
        if seconds is not None:
            self.fastest[series] = min(seconds, self.fastest.get(series, seconds))
        return row

    def _made(
        self, name: str, empty: BlockingRow, given: dict[str, Any]
    ) -> tuple[BlockingRow, float | None]:
        """A row, and how long its run took, with the disk."""
        series = empty.series
        self.settings.say(name)
        place = self._place()
        try:
            options = self._options(empty.scheme, given, place / "run")
            expected = pipeline.plan(self.problem, options).prediction.seconds
            fastest = self.fastest.get(series)
            if fastest is not None and expected > max(LEAST_SECONDS, SLOW * fastest):
                self._note(
                    f"left out: what is planned to take {SLOW} times as long as the fastest",
                    f", {format_seconds(expected)} and more",
                )
                return replace(empty, expected_seconds=expected), None
            record = pipeline.run(self.problem, options).record
        except InfeasiblePlan as refusal:
            self._note("not everything fits", f": {refusal}")
            return empty, None
        finally:
            shutil.rmtree(place)
        measured = record.measured
        seconds, glups = measured.seconds, measured.glups
        if series == "second level":  # between memory and cache: without waiting for the disk
            seconds, glups = measured.compute_seconds, glups * seconds / measured.compute_seconds
        made = replace(
            empty,
            seconds=seconds,
            glups=glups,
            over_memory=glups / self.plain,
            read_bytes=measured.read_bytes,
            checksum=" ".join(record.checksums.values()),
        )
        return made, measured.seconds

    def _note(self, reason: str, example: str) -> None:
        """Note a reason once, with the first example of it."""
        if not any(note.startswith(reason) for note in self.timed.notes):
            self.timed.note(f"{reason}{example}")


def _findings(rows: Sequence[BlockingRow]) -> list[Finding]:
    def series(name: str) -> list[BlockingRow]:
        return [row for row in rows if row.series == name]

    def ratio(over: BlockingRow | None, under: BlockingRow | None) -> float | None:
        return None if over is None or under is None else (over.glups or 0) / (under.glups or 1)

    cube = _fastest(series("in memory"))
    alone = _fastest(series("space alone"))
    blocks = [row for row in series("out of core") if row.block]
    outer = _fastest(blocks)
    largest = max((row.block for row in blocks if row.glups), default=0)
    collapse = [row for row in blocks if row.block == largest and 4 * row.depth == row.block]
    second = series("second level")
    spatial = _fastest([row for row in second if row.inner_depth == 1])
    levels = {(row.threads, bool(row.inner)): row for row in series("levels")}
    threads = sorted({count for count, _ in levels})
    gains = [ratio(levels[count, True], levels[count, False]) for count in threads]
    blocked = _fastest([row for row in series("levels") if row.inner])
    return [
        judged("fig8.edge", cube and cube.block, "" if cube is None else f"{cube.block} cubed"),
        judged("fig8.depth", cube and cube.depth),
        judged("second.level", ratio(_fastest(second), spatial)),
        judged("fig9.block", outer and outer.block / largest),
        judged("fig9.depth", outer and outer.depth / outer.block),
        judged("fig9.collapse", ratio(collapse[0], outer) if collapse else None),
        judged(
            "fig10.gain",
            (gains[-1] or 0) / (gains[0] or 1) if len(gains) > 1 else None,
            ", ".join(
                f"threads {count}: {gain:.2f}"
                for count, gain in zip(threads, gains, strict=True)
                if gain is not None
            ),
        ),
        judged("fig11.memory", ratio(alone, blocked)),
        judged("future.blocking", ratio(_fastest([r for r in rows if not r.block]), outer)),
    ]


def _fastest(rows: Sequence[BlockingRow]) -> BlockingRow | None:
    return max((row for row in rows if row.glups), key=lambda row: row.glups or 0.0, default=None)


def draw(outcome: Outcome, figure: Any) -> None:
    """Two maps, and the levels by threads."""
    panels = figure.subplots(2, 2).ravel()
    outer = [row for row in outcome.rows if row["series"] == "out of core" and row["block"]]
    _draw_map(panels[0], outer, "block", "depth")
    panels[0].set_title("out of core: blocks of the first level", fontsize="small")
    cubes = [row for row in outcome.rows if row["series"] == "in memory"]
    _draw_map(panels[1], cubes, "block", "depth")
    panels[1].set_title("in memory: cubes", fontsize="small")
    panels[1].set_xlabel("edge of a cube")
    inner = [row for row in outcome.rows if row["series"] == "second level"]
    _draw_map(panels[2], inner, "inner", "inner_depth")
    panels[2].set_xlabel("edge of a block in z, and in y for one step")
    panels[2].set_title("blocks of the second level, without the disk", fontsize="small")
    levels = [row for row in outcome.rows if row["series"] == "levels" and row["glups"]]
    for number, (name, two) in enumerate((("one level", False), ("two levels", True))):
        mine = [row for row in levels if bool(row["inner"]) == two]
        panels[3].plot(
            [row["threads"] for row in mine],
            [row["glups"] for row in mine],
            label=name,
            **look(number),
        )
    panels[3].set_xlabel("threads")
    panels[3].set_ylabel("needed GLUP/s")
    panels[3].set_ylim(bottom=0)
    panels[3].set_xticks(sorted({row["threads"] for row in levels}))
    panels[3].legend()
    panels[3].set_title("in memory: levels", fontsize="small")


def _draw_map(axes: Any, rows: Sequence[dict[str, Any]], edge: str, depth: str) -> None:
    edges = sorted({row[edge] for row in rows})
    depths = sorted({row[depth] for row in rows})
    values = [[float("nan")] * len(edges) for _ in depths]
    slow = set[tuple[int, int]]()
    for row in rows:
        y, x = depths.index(row[depth]), edges.index(row[edge])
        if row["glups"] is not None:
            values[y][x] = row["glups"]
        elif row.get("expected_seconds") or (row.get("repeated") or 0) > MOST_REPEATED:
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
