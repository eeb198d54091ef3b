import argparse
import json
import math

import pytest
from msgspec.structs import replace

from outgrid.errors import StoreError
from outgrid.native import engines
from outgrid.probe.effort import Effort
from outgrid.probe.scratch import KINDS
from outgrid_bench import io
from outgrid_bench.cli import io as bench_io
from outgrid_bench.rawio import fio_bandwidth, fio_jobs

TINY = Effort(
    rounds=2, file_bytes=1 << 20, transfer_seconds=0.01, request_bytes=64 << 10, queue_depth=4
)


@pytest.fixture(autouse=True)
def no_fio(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop as the reference, whatever is installed: fio alone takes a second to begin."""
    monkeypatch.setattr(io, "find_fio", lambda noise, effort: None)


def test_every_engine_stands_beside_the_reference(tmp_path):
    figures = io.measure_io(tmp_path, lambda text: None, TINY)
    taken = set(engines()) - {refusal.split("'")[1] for refusal in figures["refusals"]}
    assert {(row["kind"], row["method"]) for row in figures["rows"]} == {
        (kind, method) for kind in KINDS for method in (*taken, "loop")
    }
    for row in figures["rows"]:
        assert row["bytes_per_second"] > 0
        assert len(row["samples"]) == 2
        assert row["method"] != "loop" or row["over_reference"] == 1
    starved = figures["starved"]
    sweep = 2 * 8 * math.prod(starved["shape"])
    assert (starved["moved_bytes"], starved["later_bytes"]) == (8 * sweep, 7 * sweep)
    assert starved["whole_over_bandwidth"] > 0
    assert json.loads(json.dumps(figures))["rows"] == figures["rows"]
    assert list(tmp_path.iterdir()) == []


def test_a_transfer_that_begins_too_late_moves_something_all_the_same(tmp_path):
    effort = replace(TINY, transfer_seconds=0.0)
    figures = io.measure_io(tmp_path, lambda text: None, effort)
    assert all(rate > 0 for row in figures["rows"] for rate in row["samples"])


def test_ratios_are_taken_within_each_round():
    samples = {("ours", "read"): [9.0, 1.0, 4.0], ("loop", "read"): [10.0, 1.0, 2.0]}
    ours, loop = io.rows(samples, ("loop",))
    assert ours["bytes_per_second"] == 4
    assert ours["over_reference"] == 1
    assert ours["best_over_reference"] == 0.9
    assert loop["over_reference"] == 1


def test_the_faster_reference_counts():
    samples = {("ours", "read"): [3.0], ("loop", "read"): [4.0], ("fio", "read"): [2.0]}
    ours, loop, fio = io.rows(samples, ("loop", "fio"))
    assert [row["reference"] for row in (ours, loop, fio)] == ["loop"] * 3
    assert ours["over_reference"] == 0.75


def test_the_ratio_to_fio_alone_stands_beside():
    samples = {("ours", "read"): [3.0], ("loop", "read"): [4.0], ("fio", "read"): [2.0]}
    ours, loop, fio = io.rows(samples, ("loop", "fio"))
    assert [row["over_fio"] for row in (ours, loop, fio)] == [1.5, 2.0, 1.0]
    assert io.rows({("loop", "read"): [4.0]}, ("loop",))[0]["over_fio"] is None


def test_fio_reads_one_half_while_it_writes_the_other():
    jobs = fio_jobs("mixed", TINY.file_bytes, TINY)
    half = TINY.file_bytes // 2
    assert jobs[:5] == ["--name=read", "--rw=read", "--iodepth=2", "--offset=0", f"--size={half}"]
    assert jobs[5:8] == ["--name=write", "--rw=write", "--iodepth=2"]
    assert jobs[8:] == [f"--offset={half}", f"--size={half}"]
    assert "--iodepth=4" in fio_jobs("read", TINY.file_bytes, TINY)


def test_both_directions_of_fio_are_counted():
    job = {"read": {"bw_bytes": 5}, "write": {"bw_bytes": 7}}
    assert fio_bandwidth({"jobs": [job, job]}) == 24


def test_the_verb_prints_ratios_and_keeps_the_figures(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        bench_io, "measure_io", lambda folder, say: io.measure_io(folder, say, TINY)
    )
    target = tmp_path / "io.json"
    arguments = argparse.Namespace(scratch=tmp_path, json=target)
    assert bench_io.run_io(arguments) == 0
    assert "of the reference" in capsys.readouterr().out
    assert json.loads(target.read_text())["bench"] == "io"


def test_missing_space_is_said_before_anything_is_written(tmp_path):
    with pytest.raises(StoreError, match="4096 PiB"):
        io.measure_io(tmp_path, lambda text: None, Effort(file_bytes=4 << 60))
