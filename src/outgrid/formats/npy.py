"""Files of the .npy format: strict reading, padded headers, streaming.

The format is NumPy's (numpy.lib.format): a magic string, a version, the length of a header, and the
header, a Python literal, followed by the array. Here a header is padded to 4096 bytes, so that data
begins at a block. Nothing is ever unpickled.
"""

import math
import os
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec
import numpy as np
from numpy.typing import DTypeLike, NDArray

from outgrid.errors import StoreError, UsageError, file_errors
from outgrid.formats.input import InputFile
from outgrid.formats.shard import is_index
from outgrid.formats.sink import Output, Plain
from outgrid.formats.source import Source, Straight
from outgrid.numbers import BFLOAT16, is_real, number_type
from outgrid.regular import given, own, stored
from outgrid.syntax import PARSER, literal_value

__all__ = [
    "HEADER_BYTES",
    "Header",
    "bare_npy",
    "check_written",
    "create_output",
    "cut_npy",
    "header_bytes",
    "load_npy",
    "map_npy",
    "open_source",
    "read_header",
    "reserve_npy",
    "write_header",
]

HEADER_BYTES = 4096
_TWO_BYTES = np.dtype("V2")
_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 65536
_MOST_BITS = 128  # of an extent, which a message can still spell
_DEEPEST_NESTING = 8  # a parser given thousands of brackets may exhaust the C stack


