"""Figures of the papers that need no machine: sizes, traffic, depths, from plans and programs.

What a program moves is counted by running it without moving a byte.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from outgrid import Problem, plan
from outgrid.errors import InfeasiblePlan
from outgrid.parts import RunOptions, Site, plan_elsewhere, read_site
from outgrid.testing.counting import count
from outgrid_bench.claims.flash import TABLE_2
from outgrid_bench.cluster import Cluster, choose, disk_bytes, powers
from outgrid_bench.experiments.figure import look
from outgrid_bench.experiments.fitted import CUBE, OLD, studies
from outgrid_bench.experiments.outcome import Experiment, Outcome, Settings, Timed, judged

__all__ = ["COUNTED"]

GIB = 1 << 30
STEPS, ITEM_BYTES, FIELDS = 256, 8, 2
# Interior cells (z, y, x) of the problems of table 2, by GiB.
DOMAINS = {
    16: (1024, 1024, 1022),
    32: (1024, 1024, 2046),
    64: (1024, 2048, 2046),
    128: (2048, 2048, 2046),
    256: (4096, 2048, 2046),
    512: (4096, 4096, 2046),
}
TRAFFIC = 64  # GiB of the problem whose traffic the paper measured
MOST_NODES, INNER_NODES = 8, 32
NODE_MEMORY = "60GiB"  # block buffers of the paper, of the 96 GB of a node


@dataclass(frozen=True, slots=True)
class CountedRow:
    """A figure; ``unit`` is "GiB", "steps", "nodes" or "1"."""

    key: str
    value: float
    unit: str


def measure(settings: Settings) -> Outcome:
    """All of them; a tiny one takes the smallest problem of the table alone."""
    timed = Timed("counted", settings)
    tiny = settings.size == "tiny"
    rows = [row for gib in DOMAINS if gib == 16 or not tiny for row in _sizes(gib)]
    rows += _formulas()
    if not tiny:
        settings.say("counting what programs move")
        rows += [row for gib in (TRAFFIC, 512) for row in _traffic(gib)]
        settings.say("planning for TSUBAME 2.5")
        rows += _planned()
    return timed.outcome(
        rows,
        [judged(row.key, row.value) for row in rows if not row.key.startswith("repeated")],
        reference="the papers' own parameters; no machine",
        agrees=True,
        notes=[
            f"updates over needed ones, in blocks of depth 128: {row.value:.4f} ({row.key})"
            for row in rows
            if row.key.startswith("repeated")
        ],
    )


def _problem(interior: tuple[int, int, int]) -> Problem:
    shape = tuple(cells + 2 for cells in interior)
    return Problem("heat7", shape, "float64", STEPS, initial={"u": 0.0})


def _sizes(gib: int) -> Iterator[CountedRow]:
    """A row of table 2: its blocks have a halo along x, though that is never cut."""
    chosen = plan(
        _problem(DOMAINS[gib]),
        memory="32GiB",
        scheme="overlapped",
        machine=read_site("flash2014").machine,
    )
    blocks = chosen.schedule.blocks
    assert blocks is not None
    depth, (z, y), x = chosen.depth, blocks.core, DOMAINS[gib][2]
    block = (x + 2 + 2 * depth) * (y + 2 * depth) * (z + 2 * depth) * ITEM_BYTES
    buffer = ITEM_BYTES
    for cells in DOMAINS[gib]:
        buffer *= cells + 2
    for name, nbytes in (
        ("block", block),
        ("buffer", buffer),
        ("total", FIELDS * (block + buffer)),
    ):
        yield CountedRow(f"table2.{name}.{gib}", nbytes / GIB, "GiB")


def _traffic(gib: int) -> Iterator[CountedRow]:
    """What direct transfers read and write, counted, with the initial values of both buffers."""
    problem = _problem(DOMAINS[gib])
    machine = read_site("flash2014").machine
    chosen = plan(problem, memory="32GiB", scheme="overlapped", machine=machine)
    moved = count(chosen)
    if gib == TRAFFIC:
        z, y, x = DOMAINS[gib]
        initial = FIELDS * ITEM_BYTES * z * y * (x + 2)
        yield CountedRow("traffic.aio.read", moved.read_bytes / GIB, "GiB")
        yield CountedRow("traffic.aio.written", (moved.written_bytes + initial) / GIB, "GiB")
    z, y, _ = DOMAINS[gib]
    yield CountedRow(f"repeated.{gib}", moved.row_updates / (STEPS * z * y), "1")


def _formulas() -> Iterator[CountedRow]:
    """Depths that the flash of a node allows, as the paper reckons it."""
    (cube, cube_cut, _), (cuboid, cuboid_cut, _) = studies()["shape"]
    for key, grid, cut, depth in (
        ("cube.32", cube, cube_cut, 32),
        ("cube.64", cube, cube_cut, 64),
        ("cuboid.128", cuboid, cuboid_cut, 128),
    ):
        yield CountedRow(key, disk_bytes(grid, cut, depth) / GIB, "GiB")
    for key, grid, cut in (
        ("cube.depth", cube, cube_cut),
        ("cuboid.depth", cuboid, cuboid_cut),
    ):
        fits = [n for n in powers(STEPS) if disk_bytes(grid, cut, n) <= OLD.disk_bytes]
        yield CountedRow(key, max(fits), "steps")
    yield CountedRow(
        "least.nodes", _least(lambda n: choose(CUBE, Cluster(n, OLD), "blocks")), "nodes"
    )


def _planned() -> Iterator[CountedRow]:
    """The same by the planner of runs, from the description of the machine."""
    site = read_site("tsubame25")
    for key, (grid, cut, _) in zip(("cube", "cuboid"), studies()["shape"], strict=True):
        chosen = _elsewhere(grid.shape, replace(site, nodes=cut.y * cut.z))
        yield CountedRow(f"{key}.planned", chosen.depth, "steps")
    z, y, x = (
        CUBE.shape
    )  # four times as large, on as many more nodes: some have neighbours all round
    chosen = _elsewhere((2 * z, 2 * y, x), replace(site, nodes=INNER_NODES))
    yield CountedRow("cube.inner", chosen.depth, "steps")
    least = _least(lambda nodes: _elsewhere(CUBE.shape, replace(site, nodes=nodes)))
    yield CountedRow("least.planned", least, "nodes")


def _elsewhere(interior: tuple[int, int, int], site: Site) -> Any:
    options = RunOptions.of(memory=NODE_MEMORY, scheme="overlapped")
    return plan_elsewhere(_problem(interior), options, site)


def _least(planned: Callable[[int], object]) -> int:
    """The fewest nodes for which there is a plan; more of them hold no less."""

    def fits(nodes: int) -> bool:
        try:
            planned(nodes)
        except InfeasiblePlan:
            return False
        return True

    return 1 + bisect_left(range(1, MOST_NODES + 1), True, key=fits)


def draw(outcome: Outcome, figure: Any) -> None:
    """Table 2: sizes by problem, the paper's as marks."""
    axes = figure.add_subplot()
    rows = {row["key"]: row["value"] for row in outcome.rows}
    problems = [gib for gib in TABLE_2 if f"table2.block.{gib}" in rows]
    for number, name in enumerate(("block", "buffer", "total")):
        here = [rows[f"table2.{name}.{gib}"] for gib in problems]
        axes.plot(problems, here, label=f"{name}, here", **look(number))
        paper = [TABLE_2[gib][number] for gib in problems]
        axes.plot(problems, paper, "k+", markersize=12, label="the paper" if not number else None)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("problem, GiB")
    axes.set_ylabel("GiB")
    axes.set_title("table 2: one block, one buffer, all four")
    axes.legend()


COUNTED = Experiment(
    "counted", "sizes, traffic and depths that follow from the methods alone", measure, draw
)
