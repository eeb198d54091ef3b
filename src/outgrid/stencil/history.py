"""Histories: the states of a field, kept for another problem that reads them back."""

from typing import Any, cast

import msgspec

from outgrid.errors import DefinitionError
from outgrid.stencil.region import Box
from outgrid.stencil.snapshot import Snapshot
from outgrid.stencil.symbol import AXES

__all__ = ["History"]


class History(msgspec.Struct, frozen=True):
    """Keeps `field` after every `every`-th step, as one of the snapshots of a problem.

    Values are rounded once to `dtype`, "float16", "bfloat16" or "float32"; "same" keeps the type of
    the field.
    `region` is a Box, outside of which nothing is kept. `Result.history` is what was kept, for a
    coefficient of another problem, also in reverse. Raises DefinitionError.
    """

    field: str
    every: int = 1
    dtype: str = "same"
    region: Box | None = None

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that keeps it."""
        region: Any = Box() if self.region is None else self.region
        if not isinstance(region, Box):
            raise DefinitionError(
                f"the region of a history must be one Box, not {region!r}; "
                "give one history for each box"
            )
        dtype = None if self.dtype == "same" else self.dtype
        parts = [_part(getattr(region, axis)) for axis in AXES]
        return Snapshot(self.field, self.every, *parts, dtype=dtype)


def _part(given: Any) -> Any:
    """A range of a box as snapshots have it."""
    if isinstance(given, tuple | list):
        return slice(*cast("tuple[Any, ...]", given))
    return given
