"""Plans of several ranks: where the grid is cut, and sweeps that all of them make alike.

Every way to cut planes and rows is planned for the rank with the most to hold, and the cheapest is
taken.

All ranks decide the same from the same inputs, those of the slowest machine among them, so that no
plan has to be sent around. The rank with the most to hold, one with neighbours on all sides,
bounds depth and slab; then the grid is cut so that all have the same to do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import msgspec

from outgrid.config import RunOptions
from outgrid.errors import InfeasiblePlan, UsageError
from outgrid.lines import format_count
from outgrid.machine import Machine, Network
from outgrid.plan.calibration import Calibration
from outgrid.plan.model import Plan
from outgrid.plan.planner import SUSTAINED, WORTH_CUTTING, Part, plan
from outgrid.plan.sizing import Sizing
from outgrid.plan.subgrid import Subgrid, balanced
from outgrid.stencil.problem import Problem

ALIKE = 1.01  # prices that are taken for equal: then the rows are cut into fewer parts


@dataclass(frozen=True, slots=True)
class Ranks:
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
    found: list[tuple[Plan, Part]] = []
    refused: list[InfeasiblePlan] = []
    for cut in _cuts(problem, options, ranks.count):
        parts = [
            Part(each, ranks.network, ranks.disk_bytes) for each in _fullest(problem, options, cut)
        ]
        try:
            found.append(_alike(parts, partial(plan, *inputs)))
        except InfeasiblePlan as error:
            refused.append(error)
    if not found:
        raise refused[0]
    least = min(_price(chosen) for chosen, _ in found)
    common, part = next(each for each in found if _price(each[0]) <= ALIKE * least)
    bounds = _bounds(problem, options, part.subgrid.cut, common.depth)
    mine = replace(part.subgrid, rank=ranks.rank, plane_bounds=bounds[0], row_bounds=bounds[1])
    mine = mine.turned(common.depth)
    settled = replace(part, subgrid=mine, depths=common.depths, slab=common.slab_planes)
    chosen = plan(*inputs, part=settled)
    why = _why(common, [each for each, _ in found if each is not common], refused)
    if common.sweeps > 1 and options.depth is None:
        depth = -(-problem.steps // (common.sweeps - 1))
        deeper = msgspec.structs.replace(options, depth=depth)
        try:
            other = plan(problem, deeper, machine, fixed_bytes, calibration, part=part)
            why += (f"{_words(other)} takes {_ratio(other, common)} times as long",)
        except InfeasiblePlan as error:
            why += (f"depth {deeper.depth} does not fit: {error}",)
    return replace(chosen, notes=(*chosen.notes, *why))


def _alike(parts: list[Part], choose: Callable[..., Plan]) -> tuple[Plan, Part]:
    """What one of ``parts`` chooses that suits all of them. Raises InfeasiblePlan."""
    refused: list[InfeasiblePlan] = []
    for part in parts:
        try:
            chosen = choose(part=part)
            for other in parts:
                if other is not part:
                    choose(part=replace(other, depths=chosen.depths, slab=chosen.slab_planes))
        except InfeasiblePlan as error:
            refused.append(error)
        else:
            return chosen, part
    raise refused[0]


def _price(chosen: Plan) -> float:
    """Expected seconds; a message of rows is many small pieces, so cuts of rows must be worth it.

    A disk that is busy for long is slower, as for one rank.
    """
    seconds = max(chosen.predicted_seconds, SUSTAINED * chosen.prediction.transfer_seconds)
    return seconds * (WORTH_CUTTING if _cut_of(chosen)[1] > 1 else 1.0)


def _cut_of(chosen: Plan) -> tuple[int, int]:
    return chosen.subgrid.cut if chosen.subgrid is not None else (1, 1)


def _why(chosen: Plan, others: list[Plan], refused: list[InfeasiblePlan]) -> tuple[str, ...]:
    """Why the grid is cut as it is; nothing where there was no choice."""
    found: list[str] = []
    if others:
        other = min(others, key=_price)
        found.append(
            f"{_words(chosen)}: {_words(other)} takes {_ratio(other, chosen)} times as long, "
            f"bound by {other.prediction.bound_by}"
        )
    if refused:
        found.append(f"{format_count(len(refused), 'other cut')} did not fit: {refused[0]}")
    return tuple(found)


def _ratio(other: Plan, chosen: Plan) -> str:
    return f"{other.predicted_seconds / max(1e-12, chosen.predicted_seconds):.2f}"


def _words(chosen: Plan) -> str:
    along, across = _cut_of(chosen)
    return f"cut into {along} x {across} parts (planes x rows) with depth {chosen.depth}"


def _cuts(problem: Problem, options: RunOptions, count: int) -> list[tuple[int, int]]:
    """(parts of the planes, parts of the rows) that make ``count`` parts; rows last."""
    planes, rows = problem.shape[0], problem.shape[1] if problem.ndim == 3 else 1
    named = {"cuts": options.cuts, "row_cuts": options.row_cuts}
    for (name, cuts), extent in zip(named.items(), (planes, rows), strict=True):
        if any(low >= high for low, high in pairwise((0, *cuts, extent))):
            what = "planes" if name == "cuts" else "rows"
            raise UsageError(
                f"{name} = {list(cuts)} has to name rising {what} between 0 and {extent}"
            )
    if options.row_cuts and (problem.ndim == 2 or problem.edges.periodic(1)):
        raise UsageError(
            "row_cuts cuts grids of three axes that are not periodic along y; leave it out"
        )
    along, across = len(options.cuts) + 1, len(options.row_cuts) + 1
    found = [
        (count // parts, parts)
        for parts in range(1, count + 1)
        if count % parts == 0
        and (not options.cuts or count // parts == along)
        and (not options.row_cuts or parts == across)
    ]
    if not found:
        raise UsageError(
            f"cuts = {list(options.cuts)} and row_cuts = {list(options.row_cuts)} make "
            f"{along} x {across} parts, of which {count} ranks are no multiple; start "
            f"{along * across} ranks"
        )
    cut_rows = problem.ndim == 3 and not problem.edges.periodic(1)
    found = [(z, y) for z, y in found if z <= planes and y <= rows and (cut_rows or y == 1)]
    if not found:
        raise InfeasiblePlan(
            f"{count} ranks cannot share {planes} planes"
            + (f" of {rows} rows" if cut_rows else "")
            + "; start fewer of them"
        )
    return found


def _bounds(
    problem: Problem, options: RunOptions, cut: tuple[int, int], depth: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where planes and rows are cut: as ``options`` say, or so that all have as much to do."""
    sizing = Sizing(problem)
    planes = balanced(problem.shape[0], cut[0], sizing.halo, depth)
    rows = balanced(sizing.rows, cut[1], sizing.row_halo, depth)
    return (
        (0, *options.cuts, planes[-1]) if options.cuts else planes,
        (0, *options.row_cuts, rows[-1]) if options.row_cuts else rows,
    )


