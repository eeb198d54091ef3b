"""The road of the data: define, plan, build, execute, record. A reader starts here.

One process is one rank, and several are the same road beside each other. A run that goes on joins
it with what is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from outgrid.build.compiler import vector_bytes
from outgrid.comm import Comm, Serial
from outgrid.config import RunOptions
from outgrid.errors import Stopped
from outgrid.execute.inputs import Inputs, check_inputs, decoding_told
from outgrid.execute.kernels import another_compiler, check_kernel, compiled, compiler_told
from outgrid.execute.lying import copied
from outgrid.execute.packing import sampled
from outgrid.execute.required import check_required
from outgrid.execute.stop import Stop, stop_in_time
from outgrid.execute.streaming import Listener, doing, say
from outgrid.execution import Execution, open_transfers
from outgrid.machine import Machine
from outgrid.plan.commits import Begin
from outgrid.plan.model import Plan
from outgrid.planning import Planning
from outgrid.probe.profile import known_machine
from outgrid.record import RECORD_NAME, read_record, write_record
from outgrid.remote.borrowed import Borrowed, asked, borrowed, check_lenders, lend
from outgrid.result import Result
from outgrid.runs.inputs import refused
from outgrid.runs.reading import check_metrics
from outgrid.runs.resumption import resumption
from outgrid.runs.run import Run
from outgrid.runs.single import check_left, leave_file, remove_copied
from outgrid.runs.space import check_parents, folders_to_make
from outgrid.runs.standing import Standing, standing, what_is_asked
from outgrid.runs.zarr import leave_group
from outgrid.sharing import Beginning, Sharing, record_of, sharing_of, stored
from outgrid.stencil.problem import Problem
from outgrid.storage import Transfers

ONE = Serial()


def plan(
    problem: Problem,
    options: RunOptions,
    machine: Machine | None = None,
    begin: Begin | None = None,
    *,
    comm: Comm = ONE,
) -> Plan:
    """The plan that a run would follow, from what is known of the kernel's rate by now.

    Compiles nothing, and measures nothing but the first piece of files that are decoded; the first
    long run of a kernel measures it for later plans. All
    ranks of ``comm`` call this, and get the same: where they share the grid that of rank 1, which
    has neighbours; on tier remote that of rank 0, with what each of the others is to lend it.
    ``machine``, which stands in for this one, is for one process.
    """
    sharing = sharing_of(options, ONE if machine is not None else comm)
    inputs = Inputs(problem)
    known = sampled(problem, inputs), copied(problem, inputs, sharing)
    if machine is not None:
        with inputs:
            planning = Planning.of(sharing, machine, begin, *known)
            settled = planning.settled(problem)
            return _told(planning.first(settled.problem), settled.told, None)

    def mine(remote: Borrowed | None) -> Plan:
        machine = known_machine(sharing.scratch())
        with inputs:
            shares, uncopied = known
            planning = Planning.of(sharing, machine, begin, shares, uncopied, vector_bytes())
            settled = planning.settled(problem)
            chosen = planning.first(settled.problem)
        folders = folders_to_make(sharing.options)
        told = *settled.told, *folders, *decoding_told(problem), *compiler_told(problem, options)
        return _told(chosen, told, remote)

    plans = asked(options, comm, mine)
    return plans[min(1, len(plans) - 1)]


def forms(problem: Problem, options: RunOptions) -> tuple[Problem, ...]:
    """The forms that a run may compute a problem in, whose temporaries are kept or not."""
    sharing = sharing_of(options, ONE)
    planning = Planning.of(sharing, known_machine(sharing.scratch()), vector_bytes=vector_bytes())
    return planning.forms(problem)


def run(
    problem: Problem,
    options: RunOptions,
    progress: Listener | None = None,
    stop: Stop | None = None,
    *,
    comm: Comm = ONE,
    overwrite: bool = False,
) -> Result:
    """Run a problem on all ranks of ``comm``, each of which calls this alike.

    Its fields and its record are left in ``options.out``, which all of them have to see;
    ``options.scratch`` is a folder of each rank's own where "{rank}" stands in it.
    ``options.memory_bytes`` is what each may use. To ``overwrite`` is to remove, once a plan and a
    kernel are there, what a former run has left.

    Raises Stopped where ``stop`` or a limit of time ends the run early, and it can be resumed.
    """
    sharing = sharing_of(options, comm)
    if lend(options):
        return _left(sharing.out)
    with borrowed(options) as remote, Inputs(problem) as inputs:
        check_parents(sharing.options)
        beginning = Beginning(problem, folders_to_make(sharing.options), overwrite=overwrite)
        return _road(sharing, beginning, inputs, remote, progress, stop or Stop())


def resume(
    out: Path,
    options: RunOptions,
    progress: Listener | None = None,
    stop: Stop | None = None,
    changes: Sequence[str] = (),
    *,
    comm: Comm = ONE,
) -> Result:
    """Go on with an unfinished run from its last durable state, on any number of ranks; see `run`.

    ``changes`` say how the options differ from those it had; they are told and recorded.
    """
    sharing = sharing_of(options, comm, out)
    if lend(options):
        return _left(out)
    with borrowed(options) as remote, stored(sharing) as durable:
        if durable is None:
            return Result(out, read_record(out))
        beginning = Beginning(durable.rest, tuple(changes), durable)
        return _road(sharing, beginning, Inputs(durable.rest), remote, progress, stop or Stop())


def run_or_resume(
    problem: Problem,
    options: RunOptions,
    progress: Listener | None = None,
    stop: Stop | None = None,
    *,
    comm: Comm = ONE,
) -> Result:
    """Run a problem, or go on with its run, or return what it has left: as its folder says.

    A run that was cut off before its initial values were complete begins anew. Raises UsageError
    where the folder holds a run of another problem, with what differs; else see `run`, `resume`.
    """
    out = options.results
    stands = comm.share(standing(out, problem) if comm.rank == 0 else None)[0]
    if stands is Standing.NEW:
        return run(problem, options, progress, stop, comm=comm)
    if stands is Standing.FINISHED:
        record = read_record(out)
        check_left(out, record, options.file)
        say(progress, f"the run in {out} is finished")
        return Result(out, record)
    resumed = resumption(out, what_is_asked(out, options), comm)
    return resume(out, resumed.options, progress, stop, resumed.changes, comm=comm)


def _road(
    sharing: Sharing,
    beginning: Beginning,
    inputs: Inputs,
    remote: Borrowed | None,
    progress: Listener | None,
    stop: Stop,
) -> Result:
    """Make all steps of a problem: of a whole run, or those that are left of it."""
    options, comm = sharing.options, sharing.comm
    problem, durable = beginning.problem, beginning.durable
    stop_in_time(stop, options.stop_after_seconds)
    if comm.rank == 0:
        check_metrics(sharing.options)

    # Plan.
    if durable is not None:
        durable.check_unchanged()
    machine = known_machine(sharing.scratch(durable))
    shares = sampled(problem, inputs, durable)
    uncopied = copied(problem, inputs, sharing, durable)
    planning = Planning.of(
        sharing, machine, shares=shares, copied=uncopied, vector_bytes=vector_bytes()
    )
    settled = planning.settled(problem, durable)
    problem, planning = settled.problem, planning.going_on(settled.problem, durable)
    chosen = planning.first(problem)
    told = *beginning.told, *settled.told
    if durable is None:
        inputs.check()
        told = *told, *inputs.told()
    say(progress, *told)

    # Build.
    parts = durable.parts if durable is not None else ()
    kernel = compiled(problem, options, comm, progress, parts)
    say(progress, *another_compiler(parts, kernel))
    probed = planning.with_disk(chosen, progress)
    if probed is not planning:
        planning, machine, chosen = probed, probed.machine, probed.first(problem)
    chosen = planning.measured(chosen, problem, kernel, progress)
    changed = beginning.other_tier(chosen)
    say(progress, *changed)
    chosen = _told(chosen, (*told, *changed), remote)

    # Execute.
    check_required(chosen, sharing.options, sharing.scratch(durable))
    place = beginning.claim(sharing, chosen, stays=planning.stays)
    with _moving(place, chosen, options) as (begun, transfers):
        execution = Execution(begun, transfers, remote)
        stores = execution.start(durable, progress, inputs)
        sharing.filled(begun, durable)
        execution.carry(stores, kernel, progress, stop)

        # Record.
        with doing(progress, "moving the results into place"):
            fields, noted = execution.place(), execution.place_observed()
        every = comm.share(execution.told(fields))
        record = record_of(sharing, execution.run, machine, every, noted)
        if comm.rank == 0:
            file = options.file
            together = execution.run.folder.together
            leave = partial(leave_file, file=file, together=together) if file else leave_group
            record = leave(sharing.out, record)
            write_record(record, sharing.out)
            remove_copied(sharing.out, record)
        record = comm.share(record)[0]
        sharing.leave(execution.run, execution.manifest)
        return Result(sharing.out, record)


@contextmanager
def _moving(
    place: AbstractContextManager[Run], chosen: Plan, options: RunOptions
) -> Generator[tuple[Run, Transfers]]:
    """A run in its place, and transfers, which end before that is let go of.

    What was there may be removed for it: before that there are transfers.
    """
    with ExitStack() as opened:
        transfers = opened.enter_context(open_transfers(chosen, options))
        with place as begun, opened.pop_all():
            yield begun, transfers


def _told(chosen: Plan, told: Sequence[str], remote: Borrowed | None) -> Plan:
    """The plan with what is to be told beside it."""
    chosen = replace(chosen, notes=(*chosen.notes, *told))
    return chosen if remote is None else remote.spread(chosen)


def _left(out: Path) -> Result:
    """What rank 0 left, for a rank that has lent it memory. Raises Stopped if that is no result."""
    if not (out / RECORD_NAME).exists():
        raise Stopped(f"rank 0 wrote no result in {out}; this rank only lent it memory")
    return Result(out, read_record(out))


def objections(
    problem: Problem, options: RunOptions, chosen: Plan, *, comm: Comm = ONE
) -> list[str]:
    """What a run of a plan would be refused for here and now: its inputs, where it would write.

    All ranks of ``comm`` call this, and are told what is against any of them.
    """
    sharing = sharing_of(options, comm)
    checks: list[Callable[[], object]] = []
    if sharing.comm.rank == comm.rank:
        required = partial(check_required, chosen, sharing.options, sharing.scratch())
        checks = [*sharing.checks(problem, chosen), required]
        checks.append(lambda: open_transfers(chosen, options).close())
    if comm.rank == 0:
        inputs = partial(check_inputs, problem), partial(check_kernel, problem, options)
        metrics = partial(check_metrics, sharing.options)
        checks = [*inputs, *checks, metrics, partial(check_lenders, options, comm)]
    reasons = [sharing.named(line) for check in checks for line in refused(check)]
    return [reason for said in comm.share(reasons) for reason in said]
