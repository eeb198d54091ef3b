"""Layers that swallow waves before they reach a face: profiles for sponges and for C-PML.

A sponge damps what passes through it and sends a little back. A perfectly matched layer sends back
next to nothing, at all angles, and needs a memory variable per derivative:

    new = decay * memory + gain * derivative        derivative in the layer: derivative + new

D. Komatitsch and R. Martin, An unsplit convolutional perfectly matched layer improved at grazing
incidence for the seismic wave equation, Geophysics 72 (2007), doi:10.1190/1.2757586.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import DefinitionError
from outgrid.stencil.symbol import AXES

__all__ = ["matched_layer", "matched_layers", "sponge"]

SIDES = ("-", "+")
SPONGE_CELLS, MATCHED_CELLS = 20, 10  # widths unless given


def sponge(
    extent: int, width: int = SPONGE_CELLS, strength: float = 0.3, sides: str = "-+"
) -> NDArray[np.float64]:
    """Factors for every step, 1 inside and less in `width` cells at the sides of an axis.

    exp(-(strength * depth)**2), depth growing from 0 at the inner edge to 1 at the outermost cell;
    both time levels of a field of second order have to be multiplied. C. Cerjan et al., A
    nonreflecting boundary condition for discrete acoustic and elastic wave equations, Geophysics 50
    (1985), doi:10.1190/1.1441945, with 20 cells and 0.3. Raises DefinitionError.
    """
    return np.exp(-((strength * _depth(extent, width, sides, 0.0)) ** 2))


def matched_layer(
    extent: int,
    width: int = MATCHED_CELLS,
    *,
    courant: float,
    frequency: float,
    half: bool = False,
    sides: str = "-+",
    reflection: float = 1e-6,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Decay and gain of a C-PML of `width` cells at the sides of an axis of `extent` cells.

    `courant` is the largest velocity * dt / h, `frequency` that of the signal times dt: cycles per
    step. With `half`, for memory that lies half a cell on (forward differences). The layer is
    laid out to send back `reflection` of a wave that falls on it at a right angle; what the grid
    itself reflects comes on top. Raises DefinitionError.
    """
    for name, value in {"courant": courant, "frequency": frequency}.items():
        if not 0 < value < math.inf:
            raise DefinitionError(f"{name} of a matched layer must be above 0, not {value!r}")
    if not 0 < reflection < 1:
        raise DefinitionError(
            f"reflection of a matched layer must be above 0 and below 1, not {reflection!r}"
        )
    depth = _depth(extent, width, sides, 0.5 if half else 0.0)
    # Quadratic damping; its integral over the layer, twice, is -log(reflection).
    damping = -1.5 * courant * math.log(reflection) / width * depth**2
    shift = math.pi * frequency * (1 - depth)
    decay = np.where(depth > 0, np.exp(-(damping + shift)), 0.0)
    gain = np.where(depth > 0, damping / np.maximum(damping + shift, 1e-300) * (decay - 1), 0.0)
    return decay, gain


def matched_layers(
    shape: Sequence[int],
    width: int = MATCHED_CELLS,
    *,
    faces: Mapping[str, str] | None = None,
    **wave: float,
) -> dict[str, NDArray[np.float64]]:
    """The parameters of a stencil with a C-PML along all axes of a grid.

    `decay` and `gain`, followed by `_x` and so on, and the same with `_half`: `matched_layer` for
    every axis, to which `wave` is passed on. `faces` are the sides of an axis that have a layer,
    such as {"z": "+"}; both, if left out, and with "" none.
    """
    profiles: dict[str, NDArray[np.float64]] = {}
    for axis, extent in zip(AXES[-len(shape) :], shape, strict=True):
        sides = (faces or {}).get(axis, "-+")
        for name, half in (("", False), ("_half", True)):
            layer = matched_layer(extent, width, half=half, sides=sides, **wave)
            profiles[f"decay{name}_{axis}"], profiles[f"gain{name}_{axis}"] = layer
    return profiles


def _depth(extent: int, width: int, sides: str, place: float) -> NDArray[np.float64]:
    """How deep cells lie in the layers: 0 inside, 1 at the outermost cell."""
    if not width > 0 or (width + 1) * len(sides) > extent:
        raise DefinitionError(
            f"layers of {width} cells at {len(sides)} sides do not fit an axis of {extent} cells"
        )
    if not set(sides) <= set(SIDES):
        raise DefinitionError(f'sides must be "-", "+", "-+" or "", not {sides!r}')
    cells = np.arange(extent) + place
    into = np.zeros(extent)
    if "-" in sides:
        into = np.maximum(into, (width - cells) / width)
    if "+" in sides:
        into = np.maximum(into, (cells - (extent - 1 - width)) / width)
    return np.clip(into, 0.0, None)
