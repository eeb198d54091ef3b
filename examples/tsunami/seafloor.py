"""The sea floor of the Strait of Georgia, from the sample data that matplotlib ships.

The data are 91 x 120 heights above sea level in metres. They are interpolated by cubic convolution
(Keys 1981, doi:10.1109/TASSP.1981.1163711, equation 15), which is a product of small matrices:
heights = (weights of rows) (data) (weights of columns)^T. So any strip of a large grid is computed
on its own, in little memory.
"""

import importlib.util
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from outgrid.errors import UsageError

__all__ = ["Region", "SeaFloor", "load_sea_floor", "write_depth"]

METRES_PER_DEGREE = 111_195.0  # of latitude, on a sphere of 6371 km
STRIP_BYTES = 8 << 20

Floats = NDArray[np.floating[Any]]
Singles = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Region:
    """A rectangle in degrees east and north, seen as flat: square cells of `cell_metres`.

    `rows` by `columns` cells; row 0 is the northernmost. `north` follows from the others.
    """

    west: float
    east: float
    south: float
    rows: int
    columns: int

    @property
    def cell_metres(self) -> float:
        """Edge of a cell, measured along the southern edge."""
        width = (self.east - self.west) * math.cos(math.radians(self.south))
        return width * METRES_PER_DEGREE / self.columns

    def latitudes(self, rows: Floats) -> Floats:
        """Degrees north of the centres of `rows`."""
        degrees = self.cell_metres / METRES_PER_DEGREE
        return self.south + (self.rows - rows - 0.5) * degrees

    def longitudes(self, columns: Floats) -> Floats:
        """Degrees east of the centres of `columns`."""
        return self.west + (columns + 0.5) * (self.east - self.west) / self.columns


@dataclass(frozen=True, slots=True)
class SeaFloor:
    """Heights in metres above sea level at evenly spaced latitudes and longitudes, increasing."""

    heights: Floats
    latitudes: Floats
    longitudes: Floats

    def sample(self, region: Region, rows: Floats, columns: Floats) -> Singles:
        """Heights at the cells `rows` by `columns` of `region`, as (rows, columns)."""
        down = _weights(self.latitudes, region.latitudes(rows))
        across = _weights(self.longitudes, region.longitudes(columns))
        heights: Singles = self.heights.astype(np.float32)
        return np.matmul(np.matmul(down, heights), across.T, dtype=np.float32)


def load_sea_floor() -> SeaFloor:
    """The data, without importing matplotlib. Raises UsageError where it is not installed."""
    found = importlib.util.find_spec("matplotlib")
    if found is None or found.origin is None:
        raise UsageError("the demonstration's sea floor comes with matplotlib: install matplotlib")
    path = Path(found.origin).parent / "mpl-data/sample_data/topobathy.npz"
    if not path.is_file():
        raise UsageError(f"this matplotlib has no {path}; version 3.8 and later ship it")
    with np.load(path, allow_pickle=False) as data:
        return SeaFloor(data["topo"], data["latitude"], data["longitude"])


def write_depth(floor: SeaFloor, region: Region, path: Path) -> float:
    """Write depths below sea level in metres, 0 on land, as float32 and return the largest.

    The file is a .npy array of (rows, columns), written strip by strip.
    """
    columns = np.arange(region.columns, dtype=np.float64)
    rows_per_strip = max(1, STRIP_BYTES // (4 * region.columns))
    deepest = 0.0
    shape = (region.rows, region.columns)
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    with path.open("wb") as file:
        npy_format.write_array_header_1_0(file, header)
        for first in range(0, region.rows, rows_per_strip):
            rows = np.arange(first, min(first + rows_per_strip, region.rows), dtype=np.float64)
            depth = np.maximum(-floor.sample(region, rows, columns), np.float32(0))
            deepest = max(deepest, float(depth.max()))
            file.write(depth.data)
    return deepest


def _weights(known: Floats, wanted: Floats) -> Singles:
    """Matrix (wanted, known) of cubic convolution; beyond the ends the last value goes on."""
    position = (wanted - known[0]) / (known[-1] - known[0]) * (len(known) - 1)
    left = np.clip(np.floor(position).astype(np.int64), 0, len(known) - 2)
    f = np.clip(position - left, 0.0, 1.0)
    kernel = (
        ((2 - f) * f - 1) * f / 2,
        ((3 * f - 5) * f * f + 2) / 2,
        ((4 - 3 * f) * f + 1) * f / 2,
        (f - 1) * f * f / 2,
    )
    matrix = np.zeros((len(wanted), len(known)), np.float32)
    for offset, value in enumerate(kernel, start=-1):
        neighbour = np.clip(left + offset, 0, len(known) - 1)
        np.add.at(matrix, (np.arange(len(wanted)), neighbour), value)
    return matrix
