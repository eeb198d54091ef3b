"""Snapshots: their files and checksums, and the table that a kernel reads.

Rows of a snapshot leave by an outlet, from the tile that has just been computed: a thread of its
own writes them through the page cache, beside the kernel, and the system begins to write these to
disk. What a sweep repeats after a crash, or a halo computes twice, writes the same bytes again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from outgrid.comm import Comm
from outgrid.config import RunOptions
from outgrid.durable import partial_path
from outgrid.errors import StoreError, file_errors
from outgrid.formats.npy import HEADER_BYTES, cut_npy, read_header, reserve_npy
from outgrid.observe.observer import Noted, Observer, Reached
from outgrid.plan.schedule.subgrid import Box
from outgrid.plan.tables import OUTLET_BYTES
from outgrid.regular import check_own
from outgrid.runs.frames import Frames, frames_of, snapshot_files, sums_within
from outgrid.runs.group import Durable
from outgrid.runs.manifest import Manifest
from outgrid.runs.run import Run
from outgrid.runs.together import Place, copy_array
from outgrid.stencil.dtypes import KINDS
from outgrid.stencil.problem import Problem
from outgrid.stencil.snapshot import Snapshot, snapshots_by_file
from outgrid.storage.outlet import Outlet

SNAPSHOT_NUMBERS = 15  # of one snapshot in the table


class Snapshots(Observer):
    """The files of a run, which its ranks share, and checksums of what each rank writes to them."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._frames = self._of(run.folder.out, run.owned)
        self._others: tuple[Frames, ...] = ()
        self._table: SnapshotTable | None = None

    def _of(self, folder: Path, box: Box) -> tuple[Frames, ...]:
        run = self.run
        return frames_of(run.out, folder, run.manifest, box, run.given)

    @property
    def _within(self) -> dict[str, Place]:
        """The snapshots that lie in a file with fields: where."""
        return {
            frames.out.name: frames.within for frames in self._frames if frames.within is not None
        }

    def _move(self) -> None:
        """Copy snapshots that lie beside another state to where the last one is."""
        folder, whole = self.run.folder, self.run.whole
        if folder.together is None or not self._within:
            return
        beside, last = folder.together.file(folder.scratch, 0), folder.together.result(self.run.out)
        if not beside.exists() or not last.exists():
            return
        for name, snapshot in snapshots_by_file(whole.snapshots).items():
            if name in self._within:
                _, begin = self._within[name]
                shape, dtype = snapshot.shape(whole.shape, whole.steps), whole.dtype_kept(snapshot)
                copy_array(beside, begin, last, begin, shape, dtype)

    @classmethod
    def watches(cls, problem: Problem, options: RunOptions) -> bool:
        """Where some are asked for."""
        return bool(problem.snapshots)

    @classmethod
    def files(cls, problem: Problem, options: RunOptions, *, alone: bool = True) -> tuple[str, ...]:
        """The snapshots and their checksums; of a rank these alone."""
        return snapshot_files(problem)[0 if alone else len(problem.snapshots) :]

    def begin(self, manifest: Manifest, durable: Durable | None) -> Manifest:
        """Make the files of a new run, or check those that another one has come by."""
        run = self.run
        if run.comm.rank == 0:
            if durable is None:
                reserve(run.out, run.given, self._within)
            for share in durable.shares if durable is not None else ():
                theirs = share.folder.out, share.manifest, share.owned
                for frames in frames_of(run.out, *theirs, run.given):
                    frames.check(durable.steps if durable is not None else 0)
        for frames in self._frames:
            frames.create()
        return manifest

    def go_on(self) -> None:
        """Compare what earlier processes have written with its checksums."""
        before = self.run.manifest
        for frames in self._frames:
            frames.check(self.run.done, before.depth, before.planes)
            frames.forget(self.run.done, before.depth, before.planes)

    def attach(self, kernel: Any) -> Any:
        """A kernel that takes them."""
        if not self.run.problem.steps:
            return kernel
        run = self.run
        if run.plan.schedule.domain.subgrid.seams:
            self._others = self._of_others()
        held = OUTLET_BYTES + run.plan.memory.unfinished_bytes
        self._table = SnapshotTable.open(run.out, run.given, run.done, held, self._within)
        return replace(kernel, snapshots=self._table)

    def _of_others(self) -> tuple[Frames, ...]:
        """The frames in tables of ranks that own planes which this one makes.

        All ranks call this when their own tables are ready, before any writes to those of others.
        """
        run, schedule = self.run, self.run.plan.schedule
        every = run.comm.share((run.folder.out.name, run.manifest.run))
        return tuple(
            replace(
                frames,
                table=run.out / every[cut.peer][0] / frames.table.name,
                run=every[cut.peer][1],
                box=schedule.domain.subgrid.of(cut.peer).owned,
                settled=frames.snapshot.taken(run.done),
            )
            for _, cut in schedule.cutting.between_ranks(schedule.depth)
            if not cut.given
            for frames in self._frames
        )

    def _made(self, step: int, field: str) -> range:
        """The planes of a field that this rank sums after a step: with seams those that it makes.

        Who owns a plane sums it without seams, and after steps that earlier processes made.
        """
        run, schedule = self.run, self.run.plan.schedule
        if step <= run.done or not schedule.domain.subgrid.seams:
            return range(schedule.planes)
        return schedule.made(step - run.done, run.given.stencil.writer(field) or 0)

    def commit(self, reached: Reached, manifest: Manifest) -> Manifest:
        """Make durable what was written, then sum up what is complete of it."""
        if self._table is not None:
            self._table.outlet.sync()
        run, depth = self.run, reached.depth
        told = depth and sums_within(run.whole, reached.steps, depth, run.plan.schedule.cut)
        for frames in (*self._frames, *self._others):
            frames.settle(reached.steps, depth, reached.planes if told else 0, self._made)
        return manifest

    def close(self) -> None:
        """Let go of the files."""
        if self._table is not None:
            self._table.outlet.close()

    def place(self, comm: Comm) -> Noted:
        """Cut files to what was taken; one table of checksums takes the place of those of ranks."""
        run, steps = self.run, self.run.last
        comm.share(None)  # all have written
        if comm.rank:
            return Noted()
        self._move()
        place(run.out, run.whole)
        whole = self._frames
        if run.folder.out != run.out:
            whole = self._of(run.out, Box.whole(run.given.shape))
            for frames in whole:
                frames.remove()
                frames.create()
                frames.settle(steps)
        for frames in whole:
            frames.place(steps)
        return Noted(
            checksums={frames.out.stem: frames.digest(steps) for frames in whole},
            seals={frames.out.stem: frames.seal for frames in whole},
        )


