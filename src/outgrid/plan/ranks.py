"""Plans of several ranks: where the grid is cut, and sweeps that all of them make alike.

Every way to cut planes and rows is planned for the rank with the most to hold, with halos and,
where planes alone are cut, with seams; and the cheapest is taken.

All ranks decide the same from the same inputs, those of the slowest machine among them, so that no
plan has to be sent around. The rank with the most to hold, one with neighbours on all sides,
bounds depth and slab; then the grid is cut so that all have the same to do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from outgrid.config import RunOptions
from outgrid.errors import InfeasiblePlan, UsageError
from outgrid.lines import format_count
from outgrid.machine import Machine, Network
from outgrid.plan.calibration import Calibration
from outgrid.plan.model import Plan
from outgrid.plan.planner import WORTH_CUTTING, RankPart, plan
from outgrid.plan.schedule.interval import ACROSS
from outgrid.plan.schedule.subgrid import NO_HALO, Subgrid, balanced, balanced_seams
from outgrid.plan.sizing import Sizing
from outgrid.schemes import SCHEMES
from outgrid.stencil.problem import Problem

ALIKE = 1.01  # prices that are taken for equal: then the rows are cut into fewer parts


class Ranks(msgspec.Struct, frozen=True):
    """The ranks of a run, which ``rank`` is one of, and what all of them can count on.

    ``disk_bytes`` is what each may fill with working files, None where that is not bounded.
    """

    rank: int
    count: int
    network: Network
    disk_bytes: int | None = None


def plan_rank(
    problem: Problem,
    options: RunOptions,
    machine: Machine,
    fixed_bytes: int,
    ranks: Ranks,
    calibration: Calibration | None = None,
) -> Plan:
    """The plan of one rank; see `plan` for the other arguments, the same at all ranks.

    Raises InfeasiblePlan where there are too many ranks or nothing fits, UsageError for what
    several ranks cannot do.
    """
    _check(problem, options)
    inputs = (problem, options, machine, fixed_bytes, calibration)
    choose, ways, guess = partial(plan, *inputs), list[_Way](), options.depth or 1
    refused: dict[tuple[tuple[int, int], bool], InfeasiblePlan] = {}
    for cut in _cuts(problem, options, ranks.count):
        for seams in _exchanges(problem, options, cut):
            try:
                way = _way(problem, options, cut, seams, guess, ranks, choose)
            except InfeasiblePlan as error:
                refused[cut, seams] = error
            else:
                ways.append(way)
                guess = options.depth or max(1, way.common.depth)
    if not ways:
        raise next(iter(refused.values()))
    least = min(way.price for way in ways)
    way = next(way for way in ways if way.price <= ALIKE * least)
    common, part = way.common, way.part
    mine = replace(part.subgrid, rank=ranks.rank)
    if common.schedule.blocks is None:
        mine = mine.turned(common.depth)
    settled = _settled(replace(part, subgrid=mine), common)
    chosen = choose(part=settled)
    why = _why(way, [rival for rival in ways if rival is not way], refused)
    fixed = options.scheme is not None and SCHEMES[options.scheme].depth is not None
    if common.sweeps > 1 and options.depth is None and not fixed:
        depth = -(-problem.steps // (common.sweeps - 1))
        deeper = msgspec.structs.replace(options, depth=depth)
        try:
            other = plan(problem, deeper, machine, fixed_bytes, calibration, part=part)
            why += (f"{_words(other)} takes {_ratio(other, common)} times as long",)
        except InfeasiblePlan as error:
            why += (f"depth {deeper.depth} does not fit: {error}",)
    return replace(chosen, notes=(*chosen.notes, *why))


class _Way(msgspec.Struct, frozen=True):
    """One way to cut the grid, and what goes over the cuts: what the slowest rank plans, where that
    depth is cut for, and the ``part`` that had to choose it."""

    common: Plan
    part: RankPart

    @property
    def price(self) -> float:
        return _price(self.common)

    @property
    def seams(self) -> bool:
        """Whether ranks leave seams."""
        return self.part.subgrid.seams


def _way(
    problem: Problem,
    options: RunOptions,
    cut: tuple[int, int],
    seams: bool,
    guess: int,
    ranks: Ranks,
    choose: Callable[..., Plan],
) -> _Way:
    """The depth and slab that suit all ranks. Raises InfeasiblePlan.

    Where seams are left, cuts depend on the depth: they are made for the depth ``guess``, and once
    more for the depth that is found then.
    """

    def parts(depth: int) -> list[RankPart]:
        fullest = _fullest(problem, options, cut, depth, seams=seams)
        return [RankPart(subgrid, ranks.network, ranks.disk_bytes) for subgrid in fullest]

    def settle(depth: int) -> _Way:
        first, _ = _alike(parts(depth), choose)
        settled = parts(max(1, first.depth))
        if seams:
            _check_thickness(problem, settled[0].subgrid, first)
        plans = [choose(part=_settled(part, first)) for part in settled]
        ways = (_Way(*pair) for pair in zip(plans, settled, strict=True))
        return max(ways, key=lambda way: way.price)

    way = settle(guess if seams else 1)
    if not seams or way.common.depth in (0, guess):
        return way
    try:
        return min(way, settle(way.common.depth), key=lambda way: way.price)
    except InfeasiblePlan:
        return way


def _check_thickness(problem: Problem, subgrid: Subgrid, chosen: Plan) -> None:
    """Raise InfeasiblePlan where what a rank leaves at its cuts is not apart."""
    for rank in range(subgrid.ranks):
        sizing = Sizing(problem, subgrid.of(rank))
        least, owned = sizing.least_owned(chosen.schedule.depths), len(sizing.owned.planes)
        if least > owned:
            raise InfeasiblePlan(
                f"rank {rank} owns {owned} planes, but seams in sweeps of {chosen.depth} steps "
                f"need {least}; use other cuts, a lower depth or exchange = 'halos'"
            )


def _alike(parts: list[RankPart], choose: Callable[..., Plan]) -> tuple[Plan, RankPart]:
    """What one of ``parts`` chooses that suits all of them. Raises InfeasiblePlan."""
    refused: list[InfeasiblePlan] = []
    for part in parts:
        try:
            chosen = choose(part=part)
            for other in parts:
                if other is not part:
                    choose(part=_settled(other, chosen))
        except InfeasiblePlan as error:
            refused.append(error)
        else:
            return chosen, part
    raise refused[0]


def _settled(part: RankPart, chosen: Plan) -> RankPart:
    """What one part is to plan, as all ranks do."""
    schedule = chosen.schedule
    block = schedule.blocks.core if schedule.blocks is not None else None
    return replace(part, depths=schedule.depths, slab=schedule.slab_planes, block=block)


def ring(problem: Problem, parts: int) -> bool:
    """Whether the ranks that planes are cut into, in so many parts, are a ring."""
    return parts > 1 and problem.edges.periodic(0)


def _in_blocks(options: RunOptions) -> bool:
    """Whether ranks have blocks: these begin where they begin, whatever neighbours do."""
    return options.scheme is not None and SCHEMES[options.scheme].blocks


def _exchanges(problem: Problem, options: RunOptions, cut: tuple[int, int]) -> tuple[bool, ...]:
    """Whether seams go over the cuts, in every way that is possible."""
    only = options.exchange == "halos" or _in_blocks(options) or ring(problem, cut[0])
    if cut[0] == 1 or cut[1] > 1 or only:
        return (False,)
    return (True,) if options.exchange == "seams" else (False, True)


def _price(chosen: Plan) -> float:
    """Expected seconds; messages of rows are many small pieces, so each cut must be worth it."""
    cuts = _cut_of(chosen)[1] - 1
    return chosen.prediction.seconds * (1 + cuts * (WORTH_CUTTING - 1))


def _cut_of(chosen: Plan) -> tuple[int, int]:
    return chosen.schedule.subgrid.cut if chosen.schedule.subgrid is not None else (1, 1)


def _why(
    way: _Way,
    others: list[_Way],
    refused: dict[tuple[tuple[int, int], bool], InfeasiblePlan],
) -> tuple[str, ...]:
    """Why the grid is cut as it is; nothing where there was no choice."""
    chosen, reasons = way.common, list[str]()
    cut, exchange = _cut_of(chosen), ("halos", "seams")[not way.seams]
    alike = [rival for rival in others if _cut_of(rival.common) == cut]
    if alike:
        reasons.append(f"{_words(chosen)}: {_beside(alike[0].common, chosen)}")
    elif (cut, not way.seams) in refused:
        reasons.append(f"{exchange} do not fit: {refused[cut, not way.seams]}")
    apart = [rival for rival in others if _cut_of(rival.common) != cut]
    if apart:
        other = min(apart, key=lambda rival: rival.price).common
        reasons.append(f"{_words(chosen)}: {_beside(other, chosen)}")
    cuts = {cut for cut, _ in refused} - {_cut_of(rival.common) for rival in (way, *others)}
    if cuts:
        error = next(reason for (at, _), reason in refused.items() if at in cuts)
        reasons.append(f"{format_count(len(cuts), 'other cut')} did not fit: {error}")
    return tuple(reasons)


def _beside(other: Plan, chosen: Plan) -> str:
    """What another plan would cost."""
    ratio, bound = _ratio(other, chosen), other.prediction.bound_by
    return f"{_words(other)} takes {ratio} times as long, bound by {bound}"


def _ratio(other: Plan, chosen: Plan) -> str:
    return f"{other.predicted_seconds / max(1e-12, chosen.predicted_seconds):.2f}"


def _words(chosen: Plan) -> str:
    along, across = _cut_of(chosen)
    seams = chosen.schedule.subgrid is not None and chosen.schedule.subgrid.seams
    exchange = f" and {'seams' if seams else 'halos'}" if along * across > 1 else ""
    return f"cut into {along} x {across} parts (planes x rows) with depth {chosen.depth}{exchange}"


def _cuts(problem: Problem, options: RunOptions, count: int) -> list[tuple[int, int]]:
    """(parts of the planes, parts of the rows) that make ``count`` parts; rows last."""
    planes, rows = problem.shape[0], problem.shape[1] if problem.ndim == 3 else 1
    named = {"cuts": options.cuts, "row_cuts": options.row_cuts}
    for (name, cuts), extent in zip(named.items(), (planes, rows), strict=True):
        if any(low >= high for low, high in pairwise((0, *cuts, extent))):
            what = "planes" if name == "cuts" else "rows"
            raise UsageError(
                f"{name} = {list(cuts)} must be increasing {what} between 0 and {extent}"
            )
    if options.row_cuts and (problem.ndim == 2 or problem.edges.periodic(1)):
        raise UsageError(
            "row_cuts needs a grid of three axes that is not periodic along y; leave it out"
        )
    along, across = len(options.cuts) + 1, len(options.row_cuts) + 1
    possible = [
        (count // parts, parts)
        for parts in range(1, min(count, rows) + 1)
        if count % parts == 0
        and (not options.cuts or count // parts == along)
        and (not options.row_cuts or parts == across)
    ]
    if not possible:
        raise UsageError(
            f"cuts = {list(options.cuts)} and row_cuts = {list(options.row_cuts)} make "
            f"{along} x {across} parts, and {count} ranks are not a multiple of that; start "
            f"{along * across} ranks"
        )
    if options.exchange == "seams":
        possible = [(z, y) for z, y in possible if y == 1]
        if not possible:
            raise UsageError(
                "exchange = 'seams' cannot be used with row_cuts; leave row_cuts out, or "
                "choose exchange = 'halos'"
            )
    cut_rows = problem.ndim == 3 and not problem.edges.periodic(1)
    least = 2 if ring(problem, count) else 1
    possible = [
        (z, y) for z, y in possible if least <= z <= planes and y <= rows and (cut_rows or y == 1)
    ]
    if not possible:
        raise InfeasiblePlan(
            f"{count} ranks cannot share {planes} planes"
            + (f" of {rows} rows" if cut_rows else "")
            + "; start fewer of them"
        )
    return possible


def _bounds(
    problem: Problem, options: RunOptions, cut: tuple[int, int], depth: int, *, seams: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where planes and rows are cut: as ``options`` say, or so that all have as much to do."""
    sizing = Sizing(problem)
    # Round a ring all parts have a neighbour at both ends.
    along = NO_HALO if ring(problem, cut[0]) else sizing.streamed.halo
    planes = balanced(problem.shape[0], cut[0], along, depth)
    if seams:
        lean = (sizing.streamed.skew.per_step + sizing.streamed.face.per_step) / 2
        planes = balanced_seams(problem.shape[0], cut[0], lean, depth)
    across = sizing.axes[ACROSS]
    rows = balanced(across.extent, cut[1], across.halo, depth)
    return (
        (0, *options.cuts, planes[-1]) if options.cuts else planes,
        (0, *options.row_cuts, rows[-1]) if options.row_cuts else rows,
    )


