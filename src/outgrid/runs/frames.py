"""The checksums of snapshots: one for each plane of each frame, in a file beside the snapshot's.

    snapshot.0.npy          frames, one after each step that is taken
    snapshot.0.npy.xxh3     uint64 of shape (frames, planes): XXH3 (64 bits) of every plane

A plane is what a frame keeps of a plane of the grid; of a rank's part of it in the table of that
rank. Sums are combined with the key of the frame's step, see `Seal`. They are taken before a
commit, of planes that nobody is going to write any more, by the rank that has written them: its
page cache still has them. With seams it may keep them in the table of another rank. A plane whose
sum is 0 is not there yet.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from outgrid.durable import partial_path
from outgrid.errors import StoreError
from outgrid.formats.npy import HEADER_BYTES, cut_npy, read_header, reserve_npy
from outgrid.plan.schedule.subgrid import Box, common
from outgrid.regular import given, own, read_fully
from outgrid.runs.manifest import Manifest
from outgrid.seal import Seal
from outgrid.stencil.problem import Problem
from outgrid.stencil.snapshot import Snapshot, snapshots_by_file
from outgrid.storage.sums import sums_path

__all__ = ["Frames", "by_planes", "frames_of", "snapshot_files", "sums_within"]

CHUNK_BYTES = 1 << 20

Made = Callable[[int, str], range]
"""The planes of the grid that a process sums after a step, of a field."""


class Frames(msgspec.Struct):
    """The frames of one snapshot in ``out``, with the ``table`` of what ``box`` keeps of them.

    ``run`` is what the checksums are bound to. The sums of the first ``settled`` frames are kept.
    The frames of a finished run may be ``within`` another file, where they begin at a byte.
    """

    out: Path
    table: Path
    run: str
    snapshot: Snapshot
    whole: Problem
    box: Box
    settled: int = 0
    within: tuple[Path, int] | None = None

    def create(self) -> None:
        """Make an empty table. Raises StoreError where it is there already."""
        shape = self.snapshot.taken(self.whole.steps), len(self._planes)
        path = partial_path(self.table)
        try:
            reserve_npy(path, shape, np.uint64)
        except OSError as error:
            raise StoreError("cannot make checksums", path=path, errno=error.errno) from error

    def settle(self, steps: int, depth: int = 0, planes: int = 0, made: Made | None = None) -> None:
        """Keep, durably, the sums of what is complete after ``steps`` steps and is not summed yet.

        Of the sweep after it, of ``depth`` steps, that are planes of the grid below ``planes``.
        Of each frame it sums what was ``made`` here, all of the box if nothing is said.
        """
        path, across = self._there(self.table), len(self._planes)
        try:
            with self._frames() as data, open(path, "r+b", buffering=0, opener=own) as file:
                for frame, count in self._complete(self.settled, steps, depth, planes):
                    mine = range(count)
                    if made is not None:
                        there = made(self._step(frame), self.snapshot.field)
                        mine = common(mine, self._numbers(there))
                    begin = HEADER_BYTES + 8 * (frame * across + mine.start)
                    kept = np.frombuffer(os.pread(file.fileno(), 8 * len(mine), begin), np.uint64)
                    missing = np.flatnonzero(kept == 0)
                    if len(missing):
                        first, last = int(missing[0]), int(missing[-1]) + 1
                        sums = self._sums(data, frame, mine[first:last])
                        os.pwrite(file.fileno(), sums.tobytes(), begin + 8 * first)
                os.fdatasync(file.fileno())
        except OSError as error:
            raise self._failure(error, path) from error
        self.settled = self.snapshot.taken(steps)

    def forget(self, steps: int, depth: int = 0, planes: int = 0) -> None:
        """Remove all sums but those that `check` compares: the rest is going to be made again.

        Perhaps by another kernel, with other last bits.
        """
        path, first = self._there(self.table), self.snapshot.taken(steps)
        sums = self._read_sums()[first:]
        kept = np.zeros_like(sums)
        for frame, count in self._complete(first, steps, depth, planes):
            kept[frame - first, :count] = sums[frame - first, :count]
        try:
            with open(path, "r+b", buffering=0, opener=own) as file:
                for row in np.flatnonzero((kept != sums).any(axis=1)).tolist():
                    begin = HEADER_BYTES + 8 * (first + row) * len(self._planes)
                    os.pwrite(file.fileno(), kept[row].tobytes(), begin)
        except OSError as error:
            raise self._failure(error, path) from error

    def check(self, steps: int, depth: int = 0, planes: int = 0) -> None:
        """Compare with the sums what `settle` has summed. Raises StoreError where it differs."""
        sums = self._read_sums()
        path = self._frames_path
        if self.snapshot.taken(steps) > len(sums):
            raise StoreError(
                f"it holds {len(sums)} frames, and {self.snapshot.taken(steps)} were taken",
                path=self._there(self.table),
            )
        try:
            with self._frames() as data:
                for frame, count in self._complete(0, steps, depth, planes):
                    read = self._sums(data, frame, range(count))
                    wrong = np.flatnonzero(sums[frame, :count] != read)
                    if len(wrong):
                        at = int(wrong[0])
                        never = " (never written)" if sums[frame, at] == 0 else ""
                        raise StoreError(
                            f"plane {at} of {count} of the frame after step {self._step(frame)} "
                            f"does not match its checksum, or belongs to another run: checksum "
                            f"expected {int(sums[frame, at]):016x}{never}, found "
                            f"{int(read[at]):016x}",
                            path=path,
                        )
        except OSError as error:
            raise self._failure(error, path) from error
        self.settled = self.snapshot.taken(steps)

    def place(self, steps: int) -> None:
        """Leave the table of a finished run under its name, cut to the frames that were taken.

        May be called again after it was cut off.
        """
        path = partial_path(self.table)
        if not path.exists():
            return
        shape = self.snapshot.taken(steps), len(self._planes)
        try:
            cut_npy(path, shape, np.uint64, self.table)
        except OSError as error:
            raise self._failure(error, path) from error

    def digest(self, steps: int) -> str:
        """The checksum of the sums of so many steps, the same for all runs with the same values."""
        sums = self._read_sums()[: self.snapshot.taken(steps)]
        keys = [Seal(self.run, self.out.name, self._step(frame)).key for frame in range(len(sums))]
        return xxhash.xxh3_64_hexdigest((sums ^ np.array(keys, np.uint64)[:, None]).tobytes())

    def remove(self) -> None:
        """Remove a table that another process has left unfinished."""
        partial_path(self.table).unlink(missing_ok=True)

    @property
    def seal(self) -> Seal:
        """What the sums are of, as far as it is one for all frames."""
        return Seal(self.run, self.out.name)

    def nbytes(self, steps: int) -> int:
        """Bytes of what the box keeps of all frames of so many steps."""
        return self.snapshot.taken(steps) * len(self._planes) * self._part_bytes

    def _complete(
        self, first: int, steps: int, depth: int, planes: int
    ) -> Iterator[tuple[int, int]]:
        """(frame, planes of the box) of what is complete, from the ``first`` frame on."""
        taken = self.snapshot.taken(steps)
        for frame in range(first, taken):
            yield frame, len(self._planes)
        below = self._numbers(range(planes)).stop
        for frame in range(taken, self.snapshot.taken(steps + depth) if below else taken):
            yield frame, below

    def _sums(self, data: _Data, frame: int, planes: range) -> NDArray[np.uint64]:
        """The sums of some planes of a frame, counted from the first one of the box."""
        key = Seal(self.run, self.out.name, self._step(frame)).key
        pitch, size, begin = self._plane_bytes, self._part_bytes, self._first_byte
        begin += (self.within[1] if self.within else HEADER_BYTES) + frame * self._frame_bytes
        sums = (data.digest(begin + plane * pitch, size) ^ key for plane in planes)
        return np.fromiter(sums, np.uint64, len(planes))

    def _step(self, frame: int) -> int:
        return self.snapshot.begin + frame * self.snapshot.every

    @property
    def _cells(self) -> tuple[range, range, range]:
        return self.snapshot.kept(self.whole.shape)

    @property
    def _planes(self) -> range:
        """Planes of the grid in the box that are kept."""
        return _among(self._cells[0], self.box.planes)

    def _numbers(self, part: range) -> range:
        """The numbers of those in a part of the grid, counted from the first one of the box."""
        low, high = (len(_among(self._planes, range(end))) for end in (part.start, part.stop))
        return range(low, high)

    @property
    def _row_bytes(self) -> int:
        itemsize = np.dtype(self.whole.dtype_kept(self.snapshot)).itemsize
        return len(self._cells[2]) * itemsize

    @property
    def _plane_bytes(self) -> int:
        return len(self._cells[1]) * self._row_bytes

    @property
    def _frame_bytes(self) -> int:
        return len(self._cells[0]) * self._plane_bytes

    @property
    def _part_bytes(self) -> int:
        """Bytes of a plane in the box."""
        return len(_among(self._cells[1], self.box.rows)) * self._row_bytes

    @property
    def _first_byte(self) -> int:
        """Where the box begins in a frame."""
        z, y, _ = self._cells
        planes = len(_among(z, range(self.box.planes.start)))
        return planes * self._plane_bytes + self._row_bytes * len(
            _among(y, range(self.box.rows.start))
        )

    def _read_sums(self) -> NDArray[np.uint64]:
        path = self._there(self.table)
        header = read_header(path)
        wanted = (2, len(self._planes), np.dtype(np.uint64), HEADER_BYTES)
        if (len(header.shape), header.shape[-1], header.dtype, header.data_offset) != wanted:
            raise StoreError(
                f"checksums of type {header.dtype} and shape {header.shape} cannot be those of "
                f"frames of {len(self._planes)} planes",
                path=path,
            )
        return np.fromfile(path, np.uint64, offset=HEADER_BYTES).reshape(header.shape)

    def _frames(self) -> _Data:
        return _Data(self._frames_path)

    @property
    def _frames_path(self) -> Path:
        return self.within[0] if self.within else self._there(self.out)

    @staticmethod
    def _there(path: Path) -> Path:
        """The file while it is being written, else that of a finished snapshot."""
        partial = partial_path(path)
        return partial if partial.exists() else path

    @staticmethod
    def _failure(error: OSError, path: Path) -> StoreError:
        if isinstance(error, StoreError):
            return error
        return StoreError("cannot read or write", path=path, errno=error.errno)


class _Data:
    """A file of frames, read a little at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._buffer = memoryview(bytearray(CHUNK_BYTES))

    def __enter__(self) -> Self:
        self._file = open(self.path, "rb", buffering=0, opener=given)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def digest(self, offset: int, nbytes: int) -> int:
        """XXH3 of so many bytes from ``offset`` on."""
        digest = xxhash.xxh3_64()
        done = 0
        while done < nbytes:
            part = self._buffer[: min(CHUNK_BYTES, nbytes - done)]
            read_fully(self._file.fileno(), part, offset + done, self.path)
            digest.update(part)
            done += len(part)
        return digest.intdigest()


