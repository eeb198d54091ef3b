"""A real memory limit for child processes: a control group, made and removed around them.

It bounds what no program bounds itself: the page cache, mapped files, and what may be swapped out.
Without permission to make a group the children run under no limit but their own, and the caller is
told. A swap file is made only where one is asked for; swap that exists is never touched.

Whatever ends this process, a guard outlives it that ends the children and removes group and swap
file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from outgrid.units import format_bytes
from outgrid_bench.guard import guarded

__all__ = ["Limited", "limited"]

V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")
SECONDS_BETWEEN_COUNTS = 0.005
# A page that was read back keeps its place in the swap file while less than half of that is taken.
# Linux 6 kills what runs in a control group where it finds no free place at once. Under 32 MiB that
# is every time with no spare places, at times with 144 MiB of them, never in 20 runs with 576 MiB.
SPARE_SWAP_BYTES = 576 << 20
TOOLS = "/usr/sbin:/sbin"  # where commands for swap are, which many a PATH leaves out
GUARD = f"""
PATH=$PATH:{TOOLS}
tries=0
while [ -n "$1" ] && [ -d "$1" ] && ! rmdir "$1" 2>/dev/null && [ $tries -lt 100 ]; do
    for process in $(cat "$1/cgroup.procs"); do kill -9 "$process"; done 2>/dev/null
    tries=$((tries + 1))
    sleep 0.05
done
if [ -n "$2" ]; then
    swapoff "$2" 2>/dev/null
    rm -f "$2"
