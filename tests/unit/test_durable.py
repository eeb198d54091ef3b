import os

import pytest

from outgrid.durable import partials, replace_file
from outgrid.errors import StoreError


@pytest.mark.parametrize("kind", ["file", "link", "dangling link", "FIFO", "directory"])
def test_what_lies_at_a_name_that_ends_in_new_is_not_touched(kind, tmp_path):
    path, other = tmp_path / "manifest.json", tmp_path / "manifest.json.new"
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    path.write_bytes(b"old")
    match kind:
        case "file":
            other.write_bytes(b"precious too")
        case "link":
            other.symlink_to(precious)
        case "dangling link":
            other.symlink_to(tmp_path / "nowhere")
        case "FIFO":
            os.mkfifo(other)
        case "directory":
            other.mkdir()
    before = os.lstat(other)
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.lstat(other) == before
    assert precious.read_bytes() == b"precious"
    assert kind != "file" or other.read_bytes() == b"precious too"
    assert sorted(tmp_path.iterdir()) == sorted([path, other, precious])


def test_what_a_process_that_was_cut_off_left_goes_with_the_next_one(tmp_path):
    path = tmp_path / "record.json"
    mine = tmp_path / "record.json.0123456789abcdef.new"
    mine.write_bytes(b"half of it")
    others = [tmp_path / f"{stem}.new" for stem in ("record.json", "record.json.1", "a.json.0" * 2)]
    linked = tmp_path / "record.json.fedcba9876543210.new"
    linked.symlink_to(mine)
    for other in others:
        other.write_bytes(b"another's")
    assert partials(path) == [mine]
    replace_file(path, b"whole")
    assert sorted(tmp_path.iterdir()) == sorted([path, linked, *others])
    assert partials(tmp_path / "nowhere" / "u") == []


def test_a_file_that_could_not_be_replaced_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "manifest.json"
    path.mkdir()
    with pytest.raises(StoreError, match="cannot replace the file"):
        replace_file(path, b"new")
    assert [*tmp_path.iterdir()] == [path]
