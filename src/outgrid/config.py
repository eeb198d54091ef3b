"""Job files and run options: text at the edge, decoded once and strictly into frozen values.

A job file is TOML with two tables. `[problem]` changes the answer; `[run]` never does. This module
knows the keys, their types and their defaults, not what they mean together: a stencil's name or an
initial condition is passed on as it was written.
"""

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args

import msgspec

from outgrid.errors import UsageError
from outgrid.units import nearest, parse_bytes, parse_seconds

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
Tier = Literal["auto", "direct", "memory"]
Engine = Literal["auto", "io_uring", "aio", "threads"]
Dtype = Literal["float32", "float64"]
_SIGNS = {"low": "-", "high": "+"}
BoundaryKind = Literal["dirichlet", "frozen", "neumann", "mirror", "periodic"]

DIRECT_IO_BLOCK_BYTES = 4096
DEFAULT_REQUEST_BYTES = 2 << 20
DEFAULT_QUEUE_DEPTH = 16

PREVIEW_EDGE = 512
"""Longest edge, in pixels, of the frames that `preview = true` asks for."""

REQUIREMENTS = ("io_uring", "aio", "threads", "direct")
"""What `require` may name: an I/O engine or O_DIRECT on every file."""


class FaceTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What holds at a face: a kind and, for "dirichlet", the fixed value."""

    kind: BoundaryKind
    value: float | None = None


Face = BoundaryKind | float | FaceTable | None
_SIDES = {f"{axis}_{side}": axis + sign for axis in "zyx" for side, sign in _SIGNS.items()}


class BoundaryTable(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename=_SIDES
):
    """`[problem.boundary]`: a kind for all faces; what differs by axis, face ("x-") or field."""

    kind: BoundaryKind | None = None
    value: float | None = None
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


class ProblemTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[problem]` as written: what is computed.

    `stencil` is a catalog name or "path.py:function"; `shape` includes the boundary layer; an entry
    of `initial` is a path to a .npy file, a number, or an expression of z, y, x.
    """

    stencil: str
    shape: tuple[int, ...]
    steps: int
    dtype: Dtype = "float64"
    boundary: str | BoundaryTable = "dirichlet"
    parameters: dict[str, float | list[float]] = {}
    initial: dict[str, str | float] = {}


class RunTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[run]` as written: how it is computed. Sizes are bytes or text like "1GiB"."""

    memory: str | int | None = None
    scratch: str | None = None
    out: str | None = None
    scheme: Scheme = "auto"
    tier: Tier = "auto"
    depth: int | None = None
    slab_planes: int | None = None
    strip_rows: int | None = None
    block: tuple[int, ...] | None = None
    inner: tuple[int, ...] | None = None
    inner_depth: int | None = None
    tile_rows: int | None = None
    tile_planes: int | None = None
    threads: int | None = None
    pin: bool = False
    engine: Engine = "auto"
    require: str | tuple[str, ...] = ()
    queue_depth: int = DEFAULT_QUEUE_DEPTH
    request_bytes: str | int = DEFAULT_REQUEST_BYTES
    preview: bool | int = False
    stop_after: str | float | None = None
    commit_every: str | float | None = None


class JobFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole job file."""

    problem: ProblemTable
    run: RunTable = RunTable()


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a problem is to be run. No field may change the answer, not by one bit.

    `memory_bytes` bounds the resident memory of the whole process. None leaves a choice to the
    plan. `require` names what must not be fallen back from. `preview` is the longest edge in pixels
    of the frames kept after each sweep, 0 for none. A run stops, resumable, before
    `stop_after_seconds` are over, and makes about every `commit_seconds` durable what it has.
    """

    memory_bytes: int
    scratch: Path | None = None
    out: Path | None = None
    scheme: Literal["skewed", "plain", "overlapped"] | None = None
    tier: Tier = "auto"
    depth: int | None = None
    slab_planes: int | None = None
    strip_rows: int | None = None
    block: tuple[int, ...] | None = None
    inner: tuple[int, ...] | None = None
    inner_depth: int | None = None
    tile_rows: int | None = None
    tile_planes: int | None = None
    threads: int | None = None
    pin: bool = False
    engine: Engine = "auto"
    require: tuple[str, ...] = ()
    queue_depth: int = DEFAULT_QUEUE_DEPTH
    request_bytes: int = DEFAULT_REQUEST_BYTES
    preview: int = 0
    stop_after_seconds: float | None = None
    commit_seconds: float | None = None

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of all requests that may be under way at once."""
        return self.queue_depth * self.request_bytes

    @classmethod
    def of(
        cls,
        *,
        memory: str | int,
        scratch: str | os.PathLike[str] | None = None,
        out: str | os.PathLike[str] | None = None,
        **others: Any,
    ) -> "RunOptions":
        """Options from keywords spelled like the keys of `[run]`, paths relative to the process.

        Raises UsageError for an unknown keyword, a wrong type or a value out of range.
        """
        given = {key: value for key, value in others.items() if value is not None}
        if not isinstance(given.get("require", ""), str):
            given["require"] = tuple(given["require"])
        paths = {key: os.fspath(path) for key, path in (("scratch", scratch), ("out", out)) if path}
        table = _decode({"memory": memory, **paths, **given}, RunTable, "run options")
        return cls.from_table(table, Path(), default_memory_bytes=0)

    @classmethod
    def from_table(cls, table: RunTable, base: Path, default_memory_bytes: int) -> "RunOptions":
        """The options that `table` asks for; its paths are relative to the folder `base`.

        Raises UsageError for a value out of range.
        """
        memory_bytes = default_memory_bytes if table.memory is None else parse_bytes(table.memory)
        options = cls(
            memory_bytes=memory_bytes,
            scratch=None if table.scratch is None else base / table.scratch,
            out=None if table.out is None else base / table.out,
            scheme=None if table.scheme == "auto" else table.scheme,
            tier=table.tier,
            depth=table.depth,
            slab_planes=table.slab_planes,
            strip_rows=table.strip_rows,
            block=table.block,
            inner=table.inner,
            inner_depth=table.inner_depth,
            tile_rows=table.tile_rows,
            tile_planes=table.tile_planes,
            threads=table.threads,
            pin=table.pin,
            engine=table.engine,
            require=(table.require,) if isinstance(table.require, str) else table.require,
            queue_depth=table.queue_depth,
            request_bytes=parse_bytes(table.request_bytes),
            preview=PREVIEW_EDGE if table.preview is True else int(table.preview),
            stop_after_seconds=(
                None if table.stop_after is None else parse_seconds(table.stop_after)
            ),
            commit_seconds=None
            if table.commit_every is None
            else parse_seconds(table.commit_every),
        )
        _check_ranges(options)
        return options


def read_job_file(path: Path, settings: Mapping[str, Any] | None = None) -> JobFile:
    """The job file at `path`; `settings` replace entries of its `[run]` table.

    Raises UsageError, naming the file, for an unreadable file, bad TOML, unknown keys (with the
    nearest valid one), missing keys and wrong types.
    """
    try:
        found = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"cannot read the job file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"the job file {path} is not TOML: {error}") from error
    run = found.get("run", {})
    if settings and isinstance(run, dict):
        found["run"] = {**run, **settings}
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
            raise UsageError(f"{setting!r} is not a setting; write KEY=VALUE, for example depth=8")
        try:
            found[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[key.strip()] = value.strip()
    return found


T = TypeVar("T", bound=msgspec.Struct)

_TABLES: dict[type[msgspec.Struct], dict[str, type[msgspec.Struct]]] = {
    JobFile: {
        "": JobFile,
        "problem": ProblemTable,
        "problem.boundary": BoundaryTable,
        "run": RunTable,
    },
    RunTable: {"": RunTable},
}
_CHOICES: dict[str, tuple[str, ...]] = {
    "scheme": get_args(Scheme),
    "tier": get_args(Tier),
    "engine": get_args(Engine),
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
        where = f"[{path}] of {source}" if path else source
        raise UsageError(f"{where}: unknown key {key!r}; {_key_hint(key, path, table)}")


def _key_hint(key: str, path: str, table: type[msgspec.Struct]) -> str:
    for other, fields in (("problem", ProblemTable), ("run", RunTable)):
        if key in fields.__struct_encode_fields__ and path in ("problem", "run"):
            return f"it belongs in [{other}]"
    guess = nearest(key, table.__struct_encode_fields__)
    valid = ", ".join(table.__struct_encode_fields__)
    return f"did you mean {guess!r}? Valid keys: {valid}" if guess else f"valid keys: {valid}"


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
    return f"{source}: {path} = {written!r}: {reason[:1].lower()}{reason[1:]}"


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
        "threads",
        "queue_depth",
    ):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UsageError(f"run.{name} = {value}: it must be at least 1")
    if options.preview < 0:
        raise UsageError(f"run.preview = {options.preview}: pixels of the longest edge, or 0")
    block = DIRECT_IO_BLOCK_BYTES
    if options.request_bytes < block or options.request_bytes % block:
        fix = max(block, options.request_bytes // block * block)
        raise UsageError(
            f"run.request_bytes = {options.request_bytes}: direct I/O needs a multiple of {block};"
            f" {fix} is one"
        )
    for name in options.require:
        if name not in REQUIREMENTS:
            guess = nearest(name, REQUIREMENTS)
            hint = f"did you mean {guess!r}? " if guess else ""
            valid = ", ".join(REQUIREMENTS)
            raise UsageError(f"run.require names {name!r}; {hint}It may name: {valid}")