class Header(msgspec.Struct, frozen=True):
    """What a .npy file says of itself; data begins `data_offset` bytes into it."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool
    data_offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of data, without the header."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def shape_in_file(self) -> tuple[int, ...]:
        """The shape with the axis first that steps over most of the file."""
        return self.shape[::-1] if self.fortran_order else self.shape


def header_bytes(shape: tuple[int, ...], dtype: DTypeLike, *, fortran: bool = False) -> bytes:
    """The 4096 bytes before the data of an array that lies in a file in this shape.

    In ``fortran`` order its axes are those of the shape the other way round.
    """
    kind, axes = np.dtype(dtype), tuple(shape)[::-1] if fortran else tuple(shape)
    text = f"{{'descr': {kind.str!r}, 'fortran_order': {fortran}, 'shape': {axes!r}, }}"
    head = _MAGIC + bytes((1, 0)) + (HEADER_BYTES - 10).to_bytes(2, "little")
    return head + text.encode("latin1").ljust(HEADER_BYTES - 11) + b"\n"


def write_header(
    path: str | os.PathLike[str],
    shape: tuple[int, ...],
    dtype: DTypeLike,
    base: int = 0,
    *,
    fortran: bool = False,
) -> None:
    """Write the padded header at byte `base` of an existing file or device, durably.

    See `header_bytes`.
    """
    with open(path, "r+b", opener=stored) as file:
        file.seek(base)
        file.write(header_bytes(shape, dtype, fortran=fortran))
        file.flush()
        os.fsync(file.fileno())


def reserve_npy(path: Path, shape: tuple[int, ...], dtype: DTypeLike) -> None:
    """Make a file for an array of that shape, its space set aside and read as 0. Raises OSError."""
    with path.open("xb") as file:
        file.write(header_bytes(shape, dtype))
        file.flush()
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        os.posix_fallocate(file.fileno(), 0, HEADER_BYTES + nbytes)


def cut_npy(path: Path, shape: tuple[int, ...], dtype: DTypeLike, final: Path) -> None:
    """Leave a file of `reserve_npy` under its `final` name, cut to what was filled, durably.

    Raises OSError.
    """
    with open(path, "r+b", opener=own) as file:
        file.write(header_bytes(shape, dtype))
        file.truncate(HEADER_BYTES + math.prod(shape) * np.dtype(dtype).itemsize)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path, final)


def bare_npy(path: Path) -> Header:
    """Cut off what lies behind the data, as the index that a process was writing there.

    Raises what `read_header` does, also where the file is too short.
    """
    header = read_header(path, 0)
    end = header.data_offset + header.nbytes
    with open(path, "r+b", opener=own) as file:
        if os.fstat(file.fileno()).st_size > end:
            file.truncate(end)
    return read_header(path)


def read_header(path: str | os.PathLike[str], base: int | None = None) -> Header:
    """What the file at `path` holds, checked against the length of the file.

    Behind the data may lie the index of a shard. With `base` the header is at that byte, and the
    length says nothing: of a file in several parts, or of a part of a device.

    Raises StoreError where the file cannot be read or its length is not what the header says,
    UsageError where it is not a .npy file or holds no plain numbers.
    """
    opener = given if base is None else stored
    with file_errors("cannot read", path), open(path, "rb", opener=opener) as file:
        file.seek(base or 0)
        header = _parse_header(file, path, base or 0)
        size = os.fstat(file.fileno()).st_size
        expected = header.data_offset + header.nbytes
        indexed = base is None and is_index(file.fileno(), header.data_offset, expected, size)
    if base is not None:
        return header
    if size != expected and not indexed:
        raise StoreError(
            f"the header gives shape {header.shape} of {header.dtype}, a file of {expected} "
            f"bytes, but the file has {size}",
            path=path,
        )
    return header


def map_npy(path: str | os.PathLike[str], header: Header | None = None) -> NDArray[Any]:
    """The array in a .npy file, which cannot be changed, read when it is used.

    With a `header` it is in a file that does not say so. Raises what `read_header` does.
    """
    header = header or read_header(path)
    order = "F" if header.fortran_order else "C"
    if not header.nbytes:  # nothing can be mapped
        return np.empty(header.shape, header.dtype, order)
    with open(os.fspath(path), "rb", opener=given) as file:
        size, expected = os.fstat(file.fileno()).st_size, header.data_offset + header.nbytes
        if size < expected:
            raise StoreError(f"the file has {size} bytes of {expected}", path=path)
        return np.memmap(file, header.dtype, "r", header.data_offset, header.shape, order)


def load_npy(path: str | os.PathLike[str]) -> NDArray[Any]:
    """All of a small .npy file, whose type may have columns with names. Raises StoreError."""
    try:
        with file_errors("cannot read", path), open(path, "rb", opener=given) as file, PARSER:
            return np.load(file, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise StoreError(f"it is not a .npy file: {error}", path=path) from error


def check_written(path: str | os.PathLike[str], header: Header, base: int = 0) -> None:
    """Raise StoreError where `header`, read at byte `base`, is not byte for byte what we write.

    A header that was changed may still be one: of numbers in another order of bytes, for example.
    One of another length is another's, whose rows will not be those that checksums were kept of.
    """
    if header.data_offset != HEADER_BYTES:
        return
    order = header.fortran_order
    wanted = header_bytes(header.shape_in_file, header.dtype.newbyteorder("="), fortran=order)
    with file_errors("cannot read", path), open(path, "rb", opener=stored) as file:
        file.seek(base)
        written = file.read(HEADER_BYTES)
    if written != wanted:
        at = next(k for k in range(len(wanted)) if written[k : k + 1] != wanted[k : k + 1])
        raise StoreError(
            f"the header differs from the written one: byte {at} is {written[at : at + 1]!r}, not "
            f"{wanted[at : at + 1]!r}",
            path=path,
            offset=base + at,
            length=1,
        )


def _parse_header(file: BinaryIO, path: str | os.PathLike[str], base: int) -> Header:
    lead = file.read(len(_MAGIC) + 2)
    if lead[: len(_MAGIC)] != _MAGIC or len(lead) < len(_MAGIC) + 2:
        raise UsageError(f"{os.fspath(path)} is not a .npy file: it begins with {lead[:8]!r}")
    major, minor = lead[-2], lead[-1]
    if (major, minor) not in ((1, 0), (2, 0), (3, 0)):
        raise UsageError(
            f"{os.fspath(path)} has .npy version {major}.{minor}; known are 1.0, 2.0 and 3.0"
        )
    width = 2 if major == 1 else 4
    length = int.from_bytes(file.read(width), "little")
    if length > _LONGEST_HEADER:
        raise UsageError(
            f"{os.fspath(path)} has a header of {length} bytes; at most {_LONGEST_HEADER} are read"
        )
    raw = file.read(length)
    if len(raw) < length:
        raise StoreError(
            f"the file ends inside its header: {len(raw)} of {length} bytes", path=path
        )
    shape, dtype, fortran_order = _parse_literal(
        raw.decode("utf-8" if major == 3 else "latin1", "replace"), path
    )
    return Header(shape, dtype, fortran_order, file.tell() - base)


def _parse_literal(
    text: str, path: str | os.PathLike[str]
) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    def wrong(reason: str) -> UsageError:
        return UsageError(f"{os.fspath(path)} has a bad .npy header, {reason}: {text[:200]!r}")

    if sum(text.count(bracket) for bracket in "([{") > _DEEPEST_NESTING:
        raise wrong("too deeply nested (structured types are not supported)")
    try:
        literal: object = literal_value(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise wrong("not a Python literal") from error
    if not isinstance(literal, dict):
        raise wrong("not a dictionary")
    entries = cast("dict[object, object]", literal)
    if set(entries) != {"descr", "fortran_order", "shape"}:
        raise wrong("keys other than descr, fortran_order, shape")
    descr, fortran_order, shape = entries["descr"], entries["fortran_order"], entries["shape"]
    if not isinstance(descr, str):
        raise wrong("a structured type; fields are plain numbers")
    try:
        dtype = np.dtype(descr)
    except (TypeError, ValueError, SyntaxError) as error:
        raise wrong(f"no type {descr!r}") from error
    if dtype == _TWO_BYTES:  # as NumPy writes what it has no name for
        dtype = number_type(BFLOAT16)
    if not (dtype.kind in "biuc" or is_real(dtype)):
        raise wrong(f"type {descr!r}; fields are plain numbers")
    if not isinstance(fortran_order, bool):
        raise wrong("fortran_order is neither True nor False")
    if not isinstance(shape, tuple):
        raise wrong("shape is not a tuple")
    extents = cast("tuple[object, ...]", shape)
    for extent in extents:
        if isinstance(extent, int) and extent.bit_length() > _MOST_BITS:
            raise wrong(f"an extent of {extent.bit_length()} bits in the shape")
        if not isinstance(extent, int) or isinstance(extent, bool) or extent < 0:
            raise wrong(f"extent {str(extent)[:40]} in the shape")
    return cast("tuple[int, ...]", extents), dtype, fortran_order


def open_source(file: InputFile) -> Source:
    """The array in a .npy file. Raises what `read_header` does, UsageError for Fortran order."""
    header = read_header(file.path)
    fortran = header.fortran_order and len(header.shape) > 1
    if fortran and file.order != "F":
        raise UsageError(
            f"{file.path} is in Fortran order; save it once more with np.ascontiguousarray(...), "
            f'or give InputFile({file.path!r}, order="F"), which reads it in small pieces'
        )
    if file.order == "F" and not fortran:
        raise UsageError(f"{file.path} is not in Fortran order; leave order out")
    return Straight(Path(file.path), header.shape_in_file, header.dtype, header.data_offset)


def create_output(path: Path) -> Output:
    """A .npy file of one array, whose header is padded to a block."""
    return Plain(path, lambda array: header_bytes(array.shape, array.dtype))
