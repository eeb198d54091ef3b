"""Variables of NetCDF files. Those of version 4 are HDF5, older ones have their own format."""

from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from outgrid.formats import hdf5
from outgrid.formats.input import InputFile, check_numbers, one_of
from outgrid.formats.packing import ATTRIBUTES, unpacked
from outgrid.formats.registry import library
from outgrid.formats.sink import Output
from outgrid.formats.source import Source, Straight, decoding, reading
from outgrid.regular import given

__all__ = ["create_output", "open_source"]


def open_source(file: InputFile) -> Source:
    """The variable of that name, or the only one that is no coordinate. See `formats.hdf5`."""
    with reading(file.file), open(file.path, "rb", opener=given) as opened:
        classic = opened.read(3) == b"CDF"
    return _classic(file) if classic else hdf5.open_source(file)


def _classic(file: InputFile) -> Source:
    netcdf_file: Any = library("scipy.io", file, "hdf5").netcdf_file
    with decoding(file.file):
        opened = netcdf_file(file.path, "r", mmap=True)
    fields = [name for name in opened.variables if name not in opened.dimensions]
    variable = opened.variables[one_of(file, [*opened.variables], fields)]
    array, dims = variable.data, tuple(map(str, variable.dimensions))
    check_numbers(file, array.dtype)
    attributes = {key: getattr(variable, key) for key in ATTRIBUTES if hasattr(variable, key)}
    # Variables of records take turns in the file: other ones lie between two of one.
    pitch_bytes = 0 if array.flags.c_contiguous else array.strides[0]
    coords = {
        dim: np.array(opened.variables[dim].data)
        for dim, extent in zip(dims, array.shape, strict=True)
        if dim in opened.variables and opened.variables[dim].data.shape == (extent,)
    }
    place = array.shape, np.dtype(array.dtype), _offset(array), dims, pitch_bytes, coords
    del array, variable
    opened.variables.clear()  # they look at its memory
    opened.close()
    return unpacked(Straight(file.file, *place), attributes, file)


def _offset(array: NDArray[Any]) -> int:
    """Where an array begins in the file that it is mapped from."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = cast("Any", base).base
    start = np.frombuffer(base, np.uint8).__array_interface__["data"][0]
    return array.__array_interface__["data"][0] - start


def create_output(path: Path) -> Output:
    """A NetCDF 4 file, which is an HDF5 file whose axes have scales."""
    return hdf5.Hdf5Output(path, image=False)
