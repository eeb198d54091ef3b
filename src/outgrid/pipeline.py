"""The road of the data: define, plan, build, execute, record. A reader starts here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from outgrid.build.compiler import check_loadable, load
from outgrid.codegen.cuda import generate_cuda
from outgrid.codegen.kernel import generate
from outgrid.comm import Comm, Serial
from outgrid.config import RunOptions
from outgrid.device import describe_device, open_device
from outgrid.errors import (
    BuildError,
    DeviceError,
    Error,
    InfeasiblePlan,
    Stopped,
    StoreError,
    UsageError,
)
from outgrid.execute.calibrate import calibrate, calibration_path, keep, known
from outgrid.execute.device import DeviceKernel
from outgrid.execute.fill import check_inputs
from outgrid.execute.kernel import Kernel
from outgrid.execute.stop import Stop, stop_in_time
from outgrid.execute.streaming import Observer, doing, say
from outgrid.execution import Execution, open_transfers
from outgrid.machine import Accelerator, Machine
from outgrid.observe import files_of
from outgrid.observe.points import Points
from outgrid.plan.calibration import Calibration
from outgrid.plan.commits import Begin
from outgrid.plan.model import Plan
from outgrid.plan.planner import plan as choose
from outgrid.probe.profile import known_machine
from outgrid.probe.wear import device_endurance
from outgrid.purposes import COPIED_TIERS, Start, check_purposes
from outgrid.record import RECORD_NAME, Part, compilers_of, read_record
from outgrid.remote.borrowed import Borrowed, borrowed, lend
from outgrid.result import Result
from outgrid.runs.former import Former, former
from outgrid.runs.frames import by_planes, sums_within
from outgrid.runs.group import on_disk
from outgrid.runs.lock import RunLock
from outgrid.runs.places import SPREAD_SUFFIX, Spread, check_devices, claimed, erase_devices
from outgrid.runs.run import Run
from outgrid.runs.space import check_parents, check_space, folders_to_make
from outgrid.runs.state import Manifest, RunFolder, at_start_of_sweep, check_begun
from outgrid.stencil.problem import Problem
from outgrid.storage import is_device

# Interpreter, libraries, kernel, thread stacks and tables beside the window. Measured at 55 to
# 70 MiB; what a run really took stands in its record.
FIXED_BYTES = 80 << 20
# What MPI itself keeps in a process, measured with MPICH at 18 to 22 MiB on up to 16 ranks of one
# host and at 28 MiB between hosts.
MPI_BYTES = 32 << 20
# The driver and its libraries beside that, where a device is used. Assumed, not measured.
DEVICE_FIXED_BYTES = 512 << 20
# A kernel is measured, in a window of at most so many bytes, before a run expected to take longer.
WORTH_CALIBRATING_SECONDS = 20.0
CALIBRATION_BYTES = 768 << 20
COMPILING = "compiling the kernel"


def plan(
    problem: Problem,
    options: RunOptions,
    machine: Machine | None = None,
    begin: Begin | None = None,
) -> Plan:
    """The plan that a run would follow, from what is known of the kernel's rate by now.

    Compiles and measures nothing; the first long run of a kernel measures it for later plans.
    """
    check_purposes(options, Start(alone=True))
    options = options.of_rank(0)
    if machine is None:
        chosen = plan(problem, options, known_machine(_folder(options).scratch), begin)
        return replace(chosen, notes=(*chosen.notes, *folders_to_make(options)))
    if options.device != "cpu":
        return _plan_on_device(problem, options, machine, begin)
    measured = known_calibration(problem, options, machine)
    return _worn(
        choose(problem, options, machine, fixed_bytes(options), measured, begin), problem, options
    )


def plan_lent(problem: Problem, options: RunOptions, comm: Comm) -> Plan:
    """The plan of rank 0 of ``comm``, on tier remote with what each of the others is to lend it.

    All of them call this, and get the same.
    """
    if options.tier != "remote":
        return plan(problem, options)
    found: Plan | Error | None = None
    if not lend(options):
        try:
            with borrowed(options) as remote:
                assert remote is not None  # on that tier
                found = remote.spread(plan(problem, options))
        except Error as error:
            found = error
    found = comm.share(found)[0]
    if isinstance(found, Error):
        raise found
    assert found is not None  # what rank 0 has found
    return found


def fixed_bytes(options: RunOptions) -> int:
    """What a process needs beside its window and its transfers."""
    return FIXED_BYTES + (MPI_BYTES if options.tier == "remote" else 0)


def _plan_on_device(
    problem: Problem, options: RunOptions, machine: Machine, begin: Begin | None
) -> Plan:
    """The plan of a window on a device: the one that is there, else one of the memory asked for."""
    asked = options.device_memory_bytes
    try:
        found = describe_device(options.device)
    except DeviceError:
        if asked is None:
            raise
        found = Accelerator(asked)
    accelerator = replace(found, memory_bytes=min(found.memory_bytes, asked or found.memory_bytes))
    fixed_bytes = FIXED_BYTES + DEVICE_FIXED_BYTES
    chosen = choose(problem, options, machine, fixed_bytes, None, begin, accelerator=accelerator)
    return _worn(chosen, problem, options)


def _worn(chosen: Plan, problem: Problem, options: RunOptions) -> Plan:
    """The plan with what it takes of the flash beside its sweeps, and what there is to take."""
    copied = not chosen.outlives or _is_spread(options)
    exported = chosen.result_bytes if copied else 0
    endurance = options.endurance_bytes or device_endurance(options.scratch or Path())
    volume = replace(
        chosen.volume,
        exported_bytes=exported,
        snapshot_bytes=problem.snapshot_bytes,
        endurance_bytes=endurance,
    )
    return replace(chosen, volume=volume)


def known_calibration(
    problem: Problem, options: RunOptions, machine: Machine
) -> Calibration | None:
    """What is known of the kernel's rates by now."""
    return known(calibration_path(problem, options, machine))


