"""The exchange of the first axis with another, along which a grid passes through memory."""

from collections.abc import Sequence
from typing import TypeVar

__all__ = ["LAST", "NAMES", "exchanged", "in_fortran_order", "in_rows_of_files"]

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


def in_rows_of_files(axis: int) -> bool:
    """Whether planes that pass along this axis are rows of files, as along the second one."""
    return 0 < axis < LAST


def in_fortran_order(axis: int) -> bool:
    """Whether files are in Fortran order, where planes pass along this axis.

    Along the last one they would be single values of files in C order, so they are planes of files
    in the other one.
    """
    return axis == LAST
