"""Many nodes, each with flash: the papers' cluster simulated, then clusters of today to a petabyte.

Nothing is measured here. A simulation by discrete events has two free parameters, the updates per
second of a node and how much nodes differ from block to block; they are fitted on the strong
scaling that a paper measured, and everything else that it reported is predicted and set beside.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from outgrid.errors import InfeasiblePlan
from outgrid.lines import format_extents
from outgrid.machine import Network
from outgrid_bench.cluster import Choice, Cluster, Cut, GridSize, Node, Scheme, choose
from outgrid_bench.experiments.figure import look
from outgrid_bench.experiments.fitted import (
    RATES,
    SPREADS,
    Free,
    fitted,
    paper_findings,
    planned,
    predict,
    priced,
    studies,
)
from outgrid_bench.experiments.outcome import (
    OUTGRID,
    Experiment,
    Finding,
    Outcome,
    Settings,
    Timed,
)
from outgrid_bench.simulation import ACTIVITIES, Direction, Simulated, simulate

__all__ = ["CLUSTER"]

GIB = 1 << 30
# A node of today: 64 cores, four drives of flash, 200 Gbit/s.
TODAY = Node(20e9, 256 * GIB, 8 * 10**12, 24e9, 16e9, Network(25e9, 5e-6))
SLOW_FLASH = replace(TODAY, read_bandwidth=6e9, write_bandwidth=4e9)  # one drive
NODE_KINDS = {"four drives": TODAY, "one drive": SLOW_FLASH}

CELLS_PER_NODE = 1 << 35  # 256 GiB of one state: a petabyte on 4096 nodes
STRONG_CELLS = 1 << 41  # 16 TiB of one state
STEPS, MOST_SWEEPS = 512, 3
ENDS_BELOW = 0.5


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """One simulated run. ``relative`` is the time over that of the study's first row times what the
    number of nodes should change; shares of the activities are means over nodes."""

    study: str
    scheme: str
    direction: str
    node: str
    nodes: int
    shape: str
    cut: str
    depth: int
    seconds: float
    relative: float
    redundancy: float
    compute: float
    get: float
    put: float
    exchange: float
    agree: float
    bound_by: str
    why: str


def _paper_rows(free: Free, runs: dict[str, list[Simulated]]) -> list[ClusterRow]:
    rows: list[ClusterRow] = []
    for study, cases in studies().items():
        first = runs[study][0].seconds
        begin = cases[0][1].y * cases[0][1].z
        for (grid, cut, depth), run in zip(cases, runs[study], strict=True):
            cluster = Cluster(cut.y * cut.z, free.node)
            chosen = priced(grid, cluster, cut, depth)
            more = cluster.count / begin if study == "strong" else 1.0
            named = f"paper, {study}"
            rows.append(
                _row(named, "", "old", grid, cluster, chosen, run, run.seconds / first * more)
            )
    return rows


def _row(
    study: str,
    direction: str,
    node: str,
    grid: GridSize,
    cluster: Cluster,
    chosen: Choice,
    run: Simulated,
    relative: float,
) -> ClusterRow:
    shares = {name: run.share(name) for name in ACTIVITIES}
    return ClusterRow(
        study,
        chosen.scheme,
        direction,
        node,
        cluster.count,
        format_extents(grid.shape),
        str(chosen.cut),
        chosen.depth,
        run.seconds,
        relative,
        chosen.redundancy,
        **shares,
        bound_by=chosen.bound_by,
        why="; ".join(chosen.why),
    )


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run on clusters of today; ``only_z`` cuts along z alone, as `mpiexec` runs do."""

    scheme: Scheme
    direction: Direction
    only_z: bool = False

    @property
    def name(self) -> str:
        """As it stands in rows and figures."""
        told = self.direction if self.scheme == "stream" else "papers'"
        return f"{told}, cut in z" if self.only_z else told


WAYS = (
    Way("blocks", "upward"),
    Way("stream", "upward", only_z=True),
    Way("stream", "upward"),
    Way("stream", "opposite"),
)