def calibrated(
    first: Plan,
    problem: Problem,
    options: RunOptions,
    machine: Machine,
    kernel: Kernel,
    progress: Observer | None = None,
) -> Calibration | None:
    """The rates of a kernel that is about to run for long as ``first`` expects; else None."""
    if first.predicted_seconds < WORTH_CALIBRATING_SECONDS:
        return None
    return calibration(problem, options, machine, kernel, progress=progress)


def _calibrated_plan(
    first: Plan,
    problem: Problem,
    options: RunOptions,
    machine: Machine,
    kernel: Kernel | DeviceKernel,
    progress: Observer | None,
    begin: Begin | None = None,
) -> Plan:
    """The plan of a run that is about to start: a kernel that runs for long is measured first.

    One for a device is not: there is one order of updates.
    """
    if isinstance(kernel, DeviceKernel):
        return first
    measured = calibrated(first, problem, options, machine, kernel, progress)
    if measured is None:
        return first
    return _worn(
        choose(problem, options, machine, fixed_bytes(options), measured, begin), problem, options
    )


def calibration(
    problem: Problem,
    options: RunOptions,
    machine: Machine,
    kernel: Kernel,
    again: bool = False,
    progress: Observer | None = None,
) -> Calibration | None:
    """What is known of the kernel's rates; measured now, and kept, where nothing is.

    ``again`` measures in any case. None where the memory limit leaves no room to measure.
    """
    path = calibration_path(problem, options, machine)
    found = None if again else known(path)
    if found is None:
        room = min(CALIBRATION_BYTES, (options.memory_bytes - fixed_bytes(options)) * 3 // 4)
        with doing(progress, "measuring the kernel"):
            found = calibrate(problem, options, machine, kernel, room)
        if found is not None:
            keep(found, path)
    return found


def run(
    problem: Problem,
    options: RunOptions,
    progress: Observer | None = None,
    stop: Stop | None = None,
    *,
    overwrite: bool = False,
) -> Result:
    """Run a problem and leave its fields and its record in ``options.out``.

    To ``overwrite`` is to remove, once a plan and a kernel are there, what a former run has left.
    Raises Stopped where ``stop`` or a limit of time ends the run early, and it can be resumed.
    """
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
    progress: Observer | None,
    stop: Stop | None,
    remote: Borrowed | None,
    overwrite: bool,
) -> Result:
    stop = stop or Stop()
    stop_in_time(stop, options.stop_after_seconds)
    folder = _folder(options)
    check_parents(options)
    made, machine = folders_to_make(options), known_machine(folder.scratch)
    chosen = plan(problem, options, machine)
    check_inputs(problem)
    say(progress, *made)
    with doing(progress, COMPILING):
        kernel = _kernel(problem, options)
    say(progress, *kernel.notes)
    chosen = _calibrated_plan(chosen, problem, options, machine, kernel, progress)
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
    progress: Observer | None = None,
    stop: Stop | None = None,
    changes: Sequence[str] = (),
) -> Result:
    """Go on with an unfinished run from its last durable state; see ``run``.

    ``changes`` say how the options differ from those it had; they are told and recorded.
    """
    check_purposes(options, Start(alone=True, resumed=True))
    if lend(options):
        return _left(out)
    with borrowed(options) as remote:
        return _resume(out, options, progress, stop, remote, changes)


