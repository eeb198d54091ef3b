"""A real memory limit for a child process: a control group, made and removed around it.

Without permission to make one the child runs under no limit but its own, and the caller is told.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Limited:
    """Where children may be put. ``folder`` is None where no control group could be made."""

    folder: Path | None
    reason: str

    def run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run ``command`` inside the group and return what it printed."""
        return subprocess.run(
            [*self._entering(), *command], text=True, stdout=subprocess.PIPE, check=False
        )

    def try_run(self, command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
        """As ``run``, with its complaints kept too. Raises TimeoutExpired after ``seconds``."""
        return subprocess.run(
            [*self._entering(), *command],
            text=True,
            capture_output=True,
            check=False,
            timeout=seconds,
        )

    def _entering(self) -> list[str]:
        """A shell that puts itself into the group, then becomes the command."""
        if self.folder is None:
            return []
        return ["/bin/sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$@"', "sh"]


@contextmanager
def memory_limit(limit_bytes: int, swap: bool = False) -> Generator[Limited]:
    """A memory control group of ``limit_bytes``, without swap unless ``swap`` asks for it."""
    parent = V1 if (V1 / "memory.limit_in_bytes").exists() else V2
    folder = parent / f"outgrid-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        yield Limited(
            None, f"no memory control group ({error.strerror}): the limit is not enforced"
        )
        return
    try:
        if parent == V1:
            (folder / "memory.limit_in_bytes").write_text(str(limit_bytes))
            (folder / "memory.swappiness").write_text("60" if swap else "0")
        else:
            (folder / "memory.max").write_text(str(limit_bytes))
            (folder / "memory.swap.max").write_text("max" if swap else "0")
    except OSError as error:
        folder.rmdir()
        yield Limited(None, f"no memory limit can be set ({error.strerror}): it is not enforced")
        return
    try:
        what = "swap allowed" if swap else "no swap"
        yield Limited(folder, f"memory control group of {limit_bytes} bytes, {what}")
    finally:
        folder.rmdir()