def _fullest(
    problem: Problem, options: RunOptions, cut: tuple[int, int], depth: int, *, seams: bool
) -> list[Subgrid]:
    """The parts that have most to hold: those amid others, if there are any, where cuts are even.

    One of each direction where these differ, as they do for stencils that reach farther one way,
    and where seams are left; of those that leave them also the thinnest, which bounds the depth.
    """
    bounds, sizing = _bounds(problem, options, cut, depth, seams=seams), Sizing(problem)
    blocks = _in_blocks(options)
    rows, planes = _widest(bounds[1]), [_widest(bounds[0])]
    along = sizing.streamed.dependences
    if cut[0] > 1 and (seams or along != along.mirrored()):
        planes = [_widest(bounds[0], range(first, cut[0], 2)) for first in (0, 1)]
    if seams:
        planes.insert(0, _widest(bounds[0], range(0, cut[0], 2), least=True))
    return [
        Subgrid(
            number * cut[1] + rows,
            bounds,
            Sizing(problem).halos,
            opposite=not (blocks or ring(problem, cut[0])),
            seams=seams,
            ring=ring(problem, cut[0]),
        )
        for number in dict.fromkeys(planes)
    ]


def _widest(bounds: tuple[int, ...], among: range | None = None, *, least: bool = False) -> int:
    """The widest part, or the one with the ``least``, of those amid others if there are any."""
    parts = [*(among or range(len(bounds) - 1))]
    inner = [part for part in parts if 0 < part < len(bounds) - 2]
    best = min if least else max
    return best(inner or parts, key=lambda part: bounds[part + 1] - bounds[part])


def _check(problem: Problem, options: RunOptions) -> None:
    if options.exchange == "seams" and problem.edges.periodic(0):
        raise UsageError(
            "exchange = 'seams' needs a first axis that is not periodic; leave exchange out"
        )
    if options.exchange == "seams" and _in_blocks(options):
        raise UsageError(
            "exchange = 'seams' needs a scheme that streams planes, and scheme "
            f"{options.scheme} has blocks with halos; leave exchange out, or choose another "
            "scheme"
        )
    if len(options.places) > 1:
        raise UsageError(
            "with several ranks, scratch must be one folder; give one, or start one rank"
        )
