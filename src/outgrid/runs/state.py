"""A run on disk: its files, and the manifest that says how far they are durable.

    OUT/manifest.json           what is computed, where its files are, the last durable state
    OUT/run.lock                the process that runs here
    SCRATCH/owner.json          the run that the working files belong to
    SCRATCH/u.0.npy u.1.npy     the two files of every evolving level, roles swapped each sweep
    SCRATCH/h.npy               a coefficient
    ....npy.xxh3                the checksums of the rows of a field, beside it
    SCRATCH/u.seam.0.8.1.npy    what a strip leaves to the next one, of ring 0 in sweeps of 8 steps,
                                in the second of two places
    SCRATCH/u.ring.0            ring 0 of a window in mapped files
    OUT/totals.new              what a process, or one of several ranks, has found of the reductions
    OUT/u.npy                   the result, renamed from scratch at the end

The manifest is replaced by write, fsync, rename, fsync of the folder: after a crash it is the old
one or the new one, whole. It comes before the first file it names and goes after the last.
"""

from __future__ import annotations

import io
import os
import shutil
import socket
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from outgrid.durable import (
    make_folder,
    partial_path,
    partials,
    remove_folder,
    replace_file,
    sync_folder,
)
from outgrid.errors import StoreError, UsageError
from outgrid.lines import format_share
from outgrid.plan.schedule.lifetime import MOST_RINGS
from outgrid.plan.schedule.rings import Arrival
from outgrid.plan.schedule.seam import SeamKey
from outgrid.record import RECORD_NAME, Part
from outgrid.regular import own, read_own
from outgrid.runs.places import (
    OWNER_NAME,
    SPREAD_SUFFIX,
    OwnerMark,
    Spread,
    read_mark,
    remove_mark,
    write_mark,
)
from outgrid.runs.seals import level_name
from outgrid.seal import Seal
from outgrid.storage import Parts, is_device
from outgrid.storage.sums import sums_path

MANIFEST_NAME = "manifest.json"
HALO = ".halo."
TRACES_NAME = "receivers.npy"
REDUCTIONS_NAME = "reductions.npy"
SAMPLES_NAME = "samples.npy"
TOTALS_NAME = "totals"
FORMAT = 5
# 2: of a sweep that is cut into strips or blocks only the beginning was known; 3: checksums were
# not bound to the run and its steps; 4: reductions of one process were kept behind its samples.
READABLE = (2, 3, 4, 5)
COPY_BYTES = 4 << 20
DIGEST_BYTES = 8


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The durable state: ``steps_done`` steps of ``problem``, in the files of ``parity``.

    ``run`` is a name that no other run has. ``folder`` holds the working files ``files``, relative
    to the manifest where it lies beside it; ``results`` are the files that the run leaves in the
    end. ``steps_done`` is -1 until the initial values are durable. ``parts`` tells what was
    measured up to this state, one entry for each process that worked on the run.

    ``durable`` is False for a run whose fields are in memory until its end, ``exported`` until
    the files of its results are complete, where fields are no files that could be renamed.
    ``spread`` says where fields lie in several places.

    Of the sweep after it, of ``depth`` steps, what its first ``part`` trips leave is durable as
    well, in the files of the other parity and of seams, and what the next one leaves in planes
    below ``planes``; all are 0 where that is not known. ``cut`` says what its trips are: () is the
    whole grid, (rows,) the height of strips, (planes, rows) the size of blocks. Files begin with
    plane ``first`` of the grid, and with row ``first_row`` of each.

    ``sealed`` says that checksums are bound to the run and to the step that they are of, and
    ``samples`` how often was written what receivers have seen: what is there is of that time, or
    of the next one, if the run was cut off between the two.

    ``finite`` says that all values are known to be finite: a run may go on being watched. ``ended``
    says why this state is the last one, where not all steps of the problem are made.

    ``options`` are the entries of ``[run]`` that a resume goes by, as `RunOptions.kept` has them,
    and ``tier`` is what the plan chose.
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
    part: int = 0
    planes: int = 0
    cut: tuple[int, ...] = ()
    first: int = 0
    first_row: int = 0
    parts: tuple[Part, ...] = ()
    durable: bool = True
    exported: bool = True
    spread: Spread | None = None
    finite: bool = False
    ended: str = ""
    options: dict[str, Any] = {}
    tier: str = ""
    sealed: bool = False
    samples: int = 0
    format: int = FORMAT

    @property
    def identity(self) -> str:
        """The run that files are sealed with; none of one that was begun by an older version."""
        return self.run if self.sealed else ""


