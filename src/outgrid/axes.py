"""The exchange of the first axis with another, along which a grid passes through memory."""

from collections.abc import Sequence
from typing import TypeVar

__all__ = ["LAST", "NAMES", "exchanged", "in_fortran_order"]

T = TypeVar("T")

NAMES = "zyx"
"""The axes of a grid of three."""
LAST = 2
"""The last of them."""


def exchanged(axes: Sequence[T], axis: int = 1) -> tuple[T, ...]:
    """What is said of each axis, with the first one and another exchanged."""
    every = [*axes]
    every[0], every[axis] = every[axis], every[0]
    return tuple(every)


def in_fortran_order(axis: int) -> bool:
    """Whether files are in Fortran order, where planes pass along this axis.

    Planes that pass along the second axis are rows of files. Along the last one they would be
    single values, so they are planes of files in the other order.
    """
    return axis == LAST
