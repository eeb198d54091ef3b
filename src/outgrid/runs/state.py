"""The folder of a run: its manifest, its working files, and the results that it leaves.

OUT/manifest.json           how far it is durable, see `Manifest`
OUT/run.lock                the process that runs here
OUT/samples.npy.new ...     what observers keep until its end, see `samples`
SCRATCH/...                 working files, see `Working`
OUT/u.npy                   the result, renamed from scratch at the end
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from outgrid.durable import (
    make_folder,
    mount_of,
    partial_path,
    partials,
    remove_empty,
    remove_folder,
    sync_folder,
)
from outgrid.errors import StoreError, UsageError
from outgrid.plan.schedule.rings import Arrival
from outgrid.plan.schedule.seam import SeamKey
from outgrid.record import RECORD_NAME
from outgrid.regular import own, resolved
from outgrid.runs.manifest import (
    MANIFEST_NAME,
    Manifest,
    read_manifest,
    remove_manifest,
    write_manifest,
)
from outgrid.runs.places import OWNER_NAME, OwnerMark, Spread, read_mark, remove_mark, write_mark
from outgrid.runs.reading import LIVE_NAMES
from outgrid.runs.samples import REDUCTIONS_NAME, TRACES_NAME, samples_so_far, totals_so_far
from outgrid.runs.seals import level_name
from outgrid.runs.together import Together
from outgrid.runs.working import Working
from outgrid.storage import is_device
from outgrid.storage.sums import sums_path

COPY_BYTES = 4 << 20


class RunFolder(msgspec.Struct, frozen=True):
    """Where a run keeps its results (``out``) and its working files (``scratch``).

    Its fields may be ``spread`` over several places; scratch then has what belongs to them. Or its
    arrays lie ``together`` in one file.
    """

    out: Path
    scratch: Path
    spread: Spread | None = None
    together: Together | None = None

    @classmethod
    def of_manifest(cls, out: Path) -> tuple[RunFolder, Manifest]:
        """The folders of an unfinished run. Raises UsageError where there is none."""
        manifest = read_manifest(out)
        scratch = out / manifest.folder
        return cls(out, scratch, manifest.spread, manifest.together), manifest

    @property
    def working(self) -> Working:
        """Its working files."""
        return Working(self.scratch, self.spread, self.together)

    def create(self, manifest: Manifest) -> None:
        """Make all folders where they are missing and say whose they are.

        The manifest names them before they are made, and files only once all are marked. Raises
        StoreError where they cannot be made.
        """
        make_folder(self.out)
        bare = msgspec.structs.replace(manifest, files=())
        write_manifest(self.out, bare)
        try:
            for place in self.working.places:
                write_mark(place, OwnerMark(manifest.run, os.fspath(resolved(self.out))))
        except StoreError:
            self.abandon(bare)
            raise
        write_manifest(self.out, manifest)

    def relative_scratch(self) -> str:
        """Scratch as a manifest names it: a run that keeps it inside can be moved as a whole."""
        out, scratch = resolved(self.out), resolved(self.scratch)
        return os.fspath(scratch.relative_to(out) if scratch.is_relative_to(out) else scratch)

    def check_owner(self, manifest: Manifest) -> None:
        """Raise UsageError unless what is in all places is of the manifest's run."""
        for place in self.working.places:
            mark = read_mark(place)
            if mark is None:
                raise UsageError(
                    f"{place} on {socket.gethostname()} has no working files of the run in "
                    f"{self.out}; resume on a machine that sees that folder"
                )
            if mark.run != manifest.run:
                raise UsageError(
                    f"the files in {place} belong to another run, the one in {mark.out}; the "
                    f"working files of the run in {self.out} are lost"
                )

    def is_mine(self, manifest: Manifest) -> bool:
        """Whether the scratch folder is marked as that of the manifest's run."""
        return self.scratch in self.working.marked(manifest.run)

    def result(self, arrival: Arrival) -> Path:
        """Where the final values of an evolving level go."""
        return self.out / f"{level_name(arrival)}.npy"

    def check_free(
        self,
        levels: tuple[Arrival, ...],
        beside: tuple[str, ...] = (),
        seams: Iterable[SeamKey] = (),
        erased: Iterable[Path] = (),
        replaced: Collection[Path] = (),
    ) -> None:
        """Raise UsageError if a file that the run is going to make exists already.

        ``beside`` are the files that it leaves beside its fields, ``erased`` devices that may hold
        what another run has left, and ``replaced`` files of a former run in ``out`` that go first.
        """
        going = {resolved(path.parent) / path.name for path in replaced}
        names = (*self.result_names(levels), *beside)
        others = (RECORD_NAME, MANIFEST_NAME, TRACES_NAME, REDUCTIONS_NAME)
        paths = [self.out / name for name in (*names, *others)]
        paths += [
            samples_so_far(self.out),
            totals_so_far(self.out),
            *(partial_path(self.out / name) for name in names),
        ]
        paths += [self.scratch / name for name in self.working.names(levels, seams)]
        paths += self.spread.files() if self.spread is not None else []
        for path in paths:
            if resolved(path.parent) / path.name in going:
                continue
            if path.exists() or path.is_symlink():
                way = way_out(self.out)
                if not path.is_relative_to(self.out):
                    way = "choose another folder with --scratch, or remove it"
                raise UsageError(f"{path} exists and is not overwritten; {way}")
        self._check_places_free({resolved(path) for path in erased}, bool(going))

    def _check_places_free(self, erased: Collection[Path], replaces: bool) -> None:
        """Raise UsageError where working files of another run are, but where it is replaced."""
        for place in self.working.places:
            mark = read_mark(place)
            if mark is None or place in erased:
                continue
            if replaces and Path(mark.out) == resolved(self.out):
                continue
            if (Path(mark.out) / MANIFEST_NAME).exists():
                hint = f"remove it with outgrid clean {mark.out}"
            else:
                way = f"give --erase {place}" if is_device(place) else f"remove {place}"
                hint = f"as that run has no manifest there any more, {way}"
            raise UsageError(
                f"{place} is in use by the run in {mark.out}; choose another folder with "
                f"--scratch, or {hint}"
            )

    def leaving(self, manifest: Manifest, beside: Iterable[str]) -> Manifest:
        """The manifest of a run that goes on and leaves ``beside`` its fields what is named so.

        Raises UsageError if one of these files exists and is not the run's.
        """
        more = tuple(name for name in beside if name not in manifest.results)
        made = [self.out / name for name in more]
        for path in (*made, *map(partial_path, made)):
            if os.path.lexists(path):
                raise UsageError(
                    f"{path} exists, is not of the run in {self.out} and is not overwritten; "
                    "move it, or leave out the option that asks for it"
                )
        return msgspec.structs.replace(manifest, results=(*manifest.results, *more))

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
                source, result = self.working.path(level, parity), self.result(level)
                moved = [(source, result), (sums_path(source), sums_path(result))]
                for old, new in moved[1:] if self.in_another(level) else moved:
                    if old.exists() or not new.exists():
                        move(old, new)
                fields[level_name(level)] = result.name
        sync_folder(self.out)
        return fields

    def in_another(self, level: Arrival) -> bool:
        """Whether a level lies in the file of another one."""
        name, together = level_name(level), self.together
        return together is not None and name != together.field and name in together.offsets

    def abandon(self, manifest: Manifest) -> None:
        """Remove everything that the manifest owns but results, and at last the manifest."""
        self.remove_files(manifest)
        remove_manifest(self.out)

    def remove_files(self, manifest: Manifest) -> None:
        """Remove everything that the manifest owns but results, marks at last."""
        for path in self.owned(manifest):
            path.unlink(missing_ok=True)
            remove_empty(path.parent, self.out)
        for place in self.working.marked(manifest.run):
            if place != self.scratch:
                remove_mark(place)
        remove_folder(self.scratch)

    def owned(self, manifest: Manifest) -> list[Path]:
        """The files of a manifest that exist, without results and the manifest itself.

        Those in scratch count only while the folder is marked as this run's; before that there is
        only the mark that is being written.
        """
        paths = [samples_so_far(self.out), totals_so_far(self.out)]
        paths += [partial_path(self.out / name) for name in manifest.results]
        if not (self.out / RECORD_NAME).exists():  # of a finished run they are results
            paths += [self.out / name for name in LIVE_NAMES if name in manifest.results]
        replaced = [MANIFEST_NAME, RECORD_NAME, TRACES_NAME, REDUCTIONS_NAME]
        for path in (samples_so_far(self.out), *(self.out / name for name in replaced)):
            paths += partials(path)
        mine = self.working.marked(manifest.run)
        if self.spread is not None:
            paths += [path for path in self.spread.files() if path.parent in mine]
        for place in self.working.places:
            if place in mine or (not manifest.files and read_mark(place) is None):
                paths += partials(place / OWNER_NAME)
        if self.scratch in mine:
            names = (*manifest.files, OWNER_NAME)  # the mark goes last
            paths += [self.scratch / name for name in names]
        return [path for path in paths if path.exists() or path.is_symlink()]


def way_out(out: Path, resumable: str = MANIFEST_NAME) -> str:
    """What to do where something of a run is in the folder that another one is to have."""
    hint = "outgrid resume continues an unfinished run; " if (out / resumable).exists() else ""
    former = hint or (out / RECORD_NAME).exists()
    replace = "replace the former run with --overwrite, " if former else ""
    return f"{hint}choose another folder with --out, {replace}or remove it"


def _made(path: str, flags: int) -> int:
    """As `own`, of a file that is made where it is missing."""
    return own(path, flags | os.O_CREAT)


def move(source: Path, target: Path) -> None:
    """Rename, or copy, sync and remove where the two are seen through different mounts."""
    try:
        if mount_of(source.parent) == mount_of(target.parent):
            os.replace(source, target)
            return
        partial = partial_path(target)
        # Space that was reserved there is kept, and may be more than the result takes.
        with open(source, "rb", opener=own) as old, open(partial, "r+b", opener=_made) as new:
            shutil.copyfileobj(old, new, COPY_BYTES)
            new.truncate()
            new.flush()
            os.fsync(new.fileno())
        os.replace(partial, target)
        sync_folder(target.parent)
        source.unlink()
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(
            "cannot move the result into place", path=target, errno=error.errno
        ) from error
