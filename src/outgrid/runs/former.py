"""What a former run has left in a folder that another run is to have."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from outgrid.durable import remove_empty
from outgrid.errors import UsageError
from outgrid.formats import InputFile
from outgrid.formats.arrays import InputArray
from outgrid.record import RECORD_NAME, Record, read_record
from outgrid.regular import resolved
from outgrid.runs.frames import snapshot_files
from outgrid.runs.group import OnDisk, is_unfinished, on_disk
from outgrid.runs.leftovers import list_leftovers, remove_leftovers
from outgrid.runs.samples import REDUCTIONS_NAME, TRACES_NAME
from outgrid.runs.single import file_of, names_of, second_names
from outgrid.stencil.problem import Problem
from outgrid.stencil.series import Series
from outgrid.stencil.values import Initial
from outgrid.storage import Joined
from outgrid.storage.sums import sums_path

__all__ = ["Former", "former"]

CLOCK_SECONDS = 2.0  # some file systems count no finer


class Former(msgspec.Struct, frozen=True):
    """The ``files`` of a former run in ``out``, all of them its own, the one that says so last.

    Of an unfinished one some may be in their place already.
    """

    out: Path
    files: tuple[Path, ...]
    unfinished: OnDisk | None
    placed: tuple[Path, ...] = ()

    @property
    def freed_bytes(self) -> Mapping[int, int]:
        """What is free on each device without them."""
        freed, names = Counter[int](), Counter[tuple[int, int]]()
        for path in self.files:
            status = path.lstat()
            names[status.st_dev, status.st_ino] += 1
            if status.st_nlink == names[status.st_dev, status.st_ino]:  # nobody else names it
                freed[status.st_dev] += status.st_blocks * 512
        return freed

    def check_inputs(self, problem: Problem) -> None:
        """Raise UsageError where one of the files is what a problem reads."""
        files = [resolved(path) for path in self.files]
        mine = {*files, *(folder for path in files for folder in path.parents)}
        for name, given in problem.initial.items():
            for path in _read_from(given):
                if resolved(path) in mine:
                    raise UsageError(
                        f"the values of {name!r} are read from {path}, a result of the run in "
                        f"{self.out}, which this run would overwrite; choose another folder with "
                        "--out"
                    )

    def remove(self) -> None:
        """Remove them all; after a crash in between what is left is still known as the run's."""
        for path in self.placed:
            path.unlink(missing_ok=True)
        if self.unfinished is not None:
            remove_leftovers(self.unfinished)
        for path in self.files:
            path.unlink(missing_ok=True)
            remove_empty(path.parent, self.out)


def _read_from(given: Initial) -> tuple[Path, ...]:
    """The files, or folders of files, that values are read from when a run has begun."""
    match given:
        case InputFile():
            return (given.file,)
        case Series():
            return tuple(map(Path, given.paths))
        case InputArray(array=Joined() as pieces):
            return pieces.paths
        case _:
            return ()


def former(out: Path) -> Former:
    """What a run has left in ``out``, by its record and its manifest; nothing where neither is.

    Raises UsageError where a file of it is not as the run left it, or where working files of it
    cannot be seen from here.
    """
    unfinished, files, placed = on_disk(out), list[Path](), tuple[Path, ...]()
    begun = is_unfinished(unfinished)
    if begun:
        left = list_leftovers(unfinished)
        if left.foreign:
            raise UsageError(
                f"the run in {out} is not replaced: {left.foreign[0]} holds other files, or "
                "cannot be seen from here; choose another folder with --out"
            )
        files += left.files
    if (out / RECORD_NAME).exists():
        files += _left(out, read_record(out))
    elif begun:
        placed = unfinished.placed
        if unfinished.shares and (file := file_of(unfinished.manifest)):
            problem = Problem.from_dict(unfinished.manifest.problem)
            placed = (*second_names(out, names_of(file, problem)), *placed)
        files = [*placed, *files]
    return Former(out, tuple(dict.fromkeys(files)), unfinished if begun else None, placed)


def _left(out: Path, record: Record) -> Iterator[Path]:
    """The files that a finished run has left, those that are there, its record last."""
    mark = out / RECORD_NAME
    ended = mark.lstat().st_mtime
    for name in _names(record):
        path = out / name
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        if ".." in Path(name).parts or not resolved(path).is_relative_to(resolved(out)):
            raise UsageError(f"{mark} names the file {name} outside of its folder: remove it")
        changed = "is not a file" if not stat.S_ISREG(status.st_mode) else ""
        if status.st_mtime > ended + CLOCK_SECONDS:
            changed = "was changed since"
        if changed:
            raise UsageError(
                f"{path} is not replaced: the run in {out} wrote that file, and it "
                f"{changed}; choose another folder with --out, or remove it"
            )
        yield path
    if record.offsets:
        files = (*record.files.values(), *record.frames.values())
        yield from second_names(out, dict.fromkeys(files))
    yield mark


def _names(record: Record) -> Iterator[str]:
    """Names of all files that the run of a record leaves, but the record."""
    for name, file in record.files.items():
        yield file
        yield str(sums_path(Path(record.rows_file(name))))
    yield from record.frames.values()
    yield from record.left
    problem = Problem.from_dict(record.problem)  # what a record of an older version does not name
    yield from snapshot_files(problem)
    if problem.receivers:
        yield TRACES_NAME
    if problem.stencil.reductions:
        yield REDUCTIONS_NAME
    if record.preview is not None:
        yield record.preview
