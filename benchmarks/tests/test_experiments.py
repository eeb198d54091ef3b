"""Every experiment from end to end at sizes that take seconds: no rate is judged."""

import json
import os
import re
from dataclasses import replace

import numpy
import pytest
from matplotlib.figure import Figure

from outgrid.cli import main
from outgrid.errors import InfeasiblePlan
from outgrid.testing.device import stand_in
from outgrid_bench.cli import experiment as bench_experiment
from outgrid_bench.experiments import (
    EXPERIMENTS,
    Outcome,
    applications,
    beyond,
    blocking,
    methods,
    moving,
    watched,
)
from outgrid_bench.experiments import requests as requests_bench
from outgrid_bench.experiments.outcome import (
    OUTGRID,
    PAPERS,
    QUICK_SECONDS,
    Finding,
    Settings,
    Timed,
)
from outgrid_bench.experiments.page import write_page
from outgrid_bench.experiments.watched import MOST_KEPT, Sample, Watched, Watcher
from outgrid_bench.measure import in_memory


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The load of the machine is told and not judged: looks at it need no time between them."""
    monkeypatch.setattr("outgrid_bench.experiments.outcome.SECONDS_BETWEEN_LOOKS", 0.0)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_runs_from_end_to_end(name, tmp_path, capsys):
    record, figure = tmp_path / "record.json", tmp_path / "figure.png"
    folder = tmp_path / "made" / "scratch"
    options = ["--tiny", "--scratch", str(folder), "--json", str(record), "--figure", str(figure)]
    assert main(["bench", name, *options]) == 0
    outcome = Outcome.from_dict(json.loads(record.read_text()))
    assert json.loads(json.dumps(outcome.to_dict())) == json.loads(record.read_text())
    assert outcome.rows
    assert outcome.agrees
    assert outcome.findings or outcome.notes
    assert all(finding.holds is None for finding in outcome.findings)
    assert all(finding.figure.startswith((*PAPERS, OUTGRID)) for finding in outcome.findings)
    assert figure.stat().st_size > 10_000
    assert not list(folder.iterdir())
    assert "answers agree" in capsys.readouterr().out


def test_all_of_them_make_a_page_and_what_is_there_is_kept(tmp_path, capsys):
    folder, results = tmp_path / "scratch", tmp_path / "results"
    folder.mkdir()
    options = ["--tiny", "--scratch", str(folder), "--results", str(results)]
    chosen = ["--only", "ladder", "--only", "matvec"]
    assert main(["bench", "all", *options, *chosen, "--stop-after", "1ms"]) == 75
    assert sorted(path.name for path in results.glob("*.json")) == ["ladder.json"]
    assert "ladder" in (results / "index.html").read_text()
    assert main(["bench", "all", *options, *chosen, "--resume"]) == 0
    before = (results / "matvec.json").read_bytes()
    assert main(["bench", "all", *options, *chosen, "--resume"]) == 0
    assert (results / "matvec.json").read_bytes() == before
    page = (results / "index.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert "not judged" in page
    assert set(re.findall(r"href='#(\w+)'", page)) <= set(re.findall(r"id='(\w+)'", page))
    drawn = re.compile(r"data:image/png;base64,[\w+/=]+")  # which may spell anything
    assert "http" not in drawn.sub("", page)  # nothing outside of it is needed
    assert main(["bench", "all", *options, "--only", "matvect"]) == 2
    assert "did you mean 'matvec'" in capsys.readouterr().err


def test_the_plan_of_all_names_each_and_stays_below_three_hours():
    assert set(bench_experiment.SECONDS) == set(EXPERIMENTS)
    assert sum(full for _, full in bench_experiment.SECONDS.values()) < 3 * 3600
    told = bench_experiment.expected(["ladder", "ranks"], full=True)
    assert told.endswith("ladder 1 min 40 s, ranks 17 min 50 s; all 19 min 30 s")


def test_one_that_cannot_be_made_does_not_keep_the_others_from_it(tmp_path, capsys, monkeypatch):
    def infeasible(settings):
        raise InfeasiblePlan("a limit of 213 MiB fits")

    given = {**EXPERIMENTS, "ladder": replace(EXPERIMENTS["ladder"], measure=infeasible)}
    monkeypatch.setattr(bench_experiment, "EXPERIMENTS", given)
    results = tmp_path / "results"
    options = ["--tiny", "--scratch", str(tmp_path), "--results", str(results)]
    assert main(["bench", "all", *options, "--only", "ladder", "--only", "matvec"]) == 3
    assert "ladder cannot be made: a limit of 213 MiB fits" in capsys.readouterr().err
    assert sorted(path.name for path in results.glob("*.json")) == ["matvec.json"]
    assert "matvec" in (results / "index.html").read_text()


def test_what_is_written_on_a_page_is_no_markup(tmp_path):
    finding = Finding("figure 1", "a < b & <script>", "1", "2", None)
    outcome = Outcome(
        "ladder", "tiny", (), (finding,), "none", True, ("<b>",), {}, 1.0, 0.0, "now", {}
    )
    page = write_page([outcome], tmp_path).read_text()
    assert "<script>" not in page
    assert "a &lt; b &amp; &lt;script&gt;" in page
    assert "&lt;b&gt;" in page


def test_samples_of_a_disk_are_counted_from_the_beginning_asked_for(tmp_path):
    watcher = Watcher(tmp_path)
    watcher.samples = [Sample(t, 10 * t, 5 * t, t / 2, 0.0) for t in range(8)]
    inside = watcher.between(2.5, 5.5)
    assert [sample.seconds for sample in inside] == [0, 1, 2, 3, 4]
    assert (inside[-1].read_bytes, inside[-1].written_bytes) == (40, 20)


def test_what_a_gpu_has_to_show_runs_on_a_device(tmp_path, monkeypatch):
    stand_in(monkeypatch.setattr)
    outcome = EXPERIMENTS["gpu"].measure(Settings("tiny", (tmp_path,)))
    assert outcome.agrees
    assert [row["value"] for row in outcome.rows if row["unit"] == "tiers"] == [3, 3]
    assert sum(row["unit"] == "GLUP/s" for row in outcome.rows) == 1 + 1 + 2
    assert not outcome.notes


def test_a_gpu_multiplies_a_streamed_matrix(tmp_path, monkeypatch):
    stand_in(monkeypatch.setattr)
    outcome = EXPERIMENTS["matvec"].measure(Settings("tiny", (tmp_path,), device="gpu"))
    assert outcome.agrees
    methods = {row["method"] for row in outcome.rows}
    assert {"direct, gpu, pinned", "direct, gpu, pageable"} < methods


def test_a_gpu_that_is_not_there_is_named(tmp_path, capsys):
    assert main(["bench", "matvec", "--device", "gpu", "--tiny", "--scratch", str(tmp_path)]) == 4
    assert "pip install cupy-cuda12x" in capsys.readouterr().err


def test_rows_are_kept_as_they_are_made_and_not_made_again(tmp_path, monkeypatch):
    record, folder = tmp_path / "methods.json", tmp_path / "scratch"
    folder.mkdir()
    options = ["bench", "methods", "--tiny", "--scratch", str(folder), "--json", str(record)]
    made = []

    def watch(problem, settings, place, limit):
        advised = ", advised" if "madvise" in settings else ""
        made.append(f"{settings['scheme']} on {settings['tier']}{advised}")
        if len(made) == 3:
            raise KeyboardInterrupt
        return watched.watch_run(problem, settings, place, limit)

    monkeypatch.setattr(beyond, "watch_run", watch)
    assert main(options) == 130
    pieces = json.loads((tmp_path / "methods.rows").read_text())["pieces"]
    runs = [piece["value"]["row"] for name, piece in pieces.items() if "in memory" not in name]
    assert [row["method"] for row in runs] == made[:2]
    assert main([*options, "--resume"]) == 0
    assert len(set(made)) == len(made) - 1  # the one that was cut off was made twice
    outcome = Outcome.from_dict(json.loads(record.read_text()))
    assert {row["method"] for row in outcome.rows} == set(made)
    assert all(row["identical"] for row in outcome.rows)
    assert not (tmp_path / "methods.rows").exists()
    before = len(made)
    assert main([*options, "--resume"]) == 0
    assert len(made) == before


def test_a_measurement_is_made_in_pieces_that_are_kept(tmp_path, capsys):
    record, rows = tmp_path / "stream.json", tmp_path / "stream.rows"
    options = ["bench", "stream", "--tiny", "--scratch", str(tmp_path), "--json", str(record)]
    short = [*options, "--stop-after", "1ms", "--resume"]
    assert main(short) == 75
    assert "--resume goes on" in capsys.readouterr().err
    assert len(json.loads(rows.read_text())["pieces"]) == 1
    first = json.loads(rows.read_text())["pieces"].popitem()[1]
    assert main([*short, "--memory", "1GiB"]) == 2
    assert "is of memory None, not 1073741824" in capsys.readouterr().err
    assert main([*options, "--resume"]) == 0
    outcome = Outcome.from_dict(json.loads(record.read_text()))
    assert [row["operation"] for row in outcome.rows[:4]] == ["copy", "scale", "add", "triad"]
    assert list(outcome.rows[:4]) == first["value"]
    assert outcome.started == first["started"]
    assert outcome.seconds > first["seconds"]
    assert set(first["notes"]) <= set(outcome.notes)
    assert not rows.exists()
    rows.write_text("[]")
    record.unlink()
    assert main([*options, "--resume"]) == 2
    assert "holds no parts to go on with" in capsys.readouterr().err
    assert main([*options[:5], "--stop-after", "1min"]) == 2


def test_a_wrong_answer_of_a_run_beyond_memory_is_seen(tmp_path, monkeypatch, capsys):
    def spoil(problem, settings, place, limit):
        outcome = watched.watch_run(problem, settings, place, limit)
        values = numpy.load(place / "run" / "u.npy", mmap_mode="r+")
        values[-1, 5, 5] += 1
        values.flush()
        return outcome

    monkeypatch.setattr(beyond, "watch_run", spoil)
    assert main(["bench", "methods", "--tiny", "--scratch", str(tmp_path)]) == 1
    assert "ANSWERS DIFFER" in capsys.readouterr().out


@pytest.mark.parametrize("kind", [beyond.HEAT7, applications.MASKS[0], applications.PRESSURE])
def test_a_part_of_a_grid_has_the_values_of_the_whole(kind, tmp_path):
    plane = (16,) if kind.stencil.ndim == 2 else (8, 9)
    grid = beyond.Grid(1 << 10, 0.0, plane, kind)
    _, whole = in_memory(grid.problem(2), "plain", tmp_path)
    assert len(whole) == grid.planes
    for centre in beyond.CENTRES:
        problem, start, core = grid.part(2, centre)
        assert problem.shape[0] < grid.planes
        _, values = in_memory(problem, "plain", tmp_path, core)
        assert numpy.array_equal(values, whole[start : start + len(values)])


def test_what_a_process_read_is_its_own(tmp_path):
    file = tmp_path / "data"
    file.write_bytes(bytes(8 << 20))
    with open(file, "rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    before = watched._process_bytes(os.getpid())
    file.read_bytes()
    assert watched._process_bytes(os.getpid()) - before in (0, 8 << 20)  # 0: no disk below
    assert watched._process_bytes(None) == 0


def test_a_disk_tells_what_it_is_and_its_wear(tmp_path, capsys):
    options = ["--tiny", "--scratch", str(tmp_path), "--endurance", "1TBW"]
    assert main(["bench", "ladder", *options]) == 0
    told = capsys.readouterr().out
    line = next(line for line in told.splitlines() if line.startswith("disk: "))
    assert "written meanwhile" in line
    if " 0 B written" not in line:
        assert "of 1 TBW" in line


def test_a_factor_and_steps_are_those_asked_for(tmp_path, capsys):
    record = tmp_path / "methods.json"
    options = ["--tiny", "--scratch", str(tmp_path), "--json", str(record)]
    assert main(["bench", "methods", *options, "--factor", "2", "--steps", "5"]) == 0
    rows = json.loads(record.read_text())["rows"]
    assert {row["steps"] for row in rows} == {2, 5}
    assert {row["factor"] for row in rows} == {0.02}
    assert main(["bench", "methods", *options, "--factor", "0"]) == 2
    assert main(["bench", "methods", *options, "--factor", "2", "--factor", "4"]) == 2
    assert main(["bench", "methods", *options, "--steps", "0"]) == 2
    assert main(["bench", "ladder", "--tiny", "--resume"]) == 2
    assert "--json" in capsys.readouterr().err


def test_paths_are_measured_whole_and_striped(tmp_path):
    outcome = EXPERIMENTS["io"].measure(
        Settings("tiny", (tmp_path,), price=100.0, watts=5.0, say=lambda text: None)
    )
    ways = {(row["method"], row["paths"]) for row in outcome.rows if row["series"] == "paths"}
    striped = {("stripes of 64 KiB", 2), ("stripes of 1 MiB", 2)}
    assert ways == {("raw", 1), ("raw", 2)} | striped
    hardware = next(finding for finding in outcome.findings if "hardware" in finding.figure)
    assert re.fullmatch(r"a GB/s costs [\d.e+]+ and takes [\d.e+]+ W", hardware.here)
    assert not list(tmp_path.iterdir())


def test_bytes_that_are_not_where_they_belong_are_seen(tmp_path, monkeypatch):
    def spoilt(path, offset, nbytes):
        return bytes_at(path, offset + 1, nbytes)

    bytes_at = moving.bytes_at
    for module in (moving, requests_bench):
        monkeypatch.setattr(module, "bytes_at", spoilt)
        outcome = EXPERIMENTS["io"].measure(Settings("tiny", (tmp_path,), say=lambda text: None))
        wrong = {row["series"] for row in outcome.rows if not row["agrees"]}
        assert not outcome.agrees
        assert wrong >= ({"below"} if module is moving else {"queue", "paths", "application"})
        monkeypatch.undo()


def test_a_quick_experiment_makes_fewer_rounds_when_its_time_is_gone(tmp_path):
    for size, most, expected in (("quick", 5, 1), ("full", 5, 5), ("quick", 1, 1)):
        timed = Timed("io", Settings(size, (tmp_path,)))
        timed._begin -= QUICK_SECONDS
        assert list(timed.rounds(most)) == list(range(expected))
    assert list(Timed("io", Settings("quick", (tmp_path,))).rounds(3)) == [0, 1, 2]


def test_a_quick_experiment_has_smaller_grids_but_blocks_that_pay(tmp_path):
    quick, full = (Settings(size, (tmp_path,)) for size in ("quick", "full"))
    small, large = methods.grid_of(quick, 4.0), methods.grid_of(full, 16.0)
    assert small.blocks(256)["depth"] == 16
    assert small.nbytes * 7 < large.nbytes
    _, cut = methods.how(quick, small, small.blocks(256), 16.0)
    assert "384 x 384" in cut
    assert len(list(methods.how(full, large, {"depth": 1, "block": []}, 16.0))) == 1


@pytest.mark.parametrize("name", ["methods", "scaling", "mask"])
def test_what_a_quick_experiment_has_no_time_for_is_noted(name, tmp_path, monkeypatch):
    monkeypatch.setattr(Timed, "left", -1.0)
    settings = Settings("tiny", (tmp_path,), say=lambda text: None)
    outcome = EXPERIMENTS[name].measure(settings)
    assert len(outcome.rows) == 1
    assert outcome.agrees
    assert any("90 seconds are not enough" in note for note in outcome.notes)
    EXPERIMENTS[name].draw(outcome, Figure())


def test_blocks_that_are_no_candidates_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(blocking, "SLOW", 0)
    monkeypatch.setattr(blocking, "LEAST_SECONDS", 0)
    settings = Settings("tiny", (tmp_path,), say=lambda text: None)
    outcome = EXPERIMENTS["blocking"].measure(settings)
    done = [row["series"] for row in outcome.rows if row["glups"]]
    outside = [row for row in done if row in ("out of core", "second level")]
    assert outside == ["out of core", "second level"]  # the first of each
    assert all(
        row["expected_seconds"] or row["repeated"] for row in outcome.rows if not row["glups"]
    )
    note = outcome.notes[-1]  # of many that were left out
    assert note.startswith("left out: what is planned to take 0 times")
    assert outcome.agrees
    EXPERIMENTS["blocking"].draw(outcome, Figure())


def test_blocks_that_do_not_fit_are_not_chosen(tmp_path):
    tiny = Settings("tiny", (tmp_path,), say=lambda text: None)
    assert blocking._Bench(tiny, Timed("", tiny)).usual((8, 16)) == (16, 2)
    full = Settings("full", (tmp_path,), memory=256 << 20, say=lambda text: None)
    bench = blocking._Bench(full, Timed("", full))
    assert 2 * bench.problem.field_bytes > 256 << 20
    assert bench.usual((32, 64, 128, 256, 512)) == (128, 16)
    bench.memory = 81 << 20
    with pytest.raises(InfeasiblePlan, match="larger --memory"):
        bench.usual((32, 64))


def test_a_long_series_is_kept_in_few_samples_with_its_ends():
    for count in (1, 2, 299, 300, 301, 4532):
        samples = tuple(Sample(t, 10 * t, 5 * t, t / 2, 0.0) for t in range(count))
        kept = Watched(None, samples).series()
        assert len(kept) <= MOST_KEPT + 1
        assert (kept[0]["seconds"], kept[-1]["seconds"]) == (0, count - 1)
        assert [sample["seconds"] for sample in kept] == sorted(
            {sample["seconds"] for sample in kept}
        )


def test_the_best_of_a_map_is_what_is_judged():
    def row(series, block, depth, glups, inner=0, threads=2, scheme="overlapped"):
        numbers = (block, depth, inner, 1, threads, 1.0, glups, 1.0, 0, "")
        return blocking.BlockingRow(series, scheme, *numbers)

    rows = [
        row("space alone", 32, 0, 0.4),
        row("in memory", 32, 4, 0.5),
        row("in memory", 64, 8, 0.6),
        row("out of core", 128, 16, 0.8),
        row("out of core", 128, 32, None),
        row("out of core", 64, 16, 0.7),
        row("out of core", 0, 32, 1.6, scheme="skewed"),
        *(row("levels", 64, 8, glups, inner, count) for inner, count, glups in LEVELS),
    ]
    told = {finding.key: finding for finding in blocking._findings(rows)}
    assert (told["fig8.edge"].here, told["fig8.depth"].here) == ("64 cubed", "8")
    assert (told["fig9.block"].here, told["fig9.depth"].here) == ("1", "0.125")
    assert (told["fig9.collapse"].here, told["fig9.collapse"].holds) == ("0", True)
    assert told["fig10.gain"].here == "threads 1: 1.00, threads 2: 1.25"
    assert told["fig11.memory"].here == "0.8"
    assert told["future.blocking"].holds
    assert told["second.level"].holds is None


LEVELS = ((0, 1, 0.2), (32, 1, 0.2), (0, 2, 0.4), (32, 2, 0.5))
