"""From a problem to its schedules: axes, strips and seams for any depths and slab."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from outgrid.plan.layout import MANY_ARRAYS, layout
from outgrid.plan.model import Layout
from outgrid.plan.presence import column_bands, row_bands
from outgrid.plan.schedule.axis import Axis
from outgrid.plan.schedule.domain import Domain
from outgrid.plan.schedule.interval import ACROSS, STREAMED
from outgrid.plan.schedule.lifetime import dependences, ring_count, row_unit
from outgrid.plan.schedule.model import Schedule
from outgrid.plan.schedule.pitch import TURNAROUND_SLABS, pitch_planes, without_overlap
from outgrid.plan.schedule.rings import Bands
from outgrid.plan.schedule.seam import Border, Cut, Seam, seam
from outgrid.plan.schedule.skew import Halo, Skew
from outgrid.plan.schedule.strips import Strips
from outgrid.plan.schedule.subgrid import Box, Subgrid
from outgrid.plan.schedule.window import Window
from outgrid.plan.traffic import Traffic
from outgrid.stencil.problem import Problem


class Sizing(msgspec.Struct, frozen=True, dict=True):
    """What follows from a problem alone, for any depth and slab; remembers what it derived.

    Of a ``subgrid``, if there is one, else of the whole grid. Where ``partial``, planes in which a
    field does not exist are neither moved nor kept, and where ``narrow``, such rows and columns are
    not kept.
    Of sweeps of at least ``shared_from`` steps, what comes takes the place of what leaves; see
    `Window`. Transfers may begin at any of the ``lines`` of memory, or at sectors.
    """

    problem: Problem
    subgrid: Subgrid | None = None
    partial: bool = True
    narrow: bool = False
    shared_from: int | None = None
    lines: bool = False

    @cached_property
    def domain(self) -> Domain:
        """The grid, and what of it is owned."""
        return Domain.of(self.problem.shape, self.subgrid)

    @cached_property
    def axes(self) -> tuple[Axis, Axis]:
        """Planes, in the direction of the stream, and rows; of these there is one in 2-D."""
        problem, grid = self.problem, Box.whole(self.problem.shape)
        planes, rows = (
            Axis(extent, dependences(problem.stencil, problem.edges, axis), periodic)
            for axis, (extent, periodic) in enumerate(
                (
                    (len(grid.planes), problem.edges.periodic(0) and not self.domain.subgrid.ring),
                    (len(grid.rows), problem.ndim == 3 and problem.edges.periodic(1)),
                )
            )
        )
        if self.domain.downward:
            planes = replace(planes, dependences=planes.dependences.mirrored())
        return planes, rows if problem.ndim == 3 else rows.still

    @property
    def halos(self) -> tuple[Halo, Halo]:
        """What a part of the grid needs beyond the planes and the rows that it makes."""
        planes, rows = self.axes
        return planes.halo, rows.halo

    @property
    def streamed(self) -> Axis:
        """The axis that planes pass along."""
        return self.axes[STREAMED]

    @cached_property
    def across(self) -> Axis:
        """The axis that strips are cut across: nothing leans along one that is not cut."""
        rows = self.axes[ACROSS]
        return rows if self.can_cut else replace(rows.still, periodic=False)

    @cached_property
    def window(self) -> Window:
        """What the window holds."""
        return Window(
            self.problem.stencil,
            self.streamed,
            frozenset(self.problem.series),
            self._bands,
            self._row_bands,
            self._columns[0],
            self.shared_from,
        )

    @property
    def cells_per_plane(self) -> int:
        """Cells of one plane, those of the fixed layer included."""
        return self.axes[ACROSS].extent * self.problem.shape[-1]

    @property
    def owned(self) -> Box:
        """What is carried from state to state."""
        return self.domain.owned

    @property
    def with_seams(self) -> bool:
        """Whether it is of a rank that leaves seams at its cuts, or takes them."""
        return self.domain.subgrid.seams

    @property
    def updates(self) -> int:
        """Cell updates that are needed: interior cells times steps, of what is owned."""
        problem = self.problem
        inside = Box(problem.interior[0], problem.interior[1] if problem.ndim == 3 else range(1))
        return problem.updates // inside.count * self.owned.common(inside).count

    @property
    def can_cut(self) -> bool:
        """Whether planes may pass in strips: those of a whole grid, in 3-D."""
        return self.problem.ndim == 3 and self.domain.subgrid.ranks == 1

    def strips(self, depth: int, height: int | None = None) -> Strips:
        """Strips of ``height`` rows, or whole planes, for sweeps of up to ``depth`` steps."""
        rows, circle = self.across, self.across.periodic
        still = Skew(0, (0,) * len(self.problem.stencil.stages))
        rise = rows.face if circle else still
        edges = rows.skew, rise, rows.reach(both_ways=circle)
        if height is not None:
            unit = row_unit(self.problem.stencil)
            return Strips(rows.extent, height, *edges, circle, unit)
        whole = Strips(rows.extent, rows.extent, *edges)
        return replace(whole, height=rows.extent + whole.lean(depth))

    def layout(self, strips: Strips, depth: int, resident: bool = False) -> Layout:
        """Planes and rows in the window."""
        held, cut = self.domain.subgrid.held(depth), strips.count(depth) > 1
        window = min(strips.window_rows(depth), strips.rows) if cut else len(held.rows)
        given = self.problem.shape, self.problem.dtype, window, self.problem.dtypes
        in_pieces, lines = self.problem.in_rows_of_files, self.on_lines(resident)
        unit, (bands, apart) = row_unit(self.problem.stencil), self._columns
        narrow = {} if resident or cut else dict.fromkeys(bands, apart)
        return layout(*given, in_pieces=in_pieces, lines=lines, row_unit=unit, narrow=narrow)

    def on_lines(self, resident: bool) -> bool:
        """Whether planes begin at lines of the caches, and not at sectors.

        Updates of many arrays gain by that. They do where the disk takes lines, or the grid is
        ``resident``: then each plane is copied once on its way in and once on its way out.
        """
        return (resident or self.lines) and self.problem.stencil.arrays >= MANY_ARRAYS

    def schedule(
        self,
        depths: tuple[int, ...],
        slab: int,
        resident: bool = False,
        strips: Strips | None = None,
    ) -> Schedule:
        """The schedule of sweeps of ``depths`` steps, in whole planes or ``strips``."""
        strips = strips or self.strips(max(depths, default=0))
        seams = self.seams(depths, resident, strips)
        schedule = Schedule(
            shape=self.problem.shape,
            depths=depths,
            slab_planes=slab,
            skew=self.streamed.skew,
            pitch_planes=0,
            strips=strips,
            resident=resident,
            rings=self.window.rings(depths, slab, resident, bool(seams)),
            arrivals=self.window.arrivals(max(depths, default=0)),
            departures=self.window.departures,
            face=self.streamed.face,
            seams=seams,
            subgrid=self.subgrid,
        )
        radius, whole = self.problem.stencil.radius[0], self.seams(depths)
        pitch = pitch_planes(schedule, self.streamed, radius, whole)
        if self.problem.lagged:  # a sweep is complete before the next one needs what it has found
            pitch = max(pitch, without_overlap(schedule))
        return replace(schedule, pitch_planes=pitch)

    @cached_property
    def _bands(self) -> dict[str, Bands]:
        """The planes that fields exist in, of those that lack some, where others are not kept.

        All are where a grid is shared by ranks, or closed along the stream.
        """
        bands: dict[str, Bands] = {}
        if not self._in_parts:
            return bands
        for name, region in self.problem.regions.items():
            inside = np.zeros(self.problem.shape[0] + 2, np.int8)
            for box in region:
                inside[box[0].start + 1 : box[0].stop + 1] = 1
            ends = np.flatnonzero(np.diff(inside)).reshape(-1, 2)
            if not inside[1:-1].all():
                bands[name] = tuple((int(first), int(end)) for first, end in ends)
        return bands

    @cached_property
    def _row_bands(self) -> dict[str, Bands]:
        """The rows that fields exist in, of those that lack some, where others are not kept."""
        return row_bands(self.problem) if self.narrow and self._in_parts else {}

    @cached_property
    def _columns(self) -> tuple[dict[str, Bands], int]:
        """The same of columns, and the cells from row to row where others are not kept."""
        kept = self.narrow and self._in_parts
        return column_bands(self.problem) if kept else ({}, self.problem.shape[-1])

    @property
    def _in_parts(self) -> bool:
        """Whether fields are kept in the parts of the grid that they exist in."""
        return self.partial and self.subgrid is None and not self.streamed.periodic

    def traffic(self, schedule: Schedule, packed: Mapping[str, float] | None = None) -> Traffic:
        """What moves by a schedule, of ``packed`` coefficients only a share."""
        return Traffic(schedule, self.row_bytes, packed or {})

    @cached_property
    def row_bytes(self) -> dict[str, int]:
        """Bytes of a row on disk, by field."""
        fields = self.problem.stencil.fields
        return {field.name: self.problem.row_bytes(field.name) for field in fields}

    def seams(
        self, depths: Iterable[int], resident: bool = False, strips: Strips | None = None
    ) -> tuple[Seam, ...]:
        """The seams of sweeps of each depth: at cuts, between strips, and where axes close.

        In whole planes, unless there are ``strips``. A ``resident`` grid that closes has none where
        it has too few planes for a front that goes over it, or one step at a time to make: all
        planes then make each step together.
        """
        seams = tuple(
            seam
            for depth in sorted({*depths} - {0})
            for seam in self._seams(depth, strips, resident=resident)
        )
        if not resident or not self.streamed.periodic:
            return seams
        few = any(seam.reach > self.streamed.extent for seam in seams)
        return () if few or max(depths, default=0) < 2 else seams

    def _seams(self, depth: int, strips: Strips | None, *, resident: bool) -> tuple[Seam, ...]:
        """Those of sweeps of ``depth`` steps, which are few."""
        cut = strips is not None and not resident and strips.count(depth) > 1
        circle = strips is not None and strips.circle
        if (depth, cut, circle) not in self._known_seams:
            self._known_seams[depth, cut, circle] = tuple(self._made(depth, cut, circle))
        return self._known_seams[depth, cut, circle]

    @cached_property
    def _known_seams(self) -> dict[tuple[int, bool, bool], tuple[Seam, ...]]:
        return {}

    def _made(self, depth: int, cut: bool, circle: bool) -> Iterator[Seam]:
        """The seams of whole planes, or of such that are ``cut``, also round a ``circle``."""
        for between in self._cuts:
            # The end of the rank that gives rises above a cut, and falls below.
            rises = between.given != between.above
            yield self._seam(Border(STREAMED, depth, rises=rises, cut=between))
        if cut:
            leads = {
                field.name: tuple(self.across.lead(field.name, -n) for n in range(field.levels))
                for field in self.problem.stencil.fields
            }
            yield self._seam(Border(ACROSS, depth, rises=False), crossed=True, leads=leads)
        if cut and circle:
            closing = Border(ACROSS, depth, closes=True)
            yield self._seam(closing, crossed=self.streamed.periodic)
        if self.streamed.periodic:
            yield self._seam(Border(STREAMED, depth, closes=True), crossed=cut)

    @property
    def _cuts(self) -> Iterable[Cut]:
        """The cuts of a rank at which seams are left or taken."""
        if not self.with_seams:
            return
        subgrid, planes = self.domain.subgrid, self.domain.streamed(self.owned.planes)
        for above, at in ((False, planes.start), (True, planes.stop)):
            peer = subgrid.beside(above)
            if peer is not None:
                yield Cut(at, peer, above, subgrid.upright)

    def _seam(self, border: Border, **given: Any) -> Seam:
        stencil = self.problem.stencil
        levels = {
            field.name: (0 if field.temporary else field.levels, ring_count(field, stencil))
            for field in stencil.evolving
        }
        return seam(border, self.axes[border.axis].dependences, levels, **given)

    def least_owned(self, depths: Iterable[int]) -> int:
        """Planes that a rank must own for sweeps of ``depths`` steps if it leaves seams.

        What it leaves at its cuts has to be apart.
        """
        given: dict[int, int] = {}
        for left in self.seams(depths):
            if left.cut is not None and left.cut.given:
                given[left.depth] = given.get(left.depth, 0) + left.reach
        if not self.domain.subgrid.upright:
            return 1
        return max(given.values(), default=0)

    def least_planes(self, depths: tuple[int, ...], slab: int) -> int:
        """Planes that a grid must have for streamed sweeps.

        The first planes of a closed grid have left the window before they come round again. In a
        ring of ranks none holds a plane twice.
        """
        if self.domain.subgrid.ring and depths:
            return len(self.domain.subgrid.held(max(depths)).planes)
        if not self.streamed.periodic or not depths:
            return 1
        rings = self.window.rings(depths, slab, resident=False, seams=True)
        longest = max(ring.high - ring.low for ring in rings)
        most = max(left.reach for left in self.seams(depths))
        return max(longest + TURNAROUND_SLABS * slab, most)
