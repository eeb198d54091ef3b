"""What an unfinished run has left on disk, and removing it: only what its manifest owns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from outgrid.execute.lock import RunLock
from outgrid.execute.state import MANIFEST_NAME, Manifest, RunFolder


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The files that a manifest owns. ``foreign`` is a scratch folder that is not this run's."""

    manifest: Manifest
    files: tuple[Path, ...]
    nbytes: int
    foreign: Path | None


def leftovers(out: Path, *, delete: bool = False) -> Leftovers:
    """What the unfinished run in ``out`` owns on disk; with ``delete`` it is removed.

    Results that are in place are never removed. Raises UsageError where no manifest is, where it
    is of another version, or where a process works on the run.
    """
    RunFolder.of_manifest(out)
    with RunLock(out):
        folder, manifest = RunFolder.of_manifest(out)
        files = (*folder.owned(manifest), out / MANIFEST_NAME)
        found = Leftovers(
            manifest=manifest,
            files=files,
            nbytes=sum(path.lstat().st_blocks * 512 for path in files),
            foreign=None if folder.is_mine(manifest) else folder.scratch,
        )
        if delete:
            folder.abandon(manifest)
        return found
