"""What the road asks of a run that is alone in its folder, and of one in pieces alike.

Who lends its memory to another rank takes no part: for the road that other one is alone.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import msgspec

from outgrid.comm import Comm
from outgrid.config import RunOptions
from outgrid.durable import partial_path
from outgrid.errors import UsageError
from outgrid.plan.model import Plan
from outgrid.plan.schedule.rings import Arrival
from outgrid.record import RECORD_NAME, Part
from outgrid.runs.group import GROUP_NAME, Durable
from outgrid.runs.lock import LOCK_NAME, RunLock
from outgrid.runs.manifest import MANIFEST_NAME, Manifest, at_start_of_sweep, write_manifest
from outgrid.runs.places import claimed, devices_of
from outgrid.runs.run import Run
from outgrid.runs.samples import REDUCTIONS_NAME, TRACES_NAME
from outgrid.runs.seals import level_name
from outgrid.runs.state import RunFolder, way_out
from outgrid.runs.zarr import names_of
from outgrid.stencil.problem import Problem

__all__ = ["Sharing", "check_none_there", "gone_on", "held", "named"]


class Sharing(Protocol):
    """One rank's side of a run in the folder ``out``, which all ranks of ``comm`` see.

    ``alone`` where it has the whole grid. ``options`` are this rank's, and ``kept`` those that a
    resume goes by.
    """

    @property
    def out(self) -> Path: ...
    @property
    def options(self) -> RunOptions: ...
    @property
    def kept(self) -> dict[str, Any]: ...
    @property
    def comm(self) -> Comm: ...
    @property
    def alone(self) -> bool: ...

    def scratch(self, durable: Durable | None = None) -> Path:
        """The folder that working files are in, or that one for them is made in."""
        ...

    def checks(self, problem: Problem, chosen: Plan) -> list[Callable[[], object]]:
        """What has to pass before a run may write where it is going to."""
        ...

    def anew(self, problem: Problem, chosen: Plan, overwrite: bool) -> AbstractContextManager[Run]:
        """Lock and claim all places of a new run. Raises UsageError where anything is there.

        To ``overwrite`` is to remove what a former run has left in ``out``.
        """
        ...

    def check_goes_on(self, durable: Durable) -> None:
        """Raise UsageError where what is there cannot be gone on with as the options say."""
        ...

    def named(self, line: str) -> str:
        """What is against the run on this rank, as all of them are told."""
        ...

    def further(self, durable: Durable, chosen: Plan, stays: bool) -> AbstractContextManager[Run]:
        """Claim the files of a run that goes on: its own, or new ones unless its plan ``stays``."""
        ...

    def filled(self, run: Run, durable: Durable | None) -> None:
        """Count on what a run was filled with from now on, not on what it was filled from."""
        ...

    def parts(self) -> tuple[Part, ...]:
        """What others did for the run before those whose files are there."""
        ...

    def leave(self, run: Run, manifest: Manifest) -> None:
        """Remove all that a finished run has beside its results."""
        ...


@contextmanager
def held(out: Path, comm: Comm) -> Generator[None]:
    """Rank 0 holds the lock of the run's folder, which all ranks see, as long as they work."""
    with RunLock(out) if comm.rank == 0 else nullcontext():
        comm.share(None)
        seen = comm.share((socket.gethostname(), (out / LOCK_NAME).exists()))
        for rank, (host, there) in enumerate(seen):
            if not there:
                raise UsageError(
                    f"rank {rank} on {host} does not see the {out.absolute()} of rank 0 on "
                    f"{seen[0][0]}; give --out a folder on a file system that all ranks share"
                )
        yield


def named(problem: Problem, levels: Iterable[Arrival]) -> tuple[str, ...]:
    """The files by which a run that leaves these levels is a group of Zarr."""
    return names_of(problem, [level_name(level) for level in levels if not level.constant])


def check_none_there(
    out: Path, names: tuple[str, ...] = (), replaced: Collection[Path] = ()
) -> None:
    """Raise UsageError where something of a run is in ``out`` that is not to be ``replaced``.

    ``names`` are those of files that a new one leaves there.
    """
    begun = tuple(str(partial_path(Path(name))) for name in names)
    folders = {Path(*name.parts[:1]) for name in map(Path, names) if len(name.parts) > 1}
    for folder in sorted(folders):
        if os.path.lexists(out / folder) and not (out / folder).is_dir():
            raise UsageError(f"{out / folder} must be a folder; {way_out(out)}")
    left = (RECORD_NAME, TRACES_NAME, REDUCTIONS_NAME, *names, *begun)
    for name in (GROUP_NAME, MANIFEST_NAME, *left):
        if os.path.lexists(out / name) and not _goes(out / name, replaced):
            unfinished = GROUP_NAME if name == GROUP_NAME else MANIFEST_NAME
            raise UsageError(
                f"{out / name} exists and is not overwritten; {way_out(out, unfinished)}"
            )


def _goes(path: Path, replaced: Collection[Path]) -> bool:
    """Whether a file, or a folder with all that is in it, is to be replaced."""
    if path.is_symlink() or not path.is_dir():
        return path in replaced
    files = [below for below in path.rglob("*") if below.is_symlink() or not below.is_dir()]
    return bool(files) and all(below in replaced for below in files)


@contextmanager
def gone_on(sharing: Sharing, durable: Durable, chosen: Plan) -> Generator[Run]:
    """Claim the files that are there, to make the steps that are left in them."""
    problem, share = durable.rest, durable.shares[sharing.comm.rank]
    folder, manifest = share.folder, share.manifest
    if problem.steps or not manifest.exported:
        folder.check_owner(manifest)
    if manifest.steps_done != durable.steps:
        # Other ranks do not have this state yet; from now on it is not counted on.
        manifest = msgspec.structs.replace(
            manifest, steps_done=durable.steps, parity=durable.parity(share), ended=""
        )
        write_manifest(folder.out, manifest)
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
    names = folder.working.names(schedule.kept, schedule.places)
    files = dict.fromkeys((*manifest.files, *names))
    return msgspec.structs.replace(manifest, planes=schedule.begin.planes, files=tuple(files))
