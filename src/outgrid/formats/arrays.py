"""Arrays that a program has: in its memory, or behind an object that gives them slice by slice."""

from __future__ import annotations

import hashlib
import mmap
from dataclasses import dataclass
from math import prod
from typing import Any, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import Error, StoreError, UsageError
from outgrid.formats.source import Box, Coords, boxes, cell_of, slices, whole_axes

__all__ = ["FILL", "ArraySource", "InputArray", "computed", "is_array", "pieces"]

PIECE_BYTES = 1 << 20
LIBRARY_BYTES = 80 << 20  # of xarray, pandas and dask, measured; others are smaller
FILL = "put numbers in place of masked cells, as numpy.ma.filled(values, 0.0) does"


def computed(slices: Any) -> NDArray[Any]:
    """What an array gave as one of NumPy, with its mask if it has one."""
    return np.asanyarray(slices.compute() if hasattr(slices, "compute") else slices)


def is_array(value: object) -> TypeGuard[Any]:
    """Whether a value has a shape, a type of numbers and slices, as arrays of all libraries do."""
    return all(hasattr(value, attribute) for attribute in ("shape", "dtype", "__getitem__"))


@dataclass(frozen=True, slots=True, eq=False)
class InputArray:
    """An array that a field begins with, held as it was given and read when the run begins.

    Of one in memory `sha256` is the digest of its values, and `held_bytes` counts it. Another one
    is read slice by slice: its digest is that of what it says of itself.
    """

    array: Any
    sha256: str
    held_bytes: int = 0

    @property
    def library_bytes(self) -> int:
        """Memory of what gives the slices."""
        return 0 if isinstance(self.array, np.ndarray) else LIBRARY_BYTES

    def open_source(self) -> ArraySource:
        """The array as a source of a run."""
        return ArraySource(self.array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """All of it, read into memory."""
        whole = tuple(map(range, map(int, self.array.shape)))
        return np.array(self.open_source().read(whole), dtype=dtype, copy=copy)

    def __str__(self) -> str:
        """What it is called in messages."""
        return "an array in memory" if self.held_bytes else f"an array of {_kind(self.array)}"


class ArraySource:
    """An array of a program as a source."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self._map = _mapped(array)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents."""
        return tuple(map(int, self.array.shape))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its type of numbers."""
        return np.dtype(self.array.dtype)

    @property
    def chunk(self) -> tuple[int, ...]:
        """Chunks that are read whole, with all cells of their rows."""
        chunks = _chunks(self.array)
        return (*chunks[:-1], self.shape[-1]) if chunks else whole_axes(self.shape, 1)

    @property
    def decoded_bytes(self) -> int:
        """Bytes of the chunks that a row goes through."""
        return prod(self.chunk) * self.dtype.itemsize if _chunks(self.array) else 0

    @property
    def at_once(self) -> int:
        """Whoever made the array may want to be called by one thread."""
        return 1

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the axes, where the array has some."""
        return tuple(map(str, getattr(self.array, "dims", ())))

    @property
    def coords(self) -> Coords:
        """Those of an array are compared when a problem is made of it."""
        return {}

    def read(self, box: Box) -> NDArray[Any]:
        """The values of a box.

        Raises StoreError for what is raised where they come from, and for cells that are masked.
        """
        try:
            given = computed(self.array[slices(box)])
        except Error:
            raise
        except MemoryError as error:
            raise StoreError(f"no memory for a part of an array of {_kind(self.array)}") from error
        except Exception as error:  # whoever made the array raises errors of any kind
            said = str(error).strip() or type(error).__name__
            raise StoreError(f"an array of {_kind(self.array)} cannot be read: {said}") from error
        wanted = tuple(map(len, box))
        if given.shape != wanted:
            raise StoreError(
                f"an array of {_kind(self.array)} gave {given.shape} cells where {wanted} were "
                "asked for"
            )
        if np.ma.is_masked(given):
            cell = cell_of(np.ma.getmaskarray(given), box)
            raise StoreError(
                f"an array of {_kind(self.array)} has no value at cell {cell}, which is masked; "
                f"{FILL}"
            )
        values = np.asarray(given)
        if self._map is not None:
            values = values.copy()
            self._map.madvise(mmap.MADV_DONTNEED)
        return values

    def close(self) -> None:
        """Nothing was opened."""


def pieces(array: Any) -> Any:
    """An array in memory in pieces of whole planes, or rows, in order."""
    row_cells = max(1, array.shape[-1])
    *axes, last = map(range, array.shape)
    cells = max(1, PIECE_BYTES // (8 * row_cells))
    for box in boxes(tuple(axes), (1,) * len(axes), cells):
        yield (*box, last), array[slices((*box, last))]


def digest(array: NDArray[Any], dtype: str) -> str:
    """sha256 of the values of an array in memory, turned into `dtype`, in C order."""
    sha256 = hashlib.sha256()
    for _, piece in pieces(array):
        sha256.update(np.ascontiguousarray(piece, dtype).reshape(-1).view(np.uint8).data)
    return sha256.hexdigest()


def description(array: Any) -> str:
    """sha256 of what an array that is read later says of itself: a name, a file, and its type."""
    said = [
        _kind(array),
        tuple(map(int, array.shape)),
        str(array.dtype),
        str(getattr(array, "name", "")),
        str(getattr(getattr(array, "file", None), "filename", "")),
        str(getattr(array, "filename", "")),
        str(getattr(array, "store_path", "")),
        str(getattr(array, "encoding", {}).get("source", "")),
        str(getattr(getattr(array, "data", None), "name", "")) if _chunks(array) else "",
    ]
    return hashlib.sha256(repr(said).encode()).hexdigest()


def check_unchanged(given: InputArray, dtype: str, name: str) -> None:
    """Raise UsageError where an array in memory is not what it was when the problem was made."""
    if given.held_bytes and digest(given.array, dtype) != given.sha256:
        raise UsageError(
            f"the initial array of {name!r} changed after the problem was made, which refers to "
            "the array; make the problem again, or give array.copy()"
        )


def is_mapped(array: object) -> bool:
    """Whether an array of NumPy lies in a file that is mapped."""
    return isinstance(array, np.ndarray) and _base(cast("Any", array)) is not None


def _mapped(array: Any) -> mmap.mmap | None:
    """The mapping of an array whose pages may be let go of: they are those of its file."""
    if not isinstance(array, np.memmap) or getattr(cast("Any", array), "mode", "c") == "c":
        return None
    return _base(cast("Any", array))


def _base(array: Any) -> mmap.mmap | None:
    base: Any = array
    while isinstance(base, np.ndarray | memoryview):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return base if isinstance(base, mmap.mmap) else None


def _chunks(array: Any) -> tuple[int, ...]:
    """Cells of the largest chunk along each axis, where an array is made of chunks."""
    given = getattr(array, "chunks", None)
    if not isinstance(given, tuple) or isinstance(array, np.ndarray):
        return ()
    listed = cast("tuple[int | tuple[int, ...], ...]", given)
    return tuple(max(lengths) if isinstance(lengths, tuple) else int(lengths) for lengths in listed)


def _kind(array: Any) -> str:
    kind = cast("type[object]", type(array))
    return f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
