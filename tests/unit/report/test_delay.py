"""Why a run took longer than its plan expected."""

import msgspec
import pytest
from msgspec.structs import replace

from outgrid.machine import Strain, strain
from outgrid.record import Measured, Part, Record
from outgrid.report.delay import compared

PLAN = {
    "threads": 2,
    "predicted_seconds": 3.57,
    "read_bytes": 2 << 30,
    "written_bytes": 2 << 30,
    "prediction": {
        "seconds": 3.57,
        "compute_seconds": 3.5,
        "transfer_seconds": 3.0,
        "updates_per_second": 1e9,
    },
}


def record(seconds, parts=(), **measured):
    given = {
        "seconds": seconds,
        "compute_seconds": seconds - 0.1,
        "compute_processor_seconds": 7.0,
        "wait_seconds": 0.1,
        "fill_seconds": 1.0,
        "read_bytes": 2 << 30,
        "written_bytes": 2 << 30,
        "fill_read_bytes": 0,
        "fill_written_bytes": 0,
        "ideal_bytes": 4 << 30,
        "buffered_bytes": 0,
        "updates": 3_500_000_000,
        "flops": 0,
        "peak_memory_bytes": 1,
        "memory_limit_bytes": 1,
        "engine": "io_uring",
    }
    return Record(
        version="",
        started="",
        problem={"steps": 8},
        planned=PLAN,
        machine={"cores": 2},
        measured=Measured(**(given | measured)),
        parts=parts,
    )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (3.57, "3.57 s, as predicted"),
        (4.0, "4.00 s, 12 % longer than predicted (3.57 s)"),
        (3.4, "3.40 s, 4.8 % shorter than predicted (3.57 s)"),
        (1.19, "1.19 s, 3 times as fast as predicted (3.57 s)"),
        (0.0, "0 s (predicted 3.57 s)"),
    ],
)
def test_a_prediction_that_holds_needs_no_reason(seconds, words):
    assert compared(record(seconds)) == words


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        (
            {"queued_seconds": 34.0},
            "other programs held the processors (the threads ran 17 % of the time)",
        ),
        (
            {"stolen_seconds": 30.0, "queued_seconds": 3.0},
            "the host of this machine held its processors for 15.0 s",
        ),
        (
            {"major_faults": 12000},
            "memory was short: 12000 pages were read back from a disk or swap",
        ),
        (
            {"compute_seconds": 3.5, "wait_seconds": 17.3},
            "it waited 17.3 s for transfers: 0.21 GB/s where 1.43 GB/s were expected",
        ),
        (
            {"compute_processor_seconds": 41.0},
            "the processors made 0.17 GLUP/s where 1.00 GLUP/s were expected",
        ),
        ({"compute_processor_seconds": 9.0}, "no measurement explains it"),
    ],
)
def test_what_was_measured_of_a_delay_is_told(measured, words):
    assert compared(record(20.9, **measured)) == (
        f"20.9 s, 5.9 times as long as predicted (3.57 s): {words}"
    )


def test_several_reasons_are_told_the_dearest_first():
    found = compared(record(20.9, compute_seconds=12.0, wait_seconds=8.9, queued_seconds=17.0))
    first, second = found.partition("(3.57 s): ")[2].split("; ")
    assert first == "it waited 8.90 s for transfers: 0.21 GB/s where 1.43 GB/s were expected"
    assert second == "other programs held the processors (the threads ran 29 % of the time)"


def test_a_prediction_is_of_the_last_part():
    whole = record(20.9)
    part = Part(
        started="",
        host="",
        pid=1,
        first_step=0,
        last_step=4,
        ended="",
        measured=msgspec.structs.replace(whole.measured, seconds=3.57),
    )
    told = compared(record(20.9, parts=(part, part)))
    assert told == "20.9 s, the last 3.57 s after a resume, as predicted"


def test_what_held_a_process_up_is_read_from_the_kernel(tmp_path):
    (tmp_path / "stat").write_text("cpu  1 2 3 4 5 6 7 250 0 0\ncpu0 1 2 3 4 5 6 7 250 0 0\n")
    for thread, waited in ((1, 3_000_000_000), (2, 500_000_000)):
        folder = tmp_path / "self" / "task" / str(thread)
        folder.mkdir(parents=True)
        (folder / "schedstat").write_text(f"17 {waited} 4\n")
    found = strain(tmp_path)
    assert (found.queued_seconds, found.stolen_seconds) == (3.5, 2.5)
    later = replace(found, queued_seconds=1.0, stolen_seconds=3.0)
    assert later.since(found) == Strain(0.0, 0.5, 0)
    nothing = strain(tmp_path / "nowhere")
    assert (nothing.queued_seconds, nothing.stolen_seconds) == (0.0, 0.0)
