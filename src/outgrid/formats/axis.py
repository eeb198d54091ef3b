"""An axis of an array: its name, and where its cells lie."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Axis"]


@dataclass(frozen=True, slots=True)
class Axis:
    """Cell k lies at `origin` + k `spacing`, in `units`, which may be nothing."""

    name: str
    origin: float = 0.0
    spacing: float = 1.0
    units: str = ""

    def values(self, extent: int) -> NDArray[Any]:
        """Where the first `extent` cells lie."""
        return self.origin + self.spacing * np.arange(extent, dtype=np.float64)

    def of(self, cells: range) -> "Axis":
        """The same axis of some of its cells."""
        first = self.origin + self.spacing * cells.start
        return Axis(self.name, first, self.spacing * cells.step, self.units)
