"""Files kept from one run to the next: whole or not there, one's own, and looked at before use."""

from __future__ import annotations

import errno
import os
import pwd
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec
import xxhash

from outgrid.durable import existing, sync_folder
from outgrid.errors import StoreError, UsageError
from outgrid.regular import own

Value = TypeVar("Value")
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
MARK = b"outgrid1"
LENGTH_BYTES = 8
DIGEST_BYTES = 16


def cache_folder() -> Path:
    """``$OUTGRID_CACHE``, else ``$XDG_CACHE_HOME/outgrid``, else ``~/.cache/outgrid``."""
    if named := os.environ.get("OUTGRID_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outgrid"


def keep(path: Path, content: bytes) -> None:
    """Give ``path`` this content, durably and whole; several processes may do so at once.

    Folders that are missing are made for the user alone. Raises OSError.
    """
    _make_private(path.parent)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    sync_folder(path.parent)


def check_writable(folder: Path) -> None:
    """Raise OSError where nothing could be kept in ``folder``, which need not be there yet."""
    place = existing(folder)
    if not os.access(place, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(place))


def read_trusted(path: Path) -> bytes | None:
    """What is kept at ``path`` and may be run, None where nothing is.

    Raises UsageError where file or folder belong to, or may be written by, somebody else, or where
    it is no regular file; OSError where it cannot be read.
    """
    try:
        check_trusted(path.parent, os.stat(path.parent))
        with open(path, "rb", opener=own) as file:
            check_trusted(path, os.fstat(file.fileno()))
            return file.read()
    except FileNotFoundError:
        return None
    except StoreError as error:
        raise UsageError(f"{error}; remove it, or {elsewhere()}") from error


def decoded(text: bytes, kind: type[Value]) -> Value | None:
    """The value in JSON that was kept; None for text of another version, or of none."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def check_trusted(path: Path, status: os.stat_result) -> None:
    """Raise UsageError unless ``path`` is of this user, or of root, and nobody else may write."""
    mine, mode = os.geteuid(), stat.S_IMODE(status.st_mode)
    risk = "its code would run with your permissions"
    if status.st_uid not in (mine, 0):
        raise UsageError(
            f"{path} belongs to {_user(status.st_uid)}, and this process to {_user(mine)}: {risk}; "
            f"remove it, or {elsewhere()}"
        )
    if mode & OTHERS_WRITE:
        raise UsageError(
            f"{path} may be written by others (mode {mode:04o}): {risk}; if nobody else did, "
            f"chmod go-w {path}, or {elsewhere()}"
        )


def elsewhere() -> str:
    """The way out where a cache does not serve."""
    return "name another folder for kernels in $OUTGRID_CACHE"


def labelled(content: bytes, words: str) -> bytes:
    """``content`` with ``words`` about it behind it, and a digest of both."""
    text = words.encode()
    whole = content + text + len(text).to_bytes(LENGTH_BYTES, "little")
    return whole + xxhash.xxh3_128_digest(whole) + MARK


def label_of(whole: bytes) -> str | None:
    """The words behind labelled content, None where it did not come back as it was written."""
    body, mark = whole[: -len(MARK)], whole[-len(MARK) :]
    body, digest = body[:-DIGEST_BYTES], body[-DIGEST_BYTES:]
    if mark != MARK or xxhash.xxh3_128_digest(body) != digest:
        return None
    length = int.from_bytes(body[-LENGTH_BYTES:], "little")
    return body[-LENGTH_BYTES - length : -LENGTH_BYTES].decode()


def _make_private(folder: Path) -> None:
    for place in (*reversed(folder.parents), folder):
        if not place.is_dir():
            place.mkdir(mode=0o700, exist_ok=True)


def _user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
