"""The wave over the shaded relief of land and sea floor, as a picture and as an animation."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.report.picture import Window, sample_plane, write_animation
from scene import HEIGHT_METRES, REST_METRES, Scene
from seafloor import SeaFloor

__all__ = ["draw_animation", "draw_picture"]

Floats = NDArray[np.floating[Any]]
Pixels = NDArray[np.uint8]

# The surface is drawn on a scale of this many metres, and hides what is below it from a share on.
FULL_COLOUR_METRES = 0.6 * HEIGHT_METRES
OPAQUE_SHARE = 0.15
SURFACE_COLOURS = "RdBu_r"
LAND_COLOURS, HIGHEST_METRES = ("#3f6b3c", "#7f9a5b", "#b9a26c", "#9c7a55", "#f4f2ee"), 2000.0
SEA_COLOURS, DEEPEST_METRES = ("#12365e", "#2b6ca3", "#6aa9cf", "#bfe0ec"), 450.0
# Slopes are drawn steeper than they are: the data resolve two kilometres.
EXAGGERATION = 4.0

ZOOM = 4
PANEL_EDGE = 700
FRAME_SIZE = (640, 480)


def draw_picture(
    scene: Scene, floor: SeaFloor, surface: Path, seconds: float, picture: Path
) -> None:
    """Draw the .npy file `surface` as it is `seconds` after the start: whole, and enlarged."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    # matplotlib's own types are incomplete.
    figure: Any = Figure(figsize=(12.4, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    region, enlarged = figure.subplots(1, 2)
    near = _window_near_source(scene)
    for axes, window in ((region, _whole(scene)), (enlarged, near)):
        shown = sample_plane(surface, longest=PANEL_EDGE, window=window)
        colours = _blend(_relief(scene, floor, window, shown.shape), shown)
        axes.imshow(colours, extent=_extent_kilometres(scene, window), interpolation="bilinear")
        axes.set_xlabel("km")
    left, right, bottom, top = _extent_kilometres(scene, near)
    outline = Rectangle((left, bottom), right - left, top - bottom, fill=False, color="black")
    region.add_patch(outline)
    region.set_title(f"Strait of Georgia, {scene.columns} x {scene.region.rows} cells")
    enlarged.set_title(f"{seconds:.0f} s after the slip")
    scale = ScalarMappable(Normalize(-FULL_COLOUR_METRES, FULL_COLOUR_METRES), SURFACE_COLOURS)
    figure.colorbar(scale, ax=enlarged, shrink=0.85, label="surface above rest (m)")
    figure.savefig(picture, dpi=80)


def draw_animation(scene: Scene, floor: SeaFloor, kept: Path, animation: Path) -> None:
    """Animate the frames (n, rows, columns) of the whole region in `kept` around the source."""
    from PIL import Image

    frames = np.load(kept, mmap_mode="r", allow_pickle=False)
    window = _window_near_source(scene)
    rows, columns = (
        slice(round(part.start * pixels / cells), round(part.stop * pixels / cells))
        for part, pixels, cells in zip(
            window, frames.shape[1:], (scene.region.rows, scene.columns), strict=True
        )
    )
    width, height = FRAME_SIZE
    relief = _relief(scene, floor, window, (height, width))

    def colours(frame: Floats) -> Pixels:
        shown = Image.fromarray(np.ascontiguousarray(frame[rows, columns], np.float32))
        return _blend(relief, np.asarray(shown.resize(FRAME_SIZE, Image.Resampling.BICUBIC)))

    write_animation([colours(frame) for frame in frames], animation, seconds_per_frame=0.15)


def _whole(scene: Scene) -> Window:
    return slice(0, scene.region.rows), slice(0, scene.columns)


def _window_near_source(scene: Scene) -> Window:
    """A `ZOOM`-th of the region in each direction, around the source."""

    def around(middle: float, cells: int) -> slice:
        length = cells // ZOOM
        first = min(max(0, round(middle) - length // 2), cells - length)
        return slice(first, first + length)

    row, column = scene.source
    return around(row, scene.region.rows), around(column, scene.columns)


def _extent_kilometres(scene: Scene, window: Window) -> tuple[float, float, float, float]:
    """Left, right, bottom and top of `window`, from the south-western corner of the region."""
    rows, columns = window
    kilometres = scene.region.cell_metres / 1000
    bottom, top = scene.region.rows - rows.stop, scene.region.rows - rows.start
    return (
        columns.start * kilometres,
        columns.stop * kilometres,
        bottom * kilometres,
        top * kilometres,
    )


def _relief(scene: Scene, floor: SeaFloor, window: Window, shape: tuple[int, ...]) -> Floats:
    """Shaded colours (rows, columns, 3) between 0 and 1 of land and sea floor in `window`."""
    from matplotlib.colors import LightSource, LinearSegmentedColormap

    rows, columns = (
        np.linspace(float(part.start), float(part.stop) - 1, extent)
        for part, extent in zip(window, shape, strict=True)
    )
    heights = floor.sample(scene.region, rows, columns)
    land: Any = LinearSegmentedColormap.from_list("land", LAND_COLOURS)
    sea: Any = LinearSegmentedColormap.from_list("sea", SEA_COLOURS)
    wet: Floats = sea(1 + heights / DEEPEST_METRES)
    colours = np.where((heights > 0)[..., None], land(heights / HIGHEST_METRES), wet)
    metres = float(columns[1] - columns[0]) * scene.region.cell_metres
    light: Any = LightSource(azdeg=315, altdeg=45)
    return light.shade_rgb(
        colours[..., :3], heights, vert_exag=EXAGGERATION, dx=metres, dy=metres, blend_mode="soft"
    )


def _blend(relief: Floats, surface: Floats) -> Pixels:
    """The surface in its colours over `relief`, opaque where it is high or low."""
    from matplotlib import colormaps

    share = (surface - REST_METRES) / FULL_COLOUR_METRES
    wave = colormaps[SURFACE_COLOURS](0.5 + 0.5 * share)[..., :3]
    opacity = np.clip(np.abs(share) / OPAQUE_SHARE, 0, 1)[..., None]
    return np.round(255 * (opacity * wave + (1 - opacity) * relief)).astype(np.uint8)
