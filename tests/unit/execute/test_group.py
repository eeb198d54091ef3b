"""What `ranks.json` says of the ranks of a run."""

import json

import pytest

from outgrid.errors import UsageError
from outgrid.runs.group import GROUP_NAME, Group, read_group, write_group

GROUP = Group(
    version="1",
    problem={},
    plane_bounds=(0, 9, 20),
    row_bounds=(0, 4),
    folders=("rank.0", "rank.1"),
    depths=(2, 4),
    seams=True,
)


def test_the_file_says_whether_seams_are_left(tmp_path):
    write_group(tmp_path, GROUP)
    assert read_group(tmp_path) == GROUP


def test_a_file_of_a_version_that_knew_halos_alone_is_read(tmp_path):
    write_group(tmp_path, GROUP)
    path = tmp_path / GROUP_NAME
    found = json.loads(path.read_text())
    del found["seams"]
    path.write_text(json.dumps(found))
    group = read_group(tmp_path)
    assert group is not None
    assert not group.seams


def test_a_file_with_more_than_is_known_is_refused(tmp_path):
    write_group(tmp_path, GROUP)
    path = tmp_path / GROUP_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | {"ghosts": True}))
    with pytest.raises(UsageError, match="does not describe the ranks of a run"):
        read_group(tmp_path)
