"""The record of a run: what was asked, what was planned, on which machine, and what was measured.

Everything that is later printed, drawn or compared comes from this one value; `record.json` is its
form on disk.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from outgrid.durable import replace_file
from outgrid.errors import StoreError, UsageError
from outgrid.lines import align, format_share, format_work
from outgrid.markup import facts
from outgrid.plan.model import Plan
from outgrid.regular import read_given
from outgrid.seal import Seal
from outgrid.tiers import MAPPED_TIERS
from outgrid.units import format_bytes, format_rate, format_seconds

__all__ = [
    "CUT_OFF",
    "FINISHED",
    "RECORD_NAME",
    "Measured",
    "Part",
    "PieceFile",
    "RankPart",
    "Record",
    "combine",
    "combine_ranks",
    "compilers_of",
    "read_record",
    "write_record",
]

RECORD_NAME = "record.json"
FORMAT = 1
# Pictures are named after fields: a record of strangers may not name what lies elsewhere.
FIELD_NAME = re.compile(r"(rank\.\d+(\.\d+)?/)?\w+(\.\w+)*")


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a run took. Seconds and bytes; those of the initial fill are counted apart.

    `seconds` is the wall time of the sweeps, of which `compute_seconds` were spent updating cells
    and `wait_seconds` waiting for transfers; `window_seconds` before them went into getting the
    window's memory from the system. All threads together took `processor_seconds` of processors in
    the sweeps, `compute_processor_seconds` of them for updates. A thread beside the others spent
    `checksum_seconds` of a processor on summing up what was read and written, on copying it
    where its planes are staged and on folding its rows, and `unpack_seconds` on unpacking
    coefficients. These were packed before the sweeps, into `packed_bytes`, in `packing_seconds`. Of
    a grid in memory
    `exported_bytes` were copied into result files in the end, in `export_seconds`; snapshots hold
    `snapshot_bytes`.
    In the sweeps all threads together were ready for `queued_seconds` while other programs had the
    processors, of which the host of a virtual machine took `stolen_seconds` for others; for
    `major_faults` a page was read from a disk or from swap.
    `ideal_bytes` is what the sweeps must move at least: each level of each evolving field once in
    and once out, each coefficient field once in.
    `system_read_bytes` and `system_written_bytes` are what the system says it fetched from and sent
    to devices for the process, page cache and mapped files included, swap not.
    Of the `updates` so many `still_updates` were not made: what they make of planes of +0 is +0.
    `buffered_bytes` went through the page cache although direct I/O was wanted. Where updates were
    made on `device`, `uploaded_bytes` were copied to it and `downloaded_bytes` from it.

    Of several ranks each has sent and received bytes, and has waited, to the very end, for what is
    read (`get_seconds`), for what is written (`put_seconds`), for planes of other ranks
    (`exchange_seconds`) and for others to come as far (`agree_seconds`).
    """

    seconds: float
    compute_seconds: float
    wait_seconds: float
    fill_seconds: float
    window_seconds: float = 0.0
    processor_seconds: float = 0.0
    compute_processor_seconds: float = 0.0
    checksum_seconds: float = 0.0
    packing_seconds: float = 0.0
    packed_bytes: int = 0
    unpack_seconds: float = 0.0
    queued_seconds: float = 0.0
    stolen_seconds: float = 0.0
    major_faults: int = 0
    read_bytes: int
    written_bytes: int
    fill_read_bytes: int
    fill_written_bytes: int
    ideal_bytes: int
    buffered_bytes: int
    system_read_bytes: int = 0
    system_written_bytes: int = 0
    exported_bytes: int = 0
    export_seconds: float = 0.0
    snapshot_bytes: int = 0
    updates: int
    still_updates: int = 0
    flops: int
    peak_memory_bytes: int
    memory_limit_bytes: int
    engine: str
    device: str = ""
    uploaded_bytes: int = 0
    downloaded_bytes: int = 0
    fallbacks: tuple[str, ...] = ()
    sent_bytes: int = 0
    received_bytes: int = 0
    get_seconds: float = 0.0
    put_seconds: float = 0.0
    exchange_seconds: float = 0.0
    agree_seconds: float = 0.0

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
    `compiler` is what made its kernel, by version and command with all flags, or the reference
    executor in its place; "" for one that made no step, or made them on a device.
    """

    started: str
    host: str
    pid: int
    first_step: int
    last_step: int
    ended: str
    measured: Measured
    compiler: str = ""


CUT_OFF = "cut off"
FINISHED = "finished"


def combine(parts: Sequence[Part]) -> Measured:
    """The figures of a whole run: sums, and the engine of the last part.

    Memory and its limit are those of the part that took the largest share of its limit. Work that a
    part had done beyond its last durable state was done again by the next and is not known here.
    Needs at least one part.
    """
    every = [part.measured for part in parts]
    summed = {
        name: sum(getattr(measured, name) for measured in every)
        for name, kind in Measured.__annotations__.items()
        if kind in (int, float) and name not in ("peak_memory_bytes", "memory_limit_bytes")
    }
    fullest = max(every, key=lambda measured: measured.peak_memory_over_limit)
    return msgspec.structs.replace(
        every[-1],
        **summed,
        peak_memory_bytes=fullest.peak_memory_bytes,
        memory_limit_bytes=fullest.memory_limit_bytes,
        fallbacks=tuple(dict.fromkeys(text for measured in every for text in measured.fallbacks)),
    )


def compilers_of(names: Iterable[str]) -> tuple[str, ...]:
    """What to say of kernels that compilers of these ``names`` made in turn, if of several."""
    compilers = [*dict.fromkeys(name for name in names if name)]
    if len(compilers) < 2:
        return ()
    first, *others = compilers
    return (
        f"kernels of this run come from several compilers, with equal results: {first}; then "
        f"{'; then '.join(others)}",
    )


class RankPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one of several ranks did.

    Planes [low, high) were its own, of them rows [low_row, high_row), and `plan` what it followed,
    which `planned` has in JSON-able form.
    """

    rank: int
    low: int
    high: int
    low_row: int
    high_row: int
    host: str
    measured: Measured
    planned: dict[str, Any] = msgspec.field(name="plan")

    @property
    def plan(self) -> Plan:
        """What it followed. Raises msgspec.ValidationError for that of another version."""
        return Plan.from_dict(self.planned)


class PieceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Planes [low, high) of a result, and rows [low_row, high_row) of them, in a file of its own.

    It begins with plane `first` and row `first_row`.
    """

    file: str
    first: int
    low: int
    high: int
    first_row: int
    low_row: int
    high_row: int


def combine_ranks(ranks: Sequence[Measured]) -> Measured:
    """The figures of a run of several ranks: the longest time, mean shares of it, sums of the rest.

    Memory is that of the rank that took most, against the limit of one. Needs at least one rank.
    """
    longest = ("seconds", "fill_seconds", "window_seconds", "peak_memory_bytes")
    figures: dict[str, Any] = {}
    for name, kind in Measured.__annotations__.items():
        if kind in (int, float):
            values = [getattr(rank, name) for rank in ranks]
            if name in (*longest, "memory_limit_bytes"):
                figures[name] = max(values)
            else:
                figures[name] = sum(values) if kind is int else sum(values) / len(values)
    fallbacks = tuple(dict.fromkeys(text for rank in ranks for text in rank.fallbacks))
    return msgspec.structs.replace(ranks[0], **figures, fallbacks=fallbacks)


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One run. `fields` maps the name of each result to its file, relative to the record.

    `warnings` are things the user should know that did not stop the run; `preview` is the file of
    the frames kept after each sweep, if any. `measured` covers all `parts`, of which there is more
    than one where the run was resumed; `plan` and `machine` are those of the last. `planned` is the
    plan in JSON-able form, the entry "plan" of the file. `checksums` has for each result the
    checksum of the file that holds the checksums of its rows (traces and reductions: that of their
    file), `seals` what those are of: the run, the field and the step, whose key they are combined
    with. `spread` says over which places fields were spread, and how, if they were.

    Fields and snapshots that have `offsets` are in a file of HDF5, with others, and begin at that
    byte; ``frames`` are the files of such snapshots.

    Where the problem has a condition to end by, `ended` tells what was seen of it last. What
    watched the run has ``left`` files of these names beside the fields, those that are there.

    A run of several `ranks` leaves each field in `pieces`; `files`, the entry "fields" of the file,
    names each piece. `plan` and `parts` are those of rank 0, and where it has gone on from other
    ranks the first parts tell what these did together.
    """

    version: str
    started: str
    problem: dict[str, Any]
    planned: dict[str, Any] = msgspec.field(name="plan")
    machine: dict[str, Any]
    measured: Measured
    files: dict[str, str] = msgspec.field(name="fields", default={})
    preview: str | None = None
    warnings: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    checksums: dict[str, str] = {}
    seals: dict[str, Seal] = {}
    spread: str = ""
    ended: str = ""
    left: tuple[str, ...] = ()
    ranks: tuple[RankPart, ...] = ()
    pieces: dict[str, tuple[PieceFile, ...]] = {}
    offsets: dict[str, int] = {}
    frames: dict[str, str] = {}
    format: int = FORMAT

    def rows_file(self, name: str) -> str:
        """The file that the checksums of a field's rows are called after."""
        return f"{name}.npy" if name in self.offsets else self.files[name]

    def frames_file(self, name: str) -> str:
        """The file that a snapshot is in, such as "snapshot.0".

        Records of the first runs that left one file do not name it again for its snapshots.
        """
        whole = [*self.fields.values()][:1] if name in self.offsets else []
        return self.frames.get(name, (*whole, f"{name}.npy")[0])

    @property
    def fields(self) -> dict[str, str]:
        """The file of each result; of one in pieces, a pattern of the names of their files."""
        if not self.pieces:
            return dict(self.files)
        return {name: f"rank.*/{name}.npy" for name in self.pieces}

    @property
    def steps(self) -> int:
        """The steps that were made."""
        return self.parts[-1].last_step if self.parts else int(self.problem["steps"])

    @property
    def plan(self) -> Plan:
        """The plan that was followed, as `outgrid.plan` gives it, read from `planned`.

        Raises msgspec.ValidationError for that of another version.
        """
        return Plan.from_dict(self.planned)

    @property
    def predicted_seconds(self) -> float:
        """Time that the plan expected of the sweeps."""
        return float(self.planned["predicted_seconds"])

    @property
    def flash_written_bytes(self) -> int:
        """What was written to devices, as far as it can be seen: counted by the run where it moves
        bytes itself, by the system where pages of mapped files change in place."""
        measured = self.measured
        counted = measured.written_bytes + measured.fill_written_bytes
        counted += measured.packed_bytes + measured.exported_bytes + measured.snapshot_bytes
        return max(counted, measured.system_written_bytes) if self._in_place else counted

    @property
    def _in_place(self) -> bool:
        return self.planned.get("tier") in MAPPED_TIERS and bool(self.planned.get("resident"))

    @property
    def prediction_error(self) -> float:
        """(predicted - measured) / measured seconds of the last part; 0 for a run of no steps."""
        seconds = (self.parts[-1].measured if self.parts else self.measured).seconds
        return (self.predicted_seconds - seconds) / seconds if seconds > 0 else 0.0

    def __str__(self) -> str:
        """What was computed and how fast, one line each."""
        return align([(self._title, ""), *self._rows])

    def _repr_html_(self) -> str:
        """What a notebook shows: the same."""
        return facts(self._title, self._rows)

    @property
    def _title(self) -> str:
        return f"record: {format_work(self.planned, self.steps)}"

    @property
    def _rows(self) -> list[tuple[str, str]]:
        measured = self.measured
        rows = [
            ("started", self.started),
            ("ended", self.ended),
            ("rate", f"{format_rate(measured.glups * 1e9)}, {measured.gflops:.3g} GFLOP/s"),
            ("time", format_seconds(measured.seconds)),
            ("waiting", f"{format_seconds(measured.wait_seconds)} for transfers"),
            ("read", format_bytes(measured.read_bytes)),
            ("written", format_bytes(measured.written_bytes)),
            ("memory", f"{format_share(measured.peak_memory_over_limit)} of the limit"),
            ("results", ", ".join(self.fields.values())),
        ]
        return [(name, value) for name, value in rows if value]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form with the derived figures under `derived`."""
        entries: dict[str, Any] = msgspec.to_builtins(self)
        measured = self.measured
        entries["derived"] = {
            "glups": measured.glups,
            "gflops": measured.gflops,
            "io_over_ideal": measured.io_over_ideal,
            "peak_memory_over_limit": measured.peak_memory_over_limit,
            "prediction_error": self.prediction_error,
            "flash_written_bytes": self.flash_written_bytes,
        }
        return entries


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
        entries = msgspec.json.decode(read_given(file), type=dict[str, Any])
        entries.pop("derived", None)
        if entries.get("format") != FORMAT:
            raise UsageError(
                f"{file} is a record of format {entries.get('format')!r}; this version reads "
                f"{FORMAT}"
            )
        record = msgspec.convert(entries, Record)
    except StoreError as error:
        raise UsageError(f"cannot read the record: {error}") from error
    except OSError as error:
        raise UsageError(
            f"cannot read the record {file}: {error.strerror}; a finished run leaves one in its"
            " output folder"
        ) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{file} is not a record of a run: {error}") from None
    for name in (*record.files, *record.pieces):
        if FIELD_NAME.fullmatch(name) is None:
            raise UsageError(
                f"{file} is not a record of a run: {name!r} cannot be the name of a field"
            )
    return record
