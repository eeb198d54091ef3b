"""Files that are replaced whole or not at all, and stay replaced after a power loss."""

import ctypes
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from outgrid.errors import StoreError, file_errors

__all__ = [
    "existing",
    "make_folder",
    "mount_of",
    "partial_path",
    "partials",
    "remove_empty",
    "remove_folder",
    "replace_file",
    "replace_whole",
    "sync_all",
    "sync_folder",
]

# Something is in a folder, it is in use as a mount point is, or the one above it is not ours.
STAYS = (
    errno.ENOTEMPTY,
    errno.EEXIST,
    errno.ENOTDIR,
    errno.EBUSY,
    errno.EACCES,
    errno.EPERM,
)

SYNCED_AT_ONCE = 8  # file systems write for many what they write for one
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # as linux/fcntl.h and linux/fs.h have them


def replace_file(path: Path, content: bytes) -> None:
    """Give `path` new content: after a crash at any moment it holds the old one or the new one.

    The order is write, fsync of the file, rename, fsync of its folder. What is written first has a
    name that nobody else gives, so that no file of others is in its place; what a process that was
    cut off left there goes. One process at a time may replace a file. Raises StoreError; the old
    content is then still there.
    """
    partial = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
    made = False
    try:
        for left in partials(path):
            left.unlink()
        with partial.open("xb") as file:
            made = True
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:  # one of a write does not name its file
        if made:
            with suppress(OSError):  # what stays goes with the next one
                partial.unlink()
        raise StoreError("cannot replace the file", path=path, errno=error.errno) from error
    sync_folder(path.parent)


def replace_whole(new: Path, path: Path) -> None:
    """Give `new`, a file or a folder with all in it, the name `path`, durably.

    At any moment the old one has that name, or the new one; where one of them is a folder, the two
    are exchanged. What was there goes by the name of the new one then. Raises StoreError.
    """
    with file_errors("cannot replace", path):
        _sync(new)
        if os.path.lexists(path) and (_is_folder(path) or _is_folder(new)):
            _exchange(new, path)
        else:
            os.replace(new, path)
    sync_folder(path.parent)


def _sync(new: Path) -> None:
    """Make a file durable, or a folder with all in it."""
    if not _is_folder(new):
        _sync_file(new)
        return
    tree = [*os.walk(new, topdown=False)]
    files = [Path(folder, name) for folder, _, names in tree for name in names]
    sync_all(files, [Path(folder) for folder, _, _ in tree])


def sync_all(files: Iterable[Path], folders: Iterable[Path]) -> None:
    """Make files durable, and what was created inside of folders. Raises OSError and StoreError.

    Many at once, in any order: nothing may stand for the others yet.
    """
    with ThreadPoolExecutor(SYNCED_AT_ONCE) as threads:
        for act, paths in ((_sync_file, files), (sync_folder, folders)):
            for _ in threads.map(act, dict.fromkeys(paths)):
                pass


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _exchange(one: Path, other: Path) -> None:
    """Let two names in a folder stand for what the other did, at once."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    failed = errno.ENOSYS
    if call is not None:
        names = os.fsencode(one.absolute()), os.fsencode(other.absolute())
        done = call(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE)
        failed = ctypes.get_errno() if done else 0
    if failed in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
        raise StoreError(
            "this file system cannot exchange two names at once, which replacing a folder takes; "
            "remove it first",
            path=other,
            errno=failed,
        )
    if failed:
        raise OSError(failed, os.strerror(failed))


def partial_path(path: Path) -> Path:
    """The name of a file of a run until it is whole, and is renamed to `path`."""
    return path.with_name(f"{path.name}.new")


def partials(path: Path) -> list[Path]:
    """What processes that were cut off in `replace_file` have left beside `path`."""
    named = re.compile(re.escape(path.name) + r"\.[0-9a-f]{16}\.new")
    try:
        names = sorted(filter(named.fullmatch, os.listdir(path.parent)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [place for name in names if _is_plain(place := path.with_name(name))]


def _is_plain(path: Path) -> bool:
    """Whether it is a regular file that has no other name."""
    status = path.lstat()
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def sync_folder(folder: Path) -> None:
    """Make what was created, renamed and removed inside `folder` durable. Raises StoreError."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreError("cannot flush the folder", path=folder, errno=error.errno) from error


def make_folder(folder: Path) -> None:
    """Make `folder` and those above it where they are missing. Raises StoreError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError("cannot make the folder", path=folder, errno=error.errno) from error


def remove_folder(folder: Path) -> bool:
    """Remove a folder that is empty, if it may be removed; whether it is gone. Raises StoreError.

    Other processes may do so at once.
    """
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in STAYS:
            return False
        raise StoreError("cannot remove", path=folder, errno=error.errno) from error
    return True


def remove_empty(folder: Path, out: Path) -> None:
    """Remove a folder inside ``out`` if nothing is in it, and then those above it likewise."""
    out = out.absolute()
    for parent in (folder.absolute(), *folder.absolute().parents):
        if parent == out or not parent.is_relative_to(out) or not remove_folder(parent):
            return


def mount_of(folder: Path) -> tuple[int, str]:
    """The device of a folder, or of its nearest parent, and the mount that it is seen through.

    A file is renamed within one mount only. A container may see two folders of one disk through
    two mounts.
    """
    descriptor = os.open(existing(folder), os.O_PATH)
    try:
        told = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
        number = re.search(r"^mnt_id:\s*(\d+)$", told, re.M)
        return os.fstat(descriptor).st_dev, number[1] if number else ""
    finally:
        os.close(descriptor)


def existing(folder: Path) -> Path:
    """`folder`, or the nearest of its parents that exists."""
    place = folder.absolute()
    while not os.path.isdir(place):  # also one that may not be looked at is none
        place = place.parent
    return place
