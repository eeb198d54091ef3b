"""A run on disk: its files, and the manifest that says how far they are durable.

    OUT/manifest.json           what is computed, where its files are, the last durable state
    OUT/run.lock                the process that runs here
    SCRATCH/owner.json          the run that the working files belong to
    SCRATCH/u.0.npy u.1.npy     the two files of every evolving level, roles swapped each sweep
    SCRATCH/h.npy               a coefficient
    ....npy.xxh3                the checksums of the rows of a field, beside it
    SCRATCH/u.seam.0.npy        what a strip leaves to the next one, of ring 0
    OUT/u.npy                   the result, renamed from scratch at the end

The manifest is replaced by write, fsync, rename, fsync of the folder: after a crash it is the old
one or the new one, whole. It comes before the first file it names and goes after the last.
"""

from __future__ import annotations

import io
import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from outgrid.durable import make_folder, replace_file, sync_folder
from outgrid.errors import StoreError, UsageError
from outgrid.plan.lifetime import MOST_RINGS
from outgrid.plan.model import Arrival
from outgrid.record import RECORD_NAME, Part
from outgrid.stencil.problem import PREVIOUS
from outgrid.storage.sums import sums_path

MANIFEST_NAME = "manifest.json"
TRACES_NAME = "receivers.npy"
SAMPLES_NAME = "samples.npy"
OWNER_NAME = "owner.json"
FORMAT = 2
COPY_BYTES = 4 << 20


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The durable state: ``steps_done`` steps of ``problem``, in the files of ``parity``.

    ``run`` is a name that no other run has. ``folder`` holds the working files ``files``, relative
    to the manifest where it lies beside it; ``results`` are the files that the run leaves in the
    end. ``steps_done`` is -1 until the initial values are durable. ``parts`` tells what was
    measured up to this state, one entry for each process that worked on the run.

    Of the sweep after it, of ``depth`` steps, the first ``planes`` planes are durable as well, in
    the files of the other parity; both are 0 where that is not known.
    """

    version: str
    run: str
    problem: dict[str, Any]
    folder: str
    files: tuple[str, ...]
    results: tuple[str, ...]
    steps_done: int
    parity: int
    depth: int = 0
    planes: int = 0
    parts: tuple[Part, ...] = ()
    format: int = FORMAT


class _Head(msgspec.Struct, frozen=True):
    """What tells apart the formats of manifests."""

    format: int
    version: str


class _OwnerMark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which run the files in a scratch folder belong to."""

    run: str
    out: str


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where a run keeps its results (``out``) and its working files (``scratch``)."""

    out: Path
    scratch: Path

    @classmethod
    def of_manifest(cls, out: Path) -> tuple[RunFolder, Manifest]:
        """The folders of an unfinished run. Raises UsageError where there is none."""
        manifest = cls(out, out).read_manifest()
        return cls(out, out / manifest.folder), manifest

    def create(self, manifest: Manifest) -> None:
        """Make both folders where they are missing and say whose they are.

        Raises StoreError where they cannot be made, UsageError where another run works in scratch.
        """
        make_folder(self.out)
        make_folder(self.scratch)
        self.write_manifest(manifest)
        mark = _OwnerMark(manifest.run, os.fspath(self.out.resolve()))
        path = self.scratch / OWNER_NAME
        try:
            replace_file(path, msgspec.json.encode(mark) + b"\n")
        except OSError as error:
            raise StoreError("cannot write", path=path, errno=error.errno) from error

    def relative_scratch(self) -> str:
        """Scratch as a manifest names it: a run that keeps it inside can be moved as a whole."""
        out, scratch = self.out.resolve(), self.scratch.resolve()
        return os.fspath(scratch.relative_to(out) if scratch.is_relative_to(out) else scratch)

    def check_owner(self, manifest: Manifest) -> None:
        """Raise UsageError unless the files in scratch are those of the manifest's run."""
        mark = self._owner_mark()
        if mark is None:
            raise UsageError(
                f"{self.scratch} on {socket.gethostname()} does not hold the working files of the "
                f"run in {self.out}; resume where that folder can be seen"
            )
        if mark.run != manifest.run:
            raise UsageError(
                f"the files in {self.scratch} belong to another run, the one in {mark.out}; what "
                f"the run in {self.out} had there is gone"
            )

    def _owner_mark(self) -> _OwnerMark | None:
        path = self.scratch / OWNER_NAME
        try:
            return msgspec.json.decode(path.read_bytes(), type=_OwnerMark)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError("cannot read", path=path, errno=error.errno) from error
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} does not say which run owns this folder: {error}") from None

    def is_mine(self, manifest: Manifest) -> bool:
        """Whether the scratch folder is marked as that of the manifest's run."""
        mark = self._owner_mark()
        return mark is not None and mark.run == manifest.run

    def path(self, arrival: Arrival, parity: int) -> Path:
        """The working file of a level; a constant field has one for both parities."""
        return self.scratch / f"{level_name(arrival)}{'' if arrival.constant else f'.{parity}'}.npy"

    def seam(self, field: str, ring: int) -> Path:
        """The working file of the seams of a ring."""
        return self.scratch / f"{field}.seam.{ring}.npy"

    def result(self, arrival: Arrival) -> Path:
        """Where the final values of an evolving level go."""
        return self.out / f"{level_name(arrival)}.npy"

    def read_manifest(self) -> Manifest:
        """The manifest. Raises UsageError where there is none, or not one of this version."""
        path = self.out / MANIFEST_NAME
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            raise UsageError(
                f"{self.out} holds no {MANIFEST_NAME}: it is not the folder of an unfinished run"
            ) from None
        except OSError as error:
            raise StoreError("cannot read the manifest", path=path, errno=error.errno) from error
        try:
            head = msgspec.json.decode(text, type=_Head)
            if head.format != FORMAT:
                raise UsageError(
                    f"{path} has format {head.format}, written by outgrid {head.version}; this "
                    f"version reads format {FORMAT}: resume the run with that version"
                )
            found = msgspec.json.decode(text, type=Manifest)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} is not a manifest of this version: {error}") from None
        except RecursionError:
            raise UsageError(f"{path} is not a manifest: it is nested too deeply") from None
        _check_names(path, (*found.files, *found.results))
        return found

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest, durably and whole."""
        path = self.out / MANIFEST_NAME
        try:
            replace_file(path, msgspec.json.encode(manifest) + b"\n")
        except OSError as error:
            raise StoreError("cannot commit", path=path, errno=error.errno) from error

    def check_free(self, levels: tuple[Arrival, ...]) -> None:
        """Raise UsageError if a file that the run is going to make exists already."""
        names = self.result_names(levels)
        found = [self.out / name for name in (*names, RECORD_NAME, MANIFEST_NAME, TRACES_NAME)]
        found += [self.scratch / name for name in self.working_names(levels)]
        for path in found:
            if path.exists() or path.is_symlink():
                hint = "outgrid resume continues an unfinished run; " if self._resumable() else ""
                raise UsageError(
                    f"{path} exists and is not overwritten; {hint}choose another folder with "
                    "--out, or remove it"
                )
        mark = self._owner_mark()
        if mark is not None:
            raise UsageError(
                f"{self.scratch} is in use by the run in {mark.out}; choose another folder with "
                f"--scratch, or clear it with outgrid clean {mark.out}"
            )

    def _resumable(self) -> bool:
        return (self.out / MANIFEST_NAME).exists()

    def working_names(self, levels: tuple[Arrival, ...]) -> tuple[str, ...]:
        """Names of all files that the run makes in scratch."""
        files = dict.fromkeys(self.path(level, parity) for level in levels for parity in (0, 1))
        files |= {
            self.seam(level.field, ring): None for level in levels for ring in range(MOST_RINGS)
        }
        return tuple(name for path in files for name in (path.name, sums_path(path).name))

    def result_names(self, levels: tuple[Arrival, ...]) -> tuple[str, ...]:
        """Names of the fields that the run leaves in the end, and of their checksums."""
        fields = [self.result(level) for level in levels if not level.constant]
        return tuple(name for path in fields for name in (path.name, sums_path(path).name))

    def place_results(self, levels: tuple[Arrival, ...], parity: int) -> dict[str, str]:
        """Move the results in place, durably, and return name -> file name.

        May be called again after it was cut off: what is in place stays there.
        """
        fields: dict[str, str] = {}
        for level in levels:
            if not level.constant:
                source, result = self.path(level, parity), self.result(level)
                for old, new in ((source, result), (sums_path(source), sums_path(result))):
                    if old.exists() or not new.exists():
                        move(old, new)
                fields[level_name(level)] = result.name
        sync_folder(self.out)
        return fields

    def write_samples(self, samples: NDArray[np.float64]) -> None:
        """Keep what receivers saw so far, durably."""
        self._write_array(self._samples_so_far(), samples)

    def read_samples(self) -> NDArray[np.float64] | None:
        """What receivers saw before the last commit; None for a run that has just begun."""
        path = self._samples_so_far()
        return np.load(path) if path.exists() else None

    def place_traces(self, traces: NDArray[np.float64]) -> None:
        """Leave the traces of a finished run."""
        self._write_array(self.out / TRACES_NAME, traces)

    def _write_array(self, path: Path, array: NDArray[np.float64]) -> None:
        content = io.BytesIO()
        np.save(content, array)
        try:
            replace_file(path, content.getvalue())
        except OSError as error:
            raise StoreError("cannot write", path=path, errno=error.errno) from error

    def _samples_so_far(self) -> Path:
        return self.out / f"{SAMPLES_NAME}.new"

    def abandon(self, manifest: Manifest) -> None:
        """Remove everything that the manifest owns but results, and at last the manifest."""
        for path in self.owned(manifest):
            path.unlink(missing_ok=True)
        if self.scratch.is_dir() and not any(self.scratch.iterdir()):
            self.scratch.rmdir()
        (self.out / MANIFEST_NAME).unlink(missing_ok=True)
        sync_folder(self.out)

    def owned(self, manifest: Manifest) -> list[Path]:
        """The files of a manifest that exist, without results and the manifest itself.

        Those in scratch count only while the folder is marked as this run's.
        """
        beside = [MANIFEST_NAME, RECORD_NAME, TRACES_NAME, SAMPLES_NAME, *manifest.results]
        found = [self.out / f"{name}.new" for name in beside]
        if self.is_mine(manifest):
            names = (*manifest.files, f"{OWNER_NAME}.new", OWNER_NAME)  # the mark goes last
            found += [self.scratch / name for name in names]
        return [path for path in found if path.exists() or path.is_symlink()]


def _check_names(path: Path, names: tuple[str, ...]) -> None:
    """A manifest names files in its folders, not elsewhere."""
    for name in names:
        if Path(name).name != name or name in ("", ".", "..") or "\0" in name:
            raise UsageError(f"{path} names a file {name!r} outside of the run's folders")


def is_seam(name: str) -> bool:
    """Whether a working file holds seams, which mean nothing beyond their sweep."""
    return ".seam." in name


def level_name(arrival: Arrival) -> str:
    """ "u" for the current level of field u, "u.previous" for the level before."""
    return arrival.field + (PREVIOUS if arrival.level < 0 else "")


def move(source: Path, target: Path) -> None:
    """Rename, or copy, sync and remove where the two are on different file systems."""
    try:
        if source.stat().st_dev == target.parent.stat().st_dev:
            os.replace(source, target)
            return
        partial = target.with_name(target.name + ".new")
        # Space that was reserved there is kept: the file is not truncated.
        with source.open("rb") as old, open(os.open(partial, os.O_RDWR | os.O_CREAT), "wb") as new:
            shutil.copyfileobj(old, new, COPY_BYTES)
            new.flush()
            os.fsync(new.fileno())
        os.replace(partial, target)
        sync_folder(target.parent)
        source.unlink()
    except OSError as error:
        raise StoreError(
            "cannot put the result in place", path=target, errno=error.errno
        ) from error