def _resume(
    out: Path,
    options: RunOptions,
    progress: Observer | None,
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
        chosen = plan(rest, options, machine, begin)
        with doing(progress, COMPILING):
            kernel = _kernel(rest, options)
        say(progress, *kernel.notes, *another_compiler(manifest.parts, kernel))
        chosen = _calibrated_plan(chosen, rest, options, machine, kernel, progress, begin)
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


def load_kernel(problem: Problem) -> Kernel:
    """The compiled kernel of a problem with its parameters; from the cache if it is there."""
    return Kernel.of(load(_source(problem)), problem, points=Points.of(problem))


def another_compiler(parts: Iterable[Part], kernel: Kernel | DeviceKernel) -> tuple[str, ...]:
    """What to say where a run goes on with a kernel of another compiler."""
    before = [part.compiler for part in parts if part.compiler]
    return compilers_of([*before[-1:], kernel.compiler])


def _source(problem: Problem) -> str:
    """The source of a kernel."""
    return generate(problem.stencil, problem.dtype, problem.edges, problem.dtypes)


def _kernel(problem: Problem, options: RunOptions) -> Kernel | DeviceKernel:
    """What makes the updates of a run. Raises DeviceError where a device is asked for in vain."""
    if options.device == "cpu":
        return load_kernel(problem)
    source = generate_cuda(problem.stencil, problem.dtype, problem.edges, problem.dtypes)
    return DeviceKernel.of(open_device(options.device, source), problem)


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
    if not _is_spread(options):
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


def _is_spread(options: RunOptions) -> bool:
    return len(options.places) > 1 or any(is_device(place) for place in options.places)


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


def objections(problem: Problem, options: RunOptions, chosen: Plan) -> list[str]:
    """What a run of a plan would be refused for here and now: its inputs, where it would write."""

    def check_places() -> None:
        check_parents(options.of_rank(0))
        folder = _spread(_folder(options.of_rank(0)), problem, options, chosen)
        check_space(chosen, folder)
        with claimed(_devices(folder)):
            _check_free(problem, options, chosen, folder)

    checks = (partial(check_inputs, problem), partial(check_kernel, problem, options), check_places)
    return [line for check in checks for line in refused(check)]


def check_kernel(problem: Problem, options: RunOptions) -> None:
    """Raise what would be raised where a kernel is needed; it is not compiled now."""
    if options.device == "cpu":
        check_loadable(_source(problem))


def refused(check: Callable[[], object]) -> Iterator[str]:
    """What a check says against a run; nothing where it passes."""
    try:
        check()
    except (BuildError, InfeasiblePlan, StoreError, UsageError) as error:
        yield str(error)
