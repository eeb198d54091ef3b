"""From a candidate to a plan: what is made durable when, what all of it moves, and why."""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec.structs import replace

from outgrid.lines import format_count, format_share
from outgrid.plan.calibration import Calibration
from outgrid.plan.candidate import Candidate, level_of
from outgrid.plan.commits import (
    COMMIT_SECONDS,
    Begin,
    commit_planes,
    flush_bytes,
    notes_on_commits,
    notes_on_flushes,
)
from outgrid.plan.cost import transfer_seconds
from outgrid.plan.layout import describe
from outgrid.plan.model import Memory, Plan, Volume, Work
from outgrid.plan.request import Request
from outgrid.plan.schedule.model import ACROSS, STREAMED, Schedule
from outgrid.plan.schedule.trip import Point
from outgrid.plan.tiers import disk_tier, notes_on_tier, streaming_tier
from outgrid.plan.tiling import tile_levels
from outgrid.stencil.problem import Problem
from outgrid.stencil.snapshot import snapshots_by_file
from outgrid.tiers import TIERS

WORTH_KEEPING = 50  # times the time that it takes to keep a resident grid in mid-run


def assemble(request: Request, chosen: Candidate) -> Plan:
    """The plan that runs what was ``chosen``."""
    problem, traffic = request.problem, chosen.traffic
    schedule = _kept(request, chosen)
    tier = streaming_tier(request.options)
    if chosen.schedule.resident and not request.options.in_place:
        tier = "memory"
    mapped = schedule.resident and TIERS[tier].mapped and TIERS[tier].files
    disk_bytes = request.sizing.traffic(schedule, traffic.packed).disk_bytes(
        "direct" if schedule.resident else disk_tier(request.options),
        chosen.window_bytes if mapped else 0,
    )
    begin = request.begin or Begin(0, 0)
    spared = traffic.spared_bytes(begin.depth, begin.part, schedule.begin.planes)
    read, written = (n - less for n, less in zip(traffic.moved_bytes, spared, strict=True))
    sent_bytes, received_bytes = traffic.exchanged_bytes
    flushed_bytes = flush_bytes(request.machine) if tier == "direct" else 0
    ranked = request.sizing.subgrid is not None
    return Plan(
        work=Work(
            problem.digest,
            problem.stencil.name,
            problem.dtype,
            updates=request.sizing.updates,
            flops=request.sizing.updates * problem.stencil.flops,
        ),
        scheme=chosen.scheme,
        schedule=schedule,
        layout=chosen.layout,
        tile=chosen.tile,
        threads=request.threads,
        memory=Memory(
            request.options.memory_bytes,
            request.fixed_bytes,
            chosen.window_bytes,
            held_bytes=0 if request.accelerator is not None else chosen.held_bytes,
            transfer_bytes=request.staging_bytes(chosen.layout),
            exchange_bytes=chosen.exchange_bytes,
            unfinished_bytes=chosen.unfinished_bytes,
        ),
        volume=Volume(
            disk_bytes,
            read_bytes=read,
            written_bytes=written * (schedule.states.count if schedule.commit_sweeps else 1),
            fill_bytes=traffic.fill_bytes,
            packed_bytes=traffic.packed_bytes,
            snapshot_bytes=problem.kept_bytes(problem.steps, schedule.domain.carried)
            if ranked
            else 0,
            sent_bytes=sent_bytes,
            received_bytes=received_bytes,
        ),
        prediction=chosen.prediction,
        notes=(
            *notes_on_tier(request.options),
            describe(chosen.layout),
            *notes_on_flushes(request.machine, flushed_bytes, written),
            *_notes(request, chosen),
        ),
        pin=request.options.pin,
        tier=tier,
        keep=request.options.keep,
        packed=tuple(sorted(traffic.packed)),
        flush_bytes=flushed_bytes,
        device=level_of(request, chosen),
    )


def _kept(request: Request, chosen: Candidate) -> Schedule:
    """The schedule, with what is made durable and where it begins."""
    begin, commits = request.begin or Begin(0, 0), _commit_sweeps(request, chosen)
    # A face that reaches below the grid spares nothing.
    planes = begin.planes if begin.planes > chosen.schedule.lean(begin.depth) else 0
    return replace(
        chosen.schedule,
        commit_planes=_commit_planes(request, chosen),
        commit_sweeps=commits if chosen.schedule.sweeps > commits else 0,
        begin=Point(0, begin.part, planes),
    )


