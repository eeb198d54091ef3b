"""Fields and snapshots of a result draw themselves, and are arrays all the same."""

import os
import stat
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import outgrid as og
from outgrid.errors import StoreError, UsageError
from outgrid.fields import JoinedField
from outgrid.formats.arrays import is_mapped
from outgrid.report.animation import animate
from outgrid.storage import Piece


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    problem = og.Problem(
        "heat7",
        (12, 10, 16),
        "float32",
        6,
        {"k": 0.1},
        initial={"u": "x*x - y"},
        snapshots=[og.Snapshot("u", every=2, z=6), og.Snapshot("u", every=3)],
        grid=og.Grid(spacing=(2.0, 1.0, 0.5), units="m", fields={"u": {"units": "K"}}),
    )
    out = tmp_path_factory.mktemp("fields") / "run"
    return og.run(problem, out=out, memory="200MiB", progress=False)


def test_a_field_is_an_array_on_disk(result):
    u = result["u"]
    assert isinstance(u, np.memmap)
    assert is_mapped(u)
    assert (u.name, u.units, len(u.axes)) == ("u", "K", 3)
    assert (u[3].name, u[3].axes) == ("u", ())
    doubled = u * 2
    assert doubled.name == ""
    assert np.array_equal(doubled, np.asarray(u) * 2)
    assert type(np.asarray(u)) is np.ndarray
    with pytest.raises(ValueError, match="read-only"):
        u[0] = 0


def test_it_draws_itself_where_its_cells_lie(result):
    (axes, _) = result["u"].plot().axes
    assert axes.get_xlabel() == "x (m)"
    assert axes.get_title() == "u, z = 12 m"
    assert axes.images[0].get_array().shape == (10, 16)
    (axes, _) = result["u"][3].plot().axes
    assert np.array_equal(axes.images[0].get_array(), result["u"][3])
    (axes,) = result["u"][3, 4].plot().axes
    assert np.array_equal(axes.lines[0].get_ydata(), result["u"][3, 4])


def test_a_part_and_axes_in_another_order_are_counted(tmp_path):
    grid = og.Grid(spacing=(2.0, 1.0, 0.5), units="m", fields={"u": {"units": "K"}})
    problem = og.Problem(
        "heat7", (8, 8, 8), "float32", 1, {"k": 0.1}, initial={"u": "x"}, grid=grid
    )
    u = og.run(problem, out=tmp_path / "run", memory="200MiB")["u"]
    for other in (u.T, u[::-1], u[:, ::-1], u[:4], u[::2], u.swapaxes(0, 1)):
        assert (other.axes, other.units) == ((), "K")
        assert other.plot().axes[0].get_xlabel() == "x"
    for same in (u[:], u.T.T, u[::-1][::-1], u.view()):
        assert same.axes == u.axes
        assert same.plot().axes[0].get_xlabel() == "x (m)"


def test_a_histogram_counts_every_cell(result):
    (axes,) = result["u"].hist(bins=7).axes
    (steps,) = axes.patches
    assert steps.get_data().values.sum() == result["u"].size
    assert steps.get_data().edges[0] == result["u"].min()
    values = np.array([[1.0, np.nan], [np.inf, 1.0]]).view(type(result["u"]))
    assert values.hist().axes[0].get_title() == "2 cells; 2 are not finite"
    for bad in (lambda: result["u"].hist(bins=0), lambda: values[1:, :1].hist()):
        with pytest.raises(UsageError):
            bad()


def test_a_notebook_shows_a_picture_of_it(result):
    page = ElementTree.fromstring(result["u"]._repr_html_().replace("<img alt='' ", "<img />"))
    assert "12 x 10 x 16" in "".join(page.itertext())
    assert "data:image/png;base64," in result["u"]._repr_html_()
    assert "data:image" not in result["u"][0, 0]._repr_html_()


def test_a_field_in_pieces_draws_itself_as_one(result, tmp_path):
    u = np.asarray(result["u"])
    for number, part in enumerate((u[:5], u[5:])):
        np.save(tmp_path / f"{number}.npy", part)
    rows = range(u.shape[1])
    pieces = [
        Piece(tmp_path / "0.npy", (0, 0), range(5), rows),
        Piece(tmp_path / "1.npy", (5, 0), range(5, 12), rows),
    ]
    joined = JoinedField(pieces, "u")
    mine, whole = (field.plot(7).axes[0].images[0] for field in (joined, result["u"]))
    assert np.array_equal(mine.get_array(), whole.get_array())
    counted = joined.hist().axes[0].patches[0].get_data().values
    assert np.array_equal(counted, result["u"].hist().axes[0].patches[0].get_data().values)


def test_snapshots_are_found_by_number_and_by_field(result):
    assert [taken.shape for taken in result.snapshots] == [(3, 10, 16), (2, 12, 10, 16)]
    assert result.snapshots[-1].shape == (2, 12, 10, 16)
    with pytest.raises(UsageError, match="2 snapshots of 'u' exist; give the number of one: 0, 1"):
        result.snapshots["u"]
    with pytest.raises(UsageError, match="the run has no snapshot of 'v'"):
        result.snapshots["v"]


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("kind", [".gif", ".png"])
def test_a_snapshot_becomes_an_animation(number, kind, result, tmp_path):
    taken = result.snapshots[number]
    path = taken.animate(tmp_path / f"wave{kind}", 0.2)
    with Image.open(path) as image:
        assert image.n_frames == len(taken)
        assert image.size[0] >= 16 * image.size[1] // 10
        assert image.info["duration"] == 200
        first = np.array(image.convert("RGB"))
    assert first[0, 0].tolist() != first[0, -1].tolist()


def test_what_is_no_animation_is_refused(result, tmp_path, monkeypatch):
    taken = result.snapshots[0]
    bad = (
        (lambda: taken[:, 0].animate(tmp_path / "a.gif"), "must be an array of"),
        (lambda: taken.animate(tmp_path / "a.avi"), "must end in .gif, .png or .mp4"),
        (lambda: taken.animate(tmp_path / "a.gif", 0), "must be above 0"),
    )
    for call, words in bad:
        with pytest.raises(UsageError, match=words):
            call()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="apt-get install ffmpeg"):
        taken.animate(tmp_path / "a.mp4")


def test_a_film_is_made_of_all_frames(result, tmp_path, monkeypatch):
    """The command ffmpeg gets raw frames; here it is one that keeps them."""
    tool = tmp_path / "ffmpeg"
    tool.write_text('#!/bin/sh\nfor last; do :; done\necho "$@" > "$last.words"; cat > "$last"\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    path = result.snapshots[0].animate(tmp_path / "a.mp4")
    words = (tmp_path / "a.mp4.words").read_text().split()
    columns, rows = map(int, words[words.index("-s") + 1].split("x"))
    assert not columns % 2
    assert not rows % 2
    assert path.stat().st_size == 3 * 3 * columns * rows
    tool.write_text("#!/bin/sh\ncat > /dev/null\necho no codec >&2\nexit 3\n")
    with pytest.raises(StoreError, match="ffmpeg ended with 3: no codec"):
        result.snapshots[0].animate(tmp_path / "a.mp4")


def test_values_that_are_not_finite_are_grey(tmp_path):
    taken = np.zeros((2, 4, 4))
    taken[0, 0, 0], taken[1, 3, 3] = np.nan, 1.0
    with Image.open(animate(taken, tmp_path / "a.png")) as image:
        assert np.ptp(np.array(image.convert("RGB"))[0, 0]) == 0
