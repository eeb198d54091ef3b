"""The formats that are known, by the suffixes of their files. A format is a module and a line here.

Others add theirs by an entry point of the group `outgrid.formats` that gives a `Format`.
"""

import importlib
import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

import msgspec

from outgrid.errors import UsageError

if TYPE_CHECKING:
    from outgrid.formats.input import InputFile
    from outgrid.formats.sink import Output
    from outgrid.formats.source import Source

__all__ = ["BUILT_IN", "Format", "format_of", "formats", "library", "suffixes", "written"]


class Format(msgspec.Struct, frozen=True):
    """A format of files: what they are called, and the module that opens them.

    `module` has a function `open_source(file: InputFile) -> Source`. `extra` is the extra of this
    package that brings the libraries it needs. Files of a `named` format hold arrays with names,
    those of a `bare` one say neither shape nor type. Its libraries take `library_bytes` of memory,
    as far as that was measured. One that `writes` has a function
    `create_output(path: Path) -> Output`; a run may leave its results as a file of one that is
    `laid_out`, whose arrays lie in one piece each at places that its sinks tell.
    """

    name: str
    suffixes: tuple[str, ...]
    module: str
    extra: str = ""
    named: bool = False
    bare: bool = False
    library_bytes: int = 0
    writes: bool = True
    laid_out: bool = False

    def open_source(self, file: "InputFile") -> "Source":
        """The array that `file` stands for. Raises UsageError and StoreError."""
        opener = cast(
            "Callable[[InputFile], Source]", importlib.import_module(self.module).open_source
        )
        return opener(file)

    def create_output(self, path: Path) -> "Output":
        """A new file of the format. Raises UsageError where it is only read, StoreError."""
        if not self.writes:
            raise UsageError(f"{path.stem}: {self.name} can be read but not written; {written()}")
        create = importlib.import_module(self.module).create_output
        return cast("Callable[[Path], Output]", create)(path)


BUILT_IN = (
    Format("NumPy", (".npy",), "outgrid.formats.npy"),
    Format("raw numbers", (".raw", ".bin"), "outgrid.formats.raw", bare=True),
    Format(
        "HDF5",
        (".h5", ".hdf5", ".vtkhdf"),
        "outgrid.formats.hdf5",
        "hdf5",
        named=True,
        library_bytes=96 << 20,
        laid_out=True,
    ),
    Format(
        "NetCDF",
        (".nc", ".nc4", ".cdf"),
        "outgrid.formats.netcdf",
        "hdf5",
        named=True,
        library_bytes=96 << 20,
        laid_out=True,
    ),
    Format("Zarr", (".zarr",), "outgrid.formats.zarr", "zarr", named=True, library_bytes=64 << 20),
    Format("TIFF", (".tif", ".tiff"), "outgrid.formats.tiff", "image", library_bytes=64 << 20),
    Format("NIfTI", (".nii", ".nii.gz"), "outgrid.formats.nifti", "image", library_bytes=32 << 20),
    Format(
        "SEG-Y",
        (".sgy", ".segy"),
        "outgrid.formats.segy",
        "seismic",
        library_bytes=16 << 20,
    ),
)
GROUP = "outgrid.formats"


@cache
def formats() -> dict[str, Format]:
    """All formats, by suffix; those of other packages last."""
    from importlib.metadata import entry_points  # slow to load, and needed for text alone

    others = [entry.load() for entry in entry_points(group=GROUP)]
    known: dict[str, Format] = {}
    for kind in (*BUILT_IN, *others):
        known |= {suffix: kind for suffix in kind.suffixes if suffix not in known}
    return known


def suffixes() -> tuple[str, ...]:
    """Those of all formats."""
    return tuple(formats())


def written() -> str:
    """Which files are written, in words."""
    known = (suffix for suffix, kind in formats().items() if kind.writes)
    return f"formats for writing are {', '.join(known)}"


def format_of(path: str) -> Format:
    """The format that a path ends like; it must be one."""
    fitting = [suffix for suffix in suffixes() if path.lower().endswith(suffix)]
    return formats()[max(fitting, key=len)]


def is_laid_out(path: str) -> bool:
    """Whether a run may leave its results as a file that is called so."""
    return path.lower().endswith(suffixes()) and format_of(path).laid_out


def check_library(kind: Format, file: object) -> None:
    """Raise UsageError where what writes files of a format is not there; loads nothing."""
    if kind.laid_out and importlib.util.find_spec("h5py") is None:
        raise UsageError(f"{file} is written with h5py; pip install 'outgrid[{kind.extra}]'")


def library(name: str, file: object, extra: str) -> ModuleType:
    """A library that reads a format. Raises UsageError, with how to get it, if it is not there."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(
            f"{file} is read with {name.partition('.')[0]}, which cannot be imported ({error}); "
            f"pip install 'outgrid[{extra}]'"
        ) from error
