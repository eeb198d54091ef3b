"""What is asked of the planner, and what follows from it directly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property

import msgspec

from outgrid.config import RunOptions
from outgrid.errors import InfeasiblePlan, UsageError
from outgrid.machine import Accelerator, Machine, Network
from outgrid.plan.calibration import Calibration
from outgrid.plan.commits import Begin
from outgrid.plan.cost import Rates, rates, transfer_seconds
from outgrid.plan.device import (
    SEEN_BYTES,
    between_bytes,
    check_offered,
    ring_tables_bytes,
    tables_bytes,
)
from outgrid.plan.layout import window_bytes
from outgrid.plan.model import Layout
from outgrid.plan.onchip import ChipTile, tile_of
from outgrid.plan.schedule.rings import Ring
from outgrid.plan.schedule.subgrid import Subgrid
from outgrid.plan.sizing import Sizing
from outgrid.plan.sweeps import given_steps, split_steps, sweep_steps
from outgrid.plan.tables import SWEEP_BYTES, steps_bytes
from outgrid.plan.tiers import disk_tier
from outgrid.schemes import DEFAULT, SCHEMES, Scheme
from outgrid.stencil.problem import Problem
from outgrid.stencil.symbol import AXES
from outgrid.units import format_bytes

# Of the time that computing takes on an unbroken front; with borders it takes longer. Transfers
# that take less can wait for each other.
QUIET_SHARE = 0.8
MOST_LISTED = 1 << 14  # sweeps; beyond them their list is looked at before it is made


class RankPart(msgspec.Struct, frozen=True):
    """What one of several ranks is to plan: its ``subgrid``.

    Where ``depths``, ``slab`` and the (planes, rows) of a ``block`` are given, they were chosen for
    all ranks. ``disk_bytes`` bounds the working files.
    """

    subgrid: Subgrid
    network: Network
    disk_bytes: int | None = None
    depths: tuple[int, ...] | None = None
    slab: int | None = None
    block: tuple[int, int] | None = None


class Request(msgspec.Struct, frozen=True, dict=True):
    """The inputs of one decision; see `outgrid.plan.planner.plan`.

    Grids that are streamed in whole planes read ``packed`` coefficients packed, into such a share
    of their bytes.
    """

    problem: Problem
    options: RunOptions
    machine: Machine
    fixed_bytes: int
    calibration: Calibration | None
    begin: Begin | None = None
    part: RankPart | None = None
    accelerator: Accelerator | None = None
    packed: Mapping[str, float] = msgspec.field(default_factory=dict[str, float])

    @cached_property
    def sizing(self) -> Sizing:
        """What follows from the problem alone."""
        options, subgrid = self.options, self.part.subgrid if self.part else None
        partial = self.accelerator is None and options.tier != "remote"
        # Where what is not written takes no memory.
        locked = options.in_place or "mlock" in options.require
        narrow = disk_tier(options) == "direct" and not locked
        lines = self.machine.lines and self.accelerator is None
        return Sizing(self.problem, subgrid, partial, narrow, self._shared_from, lines)

    @property
    def _shared_from(self) -> int | None:
        """Steps of a sweep from which on transfers take less than `QUIET_SHARE` of its time.

        Reading then waits until the last slab is written, and a ring is a slab shorter. None where
        transfers are not those of a disk alone, or grow with the steps.
        """
        apart = self.accelerator is not None or self.part is not None
        if apart or self.problem.series or disk_tier(self.options) != "direct":
            return None
        fields = (*self.problem.stencil.lasting, *self.problem.stencil.coefficients)
        moved = {each: each.levels * self.problem.stored_bytes(each.name) for each in fields}
        written = sum(nbytes for each, nbytes in moved.items() if each.evolving)
        transfer = transfer_seconds(self.machine, sum(moved.values()), written)
        samples = self.calibration.samples if self.calibration else ()
        bound = min(self.rates.cores, self.rates.cache)
        rate = max((sample.updates_per_second for sample in samples), default=bound)
        step_seconds = math.prod(self.problem.shape) / rate
        return math.ceil(transfer / (QUIET_SHARE * step_seconds))

    @property
    def scheme(self) -> Scheme:
        """The scheme that is asked for, or taken where none is. Raises UsageError for no scheme."""
        name = self.options.scheme
        if name is not None and name not in SCHEMES:
            raise UsageError(f"scheme must be one of {', '.join(SCHEMES)}, not {name!r}")
        return SCHEMES[name] if name is not None else DEFAULT

    @property
    def depth(self) -> int | None:
        """The depth that is asked for, by itself or with a scheme that has one."""
        return self.scheme.depth if self.options.depth is None else self.options.depth

    @property
    def threads(self) -> int:
        """Threads that compute."""
        return self.options.threads or self.machine.cores

    @cached_property
    def rates(self) -> Rates:
        """Updates per second that bound the problem on the machine."""
        return rates(self.problem, self.machine, self.threads)

    @property
    def host_room(self) -> int:
        """Memory of the process beside what it needs in any case."""
        return self.options.memory_bytes - self.fixed_bytes

    @cached_property
    def room(self) -> int:
        """The same where the window is."""
        if self.accelerator is None:
            return self.host_room
        return self.accelerator.memory_bytes - tables_bytes(self.problem)

    @cached_property
    def whole(self) -> Layout:
        """How whole planes lie in the window."""
        return self.sizing.layout(self.sizing.strips(0), 0)

    def staging_bytes(self, layout: Layout) -> int:
        """Staging buffers of the I/O queue."""
        return self.options.in_flight_bytes if layout.staged else 0

    def transfer_bytes(self, layout: Layout) -> int:
        """What transfers take of the memory that the window is in."""
        return 0 if self.accelerator is not None else self.staging_bytes(layout)

    def table_bytes(self, depths: tuple[int, ...], parts: int) -> int:
        """What grows with sweeps of so many ``parts``, in the memory that the window is in."""
        if self.accelerator is not None:
            return SEEN_BYTES * len(depths) * parts
        return SWEEP_BYTES * len(depths)

    def window_bytes(self, rings: tuple[Ring, ...], layout: Layout) -> int:
        """Memory of the window, with its tables."""
        if self.accelerator is None:
            return window_bytes(rings, layout)
        tile = self.chip_tile
        between = 2 * between_bytes(tile, layout) if tile is not None else 0
        return window_bytes(rings, layout) + ring_tables_bytes(rings) + between

    @cached_property
    def chip_tile(self) -> ChipTile | None:
        """The tile by which a device makes several levels in one launch."""
        if self.accelerator is None:
            return None
        return tile_of(self.problem, self.accelerator.shared_bytes)

    @property
    def streamed(self) -> str:
        """Name of the axis that a grid is streamed along."""
        return AXES[-self.problem.ndim]

    @property
    def only_resident(self) -> bool:
        """Whether the options ask for a grid that stays where it is while it is updated."""
        return self.options.in_place or self.options.tier == "memory"

    @property
    def height_begun(self) -> int | None:
        """The height of the strips of the sweep that a run goes on in; None for whole planes."""
        return self.begin.cut[0] if self.begin is not None and self.begin.cut else None

    @property
    def can_roll(self) -> bool:
        """Whether a state may become durable bit by bit."""
        # Reductions count each cell once, so a sweep begins from its start.
        return not self.problem.stencil.reductions

    def check(self) -> None:
        """Raise UsageError for values out of range."""
        if self.accelerator is not None:
            check_offered(self.problem)
        options, planes = self.options, self.problem.shape[0]
        if options.depth is not None and options.depth < 1:
            raise UsageError(f"depth must be at least 1 step per sweep, not {options.depth}")
        if self.scheme.depth is not None and options.depth not in (None, self.scheme.depth):
            raise UsageError(
                f"scheme {self.scheme.name} makes {self.scheme.words}, not depth "
                f"{options.depth}; leave depth out or choose scheme {DEFAULT.name}"
            )
        if options.slab_planes is not None and not 1 <= options.slab_planes <= planes:
            raise UsageError(
                f"slab_planes must be within 1..{planes}, the planes of the grid, not "
                f"{options.slab_planes}"
            )
        if options.threads is not None and options.threads < 1:
            raise UsageError(f"threads must be at least 1, not {options.threads}")
        if options.strip_rows is not None:
            self._check_strips(options.strip_rows)

    def _check_strips(self, height: int) -> None:
        if self.problem.ndim == 2:
            raise UsageError("strip_rows needs a 3-D grid; in 2-D a plane is one row")
        if height < 1:
            raise UsageError(f"strip_rows must be at least 1 row per strip, not {height}")
        if self.accelerator is not None and self.sizing.across.periodic:
            raise UsageError(
                "strip_rows does not support grids that are periodic along y on a device; "
                "leave it out"
            )
        depth = max(1, min(self.options.depth or 1, self.problem.deepest))
        strips = self.sizing.strips(depth, height)
        if not strips.closes(depth):
            least = strips.beside(depth)
            raise UsageError(
                f"strip_rows {height} does not fit a grid of {strips.rows} rows that is periodic "
                f"along y: sweeps of {depth} steps need strips of at least {least} rows and a grid "
                f"of at least {2 * least}; leave strip_rows out"
            )

    def split(self, depth: int) -> tuple[int, ...]:
        """Steps per sweep: a depth that was asked for is kept, one of our own is balanced."""
        if depth == 0:
            return ()
        if self.part is not None and self.part.depths is not None:
            return self.part.depths
        self._check_sweeps(depth)
        given = self.options.depth is not None
        if self.begin is None:
            return sweep_steps(self.problem, depth, given=given)
        split = given_steps if given else split_steps
        return (self.begin.depth, *split(self.problem.steps - self.begin.depth, depth))

    def _check_sweeps(self, depth: int) -> None:
        """Raise InfeasiblePlan where not even a list of all sweeps has room."""
        steps = self.problem.steps
        sweeps = -(-steps // depth)
        listed = SWEEP_BYTES * sweeps
        if sweeps > MOST_LISTED and listed > self.host_room:
            slab = self.options.slab_planes or 1
            layout = self.sizing.layout(self.sizing.strips(depth), depth)
            rings = self.sizing.window.rings((depth,), slab, resident=False)
            window = 0 if self.accelerator is not None else self.window_bytes(rings, layout)
            beside = window + self.staging_bytes(layout)
            needed = listed + self.fixed_bytes + beside
            # What grows with the steps is among the fixed bytes, and would be less for fewer.
            growing = steps_bytes(self.problem)
            sweep_bytes = SWEEP_BYTES + -(-growing * depth // steps)
            fitting = max(0, self.host_room + growing - beside) // sweep_bytes * depth
            raise InfeasiblePlan(
                f"{steps} steps, {depth} in each sweep, are {sweeps} sweeps, whose list takes "
                f"{format_bytes(listed)}; with the program itself that exceeds the memory limit "
                f"of {format_bytes(self.options.memory_bytes)}; run at most {fitting} steps at "
                f"a time, or a limit of {-(-needed // (1 << 20))} MiB is enough"
            )
