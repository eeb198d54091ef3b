"""Fields as pictures, sampled from their files plane by plane without loading them.

matplotlib and Pillow are imported inside the functions that need them: they take more memory than a
small run may use, so pictures are made in a process of their own, after the run.
"""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import StoreError, UsageError
from outgrid.formats.axis import Axis
from outgrid.formats.npy import map_npy, read_header
from outgrid.regular import own
from outgrid.storage import Joined

if TYPE_CHECKING:
    from matplotlib.colors import Normalize

__all__ = [
    "Pixels",
    "colour_scale",
    "draw_field",
    "draw_frames",
    "draw_plane",
    "draw_reductions",
    "draw_traces",
    "field_figure",
    "new_axes",
    "sample_plane",
    "save_figure",
    "write_animation",
]

Floats = NDArray[np.floating[Any]]
Pixels = NDArray[np.uint8]
Window = tuple[slice, slice]
Shown = Path | Joined | Floats

MOST_LINES = 8  # receivers that are drawn as lines
MOST_POINTS = 1 << 16  # of a curve


def sample_plane(
    field: Shown,
    index: int | None = None,
    longest: int = 1024,
    window: Window | None = None,
) -> Floats:
    """Every n-th cell of a 2-D field, or of plane `index` of axis 0 of a 3-D one (default middle).

    n is the least that keeps both edges within `longest`; `window` cuts out (rows, columns) first.
    Of a file only the rows sampled are read. Raises UsageError for a file that is not a 2-D or 3-D
    .npy array or an index outside it.
    """
    array = _opened(field) if isinstance(field, Path) else field
    plane: Any = array
    if array.ndim == 3:
        plane = array[_plane_at(field, array.shape, index)]
    if window is not None:
        plane = plane[window]
    stride = -(-max(plane.shape) // longest)
    return np.array(plane[::stride, ::stride])


def _opened(path: Path) -> Floats:
    try:
        read_header(path)
    except StoreError as error:
        raise UsageError(f"cannot draw {path}: {error}") from error
    field = map_npy(path)
    if field.ndim not in (2, 3) or 0 in field.shape:
        raise UsageError(f"{path} has shape {field.shape}; a picture needs 2 or 3 filled axes")
    return field


def _plane_at(field: Shown, shape: tuple[int, ...], index: int | None) -> int:
    """The plane of that index, or the one in the middle."""
    middle = shape[0] // 2 if index is None else index
    if not 0 <= middle < shape[0]:
        of = f", those of {field}" if isinstance(field, Path) else ""
        raise UsageError(f"plane must be within 0..{shape[0] - 1}{of}, not {middle}")
    return middle


def field_figure(
    field: Shown, name: str, axes: Sequence[Axis], units: str = "", index: int | None = None
) -> Any:
    """A figure of matplotlib of a field (see `sample_plane`), where its `axes` lie.

    That of a line is a curve.
    """
    if not isinstance(field, Path) and field.ndim == 1:
        along = axes[-1]
        label = f"{along.name} ({along.units})" if along.units else along.name
        return _curve(field, np.asarray(along.values(len(field))), (label, units or name), name)
    shape = read_header(field).shape if isinstance(field, Path) else field.shape
    plane, (down, across) = sample_plane(field, index), axes[-2:]
    title = name
    if len(shape) == 3:
        at = axes[0].values(shape[0])[_plane_at(field, shape, index)]
        title += f", {axes[0].name} = {at:g} {axes[0].units}".rstrip()
    ends = [
        (axis.origin - axis.spacing / 2, axis.origin + axis.spacing * (extent - 0.5))
        for axis, extent in ((across, shape[-1]), (down, shape[-2]))
    ]
    extent = (*ends[0], *ends[1][::-1])
    labels = [f"{axis.name} ({axis.units})" if axis.units else axis.name for axis in (across, down)]
    return _plane_figure(plane, title, extent, labels, units)


def draw_field(
    field: Shown,
    picture: Path,
    index: int | None = None,
    longest: int = 1024,
) -> None:
    """Draw `field` (see `sample_plane`) into the PNG file `picture`, its axes in cells.

    A line is drawn as a curve. One that is no file of its own is called as the picture.
    """
    if not isinstance(field, Path) and field.ndim == 1:
        title = picture.stem
        figure = _curve(field, np.arange(len(field)), ("x (cells)", title), title)
        save_figure(figure, picture)
        return
    plane = sample_plane(field, index, longest)
    shape = read_header(field).shape if isinstance(field, Path) else field.shape
    middle = shape[0] // 2 if index is None else index
    which = f", plane z = {middle} of {shape[0]}" if len(shape) == 3 else ""
    name = field.stem if isinstance(field, Path) else picture.stem
    draw_plane(plane, picture, f"{name}{which}", shape[-2:])


def draw_plane(
    plane: Floats, picture: Path, title: str, edges: Sequence[int], down: str = "y (cells)"
) -> None:
    """Draw an array (rows, columns) with its colour bar into the PNG file `picture`.

    `edges` are the extents (rows, columns) that the axes show, `down` is what rows count. Values
    of both signs get a diverging scale centred on 0; cells that are not numbers are grey.
    """
    extent = (0, edges[1], edges[0], 0)
    save_figure(_plane_figure(plane, title, extent, ("x (cells)", down)), picture)


def _plane_figure(
    plane: Floats,
    title: str,
    extent: tuple[float, ...],
    labels: Sequence[str],
    units: str = "",
) -> Any:
    left, right, bottom, top = extent
    figure, (axes,) = new_axes((9, min(12.0, max(2.0, 8 * abs((top - bottom) / (right - left))))))
    axes.set_facecolor("0.6")
    norm, colours = colour_scale(plane)
    image = axes.imshow(plane, norm=norm, cmap=colours, extent=extent, interpolation="nearest")
    axes.set(xlabel=labels[0], ylabel=labels[1])
    axes.set_title(title, parse_math=False)
    figure.colorbar(image, ax=axes, shrink=0.8, label=units)
    return figure


def _curve(field: Any, places: Any, labels: tuple[str, str], title: str) -> Any:
    """A figure of the values of a line, every n-th of very many."""
    figure, (axes,) = new_axes((9, 4))
    stride = -(-len(field) // MOST_POINTS)
    axes.plot(places[::stride], np.asarray(field[::stride]), lw=1)
    axes.set(xlabel=labels[0], ylabel=labels[1])
    axes.set_title(title, parse_math=False)
    return figure


def draw_frames(taken: Floats, picture: Path, title: str) -> None:
    """Draw up to six of the frames that a snapshot took, (taken, ..., rows, columns), on one scale.

    Of volumes the middle plane is drawn; lines of cells stand one below another. Raises
    UsageError for numbers of single cells.
    """
    if taken.ndim < 2 or 0 in taken.shape:
        raise UsageError(
            f"a snapshot of shape {taken.shape} cannot be drawn; it needs 2 or more axes"
        )
    if taken.ndim == 2:
        draw_plane(np.asarray(taken), picture, title, taken.shape, down="taken")
        return
    count = len(taken)
    chosen = sorted({round(n * (count - 1) / 5) for n in range(6)})
    stride = -(-max(taken.shape[-2:]) // 512)
    planes = [
        (frame[len(frame) // 2] if taken.ndim == 4 else frame)[::stride, ::stride]
        for frame in (taken[number] for number in chosen)
    ]
    norm, colours = colour_scale(np.stack(planes))
    columns = min(3, len(chosen))
    rows = -(-len(chosen) // columns)
    high = min(4.0, max(1.2, 3.0 * taken.shape[-2] / taken.shape[-1]))
    figure, every = new_axes((9, rows * high + 0.6), rows, columns)
    for axes in every[len(chosen) :]:
        axes.set_axis_off()
    images = [
        axes.imshow(plane, norm=norm, cmap=colours, interpolation="nearest")
        for plane, axes in zip(planes, every, strict=False)
    ]
    for number, axes in zip(chosen, every, strict=False):
        axes.set_title(f"{number + 1} of {count}", fontsize="small")
        axes.set(xticks=[], yticks=[])
    figure.colorbar(images[0], ax=every, shrink=0.8)
    figure.suptitle(title, parse_math=False)
    save_figure(figure, picture)


def draw_traces(traces: Floats, picture: Path) -> None:
    """Draw what receivers saw, (steps, receivers): up to eight as lines, more as a record of shots.

    Raises UsageError where no step was seen.
    """
    steps, receivers = traces.shape
    if not steps:
        raise UsageError("no step was made: receivers recorded nothing")
    figure, (axes,) = new_axes((9, 5))
    if receivers <= MOST_LINES:
        for number in range(receivers):
            axes.plot(range(1, steps + 1), traces[:, number], label=f"receiver {number}", lw=1)
        axes.legend(fontsize="small", frameon=False)
        axes.set(xlabel="step", ylabel="value")
    else:
        seen = np.abs(traces[np.isfinite(traces)])
        strongest = (np.percentile(seen, 99) if seen.size else 0.0) or 1.0
        extent = (-0.5, receivers - 0.5, steps + 0.5, 0.5)
        image = axes.imshow(
            traces, cmap="RdBu_r", vmin=-strongest, vmax=strongest, aspect="auto", extent=extent
        )
        axes.set(xlabel="receiver", ylabel="step")
        figure.colorbar(image, ax=axes, shrink=0.8)
    save_figure(figure, picture)


def draw_reductions(reductions: Mapping[str, Floats], picture: Path) -> None:
    """Draw each reduction, (steps,), over the steps; on a logarithmic axis where it falls or grows
    a hundredfold without a change of sign."""
    figure, every = new_axes((9, 2.4 * len(reductions) + 0.4), len(reductions))
    for (name, values), axes in zip(reductions.items(), every, strict=True):
        axes.plot(range(1, len(values) + 1), values, lw=1)
        positive = len(values) and values.min() > 0
        if positive and values.max() > 100 * values.min():
            axes.set_yscale("log")
        axes.set_ylabel(name)
    every[-1].set_xlabel("step")
    save_figure(figure, picture)


def new_axes(inches: tuple[float, float], rows: int = 1, columns: int = 1) -> tuple[Any, list[Any]]:
    """A figure that needs no screen, and its axes, row by row."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class Picture(Figure):
        """Shows itself in notebooks, also where nobody has asked for pyplot."""

        def _repr_png_(self) -> bytes:
            data = io.BytesIO()
            figure.savefig(data, dpi=100, format="png")
            return data.getvalue()

    # matplotlib's own types are incomplete.
    figure: Any = Picture(figsize=inches, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def save_figure(figure: Any, picture: Path) -> None:
    """Write a figure into the file ``picture``, in the format that its name ends in.

    Raises UsageError for a name that says none, StoreError where it is no regular file.
    """
    kind = picture.suffix.removeprefix(".")
    if kind not in figure.canvas.get_supported_filetypes():
        raise UsageError(
            f"cannot draw into {picture}: its name must end in a known format, such as .png"
        )
    with open(picture, "wb", opener=own) as file:
        figure.savefig(file, dpi=100, format=kind)


def write_animation(frames: Sequence[Pixels], path: Path, seconds_per_frame: float = 0.1) -> None:
    """Write RGB frames (rows, columns, 3) as a looping animation: .gif, or .png for an APNG."""
    from PIL import Image

    if not frames or path.suffix not in (".gif", ".png"):
        raise UsageError(
            f"cannot animate {len(frames)} frames to {path}: it must end in .gif or .png, and "
            "have at least 1 frame"
        )
    images = [Image.fromarray(frame) for frame in frames]
    if path.suffix == ".gif":
        # One palette for all frames, or the land would flicker while the wave passes.
        palette = Image.fromarray(np.concatenate(frames[:: -(-len(frames) // 4)])).quantize(255)
        images = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    images[0].save(
        path,
        save_all=True,
        append_images=images[1:],
        duration=round(1000 * seconds_per_frame),
        loop=0,
    )


def colour_scale(plane: Floats) -> "tuple[Normalize, str]":
    from matplotlib.colors import Normalize

    finite = plane[np.isfinite(plane)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if low < 0 < high:
        bound = max(-low, high)
        return Normalize(-bound, bound), "RdBu_r"
    return Normalize(low, high if high > low else low + 1), "viridis"
