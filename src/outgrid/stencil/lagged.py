"""Parameters that follow a reduction: its value of a step is theirs so many steps later."""

import math
from dataclasses import dataclass
from typing import cast

from outgrid.errors import DefinitionError
from outgrid.stencil.given import checked_count
from outgrid.stencil.symbol import is_number

__all__ = ["Lagged"]


@dataclass(frozen=True, slots=True)
class Lagged:
    """A parameter that is in step n what the `reduction` of that name was in step n - `lag`.

    In the first `lag` steps it is `first`. A sweep makes no more than `lag` steps, and none begins
    before the one before it has ended: a larger lag allows deeper sweeps.
    """

    reduction: str
    lag: int
    first: float

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.reduction), str):
            raise DefinitionError(
                f"reduction of a lagged parameter must be a name, not {self.reduction!r}"
            )
        object.__setattr__(self, "lag", checked_count("lagged parameter", "lag", self.lag))
        given = cast("object", self.first)
        if not is_number(given) or not math.isfinite(float(given)):
            raise DefinitionError(
                f"first of a lagged parameter must be a finite number, not {given!r}"
            )
        object.__setattr__(self, "first", float(given))

    @property
    def rule(self) -> str:
        """What it follows, in words."""
        return f"{self.reduction} of {self.lag} step{'s' * (self.lag > 1)} before"

    def to_dict(self) -> dict[str, str | int | float]:
        """JSON-able form, the keyword arguments of a Lagged."""
        return {"reduction": self.reduction, "lag": self.lag, "first": self.first}
