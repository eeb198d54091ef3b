"""The exchange of the first two axes, of grids that pass through memory along the second one."""

from collections.abc import Sequence
from typing import TypeVar

__all__ = ["exchanged"]

T = TypeVar("T")


def exchanged(axes: Sequence[T]) -> tuple[T, ...]:
    """What is said of each axis, with the first two exchanged."""
    first, second, *rest = axes
    return (second, first, *rest)
