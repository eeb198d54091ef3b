"""What an unfinished run has left on disk, and removing it: only what its manifests own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from outgrid.execute.group import GROUP_NAME, all_shares, remove_empty
from outgrid.execute.lock import RunLock
from outgrid.execute.state import MANIFEST_NAME, Manifest, RunFolder
from outgrid.stencil.snapshot import snapshot_names


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The files that a run owns, and the ``manifest`` that has come least far, one of each rank.

    ``foreign`` are scratch folders that are not this run's, or not seen from this host.
    """

    manifest: Manifest
    files: tuple[Path, ...]
    nbytes: int
    foreign: tuple[Path, ...]


def leftovers(out: Path, *, delete: bool = False) -> Leftovers:
    """What the unfinished run in ``out`` owns on disk; with ``delete`` it is removed.

    Results that are in place are never removed. Raises UsageError where no manifest is, where it
    is of another version, or where a process works on the run.
    """
    if not all_shares(out):
        RunFolder.of_manifest(out)
    with RunLock(out):
        shares = all_shares(out)
        owned = [path for each in shares for path in each.folder.owned(each.manifest)]
        taken = {len(each.manifest.problem["snapshots"]) for each in shares}
        owned += [
            path
            for name in snapshot_names(max(taken, default=0))
            if (path := out / f"{name}.new").exists() and path not in owned
        ]
        beside = [out / GROUP_NAME, *(each.folder.out / MANIFEST_NAME for each in shares)]
        files = (*owned, *(path for path in beside if path.exists()))
        found = Leftovers(
            manifest=min((each.manifest for each in shares), key=lambda each: each.steps_done),
            files=files,
            nbytes=sum(path.lstat().st_blocks * 512 for path in files),
            foreign=tuple(
                each.folder.scratch for each in shares if not each.folder.is_mine(each.manifest)
            ),
        )
        if delete:
            for each in shares:
                each.folder.abandon(each.manifest)
                remove_empty(each.folder.scratch.parent, out)
                remove_empty(each.folder.out, out)
            for path in owned:  # what ranks share
                path.unlink(missing_ok=True)
            (out / GROUP_NAME).unlink(missing_ok=True)
        return found
