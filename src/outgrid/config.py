"""Job files and run options: text at the edge, decoded once and strictly into frozen values.

A job file is TOML with two tables. `[problem]` changes the answer; `[run]` never does. This module
knows the keys, their types and their defaults, not what they mean together: a stencil's name or an
initial condition is passed on as it was written.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args

import msgspec

from outgrid.errors import StoreError, UsageError
from outgrid.formats import InputFile
from outgrid.purposes import check_purposes
from outgrid.regular import read_given
from outgrid.tiers import COPIED_TIERS, PASSING_TIERS
from outgrid.toml import MOST_BYTES, parse_toml
from outgrid.units import nearest, nearest_three, parse_bytes, parse_endurance, parse_seconds

__all__ = [
    "BoundaryTable",
    "JobFile",
    "ProblemTable",
    "RunOptions",
    "RunTable",
    "parse_settings",
    "read_job_file",
]

Scheme = Literal["auto", "skewed", "plain", "overlapped"]
Tier = Literal["auto", "direct", "mmap", "swap", "remote", "memory"]
Advice = Literal["normal", "sequential", "random", "willneed", "dontneed"]
Msync = Literal["none", "async", "sync"]
Placement = Literal["cyclic", "contiguous"]
Keep = Literal["none", "disk"]
Exchange = Literal["auto", "halos", "seams"]
Engine = Literal["auto", "io_uring", "aio", "threads"]
DeviceKind = Literal["cpu", "gpu"]
Places = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Dtype = Literal["float32", "float64"]
N = TypeVar("N")
D = TypeVar("D")
_SIGNS = {"low": "-", "high": "+"}
BoundaryKind = Literal[
    "dirichlet",
    "frozen",
    "neumann",
    "mirror",
    "odd",
    "odd-mirror",
    "zero",
    "periodic",
    "sponge",
    "matched",
]

DIRECT_IO_BLOCK_BYTES = 4096
DEFAULT_REQUEST_BYTES = 2 << 20
DEFAULT_QUEUE_DEPTH = 16

LONGEST_SHOWN = 200
MOST_THREADS = 1024
MOST_REQUESTS = 1024

PREVIEW_EDGE = 512
"""Longest edge, in pixels, of the frames that `preview = true` asks for."""

RANK = "{rank}"
"""Stands in the name of a folder of working files for the number of the rank."""

AUTO = "auto"
"""A value of every key of `[run]`: what is taken where the key is left out."""

REQUIREMENTS = ("io_uring", "aio", "threads", "direct", "mlock")
"""What `require` may name: an I/O engine, O_DIRECT on every file, a window locked in memory."""


class FaceTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What holds at a face: a kind and its numbers, such as the fixed value of "dirichlet"."""

    kind: BoundaryKind
    value: float | None = None
    width: int | None = None
    strength: float | None = None
    courant: float | None = None
    frequency: float | None = None


Face = BoundaryKind | float | FaceTable | None
_SIDES = {f"{axis}_{side}": axis + sign for axis in "zyx" for side, sign in _SIGNS.items()}


class BoundaryTable(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename=_SIDES
):
    """`[problem.boundary]`: a kind for all faces; what differs by axis, face ("x-") or field."""

    kind: BoundaryKind | None = None
    value: float | None = None
    width: int | None = None
    strength: float | None = None
    courant: float | None = None
    frequency: float | None = None
    z: Face = None
    z_low: Face = None
    z_high: Face = None
    y: Face = None
    y_low: Face = None
    y_high: Face = None
    x: Face = None
    x_low: Face = None
    x_high: Face = None
    fields: dict[str, "BoundaryTable"] = {}


class SourceTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[[problem.sources]]`: a number, one per step, or a formula of step is added to a field."""

    field: str
    position: list[float]
    values: float | list[float] | str


class ReceiverTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[[problem.receivers]]`: a place at which a field is kept after each step."""

    field: str
    position: list[float]


class SnapshotTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[[problem.snapshots]]`: a part of a field that is kept after every n-th step."""

    field: str
    every: int = 1
    z: int | str | None = None
    y: int | str | None = None
    x: int | str | None = None
    stride: int = 1
    first: int | None = None


class UntilTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[problem.until]`: steps are made until a reduction is below or above a number."""

    reduction: str
    every: int
    below: float | None = None
    above: float | None = None
    first: int | None = None


class ProblemTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[problem]` as written: what is computed.

    `stencil` is a catalog name or "path.py:function"; `shape` includes the boundary layer; an entry
    of `initial` is a file, by its path or as a table (see `InputFile`), a number, or an expression
    of z, y, x. A parameter is a number, a list, a formula of step, or of the axis that it is a
    profile along.
    """

    stencil: str
    shape: tuple[int, ...]
    steps: int
    dtype: Dtype = "float64"
    dtypes: dict[str, str] = {}
    boundary: str | BoundaryTable = "dirichlet"
    parameters: dict[str, float | list[float] | str] = {}
    initial: dict[str, str | float | InputFile] = {}
    sources: list[SourceTable] = []
    receivers: list[ReceiverTable] = []
    snapshots: list[SnapshotTable] = []
    until: UntilTable | None = None


class AsWritten(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan takes from `[run]` as it is written."""

    tier: Tier = "auto"
    in_place: bool = False
    msync: Msync = "none"
    placement: Placement = "cyclic"
    keep: Keep = "none"
    depth: int | None = None
    slab_planes: int | None = None
    strip_rows: int | None = None
    block: tuple[int, ...] | None = None
    inner: tuple[int, ...] | None = None
    inner_depth: int | None = None
    cuts: tuple[int, ...] = ()
    row_cuts: tuple[int, ...] = ()
    tile_rows: int | None = None
    tile_planes: int | None = None
    tile_columns: int | None = None
    tile_band: int | None = None
    threads: int | None = None
    pin: bool = False
    device: DeviceKind = "cpu"
    engine: Engine = "auto"
    queue_depth: int = DEFAULT_QUEUE_DEPTH
    watch: bool = True


