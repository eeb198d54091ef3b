"""Totals of sweeps while a kernel adds to them."""

import ctypes

import numpy as np

from outgrid.observe.accumulators import ACTIVE_SWEEPS, CELLS, Accumulators

DEPTH = 2


def add(accumulators: Accumulators, sweep: int, amount: int) -> None:
    """Add to the first cell of the first step of a sweep, as a kernel does."""
    address = accumulators.address(sweep, DEPTH * sweep, DEPTH)
    cells = (ctypes.c_int64 * CELLS).from_address(address)
    cells[0] += amount


def test_what_is_computed_after_a_commit_takes_nothing_away():
    """A rank commits a sweep when what it owns is there; what only others own may come later."""
    accumulators, kept = Accumulators(("sum",)), dict[int, np.ndarray]()
    accumulators.keep = lambda done, table: kept.update({done: table.copy()})
    add(accumulators, 0, 7)
    accumulators.settle(1)
    add(accumulators, 0, 0)
    add(accumulators, 1, 5)
    accumulators.settle(2)
    for sweep in range(2, 2 + ACTIVE_SWEEPS + 1):
        add(accumulators, sweep, 1)
    assert [int(kept[done][0, 0, 0]) for done in (0, DEPTH)] == [7, 5]
