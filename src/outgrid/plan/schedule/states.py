"""States: what sweeps leave in files, whole, and after how many of them."""

from __future__ import annotations

import msgspec


class States(msgspec.Struct, frozen=True):
    """The states that ``sweeps`` write to files: one after every ``apart`` of them, and the last.

    Streamed grids leave a state with every sweep. The files of a level take turns, state by state,
    so that none is written over the one before it.
    """

    sweeps: int
    apart: int = 1

    @property
    def count(self) -> int:
        """How many there are, the last one included and state 0 not."""
        return self.within(self.sweeps)

    def sweeps_until(self, state: int) -> int:
        """Sweeps that lead to a state; 0 for state 0."""
        return min(state * self.apart, self.sweeps)

    def within(self, sweeps: int) -> int:
        """States that so many sweeps lead to, state 0 not counted."""
        return -(-self.sweeps // self.apart) if sweeps >= self.sweeps else sweeps // self.apart

    def after(self, sweeps: int) -> int | None:
        """The state that so many sweeps lead to; None where they lead to none."""
        state = self.within(sweeps)
        return state if self.sweeps_until(state) == sweeps else None
