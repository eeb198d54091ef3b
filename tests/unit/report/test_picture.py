import numpy as np
import pytest
from PIL import Image

from outgrid.errors import UsageError
from outgrid.report.picture import draw_field, sample_plane, write_animation
from outgrid.storage import Joined, Piece


def test_a_field_is_sampled_within_the_longest_edge(tmp_path):
    field = np.arange(300 * 200, dtype=np.float32).reshape(300, 200)
    np.save(tmp_path / "u.npy", field)
    plane = sample_plane(tmp_path / "u.npy", longest=100)
    np.testing.assert_array_equal(plane, field[::3, ::3])
    window = (slice(10, 60), slice(5, 35))
    plane = sample_plane(tmp_path / "u.npy", longest=25, window=window)
    np.testing.assert_array_equal(plane, field[10:60:2, 5:35:2])


def test_a_plane_of_a_3d_field_is_chosen(tmp_path):
    field = np.arange(6 * 5 * 4, dtype=np.float64).reshape(6, 5, 4)
    np.save(tmp_path / "u.npy", field)
    np.testing.assert_array_equal(sample_plane(tmp_path / "u.npy"), field[3])
    np.testing.assert_array_equal(sample_plane(tmp_path / "u.npy", index=5), field[5])
    with pytest.raises(UsageError, match=r"within 0\.\.5.* not 6"):
        sample_plane(tmp_path / "u.npy", index=6)


def test_a_field_in_pieces_is_sampled_as_a_whole(tmp_path):
    field = np.arange(6 * 5 * 4, dtype=np.float64).reshape(6, 5, 4)
    pieces = []
    for number, rows in enumerate((range(2), range(2, 5))):
        np.save(tmp_path / f"{number}.npy", field[:, rows.start : rows.stop])
        pieces.append(Piece(tmp_path / f"{number}.npy", (0, rows.start), range(6), rows))
    np.testing.assert_array_equal(sample_plane(Joined(pieces), longest=3), field[3, ::2, ::2])
    draw_field(Joined(pieces), tmp_path / "u.png")
    with pytest.raises(UsageError, match=r"within 0\.\.5.* not 6"):
        sample_plane(Joined(pieces), index=6)


def test_what_is_no_field_is_refused_by_name(tmp_path):
    np.save(tmp_path / "line.npy", np.zeros(3))
    np.save(tmp_path / "pickled.npy", np.array([[{}]]), allow_pickle=True)
    (tmp_path / "text.npy").write_text("hello")
    for name, words in [
        ("line.npy", r"shape \(3,\)"),
        ("pickled.npy", "fields are plain numbers"),
        ("text.npy", "not a .npy file"),
        ("none.npy", "No such file"),
    ]:
        with pytest.raises(UsageError, match=words):
            sample_plane(tmp_path / name)


@pytest.mark.parametrize("values", ["both signs", "one sign", "constant", "not numbers"])
def test_a_field_is_drawn(tmp_path, values):
    field = np.linspace(-1, 1, 30 * 20).reshape(30, 20)
    field = {"both signs": field, "one sign": field + 5, "constant": 0 * field}.get(values, field)
    if values == "not numbers":
        field[:] = np.nan
    np.save(tmp_path / "u.npy", field)
    draw_field(tmp_path / "u.npy", tmp_path / "u.png")
    with Image.open(tmp_path / "u.png") as picture:
        assert picture.format == "PNG"
        assert picture.width > 500


@pytest.mark.parametrize("suffix", [".gif", ".png"])
def test_frames_become_an_animation(tmp_path, suffix):
    frames = [np.full((8, 9, 3), shade, dtype=np.uint8) for shade in (0, 90, 180, 255)]
    write_animation(frames, tmp_path / f"wave{suffix}")
    with Image.open(tmp_path / f"wave{suffix}") as picture:
        assert getattr(picture, "n_frames", 1) == 4
        assert picture.size == (9, 8)


def test_an_animation_needs_frames_and_a_known_form(tmp_path):
    with pytest.raises(UsageError, match="0 frames"):
        write_animation([], tmp_path / "wave.gif")
    with pytest.raises(UsageError, match=r"\.gif or \.png"):
        write_animation([np.zeros((2, 2, 3), np.uint8)], tmp_path / "wave.mp4")
