"""When a run may end before all of its steps are made: a reduction that has come far enough."""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import cast

from outgrid.errors import DefinitionError
from outgrid.stencil.given import checked_count, next_of
from outgrid.stencil.symbol import is_number

__all__ = ["Until"]


@dataclass(frozen=True, slots=True)
class Until:
    """Ends a run once the `reduction` of that name is less than `below`, or more than `above`.

    It is looked at after the steps `first`, `first + every`, ..., counted from 1; `first` is
    `every` unless given. What is looked at is the value of that step, which like all reductions is
    one of the values before the step's update. NaN ends nothing.
    """

    reduction: str
    every: int
    below: float | None = None
    above: float | None = None
    first: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.reduction), str):
            raise DefinitionError(f"reduction of until must be a name, not {self.reduction!r}")
        object.__setattr__(self, "every", checked_count("condition to end", "every", self.every))
        first = self.every if self.first is None else self.first
        object.__setattr__(self, "first", checked_count("condition to end", "first", first))
        if (self.below is None) == (self.above is None):
            raise DefinitionError(f"until {self.reduction!r} needs a bound: give below or above")
        for name in ("below", "above"):
            given = cast("object", getattr(self, name))
            if given is not None:
                if not is_number(given) or not math.isfinite(float(given)):
                    raise DefinitionError(f"{name} must be a finite number, not {given!r}")
                object.__setattr__(self, name, float(given))

    @property
    def begin(self) -> int:
        """The first step after which it is looked at."""
        return self.every if self.first is None else self.first

    def looks(self, step: int) -> bool:
        """Whether it is looked at after a step, counted from 1."""
        return step >= self.begin and (step - self.begin) % self.every == 0

    def holds(self, value: float) -> bool:
        """Whether a value of the reduction ends the run."""
        if self.below is not None:
            return value < self.below
        return self.above is not None and value > self.above

    def after(self, steps: int) -> "Until":
        """The same with `steps` of the steps made."""
        return replace(self, first=next_of(self.begin, self.every, steps))

    def stretches(self, steps: int) -> tuple[int, ...]:
        """The numbers of steps from one look to the next, and of those left: `steps` in all."""
        ends = [0, *range(self.begin, steps, self.every), steps] if steps else [0]
        return tuple(end - begin for begin, end in pairwise(ends))

    @property
    def rule(self) -> str:
        """The condition in words."""
        return f"{self.reduction} is {self._side}, checked every {self.every} steps"

    def words(self, step: int, value: float) -> str:
        """What was seen of it after a step."""
        held = "is" if self.holds(value) else "is not"
        return f"{self.reduction} = {value:.6g} {held} {self._side} after step {step}"

    @property
    def _side(self) -> str:
        return f"above {self.above:g}" if self.below is None else f"below {self.below:g}"

    def to_dict(self) -> dict[str, str | float | int | None]:
        """JSON-able form, the keyword arguments of an Until."""
        return {
            "reduction": self.reduction,
            "every": self.every,
            "below": self.below,
            "above": self.above,
            "first": self.first,
        }
