"""The page of a run: one file that holds all there is to see of it."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import outgrid as og
from outgrid.cli import main
from outgrid.errors import UsageError
from outgrid.record import RECORD_NAME, read_record
from outgrid.report.page import document, safe
from outgrid.report.picture import draw_frames, draw_reductions, draw_traces


class Tags(HTMLParser):
    """Whether all tags that are opened are closed, in order."""

    def __init__(self):
        super().__init__()
        self.open, self.sources, self.text = [], [], ""
        self.found, self.attributes = set(), set()

    def handle_starttag(self, tag, attrs):
        self.found.add(tag)
        self.attributes.update(name for name, _ in attrs)
        if tag == "img":
            self.sources.append(dict(attrs)["src"])
        elif tag not in ("meta",):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def read_page(text):
    page = Tags()
    page.feed(text)
    assert not page.open
    return page


@og.stencil(ndim=2)
def ripple(u, c):
    new = 2 * u - u.previous + c * og.laplacian(u)
    return {"u": new, "largest": og.max(og.absolute(new))}


@pytest.mark.parametrize("receivers", [2, 12])
def test_the_page_of_a_run_holds_all_its_pictures(tmp_path, capsys, receivers):
    problem = og.Problem(
        ripple,
        (40, 60),
        "float64",
        24,
        initial={"u": "exp(-((x - 30)**2 + (y - 20)**2) / 9)", "c": "0.2"},
        receivers=[og.Receiver("u", (10.0, 4.0 * n + 3)) for n in range(receivers)],
        snapshots=[og.Snapshot("u", every=4), og.Snapshot("u", every=2, y=20)],
    )
    og.run(problem, memory="256MiB", out=tmp_path / "out")
    assert main(["report", str(tmp_path / "out")]) == 0
    paths = [Path(line) for line in capsys.readouterr().out.splitlines()]
    drawn = [path.name for path in paths[2:]]
    assert drawn == [
        *("u.png", "u.previous.png", "snapshot.0.png", "snapshot.1.png"),
        *("traces.png", "reductions.png"),
    ]
    for path in paths[2:]:
        Image.open(path).verify()
    page = read_page(paths[1].read_text())
    assert len(page.sources) == len(drawn)
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    for words in ("ripple on 40 x 60 float64, 24 steps", "GLUP/s", "computing", "Traces of"):
        assert words in page.text
    widths = re.findall(r"width:([0-9.]+)%;background", paths[1].read_text())
    assert sum(map(float, widths)) == pytest.approx(100, abs=0.01)


def test_nothing_in_a_page_is_taken_for_a_tag():
    told = "<script>alert(1)</script>"
    page = read_page(document(told, [f"<p>{safe(told)}</p>"]))
    assert page.text.count(told) == 3  # the title, the heading and the text


HOSTILE = "</td></title><script>alert('1')</script><img src=x onerror=\"alert(2)\">&amp;\n$\\frac{$"


def hostile(value):
    """The same value with every text in it replaced."""
    if isinstance(value, dict):
        return {key: hostile(each) for key, each in value.items()}
    if isinstance(value, list):
        return [hostile(each) for each in value]
    return HOSTILE if isinstance(value, str) else value


@pytest.fixture
def finished(tmp_path):
    """A run in folders of odd names."""
    place = tmp_path / "<b onclick='x'>\n\"&quot;" / ("long" * 50)
    place.mkdir(parents=True)
    problem = og.Problem(
        ripple,
        (20, 30),
        "float64",
        4,
        initial={"u": "x * y", "c": "0.2"},
        snapshots=[og.Snapshot("u", every=1)],
    )
    scratch = [place / "<script>", place / "'\""]
    og.run(problem, memory="256MiB", tier="direct", out=place / "run", scratch=scratch)
    return place / "run"


def test_hostile_names_and_records_stay_text(finished, capsys):
    assert main(["report", str(finished)]) == 0
    plain = read_page((finished / "report/report.html").read_text())
    assert "<b onclick='x'>\n\"&quot;/longlong" in plain.text
    assert "/<script>, " in plain.text
    found = json.loads((finished / RECORD_NAME).read_text())
    kept = {key: found[key] for key in ("fields", "checksums", "seals", "derived", "format")}
    found = hostile(found) | kept
    found["parts"] *= 2
    found["warnings"] = [HOSTILE, "long" * 100_000]
    (finished / RECORD_NAME).write_text(json.dumps(found))
    assert main(["report", str(finished)]) == 0
    page = read_page((finished / "report/report.html").read_text())
    assert page.text.count("<script>alert('1')</script>") > 10
    assert page.found - {"th"} == plain.found  # those of the table of parts are new
    assert page.attributes == plain.attributes
    assert len(page.sources) == len(plain.sources)


@pytest.mark.parametrize("table", ["plan", "machine", "problem"])
@pytest.mark.parametrize("verb", ["show", "report"])
def test_a_record_without_its_tables_is_told(verb, table, finished, capsys):
    path = finished / "record.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {table: {}}))
    code = main([verb, str(finished)])
    said = capsys.readouterr().err
    assert code == 0 or (code == 2 and "does not hold a problem, a plan and a machine" in said)
    assert code == 2 or table != "plan"


def test_a_record_cannot_make_a_report_write_elsewhere(finished, capsys):
    path = finished / RECORD_NAME
    found = json.loads(path.read_text())
    for name in ("../../evil", "/tmp/evil", "a/b/c", "..", "", "u\0", "<b>"):
        path.write_text(json.dumps(found | {"fields": {name: "u.npy"}}))
        with pytest.raises(UsageError, match="cannot be the name of a field"):
            read_record(finished)
    assert main(["report", str(finished)]) == 2
    assert "cannot be the name of a field" in capsys.readouterr().err
    assert not (finished / "report").exists()


@pytest.mark.parametrize("content", [b"", b"text", b"\x93NUMPY\x01\x00"])
def test_a_result_that_is_no_array_is_named(content, finished, capsys):
    (finished / "u.npy").write_bytes(content)
    assert main(["report", str(finished)]) == 2
    said = capsys.readouterr().err
    assert "u.npy is not a .npy file" in said or "u.npy has a bad .npy header" in said


@pytest.mark.parametrize("shape", [(1, 9, 8), (5, 9, 8), (30, 4, 9, 8), (7, 600), (3, 2000, 1500)])
def test_frames_of_a_snapshot_are_drawn(tmp_path, shape):
    draw_frames(np.linspace(-1, 1, int(np.prod(shape))).reshape(shape), tmp_path / "a.png", "u")
    Image.open(tmp_path / "a.png").verify()


def test_what_is_no_picture_is_refused(tmp_path):
    for shape in ((5,), (0, 4, 4)):
        with pytest.raises(UsageError, match="cannot be drawn"):
            draw_frames(np.zeros(shape), tmp_path / "a.png", "u")
    with pytest.raises(UsageError, match="no step"):
        draw_traces(np.zeros((0, 3)), tmp_path / "a.png")


def test_traces_and_reductions_that_are_no_numbers_are_drawn(tmp_path):
    for receivers in (3, 20):
        draw_traces(np.full((9, receivers), np.nan), tmp_path / "a.png")
    falling = np.logspace(0, -6, 50)
    draw_reductions({"residual": falling, "lost": np.full(50, np.nan)}, tmp_path / "b.png")
    Image.open(tmp_path / "b.png").verify()
