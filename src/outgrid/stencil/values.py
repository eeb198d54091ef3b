"""What a problem may give as the initial values of a field, told apart and checked."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from outgrid.errors import DefinitionError, meaning
from outgrid.formats import InputFile
from outgrid.formats.arrays import (
    FILL,
    InputArray,
    description,
    digest,
    is_array,
    is_mapped,
    pieces,
)
from outgrid.formats.source import cell_of
from outgrid.numbers import is_real as has_fractions
from outgrid.numbers import largest_of
from outgrid.stencil.dtypes import casting, in_words, is_real, number_fits
from outgrid.stencil.function import InitialFunction
from outgrid.stencil.grid import Grid
from outgrid.stencil.initial import InitialExpression
from outgrid.stencil.labels import unlabelled
from outgrid.stencil.series import Series
from outgrid.stencil.symbol import AXES, is_number

__all__ = [
    "ArrayDigest",
    "FunctionDigest",
    "Initial",
    "check_range",
    "classify",
    "initial_from_dict",
    "initial_to_dict",
]


class ArrayDigest(msgspec.Struct, frozen=True):
    """Stands for an array given in memory, in a problem read back from its JSON form."""

    sha256: str

    def __str__(self) -> str:
        """What it stands for, in messages."""
        return "an array in memory"


class FunctionDigest(msgspec.Struct, frozen=True):
    """Stands for a function, in a problem read back from its JSON form."""

    name: str
    sha256: str

    def __str__(self) -> str:
        """What it stands for, in messages."""
        return self.name


Digest: TypeAlias = ArrayDigest | FunctionDigest
Initial: TypeAlias = (
    InputFile | float | InitialExpression | InitialFunction | InputArray | Series | Digest
)
"""Where the values of a field begin: a file, a number, a formula, a function, an array; or, of a
coefficient, what it is in each step."""


def check_range(what: str, value: float, dtype: str) -> None:
    """Raise DefinitionError if `dtype` does not hold `value`; `what` introduces it in the message.

    Fractions may be rounded.
    """
    if number_fits(value, dtype):
        return
    if not is_real(dtype):
        raise DefinitionError(f"{what} {value}; {in_words(dtype)}")
    raise DefinitionError(f"{what} {value} is beyond the range of {dtype}, {largest_of(dtype)}")


def classify(
    name: str, value: object, shape: tuple[int, ...], dtype: str, grid: Grid | None = None
) -> Initial:
    """What `value` means as the initial values of `name` on a grid of `shape` in `dtype`.

    Text that ends like a file of a known format is one, other text a formula. Arrays are held as
    they are; what is no array of NumPy, or lies in a mapped file, is read when the run begins.
    Raises DefinitionError.
    """
    match value:
        case ArrayDigest() | FunctionDigest() | Series():
            return value
        case InputFile():
            return value
        case Path():
            with meaning(f"the initial values of {name!r}"):
                return InputFile(str(value))
        case str() if InputFile.named_by(value):
            return InputFile(value)
        case str():
            with meaning(f"the initial values of {name!r}"):
                formula = InitialExpression(value, grid)
            return _checked_formula(name, formula, shape)
        case InitialExpression():
            return _checked_formula(name, InitialExpression(value.text, grid), shape)
        case InputArray():
            return _checked_array(name, value.array, shape, dtype, grid)
        case InitialFunction():
            return _checked_function(name, value.function, shape)
        case _ if callable(value):
            return _checked_function(name, value, shape)
        case _ if is_number(value):
            number = float(value)
            if not math.isfinite(number):
                raise DefinitionError(f"the initial value of {name} must be finite, not {number}")
            check_range(f"the initial value {name} =", number, dtype)
            return number
        case _ if is_array(value):
            return _checked_array(name, value, shape, dtype, grid)
        case _:
            raise DefinitionError(
                f"the initial values of {name!r} are {_kind(value)}; give a file, a number, a"
                " formula of z, y, x, a function of them, or an array of NumPy, xarray or dask"
            )


def _kind(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return "beyond the range of float64"
    return "None" if value is None else f"of type {type(value).__name__}"


def _checked_formula(
    name: str, formula: InitialExpression, shape: tuple[int, ...]
) -> InitialExpression:
    absent = AXES[: -len(shape)]
    if "step" in formula.names:
        raise DefinitionError(
            f"the formula {formula.text!r} of {name!r} uses step, which initial values do not have"
        )
    for axis in absent:
        if formula.names & {axis, f"n{axis}"}:
            raise DefinitionError(
                f"the formula {formula.text!r} of {name!r} uses {axis}, which shape"
                f" {shape} does not have; its axes are {', '.join(AXES[-len(shape) :])}"
            )
    return formula


def _checked_function(
    name: str, function: Callable[..., Any], shape: tuple[int, ...]
) -> InitialFunction:
    """A function that gives the first few values, at least."""
    with meaning(f"the initial values of {name!r}"):
        checked = InitialFunction(function, len(shape))
        origin = (0,) * len(shape)
        with np.errstate(all="ignore"):
            checked.plane(origin, (1, *(min(2, extent) for extent in shape[1:])))
    return checked


def _checked_array(
    name: str, given: Any, shape: tuple[int, ...], dtype: str, grid: Grid | None
) -> InputArray:
    array = unlabelled(name, given, shape, grid)
    if tuple(array.shape) != shape:
        raise DefinitionError(
            f"the initial array of {name!r} has shape {array.shape}, the problem has {shape}"
        )
    try:
        kind = np.dtype(array.dtype)
    except TypeError:
        kind = None
    if kind is None or not (kind.kind in "iub" or has_fractions(kind)):
        raise DefinitionError(
            f"the initial array of {name!r} has dtype {array.dtype}; it must be real numbers"
        )
    if not np.can_cast(kind, dtype, casting(dtype)):
        raise DefinitionError(
            f"the initial array of {name!r} has dtype {array.dtype}, which cannot be converted "
            f"to {dtype}; give array.astype({dtype!r})"
        )
    if not isinstance(array, np.ndarray) or is_mapped(cast("Any", array)):
        return InputArray(array, description(array))
    given = cast("NDArray[Any]", array)
    if np.ma.is_masked(given):
        cell = cell_of(np.ma.getmaskarray(given), tuple(map(range, shape)))
        raise DefinitionError(
            f"the initial array of {name!r} has no value at cell {cell}, which is masked; {FILL}"
        )
    held = np.asarray(given)
    for box, piece in pieces(held):
        with np.errstate(over="ignore"):
            finite = np.isfinite(piece.astype(dtype))
        if not finite.all():
            value = piece[~finite][0]
            raise DefinitionError(
                f"the initial array of {name!r} is {value} at cell {cell_of(~finite, box)}"
                + ("" if not np.isfinite(value) else f", beyond the range of {dtype}")
            )
    return InputArray(held, digest(held, dtype), held.nbytes)


def initial_to_dict(value: Initial) -> dict[str, Any]:
    """JSON-able form, with the sha256 of the bytes of an array, and of the code of a function."""
    match value:
        case InputFile() | Series():
            return value.to_dict()
        case InitialExpression():
            return {"expression": value.text}
        case ArrayDigest():
            return {"array": value.sha256}
        case InitialFunction():
            return {"function": str(value), "sha256": value.digest}
        case FunctionDigest():
            return {"function": value.name, "sha256": value.sha256}
        case InputArray():
            return {"array": value.sha256}
        case _:
            return {"value": value}


def initial_from_dict(name: str, data: Mapping[str, Any]) -> Initial | str:
    """The inverse of `initial_to_dict`, except that arrays and functions come back as digests.

    A formula comes back as its text, which `classify` reads."""
    match dict(data):
        case {"series": [*paths], "first": int(first), "step": int(step), **rest}:
            return Series(tuple(paths), first, step, rest.get("along"))
        case {"path": str()}:
            return InputFile.from_dict(data)
        case {"expression": str(text)}:
            return text
        case {"array": str(sha256)}:
            return ArrayDigest(sha256)
        case {"function": str(function), "sha256": str(sha256)}:
            return FunctionDigest(function, sha256)
        case {"value": int() | float() as number}:
            return float(number)
        case _:
            raise DefinitionError(f"the initial entry of {name!r} is invalid: {dict(data)!r}")