class SnapshotTable(msgspec.Struct, frozen=True):
    """The snapshots that a process has to take, and the ``outlet`` that a kernel leaves them by.

    ``rows`` has one for each: the generated ``struct Snapshot``.
    """

    outlet: Outlet
    rows: NDArray[np.int64]

    @classmethod
    def open(
        cls,
        out: Path,
        whole: Problem,
        steps_done: int,
        held_bytes: int,
        within: Mapping[str, Place] | None = None,
    ) -> SnapshotTable:
        """Into the files that `reserve` made in ``out``, to go on after ``steps_done`` steps.

        Or into those that they are ``within``, from a byte on.
        """
        fields = [field.name for field in whole.stencil.fields]
        rows: list[tuple[int, ...]] = []
        paths: list[Path] = []
        for name, snapshot in snapshots_by_file(whole.snapshots).items():
            rest, dtype = snapshot.after(steps_done), whole.dtype_kept(snapshot)
            before = snapshot.taken(steps_done) * snapshot.frame_bytes(whole.shape, dtype)
            kind = KINDS[dtype]
            head = fields.index(rest.field), len(paths), kind, rest.begin, rest.every
            kept = (n for axis in rest.kept(whole.shape) for n in _numbers(axis))
            path, first = (within or {}).get(name, (None, HEADER_BYTES))
            rows.append((*head, first + before, *kept))
            paths.append(path or _begun(out / name, snapshot, whole))
        table = np.array(rows, np.int64).reshape(len(rows), SNAPSHOT_NUMBERS)
        return cls(Outlet(paths, held_bytes), table)


def reserve(out: Path, whole: Problem, within: Collection[str] = ()) -> None:
    """Make the files of all snapshots, and set their space aside. Raises StoreError.

    Those ``within`` another file need none.
    """
    for name, snapshot in snapshots_by_file(whole.snapshots).items():
        if name in within:
            continue
        path = partial_path(out / name)
        shape = snapshot.shape(whole.shape, whole.steps)
        try:
            reserve_npy(path, shape, whole.dtype_kept(snapshot))
        except OSError as error:
            raise StoreError(
                "cannot reserve space for a snapshot", path=path, errno=error.errno
            ) from error


def place(out: Path, whole: Problem) -> None:
    """Leave the snapshots of a finished run under their names, cut to those that were taken.

    A run that was cut off here has placed some.
    """
    for name, snapshot in snapshots_by_file(whole.snapshots).items():
        path, shape = partial_path(out / name), snapshot.shape(whole.shape, whole.steps)
        if not path.exists():
            continue
        with file_errors("cannot write", path):
            cut_npy(path, shape, whole.dtype_kept(snapshot), out / name)


def _begun(path: Path, snapshot: Snapshot, whole: Problem) -> Path:
    """The file of a snapshot: complete in an earlier process that was cut off, or still to be."""
    path = partial_path(path) if partial_path(path).exists() else path
    check_own(path)
    head = read_header(path)
    shape, dtype = snapshot.shape(whole.shape, whole.steps), whole.dtype_kept(snapshot)
    if (head.shape, head.dtype, head.data_offset) != (shape, dtype, HEADER_BYTES):
        raise StoreError(
            f"it holds {head.dtype} of shape {head.shape}, the snapshots of the run are "
            f"{dtype} of shape {shape}",
            path=path,
        )
    return path


def _numbers(cells: range) -> tuple[int, int, int]:
    """First, end and step of the indices along an axis."""
    return cells.start, cells.stop, cells.step
