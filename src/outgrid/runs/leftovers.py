"""What an unfinished run has left on disk, and removing it: only what its manifests own."""

from __future__ import annotations

from pathlib import Path

import msgspec

from outgrid.durable import remove_empty
from outgrid.errors import Error
from outgrid.record import RECORD_NAME
from outgrid.runs.group import GROUP_NAME, OnDisk, Share, abandon, is_unfinished, on_disk
from outgrid.runs.lock import RunLock
from outgrid.runs.manifest import MANIFEST_NAME, Manifest
from outgrid.runs.single import file_of, restore, separate
from outgrid.runs.state import RunFolder
from outgrid.runs.zarr import begun, remove
from outgrid.stencil.problem import PREVIOUS, Problem


class Leftovers(msgspec.Struct, frozen=True):
    """The files that a run owns, and the ``manifest`` of the rank that has come least far; None for
    a run that is finished and owns none.

    ``foreign`` are scratch folders that are not this run's, or not seen from this host.
    """

    manifest: Manifest | None
    files: tuple[Path, ...]
    nbytes: int
    foreign: tuple[Path, ...]


def leftovers(out: Path, *, delete: bool = False) -> Leftovers:
    """What the unfinished run in ``out`` owns on disk; with ``delete`` it is removed.

    Results that are in place are never removed. Raises UsageError where no run is, where its
    manifest is of another version, or where a process works on the run.
    """
    nothing = Leftovers(None, (), 0, ())
    if not is_unfinished(on_disk(out)):
        _check_finished(out)
        return nothing
    with RunLock(out):
        run = on_disk(out)
        if not is_unfinished(run):
            _check_finished(out)
            return nothing
        left = list_leftovers(run)
        if delete:
            remove_leftovers(run)
        return left


def _check_finished(out: Path) -> None:
    if not (out / RECORD_NAME).exists():
        RunFolder.of_manifest(out)


def list_leftovers(run: OnDisk) -> Leftovers:
    """What an unfinished run, whose folder is locked, owns on disk."""
    out, shares = run.out, (*run.shares, *run.strays)
    owned = [path for share in shares for path in share.folder.owned(share.manifest)]
    beside = [*(share.folder.out / MANIFEST_NAME for share in shares), out / GROUP_NAME]
    beside = [path for path in beside if path.exists()]
    named = [path for group in _left_by(run) for path in begun(out, *group)]
    files = tuple(dict.fromkeys((*run.growing, *run.partial, *named, *owned, *beside)))
    return Leftovers(
        manifest=run.manifest,
        files=files,
        nbytes=sum(path.lstat().st_blocks * 512 for path in files),
        foreign=tuple(share.folder.scratch for share in shares if _is_foreign(share, out)),
    )


def remove_leftovers(run: OnDisk) -> None:
    """Remove what an unfinished run, whose folder is locked, owns on disk."""
    for path in run.growing:
        path.unlink()
        remove_empty(path.parent, run.out)
    for group in _left_by(run):
        remove(run.out, *group)
    run.tidy()
    if run.shares:
        restore(run.out, run.manifest)
        separate(run.out, run.manifest)
    for share in run.shares:
        abandon(run.out, share)
    (run.out / GROUP_NAME).unlink(missing_ok=True)


def _left_by(run: OnDisk) -> list[tuple[Problem, list[str]]]:
    """What an unfinished run computes, and the names of the fields that it leaves.

    Nothing of one that has its record, whose files are results, or of a problem that is none; or
    that becomes one file.
    """
    if not run.shares or (run.out / RECORD_NAME).exists() or file_of(run.manifest):
        return []
    try:
        problem = Problem.from_dict(run.manifest.problem)
    except Error:
        return []
    names = {Path(name).stem for share in run.shares for name in share.manifest.results}
    known = {f"{field.name}{level}" for field in problem.stencil.fields for level in ("", PREVIOUS)}
    return [(problem, sorted(names & known))]


def _is_foreign(share: Share, out: Path) -> bool:
    """Whether files of a share may be where nothing says that they are its own.

    Where a process was cut off while it removed them, the mark is gone and so are the files.
    """
    folder, manifest = share.folder, share.manifest
    if not manifest.files or folder.is_mine(manifest):
        return False
    if folder.scratch.is_dir():
        return any((folder.scratch / name).exists() for name in manifest.files)
    return not folder.scratch.absolute().is_relative_to(out.absolute())
