import io
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from outgrid.lines import align, format_count, format_share, format_signed_share
from outgrid.plan.explain import explain
from outgrid.record import Measured, Record
from outgrid.report import progress
from outgrid.report.progress import Pace, follow, is_watched
from outgrid.report.summary import summarise
from outgrid.result import Result

PLAN = {
    "stencil": "heat7",
    "scheme": "skewed",
    "shape": [1026, 2050, 2048],
    "dtype": "float64",
    "depths": [36, 36, 28],
    "depth": 36,
    "sweeps": 3,
    "slab_planes": 4,
    "threads": 2,
    "rings": [{"planes": 50}, {"planes": 51}],
    "memory_bytes": 1 << 30,
    "fixed_bytes": 64 << 20,
    "window_bytes": 900 << 20,
    "held_bytes": 900 << 20,
    "tier": "direct",
    "resident": False,
    "transfer_bytes": 32 << 20,
    "disk_bytes": 64 << 30,
    "read_bytes": 96 << 30,
    "written_bytes": 96 << 30,
    "fill_bytes": 32 << 30,
    "flash_written_terabytes": 0.137,
    "predicted_seconds": 110.0,
    "prediction": {
        "seconds": 110.0,
        "compute_seconds": 108.0,
        "transfer_seconds": 88.0,
        "updates_per_second": 3.9e9,
        "bound_by": "compute",
    },
    "notes": ["planes pass through a bounce buffer", "tiles of 64 rows"],
}


def measured(**changes) -> Measured:
    return Measured(
        **{
            "seconds": 100.0,
            "compute_seconds": 99.0,
            "wait_seconds": 0.4,
            "fill_seconds": 20.0,
            "read_bytes": 97 << 30,
            "written_bytes": 97 << 30,
            "fill_read_bytes": 0,
            "fill_written_bytes": 32 << 30,
            "ideal_bytes": 192 << 30,
            "buffered_bytes": 0,
            "updates": 430_000_000_000,
            "flops": 3_440_000_000_000,
            "peak_memory_bytes": 1000 << 20,
            "memory_limit_bytes": 1 << 30,
            "engine": "io_uring",
            **changes,
        }
    )


def record(**changes) -> Record:
    return Record(
        **{
            "version": "0.1.0",
            "started": "2026-11-21T10:00:00+00:00",
            "problem": {},
            "planned": PLAN,
            "machine": {},
            "measured": measured(),
            "files": {"u": "u.npy"},
            **changes,
        }
    )


@pytest.mark.parametrize("steps", [1, 30])
def test_what_was_computed_is_told_alike_by_plan_record_and_result(steps, tmp_path):
    plan = PLAN | {
        "depths": [steps],
        "layout": {"apart": [{"field": "c", "dtype": "int8"}], "staged": False},
    }
    done = record(planned=plan, problem={"steps": steps})
    work = f"heat7 on 1026 x 2050 x 2048 float64 (c in int8), {format_count(steps, 'step')}"
    assert explain(plan).startswith(f"{work}\n")
    assert summarise(done).startswith(f"{work}: skewed")
    assert repr(Result(tmp_path, done)) == f"<Result in {tmp_path}: {work}; u>"


def test_files_of_a_result_are_found_from_any_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = Result(Path("run"), record())
    monkeypatch.chdir("/")
    assert result.out == tmp_path / "run"


def test_names_and_values_align_under_their_heading():
    rows = [("heat7", ""), ("rate", "1"), ("moved", "2")]
    assert align(rows) == "heat7\n  rate   1\n  moved  2"


@pytest.mark.parametrize(
    ("share", "text"), [(0.003, "0.3 %"), (0.41, "41 %"), (0.0999, "10.0 %"), (1, "100 %")]
)
def test_shares_are_percents(share, text):
    assert format_share(share) == text


def test_one_is_not_many():
    assert format_count(1, "sweep") == "1 sweep"
    assert format_count(3, "sweep") == "3 sweeps"


def test_deviations_carry_their_sign():
    assert format_signed_share(0.052) == "+5.2 %"
    assert format_signed_share(-0.2) == "-20 %"


def test_a_plan_is_explained_with_every_figure():
    text = explain(PLAN)
    for words in [
        "heat7 on 1026 x 2050 x 2048 float64, 100 steps",
        "skewed, depth 36: 3 sweeps of 36 + 36 + 28 steps",
        "4 planes, 2 threads",
        "900 MiB in 101 planes, 2 rings",
        "996 MiB of 1.00 GiB (97 %)",
        "64.0 GiB",
        "96.0 GiB",
        "32.0 GiB written",
        "flash written",
        "128 GiB",
        "1 min 50 s predicted, bound by compute",
        "3.90 GLUP/s",
        "bounce buffer",
        "tiles of 64 rows",
    ]:
        assert words in text


def test_a_summary_tells_rate_bytes_memory_and_prediction():
    text = summarise(record())
    for words in [
        "heat7 on 1026 x 2050 x 2048 float64, 100 steps: skewed, depth 36, 3 sweeps",
        "4.30 GLUP/s, 34.4 GFLOP/s",
        "1 min 40 s, 9.1 % shorter than predicted (1 min 50 s)",
        "0.4 % for transfers",
        "1.010 of the ideal 192 GiB",
        "peak 0.98 GiB of 1.00 GiB (98 %)",
        "io_uring",
        "u in u.npy",
    ]:
        assert words in text
    assert "warning" not in text
    assert "fallback" not in text


