"""Of what the planes of each move are, for the checksums that bind a run's files to it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Self

import msgspec

from outgrid.plan.instruction import Move
from outgrid.plan.model import Plan
from outgrid.plan.schedule.rings import Arrival
from outgrid.seal import Seal
from outgrid.stencil.problem import PREVIOUS

__all__ = ["Sealing", "Seals", "level_name"]

Sealing = Callable[[Plan, Move], Seal]


def level_name(arrival: Arrival) -> str:
    """ "u" for the current level of field u, "u.previous" for the level before."""
    return _name(arrival.field, arrival.level)


def _name(field: str, level: int) -> str:
    return field + (PREVIOUS if level < 0 else "")


class Seals(msgspec.Struct, frozen=True):
    """The seals of a process of ``run``: ``steps`` are made when so many sweeps are.

    Coefficients, the fields ``constant``, are those of step 0 for ever; those that are ``given``
    anew are of the step that reads them. Without a run nothing is sealed.
    """

    run: str
    steps: tuple[int, ...]
    constant: frozenset[str]
    given: frozenset[str] = frozenset()

    @classmethod
    def of(cls, run: str, plan: Plan, done: int) -> Self:
        """Those of a plan whose state 0 is that after ``done`` steps."""
        steps = (*accumulate(plan.schedule.depths, initial=done),)
        constant = (arrival.field for arrival in plan.schedule.kept if arrival.constant)
        given = (arrival.field for arrival in plan.schedule.arrivals if arrival.given)
        return cls(run, steps, frozenset(constant), frozenset(given))

    def again(self, plan: Plan, sweeps: int) -> Self:
        """Those of a plan that begins so many sweeps later."""
        return type(self).of(self.run, plan, self.steps[sweeps])

    def level(self, arrival: Arrival, sweeps: int) -> Seal:
        """That of a level after so many sweeps."""
        return self.at(arrival.field, arrival.level, sweeps)

    def move(self, plan: Plan, move: Move) -> Seal:
        """That of the planes of a move."""
        if move.seam:
            return Seal(self.run, f"{move.field}.seam", self.steps[move.trip.sweep])
        if move.field in self.given:
            return Seal(self.run, move.field, self.steps[move.trip.sweep])
        return self.at(move.field, move.level, plan.schedule.states.sweeps_until(move.state))

    def at(self, field: str, level: int, sweeps: int) -> Seal:
        """That of a field's current level, 0, or of the one before, -1, after so many sweeps."""
        step = 0 if field in self.constant else self.steps[sweeps]
        return Seal(self.run, _name(field, level), step)
