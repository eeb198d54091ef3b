"""Series: a coefficient that changes with every step, in files that are read as the run goes on."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

from outgrid.errors import DefinitionError
from outgrid.stencil.given import is_whole
from outgrid.stencil.symbol import AXES

__all__ = ["Series"]


@dataclass(frozen=True, slots=True)
class Series:
    """Step n of a problem, counted from 0, reads frame ``first + n * step``.

    `paths` is a .npy file, or several that follow each other. One of the grid's shape holds a
    frame, one with an axis more in front several, as snapshots do. Files are read where they are,
    and have to stay there until the run has ended. `step` may be negative: frames go back in time,
    or 0: they are all the same. Frames `along` an axis lack it, and are the same at each index of
    it: a plane that enters along x, in a grid of z, y and x, has the axes z and y. Sweeps over a
    grid that is periodic along its first axis, and those of scheme "overlapped", are one step deep
    then. Raises DefinitionError.
    """

    paths: tuple[str, ...]
    first: int = 0
    step: int = 1
    along: str | None = None

    def __init__(
        self,
        paths: str | os.PathLike[str] | tuple[str | os.PathLike[str], ...],
        first: int = 0,
        step: int = 1,
        along: str | None = None,
    ) -> None:
        every = (paths,) if isinstance(paths, str | os.PathLike) else tuple(paths)
        for name, number in (("first", first), ("step", step)):
            if not is_whole(number):
                raise DefinitionError(f"{name} of a Series must be a whole number, not {number!r}")
        if along is not None and along not in AXES:
            raise DefinitionError(
                f"along of a Series must be one of {', '.join(AXES)}, not {along!r}"
            )
        if not every:
            raise DefinitionError("a Series needs at least one .npy file")
        for path in every:
            if not os.fspath(path).endswith(".npy"):
                raise DefinitionError(f"a Series needs .npy files, and {path} is not one")
        object.__setattr__(self, "paths", tuple(os.path.abspath(path) for path in every))
        object.__setattr__(self, "first", int(first))
        object.__setattr__(self, "step", int(step))
        object.__setattr__(self, "along", along)

    def __str__(self) -> str:
        """What it is, in messages."""
        return f"the series in {', '.join(self.paths)}"

    def number(self, step: int) -> int:
        """The frame that a step reads."""
        return self.first + step * self.step

    def after(self, steps: int) -> Series:
        """The same series with so many steps made."""
        return replace(self, first=self.number(steps))

    def lacks(self, ndim: int) -> int | None:
        """The axis of a grid that frames lack."""
        return AXES[-ndim:].index(self.along) if self.along is not None else None

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        along = {"along": self.along} if self.along is not None else {}
        return {"series": list(self.paths), "first": self.first, "step": self.step} | along
