"""Expressions may be parsed in several threads."""

import gc
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from outgrid.syntax import expression_tree, literal_value

NESTED = "(" * 40 + "1" + ",)" * 40


class Cycle:
    """Garbage whose end takes long enough for another thread to have its turn."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        for _ in range(50):
            pass


@pytest.fixture(autouse=True)
def _turns_while_trees_are_built() -> Iterator[None]:
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(5)
    yield
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)


@pytest.mark.parametrize("parse", [expression_tree, literal_value])
def test_threads_may_parse_at_once(parse):
    def often(_):
        for _ in range(100):
            Cycle()
            parse(NESTED)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(often, range(4)))