def _fullest(problem: Problem, options: RunOptions, cut: tuple[int, int]) -> list[Subgrid]:
    """The parts that have most to hold: those amid others, if there are any, where cuts are even.

    One of each direction where these differ, as they do for stencils that reach farther one way.
    """
    bounds, sizing = _bounds(problem, options, cut, 1), Sizing(problem)
    rows, planes = _widest(bounds[1]), [_widest(bounds[0])]
    if cut[0] > 1 and sizing.found != sizing.found.mirrored():
        planes = [_widest(bounds[0], range(first, cut[0], 2)) for first in (0, 1)]
    return [
        Subgrid(each * cut[1] + rows, *bounds, sizing.halo, sizing.row_halo, opposite=True)
        for each in planes
    ]


def _widest(bounds: tuple[int, ...], among: range | None = None) -> int:
    parts = [*(among or range(len(bounds) - 1))]
    inner = [part for part in parts if 0 < part < len(bounds) - 2]
    return max(inner or parts, key=lambda part: bounds[part + 1] - bounds[part])


def _check(problem: Problem, options: RunOptions) -> None:
    if problem.edges.periodic(0):
        raise UsageError(
            "a grid that is periodic along its first axis is not cut over ranks; let another axis "
            "be the periodic one, or start one rank"
        )
    if options.tier not in ("auto", "direct"):
        raise UsageError(
            f"several ranks stream their parts from files, so tier {options.tier} cannot be met; "
            "leave tier out, or start one rank"
        )
    for name in ("block", "inner", "inner_depth", "strip_rows", "in_place", "preview"):
        if getattr(options, name):
            raise UsageError(f"{name} is for a run of one rank; leave it out, or start one rank")
    if problem.stencil.reductions:
        raise UsageError(
            "reductions are for a run of one rank; leave them out of the stencil, or start one rank"
        )
    if len(options.places) > 1:
        raise UsageError(
            "a rank keeps its fields in one folder; give one scratch, or start one rank"
        )
    if options.scheme == "overlapped":
        raise UsageError(
            "scheme overlapped is for a run of one rank; choose scheme skewed, or start one rank"
        )
