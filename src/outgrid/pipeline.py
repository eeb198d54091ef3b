"""The road of the data: define, plan, build, execute, record. A reader starts here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from outgrid import distributed
from outgrid.comm import Comm, Serial
from outgrid.config import RunOptions
from outgrid.errors import Error, Stopped, UsageError
from outgrid.execute.fill import check_inputs
from outgrid.execute.kernels import another_compiler, check_kernel, compiled
from outgrid.execute.stop import Stop, stop_in_time
from outgrid.execute.streaming import Listener, say
from outgrid.execution import Execution, open_transfers
from outgrid.machine import Machine
from outgrid.observe import files_of
from outgrid.plan.commits import Begin
from outgrid.plan.model import Plan
from outgrid.planning import Planning
from outgrid.probe.profile import known_machine
from outgrid.purposes import Start, check_purposes
from outgrid.record import RECORD_NAME, read_record
from outgrid.remote.borrowed import Borrowed, borrowed, lend
from outgrid.result import Result
from outgrid.runs.former import Former, former
from outgrid.runs.frames import by_planes, sums_within
from outgrid.runs.group import on_disk, read_group
from outgrid.runs.inputs import refused
from outgrid.runs.lock import RunLock
from outgrid.runs.places import (
    SPREAD_SUFFIX,
    Spread,
    check_devices,
    claimed,
    erase_devices,
    is_spread,
)
from outgrid.runs.run import Run
from outgrid.runs.space import check_parents, check_space, folders_to_make
from outgrid.runs.state import Manifest, RunFolder, at_start_of_sweep, check_begun
from outgrid.stencil.problem import Problem
from outgrid.storage import is_device
from outgrid.tiers import COPIED_TIERS

ALONE = Serial()


def plan(
    problem: Problem,
    options: RunOptions,
    machine: Machine | None = None,
    begin: Begin | None = None,
    *,
    comm: Comm = ALONE,
) -> Plan:
    """The plan that a run would follow, from what is known of the kernel's rate by now.

    Compiles and measures nothing; the first long run of a kernel measures it for later plans. All
    ranks of ``comm`` call this, and get the same: where they share the grid that of rank 1, which
    has neighbours; on tier remote that of rank 0, with what each of the others is to lend it.
    ``machine``, which stands in for this one, is for one process.
    """
    if machine is not None:
        check_purposes(options, Start(alone=True))
        return _alone(options.of_rank(0), machine).first(problem, begin)
    if shared(options, comm):
        check_purposes(options, Start(alone=False))
        mine = options.of_rank(comm.rank)
        chosen = distributed.planning(mine, comm).first(problem)
        return comm.share(chosen)[min(1, comm.size - 1)]
    check_purposes(options, Start(alone=True))
    if comm.size == 1:
        return _plan_alone(problem, options.of_rank(0), begin)
    found: Plan | Error | None = None
    try:
        if not lend(options):
            with borrowed(options) as remote:
                assert remote is not None  # on that tier
                found = remote.spread(_plan_alone(problem, options.of_rank(0), begin))
    except Error as error:
        found = error
    found = comm.share(found)[0]
    if isinstance(found, Error):
        raise found
    assert found is not None  # what rank 0 has found
    return found


def _plan_alone(problem: Problem, options: RunOptions, begin: Begin | None) -> Plan:
    chosen = _alone(options, known_machine(_folder(options).scratch)).first(problem, begin)
    return replace(chosen, notes=(*chosen.notes, *folders_to_make(options)))


def _alone(options: RunOptions, machine: Machine) -> Planning:
    return Planning(options, machine, ALONE, False, _folder(options).scratch)


def shared(options: RunOptions, comm: Comm) -> bool:
    """Whether all ranks share the grid; else one of them has it, and others lend memory."""
    return comm.size > 1 and options.tier != "remote"


def run(
    problem: Problem,
    options: RunOptions,
    progress: Listener | None = None,
    stop: Stop | None = None,
    *,
    comm: Comm = ALONE,
    overwrite: bool = False,
) -> Result:
    """Run a problem on all ranks of ``comm``, each of which calls this alike.

    Its fields and its record are left in ``options.out``, which all of them have to see;
    ``options.scratch`` is a folder of each rank's own where "{rank}" stands in it.
    ``options.memory_bytes`` is what each may use.

    To ``overwrite`` is to remove, once a plan and a kernel are there, what a former run has left.
    Raises Stopped where ``stop`` or a limit of time ends the run early, and it can be resumed.
    """
    if shared(options, comm):
        return distributed.run(problem, options, progress, stop, comm=comm, overwrite=overwrite)
    check_purposes(options, Start(alone=True))
    if lend(options):
        return _left(_folder(options).out)
    kept = options.kept(options.results)
    options = options.of_rank(0)
    with borrowed(options) as remote:
        return _run(problem, options, kept, progress, stop, remote, overwrite)


def _run(
    problem: Problem,
    options: RunOptions,
    kept: dict[str, Any],
    progress: Listener | None,
    stop: Stop | None,
    remote: Borrowed | None,
    overwrite: bool,
) -> Result:
    stop = stop or Stop()
    stop_in_time(stop, options.stop_after_seconds)
    folder = _folder(options)
    check_parents(options)
    made, machine = folders_to_make(options), known_machine(folder.scratch)
    planning = _alone(options, machine)
    chosen = planning.first(problem)
    check_inputs(problem)
    say(progress, *made)
    kernel = compiled(problem, options, ALONE, progress)
    chosen = planning.measured(chosen, problem, kernel, progress)
    chosen = replace(chosen, notes=(*chosen.notes, *made))
    folder = _spread(folder, problem, options, chosen)
    if remote is not None:
        chosen = remote.spread(chosen)
    before = former(folder.out) if overwrite else None
    if before is not None:
        before.check_inputs(problem)
    check_space(chosen, folder, before.freed_bytes if before is not None else None)
    with RunLock(folder.out), claimed(_devices(folder)):
        before = former(folder.out) if overwrite else None
        devices = _check_free(problem, options, chosen, folder, before)
        if before is not None:
            before.remove()
        erase_devices(devices)
        with open_transfers(chosen, options) as transfers:
            beside = files_of(problem, options)
            begun = Run.new(problem, options, chosen, folder, Serial(), beside, kept)
            execution = Execution(begun, machine, transfers, remote)
            try:
                stores = execution.begin()
                execution.fill(stores, progress)
            except BaseException:
                execution.close()
                if execution.manifest.steps_done < 0:  # else it can be resumed
                    with suppress(OSError):  # what stays there is listed by outgrid clean
                        folder.abandon(execution.manifest)
                raise
            return execution.sweep(stores, kernel, progress, stop)


def resume(
    out: Path,
    options: RunOptions,
    progress: Listener | None = None,
    stop: Stop | None = None,
    changes: Sequence[str] = (),
    *,
    comm: Comm = ALONE,
) -> Result:
    """Go on with an unfinished run from its last durable state, on any number of ranks; see `run`.

    ``changes`` say how the options differ from those it had; they are told and recorded.
    """
    if shared(options, comm) or (options.tier != "remote" and read_group(out) is not None):
        return distributed.resume(out, options, progress, stop, changes, comm=comm)
    check_purposes(options, Start(alone=True, resumed=True))
    if lend(options):
        return _left(out)
    with borrowed(options) as remote:
        return _resume(out, options, progress, stop, remote, changes)


def _resume(
    out: Path,
    options: RunOptions,
    progress: Listener | None,
    stop: Stop | None,
    remote: Borrowed | None,
    changes: Sequence[str],
) -> Result:
    stop = stop or Stop()
    stop_in_time(stop, options.stop_after_seconds)
    RunFolder.of_manifest(out)
    with RunLock(out):
        on_disk(out).tidy()
        folder, manifest = RunFolder.of_manifest(out)
        if not manifest.durable:
            raise UsageError(
                f"the run in {out} kept its fields in memory, on tier swap or remote, which ended "
                f"with its processes: nothing can be resumed; clear it with outgrid clean {out} "
                "--delete and run it again"
            )
        if options.passing:
            raise UsageError(
                f"a run is resumed from its files, and tier {options.tier} keeps none: choose "
                "direct, mmap, memory, or remote with keep = 'disk'"
            )
        check_begun(manifest, out)
        if folder.spread is not None and options.tier in COPIED_TIERS and not options.in_place:
            raise UsageError(
                f"the fields of the run in {out} are spread over several places, which tier "
                f"{options.tier} cannot do: choose direct or memory"
            )
        _check_stays(options.of_rank(0), folder)
        machine = known_machine(folder.scratch)
        whole = Problem.from_dict(manifest.problem)
        if manifest.ended:
            whole = whole.ending(manifest.steps_done)
        rest = whole.after(manifest.steps_done)
        if rest.steps or not manifest.exported:
            folder.check_owner(manifest)
        begin = None
        if (manifest.part or manifest.planes) and _goes_on_within(manifest, whole, options):
            begin = Begin(manifest.depth, manifest.planes, manifest.part, manifest.cut)
        planning = _alone(options, machine)
        chosen = planning.first(rest, begin)
        kernel = compiled(rest, options, ALONE, progress)
        say(progress, *another_compiler(manifest.parts, kernel))
        chosen = planning.measured(chosen, rest, kernel, progress, begin)
        if remote is not None:
            chosen = remote.spread(chosen)
        changes = [*changes, *_other_tier(manifest.tier, chosen.tier, changes)]
        say(progress, *changes)
        chosen = replace(chosen, notes=(*chosen.notes, *changes))
        with claimed(_devices(folder)), open_transfers(chosen, options) as transfers:
            before, kept = _taken_over(manifest, folder, chosen), options.kept(out)
            found = Run.resumed(rest, options, chosen, folder, before, Serial(), kept)
            execution = Execution(found, machine, transfers, remote)
            folder.write_manifest(execution.manifest)
            # With all steps made, results may be in place already.
            stores = execution.open_stores() if rest.steps or not manifest.exported else {}
            return execution.sweep(stores, kernel, progress, stop)


def _goes_on_within(manifest: Manifest, whole: Problem, options: RunOptions) -> bool:
    """Whether all that is durable of the sweep under way can be compared with its checksums.

    Else the sweep begins again.
    """
    if options.tier == "remote" and not by_planes(whole, manifest.cut):
        return False  # what is there is copied to other nodes at once
    within = sums_within(whole, manifest.steps_done, manifest.depth, manifest.cut)
    return within or not manifest.sealed


def _check_stays(options: RunOptions, folder: RunFolder) -> None:
    """Raise UsageError where a run is to go on in other places than its files are in."""
    spread = folder.spread
    kept = spread.paths if spread is not None else (folder.scratch,)
    stripe_bytes = spread.stripe_bytes if spread is not None else 0
    asked = {place.resolve() for place in options.places}
    if (asked and asked != {place.resolve() for place in kept}) or (
        options.stripe_bytes not in (0, stripe_bytes)
    ):
        striped = f", in stripes of {stripe_bytes}" if stripe_bytes else ""
        raise UsageError(
            f"the run goes on where its files are, {', '.join(map(str, kept))}{striped}: leave "
            "scratch and stripe out, or give these"
        )


def _other_tier(before: str, now: str, changes: Sequence[str]) -> Iterator[str]:
    """That a plan has come to another tier, unless it was asked to."""
    if before not in ("", now) and not any(each.startswith("tier ") for each in changes):
        yield f"tier {before} -> {now}"


def _taken_over(manifest: Manifest, folder: RunFolder, chosen: Plan) -> Manifest:
    """The manifest with the files of a plan that goes on, and as much as that builds on."""
    if not chosen.schedule.begin.begun:
        # The sweep begins again, perhaps with another depth: what is there of it is void.
        manifest = at_start_of_sweep(manifest)
    files = dict.fromkeys(
        (*manifest.files, *folder.working_names(chosen.schedule.arrivals, chosen.schedule.places))
    )
    return msgspec.structs.replace(
        manifest, planes=chosen.schedule.begin.planes, files=tuple(files)
    )


def _left(out: Path) -> Result:
    """What rank 0 left, for a rank that has lent it memory. Raises Stopped if that is no result."""
    if not (out / RECORD_NAME).exists():
        raise Stopped(f"rank 0, which this rank lent its memory, left no result in {out}")
    return Result(out, read_record(out))


def _folder(options: RunOptions) -> RunFolder:
    out = options.results
    own = out / "scratch"
    if any(is_device(place) for place in options.places):
        return RunFolder(out, own)
    return RunFolder(out, options.scratch or own)


def _spread(folder: RunFolder, problem: Problem, options: RunOptions, chosen: Plan) -> RunFolder:
    """The folder of a run whose fields are spread, if its options ask for several places."""
    if not is_spread(options):
        return folder
    if options.tier in COPIED_TIERS:
        raise UsageError(
            f"tier {options.tier} keeps no fields on block devices, and scratch names "
            f"{options.places[0]}: name a folder, or choose tier direct"
        )
    names = dict.fromkeys(
        folder.path(level, parity).with_suffix(SPREAD_SUFFIX).name
        for level in chosen.schedule.arrivals
        for parity in (0, 1)
    )
    spread = Spread.over(options.places, (*names,), options.stripe_bytes, problem.field_bytes)
    return replace(folder, spread=spread)


def _devices(folder: RunFolder) -> tuple[Path, ...]:
    """The raw devices that fields are on."""
    return folder.spread.paths if folder.spread is not None and folder.spread.on_devices else ()


def _check_free(
    problem: Problem,
    options: RunOptions,
    chosen: Plan,
    folder: RunFolder,
    before: Former | None = None,
) -> tuple[Path, ...]:
    """Raise UsageError if a run would find anything where it writes, but of a run ``before`` that
    it replaces; devices that may be erased."""
    beside = files_of(problem, options)
    replaced = before.files if before is not None else ()
    folder.check_free(
        chosen.schedule.arrivals, beside, chosen.schedule.places, options.erase, replaced
    )
    return check_devices(_devices(folder), options.erase)


def objections(
    problem: Problem, options: RunOptions, chosen: Plan, *, comm: Comm = ALONE
) -> list[str]:
    """What a run of a plan would be refused for here and now: its inputs, where it would write.

    All ranks of ``comm`` call this, and are told what is against any of them.
    """
    if shared(options, comm):
        found = distributed.objections(problem, options, comm)
    else:
        found = [] if comm.rank else _objections_alone(problem, options, chosen, comm)
    return [each for said in comm.share(found) for each in said]


def _objections_alone(problem: Problem, options: RunOptions, chosen: Plan, comm: Comm) -> list[str]:
    def check_places() -> None:
        check_parents(options.of_rank(0))
        folder = _spread(_folder(options.of_rank(0)), problem, options, chosen)
        check_space(chosen, folder)
        with claimed(_devices(folder)):
            _check_free(problem, options, chosen, folder)

    def check_lenders() -> None:
        with borrowed(options):
            pass

    checks = [partial(check_inputs, problem), partial(check_kernel, problem, options), check_places]
    checks += [check_lenders] * (comm.size == 1)  # else they were there for the plan
    return [line for check in checks for line in refused(check)]