def frames_of(
    out: Path, folder: Path, manifest: Manifest, box: Box, whole: Problem
) -> tuple[Frames, ...]:
    """Those of all snapshots in ``out``, with tables in ``folder``, of what a manifest stands for.

    None of a run that was begun by a version which kept no sums of frames.
    """
    if not manifest.sealed:
        return ()
    frames: list[Frames] = []
    for name, snapshot in snapshots_by_file(whole.snapshots).items():
        within = None
        if manifest.together is not None:
            scratch = folder / manifest.folder
            within = manifest.together.frames(out, scratch, Path(name).stem)
        table = sums_path(folder / name)
        frames.append(Frames(out / name, table, manifest.run, snapshot, whole, box, within=within))
    return tuple(frames)


def snapshot_files(problem: Problem) -> tuple[str, ...]:
    """Names of the files that the snapshots of a run are left in, and of their checksums."""
    names = snapshots_by_file(problem.snapshots)
    return (*names, *(sums_path(Path(name)).name for name in names))


def sums_within(whole: Problem, steps: int, depth: int, cut: Sequence[int]) -> bool:
    """Whether sums tell what is durable of frames within the sweep of ``depth`` steps.

    They do where planes are complete one by one: not with strips and blocks, nor where the first
    planes come round again. A sweep is begun again there, if frames are taken in it.
    """
    taken = (snapshot.taken(steps + depth) - snapshot.taken(steps) for snapshot in whole.snapshots)
    return not any(taken) or by_planes(whole, cut)


def by_planes(whole: Problem, cut: Sequence[int]) -> bool:
    """Whether planes of a sweep are complete one by one, in their order in the grid."""
    return not cut and not whole.edges.periodic(0)


def _among(kept: range, part: range) -> range:
    """The indices of ``kept`` (of any step above 0) in ``part`` (of step 1)."""
    first = kept.start + max(0, -(-(part.start - kept.start) // kept.step)) * kept.step
    return range(first, max(first, min(kept.stop, part.stop)), kept.step)
