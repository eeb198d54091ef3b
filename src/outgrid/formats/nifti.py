"""Volumes in NIfTI files, whose axes are those of the grid in the other order: z, y, x."""

from pathlib import Path
from typing import Any

import numpy as np

from outgrid.errors import UsageError
from outgrid.formats.input import InputFile, check_numbers
from outgrid.formats.packing import unpacked
from outgrid.formats.registry import library
from outgrid.formats.sink import Array, Output, Plain
from outgrid.formats.source import Gzipped, Source, Straight, decoding
from outgrid.regular import check_given

__all__ = ["create_output", "open_source"]

AXES = ("t", "z", "y", "x")


def open_source(file: InputFile) -> Source:
    """The volume of a file, its scale taken into account. Raises UsageError and StoreError."""
    nibabel: Any = library("nibabel", file, "image")
    check_given(file.path)
    with decoding(file.file):
        image = nibabel.load(file.path)
        stored = image.dataobj
    dtype = np.dtype(stored.dtype)
    check_numbers(file, dtype)
    shape = tuple(map(int, stored.shape[::-1]))
    dims = AXES[-len(shape) :] if len(shape) <= len(AXES) else ()
    scale = {"scale_factor": np.float64(stored.slope), "add_offset": np.float64(stored.inter)}
    packed = scale if (stored.slope, stored.inter) != (1.0, 0.0) else {}
    kind = Gzipped if file.path.lower().endswith(".gz") else Straight
    return unpacked(kind(file.file, shape, dtype, int(stored.offset), dims), packed, file)


def create_output(path: Path) -> Output:
    """A NIfTI-2 file that is not compressed. Raises UsageError for one that is to be."""
    nibabel: Any = library("nibabel", path.stem, "image")
    if ".gz" in path.suffixes:
        raise UsageError(f"{path.stem} cannot be compressed in pieces; write it as .nii")

    def head(array: Array) -> bytes:
        header, axes = nibabel.Nifti2Header(endianness="<"), array.axes[::-1]
        try:
            header.set_data_dtype(array.dtype)
            header.set_data_shape(array.shape[::-1])
            header.set_zooms([abs(axis.spacing) for axis in axes])  # the affine has the signs
        except nibabel.spatialimages.HeaderDataError as error:
            raise UsageError(
                f"NIfTI cannot store {array.name}, {array.dtype} of shape {array.shape}: {error}"
            ) from error
        affine = np.diag([*(*(axis.spacing for axis in axes), 1.0, 1.0)[:3], 1.0])
        affine[:3, 3] = (*(axis.origin for axis in axes), 0.0, 0.0)[:3]
        header.set_sform(affine, code="scanner")
        header["vox_offset"], header["magic"] = 544, b"n+2\0\r\n\032\n"
        return header.binaryblock.ljust(544, b"\0")

    return Plain(path, head)
