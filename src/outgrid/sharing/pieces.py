"""A run that several ranks share: each has a folder of its piece, `ranks.json` says which."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from outgrid.comm import Comm
from outgrid.config import RunOptions
from outgrid.errors import UsageError
from outgrid.observe import files_of
from outgrid.plan.model import Plan
from outgrid.record import Part
from outgrid.runs.former import Former, former
from outgrid.runs.group import (
    GROUP_NAME,
    Durable,
    Group,
    Share,
    abandon,
    new_folders,
    on_disk,
    read_group,
    write_group,
)
from outgrid.runs.manifest import Manifest
from outgrid.runs.run import Run
from outgrid.runs.space import check_parents, check_space, check_usable
from outgrid.runs.state import RunFolder
from outgrid.sharing.base import check_none_there, gone_on, held, named
from outgrid.stencil.problem import Problem
from outgrid.stencil.snapshot import snapshots_by_file
from outgrid.version import __version__

__all__ = ["Pieces"]


class Pieces(msgspec.Struct, frozen=True):
    """One rank's side of a run whose grid is cut; see `Sharing`."""

    out: Path
    options: RunOptions
    kept: dict[str, Any]
    comm: Comm
    alone: bool = False

    def scratch(self, durable: Durable | None = None) -> Path:
        return self.options.scratch or self.out / "scratch"

    def checks(self, problem: Problem, chosen: Plan) -> list[Callable[[], object]]:
        # Where a plan was found, the disks have room for it.
        mine: list[Callable[[], object]] = [
            partial(check_parents, self.options),
            partial(check_usable, self.out),
            partial(check_usable, self.scratch()),
        ]
        free = partial(check_none_there, self.out, self._names(problem, chosen))
        return [*mine, free] if self.comm.rank == 0 else mine

    @contextmanager
    def anew(self, problem: Problem, chosen: Plan, overwrite: bool) -> Generator[Run]:
        out, comm = self.out, self.comm
        if overwrite:
            former(out).check_inputs(problem)
        with held(out, comm):
            before = former(out) if overwrite else None
            if comm.rank == 0:
                replaced = before.files if before is not None else ()
                check_none_there(out, self._names(problem, chosen), replaced)
            if before is not None:  # all ranks look before anything is removed
                self._place(f"rank.{comm.rank}", chosen, before)
                comm.share(None)
            if comm.rank == 0:
                if before is not None:
                    before.remove()
                on_disk(out).tidy()
            comm.share(None)
            run = self._made(problem, chosen, None)
            self._write_group(run, None)
            yield run

    def check_goes_on(self, durable: Durable) -> None:
        """Ranks that cannot go on in the files that are there make others, and read these first."""
        snapshots = {Path(name).stem for name in snapshots_by_file(durable.given.snapshots)}
        for folder in (share.folder for share in durable.shares):
            together = folder.together.offsets.keys() if folder.together is not None else ()
            what = ""
            if folder.spread is not None:
                what = f"fields are spread over {', '.join(folder.spread.places)}"
            elif not snapshots.isdisjoint(together):
                what = "snapshots lie in one file with the fields"
            if what:
                raise UsageError(
                    f"the {what} in the run in {self.out}, where several ranks cannot take them "
                    "over: resume it on one rank"
                )

    def named(self, line: str) -> str:
        return f"rank {self.comm.rank}: {line}"

    def further(self, durable: Durable, chosen: Plan, stays: bool) -> AbstractContextManager[Run]:
        if stays:
            return gone_on(self, durable, chosen)
        for share in durable.shares:
            share.folder.check_owner(share.manifest)
        return nullcontext(self._made(durable.rest, chosen, durable))

    def filled(self, run: Run, durable: Durable | None) -> None:
        self.comm.share(None)
        if durable is None or run.manifest.steps_done >= 0:
            return
        self._write_group(run, durable)
        if self.comm.rank == 0:
            shared = on_disk(self.out).shared
            for share in durable.shares:
                abandon(self.out, share, shared)
        self.comm.share(None)

    def parts(self) -> tuple[Part, ...]:
        group = read_group(self.out)
        return group.parts if group is not None else ()

    def leave(self, run: Run, manifest: Manifest) -> None:
        self.comm.share(None)
        abandon(self.out, Share(run.folder, manifest, run.owned))
        self.comm.share(None)
        if self.comm.rank == 0:
            (self.out / GROUP_NAME).unlink()

    def _names(self, problem: Problem, chosen: Plan) -> tuple[str, ...]:
        """Files that the run leaves in the folder that all ranks see."""
        observed = files_of(problem, self.options)
        return (*observed, *named(problem, chosen.schedule.kept))

    def _place(self, name: str, chosen: Plan, before: Former | None = None) -> RunFolder:
        """The folders of this rank, where space and names are free, or of a run ``before``."""
        folder = RunFolder(self.out / name, self.scratch() / name)
        check_space(chosen, folder, before.freed_bytes if before is not None else None)
        replaced = before.files if before is not None else ()
        folder.check_free(chosen.schedule.kept, replaced=replaced)
        return folder

    def _made(self, problem: Problem, chosen: Plan, durable: Durable | None) -> Run:
        """A run whose files are made in folders that no other ranks of it use."""
        names = self.comm.share(new_folders(self.out, self.comm.size))[0]  # before any is made
        name = names[self.comm.rank]
        folder = self._place(name, chosen)
        options, whole = self.options, problem if durable is None else durable.given
        beside = files_of(whole, options, alone=False)
        return Run.new(problem, options, chosen, folder, self.comm, beside, self.kept, durable)

    def _write_group(self, run: Run, durable: Durable | None) -> None:
        """Say which ranks have the run now."""
        names = self.comm.share(run.folder.out.name)
        schedule = run.plan.schedule
        assert schedule.subgrid is not None  # of a plan of ranks
        if self.comm.rank == 0:
            group = Group(
                version=__version__,
                problem=run.manifest.problem,
                plane_bounds=schedule.subgrid.bounds[0],
                row_bounds=schedule.subgrid.bounds[1],
                folders=tuple(names),
                depths=schedule.depths,
                done=run.done,
                seams=schedule.subgrid.seams,
                parts=durable.parts if durable is not None else (),
                left=files_of(run.given, run.options),
            )
            write_group(self.out, group)
        self.comm.share(None)
