"""Files that are replaced whole or not at all, and stay replaced after a power loss."""

import errno
import os
from pathlib import Path

from outgrid.errors import StoreError

__all__ = ["existing", "make_folder", "remove_folder", "replace_file", "sync_folder"]

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

    The order is write, fsync of the file, rename, fsync of its folder. Raises StoreError; the old
    content is then still there.
    """
    partial = path.with_name(path.name + ".new")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:  # one of a write does not name its file
        raise StoreError("cannot replace the file", path=path, errno=error.errno) from error
    sync_folder(path.parent)


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
