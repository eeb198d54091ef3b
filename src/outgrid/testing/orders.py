"""Checks that are made in random orders."""

import random
from collections.abc import Callable

from outgrid.errors import ExecutionError


def orders_caught(check: Callable[[random.Random], object], orders: int) -> int:
    """In how many of so many random orders a check finds that a rule was broken."""
    caught = 0
    for seed in range(orders):
        try:
            check(random.Random(seed))
        except ExecutionError:
            caught += 1
    return caught
