"""Every experiment from end to end at sizes that take seconds: no rate is judged."""

import json

import pytest

from outgrid.bench.experiments import EXPERIMENTS, Outcome
from outgrid.bench.experiments.outcome import Finding, Settings
from outgrid.bench.experiments.page import write_page
from outgrid.bench.experiments.watched import Sample, Watcher
from outgrid.cli import main
from outgrid.testing.device import stand_in


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_runs_from_end_to_end(name, tmp_path, capsys):
    record, figure = tmp_path / "record.json", tmp_path / "figure.png"
    folder = tmp_path / "scratch"
    folder.mkdir()
    options = ["--tiny", "--scratch", str(folder), "--json", str(record), "--figure", str(figure)]
    assert main(["bench", name, *options]) == 0
    outcome = Outcome.from_dict(json.loads(record.read_text()))
    assert json.loads(json.dumps(outcome.to_dict())) == json.loads(record.read_text())
    assert outcome.rows
    assert outcome.agrees
    assert outcome.findings or outcome.notes
    assert all(each.holds is None for each in outcome.findings)
    assert figure.stat().st_size > 10_000
    assert not list(folder.iterdir())
    assert "answers agree" in capsys.readouterr().out


def test_all_of_them_make_a_page_and_what_is_there_is_kept(tmp_path, capsys):
    folder, results = tmp_path / "scratch", tmp_path / "results"
    folder.mkdir()
    options = ["--tiny", "--scratch", str(folder), "--results", str(results)]
    chosen = ["--only", "ladder", "--only", "matvec"]
    assert main(["bench", "all", *options, *chosen]) == 0
    before = (results / "matvec.json").read_bytes()
    assert main(["bench", "all", *options, *chosen, "--resume"]) == 0
    assert (results / "matvec.json").read_bytes() == before
    page = (results / "index.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert "not judged" in page
    assert "http" not in page  # nothing outside of it is needed
    assert main(["bench", "all", *options, "--only", "matvect"]) == 2
    assert "did you mean 'matvec'" in capsys.readouterr().err


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
    assert sum(row["unit"] == "GLUP/s" for row in outcome.rows) == 3
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
    assert main(["bench", "ladder", "--device", "gpu", "--tiny"]) == 2
