"""Formats that other packages bring."""

import numpy as np
import pytest

import outgrid as og
from outgrid.errors import DefinitionError
from outgrid.formats import registry

MODULE = """
import numpy as np

from outgrid.formats import Format, Straight
from outgrid.formats.sink import Plain

MINE = Format("mine", (".mine", ".npy"), "my_format")

def open_source(file):
    return Straight(file.file, (6, 7), np.dtype("<f8"), 3)

def create_output(path):
    return Plain(path, lambda _: b"abc")
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package with an entry point, where Python looks for packages."""
    (tmp_path / "my_format.py").write_text(MODULE)
    about = tmp_path / "my_format-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my_format\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[outgrid.formats]\nmine = my_format:MINE\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry.formats.cache_clear()
    yield tmp_path
    registry.formats.cache_clear()


def test_a_format_of_another_package_is_written_and_read(installed):
    values = np.arange(42.0).reshape(6, 7)
    np.save(installed / "u.npy", values)
    exported = og.convert(og.InputFile(str(installed / "u.npy")), installed / "u.mine")
    assert (installed / "u.mine").read_bytes() == b"abc" + values.tobytes()
    assert exported.nbytes == values.nbytes
    assert registry.format_of("u.npy").name != "mine"  # which is ours

    initial = {"u": str(installed / "u.mine")}
    problem = og.Problem("heat5", (6, 7), "float64", 0, parameters={"k": 0.1}, initial=initial)
    result = og.run(problem, memory="300 MiB", out=installed / "r")
    np.testing.assert_array_equal(result["u"], values)


def test_without_the_package_it_is_not_known():
    with pytest.raises(DefinitionError, match=r"'\.mine'"):
        og.InputFile("u.mine")
