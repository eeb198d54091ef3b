"""The numbers of the demonstration: region, source, time step, and the job files that say them."""

import math
from dataclasses import dataclass

from outgrid.errors import UsageError
from seafloor import Region

__all__ = ["DEFAULT_SCENE", "GRAVITY", "Scene"]

GRAVITY = 9.81
# The explicit scheme is stable while dt^2 times the largest eigenvalue of -div(g h grad) stays
# below 4. In row i of that operator the centre weighs the sum of the four face depths times g/dx^2
# and the neighbours together as much again, so by Gershgorin no eigenvalue passes 8 g hmax / dx^2:
# dt < dx / sqrt(2 g hmax). A tenth is kept in reserve.
SHARE_OF_STABLE_STEP = 0.9

# The deep basin of the strait between Vancouver Island and the mainland.
WEST, EAST, SOUTH = 235.55, 237.05, 48.87

# The source: a straight ridge of water along the axis of the basin, as a slip along a fault would
# lift it. Place and size in shares of the grid's width.
CENTRE_ACROSS, CENTRE_DOWN = 0.595, 0.295
LENGTH, WIDTH = 0.10, 0.0057
ANGLE = math.radians(37)
HEIGHT_METRES = 2.0
LEAST_COLUMNS = 64

FRAMES, FRAME_COLUMNS = 40, 1024  # of the animation, at most so many columns

# Heights of the surface count from a level below the sea at rest. The equation sees differences
# only, so the wave is the same; but around a wave on 0 lies a belt of numbers too small to be
# normal, with which processors compute a hundred times slower.
REST_METRES = 1.0


@dataclass(frozen=True, slots=True)
class Scene:
    """A run of the demonstration. The grid has `columns` by 3/4 as many rows.

    Raises UsageError for a grid too small to show anything.
    """

    columns: int
    steps: int
    memory: str

    def __post_init__(self) -> None:
        if self.columns < LEAST_COLUMNS:
            raise UsageError(f"{self.columns} columns show no wave; give at least {LEAST_COLUMNS}")
        if self.steps < 1:
            raise UsageError(f"{self.steps} steps move no wave; give at least 1")

    @property
    def region(self) -> Region:
        """Where on Earth."""
        return Region(WEST, EAST, SOUTH, rows=self.columns * 3 // 4, columns=self.columns)

    @property
    def field_bytes(self) -> int:
        """Bytes of one time level of the surface, or of the depth."""
        return 4 * self.region.rows * self.columns

    @property
    def source(self) -> tuple[float, float]:
        """Row and column of the middle of the ridge."""
        return CENTRE_DOWN * self.columns, CENTRE_ACROSS * self.columns

    def step_seconds(self, deepest_metres: float) -> float:
        """Time step dt for the depth of the deepest cell."""
        return (
            SHARE_OF_STABLE_STEP * self.region.cell_metres / math.sqrt(2 * GRAVITY * deepest_metres)
        )

    def surface(self) -> str:
        """The initial surface as an expression of y and x: a Gaussian ridge on the sea at rest."""
        row, column = self.source
        across, down = f"(x - {column:.0f})", f"(y - {row:.0f})"
        cosine, sine = f"{math.cos(ANGLE):.6f}", f"{math.sin(ANGLE):.6f}"
        along = f"({across} * {cosine} + {down} * {sine}) / {LENGTH * self.columns:.0f}"
        athwart = f"({down} * {cosine} - {across} * {sine}) / {max(4, WIDTH * self.columns):.0f}"
        return f"{REST_METRES} + {HEIGHT_METRES} * exp(-({along})**2 - ({athwart})**2)"

    def job(self, deepest_metres: float) -> str:
        """The job file of the run, beside the depth in h.npy."""
        region = self.region
        return f"""\
# A ridge of water {HEIGHT_METRES:.0f} m high is let go in the Strait of Georgia. Cells of \
{region.cell_metres:.2f} m, steps of {self.step_seconds(deepest_metres):.4f} s.
[problem]
stencil = "shallow_water"
shape = [{region.rows}, {region.columns}]
dtype = "float32"
steps = {self.steps}
boundary = "frozen"

[problem.parameters]
g = {GRAVITY}
dt = {self.step_seconds(deepest_metres)!r}
dx = {region.cell_metres!r}

[problem.initial]
eta = "{self.surface()}"
h = "h.npy"

[[problem.snapshots]]  # for the animation
field = "eta"
every = {max(1, self.steps // FRAMES)}
stride = {-(-self.columns // FRAME_COLUMNS)}

[run]
memory = "{self.memory}"
out = "run"
"""

    def reference_job(self, edge: int, steps: int) -> str:
        """The same kernel where everybody uses it: one step at a time on a grid in memory."""
        return f"""\
# The kernel of the demonstration on a grid that fits into memory, swept once per step.
[problem]
stencil = "shallow_water"
shape = [{edge}, {edge}]
dtype = "float32"
steps = {steps}
boundary = "frozen"

[problem.parameters]
g = {GRAVITY}
dt = 0.1
dx = 10.0

[problem.initial]
eta = "{REST_METRES} + exp(-((x - nx / 2)**2 + (y - ny / 2)**2) / 5000)"
h = 400.0

[run]
memory = "{64 * edge * edge + (512 << 20)}"
tier = "memory"
scheme = "plain"
out = "reference"
"""


DEFAULT_SCENE = Scene(columns=12288, steps=2400, memory="128MiB")
