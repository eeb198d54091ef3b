"""Checks that are made in random orders."""

import random
from collections.abc import Callable

from outgrid.errors import ExecutionError


def caught_in_some_order(check: Callable[[random.Random], object], orders: int) -> bool:
    """Whether a check finds in one of so many random orders that a rule was broken."""
    for seed in range(orders):
        try:
            check(random.Random(seed))
        except ExecutionError:
            return True
    return False