class RunTable(AsWritten, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[run]` as written: how it is computed. Sizes are bytes or text like "1GiB"."""

    memory: str | int | float | None = None
    scratch: str | tuple[str, ...] | None = None
    stripe: str | int | None = None
    erase: str | tuple[str, ...] = ()
    endurance: str | int | None = None
    out: str | None = None
    scheme: Scheme = "auto"
    exchange: Exchange = "auto"
    madvise: Advice | tuple[Advice, ...] | None = None
    lend: str | int | None = None
    device_memory: str | int | None = None
    require: str | tuple[str, ...] = ()
    request_bytes: str | int = DEFAULT_REQUEST_BYTES
    preview: bool | int = False
    stop_after: str | float | None = None
    commit_every: str | float | None = None


class JobFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole job file."""

    problem: ProblemTable
    run: RunTable = RunTable()


# Keys of `[run]` that are decoded to fields of other names.
_DECODED = {
    "memory": "memory_bytes",
    "stripe": "stripe_bytes",
    "endurance": "endurance_bytes",
    "lend": "lend_bytes",
    "device_memory": "device_memory_bytes",
    "stop_after": "stop_after_seconds",
    "commit_every": "commit_seconds",
}
# Keys of `[run]` that are for one process of a run, or that its files speak for.
_PASSING = ("out", "stripe", "erase", "preview", "stop_after")


class RunOptions(AsWritten, frozen=True, kw_only=True):
    """How a problem is to be run. No field may change the answer, not by one bit.

    `memory_bytes` bounds the resident memory of the whole process; where it was not
    `memory_asked` it is a share of what the machine has. None leaves a choice to the plan. `places`
    are all folders or devices that fields are spread over, `scratch` the first one, striped where
    there are `stripe_bytes`; what is on devices that `erase` names as well may go.
    "{rank}" in them stands for the number of the rank, which is 0 where there is one process.
    `endurance_bytes` may be written to the device of `scratch` in its life, 0 if unknown.
    `require` names what must not be fallen back from. `preview` is the longest edge in pixels
    of the frames kept after each sweep, 0 for none. With `in_place` sweeps work right in the memory
    of tier "mmap" or "swap", of which the system is told what `madvise` says (None: what keeps the
    limit); `msync` is what follows a write to a mapped file. `cuts` are the planes, and
    `row_cuts` the rows, at which several ranks cut the grid; `exchange` is what goes over cuts of
    planes: "halos", some of which are computed twice, or "seams". On tier "remote" no rank lends
    more than `lend_bytes` (None: most of what its host has free), `placement` says how the grid is
    spread over them, and `keep` "disk" keeps what is put in files as well. A run stops,
    resumable, before `stop_after_seconds` are over, and makes about every `commit_seconds`
    durable what it has. With `device` "gpu" the window lies on a GPU, of whose memory no more than
    `device_memory_bytes` are taken (None: most of what is free). With `watch` a run that begins
    with finite values ends with an error where a value becomes NaN or infinite.
    """

    memory_bytes: int
    memory_asked: bool = True
    scratch: Path | None = None
    places: tuple[Path, ...] = ()
    stripe_bytes: int = 0
    erase: tuple[Path, ...] = ()
    endurance_bytes: int = 0
    out: Path | None = None
    scheme: Literal["skewed", "plain", "overlapped"] | None = None
    madvise: tuple[str, ...] | None = None
    lend_bytes: int | None = None
    exchange: Literal["halos", "seams"] | None = None
    device_memory_bytes: int | None = None
    require: tuple[str, ...] = ()
    request_bytes: int = DEFAULT_REQUEST_BYTES
    preview: int = 0
    stop_after_seconds: float | None = None
    commit_seconds: float | None = None

    @property
    def results(self) -> Path:
        """The folder of the results."""
        return self.out or Path("outgrid.run")

    @property
    def passing(self) -> bool:
        """Whether all fields are in memory that ends with the process."""
        return self.tier in PASSING_TIERS and not self.in_place and self.keep == "none"

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of all requests that may be under way at once."""
        return self.queue_depth * self.request_bytes

    def given(self, key: str) -> Any:
        """What was given for a key of `[run]`; None where that is what is taken without it."""
        name = _DECODED.get(key, key)
        value = getattr(self, name)
        return None if value == getattr(RunOptions(memory_bytes=0), name) else value

    def kept(self, out: Path) -> dict[str, Any]:
        """What a resume of the run in `out` goes by: entries of `[run]` that differ from their
        defaults. Folders inside `out` are named from there, so that it may be moved."""
        found: dict[str, Any] = {}
        for key in RunTable.__struct_fields__:
            value = self.given(key)
            if value is None or key in _PASSING or (key == "memory" and not self.memory_asked):
                continue
            found[key] = list(cast("tuple[Any, ...]", value)) if type(value) is tuple else value
        if self.scratch is not None:
            found["scratch"] = [_named_from(out, place) for place in self.places or (self.scratch,)]
        if "endurance" in found:
            found["endurance"] = f"{self.endurance_bytes}B"
        return found

    def of_rank(self, rank: int) -> "RunOptions":
        """The same for one of several ranks: with its own folders of working files."""

        def own(place: Path) -> Path:
            return Path(str(place).replace(RANK, str(rank)))

        scratch = None if self.scratch is None else own(self.scratch)
        return msgspec.structs.replace(
            self, scratch=scratch, places=tuple(own(place) for place in self.places)
        )

    @classmethod
    def of(
        cls,
        *,
        memory: str | float,
        scratch: Places | None = None,
        out: str | os.PathLike[str] | None = None,
        **others: Any,
    ) -> "RunOptions":
        """Options from keywords spelled like the keys of `[run]`, paths relative to the process.

        None and "auto" leave a key out. Raises UsageError for an unknown keyword, a wrong type or
        a value out of range.
        """
        given = _chosen(others)
        for name in ("require", "madvise"):
            if not isinstance(given.get(name, ""), str):
                given[name] = tuple(given[name])
        found = (("scratch", scratch), ("out", out), ("erase", given.pop("erase", None)))
        paths = {key: _texts(key, path) for key, path in found if path is not None}
        plain = {key: _plain(each) for key, each in {"memory": memory, **paths, **given}.items()}
        table = _decode(plain, RunTable, "")
        return cls.from_table(table, Path(), default_memory_bytes=0)

    @classmethod
    def from_table(cls, table: RunTable, base: Path, default_memory_bytes: int) -> "RunOptions":
        """The options that `table` asks for; its paths are relative to the folder `base`.

        Raises UsageError for a value out of range.
        """
        as_written = {name: getattr(table, name) for name in AsWritten.__struct_fields__}
        for key in ("scratch", "out", "erase"):
            if "" in _listed(getattr(table, key)):
                raise UsageError(f"{key} = '': name a folder, or leave it out")
        places = tuple(base / place for place in _listed(table.scratch))
        converted: dict[str, Any] = {
            "memory_bytes": _read(parse_bytes, table.memory, default_memory_bytes),
            "memory_asked": table.memory is not None,
            "scratch": places[0] if places else None,
            "places": places,
            "stripe_bytes": _read(_positive("stripe"), table.stripe, 0),
            "erase": tuple(base / place for place in _listed(table.erase)),
            "endurance_bytes": _read(parse_endurance, table.endurance, 0),
            "out": None if table.out is None else base / table.out,
            "scheme": None if table.scheme == "auto" else table.scheme,
            "exchange": None if table.exchange == "auto" else table.exchange,
            "madvise": None if table.madvise is None else _listed(table.madvise),
            "lend_bytes": _read(_positive("lend"), table.lend, None),
            "device_memory_bytes": _read(_positive("device_memory"), table.device_memory, None),
            "require": _listed(table.require),
            "request_bytes": parse_bytes(table.request_bytes),
            "preview": PREVIEW_EDGE if table.preview is True else int(table.preview),
            "stop_after_seconds": _read(parse_seconds, table.stop_after, None),
            "commit_seconds": _read(parse_seconds, table.commit_every, None),
        }
        options = cls(**(as_written | converted))
        _check_ranges(options)
        return options


def _named_from(out: Path, place: Path) -> str:
    """A folder as one inside `out` is named from there, or by its whole path."""
    place, out = place.absolute(), out.absolute()
    return os.fspath(place.relative_to(out) if place.is_relative_to(out) else place)


def _chosen(table: Mapping[str, Any]) -> dict[str, Any]:
    """Entries of `[run]` without those that leave the choice to the plan."""
    return {
        key: value
        for key, value in table.items()
        if value is not None and not (isinstance(value, str) and value == AUTO)
    }


def _plain(value: Any) -> Any:
    """A number of NumPy as one of Python, anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def _texts(key: str, path: Any) -> str | tuple[str, ...]:
    try:
        if isinstance(path, str | os.PathLike):
            return os.fspath(cast("str | os.PathLike[str]", path))
        return tuple(os.fspath(each) for each in cast("Sequence[str]", path))
    except TypeError:
        raise UsageError(f"{key} = {path!r} is no path; give text or a Path") from None


def _read(parse: Callable[[Any], N], written: Any, default: D) -> N | D:
    """What was written, parsed; ``default`` where nothing was."""
    return default if written is None else parse(written)


def _positive(key: str) -> Callable[[str | int], int]:
    """Reads a size that has to be above 0."""

    def read(written: str | int) -> int:
        found = parse_bytes(written)
        if found == 0:
            raise UsageError(f"{key} = {written}: it must be above 0, or left out")
        return found

    return read


def _listed(given: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else given or ()


def read_job_file(path: Path, settings: Mapping[str, Any] | None = None) -> JobFile:
    """The job file at `path`; `settings` replace entries of its `[run]` table.

    Raises UsageError, naming the file, for an unreadable file, bad TOML, unknown keys (with the
    nearest valid one), missing keys and wrong types.
    """
    try:
        found = parse_toml(read_given(path, MOST_BYTES).decode(), f"the job file {path}")
    except StoreError as error:
        raise UsageError(f"cannot read the job file: {error}") from error
    except OSError as error:
        raise UsageError(f"cannot read the job file {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"the job file {path} is not TOML: {error}") from error
    run = found.get("run", {})
    if isinstance(run, dict) and "erase" in run:
        raise UsageError(
            f"[run] of {path}: erase is not taken from a file; who runs the job says what may go "
            f"for good: add --erase {_spelled(run['erase'])} to the command, or erase to the call"
        )
    if isinstance(run, dict):
        found["run"] = _chosen({**cast("dict[str, Any]", run), **(settings or {})})
    return _decode(found, JobFile, str(path))


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Entries of a `[run]` table from texts like "depth=8" or "scratch=/nvme".

    A value that reads as TOML is taken as such, anything else as text. Raises UsageError for a
    text without "=".
    """
    found: dict[str, Any] = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator or not key.strip():
            raise UsageError(
                f"{_shown(setting)!r} is not a setting; write KEY=VALUE, for example depth=8"
            )
        try:
            found[key.strip()] = parse_toml(f"value = {value}", f"--set {_shown(key)}")["value"]
        except ValueError:
            found[key.strip()] = value.strip()
    return found


T = TypeVar("T", bound=msgspec.Struct)

_TABLES: dict[type[msgspec.Struct], dict[str, type[msgspec.Struct]]] = {
    JobFile: {
        "": JobFile,
        "problem": ProblemTable,
        "problem.boundary": BoundaryTable,
        "problem.until": UntilTable,
        "run": RunTable,
    },
    RunTable: {"": RunTable},
}
_CHOICES: dict[str, tuple[str, ...]] = {
    "scheme": get_args(Scheme),
    "tier": get_args(Tier),
    "placement": get_args(Placement),
    "keep": get_args(Keep),
    "exchange": get_args(Exchange),
    "engine": get_args(Engine),
    "device": get_args(DeviceKind),
    "madvise": get_args(Advice),
    "msync": get_args(Msync),
    "dtype": get_args(Dtype),
    "kind": get_args(BoundaryKind),
}


def _decode(found: dict[str, Any], kind: type[T], source: str) -> T:
    for path, table in _TABLES[kind].items():
        _check_keys(found, path, table, source)
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise UsageError(_explain(str(error), found, source)) from None


def _check_keys(found: dict[str, Any], path: str, table: type[msgspec.Struct], source: str) -> None:
    written = _at(found, path)
    if not isinstance(written, dict):
        return
    for key in cast("dict[str, Any]", written):
        if key in table.__struct_encode_fields__:
            continue
        hint = _key_hint(key, path, table)
        if not source:
            raise UsageError(f"unknown option {_shown(key)!r}; {hint}")
        where = f"[{path}] of {source}" if path else source
        raise UsageError(f"{where}: unknown key {_shown(key)!r}; {hint}")


def _key_hint(key: str, path: str, table: type[msgspec.Struct]) -> str:
    for other, fields in (("problem", ProblemTable), ("run", RunTable)):
        if key in fields.__struct_encode_fields__ and path in ("problem", "run"):
            return f"it belongs in [{other}]"
    known = table.__struct_encode_fields__
    return f"did you mean {nearest_three(key, known)}?"


# How the decoder calls kinds of values; what may be left out need not be said.
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "",
}


def _explain(message: str, found: dict[str, Any], source: str) -> str:
    """The decoder's message with the file, the value that was written and what would be valid."""
    reason, _, place = message.partition(" - at `$")
    path = place.rstrip("`").lstrip(".")
    reason = reason.replace("`", "")
    missing = re.fullmatch(r"Object missing required field (\w+)", reason)
    if missing is not None:
        where = f"[{path}] of {source}" if path else source
        return f"{where} lacks the key {missing[1]!r}"
    written = _at(found, path)
    key = path.rpartition(".")[2]
    if reason.startswith("Invalid enum value") and key in _CHOICES:
        guess = nearest(str(written), _CHOICES[key])
        reason = f"expected one of {', '.join(_CHOICES[key])}"
        reason += f"; did you mean {guess!r}?" if guess else ""
    kinds = re.fullmatch(r"Expected (.+), got (.+)", reason)
    if kinds is not None:
        wanted = dict.fromkeys(_KINDS.get(each, each) for each in kinds[1].split(" | "))
        reason = f"expected {' or '.join(each for each in wanted if each)}"
    told = f"{path} = {_shown(repr(written))}: {reason[:1].lower()}{reason[1:]}"
    return f"{source}: {told}" if source else told


def _shown(text: str) -> str:
    """As much of what was written as a message has room for."""
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _spelled(places: Any) -> str:
    """Options of a command line that name `places`, as a job file has them."""
    listed = cast("list[Any]", places) if isinstance(places, list) else [places]
    return " --erase ".join(_shown(str(each)) for each in listed)


def _at(found: Any, path: str) -> Any:
    """The value at a path like "problem.shape[1]", None where there is none."""
    for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
        try:
            found = found[int(index)] if index else found[name]
        except (KeyError, IndexError, TypeError):
            return None
    return found


def _check_ranges(options: RunOptions) -> None:
    for name in (
        "depth",
        "slab_planes",
        "strip_rows",
        "tile_rows",
        "tile_planes",
        "tile_columns",
        "tile_band",
        "inner_depth",
        "threads",
        "queue_depth",
    ):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UsageError(f"{name} = {value}: it must be at least 1")
    if options.threads is not None and options.threads > MOST_THREADS:
        raise UsageError(
            f"threads = {options.threads}: at most {MOST_THREADS}; more than the processor has "
            "only wait for each other"
        )
    if options.queue_depth > MOST_REQUESTS:
        raise UsageError(
            f"queue_depth = {options.queue_depth}: at most {MOST_REQUESTS} requests are under "
            "way at once"
        )
    if options.preview < 0:
        raise UsageError(f"preview = {options.preview}: pixels of the longest edge, or 0")
    if options.stripe_bytes % DIRECT_IO_BLOCK_BYTES:
        raise UsageError(
            f"stripe = {options.stripe_bytes}: it must be a multiple of {DIRECT_IO_BLOCK_BYTES}"
        )
    if options.stripe_bytes and len(options.places) < 2:
        raise UsageError("stripe cuts fields over several places; name them all in scratch")
    block = DIRECT_IO_BLOCK_BYTES
    if options.request_bytes < block or options.request_bytes % block:
        fix = max(block, options.request_bytes // block * block)
        raise UsageError(
            f"request_bytes = {options.request_bytes}: direct I/O needs a multiple of {block};"
            f" {fix} is one"
        )
    for name in options.require:
        if name not in REQUIREMENTS:
            guess = nearest(name, REQUIREMENTS)
            hint = f"did you mean {guess!r}? " if guess else ""
            valid = ", ".join(REQUIREMENTS)
            raise UsageError(f"require names {name!r}; {hint}known: {valid}")
    if options.tier in COPIED_TIERS and len(options.places) > 1:
        raise UsageError(
            f"tier {options.tier} does not spread fields over folders, and scratch names "
            f"{len(options.places)} places: name one, or choose tier direct"
        )
    check_purposes(options)
