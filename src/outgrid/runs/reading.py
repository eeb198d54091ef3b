"""A run under way as its process sees it, in files that others read.

OUT/status.json        the latest reading, replaced whole; those of other ranks lie in their folders
OUT/progress.jsonl     readings from the beginning on, one a line

Neither is durable before the system makes it so: nothing of the run rests on them.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import msgspec

from outgrid.config import RunOptions
from outgrid.durable import partial_path
from outgrid.errors import StoreError, UsageError
from outgrid.regular import own, read_own

__all__ = [
    "LIVE_NAMES",
    "PROGRESS_NAME",
    "STATUS_NAME",
    "Reading",
    "metrics_text",
    "read_reading",
    "read_readings",
]

STATUS_NAME = "status.json"
PROGRESS_NAME = "progress.jsonl"
LIVE_NAMES = (STATUS_NAME, PROGRESS_NAME)
MOST_BYTES = 1 << 20

FILLING, RUNNING, FINISHED = "filling", "running", "finished"


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What one process of a run, ``rank`` of ``ranks``, has come to at a moment.

    ``state`` is "filling" while initial values are written, then "running", then "finished".
    ``time``, ``started`` and ``committed`` are in UTC, as ISO 8601 has it. Of ``steps`` the run has
    made ``step``, as its updates so far amount to; ``committed_step`` are durable (-1: none yet).
    ``seconds``, ``read_bytes``, ``written_bytes``, ``processor_seconds`` and ``updates_done`` count
    from the start of what ``state`` says, in this process; rates are those of the last 20 seconds.
    ``processors`` are the seconds of processors that all threads of the process took per second;
    ``threads`` of them compute.
    ``planned_bytes_per_second`` is what the plan counts on of the disk, 0 where nothing is
    moved. ``memory_bytes`` is the largest resident memory so far, ``wear`` the share of the life of
    the disk that was written, 0 where that is unknown. ``reductions`` are those of the last step
    that is complete, of a process that has the whole grid. What is left of the run takes
    ``left_seconds`` by the rates, None where too little was seen, and ``planned_left_seconds`` by
    the model of the plan.
    """

    state: str
    time: str
    started: str
    host: str
    pid: int
    rank: int = 0
    ranks: int = 1
    sweep: int = 0
    sweeps: int = 0
    step: int = 0
    steps: int = 0
    share_done: float = 0.0
    seconds: float = 0.0
    updates_done: int = 0
    updates_total: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    updates_per_second: float = 0.0
    read_bytes_per_second: float = 0.0
    written_bytes_per_second: float = 0.0
    planned_bytes_per_second: float = 0.0
    waiting: float = 0.0
    threads: int = 0
    processor_seconds: float = 0.0
    processors: float = 0.0
    memory_bytes: int = 0
    memory_limit_bytes: int = 0
    wear: float = 0.0
    committed_step: int = -1
    committed: str = ""
    reductions: dict[str, float] = {}
    left_seconds: float | None = None
    planned_left_seconds: float = 0.0


def write_reading(folder: Path, reading: Reading) -> None:
    """Replace the latest reading in ``folder``. Raises OSError."""
    _replace(folder / STATUS_NAME, msgspec.json.encode(reading) + b"\n")


def append_reading(folder: Path, reading: Reading) -> None:
    """Add a reading to those in ``folder``. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    descriptor = own(folder / PROGRESS_NAME, flags)
    try:
        os.write(descriptor, msgspec.json.encode(reading) + b"\n")
    finally:
        os.close(descriptor)


def read_reading(folder: Path) -> Reading | None:
    """The latest reading in ``folder``; None where there is none that can be read."""
    try:
        return msgspec.json.decode(read_own(folder / STATUS_NAME, MOST_BYTES), type=Reading)
    except (OSError, StoreError, ValueError):
        return None


def read_readings(folder: Path) -> list[Reading]:
    """The readings of the sweeps in ``folder``, of all parts of a run; none without their file.

    A line that is not a reading, such as one that was cut off, is left out.
    """
    try:
        lines = read_own(folder / PROGRESS_NAME).splitlines()
    except (OSError, StoreError):
        return []
    readings: list[Reading] = []
    for line in lines:
        try:
            reading = msgspec.json.decode(line, type=Reading)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        values = (getattr(reading, name) for name in Reading.__struct_fields__)
        if all(math.isfinite(value) for value in values if isinstance(value, float)):
            readings.append(reading)
    return [reading for reading in readings if reading.state != FILLING]


def check_metrics(options: RunOptions) -> None:
    """Raise UsageError where metrics have no folder, or would replace a file of something else."""
    path = options.metrics
    if path is None:
        return
    made = path.parent.absolute() == options.results.absolute()
    if not (made or path.parent.is_dir()):
        raise UsageError(
            f"metrics = {path}: the folder {path.parent} does not exist; make it first"
        )
    if os.path.lexists(path) and not (path.is_file() and _begins(path, METRICS_BEGIN)):
        raise UsageError(
            f"metrics = {path}: the file exists, was not written by outgrid, and is not "
            "overwritten; name another file"
        )


def _begins(path: Path, text: str) -> bool:
    with open(path, "rb", opener=own) as file:
        return file.read(len(text)) == text.encode()


def write_metrics(path: Path, reading: Reading) -> None:
    """Replace a file of OpenMetrics by what a reading says. Raises OSError."""
    _replace(path, metrics_text(reading).encode())


METRICS_BEGIN = "# TYPE outgrid_"
_METRICS = (
    ("share_done", "completed share of the current phase"),
    ("step", "steps that are complete"),
    ("steps", "steps of the run"),
    ("committed_step", "steps that are durable"),
    ("updates_per_second", "cell updates per second"),
    ("read_bytes_per_second", "bytes read per second"),
    ("written_bytes_per_second", "bytes written per second"),
    ("waiting", "share of the time that computing waits for transfers"),
    ("threads", "threads that compute"),
    ("processor_seconds", "seconds of processors that the process took so far"),
    ("processors", "seconds of processors that the process takes per second"),
    ("memory_bytes", "largest resident memory so far"),
    ("memory_limit_bytes", "limit on the resident memory"),
    ("wear", "share of the rated endurance of the disk that was written"),
    ("left_seconds", "seconds left by the measured rates"),
    ("planned_left_seconds", "seconds left by the plan"),
)


def metrics_text(reading: Reading) -> str:
    """A reading as text of OpenMetrics 1.0: gauges that begin with ``outgrid_``.

    The format is that of https://prometheus.io/docs/specs/om/open_metrics_spec/.
    """
    lines: list[str] = []
    for name, words in _METRICS:
        value = getattr(reading, name)
        if value is not None:
            lines += [
                f"# TYPE outgrid_{name} gauge",
                f"# HELP outgrid_{name} {words}",
                f'outgrid_{name}{{rank="{reading.rank}"}} {float(value)!r}',
            ]
    if reading.reductions:
        lines += [
            "# TYPE outgrid_reduction gauge",
            "# HELP outgrid_reduction reductions of the last complete step",
            *(
                f'outgrid_reduction{{name="{name}"}} {_number(value)}'
                for name, value in reading.reductions.items()
            ),
        ]
    return "\n".join([*lines, "# EOF", ""])


def _number(value: float) -> str:
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(repr(value), repr(value))


def _replace(path: Path, content: bytes) -> None:
    """Give ``path`` new content, whole at any moment, without waiting for the disk."""
    partial = partial_path(path)
    with open(partial, "wb", opener=lambda name, flags: own(name, flags | os.O_CREAT)) as file:
        file.write(content)
    os.replace(partial, path)
