"""The plan of a run: chosen from what is known by now, and again where the kernel is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from outgrid import device
from outgrid.comm import Comm
from outgrid.config import RunOptions
from outgrid.errors import DeviceError, InfeasiblePlan
from outgrid.execute.calibrate import calibrate, calibration_path, keep, known
from outgrid.execute.device import DeviceKernel
from outgrid.execute.fill import check_fits
from outgrid.execute.kernel import Kernel
from outgrid.execute.others import others_share
from outgrid.execute.streaming import Listener, doing
from outgrid.forms import Axis, Folds, Settled, Stages, Temporaries
from outgrid.machine import Accelerator, Machine, Network, describe_machine
from outgrid.machines import Site
from outgrid.plan.calibration import DISTURBING_SHARE, Calibration
from outgrid.plan.commits import Begin
from outgrid.plan.model import Plan, Tile
from outgrid.plan.planner import RankPart
from outgrid.plan.planner import plan as choose
from outgrid.plan.ranks import Ranks, plan_rank, ring
from outgrid.plan.schedule.rings import Arrival
from outgrid.plan.schedule.subgrid import Subgrid
from outgrid.plan.sizing import Sizing
from outgrid.probe.effort import Effort
from outgrid.probe.measure import measure_disk
from outgrid.probe.profile import keep_profile, known_machine, known_profile
from outgrid.probe.wear import device_endurance
from outgrid.purposes import Start, check_purposes
from outgrid.runs.frames import by_planes, sums_within
from outgrid.runs.group import Durable
from outgrid.runs.places import is_spread
from outgrid.runs.seals import level_name
from outgrid.runs.space import free_bytes
from outgrid.schemes import DEFAULT, SCHEMES
from outgrid.sharing import Sharing
from outgrid.stencil.problem import Problem
from outgrid.units import format_bytes

__all__ = [
    "FIXED_BYTES",
    "Planning",
    "calibration",
    "known_rates",
    "least_of",
    "like_here",
    "plan_elsewhere",
]

# Interpreter, libraries, kernel, thread stacks and tables beside the window. Measured at 55 to
# 70 MiB; what a run really took stands in its record.
FIXED_BYTES = 80 << 20
# What MPI itself keeps in a process, measured with MPICH at 18 to 22 MiB on up to 16 ranks of one
# host and at 28 MiB between hosts.
MPI_BYTES = 32 << 20
# The driver and its libraries beside that, where a device is used. Assumed, not measured.
DEVICE_FIXED_BYTES = 512 << 20
# A kernel is measured, in a window of at most so many bytes, before a run expected to take longer.
WORTH_CALIBRATING_SECONDS = 20.0
CALIBRATION_BYTES = 768 << 20
# Whether other programs still disturb is looked at for so long.
LOOK_SECONDS = 0.3
SUM_BYTES = 8  # of each row


# The disk is measured before a run expected to take longer, where nothing is known of it.
WORTH_PROBING_SECONDS = 60.0
# Coefficients are packed where that takes less than this share of the time without, of runs that
# take so many seconds.
WORTH_PACKING, WORTH_PACKING_SECONDS = 0.97, 1.0

Shares = Callable[[tuple[Arrival, ...]], Mapping[str, float]]
Copied = Callable[[Plan], Mapping[str, str]]
Made = tuple[Problem, Calibration | None, Plan]  # a plan, after what it was made from


def _unknown(_: object) -> Mapping[str, Any]:
    return {}


class Planning(msgspec.Struct, frozen=True):
    """What the plans of a run are chosen from, by all ranks of ``comm`` alike.

    ``shared`` where they share the grid, else one of them has it all. ``machine`` is what each can
    count on, ``scratch`` the folder in which a rank keeps its working files. A run that goes on
    does so within a sweep, from its ``begin``, or with the ``part`` that this rank has. ``shares``
    says into which share of their bytes coefficients can be packed, ``copied`` why levels that lie
    in files are copied before the first sweep, "" for those that are not. Kernels compute with
    vectors of ``vector_bytes``, if they are long enough for folded rows.
    """

    options: RunOptions
    machine: Machine
    comm: Comm
    shared: bool
    scratch: Path
    begin: Begin | None = None
    part: RankPart | None = None
    shares: Shares = _unknown
    copied: Copied = _unknown
    vector_bytes: int = 0
    _made: list[Made] = msgspec.field(default_factory=list[Made])

    @classmethod
    def of(
        cls,
        sharing: Sharing,
        machine: Machine,
        begin: Begin | None = None,
        shares: Shares = _unknown,
        copied: Copied = _unknown,
        vector_bytes: int = 0,
    ) -> Planning:
        """That of one rank, all of which call this, on a ``machine`` of its own."""
        least, scratch = least_of(machine, sharing.comm), sharing.scratch()
        options, alone = sharing.options, sharing.alone
        given = options, least, sharing.comm, not alone, scratch, begin
        alike = len({*sharing.comm.share(vector_bytes)}) == 1
        vector_bytes = vector_bytes if alike else 0
        return cls(*given, shares=shares, copied=copied, vector_bytes=vector_bytes)

    @property
    def stays(self) -> bool:
        """Whether ranks go on in the files that they have."""
        return self.part is not None

    def going_on(self, rest: Problem, durable: Durable | None) -> Planning:
        """The same for the steps that are left of a run of which something is ``durable``."""
        if durable is None:
            return self
        if self.shared:
            return self._as_before(rest, durable)
        manifest = durable.shares[0].manifest
        begun = manifest.part or manifest.planes
        if not begun or manifest.transposed != rest.transposed or not self._within(durable):
            return self
        begin = Begin(manifest.depth, manifest.planes, manifest.part, manifest.cut)
        return replace(self, begin=begin)

    def settled(self, problem: Problem, durable: Durable | None = None) -> Settled:
        """The problem in the form that takes least time, of those that the options allow.

        A run of which something is ``durable`` goes on as it was begun. Raises UsageError.
        """
        told: tuple[str, ...] = ()
        for form in Axis, Temporaries, Stages, Folds:
            found = form(self).settled(problem, durable)
            problem, told = found.problem, (*told, *found.told)
        return Settled(problem, told)

    def forms(self, problem: Problem) -> tuple[Problem, ...]:
        """The problem with temporaries kept, and the other form that it may be computed in.

        That one computes temporaries again that the rates of cores and caches say so of. Where the
        options leave no choice, there is one form. Axis and rows are those that are for the run.
        """
        along = Axis(self).settled(problem).problem
        forms = [Stages(self).settled(form).problem for form in Temporaries(self).forms(along)]
        return tuple(Folds(self).settled(form).problem for form in forms)

    def rates_of(self, *forms: Problem) -> list[Calibration | None]:
        """What was measured of the kernels of ``forms``, where that is known of all."""
        rates = [known_rates(one, self.options, self.machine) for one in forms]
        every = self.comm.share(rates)[0]
        return every if None not in every else [None] * len(forms)

    def first(self, problem: Problem) -> Plan:
        """The plan of this rank, from what is known of the kernel's rates by now."""
        return self.chosen(problem, *self.rates_of(problem))

    def with_disk(self, first: Plan, progress: Listener | None = None) -> Planning:
        """The same with the rates of the disk.

        These are measured before a long run of one rank that streams, where nothing is known of
        them; what is found is kept.
        """
        options, effort = self.options, Effort.short()
        streams = first.tier == "direct" and not first.schedule.resident and first.device is None
        long = first.predicted_seconds >= WORTH_PROBING_SECONDS
        room = options.memory_bytes - self._fixed_bytes
        if not (streams and long and self.comm.size == 1) or options.effort == "estimate":
            return self
        if is_spread(options) or effort.moving_bytes > room:
            return self
        free = free_bytes(self.scratch)
        if first.volume.disk_bytes + effort.file_bytes > free:
            return self
        described = describe_machine()
        if known_profile(described, self.scratch) is not None:
            return self
        with doing(progress, "measuring the disk"):
            profile = measure_disk(self.scratch, effort)
        keep_profile(profile)
        return replace(self, machine=profile.machine(self.machine))

    def measured(
        self,
        first: Plan,
        problem: Problem,
        kernel: Kernel | DeviceKernel,
        progress: Listener | None = None,
    ) -> Plan:
        """The plan of a run that is about to start as ``first`` says.

        A kernel that is going to run for long is measured before, by rank 0 for all of them. One
        for a device is not: there is one order of updates. Nor is the reference executor.
        """
        if isinstance(kernel, DeviceKernel) or not kernel.measurable or self.part is not None:
            return first
        effort = self.options.effort
        worth = effort == "patient" or first.predicted_seconds >= WORTH_CALIBRATING_SECONDS
        rates = None
        if self.comm.rank == 0 and worth and effort != "estimate":
            rates = calibration(problem, self.options, self.machine, kernel, progress=progress)
        rates = self.comm.share(rates)[0]
        return first if rates is None else self.chosen(problem, rates)

    def _within(self, durable: Durable) -> bool:
        """Whether all that is durable of the sweep under way can be compared with its checksums.

        Else the sweep begins again.
        """
        manifest, whole = durable.shares[0].manifest, durable.whole
        if self.options.tier == "remote" and not by_planes(whole, manifest.cut):
            return False  # what is there is copied to other nodes at once
        within = sums_within(whole, durable.steps, manifest.depth, manifest.cut)
        return within or not manifest.sealed

    def _as_before(self, rest: Problem, durable: Durable) -> Planning:
        """That of ranks that go on in the files they have, where they can."""
        group, options = durable.group, self.options
        if group is None or len(group.folders) != self.comm.size:
            return self
        for cuts, bounds in (
            (options.cuts, group.plane_bounds),
            (options.row_cuts, group.row_bounds),
        ):
            if cuts and cuts != bounds[1:-1]:
                return self
        if options.exchange is not None and (options.exchange == "seams") != group.seams:
            return self
        depths = group.rest(durable.steps) if rest.steps else ()
        if depths is None or (depths and max(depths) != max(group.depths)):
            return self  # files are for the deepest sweep
        if options.depth and depths and min(options.depth, rest.steps) != max(depths):
            return self
        bounds, halos = (group.plane_bounds, group.row_bounds), Sizing(rest).halos
        mine = Subgrid(
            self.comm.rank, bounds, halos, seams=group.seams, ring=ring(rest, len(bounds[0]) - 1)
        )
        before, fits = self, True
        try:
            part = self._part_before(rest, mine, depths)
            before = replace(self, part=part)
            before.first(rest)
        except InfeasiblePlan:
            fits = False
        return before if all(self.comm.share(fits)) else self

    def _part_before(self, rest: Problem, mine: Subgrid, depths: tuple[int, ...]) -> RankPart:
        """What a rank is to plan that goes on in its files."""
        if not SCHEMES[self.options.scheme or DEFAULT.name].blocks:
            return RankPart(mine.turned(max(depths, default=0)), Network(), depths=depths)
        planes, rows = mine.bounds
        named = {"cuts": planes[1:-1], "row_cuts": rows[1:-1], "depth": max(depths, default=None)}
        options = msgspec.structs.replace(self.options, **named)
        ranks = Ranks(self.comm.rank, self.comm.size, Network())
        alike = plan_rank(rest, options, self.machine, self._fixed_bytes, ranks).schedule
        assert alike.subgrid is not None
        assert alike.blocks is not None
        slab, block = alike.slab_planes, alike.blocks.core
        return RankPart(alike.subgrid, Network(), depths=depths, slab=slab, block=block)

    def chosen(self, problem: Problem, calibration: Calibration | None) -> Plan:
        """The plan of a problem from the rates of its kernel, which is made once."""
        for one, known_then, chosen in self._made:
            if one is problem and known_then == calibration:
                return chosen
        chosen = self._plan(problem, calibration)
        self._made.append((problem, calibration, chosen))
        return chosen

    def _plan(self, problem: Problem, calibration: Calibration | None) -> Plan:
        options, machine = self.options, self.machine
        if self.part is not None:
            return choose(problem, options, machine, self._fixed_bytes, part=self.part)
        if self.shared:
            disk_bytes = self._disk_bytes(problem)
            ranks = Ranks(self.comm.rank, self.comm.size, Network(), disk_bytes)
            return plan_rank(problem, options, machine, self._fixed_bytes, ranks, calibration)
        accelerator, fixed_bytes = None, self._fixed_bytes
        if options.device != "cpu":
            accelerator, calibration = self._accelerator(), None
            fixed_bytes += DEVICE_FIXED_BYTES
        inputs = problem, options, machine, fixed_bytes, calibration, self.begin
        chosen = choose(*inputs, accelerator=accelerator)
        if chosen.fortran:
            check_fits(problem, chosen.memory.before_bytes, options.memory_bytes)
        packs = options.pack != "never" and not problem.transposed
        if packs and _can_pack(chosen, options):
            packed = self.shares(chosen.schedule.kept)
            other = choose(*inputs, packed=packed) if packed else chosen
            worth = other.predicted_seconds < WORTH_PACKING * chosen.predicted_seconds
            if other.packed and (worth or options.pack == "always"):
                chosen = other
        return _worn(_uncopied(chosen, self.copied(chosen)), problem, options)

    @property
    def _fixed_bytes(self) -> int:
        """What a process needs beside its window and its transfers."""
        return fixed_bytes(self.options) + (MPI_BYTES if self.comm.size > 1 else 0)

    def _accelerator(self) -> Accelerator:
        """The device that is there, else one of the memory asked for."""
        asked = self.options.device_memory_bytes
        try:
            accelerator = device.describe_device(self.options.device)
        except DeviceError:
            if asked is None:
                raise
            accelerator = Accelerator(asked)
        return replace(
            accelerator,
            memory_bytes=min(accelerator.memory_bytes, asked or accelerator.memory_bytes),
        )

    def _disk_bytes(self, problem: Problem) -> int:
        """The least that any rank can fill with working files, beside their checksums."""
        mine = free_bytes(self.scratch) // self.comm.local
        row_bytes = min(problem.row_bytes(field.name) for field in problem.stencil.fields)
        return min(self.comm.share(mine)) * row_bytes // (row_bytes + SUM_BYTES)


