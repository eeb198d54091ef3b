"""A run on disk: its files, and the manifest that says how far they are durable.

    OUT/manifest.json           what is computed, where its files are, the last durable state
    SCRATCH/u.0.npy u.1.npy     the two files of every evolving level, roles swapped each sweep
    SCRATCH/h.npy               a coefficient
    OUT/u.npy                   the result, renamed from scratch at the end

The manifest is replaced by write, fsync, rename, fsync of the folder: after a crash it is the old
one or the new one, whole.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from outgrid.errors import StoreError, UsageError
from outgrid.plan.model import Arrival
from outgrid.stencil.problem import PREVIOUS

MANIFEST_NAME = "manifest.json"
FORMAT = 1


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The durable state: ``steps_done`` steps of ``problem``, in the files of ``parity``.

    ``folder`` holds the files. ``steps_done`` is -1 until the initial values are durable.
    """

    version: str
    problem: dict[str, Any]
    folder: str
    steps_done: int
    parity: int
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where a run keeps its results (``out``) and its working files (``scratch``)."""

    out: Path
    scratch: Path

    def create(self) -> None:
        """Make both folders where they are missing. Raises StoreError where they cannot be made."""
        for folder in (self.out, self.scratch):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StoreError(
                    "cannot make the folder", path=folder, errno=error.errno
                ) from error

    def path(self, arrival: Arrival, parity: int) -> Path:
        """The working file of a level; a constant field has one for both parities."""
        return self.scratch / f"{level_name(arrival)}{'' if arrival.constant else f'.{parity}'}.npy"

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
            found = msgspec.json.decode(text, type=Manifest)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise UsageError(f"{path} is not a manifest of this version: {error}") from None
        if found.format != FORMAT:
            raise UsageError(f"{path} has format {found.format}; this version reads {FORMAT}")
        return found

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest, durably and whole."""
        path = self.out / MANIFEST_NAME
        partial = path.with_suffix(".json.new")
        try:
            with partial.open("wb") as file:
                file.write(msgspec.json.encode(manifest) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
            sync_folder(self.out)
        except OSError as error:
            raise StoreError("cannot commit", path=path, errno=error.errno) from error

    def commit(self, manifest: Manifest, steps_done: int, parity: int) -> Manifest:
        """Say durably that ``steps_done`` steps are in the files of ``parity``."""
        new = replace_manifest(manifest, steps_done=steps_done, parity=parity)
        self.write_manifest(new)
        return new

    def check_free(self, levels: tuple[Arrival, ...]) -> None:
        """Raise UsageError if a file that the run is going to make exists already."""
        found = [self.result(level) for level in levels if not level.constant]
        found += [self.path(level, parity) for level in levels for parity in (0, 1)]
        found.append(self.out / MANIFEST_NAME)
        for path in found:
            if path.exists():
                hint = "outgrid resume continues an unfinished run; " if self._resumable() else ""
                raise UsageError(
                    f"{path} exists and is not overwritten; {hint}choose another folder with "
                    "--out, or remove it"
                )

    def _resumable(self) -> bool:
        return (self.out / MANIFEST_NAME).exists()

    def finish(self, levels: tuple[Arrival, ...], parity: int) -> dict[str, str]:
        """Move the results in place, drop the working files, and return name -> file name.

        May be called again after it was cut off: what is in place stays there.
        """
        fields: dict[str, str] = {}
        for level in levels:
            if not level.constant:
                source, result = self.path(level, parity), self.result(level)
                if source.exists() or not result.exists():
                    move(source, result)
                fields[level_name(level)] = result.name
        self.discard(levels)
        (self.out / MANIFEST_NAME).unlink()
        sync_folder(self.out)
        return fields

    def abandon(self, levels: tuple[Arrival, ...]) -> None:
        """Remove the working files and the manifest of a run that has no durable state."""
        self.discard(levels)
        (self.out / MANIFEST_NAME).unlink(missing_ok=True)

    def discard(self, levels: tuple[Arrival, ...]) -> None:
        """Remove the working files of this run, and the scratch folder if that leaves it empty."""
        for level in levels:
            for parity in (0, 1):
                self.path(level, parity).unlink(missing_ok=True)
        if self.scratch.is_dir() and not any(self.scratch.iterdir()):
            self.scratch.rmdir()


def level_name(arrival: Arrival) -> str:
    """ "u" for the current level of field u, "u.previous" for the level before."""
    return arrival.field + (PREVIOUS if arrival.level < 0 else "")


def replace_manifest(manifest: Manifest, **changes: Any) -> Manifest:
    """A manifest with some entries replaced."""
    return msgspec.structs.replace(manifest, **changes)


def move(source: Path, target: Path) -> None:
    """Rename, or copy, sync and remove where the two are on different file systems."""
    try:
        if source.stat().st_dev == target.parent.stat().st_dev:
            os.replace(source, target)
            return
        partial = target.with_suffix(".npy.partial")
        shutil.copyfile(source, partial)
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, target)
        source.unlink()
    except OSError as error:
        raise StoreError(
            "cannot put the result in place", path=target, errno=error.errno
        ) from error


def sync_folder(folder: Path) -> None:
    """Make renames inside ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