fi
"""


@dataclass(frozen=True, slots=True)
class Limited:
    """Where children may be put, and in words what limits them there.

    ``folder`` is that of the control group, None where ``entering`` is left to systemd or nothing
    is enforced. ``swap_bytes`` are those that children may use, None for all that the system has.
    """

    folder: Path | None
    reason: str
    entering: tuple[str, ...] = ()
    swap_bytes: int | None = 0

    @property
    def enforced(self) -> bool:
        """Whether there is a limit at all."""
        return bool(self.entering)

    def command(self, command: Sequence[str]) -> list[str]:
        """What to start so that ``command`` runs inside the group."""
        return [*self.entering, *command]

    def run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run ``command`` inside the group and return what it printed."""
        return subprocess.run(self.command(command), text=True, stdout=subprocess.PIPE, check=False)

    def try_run(self, command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
        """As ``run``, with its complaints kept too. Raises TimeoutExpired after ``seconds``."""
        return subprocess.run(
            self.command(command),
            text=True,
            capture_output=True,
            check=False,
            timeout=seconds,
        )

    @property
    def peak_bytes(self) -> int | None:
        """The most memory that all children had at once, page cache included; None if unknown."""
        for name in ("memory.max_usage_in_bytes", "memory.peak"):
            if self.folder is not None and (self.folder / name).exists():
                return int((self.folder / name).read_text())
        return None


@contextmanager
def limited(
    memory_bytes: int, swap_bytes: int | None = 0, swap_folder: Path | None = None
) -> Generator[Limited]:
    """A control group of ``memory_bytes``, page cache included.

    Beyond them children may use ``swap_bytes`` of swap, None for all that the system has. With
    ``swap_folder`` a swap file of more than that is made there, and removed in the end.
    """
    name = f"outgrid-{os.getpid()}-{time.monotonic_ns()}"
    parent = V1 if (V1 / "memory.limit_in_bytes").exists() else V2
    group = parent / name
    file = swap_folder / f"{name}.swap" if swap_folder is not None and swap_bytes else None
    with guarded(GUARD, [str(group), "" if file is None else str(file)]):
        refusal = _make_swap(file, swap_bytes or 0) if file is not None else None
        if refusal is not None:
            swap_bytes = 0
        entered = _group(group, memory_bytes, swap_bytes) or _scope(name, memory_bytes, swap_bytes)
        what = f"{entered.reason}; {refusal}" if refusal is not None else entered.reason
        with _counted(entered):
            yield Limited(entered.folder, what, entered.entering, entered.swap_bytes)


@contextmanager
def _counted(limited_group: Limited) -> Generator[None]:
    """Have the pages of a group that swaps counted all the time.

    Linux 6 decides by counts that may be seconds old whether a group has pages to swap out; where
    they change as fast as here it finds none, and kills what runs. Whoever reads them renews them.
    """
    if limited_group.folder is None or limited_group.swap_bytes == 0:
        yield
        return
    ended = threading.Event()
    counts = (limited_group.folder / "memory.stat").open("rb", buffering=0)

    def count() -> None:
        while not ended.wait(SECONDS_BETWEEN_COUNTS):
            os.pread(counts.fileno(), 1, 0)

    counting = threading.Thread(target=count, daemon=True)
    counting.start()
    try:
        yield
    finally:
        ended.set()
        counting.join()
        counts.close()


def _make_swap(file: Path, nbytes: int) -> str | None:
    """Make a swap file and take it into use. What hinders that, in words, None if nothing does."""
    tools = [
        shutil.which(tool, path=f"{os.environ.get('PATH', '')}:{TOOLS}")
        for tool in ("mkswap", "swapon")
    ]
    try:
        with file.open("xb") as made:
            os.fchmod(made.fileno(), 0o600)
            os.posix_fallocate(made.fileno(), 0, nbytes + SPARE_SWAP_BYTES)
        for tool in tools:
            if tool is None:
                return "no swap file: mkswap and swapon are not installed"
            done = subprocess.run([tool, str(file)], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                file.unlink()
                return f"no swap file: {done.stderr.strip()}"
    except OSError as error:
        return f"no swap file in {file.parent}: {error.strerror}"
    return None


def _group(group: Path, memory_bytes: int, swap_bytes: int | None) -> Limited | None:
    """A control group of our own; None where none can be made or takes no limit."""
    try:
        group.mkdir()
        for name, value in _limits(group, memory_bytes, swap_bytes):
            (group / name).write_text(value)
    except OSError:
        return None
    entering = ("/bin/sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
    words = f"memory control group of {format_bytes(memory_bytes)}, {_swap_words(swap_bytes)}"
    return Limited(group, words, entering, swap_bytes)


def _limits(group: Path, memory_bytes: int, swap_bytes: int | None) -> list[tuple[str, str]]:
    """Files of a control group and what is to be written to them, in this order."""
    if not (group / "memory.limit_in_bytes").exists():
        swap = "max" if swap_bytes is None else str(swap_bytes)
        return [("memory.max", str(memory_bytes)), ("memory.swap.max", swap)]
    limits = [("memory.limit_in_bytes", str(memory_bytes))]
    limits.append(("memory.swappiness", "0" if swap_bytes == 0 else "60"))
    both = "memory.memsw.limit_in_bytes"
    if swap_bytes is not None and (group / both).exists():  # else swap is not accounted for
        limits.append((both, str(memory_bytes + swap_bytes)))
    return limits


def _scope(name: str, memory_bytes: int, swap_bytes: int | None) -> Limited:
    """A scope of systemd, which users may have made for them; else no limit at all."""
    asked = [
        "systemd-run",
        "--scope",
        "--quiet",
        "--collect",
        f"--property=MemoryMax={memory_bytes}",
    ]
    swap = "infinity" if swap_bytes is None else str(swap_bytes)
    asked += [f"--property=MemorySwapMax={swap}"]
    if os.getuid() != 0:
        asked.append("--user")
    if shutil.which(asked[0]) is not None:
        tried = subprocess.run([*asked, "true"], capture_output=True, check=False)
        if tried.returncode == 0:
            words = f"systemd scope of {format_bytes(memory_bytes)}, {_swap_words(swap_bytes)}"
            return Limited(None, words, tuple(asked), swap_bytes)
    reason = (
        f"the limit of {format_bytes(memory_bytes)} is not enforced: neither a memory control "
        "group nor a systemd scope may be made here (that takes root, or a user session of systemd)"
    )
    return Limited(None, reason, swap_bytes=swap_bytes)


def _swap_words(swap_bytes: int | None) -> str:
    if swap_bytes is None:
        return "swap allowed"
    return f"{format_bytes(swap_bytes)} of swap" if swap_bytes else "no swap"