def plan_elsewhere(problem: Problem, options: RunOptions, site: Site) -> Plan:
    """The plan of one of the ranks of a site, if there is one with two neighbours.

    Raises InfeasiblePlan where nothing fits, or the working files do not fit on its disks.
    """
    alone = site.nodes == 1
    check_purposes(options, Start(alone=alone))
    ranks = Ranks(min(1, site.nodes - 1), site.nodes, site.network, site.disk_bytes)
    options = options.of_rank(ranks.rank)
    measured = known_rates(problem, options, site.machine)
    inputs = problem, options, site.machine
    if not alone:
        chosen = plan_rank(*inputs, FIXED_BYTES + MPI_BYTES, ranks, measured)
    else:
        chosen = choose(*inputs, fixed_bytes(options), measured)
    needed = chosen.volume.disk_bytes
    if site.disk_bytes is not None and needed > site.disk_bytes:
        raise InfeasiblePlan(
            f"the working files of a node need {format_bytes(needed)}, and its disks hold "
            f"{format_bytes(site.disk_bytes)}: use more or larger disks, or more nodes"
        )
    worn = _worn(chosen, problem, options, site.endurance_bytes)
    return worn if not site.name else replace(worn, notes=(*worn.notes, _told(site)))


def _told(site: Site) -> str:
    machine = site.machine
    return (
        f"for {site.name}, by its description; nothing was measured. A node has "
        f"{format_bytes(machine.memory_bytes)} of memory at "
        f"{machine.memory_bandwidth / 1e9:.3g} GB/s, disks that read "
        f"{machine.read_bandwidth / 1e9:.3g} and write {machine.write_bandwidth / 1e9:.3g} GB/s"
    )