def _notes(request: Request, chosen: Candidate) -> Iterator[str]:
    """What a reader of the plan has to know."""
    problem, sizing, schedule = request.problem, request.sizing, chosen.schedule
    yield from _notes_on_steps(problem)
    if schedule.blocks is not None:
        yield from chosen.notes
        yield from notes_on_commits(request.options, _whole_sweeps(request, chosen))
        return
    subgrid = sizing.domain.subgrid
    if subgrid.cut[0] > 1:
        way = "downward" if subgrid.downward else "upward"
        against = "opposite to" if subgrid.opposite else "as"
        yield f"planes pass {way}, {against} the neighbours along z"
        if sizing.with_seams:
            does = (
                "writes seams at its cuts"
                if subgrid.upright
                else "reads the seams of its neighbours"
            )
            yield f"nothing is computed twice: this rank {does}"
    if chosen.parts > 1:
        yield (
            f"planes pass in {chosen.parts} strips of {chosen.schedule.strips.height} "
            "rows; planes at their seams are written and read again"
            + (", also across the periodic end" if sizing.across.periodic else "")
        )
    closing = schedule.cutting.closing(schedule.depth, STREAMED)
    if closing is not None:
        again = format_count(closing.reach, "plane")
        seam = "" if chosen.schedule.resident else "leave a seam in each sweep and "
        yield (
            f"periodic along {request.streamed}: the first {again} {seam}are updated again at"
            f" {'the end of each sweep' if chosen.schedule.resident else 'its end'}"
        )
    elif sizing.streamed.periodic:
        yield f"periodic along {request.streamed}: every step updates the whole grid"
    for name, share in sorted(chosen.traffic.packed.items()):
        yield f"{name} is packed before the first sweep, into about {format_share(share)}"
    for name in problem.series:
        yield f"{name} is read again in each step from {problem.initial[name]}"
    if problem.until is not None:
        yield (f"ends when {problem.until.rule}; all numbers are for {problem.steps} steps")
    for name, lagged in problem.lagged.items():
        yield (
            f"{name} is {lagged.rule}: sweeps have at most {format_count(lagged.lag, 'step')}, "
            "and each begins after the one before it has ended"
        )
    yield from _notes_on_rates(request.calibration)
    levels = format_count(tile_levels(chosen.tile, problem), "step")
    across = "rows" if problem.stencil.ndim == 3 else "columns"
    if chosen.tile.order == "diamond":
        yield (
            f"diamond tiles of {chosen.tile.rows} {across} make {levels} in cache"
            + (f", {chosen.tile.columns} columns at a time" if chosen.tile.columns else "")
            + (f", in bands of {chosen.tile.band} rows" if chosen.tile.band else "")
        )
    yield from _notes_in_vain(request, chosen)


def _notes_on_steps(problem: Problem) -> Iterator[str]:
    """What is asked for after steps that are not made. Those of a resumed run are what is left."""
    away = "{} steps away, and " + format_count(problem.steps, "step") + " will be made"
    for name, snapshot in snapshots_by_file(problem.snapshots).items():
        if 0 < problem.steps < snapshot.begin:
            yield f"{name} gets nothing: its next state is {away.format(snapshot.begin)}"
    until = problem.until
    if until is not None and 0 < problem.steps < until.begin:
        yield f"{until.reduction} ends nothing: its next check is {away.format(until.begin)}"


def _notes_on_rates(calibration: Calibration | None) -> Iterator[str]:
    """Where the rate of the kernel comes from."""
    yield "kernel rate measured" if calibration else "kernel rate estimated"
    if calibration is not None and calibration.disturbed:
        share = format_share(calibration.others_share)
        yield (
            f"other programs took {share} of the processors while the kernel was measured:"
            " the next long run measures it again, or `outgrid tune`"
        )


def _notes_in_vain(request: Request, chosen: Candidate) -> Iterator[str]:
    """What was asked for, and means nothing to what was chosen."""
    options = request.options
    if options.slab_planes not in (None, chosen.schedule.slab_planes):
        yield "slab_planes has no effect: every step updates the whole grid"
    for name in ("tile_columns", "tile_band", "tile_fetch"):
        if options.given(name) is not None and chosen.tile.order != "diamond":
            yield f"{name} has no effect: planes are updated step by step, without diamonds"
    if options.tile_stream and not chosen.tile.stream:
        yield "tile_stream has no effect: several steps are made in cache"
    if not chosen.schedule.resident:
        yield from notes_on_commits(options, _whole_sweeps(request, chosen))


def _whole_sweeps(request: Request, chosen: Candidate) -> str:
    """Why a sweep becomes durable as a whole only; empty where it does so bit by bit."""
    if not request.can_roll:
        return "reductions must count every cell once"
    if chosen.schedule.cutting.closes and chosen.parts > 1:
        return "strips of a periodic axis exchange seams"
    return ""


def _commit_planes(request: Request, chosen: Candidate) -> int:
    """Planes between two commits within a sweep, 0 where there are none."""
    if chosen.schedule.resident or not chosen.schedule.depths or request.part is not None:
        return 0
    if _whole_sweeps(request, chosen):
        return 0
    schedule, planes = chosen.schedule, chosen.parts * request.problem.shape[0]
    cut = any(seam.axis == ACROSS for seam in schedule.seams)
    every = commit_planes(request.options, _sweep_seconds(chosen), planes, bool(schedule.seams))
    # Strips need a flush each and a second place for seams: not where a sweep is over sooner.
    return 0 if cut and every == planes and request.begin is None else every


def _commit_sweeps(request: Request, chosen: Candidate) -> int:
    """Sweeps between two commits of a resident grid, 0 for streamed ones."""
    if not chosen.schedule.resident or not chosen.schedule.depths:
        return 0
    seconds = request.options.commit_seconds
    if seconds is None:
        moving = transfer_seconds(request.machine, 0, chosen.traffic.moved_bytes[1])
        seconds = max(COMMIT_SECONDS, WORTH_KEEPING * moving)
    sweeps = math.ceil(min(seconds / _sweep_seconds(chosen), len(chosen.schedule.depths)))
    return max(1, sweeps)


def _sweep_seconds(chosen: Candidate) -> float:
    return max(1e-9, chosen.prediction.seconds / len(chosen.schedule.depths))
