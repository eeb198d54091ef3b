"""A frame as coloured half blocks of a terminal: two cells above each other in each letter."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

__all__ = ["draw_blocks", "shows_colours"]

WIDTH, HEIGHT = 72, 40  # cells at most
# Blue, white, red for values of both signs; else dark blue over green to yellow.
SIGNED = ((33, 102, 172), (247, 247, 247), (178, 24, 43))
RISING = ((68, 1, 84), (33, 145, 140), (253, 231, 37))
GREY = (128, 128, 128)


def shows_colours(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a stream is a terminal that says it has all colours, and nobody wants none."""
    depth = environment.get("COLORTERM", "")
    return stream.isatty() and depth in ("truecolor", "24bit") and "NO_COLOR" not in environment


def draw_blocks(frame: NDArray[Any]) -> str:
    """Lines for a frame (rows, columns), sampled to at most 72 x 40 cells; NaN is grey."""
    stride = max(1, -(-frame.shape[0] // HEIGHT), -(-frame.shape[1] // WIDTH))
    cells = np.asarray(frame[::stride, ::stride], np.float64)
    colours = _colours(cells)
    if len(colours) % 2:
        colours = np.concatenate((colours, colours[-1:]))
    lines = (
        "".join(
            "\x1b[38;2;{};{};{}m\x1b[48;2;{};{};{}m\u2580".format(*upper, *lower)
            for upper, lower in zip(above.tolist(), below.tolist(), strict=True)
        )
        for above, below in zip(colours[::2], colours[1::2], strict=True)
    )
    return "\n".join(f"{line}\x1b[0m" for line in lines)


def _colours(cells: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Red, green and blue of each cell, on a scale from the least to the largest."""
    finite = np.isfinite(cells)
    low = float(cells[finite].min()) if finite.any() else 0.0
    high = float(cells[finite].max()) if finite.any() else 0.0
    signed = low < 0 < high
    if signed:
        high = max(-low, high)
        low = -high
    places = np.where(finite, (cells - low) / ((high - low) or 1.0), 0.0)
    stops = np.array(SIGNED if signed else RISING, np.float64)
    channels = [np.interp(places, (0.0, 0.5, 1.0), stops[:, channel]) for channel in range(3)]
    colours = np.stack(channels, axis=-1).round().astype(np.uint8)
    colours[~finite] = GREY
    return colours
