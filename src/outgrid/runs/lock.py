"""One run in a folder at a time: a lock that dies with its owner and says who that is.

    OUT/run.lock    pid, host and start of the process that runs here

The kernel's lock on the file (flock) ends with the process, however it ends. What is written in the
file tells others whom to ask, and it is all there is to go by where the owner ran on another host:
not every shared file system carries locks from host to host.
"""

from __future__ import annotations

import datetime
import fcntl
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from outgrid.comm import strangers
from outgrid.durable import make_folder
from outgrid.errors import StoreError, UsageError, file_errors
from outgrid.regular import own

LOCK_NAME = "run.lock"
LOOKS, LOOK_SECONDS = 5, 0.01


class Owner(msgspec.Struct, frozen=True):
    """The process that holds, or held, a lock."""

    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


def owner_of(folder: Path) -> tuple[Owner | None, bool | None]:
    """Who works on the run in a folder, or did and could not say that it ended; whether it does.

    None for whether where that is on another host.
    """
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(folder / LOCK_NAME, flags)
    except OSError:
        return None, False
    try:
        owner = _owner(os.pread(descriptor, 4096, 0))
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return owner, True
    except OSError:  # no regular file
        return None, False
    finally:
        os.close(descriptor)
    here = owner is None or owner.host == socket.gethostname()
    return owner, False if here else None


class RunLock:
    """The lock of a run's folder, held from entry to exit.

    ``left_by`` is the owner that ended without letting go (killed, or the power failed), None after
    a good end. Raises UsageError where another process runs here, or may.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOCK_NAME
        self.left_by: Owner | None = None
        self._descriptor = -1
        self._made_folder = False

    def __enter__(self) -> Self:
        with file_errors("cannot lock", self.path):
            self._descriptor = self._take()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The name goes first: who opens the file after that finds another one.
        try:
            self.path.unlink(missing_ok=True)
        except OSError as refused:
            if error is None:  # else that is what matters, and a lock that stays is a stale one
                words = "cannot remove the lock"
                raise StoreError(words, path=self.path, errno=refused.errno) from refused
        finally:
            os.close(self._descriptor)
        if self._made_folder:
            with suppress(OSError):  # not empty: something came into it
                self.path.parent.rmdir()

    def _take(self) -> int:
        self._made_folder = not self.path.parent.exists()
        make_folder(self.path.parent)
        while True:
            descriptor = own(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                self._lock(descriptor)
                if self._is_current(descriptor):
                    self._judge(_owner(os.pread(descriptor, 4096, 0)))
                    self._sign(descriptor)
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # its owner ended and removed it meanwhile

    def _lock(self, descriptor: int) -> None:
        for _ in range(LOOKS):  # others may look who runs here, for some microseconds
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(LOOK_SECONDS)
        owner = _owner(os.pread(descriptor, 4096, 0)) or "another process"
        raise UsageError(
            f"{self.path.parent} is in use by {owner}; one run at a time may use a folder"
            f"{strangers()}"
        )

    def _is_current(self, descriptor: int) -> bool:
        try:
            named = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return named.st_ino == os.fstat(descriptor).st_ino

    def _judge(self, owner: Owner | None) -> None:
        if owner is not None and owner.host != socket.gethostname():
            raise UsageError(
                f"{self.path.parent} was left locked by {owner}. {socket.gethostname()} cannot "
                f"see whether that process still runs: if it does not, remove {self.path} and "
                f"try again{strangers()}"
            )
        self.left_by = owner

    def _sign(self, descriptor: int) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        text = msgspec.json.encode(Owner(os.getpid(), socket.gethostname(), now)) + b"\n"
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text, 0)


def _owner(text: bytes) -> Owner | None:
    """Who signed the lock; None for a file that was made and not signed, or is no lock."""
    try:
        return msgspec.json.decode(text, type=Owner)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
