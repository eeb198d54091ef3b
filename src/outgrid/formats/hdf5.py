"""Data sets of HDF5 files. One that lies in one piece is read without the library."""

import os
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import UsageError
from outgrid.formats.axis import Axis
from outgrid.formats.input import InputFile, check_numbers, one_of
from outgrid.formats.packing import absent, unpacked
from outgrid.formats.registry import library
from outgrid.formats.sink import Array, Into, Output, Sink, Spans
from outgrid.formats.source import Coords, Sliced, Source, Straight, decoding, encoding, whole_axes
from outgrid.regular import check_given
from outgrid.units import BLOCK_BYTES

__all__ = ["Output", "create_output", "open_source"]

MOST_CHUNK_BYTES = 256 << 20
TIMES = ("step", "time")
META_BYTES = 512  # that the library sets aside for what describes them, each time
_NO_VARIABLE = "not a netCDF variable"  # what NetCDF 4 calls the scale of an axis without values
_CACHE_BYTES = 32 << 20  # of decoded chunks


def open_source(file: InputFile) -> Source:
    """The data set of that name, or the only one. Raises UsageError and StoreError."""
    h5py: Any = library("h5py", file, "hdf5")
    check_given(file.path)
    with decoding(file.file):
        opened = h5py.File(file.path, "r", rdcc_nbytes=_CACHE_BYTES)
    try:
        with decoding(file.file):
            return _source(h5py, opened, file)
    except BaseException:
        opened.close()
        raise


