"""The public suite of formats, passed by those of this package and by one of another."""

import sys
from types import ModuleType

import numpy as np
import pytest

from outgrid.errors import StoreError
from outgrid.formats import Format, Straight, registry
from outgrid.formats.axis import Axis
from outgrid.formats.sink import Array, Plain
from outgrid.testing.formats import FormatSuite


class TestNumPy(FormatSuite):
    file = "u.npy"


class TestRaw(FormatSuite):
    file = "u.raw"


class TestHdf5(FormatSuite):
    file = "u.h5"


class TestVtk(FormatSuite):
    file = "u.vtkhdf"
    dtypes = ("float32",)


class TestNetCdf(FormatSuite):
    file = "u.nc"
    dtypes = ("float32",)


class TestZarr(FormatSuite):
    file = "u.zarr"


class TestTiff(FormatSuite):
    file = "u.tif"


class TestNifti(FormatSuite):
    file = "u.nii"


class TestSegy(FormatSuite):
    file = "u.segy"
    shapes = ((5, 9), (200, 1000))
    dtypes = ("float32",)
    dims = ("receiver", "time")

    def array(self, values):
        axes = Axis("receiver"), Axis("time", spacing=0.002, units="s")
        return Array("traces", values.shape, values.dtype, axes)


class TestOfAnotherPackage(FormatSuite):
    """A format that is a head of three lines, and the numbers."""

    file = "u.lines"

    @pytest.fixture(autouse=True)
    def known(self, monkeypatch):
        module = ModuleType("lines_of_others")
        module.open_source, module.create_output = open_lines, lambda path: Plain(path, head)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        kind = Format("lines", (".lines",), module.__name__)
        known = registry.formats() | dict.fromkeys(kind.suffixes, kind)
        monkeypatch.setattr(registry, "formats", lambda: known)


def head(array):
    shape = " ".join(map(str, array.shape))
    return f"lines\n{array.dtype.str}\n{shape}\n".encode()


def open_lines(file):
    with file.file.open("rb") as opened:
        if opened.readline() != b"lines\n":
            raise StoreError("it has no lines", path=file.path)
        dtype = np.dtype(opened.readline().decode().strip())
        shape = tuple(map(int, opened.readline().split()))
        offset = opened.tell()
        size = opened.seek(0, 2)
    if size != offset + np.prod(shape) * dtype.itemsize:
        raise StoreError("it has other numbers than it says", path=file.path)
    return Straight(file.file, shape, dtype, offset)


def test_every_format_passes_it():
    tried = {
        registry.format_of(suite.file).name
        for suite in FormatSuite.__subclasses__()
        if "lines" not in suite.file
    }
    assert tried == {kind.name for kind in registry.BUILT_IN}
