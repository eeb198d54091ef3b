"""Types of numbers: NumPy's, and bfloat16, which NumPy knows where ml_dtypes is installed."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from outgrid.errors import UsageError

__all__ = [
    "BFLOAT16",
    "is_known",
    "is_real",
    "item_bytes",
    "largest_of",
    "number_type",
    "smallest_of",
    "unit_of",
]

BFLOAT16 = "bfloat16"
_LARGEST, _EPSILON = float.fromhex("0x1.fep127"), 2.0**-7
_PACKAGE = "ml_dtypes"


def number_type(name: DTypeLike) -> np.dtype[Any]:
    """NumPy's type of that name. Raises UsageError for bfloat16 without ml_dtypes."""
    if name == BFLOAT16:
        if not is_known(BFLOAT16):
            raise UsageError(
                f"{BFLOAT16} is a type of the package {_PACKAGE}, which is not installed; pip"
                f" install {_PACKAGE}, or take float16"
            )
        import_module(_PACKAGE)  # makes it known to NumPy
    return np.dtype(name)


def is_known(name: str) -> bool:
    """Whether there is a type of that name."""
    return name != BFLOAT16 or find_spec(_PACKAGE) is not None


def item_bytes(name: str) -> int:
    """Bytes of a number, whether its type is known or not."""
    return 2 if name == BFLOAT16 else np.dtype(name).itemsize


def is_real(dtype: np.dtype[Any]) -> bool:
    """Whether a type has fractions, and NaN."""
    return dtype.kind == "f" or dtype.name == BFLOAT16


def largest_of(name: str) -> float:
    """The largest number of a type with fractions."""
    return _LARGEST if name == BFLOAT16 else float(np.finfo(name).max)


def smallest_of(name: str) -> float:
    """The smallest number above 0 of a type with fractions."""
    return 2.0**-133 if name == BFLOAT16 else float(np.finfo(name).smallest_subnormal)


def unit_of(name: str) -> float:
    """The largest relative error of rounding to a type with fractions."""
    return (_EPSILON if name == BFLOAT16 else float(np.finfo(name).eps)) / 2
