"""Reductions as the tables that a kernel adds to, and as the numbers that come of them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from outgrid.codegen.reducing import DIGITS, LOWEST
from outgrid.stencil.problem import Problem

CELLS = DIGITS + 3
LEAST_KEY = np.iinfo(np.int64).min
ACTIVE_SWEEPS = 3  # that may be under the front at once

Table = NDArray[np.int64]


class Reductions:
    """The reductions of a problem: ``values`` has a row per step and a column for each.

    While a sweep is under way its totals are whole numbers, to which tiles add in any order.
    """

    def __init__(self, kinds: tuple[str, ...], steps: int) -> None:
        self.kinds = kinds
        self.values = np.zeros((steps, len(kinds)))
        self._open: dict[int, tuple[int, Table]] = {}

    @classmethod
    def of(cls, problem: Problem, steps: int | None = None) -> Reductions | None:
        """Those of a problem, for ``steps`` steps if given; None where it has none."""
        kinds = tuple(each.kind for each in problem.stencil.reductions)
        return cls(kinds, problem.steps if steps is None else steps) if kinds else None

    def address(self, sweep: int, done: int, depth: int) -> int:
        """Where a sweep of ``depth`` steps, after ``done`` steps, keeps its totals."""
        if sweep not in self._open:
            self.settle(sweep - ACTIVE_SWEEPS)
            table = np.zeros((depth, len(self.kinds), CELLS), np.int64)
            table[:, [kind != "sum" for kind in self.kinds], 0] = LEAST_KEY
            self._open[sweep] = done, table
        return self._open[sweep][1].ctypes.data

    def settle(self, sweeps: int) -> None:
        """Turn the totals of the first ``sweeps`` sweeps, which are complete, into numbers."""
        for sweep in [each for each in self._open if each < sweeps]:
            done, table = self._open.pop(sweep)
            for step, totals in enumerate(table, start=done):
                self.values[step] = [
                    _sum(total) if kind == "sum" else _extreme(total, kind)
                    for kind, total in zip(self.kinds, totals, strict=True)
                ]


def _sum(total: Table) -> float:
    """The exact sum, rounded once."""
    infinite, negative, undefined = (int(count) for count in total[DIGITS:])
    if undefined or (infinite and negative):
        return math.nan
    if infinite or negative:
        return math.inf if infinite else -math.inf
    whole = sum(int(digit) << (32 * place) for place, digit in enumerate(total[:DIGITS]))
    try:
        return whole / (1 << LOWEST)
    except OverflowError:
        return math.inf if whole > 0 else -math.inf


def _extreme(total: Table, kind: str) -> float:
    if total[DIGITS + 2]:
        return math.nan
    key = total[:1]
    value = float((key ^ ((key >> 63) & np.iinfo(np.int64).max)).view(np.float64)[0])
    return (-value if kind == "min" else value) + 0.0  # one zero, not two
