"""Values that a file keeps packed, and those that it says are missing: CF conventions 2.5, 8.1.

value = scale_factor * stored + add_offset
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import StoreError, UsageError
from outgrid.formats.input import InputFile
from outgrid.formats.source import Box, Source, View, cell_of
from outgrid.numbers import is_real

__all__ = ["ATTRIBUTES", "absent", "unpacked"]

ATTRIBUTES = ("scale_factor", "add_offset", "_FillValue", "missing_value")


def unpacked(
    source: Source,
    attributes: Mapping[str, Any],
    file: InputFile,
    unwritten: tuple[Any, ...] = (),
) -> Source:
    """A source whose values are what its attributes say, none of them missing.

    Only `scale_factor`, `add_offset`, `_FillValue` and `missing_value` say something. `unwritten`
    are markers of missing values beside those that the attributes say, see `absent`. Raises
    UsageError, and closes the source, for attributes that are not what these are.
    """
    try:
        scale = _number("scale_factor", attributes, file)
        offset = _number("add_offset", attributes, file)
        markers = (_markers(key, attributes, file) for key in ("_FillValue", "missing_value"))
        missing = [_as_stored(value, source.dtype) for value in chain(unwritten, *markers)]
    except UsageError:
        source.close()
        raise
    linear = [number.dtype for number in (scale, offset) if number is not None]
    if not missing and not linear:
        return source
    dtype = _scaled(source.dtype, linear) if linear else source.dtype
    if missing and file.missing is not None and not _holds(dtype, file.missing):
        dtype = np.result_type(dtype, np.float64)
    return _Unpacked(source, dtype, scale, offset, tuple(missing), file)


def _number(key: str, attributes: Mapping[str, Any], file: InputFile) -> Any:
    """An attribute that is one real number; None where it is not there. Raises UsageError."""
    if key not in attributes:
        return None
    found = np.asarray(attributes[key]).ravel()
    if found.size != 1 or found.dtype.kind not in "iuf" or not np.isfinite(found[0]):
        raise UsageError(
            f"{file} has {key} = {attributes[key]!r}, which must be one finite real number; "
            "correct it, or remove it where values are not packed"
        )
    return found[0]


def _markers(key: str, attributes: Mapping[str, Any], file: InputFile) -> NDArray[Any]:
    """The numbers in an attribute, or in its text; none for null. Raises UsageError."""
    found = np.asarray([] if attributes.get(key) is None else attributes[key]).ravel()
    try:
        return found if found.dtype.kind in "biuf" else found.astype(np.float64)
    except (TypeError, ValueError):
        raise UsageError(
            f"{file} has {key} = {attributes[key]!r}, which must be a number, the marker of "
            "missing values; correct it, or remove it"
        ) from None


def _scaled(stored: np.dtype[Any], linear: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
    """The type of numbers that are unpacked: that of the attributes (CF 8.1).

    In whole numbers they could run over, and in fewer digits than are stored some would be lost.
    """
    kinds = linear if any(map(is_real, linear)) else (np.float64,)
    return np.result_type(*kinds, *((stored,) if is_real(stored) else ()))


def _as_stored(marker: Any, dtype: np.dtype[Any]) -> Any:
    """A marker rounded to the type of the values, as writers do, where these have fractions."""
    if not is_real(dtype):
        return marker
    with np.errstate(over="ignore"):
        return np.asarray(marker).astype(dtype)[()]


def _holds(dtype: np.dtype[Any], number: float) -> bool:
    """Whether a type has a number. Those with fractions have one that is near."""
    with np.errstate(invalid="ignore"):
        return dtype.kind not in "biu" or bool(np.asarray(number).astype(dtype) == number)


def absent(there: int, whole: int, filled_with: Any, file: InputFile) -> tuple[Any, ...]:
    """What is said of an array of which only some of the chunks are stored.

    Its readers take the others for `filled_with`, of which the file holds nothing: that is a mark
    of missing values. Raises UsageError where no number is given for these.
    """
    if there >= whole:
        return ()
    if file.missing is None:
        raise UsageError(
            f"{file} has {there} of its {whole} chunks, as where it is still being written; others "
            f"are read as {filled_with}: give InputFile(..., missing=0.0) to put a number there"
        )
    return (filled_with,)


class _Unpacked(View):
    def __init__(
        self,
        source: Source,
        dtype: np.dtype[Any],
        scale: Any,
        offset: Any,
        missing: tuple[Any, ...],
        file: InputFile,
    ) -> None:
        super().__init__(source)
        self.scale, self.offset, self.missing = scale, offset, missing
        self.file, self._dtype = file, dtype

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    def read(self, box: Box) -> NDArray[Any]:
        stored = self.source.read(box)
        absent = np.zeros(stored.shape, bool)
        for value in self.missing:
            absent |= np.isnan(stored) if value != value else stored == value
        values = stored
        if self.scale is not None:
            values = np.multiply(values, self.scale, dtype=self.dtype)
        if self.offset is not None:
            values = np.add(values, self.offset, dtype=self.dtype)
        if absent.any():
            if self.file.missing is None:
                raise StoreError(
                    f"{self.file} has no value at cell {cell_of(absent, box)}, where it holds "
                    f"{stored[absent][0]}, its marker of missing values; give "
                    "InputFile(..., missing=0.0) to put a number there",
                    path=self.file.path,
                )
            values = np.where(absent, np.asarray(self.file.missing, self.dtype), values)
        return values.astype(self.dtype, copy=False)
