"""Reductions as the totals that a kernel adds to, and as the numbers that come of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from outgrid.codegen.reducing import DIGITS, LOWEST
from outgrid.stencil.problem import Problem

CELLS = DIGITS + 3
LEAST_KEY = np.iinfo(np.int64).min
ACTIVE_SWEEPS = 3  # that may be under the front at once

Table = NDArray[np.int64]


class Accumulators:
    """What a kernel adds to, for reductions of these ``kinds``: whole numbers, in any order.

    The totals of a sweep that is complete go to ``keep(done, table)``, if somebody wants them. Its
    table stays for a while: one of several ranks still computes what only others own of it.
    """

    def __init__(self, kinds: tuple[str, ...]) -> None:
        self.kinds = kinds
        self.keep: Callable[[int, Table], None] | None = None
        self.latest: Table | None = None  # of the last step of complete sweeps
        self._open: dict[int, tuple[int, Table]] = {}

    @classmethod
    def of(cls, problem: Problem) -> Accumulators | None:
        """Those of a problem; None where it has none."""
        kinds = tuple(reduction.kind for reduction in problem.stencil.reductions)
        return cls(kinds) if kinds else None

    def address(self, sweep: int, done: int, depth: int) -> int:
        """Where a sweep of ``depth`` steps, after ``done`` steps, keeps its totals."""
        if sweep not in self._open:
            self.settle(sweep - ACTIVE_SWEEPS)
            for old in [number for number in self._open if number < sweep - ACTIVE_SWEEPS]:
                del self._open[old]
            self._open[sweep] = done, nothing(self.kinds, depth)
        return self._open[sweep][1].ctypes.data

    def settle(self, sweeps: int) -> None:
        """Hand over the totals of the first ``sweeps`` sweeps, which are complete."""
        for sweep, (done, table) in self._open.items():
            if sweep < sweeps:
                self.latest = table[-1:]
                if self.keep is not None:
                    self.keep(done, table)


def nothing(kinds: tuple[str, ...], steps: int) -> Table:
    """Totals to which nothing was added yet: (steps, reductions, cells)."""
    totals: Table = np.zeros((steps, len(kinds), CELLS), np.int64)
    totals[:, [kind != "sum" for kind in kinds], 0] = LEAST_KEY
    return totals


def added(kinds: tuple[str, ...], one: Table, other: Table) -> Table:
    """The totals of two parts of a grid together."""
    extreme = [kind != "sum" for kind in kinds]
    totals = one + other
    totals[:, extreme, 0] = np.maximum(one, other)[:, extreme, 0]
    return totals


def add_cells(kind: str, cells: NDArray[np.generic], total: Table) -> None:
    """Add cells, as a reference executor has them, to a total: rows are summed by NumPy."""
    if kind == "sum":
        rows = cells.astype(np.float64).sum(axis=-1).ravel()
        finite = np.isfinite(rows)
        beyond = rows == np.inf, rows == -np.inf, np.isnan(rows)
        total[DIGITS:] += [int(np.count_nonzero(where)) for where in beyond]
        total[:DIGITS] += _digits(_exact(rows[finite]))
        return
    values = (cells.astype(np.float64) * (-1 if kind == "min" else 1)).ravel()
    undefined = np.isnan(values)
    total[DIGITS + 2] += int(undefined.any())
    if not undefined.all():
        total[0] = max(int(total[0]), int(_key(values[~undefined].max())[0]))


def numbers(kinds: tuple[str, ...], table: Table) -> NDArray[np.float64]:
    """The numbers that totals stand for: (steps, reductions)."""
    return np.array(
        [
            [
                _sum(total) if kind == "sum" else _extreme(total, kind)
                for kind, total in zip(kinds, totals, strict=True)
            ]
            for totals in table
        ]
    ).reshape(len(table), len(kinds))


def totals_of(kinds: tuple[str, ...], values: NDArray[np.float64]) -> Table:
    """Totals that stand for these numbers, (steps, reductions): the inverse of `numbers`."""
    table = nothing(kinds, len(values))
    for step, row in enumerate(values.tolist()):
        for column, (kind, value) in enumerate(zip(kinds, row, strict=True)):
            total = table[step, column]
            if math.isnan(value):
                total[DIGITS + 2] = 1
            elif kind != "sum":
                total[:1] = _key(-value if kind == "min" else value)
            elif math.isinf(value):
                total[DIGITS + (value < 0)] = 1
            else:
                total[:DIGITS] = _digits(_exact(np.array([value])))
    return table


def _key(value: float) -> Table:
    """A whole number that is ordered as numbers are."""
    key = np.array([value], np.float64).view(np.int64)
    return key ^ ((key >> 63) & np.iinfo(np.int64).max)


def _exact(values: NDArray[np.float64]) -> int:
    """The exact sum of finite numbers, times 2^LOWEST."""
    fractions, exponents = np.frexp(values)
    sizes = (fractions * 2.0**53).astype(np.int64)
    return sum(
        sum(sizes[exponents == exponent].tolist()) << (exponent - 53 + LOWEST)
        for exponent in np.unique(exponents).tolist()
    )


def _digits(whole: int) -> Table:
    """A whole number in the digits of a total; the last one has its sign."""
    digits = [(whole >> (32 * place)) & 0xFFFFFFFF for place in range(DIGITS - 1)]
    return np.array([*digits, whole >> (32 * (DIGITS - 1))], np.int64)


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
