"""The road of the data on several ranks: each runs its part of the grid; here they meet."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from outgrid.comm import Comm
from outgrid.config import RunOptions
from outgrid.durable import partial_path
from outgrid.errors import UsageError
from outgrid.execute.device import DeviceKernel
from outgrid.execute.fill import check_inputs
from outgrid.execute.kernel import Kernel
from outgrid.execute.kernels import another_compiler, check_kernel, compiled
from outgrid.execute.stop import Stop, stop_in_time
from outgrid.execute.streaming import Listener, say
from outgrid.execution import Execution, open_transfers
from outgrid.observe import Noted, files_of
from outgrid.plan.model import Plan
from outgrid.planning import Planning, least_of
from outgrid.probe.profile import known_machine
from outgrid.purposes import Start, check_purposes
from outgrid.record import (
    RECORD_NAME,
    Part,
    PieceFile,
    RankPart,
    Record,
    combine,
    combine_ranks,
    compilers_of,
    read_record,
    write_record,
)
from outgrid.result import Result
from outgrid.runs.former import former
from outgrid.runs.group import (
    GROUP_NAME,
    Durable,
    Group,
    Share,
    abandon,
    durable,
    new_folders,
    on_disk,
    read_group,
    write_group,
)
from outgrid.runs.inputs import refused
from outgrid.runs.lock import LOCK_NAME, RunLock
from outgrid.runs.run import Run
from outgrid.runs.space import check_parents, check_space, check_usable, folders_to_make
from outgrid.runs.state import MANIFEST_NAME, REDUCTIONS_NAME, TRACES_NAME, RunFolder, way_out
from outgrid.stencil.problem import Problem
from outgrid.storage.sums import sums_digest
from outgrid.version import __version__

SHARING = Start(alone=False)


def run(
    problem: Problem,
    options: RunOptions,
    progress: Listener | None = None,
    stop: Stop | None = None,
    *,
    comm: Comm,
    overwrite: bool = False,
) -> Result:
    """Run a problem on all ranks of ``comm``, each of which calls this alike; see `pipeline.run`.

    ``options.out`` has to be seen by all of them, ``options.scratch`` is a folder of each rank's
    own where "{rank}" stands in it. ``options.memory_bytes`` is what each may use.
    """
    check_purposes(options, SHARING)
    out = options.results
    kept = options.kept(out)
    options = msgspec.structs.replace(options.of_rank(comm.rank), out=out)
    check_parents(options)
    made = folders_to_make(options)
    names = files_of(problem, options)
    if overwrite:
        former(out).check_inputs(problem)
    with _meeting(out, comm, new=True, names=names, overwrite=overwrite):
        ranks = _Together(problem, options, comm, out, _stopping(stop, options), progress, kept)
        check_inputs(problem)
        say(progress, *made)
        kernel, plans = compiled(problem, options, comm, progress), planning(options, comm)
        chosen = plans.measured(plans.first(problem), problem, kernel, progress)
        chosen = replace(chosen, notes=(*chosen.notes, *made))
        comm.share(None)  # every rank has a plan
        if overwrite and comm.rank == 0:
            former(out).remove()
        comm.share(None)
        return ranks.begin(problem, chosen, kernel, 0, None)


def objections(problem: Problem, options: RunOptions, comm: Comm) -> list[str]:
    """What a run would be refused for here and now by this rank.

    Where a plan was found, the disks have room for it.
    """
    out = options.results
    mine = options.of_rank(comm.rank)
    checks: list[Callable[[], object]] = [
        partial(check_parents, mine),
        partial(check_usable, out),
        partial(check_usable, scratch_of(mine)),
    ]
    if comm.rank == 0:
        checks.append(partial(check_inputs, problem))
        checks.append(partial(check_kernel, problem, mine))
        checks.append(partial(check_free, out, files_of(problem, options)))
    return [f"rank {comm.rank}: {each}" for check in checks for each in refused(check)]


def resume(
    out: Path,
    options: RunOptions,
    progress: Listener | None = None,
    stop: Stop | None = None,
    changes: Sequence[str] = (),
    *,
    comm: Comm,
) -> Result:
    """Go on with an unfinished run, on any number of ranks; see `pipeline.resume`."""
    check_purposes(options, SHARING)
    with _meeting(out, comm, new=False):
        if (out / RECORD_NAME).exists():
            return _tidy(out, comm)
        found = durable(out)
        whole = Problem.from_dict(found.problem)
        rest = (whole.ending(found.steps) if found.ended else whole).after(found.steps)
        kept = options.kept(out)
        options = msgspec.structs.replace(options.of_rank(comm.rank), out=out)
        ranks = _Together(whole, options, comm, out, _stopping(stop, options), progress, kept)
        say(progress, *changes)
        kernel, plans = compiled(rest, options, comm, progress), planning(options, comm)
        say(progress, *another_compiler(found.parts, kernel))
        chosen = plans.as_before(rest, found)
        if chosen is not None and found.group is not None:
            chosen = replace(chosen, notes=(*chosen.notes, *changes))
            return ranks.go_on(rest, chosen, kernel, found, found.group)
        for share in found.shares:
            share.folder.check_owner(share.manifest)
        chosen = plans.measured(plans.first(rest), rest, kernel, progress)
        chosen = replace(chosen, notes=(*chosen.notes, *changes))
        return ranks.begin(rest, chosen, kernel, found.steps, found)


@contextmanager
def _meeting(
    out: Path, comm: Comm, *, new: bool, names: tuple[str, ...] = (), overwrite: bool = False
) -> Generator[None]:
    """Rank 0 holds the lock of the run's folder, which all ranks see, as long as they work.

    A ``new`` run is going to leave ``names`` there, and may ``overwrite`` those of a former one.
    """
    if comm.rank:
        comm.share(None)
        _check_shared(out, comm)
        yield
        return
    if not new and read_group(out) is None:
        RunFolder.of_manifest(out)
    with RunLock(out):
        if new:
            check_free(out, names, former(out).files if overwrite else ())
        on_disk(out).tidy()
        comm.share(None)
        _check_shared(out, comm)
        yield


def _check_shared(out: Path, comm: Comm) -> None:
    seen = comm.share((socket.gethostname(), (out / LOCK_NAME).exists()))
    for rank, (host, there) in enumerate(seen):
        if not there:
            raise UsageError(
                f"rank {rank} on {host} does not see {out.absolute()} as rank 0 on {seen[0][0]} "
                "does; give --out a folder of a file system that all ranks share"
            )


def check_free(out: Path, names: tuple[str, ...], replaced: Collection[Path] = ()) -> None:
    begun = tuple(partial_path(Path(name)).name for name in names)
    left = (RECORD_NAME, TRACES_NAME, REDUCTIONS_NAME, *names, *begun)
    for name in (GROUP_NAME, MANIFEST_NAME, *left):
        if os.path.lexists(out / name) and out / name not in replaced:
            unfinished = GROUP_NAME if name == GROUP_NAME else MANIFEST_NAME
            raise UsageError(
                f"{out / name} exists and is not overwritten; {way_out(out, unfinished)}"
            )


def planning(options: RunOptions, comm: Comm) -> Planning:
    scratch = scratch_of(options)
    return Planning(options, least_of(known_machine(scratch), comm), comm, True, scratch)


def scratch_of(options: RunOptions) -> Path:
    """The folder in which a rank makes that of its working files."""
    return options.scratch or options.results / "scratch"


def _stopping(stop: Stop | None, options: RunOptions) -> Stop:
    stop = stop or Stop()
    stop_in_time(stop, options.stop_after_seconds)
    return stop


def _tidy(out: Path, comm: Comm) -> Result:
    """A run whose record is written: only what it left behind is to be removed."""
    record = read_record(out)
    if comm.rank == 0:
        for share in on_disk(out).shares:
            abandon(out, share)
        (out / GROUP_NAME).unlink(missing_ok=True)
    comm.share(None)
    return Result(out, record)


@dataclass(frozen=True, slots=True)
class _Together:
    """What all steps of a run on several ranks have in common."""

    problem: Problem
    options: RunOptions
    comm: Comm
    out: Path
    stop: Stop
    progress: Listener | None
    kept: dict[str, Any]

    def begin(
        self,
        rest: Problem,
        chosen: Plan,
        kernel: Kernel | DeviceKernel,
        done: int,
        found: Durable | None,
    ) -> Result:
        """Make new files, from initial values or from what is durable, and run all steps."""
        comm, out = self.comm, self.out
        names = comm.share(new_folders(out, comm.size))[0]  # before any of them is made
        name = names[comm.rank]
        folder = RunFolder(out / name, scratch_of(self.options) / name)
        check_space(chosen, folder)
        folder.check_free(chosen.schedule.arrivals)
        subgrid = chosen.schedule.subgrid
        assert subgrid is not None  # of a plan of ranks
        group = Group(
            version=__version__,
            problem=self.problem.to_dict(),
            plane_bounds=subgrid.plane_bounds,
            row_bounds=subgrid.row_bounds,
            folders=names,
            depths=chosen.schedule.depths,
            done=done,
            seams=subgrid.seams,
            parts=found.parts if found is not None else (),
        )
        if found is None and comm.rank == 0:
            write_group(out, group)
        comm.share(None)
        with open_transfers(chosen, self.options) as transfers:
            beside = files_of(self.problem, self.options, alone=False)
            begun = Run.new(rest, self.options, chosen, folder, comm, beside, self.kept, found)
            execution = Execution(begun, known_machine(folder.scratch), transfers)
            stores = execution.begin(found)
            fields = found.fields(chosen.schedule.arrivals) if found is not None else None
            execution.fill(stores, self.progress, fields)
            comm.share(None)
            if found is not None:
                if comm.rank == 0:
                    write_group(out, group)
                    for share in found.shares:
                        abandon(out, share)
                comm.share(None)
            execution.carry(stores, kernel, self.progress, self.stop)
            return self._finish(execution, group)

    def go_on(
        self,
        rest: Problem,
        chosen: Plan,
        kernel: Kernel | DeviceKernel,
        found: Durable,
        group: Group,
    ) -> Result:
        """Run the steps that are left in the files that are there."""
        comm, share = self.comm, found.shares[self.comm.rank]
        manifest = share.manifest
        if rest.steps:
            share.folder.check_owner(manifest)
        if manifest.steps_done != found.steps:
            # Other ranks do not have this state yet; from now on it is not counted on.
            manifest = msgspec.structs.replace(
                manifest, steps_done=found.steps, parity=found.parity(share), ended=""
            )
            share.folder.write_manifest(manifest)
        comm.share(None)
        with open_transfers(chosen, self.options) as transfers:
            gone = Run.resumed(rest, self.options, chosen, share.folder, manifest, comm, self.kept)
            execution = Execution(gone, known_machine(share.folder.scratch), transfers)
            share.folder.write_manifest(execution.manifest)
            stores = execution.open_stores() if rest.steps else {}
            execution.carry(stores, kernel, self.progress, self.stop)
            return self._finish(execution, group)

    def _finish(self, execution: Execution, group: Group) -> Result:
        """Put the results in place, everywhere, then say so in one record."""
        comm, out, manifest = self.comm, self.out, execution.manifest
        chosen, folder = execution.run.plan, execution.run.folder.out
        fields, noted = execution.place(), execution.place_observed()
        parts, mine = execution.parts(), execution.run.owned
        told: dict[str, Any] = {
            "rank": RankPart(
                rank=comm.rank,
                low=chosen.schedule.owned.start,
                high=chosen.schedule.owned.stop,
                low_row=chosen.schedule.owned_rows.start,
                high_row=chosen.schedule.owned_rows.stop,
                host=socket.gethostname(),
                measured=combine(parts),
                plan=chosen.to_dict(),
            ),
            "folder": folder.name,
            "files": {name: f"{folder.name}/{file}" for name, file in fields.items()},
            "sums": {
                name: sums_digest(folder / file, execution.sealed()[name])
                for name, file in fields.items()
            },
            "seals": execution.sealed(),
            "first": (manifest.first, manifest.first_row),
            "warnings": execution.account.filled.warnings,
        }
        every = comm.share(told)
        record = self._record(execution, every, group.parts, parts, comm.share(noted)[0])
        if comm.rank == 0:
            write_record(record, out)
        comm.share(None)
        abandon(out, Share(execution.run.folder, execution.manifest, mine))
        comm.share(None)
        if comm.rank == 0:
            (out / GROUP_NAME).unlink()
        return Result(out, record)

    def _record(
        self,
        execution: Execution,
        every: list[dict[str, Any]],
        before: tuple[Part, ...],
        parts: tuple[Part, ...],
        noted: Noted,
    ) -> Record:
        ranks: list[RankPart] = [each["rank"] for each in every]
        together = combine_ranks([rank.measured for rank in ranks])
        pieces = {
            name: tuple(
                PieceFile(
                    file=each["files"][name],
                    first=each["first"][0],
                    low=r.low,
                    high=r.high,
                    first_row=each["first"][1],
                    low_row=r.low_row,
                    high_row=r.high_row,
                )
                for each, r in zip(every, ranks, strict=True)
            )
            for name in every[0]["files"]
        }
        files = [
            (f"{Path(file).parent.name}/{name}", file, each["sums"][name], each["seals"][name])
            for each in every
            for name, file in each["files"].items()
        ]
        return Record(
            version=__version__,
            started=(*before, *parts)[0].started,
            problem=execution.manifest.problem,
            plan=execution.run.plan.to_dict(),
            machine=execution.machine.to_dict(),
            measured=combine((*before, msgspec.structs.replace(parts[-1], measured=together))),
            fields={name: file for name, file, *_ in files},
            warnings=(
                *dict.fromkeys(text for each in every for text in each["warnings"]),
                *compilers_of(part.compiler for part in (*before, *parts)),
            ),
            parts=(*before, *parts),
            ended=noted.ended,
            checksums={name: digest for name, _, digest, _ in files} | noted.checksums,
            seals={name: seal for name, *_, seal in files} | noted.seals,
            ranks=tuple(ranks),
            pieces=pieces,
        )
