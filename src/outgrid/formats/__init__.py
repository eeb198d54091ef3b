"""Files of numbers that others made, or will read: a module for each format."""

from itertools import permutations
from math import prod

from outgrid.errors import UsageError
from outgrid.formats.input import InputFile
from outgrid.formats.registry import Format, formats
from outgrid.formats.source import Ahead, Box, Gzipped, Sliced, Source, Straight, boxes
from outgrid.formats.views import Picked, Resampled, Transposed

__all__ = [
    "Ahead",
    "Box",
    "Format",
    "Gzipped",
    "InputFile",
    "Sliced",
    "Source",
    "Straight",
    "boxes",
    "formats",
    "open_file",
    "open_input",
]


def open_input(file: InputFile, shape: tuple[int, ...]) -> Source:
    """The array that an input is for a grid of `shape`, its axes in the order of the grid.

    Raises UsageError for what is not in the file, or of another shape, StoreError for what cannot
    be read.
    """
    source = _unfolded(file)
    try:
        _check_axes(source, file, shape)
        return _onto(_turned(_picked(source, file), file), file, shape)
    except BaseException:
        source.close()
        raise


def open_file(file: InputFile) -> Source:
    """The array that an input is, whatever its shape. Raises UsageError and StoreError."""
    source = _unfolded(file)
    try:
        if file.interp:
            raise UsageError(f"{file} cannot be interpolated; leave interp out")
        return _turned(_picked(source, file), file)
    except BaseException:
        source.close()
        raise


def _unfolded(file: InputFile) -> Source:
    source = file.format.open_source(file)
    if not source.shape:
        source.close()
        raise UsageError(
            f"{file} holds a single number, of shape (), and no array; store it with an axis, as "
            "numpy.reshape(number, 1) does"
        )
    axes = tuple(range(len(source.shape)))
    return Transposed(source, axes[::-1]) if file.order == "F" else source


def _check_axes(source: Source, file: InputFile, shape: tuple[int, ...]) -> None:
    more = len(source.shape) - len(shape)
    if more < 0 or len(file.index) != more:
        wanted = f"give index={(0,) * more}, or other indices" if more > 0 else "leave index out"
        raise UsageError(
            f"{file} has shape {_spelled(source)}, the field has {shape}"
            + (f"; {wanted}" if more > 0 or file.index else "")
        )


def _picked(source: Source, file: InputFile) -> Source:
    if len(file.index) >= len(source.shape):
        raise UsageError(f"index {file.index} removes all axes of {file}, {_spelled(source)}")
    for number, extent in zip(file.index, source.shape, strict=False):
        if not 0 <= number < extent:
            raise UsageError(
                f"index {file.index} of {file} is outside of {_spelled(source)}; indices begin at 0"
            )
    return Picked(source, file.index) if file.index else source


def _turned(source: Source, file: InputFile) -> Source:
    if not file.transpose:
        return source
    if len(file.transpose) != len(source.shape):
        raise UsageError(
            f"transpose={file.transpose} of {file} has {len(file.transpose)} axes, the array "
            f"{len(source.shape)}"
        )
    return Transposed(source, file.transpose)


def _onto(source: Source, file: InputFile, shape: tuple[int, ...]) -> Source:
    if source.shape == shape and not file.interp:
        return source
    if file.interp:
        if not all(source.shape):
            raise UsageError(
                f"{file} has shape {source.shape}, and its dtype cannot be interpolated"
            )
        return Resampled(source, shape)
    if sorted(source.shape) == sorted(shape):
        axes = next(
            axes
            for axes in permutations(range(len(shape)))
            if tuple(source.shape[axis] for axis in axes) == shape
        )
        pieces = prod(source.shape[:-1])
        fix = f"transpose={axes}) would transpose it, reading {pieces} rows one by one"
    else:
        fix = 'interp="linear") interpolates'
    raise UsageError(
        f"{file} has shape {_spelled(source)}; the field has {shape}; InputFile(..., {fix}"
    )


def _spelled(source: Source) -> str:
    """The shape, with the names of the axes that have one."""
    return f"{source.shape}" + (f" of {', '.join(source.dims)}" if source.dims else "")