def _extents(cells: int) -> tuple[int, int, int]:
    """As near to a cube as powers of two are; the longest first."""
    bits = cells.bit_length() - 1
    z = -(-bits // 3)
    y = -(-(bits - z) // 2)
    return 1 << z, 1 << y, 1 << bits - z - y


@dataclass(frozen=True, slots=True)
class _Scaled:
    """What one way makes of more and more nodes: its rows, and where scaling ends, "" nowhere."""

    rows: list[ClusterRow]
    end: str


def _scaled(
    counts: Sequence[int], spread: float, timed: Timed
) -> tuple[list[ClusterRow], dict[str, str]]:
    """Weak and strong scaling of every way on both kinds of nodes; where each ends."""
    rows: list[ClusterRow] = []
    ends: dict[str, str] = {}
    for kind, study, way in itertools.product(NODE_KINDS, ("weak", "strong"), WAYS):
        named = f"{study}, {way.scheme} {way.name}, {kind}"
        make = partial(_scale, counts, spread, timed, kind, study, way, named)
        scaled = timed.piece(named, _Scaled, make)
        rows += scaled.rows
        if scaled.end:
            ends[named] = scaled.end
    return rows, ends


def _scale(
    counts: Sequence[int],
    spread: float,
    timed: Timed,
    kind: str,
    study: str,
    way: Way,
    named: str,
) -> _Scaled:
    """One way on one kind of nodes."""
    timed.settings.say(named)
    rows: list[ClusterRow] = []
    end = ""
    for count in counts:
        cells = CELLS_PER_NODE * count if study == "weak" else STRONG_CELLS
        grid, cluster = GridSize(_extents(cells), STEPS), Cluster(count, NODE_KINDS[kind])
        try:
            cuts = (Cut(1, count),) if way.only_z else ()
            chosen = choose(grid, cluster, way.scheme, cuts)
        except InfeasiblePlan as reason:
            timed.note(f"{named}, {count} nodes: {reason}")
            end = end or f"at {count} nodes: {reason}"
            continue
        run = simulate(
            grid,
            cluster,
            chosen,
            spread=spread,
            direction=way.direction,
            most_sweeps=MOST_SWEEPS,
        )
        more = 1.0 if study == "weak" or not rows else count / rows[0].nodes
        relative = run.seconds / rows[0].seconds * more if rows else 1.0
        rows.append(_row(study, way.name, kind, grid, cluster, chosen, run, relative))
        if 1 / relative < ENDS_BELOW:
            end = end or f"at {count} nodes, {_reason(rows[0], rows[-1])}"
    return _Scaled(rows, end)


def _reason(first: ClusterRow, row: ClusterRow) -> str:
    """What grew most of a node's time from the first row to this one."""
    ideal = {name: getattr(first, name) for name in ACTIVITIES}
    grown = {name: getattr(row, name) * row.relative - ideal[name] for name in ACTIVITIES}
    most = max(grown, key=lambda name: grown[name])
    return (
        f"efficiency {1 / row.relative:.0%}: most is lost to {most}, with "
        f"{row.redundancy:.2f} of the needed updates at depth {row.depth}"
    )


def measure(settings: Settings) -> Outcome:
    """Fit, predict, and scale."""
    timed = Timed("cluster", settings)
    tiny = settings.size == "tiny"
    settings.say("fitting on strong scaling")
    fits = timed.piece(
        "fits",
        list[Free],
        lambda: fitted(RATES[2:4], SPREADS[:1], 1) if tiny else fitted(),
    )
    free = fits[0]
    every = [predict(fit)[0] for fit in fits]
    predicted, runs = predict(free)
    counts = tuple(8 << bit for bit in range(settings.by_size(2, 6, 10)))
    rows, ends = _scaled(counts, free.spread, timed)
    _, right = planned(free)
    notes = [
        f"free, fitted on strong scaling alone: {free.updates_per_second / 1e9:g}e9 updates per "
        f"second and node, a spread of {free.spread:.0%} between blocks; {len(fits) - 1} more "
        "pairs fit as well within the paper's whole percents",
        "given: flash 0.3 and 0.26 GB/s (a fifth of an ioDrive2), network 3 GB/s and 5 us; blocks "
        "of 512 x 1024 in (z, y) in all runs, since for the cuboid the paper has adapted the depth",
        "the half of a block that moves while the other one is updated is taken to be timed with "
        "the updates: transfers over updates, all of them counted, would be 4.0 times as much for "
        "the cube with blocks of any size, where the paper has 2.7",
    ]
    return timed.outcome(
        [*_paper_rows(free, runs), *rows],
        [
            *paper_findings(free, predicted, every),
            *_scaling_findings(rows, ends),
        ],
        reference="a simulation beside a paper's figures; nothing was run on several nodes",
        agrees=right,
        notes=notes,
        details={"ends": ends, "fits": [_told(fit) for fit in fits]},
    )


def _told(free: Free) -> dict[str, Any]:
    return {
        "updates_per_second": free.updates_per_second,
        "spread": free.spread,
        "efficiencies": list(free.efficiencies),
    }


def _scaling_findings(rows: Sequence[ClusterRow], ends: dict[str, str]) -> list[Finding]:
    findings: list[Finding] = []
    for study, kind in itertools.product(("weak", "strong"), NODE_KINDS):
        told: list[str] = []
        for way in WAYS:
            named = f"{study}, {way.scheme} {way.name}, {kind}"
            mine = [
                row
                for row in rows
                if (row.study, row.node, row.scheme, row.direction)
                == (study, kind, way.scheme, way.name)
            ]
            if not mine:
                continue
            last = mine[-1]
            end = f", ends {ends[named]}" if named in ends else ""
            told.append(
                f"{way.scheme} {way.name}: {1 / last.relative:.0%} at {last.nodes} nodes, "
                f"{last.seconds:.0f} s, bound by {last.bound_by}{end}"
            )
        findings.append(
            Finding(
                f"{OUTGRID}, {study} scaling, {kind}",
                "where it ends and why",
                "8 to 32 nodes",
                "; ".join(told),
                None,
            )
        )
    return findings


def draw(outcome: Outcome, figure: Any) -> None:
    """The paper's studies as stacked shares, and both scalings of today."""
    panels = figure.subplots(2, 2)
    _draw_paper(outcome, panels[0][0])
    shown = list(NODE_KINDS)
    for axes, (study, kind) in zip(
        (panels[0][1], *panels[1]),
        (("weak", shown[0]), ("weak", shown[1]), ("strong", shown[0])),
        strict=True,
    ):
        mine = [row for row in outcome.rows if (row["study"], row["node"]) == (study, kind)]
        for number, way in enumerate(WAYS):
            line = [
                row for row in mine if (row["scheme"], row["direction"]) == (way.scheme, way.name)
            ]
            axes.plot(
                [row["nodes"] for row in line],
                [1 / row["relative"] for row in line],
                linestyle="--" if way.scheme == "blocks" else "-",
                label=f"{way.scheme}, {way.name}",
                **look(number),
            )
        bar = {"color": "0.4", "linewidth": 1, "linestyle": ":"}
        axes.axhline(ENDS_BELOW, label="where scaling ends", **bar)
        axes.set_xscale("log", base=2)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("nodes")
        axes.set_ylabel("efficiency")
        axes.set_title(f"{study} scaling, {kind}", fontsize="medium")
        axes.grid(alpha=0.3)
    panels[0][1].legend(fontsize="x-small")


def _draw_paper(outcome: Outcome, axes: Any) -> None:
    mine = [row for row in outcome.rows if row["study"].startswith("paper")]
    names = [f"{row['study'][7:]}\n{row['nodes']} {row['cut']}" for row in mine]
    base = [0.0] * len(mine)
    for activity in ACTIVITIES:
        heights = [row[activity] * row["seconds"] / 3600 for row in mine]
        axes.bar(range(len(mine)), heights, bottom=base, label=activity)
        base = [low + height for low, height in zip(base, heights, strict=True)]
    axes.set_xticks(range(len(mine)), names, fontsize="x-small")
    axes.set_ylabel("hours of a node")
    axes.set_title("the paper's runs, simulated", fontsize="medium")
    axes.set_ylim(top=1.2 * axes.get_ylim()[1])  # room for the legend
    axes.legend(fontsize="x-small", ncols=len(ACTIVITIES), loc="upper center")


CLUSTER = Experiment(
    "cluster",
    "simulated runs on 8 to 4096 nodes with flash, fitted on a cluster that was measured",
    measure,
    draw,
)
