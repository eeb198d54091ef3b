"""Types of numbers: the one that a problem is computed in, and those that its fields are kept in.

A value is converted as it is read and as it is stored, and everything between is computed in the
problem's own type. So fields may be kept in less than what is computed with; not in more, since
what they hold beyond that would be rounded off whenever it is read.

What becomes of a result that a type of whole numbers does not hold is a part of the expression, so
that every way to evaluate it does the same.
"""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from msgspec.structs import replace
from numpy.typing import DTypeLike, NDArray

from outgrid.errors import DefinitionError, UsageError
from outgrid.numbers import BFLOAT16, largest_of, number_type
from outgrid.numbers import is_real as has_fractions
from outgrid.stencil.expression import Constant, Expression, Operation, operation
from outgrid.stencil.model import Assignment, Stencil
from outgrid.units import suggest

__all__ = [
    "COMPUTED",
    "KINDS",
    "STORED",
    "casting",
    "dtype_name",
    "fields_apart",
    "in_words",
    "is_dtype",
    "is_real",
    "keep",
    "number_fits",
    "saturated",
]

COMPUTED = ("float32", "float64")
"""Types that a problem may be computed in."""

HALVES = ("float16", BFLOAT16)
"""Types that a field of a problem computed in float32 may be kept in."""

WHOLE = ("int8", "uint8", "int16", "uint16", "int32")
"""Types of whole numbers that a field may be kept in."""

STORED = (*COMPUTED, *HALVES, *WHOLE)
"""Types that a field may be kept in."""

KINDS = {name: number for number, name in enumerate(STORED, 1)}
"""By which number kernels know a type: `kKind` of codegen/templates/stored.hpp."""


def dtype_name(given: object) -> str:
    """The name of a type however NumPy lets it be written, else the text that was given."""
    if given is None:  # for NumPy a float64
        return "None"
    try:
        return np.dtype(cast("Any", given)).name
    except (TypeError, ValueError):
        return str(given)


def is_dtype(name: str) -> bool:
    """Whether NumPy knows a type of that name."""
    try:
        number_type(name)
    except (TypeError, UsageError):
        return False
    return True


def fields_apart(given: object, stencil: Stencil, dtype: str) -> dict[str, str]:
    """The types of the fields that are not kept in `dtype`, which the problem is computed in.

    `given` names fields, or vectors and tensors whole. Raises DefinitionError for unknown names and
    types, and where `dtype` holds less than a field, or is not what halves are computed in.
    """
    if not isinstance(given, Mapping):
        raise DefinitionError(
            "dtypes must be a mapping of fields to types, such as "
            f'{{"{stencil.fields[-1].name}": "float32"}}, not {given!r}'
        )
    names = [field.name for field in stencil.fields]
    dtypes: dict[str, str] = {}
    for name, written in stencil.wholes_first(cast("Mapping[str, Any]", given).items()):
        wanted = dtype_name(written)
        parts = stencil.components(name)
        if not parts:
            raise DefinitionError(
                f"stencil {stencil.name!r} has no field {name!r}, which dtypes "
                f"names{suggest(name, names)}"
            )
        if wanted not in STORED:
            raise DefinitionError(f"unknown dtype {wanted!r} of {name!r}{suggest(wanted, STORED)}")
        try:
            number_type(wanted)
        except UsageError as error:
            raise DefinitionError(f"the dtype of {name!r}: {error}") from error
        if (wanted, dtype) == ("float64", "float32"):
            raise DefinitionError(
                f"the field {name!r} is stored in float64 and computed in float32, which would "
                f"round it at each read; give the problem dtype float64, or {name!r} float32"
            )
        if wanted in HALVES and dtype != "float32":
            raise DefinitionError(
                f"the field {name!r} is stored in {wanted} and computed in {dtype}; {wanted} "
                "needs arithmetic in float32: give the problem dtype float32"
            )
        if (wanted, dtype) == ("int32", "float32") and any(
            stencil.field(part).evolving for part in parts
        ):
            raise DefinitionError(
                f"the field {name!r} is updated and stored in int32, and float32 is exact up to "
                "16777216 only; give the problem dtype float64"
            )
        dtypes |= dict.fromkeys(parts, wanted)
    return {name: dtypes[name] for name in names if dtypes.get(name, dtype) != dtype}


def is_real(dtype: str) -> bool:
    """Whether a type has fractions, and NaN."""
    return dtype not in WHOLE


def saturated(stencil: Stencil, apart: Mapping[str, str]) -> Stencil:
    """The stencil with what it makes of fields of whole numbers rounded to those they hold.

    That is the nearest whole number, the even one of two, and the nearest end where it is out of
    range; NaN becomes the lowest number. What is so already stays as it is.
    """
    stages = tuple(
        replace(
            stage,
            assignments=tuple(
                Assignment(made.field, _held(made.expression, apart.get(made.field, "float64")))
                for made in stage.assignments
            ),
        )
        for stage in stencil.stages
    )
    return stencil if stages == stencil.stages else replace(stencil, stages=stages)


def _held(value: Expression, dtype: str) -> Expression:
    if is_real(dtype):
        return value
    least, largest = map(Constant, _range(dtype))
    match value:
        case Operation("min", (Operation("max", (Operation("round"), low)), high)) if (
            low,
            high,
        ) == (least, largest):
            return value
        case _:
            risen = operation("max", operation("round", value), least)
            return operation("min", risen, largest)


def _range(dtype: str) -> tuple[float, float]:
    """The least and the largest number that `dtype` holds."""
    if is_real(dtype):
        return -largest_of(dtype), largest_of(dtype)
    limits = np.iinfo(dtype)
    return float(limits.min), float(limits.max)


def number_fits(value: float, dtype: str) -> bool:
    """Whether a number is within the range of `dtype`, and whole where that has no others."""
    least, largest = _range(dtype)
    return least <= value <= largest and (is_real(dtype) or value == int(value))


def in_words(dtype: str) -> str:
    """What a type of whole numbers holds, for messages."""
    least, largest = _range(dtype)
    return f"{dtype} holds whole numbers from {least:.0f} to {largest:.0f}"


def casting(dtype: DTypeLike) -> Any:
    """By which of NumPy's rules given values turn into `dtype`.

    Numbers that are not whole are rounded, those that are have to be kept exactly.
    """
    return "same_kind" if has_fractions(np.dtype(dtype)) else "safe"


def keep(values: Any, into: NDArray[Any]) -> NDArray[np.bool_]:
    """Store values of double precision in an array of any type; whether each is held, by cell.

    They are rounded once, but whole numbers have to be held exactly.
    """
    with np.errstate(all="ignore"):
        into[...] = values
        return np.isfinite(into) if has_fractions(into.dtype) else into == values
