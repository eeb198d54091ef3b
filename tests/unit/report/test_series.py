"""Readings of a run over its time."""

import json
from xml.etree import ElementTree

from outgrid.report.series import charts
from outgrid.runs.reading import read_readings


def line(seconds, **entries):
    given = {"seconds": seconds, "state": "running", "memory_limit_bytes": 100}
    process = {"time": "", "started": "", "host": "", "pid": 1}
    return json.dumps(given | process | entries)


def test_readings_of_all_parts_are_drawn_one_after_the_other(tmp_path):
    lines = [
        line(0.5, state="filling"),
        *(line(float(n), started="first", processors=1.5, threads=2) for n in range(5)),
        *(line(float(n), started="second", memory_bytes=50) for n in range(4)),
        line(9.0)[:20],
        line(1.0).replace("1.0", "NaN"),
        '{"seconds": "text"}',
        "[]",
        "\x00",
    ]
    (tmp_path / "progress.jsonl").write_text("\n".join(lines))
    readings = read_readings(tmp_path)
    assert len(readings) == 9
    page = ElementTree.fromstring(f"<div>{charts(readings)}</div>")
    text = "".join(page.itertext())
    assert "7.00 s" in text  # 4 of the first part and 3 of the second
    assert "50 B of 100 B" in text
    assert "processors in use, up to 1.50 for 2 threads" in text
    assert len([e for e in page.iter() if e.tag == "polyline"]) == 5


def test_a_run_without_readings_has_no_charts(tmp_path):
    assert read_readings(tmp_path) == []
    assert charts([]) == ""


def test_long_runs_are_drawn_with_few_points(tmp_path):
    (tmp_path / "progress.jsonl").write_text("\n".join(line(float(n)) for n in range(5000)))
    assert len(charts(read_readings(tmp_path))) < 60_000
