import random

from outgrid.execute.gates import Prefix, Watermarks
from outgrid.plan.program import Gate


def test_a_prefix_counts_what_is_complete_without_a_gap():
    prefix = Prefix()
    counts = []
    for index in (1, 0, 4, 2, 3):
        prefix.complete(index)
        counts.append(prefix.count)
    assert counts == [0, 2, 2, 3, 5]


def test_the_order_of_completion_does_not_matter_in_the_end():
    order = list(range(500))
    random.Random(0).shuffle(order)
    prefix = Prefix()
    for index in order:
        prefix.complete(index)
    assert prefix.count == 500


def test_a_gate_opens_with_its_last_mark():
    marks = Watermarks()
    gate = Gate(advanced=1, got=2, put=0, committed=1)
    assert not marks.open(gate)
    marks.advanced.complete(0)
    marks.committed.complete(0)
    marks.got.complete(1)
    assert not marks.open(gate)
    assert marks.missing(gate) == "0 of 2 gets"
    marks.got.complete(0)
    assert marks.open(gate)
    assert marks.missing(gate) == ""


def test_all_that_is_missing_is_told():
    assert Watermarks().missing(Gate(1, 2, 3, 4)) == (
        "0 of 1 advances, 0 of 2 gets, 0 of 3 puts, 0 of 4 commits"
    )
