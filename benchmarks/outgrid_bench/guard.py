"""What outlives a process that is killed, to clean up behind it."""

from __future__ import annotations

import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager

__all__ = ["guarded"]


@contextmanager
def guarded(script: str, arguments: Sequence[str]) -> Generator[None]:
    """Run a script of the shell, whose arguments are given, at the end of the block.

    A shell waits until the pipe to this process closes: at the end of the block, or when the
    process is gone. The block ends when the script has.
    """
    waiting = f"trap '' INT TERM HUP\ncat >/dev/null\n{script}"
    guard = subprocess.Popen(
        ["/bin/sh", "-c", waiting, "sh", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        guard.communicate()