class _Head(msgspec.Struct, frozen=True):
    """What tells apart the formats of manifests."""

    format: int
    version: str


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where a run keeps its results (``out``) and its working files (``scratch``).

    Its fields may be ``spread`` over several places; scratch then has what belongs to them.
    """

    out: Path
    scratch: Path
    spread: Spread | None = None

    @classmethod
    def of_manifest(cls, out: Path) -> tuple[RunFolder, Manifest]:
        """The folders of an unfinished run. Raises UsageError where there is none."""
        manifest = cls(out, out).read_manifest()
        return cls(out, out / manifest.folder, manifest.spread), manifest

    @property
    def places(self) -> tuple[Path, ...]:
        """All folders and devices that working files are in, scratch first."""
        others = self.spread.paths if self.spread is not None else ()
        return (self.scratch, *(place for place in others if place != self.scratch))

    def create(self, manifest: Manifest) -> None:
        """Make all folders where they are missing and say whose they are.

        The manifest names them before they are made, and files only once all are marked. Raises
        StoreError where they cannot be made.
        """
        make_folder(self.out)
        bare = msgspec.structs.replace(manifest, files=())
        self.write_manifest(bare)
        try:
            for place in self.places:
                write_mark(place, OwnerMark(manifest.run, os.fspath(self.out.resolve())))
        except StoreError:
            self.abandon(bare)
            raise
        self.write_manifest(manifest)

    def relative_scratch(self) -> str:
        """Scratch as a manifest names it: a run that keeps it inside can be moved as a whole."""
        out, scratch = self.out.resolve(), self.scratch.resolve()
        return os.fspath(scratch.relative_to(out) if scratch.is_relative_to(out) else scratch)

    def check_owner(self, manifest: Manifest) -> None:
        """Raise UsageError unless what is in all places is of the manifest's run."""
        for place in self.places:
            mark = read_mark(place)
            if mark is None:
                raise UsageError(
                    f"{place} on {socket.gethostname()} does not hold the working files of the "
                    f"run in {self.out}; resume where that folder can be seen"
                )
            if mark.run != manifest.run:
                raise UsageError(
                    f"the files in {place} belong to another run, the one in {mark.out}; what "
                    f"the run in {self.out} had there is gone"
                )

    def is_mine(self, manifest: Manifest) -> bool:
        """Whether the scratch folder is marked as that of the manifest's run."""
        return self._owns(self.scratch, manifest)

    @staticmethod
    def _owns(place: Path, manifest: Manifest) -> bool:
        mark = read_mark(place)
        return mark is not None and mark.run == manifest.run

    def working(self, arrival: Arrival, parity: int) -> Path:
        """The name of the field that a level is kept in: its file, or that of its checksums."""
        path = self.path(arrival, parity)
        return path if self.spread is None else path.with_suffix(SPREAD_SUFFIX)

    def parts(self, path: Path) -> Parts | None:
        """Where the field of that name is spread to, None for a file."""
        if self.spread is None or path.name not in self.spread.names:
            return None
        return self.spread.parts(path.name)

    def path(self, arrival: Arrival, parity: int) -> Path:
        """The working file of a level; a constant field has one for both parities."""
        return self.scratch / f"{level_name(arrival)}{'' if arrival.constant else f'.{parity}'}.npy"

    @staticmethod
    def beside(path: Path, halo: str) -> Path:
        """The working file of those rows of a level that others own, "below" or "above"."""
        return path.with_suffix(f"{HALO}{halo}{path.suffix}") if halo else path

    def seam(self, field: str, ring: int, depth: int, place: int) -> Path:
        """The working file of the seams of a ring in sweeps of ``depth`` steps."""
        return self.scratch / f"{field}.seam.{ring}.{depth}.{place}.npy"

    def ring(self, field: str, index: int) -> Path:
        """The file of a ring of the window, where it is mapped."""
        return self.scratch / f"{field}.ring.{index}"

    @staticmethod
    def level_of(name: str) -> tuple[str, int | None]:
        """What level is in the working file of that name, and of which parity; None: of both."""
        stem = name.removesuffix(".npy").removesuffix(SPREAD_SUFFIX)
        level, _, parity = stem.rpartition(".")
        return (level, int(parity)) if parity in ("0", "1") else (stem, None)

    def result(self, arrival: Arrival) -> Path:
        """Where the final values of an evolving level go."""
        return self.out / f"{level_name(arrival)}.npy"

    def read_manifest(self) -> Manifest:
        """The manifest. Raises UsageError where there is none, or not one of this version."""
        path = self.out / MANIFEST_NAME
        try:
            text = read_own(path)
        except FileNotFoundError:
            finished = (self.out / RECORD_NAME).exists()
            what = (
                "the run in it is finished" if finished else "no unfinished run is in that folder"
            )
            raise UsageError(f"{self.out} holds no {MANIFEST_NAME}: {what}") from None
        except StoreError:
            raise
        except OSError as error:
            raise StoreError("cannot read the manifest", path=path, errno=error.errno) from error
        try:
            head = msgspec.json.decode(text, type=_Head)
            if head.format not in READABLE:
                raise UsageError(
                    f"{path} has format {head.format}, written by outgrid {head.version}; this "
                    f"version reads formats {READABLE[0]} to {FORMAT}: resume the run with that "
                    "version"
                )
            found = msgspec.json.decode(text, type=Manifest)
            found = msgspec.structs.replace(found, format=FORMAT)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} is not a manifest of this version: {error}") from None
        except RecursionError:
            raise UsageError(f"{path} is not a manifest: it is nested too deeply") from None
        spread = found.spread
        _check_names(path, (*found.files, *found.results, *(spread.names if spread else ())))
        if spread is not None:
            spread.check(path)
        return found

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest, durably and whole."""
        path = self.out / MANIFEST_NAME
        try:
            replace_file(path, msgspec.json.encode(manifest) + b"\n")
        except OSError as error:
            raise StoreError("cannot commit", path=path, errno=error.errno) from error

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
        going = {path.parent.resolve() / path.name for path in replaced}
        free = {path.resolve() for path in erased}
        names = (*self.result_names(levels), *beside)
        others = (RECORD_NAME, MANIFEST_NAME, TRACES_NAME, REDUCTIONS_NAME)
        found = [self.out / name for name in (*names, *others)]
        found += [
            self._samples_so_far(),
            self._totals_so_far(),
            *(partial_path(self.out / name) for name in names),
        ]
        found += [self.scratch / name for name in self.working_names(levels, seams)]
        found += self.spread.files() if self.spread is not None else []
        for path in found:
            if path.parent.resolve() / path.name in going:
                continue
            if path.exists() or path.is_symlink():
                raise UsageError(f"{path} exists and is not overwritten; {way_out(self.out)}")
        for place in self.places:
            mark = read_mark(place)
            if mark is None or place in free:
                continue
            if going and Path(mark.out) == self.out.resolve():
                continue
            if (Path(mark.out) / MANIFEST_NAME).exists():
                hint = f"clear it with outgrid clean {mark.out}"
            else:
                way = f"say --erase {place}" if is_device(place) else f"remove {place}"
                hint = f"as that run has no manifest there any more, {way}"
            raise UsageError(
                f"{place} is in use by the run in {mark.out}; choose another folder with "
                f"--scratch, or {hint}"
            )

    def working_names(
        self,
        levels: tuple[Arrival, ...],
        seams: Iterable[SeamKey] = (),
        apart: Iterable[str] = ("",),
    ) -> tuple[str, ...]:
        """Names of all files that a process makes in scratch, those of its ``seams`` included.

        Rows that are kept ``apart`` are in files beside those of a level.
        """
        files = dict.fromkeys(
            self.beside(self.path(level, parity), halo)
            for level in levels
            for parity in (0, 1)
            for halo in apart
        )
        files |= {self.seam(*key): None for key in seams}
        files |= {self.working(level, parity): None for level in levels for parity in (0, 1)}
        rings = dict.fromkeys(
            self.ring(level.field, ring).name for level in levels for ring in range(MOST_RINGS)
        )
        return (
            *(name for path in files for name in (path.name, sums_path(path).name)),
            *rings,
        )

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

    def write_samples(self, manifest: Manifest, samples: NDArray[np.float64]) -> Manifest:
        """Keep what was seen in each step so far, durably: an array as in a .npy file, its XXH3.

        Returns the manifest that stands on it, and is to be written next.
        """
        content, number = _npy_bytes(samples), manifest.samples + 1
        digest = xxhash.xxh3_64_intdigest(content) ^ _samples_seal(manifest, number).key
        self._replace(self._samples_so_far(), content + digest.to_bytes(DIGEST_BYTES, "big"))
        return msgspec.structs.replace(manifest, samples=number)

    def read_samples(self, manifest: Manifest) -> NDArray[np.float64] | None:
        """What receivers saw before the last commit; None for a run that has just begun.

        Raises StoreError for a file that is missing, damaged, or of another run or time than the
        manifest.
        """
        path = self._samples_so_far()
        try:
            text = read_own(path)
        except FileNotFoundError:
            if manifest.samples == 0:
                return None
            raise StoreError(
                "what receivers and reductions have seen so far is missing", path=path
            ) from None
        except StoreError:
            raise
        except OSError as error:
            raise StoreError("cannot read", path=path, errno=error.errno) from error
        content, digest = text[:-DIGEST_BYTES], int.from_bytes(text[-DIGEST_BYTES:], "big")
        key, number = xxhash.xxh3_64_intdigest(content) ^ digest, manifest.samples
        # That of the next time is of a process which was cut off before its manifest was there.
        if key not in (
            _samples_seal(manifest, number).key,
            _samples_seal(manifest, number + 1).key,
        ):
            raise StoreError(
                "what receivers and reductions have seen did not come back as written: the file "
                f"is damaged, or of another run or time than {MANIFEST_NAME}",
                path=path,
            )
        return np.load(io.BytesIO(content))

    def place_traces(self, traces: NDArray[np.float64]) -> None:
        """Leave the traces of a finished run."""
        self._replace(self.out / TRACES_NAME, _npy_bytes(traces))

    def place_reductions(self, names: Sequence[str], values: NDArray[np.float64]) -> None:
        """Leave the reductions of a finished run: (steps, reductions), as named columns."""
        found = np.zeros(len(values), [(name, np.float64) for name in names])
        for name, column in zip(names, values.T, strict=True):
            found[name] = column
        self._replace(self.out / REDUCTIONS_NAME, _npy_bytes(found))

    def totals(self, manifest: Manifest) -> tuple[Path, str]:
        """The file of what one of several ranks has found of the reductions, and its run."""
        return self._totals_so_far(), manifest.identity

    def _replace(self, path: Path, content: bytes) -> None:
        try:
            replace_file(path, content)
        except OSError as error:
            raise StoreError("cannot write", path=path, errno=error.errno) from error

    def _totals_so_far(self) -> Path:
        return partial_path(self.out / TOTALS_NAME)

    def _samples_so_far(self) -> Path:
        return partial_path(self.out / SAMPLES_NAME)

    def abandon(self, manifest: Manifest) -> None:
        """Remove everything that the manifest owns but results, and at last the manifest."""
        self.remove_files(manifest)
        self.remove_manifest()

    def remove_files(self, manifest: Manifest) -> None:
        """Remove everything that the manifest owns but results, marks at last."""
        for path in self.owned(manifest):
            path.unlink(missing_ok=True)
        for place in self.places[1:]:
            if self._owns(place, manifest):
                remove_mark(place)
        remove_folder(self.scratch)

    def remove_manifest(self) -> None:
        """Remove the manifest, when nothing of what it owns is left."""
        (self.out / MANIFEST_NAME).unlink(missing_ok=True)
        sync_folder(self.out)

    def owned(self, manifest: Manifest) -> list[Path]:
        """The files of a manifest that exist, without results and the manifest itself.

        Those in scratch count only while the folder is marked as this run's; before that there is
        only the mark that is being written.
        """
        found = [self._samples_so_far(), self._totals_so_far()]
        found += [partial_path(self.out / name) for name in manifest.results]
        replaced = [MANIFEST_NAME, RECORD_NAME, TRACES_NAME, REDUCTIONS_NAME]
        for path in (self._samples_so_far(), *(self.out / name for name in replaced)):
            found += partials(path)
        if self.spread is not None:
            mine = {place for place in self.places if self._owns(place, manifest)}
            found += [path for path in self.spread.files() if path.parent in mine]
        for place in self.places:
            marked = self._owns(place, manifest)
            if marked or (not manifest.files and read_mark(place) is None):
                found += partials(place / OWNER_NAME)
        if self.is_mine(manifest):
            names = (*manifest.files, OWNER_NAME)  # the mark goes last
            found += [self.scratch / name for name in names]
        return [path for path in found if path.exists() or path.is_symlink()]


def _samples_seal(manifest: Manifest, number: int) -> Seal:
    return Seal(manifest.identity, SAMPLES_NAME, number)


def _npy_bytes(array: NDArray[Any]) -> bytes:
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


def _check_names(path: Path, names: tuple[str, ...]) -> None:
    """A manifest names files in its folders, not elsewhere."""
    for name in names:
        if Path(name).name != name or name in ("", ".", "..") or "\0" in name:
            raise UsageError(f"{path} names a file {name!r} outside of the run's folders")


def way_out(out: Path, resumable: str = MANIFEST_NAME) -> str:
    """What to do where something of a run is in the folder that another one is to have."""
    hint = "outgrid resume continues an unfinished run; " if (out / resumable).exists() else ""
    former = hint or (out / RECORD_NAME).exists()
    replace = "--overwrite replaces what a former run has left, " if former else ""
    return f"{hint}choose another folder with --out, {replace}or remove it"


def is_halo(name: str) -> bool:
    """Whether a working file holds rows that another rank owns."""
    return HALO in name


def is_seam(name: str) -> bool:
    """Whether a working file holds seams, which mean nothing beyond their sweep."""
    return ".seam." in name


def at_start_of_sweep(manifest: Manifest) -> Manifest:
    """The manifest without what is known of the sweep after its state."""
    return msgspec.structs.replace(manifest, depth=0, part=0, planes=0, cut=())


def check_begun(manifest: Manifest, out: Path) -> None:
    """Raise UsageError for a run that has no state to go on from."""
    if manifest.steps_done < 0:
        raise UsageError(
            f"the run in {out} stopped before its initial values were complete; clear it with "
            f"outgrid clean {out} --delete and run it again"
        )


def how_far(manifest: Manifest, parts: int = 0) -> str:
    """How much of an unfinished run is durable, where its next sweep has so many ``parts``.

    Without that, what is there of a sweep in several parts is not told in figures.
    """
    done, steps = manifest.steps_done, manifest.problem.get("steps")
    if done < 0:
        return "the run has no durable state"
    begun, which = "", "next" if done else "first"
    if manifest.part or manifest.planes:
        parts = parts or (0 if manifest.cut else 1)
        whole = max(1, *manifest.problem["shape"][:1])
        share = (manifest.part + min(1.0, manifest.planes / whole)) / parts if parts else 0.0
        begun = f" and {format_share(share)} of the {which} sweep"
        if not parts:
            begun = f" and a part of the {which} sweep"
    if done:
        return f"{done} of {steps} steps{begun} are kept"
    if begun:
        return f"the initial values{begun} are kept"
    return f"only the initial values are kept, none of the {steps} steps"


def _made(path: str, flags: int) -> int:
    """As `own`, of a file that is made where it is missing."""
    return own(path, flags | os.O_CREAT)


def move(source: Path, target: Path) -> None:
    """Rename, or copy, sync and remove where the two are on different file systems."""
    try:
        if source.stat().st_dev == target.parent.stat().st_dev:
            os.replace(source, target)
            return
        partial = partial_path(target)
        # Space that was reserved there is kept: the file is not truncated.
        with open(source, "rb", opener=own) as old, open(partial, "r+b", opener=_made) as new:
            shutil.copyfileobj(old, new, COPY_BYTES)
            new.flush()
            os.fsync(new.fileno())
        os.replace(partial, target)
        sync_folder(target.parent)
        source.unlink()
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(
            "cannot put the result in place", path=target, errno=error.errno
        ) from error
