"""A run in a process of its own, under a real memory limit, watched from outside.

What was moved and what the processors did comes from the kernel's own counters, several times a
second: they count what the system reads and writes behind the run's back, which is all that there
is to see of mapped files and of swap. What is read is counted for the process alone, whether it
asked for it or touched a page that was not in memory; what the system writes back and swaps out is
counted for the disk, with all others that write to it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from outgrid import Record
from outgrid.errors import ExecutionError
from outgrid.record import read_record
from outgrid_bench.experiments.disks import disk_bytes
from outgrid_bench.limit import Limited

__all__ = ["Killed", "Sample", "Watched", "Watcher", "watch_run"]

ACCOUNTING = Path("/proc/self/io")
TICKS = os.sysconf("SC_CLK_TCK")
SECONDS_BETWEEN = 0.2
MOST_KEPT = 300  # samples of a run in a record


@dataclass(frozen=True, slots=True)
class Sample:
    """Counters that only grow: bytes read for a process (those of the disk where the kernel does
    not tell) and written to a disk, seconds of all processors together."""

    seconds: float
    read_bytes: int
    written_bytes: int
    busy_seconds: float
    iowait_seconds: float

    def since(self, first: Sample) -> Sample:
        """What was added after ``first``."""
        return Sample(
            self.seconds - first.seconds,
            self.read_bytes - first.read_bytes,
            self.written_bytes - first.written_bytes,
            self.busy_seconds - first.busy_seconds,
            self.iowait_seconds - first.iowait_seconds,
        )


class Killed(ExecutionError):  # noqa: N818 - the system's verdict, not a fault of the program
    """The system ended the run, having found no memory for it within its limit."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A finished run. ``samples`` begin with its sweeps, the last one is their end."""

    record: Record
    samples: tuple[Sample, ...]

    @property
    def total(self) -> Sample:
        """What the sweeps took altogether."""
        return self.samples[-1]

    def _thinned(self) -> tuple[Sample, ...]:
        every = -(-len(self.samples) // MOST_KEPT)
        return (*self.samples[:-1:every], self.samples[-1])

    def series(self) -> list[dict[str, float]]:
        """JSON-able form of the samples, every n-th of a long run: their values only grow."""
        return [asdict(sample) for sample in self._thinned()]


class Watcher:
    """Samples the counters in a thread of its own while it is entered."""

    def __init__(self, folder: Path) -> None:
        self.samples: list[Sample] = []
        self.process: int | None = None
        self._read_bytes = 0
        self._disk = os.stat(folder).st_dev
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._sample()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._sample()

    def _watch(self) -> None:
        while not self._ended.wait(SECONDS_BETWEEN):
            self._sample()

    def _sample(self) -> None:
        read, written = disk_bytes(self._disk)
        if ACCOUNTING.exists():
            # A process that has gone has read what it had read before.
            self._read_bytes = max(self._read_bytes, _process_bytes(self.process))
            read = self._read_bytes
        busy, iowait = _processor_seconds()
        self.samples.append(Sample(time.monotonic(), read, written, busy, iowait))

    def between(self, begin: float, end: float) -> tuple[Sample, ...]:
        """Samples from ``begin`` to ``end`` (time.monotonic), counted from the first of them."""
        inside = [sample for sample in self.samples if begin <= sample.seconds <= end]
        before = [sample for sample in self.samples if sample.seconds < begin]
        first = before[-1] if before else self.samples[0]
        after = [sample for sample in self.samples if sample.seconds > end][:1]
        return tuple(sample.since(first) for sample in (first, *inside, *after))


def _process_bytes(process: int | None) -> int:
    """Bytes brought in from any disk for a process; 0 where there is none."""
    if process is None:
        return 0
    try:
        told = Path(f"/proc/{process}/io").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    counts = dict(line.split(": ") for line in told.splitlines())
    return int(counts["read_bytes"])


def _processor_seconds() -> tuple[float, float]:
    """Seconds of work, and of waiting for disks, of all processors."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    user, nice, system, _, iowait = (int(word) / TICKS for word in words[1:6])
    return user + nice + system, iowait


def watch_run(
    problem: dict[str, Any], settings: dict[str, Any], place: Path, limited: Limited
) -> Watched:
    """Run the problem with these entries of a [run] table in ``place``, inside the limit.

    The results stay in ``place / "run"``. Raises ExecutionError where the run fails,
    Killed where the system ended it.
    """
    job, out = place / "job.toml", place / "run"
    job.write_text(_toml("problem", problem) + _toml("run", settings))
    command = limited.command(
        [sys.executable, "-m", "outgrid", "run", str(job), "--out", str(out), "--quiet", "--json"]
    )
    with (
        Watcher(place) as watcher,
        subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        watcher.process = process.pid  # what enters the limit becomes the run itself
        _, complaint = process.communicate()
        ended = time.monotonic()
    if process.returncode == -signal.SIGKILL:
        raise Killed("killed by the system for lack of memory")
    if process.returncode != 0:
        raise ExecutionError(
            f"the run with {settings} ended with exit code {process.returncode}: "
            f"{complaint.strip()}"
        )
    record = read_record(out)
    # The process begins, brings in the initial values, sweeps, exports, and ends.
    last = os.stat(out / "record.json").st_mtime - time.time() + time.monotonic()
    sweeps_end = min(ended, last) - record.measured.export_seconds
    begin = sweeps_end - record.measured.seconds
    return Watched(record, watcher.between(begin, sweeps_end))


def _toml(table: str, entries: dict[str, Any]) -> str:
    lines = [f"[{table}]"]
    for key, value in entries.items():
        lines.append(f"{key} = {_toml_value(value)}")
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        inner: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
        return "{" + ", ".join(f"{key} = {_toml_value(item)}" for key, item in inner.items()) + "}"
    return json.dumps(value)
