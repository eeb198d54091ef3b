"""Opening files that others may have put there: regular ones, and without ever waiting.

Opening a FIFO waits for whoever writes to it, opening a device may do something, and reading either
may have no end. So what a name means is looked at before it is opened, and once more behind that.

    open(path, "rb", opener=given)     a file of the user's, or a link to one
    open(path, "rb", opener=own)       a file that a run has made: it is no link
    open(path, "rb", opener=stored)    what a field lies in: a file, or a block device
"""

import errno
import os
import stat
from pathlib import Path
from typing import Any

from outgrid.errors import StoreError, file_errors

__all__ = [
    "check_given",
    "check_own",
    "given",
    "own",
    "read_fully",
    "read_given",
    "read_own",
    "resolved",
    "stored",
]

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFDIR: "a directory",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a link",
}
MOST_TEXT_BYTES = 1 << 30
"""Longest manifest, record or list of ranks: of ten million steps with values of their own."""

Name = str | os.PathLike[str]


def given(path: Name, flags: int) -> int:
    """An opener for `open`: of a regular file, or one that links lead to.

    Raises StoreError that says what is there instead, other OSErrors as `os.open` does.
    """
    return _opened(path, flags, follow=True)


def own(path: Name, flags: int, mode: int = 0o666) -> int:
    """The same, of a regular file that the name itself stands for."""
    return _opened(path, flags, follow=False, mode=mode)


def stored(path: Name, flags: int) -> int:
    """As `given`, of a block device as well."""
    return _opened(path, flags, follow=True, devices=True)


def check_given(path: Name) -> None:
    """Raise StoreError where `path` is there and `given` would not open it."""
    _looked_at(path, follow=True)


def check_own(path: Name) -> None:
    """Raise StoreError where `path` is there and `own` would not open it."""
    _looked_at(path, follow=False)


def read_given(path: Name, most_bytes: int = MOST_TEXT_BYTES) -> bytes:
    """All of a file of the user's. Raises StoreError where it is longer, else as `given` does."""
    return _read(path, most_bytes, follow=True)


def read_own(path: Name, most_bytes: int = MOST_TEXT_BYTES) -> bytes:
    """All of a file that a run has made. Raises StoreError as `read_given` does."""
    return _read(path, most_bytes, follow=False)


def resolved(path: Name) -> Path:
    """The whole path that a name leads to, or as far as it leads: links may go in a circle.

    `Path.resolve` raises RuntimeError for these.
    """
    return Path(os.path.realpath(path))


def read_fully(
    descriptor: int,
    into: Any,
    offset: int,
    path: Name,
    short: str = "the file ends before its data",
) -> None:
    """Fill the buffer `into` with what is at byte `offset` of the open file `path`.

    Raises StoreError, which begins with the words `short`, where the file ends before, OSError
    where it cannot be read.
    """
    memory = memoryview(into).cast("B")
    done = 0
    while done < len(memory):
        count = os.preadv(descriptor, [memory[done:]], offset + done)
        if count == 0:
            raise StoreError(
                short,
                path=path,
                offset=offset + done,
                length=len(memory) - done,
                errno=errno.ENODATA,
            )
        done += count


def _looked_at(path: Name, *, follow: bool) -> None:
    with file_errors("cannot open", path):
        _check_name(path, follow=follow)


def _read(path: Name, most_bytes: int, *, follow: bool) -> bytes:
    with open(path, "rb", opener=given if follow else own) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise StoreError(f"it has more than {most_bytes} bytes", path=path)
    return content


def _opened(
    path: Name, flags: int, *, follow: bool, devices: bool = False, mode: int = 0o666
) -> int:
    _check_name(path, follow=follow, devices=devices)
    flags |= os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags, mode)
    try:
        _check(os.fstat(descriptor), path, devices=devices)
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_name(path: Name, *, follow: bool, devices: bool = False) -> None:
    try:
        status = os.stat(path, follow_symlinks=follow)
    except FileNotFoundError:
        if follow and os.path.islink(path):
            words = f"it is a link to {os.readlink(path)}, which does not exist"
            raise StoreError(words, path=path) from None
        return
    _check(status, path, devices=devices)


def _check(status: os.stat_result, path: Name, *, devices: bool) -> None:
    if not (stat.S_ISREG(status.st_mode) or (devices and stat.S_ISBLK(status.st_mode))):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise StoreError(f"it is {kind}, and only regular files are opened", path=Path(path))
