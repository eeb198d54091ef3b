"""What would make a run faster follows from its record."""

import msgspec
import pytest

import outgrid as og
from outgrid.report.advice import advice, over_plain


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    problem = og.Problem("heat5", (60, 100), steps=12, initial={"u": "x"}, parameters={"k": 0.1})
    out = tmp_path_factory.mktemp("run") / "out"
    return og.run(problem, memory="128MiB", tier="direct", out=out).record


def changed(record, plan=None, machine=None, **measured):
    figures = msgspec.structs.replace(record.measured, **measured)
    return msgspec.structs.replace(
        record,
        measured=figures,
        parts=(msgspec.structs.replace(record.parts[-1], measured=figures),),
        planned=record.planned | (plan or {}),
        machine=record.machine | (machine or {}),
    )


def test_waiting_asks_for_memory_and_disks(record):
    slow = changed(record, seconds=10.0, wait_seconds=5.0)
    assert any("waited for transfers for 50 % of its time" in text for text in advice(slow))
    quick = changed(record, seconds=10.0, wait_seconds=0.1)
    assert not any("waited for transfers for" in text for text in advice(quick))


def test_what_was_not_measured_or_not_used_is_named(record):
    odd = changed(record, machine={"measured": False, "cores": 64}, plan={"threads": 1})
    told = advice(odd)
    assert any("outgrid probe" in text for text in told)
    assert any("1 thread computed on 64 cores" in text for text in told)
    told = advice(changed(record, machine={"measured": True, "cores": 1}, fallbacks=("no ring",)))
    assert not any("outgrid probe" in text for text in told)
    assert "A slower path was taken: no ring." in told


def test_the_ratio_to_plain_is_what_plain_sweeps_would_move(record):
    plan = {
        "depth": 6,
        "sweeps": 2,
        "resident": False,
        "read_bytes": 400,
        "written_bytes": 400,
        "prediction": record.planned["prediction"] | {"transfer_seconds": 2.0},
    }
    asked = changed(record, plan=plan, seconds=3.0, ideal_bytes=800)
    assert over_plain(asked) == pytest.approx(400 * 12 / 400 / 3.0)
    assert over_plain(changed(record, plan=plan | {"depth": 1})) == 1.0
    assert over_plain(changed(record, plan=plan, seconds=0.0)) is None
