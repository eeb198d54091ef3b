"""The page of a run: one file that holds all there is to see of it."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import outgrid as og
from outgrid.cli import main
from outgrid.errors import UsageError
from outgrid.report.page import document, safe
from outgrid.report.picture import draw_frames, draw_reductions, draw_traces


class Tags(HTMLParser):
    """Whether all tags that are opened are closed, in order."""

    def __init__(self):
        super().__init__()
        self.open, self.sources, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
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
    for words in ("ripple on 40 x 60 float64, 24 steps", "GLUP/s", "computing", "What receivers"):
        assert words in page.text
    widths = re.findall(r"width:([0-9.]+)%;background", paths[1].read_text())
    assert sum(map(float, widths)) == pytest.approx(100, abs=0.01)


def test_nothing_in_a_page_is_taken_for_a_tag():
    told = "<script>alert(1)</script>"
    page = read_page(document(told, [f"<p>{safe(told)}</p>"]))
    assert page.text.count(told) == 3  # the title, the heading and the text


@pytest.mark.parametrize("shape", [(1, 9, 8), (5, 9, 8), (30, 4, 9, 8), (7, 600), (3, 2000, 1500)])
def test_frames_of_a_snapshot_are_drawn(tmp_path, shape):
    draw_frames(np.linspace(-1, 1, int(np.prod(shape))).reshape(shape), tmp_path / "a.png", "u")
    Image.open(tmp_path / "a.png").verify()


def test_what_is_no_picture_is_refused(tmp_path):
    for shape in ((5,), (0, 4, 4)):
        with pytest.raises(UsageError, match="no picture"):
            draw_frames(np.zeros(shape), tmp_path / "a.png", "u")
    with pytest.raises(UsageError, match="no step"):
        draw_traces(np.zeros((0, 3)), tmp_path / "a.png")


def test_traces_and_reductions_that_are_no_numbers_are_drawn(tmp_path):
    for receivers in (3, 20):
        draw_traces(np.full((9, receivers), np.nan), tmp_path / "a.png")
    falling = np.logspace(0, -6, 50)
    draw_reductions({"residual": falling, "lost": np.full(50, np.nan)}, tmp_path / "b.png")
    Image.open(tmp_path / "b.png").verify()
