"""What a run claims on disk before it changes anything: new places, or those it has already."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import msgspec

from outgrid.comm import Comm
from outgrid.config import RunOptions
from outgrid.errors import UsageError
from outgrid.plan.model import Plan
from outgrid.purposes import Start, check_purposes
from outgrid.record import RECORD_NAME
from outgrid.runs.group import GROUP_NAME, Durable, abandon, durable, is_shared, on_disk, read_group
from outgrid.runs.places import claimed, devices_of
from outgrid.runs.run import Run
from outgrid.runs.state import Manifest, RunFolder, at_start_of_sweep
from outgrid.sharing.alone import Alone
from outgrid.sharing.base import Sharing, held
from outgrid.sharing.pieces import Pieces
from outgrid.stencil.problem import Problem

__all__ = ["claim", "sharing_of", "stored"]


def sharing_of(options: RunOptions, comm: Comm, begun: Path | None = None) -> Sharing:
    """How this rank of ``comm`` shares a new run, or the one that was ``begun`` in that folder.

    Raises VoidOption for what is asked for and means nothing then.
    """
    out = options.results if begun is None else begun
    group = None if begun is None else read_group(begun)
    alone = not is_shared(options.tier, comm, group)
    check_purposes(options, Start(alone=alone, resumed=begun is not None))
    mine = options.of_rank(0 if alone else comm.rank)
    given = out, msgspec.structs.replace(mine, out=out), options.kept(out)
    return Alone(*given) if alone else Pieces(*given, comm)


@contextmanager
def claim(
    sharing: Sharing,
    problem: Problem,
    chosen: Plan,
    found: Durable | None,
    *,
    stays: bool,
    overwrite: bool,
) -> Generator[Run]:
    """The place of this rank's files for the steps of ``problem``, held as long as they are made.

    It is new, or that of what was ``found`` where a run ``stays``. To ``overwrite`` is to remove
    what a former run has left.
    """
    if found is None:
        place: AbstractContextManager[Run] = sharing.anew(problem, chosen, overwrite)
    elif stays:
        place = _gone_on(sharing, found, problem, chosen)
    else:
        place = nullcontext(sharing.moved(found, chosen))
    with place as run:
        yield run


@contextmanager
def stored(sharing: Sharing) -> Generator[Durable | None]:
    """Lock the unfinished run in a folder: how far it has come; None where its record is written.

    Then only what it left behind was to be removed.
    """
    out, comm = sharing.out, sharing.comm
    if comm.rank == 0 and read_group(out) is None:
        RunFolder.of_manifest(out)
    with held(out, comm):
        if comm.rank == 0:
            on_disk(out).tidy()
        comm.share(None)
        if (out / RECORD_NAME).exists():
            comm.share(None)
            if comm.rank == 0:
                for share in on_disk(out).shares:
                    abandon(out, share)
                (out / GROUP_NAME).unlink(missing_ok=True)
            comm.share(None)
            yield None
            return
        for share in on_disk(out).shares:
            if not share.manifest.durable:
                raise UsageError(
                    f"the run in {out} kept its fields in memory, on tier swap or remote, which "
                    "ended with its processes: nothing can be resumed; clear it with outgrid clean "
                    f"{out} --delete and run it again"
                )
        found = durable(out)
        sharing.check_goes_on(found)
        yield found


@contextmanager
def _gone_on(sharing: Sharing, found: Durable, problem: Problem, chosen: Plan) -> Generator[Run]:
    """Claim the files that are there, to make the steps of ``problem`` in them."""
    share = found.shares[sharing.comm.rank]
    folder, manifest = share.folder, share.manifest
    if problem.steps or not manifest.exported:
        folder.check_owner(manifest)
    if manifest.steps_done != found.steps:
        # Other ranks do not have this state yet; from now on it is not counted on.
        manifest = msgspec.structs.replace(
            manifest, steps_done=found.steps, parity=found.parity(share), ended=""
        )
        folder.write_manifest(manifest)
    sharing.comm.share(None)
    with claimed(devices_of(folder.spread)):
        manifest = _taken_over(manifest, folder, chosen)
        given = problem, sharing.options, chosen, folder, manifest
        yield Run.resumed(*given, sharing.comm, sharing.kept)


def _taken_over(manifest: Manifest, folder: RunFolder, chosen: Plan) -> Manifest:
    """The manifest with the files of a plan that goes on, and as much as that builds on."""
    schedule = chosen.schedule
    if not schedule.begin.begun:
        # The sweep begins again, perhaps with another depth: what is there of it is void.
        manifest = at_start_of_sweep(manifest)
    names = folder.working_names(schedule.arrivals, schedule.places)
    files = dict.fromkeys((*manifest.files, *names))
    return msgspec.structs.replace(manifest, planes=schedule.begin.planes, files=tuple(files))
