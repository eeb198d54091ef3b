"""Frames over time as files that move: .gif and .png by Pillow, .mp4 by the command ffmpeg."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import StoreError, UsageError
from outgrid.report.picture import Pixels, colour_scale, write_animation

__all__ = ["animate"]

MOST_FRAMES = 600
LONGEST, SHORTEST = 768, 320  # edges of frames in pixels


def animate(taken: NDArray[Any], path: Path, seconds_per_frame: float = 0.1) -> Path:
    """Write frames (taken, rows, columns) as an animation whose kind the name of ``path`` says.

    Of volumes (taken, planes, rows, columns) the middle plane is shown. All frames have one scale;
    large ones are sampled, and of more than 600 every n-th is taken. Raises UsageError for frames
    that are no pictures, a name that ends in no format, and .mp4 where there is no ffmpeg.
    """
    if taken.ndim not in (3, 4) or 0 in taken.shape:
        raise UsageError(
            f"frames must be an array of (frames, rows, columns), not of shape {taken.shape}"
        )
    if path.suffix not in (".gif", ".png", ".mp4"):
        raise UsageError(
            f"cannot write an animation to {path}: its name must end in .gif, .png or .mp4"
        )
    if not seconds_per_frame > 0:
        raise UsageError(f"seconds_per_frame must be above 0, such as 0.1, not {seconds_per_frame}")
    frames = _pixels(_sampled(taken))
    if path.suffix == ".mp4":
        _write_film(frames, path, seconds_per_frame)
    else:
        write_animation(frames, path, seconds_per_frame)
    return path


def _sampled(taken: NDArray[Any]) -> NDArray[Any]:
    """The planes that are shown, with as many cells as pictures have pixels."""
    planes = taken[:, taken.shape[1] // 2] if taken.ndim == 4 else taken
    every, stride = -(-len(planes) // MOST_FRAMES), -(-max(planes.shape[1:]) // LONGEST)
    return np.array(planes[::every, ::stride, ::stride])


def _pixels(planes: NDArray[Any]) -> list[Pixels]:
    """Planes in colours of one scale, cells as squares of pixels, edges even as films want them."""
    import matplotlib

    norm, name = colour_scale(planes)
    colours: Any = matplotlib.colormaps[name].with_extremes(bad="0.6")
    square = max(1, SHORTEST // max(planes.shape[1:]))
    square += square % 2 if square > 1 else 0
    frames: list[Pixels] = []
    for plane in planes:
        image = colours(norm(np.ma.masked_invalid(plane)), bytes=True)[..., :3]
        image = image.repeat(square, 0).repeat(square, 1)
        rows, columns = (edge + edge % 2 for edge in image.shape[:2])
        padding = ((0, rows - image.shape[0]), (0, columns - image.shape[1]), (0, 0))
        frames.append(np.pad(image, padding, "edge"))
    return frames


def _write_film(frames: Sequence[Pixels], path: Path, seconds_per_frame: float) -> None:
    command = shutil.which("ffmpeg")
    if command is None:
        raise UsageError(
            f"{path} needs the command ffmpeg, which is not installed: install it (Debian, "
            "Ubuntu: apt-get install ffmpeg; conda: conda install ffmpeg), or name a .gif"
        )
    rows, columns = frames[0].shape[:2]
    given = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{columns}x{rows}"]
    rate = ["-r", f"{1 / seconds_per_frame:g}", "-i", "-"]
    made = ["-an", "-pix_fmt", "yuv420p", "-movflags", "+faststart", str(path)]
    done = subprocess.run(
        [command, "-y", "-loglevel", "error", *given, *rate, *made],
        input=b"".join(frame.tobytes() for frame in frames),
        capture_output=True,
    )
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip()
        raise StoreError(f"ffmpeg ended with {done.returncode}: {words}", path=path)
