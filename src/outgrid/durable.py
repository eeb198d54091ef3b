"""Files that are replaced whole or not at all, and stay replaced after a power loss."""

import errno
import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from outgrid.errors import StoreError

__all__ = [
    "existing",
    "make_folder",
    "partial_path",
    "partials",
    "remove_folder",
    "replace_file",
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
    found = path.lstat()
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1


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


def existing(folder: Path) -> Path:
    """`folder`, or the nearest of its parents that exists."""
    place = folder.absolute()
    while not os.path.isdir(place):  # also one that may not be looked at is none
        place = place.parent
    return place