def _source(h5py: Any, opened: Any, file: InputFile) -> Source:
    names, fields = list[str](), list[str]()

    def note(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            names.append(name)
            fields.extend([] if item.is_scale else [name])

    opened.visititems(note)
    array = opened[one_of(file, names, fields)]
    check_numbers(file, array.dtype)
    if array.external or array.is_virtual:
        raise UsageError(
            f"{file} stores its data in other files; copy it into one file, for example with "
            "h5repack"
        )
    if array.chunks is not None:
        _check_filters(h5py, array, file)
    dims, coords, attributes = _dims(array), _coords(array), dict(array.attrs)
    chunk = tuple(map(int, array.chunks or whole_axes(array.shape, 1)))
    nbytes = prod(chunk) * array.dtype.itemsize
    if nbytes > MOST_CHUNK_BYTES:
        raise UsageError(
            f"{file} has chunks of {nbytes} bytes, each of which is decoded at once; at most "
            f"{MOST_CHUNK_BYTES} are; store it in smaller chunks"
        )
    unwritten = _absent(array, file)
    offset = array.id.get_offset() if array.chunks is None else None
    if offset is not None and _is_stored_so(h5py, array):
        shape, dtype = tuple(array.shape), np.dtype(array.dtype)
        opened.close()
        source: Source = Straight(file.file, shape, dtype, offset, dims, coords=coords)
    else:
        source = Sliced(file.file, array, chunk, opened.close, dims, coords)
    return unpacked(source, attributes, file, unwritten)


def _is_stored_so(h5py: Any, array: Any) -> bool:
    """Whether the bytes in the file are the numbers that the library gives: some it converts."""
    same = array.id.get_type() == h5py.h5t.py_create(array.dtype)
    return same and array.id.get_storage_size() == array.size * array.dtype.itemsize


def _absent(array: Any, file: InputFile) -> tuple[Any, ...]:
    """What values are that nobody has written."""
    if array.chunks is None:
        there, whole = int(array.id.get_storage_size() > 0), int(array.size > 0)
    else:
        cells = zip(array.shape, array.chunks, strict=True)
        there = array.id.get_num_chunks()
        whole = prod(-(-extent // chunk) for extent, chunk in cells)
    return absent(there, whole, array.fillvalue, file)


def _check_filters(h5py: Any, array: Any, file: InputFile) -> None:
    """Load the codecs that HDF5 itself does not have, where chunks were written with one."""
    made = array.id.get_create_plist()
    codes = [made.get_filter(number)[0] for number in range(made.get_nfilters())]
    if not all(h5py.h5z.filter_avail(code) for code in codes):
        library("hdf5plugin", file, "hdf5")


def _dims(array: Any) -> tuple[str, ...]:
    """Names of the axes, where the scales of all of them have one."""
    scales = [dim[0].name.rpartition("/")[2] if len(dim) else dim.label for dim in array.dims]
    return tuple(scales) if all(scales) else ()


def _coords(array: Any) -> Coords:
    """Where cells lie along the axes whose scales say so, and are no mere names of axes."""
    scales = ((dim[0], extent) for dim, extent in zip(array.dims, array.shape, strict=True) if dim)
    return {
        scale.name.rpartition("/")[2]: scale[...]
        for scale, extent in scales
        if scale.shape == (extent,) and _NO_VARIABLE not in str(scale.attrs.get("NAME", ""))
    }


def create_output(path: Path) -> Output:
    """An HDF5 file of data sets whose axes have scales, which NetCDF 4 readers understand as well.

    A file whose name ends in .vtkhdf is one of VTK, whose image data ParaView opens.
    """
    return Hdf5Output(path, image=".vtkhdf" in path.name.lower())


class Hdf5Output:
    """A file being made."""

    def __init__(self, path: Path, *, image: bool) -> None:
        self.h5py: Any = library("h5py", path.stem, "hdf5")
        self.path, self.image = path, image
        self._told: list[tuple[Any, dict[str, Any]]] = []
        self._grid: tuple[tuple[Axis, ...], tuple[int, ...]] = (), ()
        self._moments: NDArray[Any] = np.empty(0)
        self._complete = False
        with encoding(path):
            self.file = self.h5py.File(
                path,
                "x",
                libver="v108",  # attributes of any length
                alignment_threshold=BLOCK_BYTES,
                alignment_interval=BLOCK_BYTES,
                meta_block_size=META_BYTES,
            )

    def array(self, array: Array) -> Sink:
        """A data set, in one piece unless chunks are asked for.

        Its place in the file is set aside, and nothing is written there: what is in one piece is
        written without the library.
        """
        if array.levels:
            raise UsageError("HDF5 files cannot hold levels; leave levels out, or export to Zarr")
        with encoding(self.path):
            made = self._made(self._image(array) if self.image else self.file, array)
            if self.image:
                self._steps(array)
            offset = made.id.get_offset() if made.chunks is None else None
        if offset is None:
            into = _Frame(made) if made.ndim < len(array.shape) else made
            return Into(self.path, into, array.chunks or whole_axes(array.shape, 1))
        return Spans(self.path, array.shape, array.dtype, offset)

    def _made(self, where: Any, array: Array) -> Any:
        stored, shape = self._stored(array) or {"dcpl": self._set_aside()}, array.shape
        if self.image and len(_times(array)) == 1:
            # Where there is one step VTK takes no axis for it.
            shape = shape[1:]
            stored |= {"chunks": stored["chunks"][1:]} if "chunks" in stored else {}
        made = where.create_dataset(array.name, shape, array.dtype, **stored)
        self._told.append((made, array.attributes))
        if not self.image:
            self._scales(made, array)
            self._along(made, array)
        return made

    def _stored(self, array: Array) -> dict[str, Any]:
        codec = array.codec
        codec.refuse(("none", "gzip", "lzf", "zstd"), "HDF5")
        if codec.name == "none":
            return {"chunks": array.chunks} if array.chunks else {}
        chunks = array.chunks or whole_axes(array.shape, 2)
        stored: dict[str, Any] = {"chunks": tuple(map(min, chunks, array.shape)), "shuffle": True}
        if codec.name == "zstd":
            hdf5plugin: Any = library("hdf5plugin", self.path.stem, "hdf5")
            level = 3 if codec.level is None else codec.level
            return {"chunks": stored["chunks"], **hdf5plugin.Zstd(clevel=level)}
        if codec.level is not None:
            stored["compression_opts"] = codec.level
        return stored | {"compression": codec.name}

    def _set_aside(self) -> Any:
        """How a data set is made whose place is set aside at once, and filled with nothing."""
        h5d, made = self.h5py.h5d, self.h5py.h5p.create(self.h5py.h5p.DATASET_CREATE)
        made.set_layout(h5d.CONTIGUOUS)
        made.set_alloc_time(h5d.ALLOC_TIME_EARLY)
        made.set_fill_time(h5d.FILL_TIME_NEVER)
        return made

    def _scales(self, made: Any, array: Array) -> None:
        """Attach to each axis where its cells lie."""
        for number, (axis, extent) in enumerate(zip(array.axes, array.shape, strict=True)):
            if axis.name not in self.file:
                self.file[axis.name] = axis.values(extent)
                self.file[axis.name].make_scale(axis.name)
                for key, value in axis.attributes.items():
                    self.file[axis.name].attrs[key] = value
            if np.array_equal(self.file[axis.name][...], axis.values(extent)):
                made.dims[number].attach_scale(self.file[axis.name])
            made.dims[number].label = axis.name

    def _along(self, made: Any, array: Array) -> None:
        """Store what is along an axis, as auxiliary coordinates (CF 5)."""
        for coordinate in array.along:
            if coordinate.name not in self.file:
                beside = self.file.create_dataset(coordinate.name, data=np.array(coordinate.values))
                beside.dims[0].attach_scale(self.file[coordinate.dim])
                for key, value in coordinate.attributes.items():
                    beside.attrs[key] = value
        if array.along:
            made.attrs["coordinates"] = " ".join(coordinate.name for coordinate in array.along)

    def _image(self, array: Array) -> Any:
        """The group of point data of VTK's image data; one grid in a file, at one time or at all.

        Snapshots are steps of time. VTK reads these where there are two or more: one alone is a
        grid at no time.
        """
        axes = array.axes[:0:-1] if _is_timed(array) else array.axes[::-1]
        extents = array.shape[::-1][: len(axes)]
        if len(extents) > 3:
            raise UsageError(
                f"{array.name} has {len(axes)} axes; VTK's image data have 3, and time"
            )
        if "VTKHDF" in self.file:
            root = self.file["VTKHDF"]
            if (axes, extents) != self._grid:
                raise UsageError(
                    f"{array.name} lies on other cells ({_cells(axes, extents)}) than the arrays "
                    f"before it ({_cells(*self._grid)}), and VTK's image data have one grid for "
                    f"all arrays; write it to a separate file, --field {array.name}"
                )
            if not np.array_equal(self._moments, _times(array)):
                raise UsageError(
                    f"{array.name} has other times than the arrays before it; write it to a "
                    f"separate file, --field {array.name}"
                )
            return root["PointData"]
        self._grid, self._moments = (axes, extents), _times(array)
        root = self.file.create_group("VTKHDF")
        root.attrs["Version"] = np.array([1, 0], np.int64)  # which older readers know as well
        root.attrs.create("Type", np.bytes_("ImageData"))
        last = [*(extent - 1 for extent in extents), 0, 0][:3]
        root.attrs["WholeExtent"] = np.array([(0, cell) for cell in last], np.int64).ravel()
        root.attrs["Origin"] = np.array([*(axis.origin for axis in axes), 0.0, 0.0][:3])
        root.attrs["Spacing"] = np.array((*(axis.spacing for axis in axes), 1.0, 1.0)[:3])
        root.attrs["Direction"] = np.eye(3).ravel()
        return root.create_group("PointData")

    def _steps(self, array: Array) -> None:
        """The times of an image, behind its first array, which begins at the first block."""
        times, root = self._moments, self.file["VTKHDF"]
        if len(times) > 1 and "Steps" not in root:
            root.attrs["Version"] = np.array([2, 0], np.int64)
            moments = root.create_group("Steps")
            moments.attrs["NSteps"] = len(times)
            moments["Values"] = times

    def commit(self) -> None:
        """Write what the library still holds."""
        with encoding(self.path):
            # Behind all arrays, whose places do not depend on what is told of them.
            for made, attributes in self._told:
                for key, value in attributes.items():
                    made.attrs[key] = value
            if not self.image:  # behind the arrays: the first one begins at the first block
                self.file.attrs["Conventions"] = "CF-1.8"
            self.file.flush()
        self._complete = True

    def close(self) -> None:
        """Close the file, which is empty unless it is complete.

        What the library holds still goes there: it needs room on a disk that is full.
        """
        with encoding(self.path):
            if not self._complete:
                os.truncate(self.path, 0)
            self.file.close()


class _Frame:
    """The only frame of a data set that has no axis of frames."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def __setitem__(self, box: tuple[slice, ...], values: NDArray[Any]) -> None:
        self._made[box[1:]] = values[0]


def _cells(axes: tuple[Axis, ...], extents: tuple[int, ...]) -> str:
    """The grid of an image in words, the first axis of the array first."""
    each = zip(axes, extents, strict=True)
    return ", ".join(
        f"{extent} along {axis.name} from {axis.origin:g} by {axis.spacing:g}"
        for axis, extent in [*each][::-1]
    )


def _times(array: Array) -> NDArray[Any]:
    """When the steps of an array of snapshots are; nothing for one that is at no time."""
    return array.axes[0].values(array.shape[0]) if _is_timed(array) else np.empty(0)


def _is_timed(array: Array) -> bool:
    """Whether its first axis is one of steps or times, as that of snapshots is."""
    return len(array.shape) > 3 or array.axes[0].name in TIMES
