"""Memory for what grows with the steps and the sweeps of a run, beside its window."""

from __future__ import annotations

from collections.abc import Iterable

from outgrid.config import RunOptions
from outgrid.formats import InputFile
from outgrid.formats.arrays import InputArray
from outgrid.formats.levels import levels_bytes
from outgrid.numbers import item_bytes
from outgrid.stencil.points import Receiver, Source, corners
from outgrid.stencil.problem import Problem

SWEEP_BYTES = 100
"""What a process keeps of each sweep: its depth, in the plan, the record and their texts."""

OUTLET_BYTES = 8 << 20
"""Memory through which kernels leave what snapshots keep, beside planes that are not complete."""

ITEM_BYTES = 8
# What is seen in each step is copied and put into the bytes of a file at each commit.
SEEN_COPIES = 5
GIVEN_COPIES = 2
# A number of a list as the problem, the manifest and the record have it, and their text.
LISTED_BYTES = 120


def inputs_bytes(problem: Problem) -> int:
    """Bytes of what gives the problem its initial values, beside the window.

    These are the arrays in memory that it holds, and the libraries that read files and others.
    """
    given = problem.initial.values()
    formats = {source.format for source in given if isinstance(source, InputFile)}
    arrays = [source.library_bytes for source in given if isinstance(source, InputArray)]
    libraries = sum(source.library_bytes for source in formats) + max(arrays, default=0)
    return libraries + held_bytes(problem)


def pyramid_bytes(problem: Problem, options: RunOptions) -> int:
    """Bytes of the planes of coarser levels that wait for others, of all fields that evolve."""
    if not options.pyramid:
        return 0
    fields = sum(not field.temporary for field in problem.stencil.evolving)
    return fields * levels_bytes(problem.shape)


def held_bytes(problem: Problem) -> int:
    """Bytes of the arrays in memory that a problem holds to begin with."""
    arrays = (value for value in problem.initial.values() if isinstance(value, InputArray))
    return sum({id(array.array): array.held_bytes for array in arrays}.values())


def outlet_bytes(problem: Problem) -> int:
    """Bytes of what kernels leave for snapshots, on its way to files."""
    return OUTLET_BYTES if problem.snapshots else 0


def unfinished_bytes(problem: Problem, levels: int, planes: int, share: float) -> int:
    """Bytes of what snapshots keep of so many ``planes`` of a slab, in ``levels`` of a sweep.

    Diamonds of rows fill them in turns, each through all planes, so none is complete before the
    slab is. Strips have a ``share`` of each plane. Half of what is there in any case counts.
    """
    kept = 0
    for snapshot in problem.snapshots:
        cells, dtype = snapshot.kept(problem.shape), problem.dtype_kept(snapshot)
        plane = len(cells[1]) * len(cells[2]) * item_bytes(dtype)
        here = -(-min(planes, problem.shape[0]) // cells[0].step)
        kept += -(-levels // snapshot.every) * min(here, len(cells[0])) * plane
    return max(0, round(kept * min(1.0, share)) - outlet_bytes(problem) // 2)


def steps_bytes(problem: Problem) -> int:
    """Bytes of what differs from step to step, and of what is seen in each of them.

    These are the values of parameters, what sources add to each cell, and what receivers and
    reductions see.
    """
    added, seen = (
        sum(len(corners(site.position)) for site in sites)
        for sites in (problem.sources, problem.receivers)
    )
    seen += len(problem.stencil.reductions)
    given = len(problem.stencil.parameters) + 1 + GIVEN_COPIES * added
    lists = [value for value in problem.parameters.values() if isinstance(value, tuple)]
    lists += [source.values for source in problem.sources if isinstance(source.values, tuple)]
    site = ITEM_BYTES * (given + SEEN_COPIES * seen)
    return problem.steps * site + LISTED_BYTES * sum(map(len, lists))


def traced_bytes(sites: Iterable[Source | Receiver]) -> int:
    """Bytes that a step takes of what receivers at these places see, or of sources there."""
    cells = sum(len(corners(site.position)) for site in sites)
    return cells * max(ITEM_BYTES * SEEN_COPIES, ITEM_BYTES * GIVEN_COPIES + LISTED_BYTES)


def sweeps_bytes(problem: Problem, depth: int) -> int:
    """Bytes of the list of all sweeps, of ``depth`` steps and less."""
    return SWEEP_BYTES * sum(-(-stretch // max(1, depth)) for stretch in problem.stretches)
