"""The record of a run: what was asked, what was planned, on which machine, and what was measured.

Everything that is later printed, drawn or compared comes from this one value; `record.json` is its
form on disk.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from outgrid.durable import replace_file
from outgrid.errors import UsageError

__all__ = [
    "CUT_OFF",
    "FINISHED",
    "RECORD_NAME",
    "Measured",
    "Part",
    "Record",
    "combine",
    "read_record",
    "write_record",
]

RECORD_NAME = "record.json"
FORMAT = 1


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a run took. Seconds and bytes; those of the initial fill are counted apart.

    `seconds` is the wall time of the sweeps, of which `compute_seconds` were spent updating cells
    and `wait_seconds` waiting for transfers; `window_seconds` before them went into getting the
    window's memory from the system. A thread beside the others spent `checksum_seconds` on summing
    up what was read and written. `ideal_bytes` is what the sweeps must move at least:
    each level of each evolving field once in and once out, each coefficient field once in.
    `buffered_bytes` went through the page cache although direct I/O was wanted.
    """

    seconds: float
    compute_seconds: float
    wait_seconds: float
    fill_seconds: float
    window_seconds: float = 0.0
    checksum_seconds: float = 0.0
    read_bytes: int
    written_bytes: int
    fill_read_bytes: int
    fill_written_bytes: int
    ideal_bytes: int
    buffered_bytes: int
    updates: int
    flops: int
    peak_memory_bytes: int
    memory_limit_bytes: int
    engine: str
    fallbacks: tuple[str, ...] = ()

    @property
    def glups(self) -> float:
        """1e9 cell updates per second, each needed update counted once."""
        return self.updates / self.seconds / 1e9 if self.seconds > 0 else 0.0

    @property
    def gflops(self) -> float:
        """1e9 floating-point operations per second, redundant ones not counted."""
        return self.flops / self.seconds / 1e9 if self.seconds > 0 else 0.0

    @property
    def io_over_ideal(self) -> float:
        """Bytes moved by the sweeps over those that had to be; 1 when nothing had to move."""
        moved = self.read_bytes + self.written_bytes
        return moved / self.ideal_bytes if self.ideal_bytes else 1.0

    @property
    def peak_memory_over_limit(self) -> float:
        """Largest resident memory over the limit; above 1 the promise is broken."""
        return self.peak_memory_bytes / self.memory_limit_bytes


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one process did for a run: the durable steps from `first_step` to `last_step`.

    `ended` says how: "finished", why it stopped, or "cut off" for one that could not say it.
    """

    started: str
    host: str
    pid: int
    first_step: int
    last_step: int
    ended: str
    measured: Measured


CUT_OFF = "cut off"
FINISHED = "finished"


def combine(parts: Sequence[Part]) -> Measured:
    """The figures of a whole run: sums, the largest memory, the limit and engine of the last part.

    Work that a part had done beyond its last durable state was done again by the next and is not
    known here. Needs at least one part.
    """
    every = [part.measured for part in parts]
    summed = {
        name: sum(getattr(each, name) for each in every)
        for name, kind in Measured.__annotations__.items()
        if kind in (int, float) and name not in ("peak_memory_bytes", "memory_limit_bytes")
    }
    return msgspec.structs.replace(
        every[-1],
        **summed,
        peak_memory_bytes=max(each.peak_memory_bytes for each in every),
        fallbacks=tuple(dict.fromkeys(text for each in every for text in each.fallbacks)),
    )


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One run. `fields` maps the name of each result to its file, relative to the record.

    `warnings` are things the user should know that did not stop the run; `preview` is the file of
    the frames kept after each sweep, if any. `measured` covers all `parts`, of which there is more
    than one where the run was resumed; `plan` and `machine` are those of the last. `checksums` has
    for each result the checksum of the file that holds the checksums of its rows.
    """

    version: str
    started: str
    problem: dict[str, Any]
    plan: dict[str, Any]
    machine: dict[str, Any]
    measured: Measured
    fields: dict[str, str] = {}
    preview: str | None = None
    warnings: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    checksums: dict[str, str] = {}
    format: int = FORMAT

    @property
    def predicted_seconds(self) -> float:
        """Time that the plan expected of the sweeps."""
        return float(self.plan["predicted_seconds"])

    @property
    def prediction_error(self) -> float:
        """(predicted - measured) / measured seconds of the last part; 0 for a run of no steps."""
        seconds = (self.parts[-1].measured if self.parts else self.measured).seconds
        return (self.predicted_seconds - seconds) / seconds if seconds > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form with the derived figures under `derived`."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        measured = self.measured
        found["derived"] = {
            "glups": measured.glups,
            "gflops": measured.gflops,
            "io_over_ideal": measured.io_over_ideal,
            "peak_memory_over_limit": measured.peak_memory_over_limit,
            "prediction_error": self.prediction_error,
        }
        return found


def write_record(record: Record, folder: Path) -> Path:
    """Write `record` into `folder`, whole or not at all, and return the path of the file."""
    path = folder / RECORD_NAME
    text = msgspec.json.format(msgspec.json.encode(record.to_dict()), indent=2)
    replace_file(path, text + b"\n")
    return path


def read_record(path: Path) -> Record:
    """The record at `path`, a file or the folder of a run.

    Raises UsageError when there is none, when it is of another format or when it has unknown or
    missing keys.
    """
    file = path / RECORD_NAME if path.is_dir() else path
    try:
        found = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
        found.pop("derived", None)
        if found.get("format") != FORMAT:
            raise UsageError(
                f"{file} is a record of format {found.get('format')!r}; this version reads {FORMAT}"
            )
        return msgspec.convert(found, Record)
    except OSError as error:
        raise UsageError(
            f"cannot read the record {file}: {error.strerror}; a finished run leaves one in its"
            " output folder"
        ) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not a record of a run: {error}") from None
