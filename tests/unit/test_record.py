import json
from dataclasses import dataclass

import msgspec
import pytest

from outgrid.errors import UsageError
from outgrid.record import Measured, Part, Record, combine, read_record, write_record

MEASURED = Measured(
    seconds=2.0,
    compute_seconds=1.5,
    wait_seconds=0.1,
    fill_seconds=0.5,
    read_bytes=600,
    written_bytes=420,
    fill_read_bytes=100,
    fill_written_bytes=200,
    ideal_bytes=1000,
    buffered_bytes=0,
    updates=4_000_000_000,
    flops=32_000_000_000,
    peak_memory_bytes=90,
    memory_limit_bytes=100,
    engine="io_uring",
    fallbacks=("huge pages: refused",),
)
RECORD = Record(
    version="0.1.0",
    started="2026-11-21T10:00:00+00:00",
    problem={"stencil": "heat7"},
    planned={"predicted_seconds": 2.5, "depth": 4},
    machine={"cores": 2},
    measured=MEASURED,
    files={"u": "u.npy"},
    preview="preview.npy",
    warnings=("u: 3 values are not numbers",),
)


def test_derived_figures_follow_from_the_measured_ones():
    assert MEASURED.glups == 2.0
    assert MEASURED.gflops == 16.0
    assert MEASURED.io_over_ideal == 1.02
    assert MEASURED.peak_memory_over_limit == 0.9
    assert RECORD.prediction_error == 0.25


def test_memory_of_a_run_in_parts_is_that_of_the_part_that_filled_its_limit_most():
    part = {"started": "", "host": "", "pid": 1, "first_step": 0, "last_step": 1, "ended": ""}
    larger = msgspec.structs.replace(MEASURED, peak_memory_bytes=150, memory_limit_bytes=300)
    whole = combine([Part(measured=measured, **part) for measured in (MEASURED, larger, MEASURED)])
    assert (whole.peak_memory_bytes, whole.memory_limit_bytes) == (90, 100)
    assert combine([Part(measured=larger, **part)]).peak_memory_bytes == 150
    assert whole.read_bytes == 3 * MEASURED.read_bytes


def test_a_run_of_no_steps_has_no_rate():
    idle = msgspec.structs.replace(MEASURED, seconds=0.0, updates=0, ideal_bytes=0, read_bytes=0)
    assert (idle.glups, idle.gflops, idle.io_over_ideal) == (0.0, 0.0, 1.0)


def test_a_record_survives_its_file(tmp_path):
    path = write_record(RECORD, tmp_path)
    assert path == tmp_path / "record.json"
    assert [entry.name for entry in tmp_path.iterdir()] == ["record.json"]
    assert read_record(path) == RECORD
    assert read_record(tmp_path) == RECORD
    assert json.loads(path.read_text())["derived"]["glups"] == 2.0


def test_a_failed_write_leaves_the_old_record(tmp_path, monkeypatch):
    write_record(RECORD, tmp_path)

    def refuse(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(OSError, match="No space left"):
        write_record(msgspec.structs.replace(RECORD, version="9"), tmp_path)
    assert read_record(tmp_path) == RECORD


@dataclass
class Change:
    key: str
    value: object
    words: str


@pytest.mark.parametrize(
    "change",
    [
        Change("format", 2, "format 2"),
        Change("speed", 1, "unknown field"),
        Change("version", 7, "Expected `str`"),
    ],
)
def test_other_formats_and_unknown_keys_are_refused(tmp_path, change):
    found = RECORD.to_dict() | {change.key: change.value}
    (tmp_path / "record.json").write_text(json.dumps(found))
    with pytest.raises(UsageError, match=change.words):
        read_record(tmp_path)


def test_a_missing_record_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read the record .*record\.json: No such file"):
        read_record(tmp_path)
