"""What can go wrong, one class per party at fault.

Every message says what happened, with which values, against which bound, and the nearest fix.
Each class carries the exit code that the command line ends with.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

__all__ = [
    "BuildError",
    "DefinitionError",
    "DeviceError",
    "Error",
    "ExecutionError",
    "InfeasiblePlan",
    "NoCompiler",
    "Stopped",
    "StoreError",
    "UsageError",
    "VerificationError",
    "file_errors",
    "meaning",
]


class Error(Exception):
    """Base of all errors that outgrid raises on purpose."""

    exit_code: ClassVar[int] = 4


class DefinitionError(Error):
    """A stencil or a problem that means nothing: the question is wrong."""

    exit_code = 2


@contextmanager
def meaning(what: str) -> Generator[None]:
    """Begin the message of a DefinitionError with ``what`` was given and means nothing."""
    try:
        yield
    except DefinitionError as error:
        raise DefinitionError(f"{what}: {error}") from error


class UsageError(Error):
    """A job file, an option or a file that does not fit what was asked."""

    exit_code = 2


class InfeasiblePlan(Error):  # noqa: N818 - it names a plan, not a fault of the program
    """No plan satisfies the given limits."""

    exit_code = 3


class BuildError(Error):
    """The compiler refused a generated kernel.

    `source_path` is the file that was compiled (kept on disk), `command` the compiler's arguments.
    """

    exit_code = 4

    def __init__(
        self,
        message: str,
        *,
        source_path: str | os.PathLike[str] | None = None,
        command: tuple[str, ...] = (),
    ) -> None:
        self.source_path = None if source_path is None else Path(source_path)
        self.command = command
        super().__init__(message)


class NoCompiler(BuildError):  # noqa: N818 - it names what is missing
    """There is no C++ compiler: the reference executor may stand in for a kernel."""


class StoreError(Error, OSError):
    """A tier failed to move or keep bytes.

    `path` names the file or device, `offset` and `length` (bytes) the request, `errno` the
    system's reason; whichever of them is known is appended to the message, `what`.
    """

    exit_code = 4

    def __init__(
        self,
        message: str,
        *,
        path: str | os.PathLike[str] | None = None,
        offset: int | None = None,
        length: int | None = None,
        errno: int | None = None,
    ) -> None:
        parts = [message]
        if path is not None:
            parts.append(f"file {os.fspath(path)}")
        if offset is not None:
            parts.append(f"offset {offset}")
        if length is not None:
            parts.append(f"{length} bytes")
        if errno is not None:
            parts.append(f"{os.strerror(errno)} (errno {errno})")
        super().__init__(", ".join(parts))
        self.path = None if path is None else Path(path)
        self.what = message
        self.offset = offset
        self.length = length
        self.errno = errno


@contextmanager
def file_errors(words: str, path: str | os.PathLike[str]) -> Generator[None]:
    """Turn what the system says of a file into a StoreError that begins with some words."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(words, path=path, errno=error.errno) from error


class DeviceError(Error):
    """A processor with memory of its own that is not there, or that failed."""

    exit_code = 4


class ExecutionError(Error):
    """A run that had to stop: values turned into NaN, a deadline passed, a rank was lost."""

    exit_code = 4


class Stopped(Error):  # noqa: N818 - nothing went wrong
    """A run that ended before its last step because it was asked to, and can be resumed.

    ``kept`` says how much of it is.
    """

    exit_code = 75  # EX_TEMPFAIL of sysexits.h: try again later

    def __init__(self, message: str, kept: str = "") -> None:
        super().__init__(message)
        self.kept = kept


class VerificationError(Error):
    """A result that differs from its reference."""

    exit_code = 1