def test_a_summary_hides_no_degraded_path():
    changed = measured(engine="threads", fallbacks=("io_uring: refused",), buffered_bytes=4096)
    text = summarise(record(measured=changed, warnings=("u holds 3 NaN",)))
    for words in ["threads", "io_uring: refused", "4.00 KiB through the page cache", "3 NaN"]:
        assert words in text


@dataclass(frozen=True)
class Step:
    seconds: float = 0.0
    updates_done: int = 0
    updates_total: int = 1_000_000_000_000
    read_bytes: int = 0
    written_bytes: int = 0
    wait_seconds: float = 0.0
    processor_seconds: float = 0.0
    sweep: int = 0
    sweeps: int = 4
    filling: bool = False
    filled: float = 1.0


def steady(seconds: float) -> Step:
    return Step(
        seconds=seconds,
        updates_done=int(seconds * 2e9),
        read_bytes=int(seconds * 5e8),
        written_bytes=int(seconds * 4e8),
        wait_seconds=seconds * 0.01,
        processor_seconds=seconds * 1.5,
    )


def test_no_time_of_arrival_before_anything_was_seen():
    assert Pace().figures(steady(0)).remaining_seconds is None
    assert Pace().figures(Step(seconds=5)).remaining_seconds is None


def test_rates_over_the_recent_past():
    pace = Pace(span_seconds=10)
    for second in range(50):
        figures = pace.figures(steady(second))
    assert figures.updates_per_second == pytest.approx(2e9)
    assert figures.read_bytes_per_second == pytest.approx(5e8)
    assert figures.written_bytes_per_second == pytest.approx(4e8)
    assert figures.wait_share == pytest.approx(0.01)
    assert figures.processors == pytest.approx(1.5)
    assert figures.remaining_seconds == pytest.approx((1e12 - 49 * 2e9) / 2e9)


def test_the_time_of_arrival_follows_a_change_of_pace():
    pace = Pace(span_seconds=10)
    for second in range(50):
        pace.figures(steady(second))
    for second in range(50, 70):
        slow = replace(steady(49), seconds=second, updates_done=int(98e9 + (second - 49) * 1e9))
        figures = pace.figures(slow)
    assert figures.updates_per_second == pytest.approx(1e9)


def test_without_a_terminal_a_line_now_and_then():
    stream = io.StringIO()
    with follow(stream) as show:
        for second in range(12):
            show(replace(steady(second), sweep=1))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("sweep 2/4, 1.0 %, 2.00 GLUP/s, read 0.50 GB/s, write 0.40 GB/s")
    assert "waiting 1.0 %, 8 min 15 s left" in lines[0]


def test_writing_the_initial_values_is_told_and_then_the_sweeps():
    stream = io.StringIO()
    with follow(stream) as show:
        for second in range(9):
            written = int(second * 1e9)
            show(Step(seconds=second, written_bytes=written, filling=True, filled=second / 10))
        for second in range(6):
            show(steady(second))
    first, then = stream.getvalue().splitlines()
    assert first == "initial values, 50 %, write 1.00 GB/s, 5.00 s left"
    assert then.startswith("sweep 1/4, 1.0 %, 2.00 GLUP/s")


def test_what_went_on_before_the_first_byte_is_told_with_its_time(monkeypatch):
    clock = iter([0.0, 0.5, 10.0, 18.25])
    monkeypatch.setattr("outgrid.report.progress.time.perf_counter", lambda: next(clock))
    stream = io.StringIO()
    with follow(stream) as show:
        with show.doing("compiling the kernel"):  # it is there already
            pass
        with show.doing("measuring the kernel"):
            pass
        show.say("tier direct -> memory")
    assert stream.getvalue() == "measuring the kernel took 8.25 s\ntier direct -> memory\n"


class OutStream(io.StringIO):
    """One that a notebook has."""


OutStream.__module__ = "ipykernel.iostream"


def test_in_a_notebook_a_line_that_changes_and_stays_as_what_was_done(monkeypatch):
    shown = []
    monkeypatch.setattr(progress, "_cell", lambda: shown.append)
    stream = OutStream()
    assert is_watched(stream)
    assert not is_watched(io.StringIO())
    assert not is_watched(None)
    with follow(stream) as show:
        with show.doing("compiling the kernel"):
            assert shown[-1] == "compiling the kernel ..."
        show(steady(0))
        show.say("a note")
        assert shown[-1] == "a note"
        show(steady(250))
        assert shown[-1].startswith("sweep 1/4, 50 %, 2.00 GLUP/s")
    assert shown[-1].startswith("done in ")
    assert shown[-1].endswith("2.00 GLUP/s, read 0.50 GB/s, write 0.40 GB/s, waiting 1.0 %")
    assert stream.getvalue() == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_bar(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    with follow(stream) as show:
        with show.doing("compiling the kernel"):
            pass
        show.say("a note that stays")
        show(steady(0))
        show(steady(250))
    text = stream.getvalue()
    assert text.index("compiling the kernel") < text.index("a note that stays\n")
    assert "sweep 1/4" in text
    assert "50%" in text
    assert "2.00 GLUP/s" in text