def like_here(options: RunOptions, nodes: int) -> Site:
    """So many nodes like this machine."""
    machine = known_machine(options.of_rank(0).scratch or options.out)
    return Site("", machine, nodes)


def least_of(machine: Machine, comm: Comm) -> Machine:
    """The least of what the ranks' machines offer, shared by those that are on one host."""
    rates = ("memory_bandwidth", "read_bandwidth", "write_bandwidth", "mixed_bandwidth")
    most = ("flush_seconds", "flushing_seconds", "moving_seconds")
    mine = replace(
        machine,
        cores=max(1, machine.cores // comm.local),
        **{name: getattr(machine, name) / comm.local for name in rates},
    )
    every = comm.share(mine)
    least = {
        name: min(getattr(peer, name) for peer in every)
        for name in Machine.__annotations__
        if isinstance(getattr(mine, name), int | float) and name not in ("measured", *most)
    }
    slowest = {name: max(getattr(peer, name) for peer in every) for name in most}
    return replace(every[0], **least, **slowest)


def fixed_bytes(options: RunOptions) -> int:
    """What a process needs beside its window and its transfers, if it has the whole grid."""
    return FIXED_BYTES + (MPI_BYTES if options.tier == "remote" else 0)


def known_rates(problem: Problem, options: RunOptions, machine: Machine) -> Calibration | None:
    """What was measured of the kernel before, None where nothing was."""
    return known(calibration_path(problem, options, machine, _room_bytes(options)))


def calibration(
    problem: Problem,
    options: RunOptions,
    machine: Machine,
    kernel: Kernel,
    again: bool = False,
    progress: Listener | None = None,
    beside: Tile | None = None,
) -> Calibration | None:
    """What is known of the kernel's rates; measured now, and kept, where nothing is.

    With ``effort = "patient"`` only what was measured so is known, and what other programs
    disturbed only as long as they do. ``again`` measures in any case, and another tile ``beside``;
    what was found now is returned then, also where what was kept stays. None where the memory limit
    leaves no room to measure.
    """
    room = _room_bytes(options)
    path = calibration_path(problem, options, machine, room)
    before = known(path)
    if not again and before is not None and _serves(before, options):
        return before
    with doing(progress, "measuring the kernel"):
        rates = calibrate(problem, options, machine, kernel, room, beside)
    if rates is None:
        return None if again else before
    if rates.replaces(before):
        keep(rates, path)
        return rates
    return rates if again else before


def _room_bytes(options: RunOptions) -> int:
    """What the window in which a kernel is measured may take."""
    return min(CALIBRATION_BYTES, (options.memory_bytes - fixed_bytes(options)) * 3 // 4)


def _serves(rates: Calibration, options: RunOptions) -> bool:
    """Whether a run is planned from rates that were kept, and does not measure them again."""
    if options.effort == "patient" and not rates.patient:
        return False
    return not rates.disturbed or others_share(LOOK_SECONDS) >= DISTURBING_SHARE


def _can_pack(chosen: Plan, options: RunOptions) -> bool:
    """Whether a plan reads coefficients from files again and again."""
    streamed = chosen.tier == "direct" and not chosen.schedule.resident
    return (
        streamed
        and chosen.schedule.blocks is None
        and chosen.device is None
        and (chosen.predicted_seconds > WORTH_PACKING_SECONDS or options.pack == "always")
        and not is_spread(options)
    )


def _uncopied(chosen: Plan, copied: Mapping[str, str]) -> Plan:
    """The plan without the copies of levels that are read where they lie; why others are copied."""
    volume, levels = chosen.volume, list[str]()
    fill_bytes, disk_bytes = volume.fill_bytes, volume.disk_bytes
    for level in chosen.schedule.kept:
        if copied.get(level_name(level)) == "":
            levels.append(level_name(level))
            nbytes = chosen.plane_bytes(level.field) * chosen.schedule.planes
            fill_bytes -= nbytes
            disk_bytes -= nbytes if level.constant else 0
    notes = [f"{name} is copied first: {why}" for name, why in copied.items() if why]
    if levels:
        told = ", ".join(levels)
        notes += [f"read where they lie, in files that have to stay as they are: {told}"]
    return replace(
        chosen,
        uncopied=tuple(levels),
        volume=replace(volume, fill_bytes=fill_bytes, disk_bytes=disk_bytes),
        notes=(*chosen.notes, *notes),
    )


def _worn(
    chosen: Plan, problem: Problem, options: RunOptions, endurance_bytes: int | None = None
) -> Plan:
    """The plan with what it takes of the flash beside its sweeps, and what there is to take."""
    copied = not chosen.outlives or is_spread(options)
    exported = chosen.result_bytes if copied else 0
    endurance = options.endurance_bytes or endurance_bytes
    if endurance is None:
        endurance = device_endurance(options.scratch or Path())
    volume = replace(
        chosen.volume,
        exported_bytes=exported,
        snapshot_bytes=problem.snapshot_bytes,
        endurance_bytes=endurance,
    )
    return replace(chosen, volume=volume)
