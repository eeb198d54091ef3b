"""What `outgrid bench ranks` says of its rows."""

import pytest

from outgrid_bench.experiments import ranks

ZEROS = {"str": "", "int": 0, "float": 0.0, "tuple[float, ...]": ()}


def row(case, cut, exchange="halos", **changes):
    every = {name: ZEROS[kind] for name, kind in ranks.RanksRow.__annotations__.items()}
    every |= {"case": case, "ranks": 2, "cut": str(cut), "exchange": exchange, "seconds": 1.0}
    ratio = changes.pop("ratio", 1.0)
    every |= {"expected_seconds": ratio, "expected_over_measured": ratio, "planned_seconds": 1.0}
    return ranks.RanksRow(**every | {"processor_seconds": 1.0} | changes)


def judged(left, busy=1.0, ratio=1.0):
    rows = [
        row(case, cut, exchange, expected_processor_seconds=busy, ratio=ratio)
        for case in (ranks.DISK, ranks.CORES)
        for cut, exchange in ranks.WAYS[1:]
        if case == ranks.CORES or exchange == "halos"
    ]
    return [finding.holds for finding in ranks._findings(rows, left)]


@pytest.mark.parametrize(
    ("left", "busy", "ratio", "expected"),
    [
        (1.0, 1.0, 1.0, [True, True, True, True]),
        (1.0, 1.0, 0.7, [False, False, True, True]),
        (1.0, 0.7, 1.0, [True, True, False, True]),
        (0.6, 1.0, 1.7, [False, None, True, True]),  # others had the cores: who was slow?
    ],
)
def test_time_is_judged_where_others_leave_the_cores_and_processor_time_always(
    left, busy, ratio, expected
):
    assert judged(left, busy, ratio) == expected
