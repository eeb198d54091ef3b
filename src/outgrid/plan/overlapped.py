"""The scheme of blocks with halos: block and depth by its inventors' rule, or as asked for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec
from msgspec.structs import replace

from outgrid.config import RunOptions
from outgrid.errors import InfeasiblePlan, UsageError
from outgrid.lines import format_count, format_extents
from outgrid.plan.assemble import assemble
from outgrid.plan.candidate import EXCHANGE_BUFFERS, Candidate, exchange_seconds
from outgrid.plan.commits import Begin, committing_seconds
from outgrid.plan.cost import transfer_seconds, updates_per_second
from outgrid.plan.layout import layout, window_bytes
from outgrid.plan.model import Layout, Plan, Prediction, Tile
from outgrid.plan.request import Request
from outgrid.plan.schedule.blocks import LEAST_EDGE, Blocks, paper_block
from outgrid.plan.schedule.interval import ACROSS, STREAMED
from outgrid.plan.schedule.lifetime import ring_count
from outgrid.plan.schedule.model import Schedule
from outgrid.plan.schedule.rings import Ring
from outgrid.plan.schedule.skew import Halo
from outgrid.plan.schedule.subgrid import common
from outgrid.plan.sweeps import sweep_steps
from outgrid.plan.tables import sweeps_bytes
from outgrid.plan.tiling import FRONT_PLANES, columns_cut, tile_levels, tile_slope
from outgrid.plan.traffic import Traffic
from outgrid.schemes import DEFAULT
from outgrid.stencil.problem import Problem
from outgrid.stencil.symbol import AXES
from outgrid.units import format_bytes

# The part of a cache that a block of the second level may fill, as edges in cells.
INNER_EDGE = 32
NAME = "overlapped"
MESSAGES_SHARE = 16  # of the memory limit is what messages between ranks may take


class _Blocking(msgspec.Struct, frozen=True):
    """The inputs of one decision."""

    request: Request

    @property
    def problem(self) -> Problem:
        """What is computed."""
        return self.request.problem

    @property
    def options(self) -> RunOptions:
        """How that is asked for."""
        return self.request.options

    def plan(self) -> Plan:
        problem = self.problem
        self._check()
        self._tile(1)  # whatever memory says, settings are looked at first
        core, depth = self._sizes()
        depths = sweep_steps(problem, depth, given=True) if depth else ()
        if self.request.part is not None and self.request.part.depths is not None:
            depths = self.request.part.depths
            depth = max(depths, default=0)
        if self.request.begin is not None:
            rest = problem.after(self.request.begin.depth)
            depths = (self.request.begin.depth, *sweep_steps(rest, depth, given=True))
            depth = max(depths)
        planes, held = self._held(core, depth)
        if not self._fits(core, depth):
            raise self._refusal(core, depth)
        return self._finish(core, depths, self._rings(planes) if depths else (), held)

    def can_go_on(self, begin: Begin) -> bool:
        """Whether blocks as they were fit, and there are so many."""
        planes, rows = begin.cut
        deepest = max(begin.depth, min(self.options.depth or 1, self._most_steps))
        if not 1 <= begin.depth <= self.problem.steps or not self._fits((planes, rows), deepest):
            return False
        return begin.part < self._blocks((planes, rows)).count()

    def _check(self) -> None:
        """Raise InfeasiblePlan where a halo reaches round the grid and farther."""
        depth = min(self.options.depth or 1, self.problem.deepest)
        if self.request.part is not None and self.request.part.depths is not None:
            depth = max(self.request.part.depths, default=0)
        for axis, halo, room in self._rooms():
            if depth and halo.cells(depth) > room:
                most = self._most_steps
                raise InfeasiblePlan(
                    f"sweeps of {depth} steps need a halo of {halo.cells(depth)} cells along "
                    f"{AXES[axis - self.problem.ndim]}, and the grid comes round after {room}; "
                    + (f"depth {most} fits" if most > 0 else f"choose scheme {DEFAULT.name}")
                )

    def _rooms(self) -> Iterator[tuple[int, Halo, int]]:
        """Axes that close: each with its halo, and the most cells that it may have at an end.

        What comes again is there once more below the first cell and once above the last one; a rank
        of a ring has no cell twice, for what it owns is not sent to it.
        """
        sizing = self.request.sizing
        for axis, closes in enumerate(self._closes):
            extent, halo = sizing.axes[axis].extent, sizing.halos[axis]
            if closes and halo.per_step:
                ring = axis == STREAMED and sizing.domain.subgrid.ring
                yield axis, halo, (extent - len(sizing.owned.planes)) // 2 if ring else extent

    @property
    def _closes(self) -> tuple[bool, bool]:
        """Whether the first planes, and rows, come again at the other end."""
        edges = self.problem.edges
        return edges.periodic(STREAMED), self.problem.ndim == 3 and edges.periodic(ACROSS)

    @property
    def _most_steps(self) -> int:
        """The most steps of a sweep; one pair of buffers has room for one step of a series."""
        if self.problem.series:
            return 1
        rooms = ((room - halo.margin) // halo.per_step for _, halo, room in self._rooms())
        return min((self.problem.deepest, *rooms))

    @property
    def _interior(self) -> tuple[int, ...]:
        """Interior cells of what is owned, by axis."""
        owned, inside = self.request.sizing.owned, self.problem.interior
        cut = zip((owned.planes, owned.rows), inside[:-1], strict=False)
        return (*(max(1, len(common(*both))) for both in cut), len(inside[-1]))

    def _sizes(self) -> tuple[tuple[int, int], int]:
        """(planes, rows) of the core of a block, and the depth."""
        options, steps = self.options, self._most_steps
        block, interior, part = options.block, self._interior, self.request.part
        if part is not None and part.block is not None:
            return part.block, min(options.depth or self._deepest(part.block), steps)
        if block is not None:
            self._check_block(block)
            core = (block[0], block[1] if len(block) == 3 else 1)
            depth = options.depth or self._deepest(core)
            return core, min(depth, steps)
        flat = len(interior) == 2
        cube = (interior[0], *interior) if flat else interior

        def fits(block: tuple[int, int, int], depth: int) -> bool:
            wanted = min(options.depth or depth, steps)
            return self._fits((block[0], 1 if flat else block[1]), wanted)

        chosen = paper_block((cube[0], cube[1], cube[2]), steps, fits)
        if chosen is None:
            least, depth = (LEAST_EDGE, 1 if flat else LEAST_EDGE), min(options.depth or 1, steps)
            if not self._fits(least, depth):
                raise self._refusal(least, depth)
            raise UsageError(
                f"a grid with {format_extents(interior)} interior cells is too small for blocks "
                f"of {LEAST_EDGE} cells along each axis that is cut; give block"
            )
        (planes, rows, _), depth = chosen
        return (planes, 1 if flat else rows), min(options.depth or depth, steps)

    def _deepest(self, core: tuple[int, int]) -> int:
        """The largest power of two that fits and is at most half an edge."""
        depth = 1
        edge = min(core) if self.problem.ndim == 3 else core[0]
        while 2 * depth <= min(self._most_steps, max(1, edge // 2)) and self._fits(core, 2 * depth):
            depth *= 2
        return depth

    def _fits(self, core: tuple[int, int], depth: int) -> bool:
        disk = self.request.part.disk_bytes if self.request.part is not None else None
        if disk is not None and self._disk_bytes(core, depth) > disk:
            return False
        return self._needed_bytes(core, depth) <= self.options.memory_bytes

    def _needed_bytes(self, core: tuple[int, int], depth: int) -> int:
        """Memory of the whole process."""
        planes, held = self._held(core, depth)
        window = window_bytes(self._rings(planes), held)
        beside = sweeps_bytes(self.problem, depth) + self.request.fixed_bytes
        least = self.request.part.slab or 1 if self.request.part is not None else 0
        exchange = self._exchange_bytes(core, depth, least)
        return window + self.request.staging_bytes(held) + beside + exchange

    def _traffic(self, core: tuple[int, int], depth: int) -> Traffic:
        """What a sweep of so many steps moves."""
        planes, _ = self._held(core, depth)
        depths = (depth,) if depth else ()
        return self.request.sizing.traffic(self._schedule(core, depths, self._rings(planes), 1))

    def _disk_bytes(self, core: tuple[int, int], depth: int) -> int:
        return self._traffic(core, depth).disk_bytes()

    def _exchange_bytes(self, core: tuple[int, int], depth: int, slab: int) -> int:
        """Memory of messages of ``slab`` planes between ranks."""
        if not slab:
            return 0
        return EXCHANGE_BUFFERS * self._traffic(core, depth).buffered_bytes(slab)

    def _slab(self, core: tuple[int, int], depth: int) -> int:
        """The planes of a message between ranks: few, of large planes; all of the grid for one."""
        part = self.request.part
        if part is None:
            return self.problem.shape[0]
        if part.slab is not None:
            return part.slab
        every, options = self._exchange_bytes(core, depth, 1), self.options
        spare = options.memory_bytes - self._needed_bytes(core, depth) + every
        room = min(spare, options.memory_bytes // MESSAGES_SHARE)
        return max(1, min(core[0], room // max(1, every)))

    def _rings(self, planes: int) -> tuple[Ring, ...]:
        stencil = self.problem.stencil
        return tuple(
            Ring(field.name, index, planes, 0, 0)
            for field in stencil.fields
            for index in range(ring_count(field, stencil))
        )

    def _blocks(self, core: tuple[int, int]) -> Blocks:
        shape, layers = self.problem.shape, self.problem.edges.layers
        rows, around = (shape[1], layers[1]) if self.problem.ndim == 3 else (1, (0, 0))
        owned = self.request.part.subgrid.ends if self.request.part is not None else None
        halos, layer = self.request.sizing.halos, (layers[0], around)
        return Blocks(shape[0], rows, core, halos, layer, owned, self._closes)

    def _held(self, core: tuple[int, int], depth: int) -> tuple[int, Layout]:
        """Planes of a ring, and their layout."""
        planes, rows = self._blocks(core).held(depth)
        # Rows of a block begin anywhere in a plane unless it has all of them.
        problem, circle = self.problem, self._closes[1]
        return planes, layout(problem.shape, problem.dtype, rows, problem.dtypes, circle)

    def _check_block(self, block: tuple[int, ...]) -> None:
        interior = self._interior
        if len(block) != len(interior):
            axes = "z, y, x" if len(interior) == 3 else "y, x"
            raise UsageError(
                f"block = {list(block)} has {len(block)} extents; give {len(interior)}, of {axes}"
            )
        if any(edge < 1 for edge in block):
            raise UsageError(f"block = {list(block)}: every extent must be at least 1 cell")
        if block[-1] != interior[-1]:
            raise UsageError(
                f"block = {list(block)} must not cut rows: its extent in x must be that of the "
                f"grid, {interior[-1]} interior cells"
            )

    def _refusal(self, core: tuple[int, int], depth: int) -> InfeasiblePlan:
        needed = self._needed_bytes(core, depth)
        own = self.request.fixed_bytes + sweeps_bytes(self.problem, depth)
        disk = self.request.part.disk_bytes if self.request.part is not None else None
        wanted = self._disk_bytes(core, depth)
        if disk is not None and wanted > disk:
            return InfeasiblePlan(
                f"a rank with a halo for sweeps of {depth} steps has {format_bytes(wanted)} of "
                f"working files, and {format_bytes(disk)} are free on its disk; use more ranks, "
                "a larger disk or a lower depth"
            )
        fits = self._deepest(core)
        hint = f"depth {fits} fits, or " if fits < depth and self._fits(core, fits) else ""
        planes, rows = core
        return InfeasiblePlan(
            f"blocks of {planes} planes and {rows} rows with a halo for depth {depth} need "
            f"{format_bytes(needed - own)} and the program itself {format_bytes(own)}, which "
            f"exceeds the memory limit of {format_bytes(self.options.memory_bytes)}; {hint}a "
            f"limit of {-(-needed // (1 << 20))} MiB fits; so do smaller blocks"
        )

    def _tile(self, depth: int) -> Tile:
        """The second level: blocks of cells within a step, or diamonds through some steps."""
        inner, steps = self.options.inner, self.options.inner_depth or 1
        if inner is not None and (len(inner) != self.problem.ndim or min(inner) < 1):
            raise UsageError(
                f"inner = {list(inner)}: give {self.problem.ndim} extents of at least 1 cell"
            )
        if steps > 1:
            slope = tile_slope(
                self.problem.stencil, self.problem.dtype, self.problem.edges
            ).per_step
            width = 2 * slope * min(steps, max(1, depth))
            if inner is None:
                return Tile("diamond", width, FRONT_PLANES)
            whole = columns_cut(self.problem) or inner[-1] >= len(self.problem.interior[-1])
            return Tile("diamond", width, inner[0], 0 if whole else inner[-1])
        if inner is None:
            edge = INNER_EDGE if self.problem.ndim == 3 else 0
            return Tile("level", edge, FRONT_PLANES)
        rows = inner[1] if len(inner) == 3 else 1
        return Tile("level", rows, inner[0], inner[-1])

    def _schedule(
        self, core: tuple[int, int], depths: tuple[int, ...], rings: tuple[Ring, ...], slab: int
    ) -> Schedule:
        sizing, shape = self.request.sizing, self.problem.shape
        return Schedule(
            shape=shape,
            depths=depths,
            slab_planes=slab,
            skew=sizing.streamed.skew,
            pitch_planes=shape[0],
            strips=sizing.strips(max(depths, default=0)),
            resident=False,
            rings=rings,
            arrivals=sizing.window.arrivals(max(depths, default=0)),
            departures=sizing.window.departures,
            blocks=self._blocks(core),
            subgrid=sizing.subgrid,
        )

    def _finish(
        self,
        core: tuple[int, int],
        depths: tuple[int, ...],
        rings: tuple[Ring, ...],
        held: Layout,
    ) -> Plan:
        request, problem, sizing = self.request, self.problem, self.request.sizing
        depth, slab = max(depths, default=0), self._slab(core, max(depths, default=0))
        tile, sweeps, blocks = self._tile(depth), len(depths), self._blocks(core)
        schedule = self._schedule(core, depths, rings, slab)
        traffic, window = sizing.traffic(schedule), window_bytes(rings, held)
        part = request.begin.part if request.begin is not None else 0
        spared = traffic.spared_bytes(depths[0], part, 0) if part else (0, 0)
        moved = [n - less for n, less in zip(traffic.moved_bytes, spared, strict=True)]
        guess = self._guess(schedule, tile, moved[0], moved[1])
        guess = guess.after(exchange_seconds(request, traffic))
        seconds = guess.seconds
        parts = blocks.count() if request.can_roll and request.part is None else 1
        committing = committing_seconds(
            problem, request.options, request.machine, seconds, sweeps, sweeps * parts
        )
        notes = (
            f"{blocks.count()} blocks of {blocks.core[0]} planes"
            + (f" and {blocks.core[1]} rows" if problem.ndim == 3 else ""),
            _describe(tile, problem),
        )
        chosen = Candidate(
            NAME,
            schedule,
            held,
            tile,
            window_bytes=window,
            held_bytes=window,
            transfer_bytes=request.staging_bytes(held),
            exchange_bytes=EXCHANGE_BUFFERS * traffic.buffered_bytes(slab),
            table_bytes=0,
            traffic=traffic,
            predicted=partial(guess.after, committing),
            notes=notes,
        )
        return assemble(request, chosen)

    def _guess(self, schedule: Schedule, tile: Tile, read: int, written: int) -> Prediction:
        """What sweeps take that move so many bytes, without what makes states durable."""
        machine, depth = self.request.machine, schedule.depth
        levels = max(1, self.options.inner_depth or 1)
        rate = updates_per_second(
            self.request.rates, levels, levels * schedule.skew.per_step, 1 << 20
        )
        calibration = self.request.calibration
        sample = calibration.of(levels, replace(tile, columns=0)) if calibration else None
        if sample is not None:
            rate = sample.rate(levels)
        compute = schedule.row_updates * self.problem.shape[-1] / rate
        transfer = transfer_seconds(machine, read, written)
        # Computing overlaps with transfers in the first and the last step of a block only.
        beside = min(transfer, compute / depth) if depth else 0.0
        return Prediction(
            seconds=compute + transfer - beside,
            compute_seconds=compute,
            transfer_seconds=transfer,
            updates_per_second=rate,
            bound_by="compute" if compute >= transfer else "read+write",
        )


def plan(request: Request) -> Plan:
    """The plan that fits the memory of a request.

    Raises InfeasiblePlan with what fits, UsageError for settings that do not go together.
    """
    return _Blocking(request).plan()


def plan_from(request: Request, begin: Begin) -> Plan | None:
    """The plan that goes on at a block, with blocks as they were; None where that cannot be."""
    if len(begin.cut) != 2 or request.accelerator is not None:
        return None
    problem, options = request.problem, request.options
    planes, rows = begin.cut
    columns = len(problem.interior[-1])
    block = (planes, rows, columns) if problem.ndim == 3 else (planes, columns)
    asked = options.scheme not in (None, NAME) or options.block not in (None, block)
    streamed = options.tier != "memory" and not options.in_place
    shaped = options.slab_planes is not None or options.strip_rows is not None
    if asked or shaped or not streamed or min(block) < 1:
        return None
    if problem.stencil.reductions:
        return None
    given = msgspec.structs.replace(options, block=block)
    chosen = _Blocking(replace(request, options=given, begin=begin))
    return chosen.plan() if chosen.can_go_on(begin) else None


def _describe(tile: Tile, problem: Problem) -> str:
    """The second level in words. Blocks that are not cut along z have all planes."""
    columns = f" and {format_count(tile.columns, 'column')}" if tile.columns else ""
    planes = f"{format_count(tile.planes, 'plane')}{columns}"
    if tile.order == "diamond":
        steps = format_count(tile_levels(tile, problem), "step")
        width = format_count(tile.rows, "row" if problem.ndim == 3 else "column")
        return f"second level: {steps} in diamonds of {width}, {planes} at a time"
    rows = format_count(tile.rows, "row") if tile.rows and problem.ndim == 3 else ""
    parts = ", ".join(filter(None, (rows, planes if tile.columns else "")))
    return f"second level: 1 step in blocks of {parts or 'whole planes'}"
