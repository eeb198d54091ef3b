"""What the arrays that a run leaves mean: their axes, and what the grid says of their fields."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from outgrid.formats.axis import Axis
from outgrid.stencil.grid import Grid
from outgrid.stencil.problem import PREVIOUS, Problem
from outgrid.stencil.snapshot import snapshots_by_file

__all__ = ["described"]


def described(
    problem: Problem, fields: Iterable[str], dt: float | None = None
) -> dict[str, tuple[tuple[Axis, ...], dict[str, str]]]:
    """Where the cells of fields and snapshots lie, and what the grid says of them, by name.

    These are axes and attributes such as units: fields first, then "snapshot.0", ... A step takes
    `dt` seconds, in place of what the grid says.
    """
    grid = problem.grid or Grid()
    grid = grid if dt is None else replace(grid, dt=dt)

    def along(field: str) -> tuple[Axis, ...]:
        return grid.axes(problem.ndim, field.removesuffix(PREVIOUS))

    axes = [(name, name, along(name)) for name in fields]
    axes += [
        (Path(file).stem, snapshot.field, snapshot.axes(problem.shape, along(snapshot.field)))
        for file, snapshot in snapshots_by_file(problem.snapshots).items()
    ]
    return {
        name: (
            tuple(grid.times(cell) if cell.name == "step" else cell for cell in cells),
            grid.attributes(field.removesuffix(PREVIOUS)),
        )
        for name, field, cells in axes
    }
