"""Tests that `make test` leaves out are there."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def lines() -> list[list[str]]:
    text = (ROOT / "tests" / "thorough.txt").read_text().splitlines()
    return [line.split() for line in text if line and not line.startswith("#")]


@pytest.mark.parametrize("node", [node for node, *_ in lines()])
def test_a_test_of_that_name_is_left_to_make_thorough(node):
    path, name = node.split("::")
    assert f"def {name}(" in (ROOT / path).read_text()


def test_each_is_named_once():
    nodes = [node for node, *_ in lines()]
    assert len(set(nodes)) == len(nodes)
