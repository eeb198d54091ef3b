"""Sources and receivers as the tables that a kernel reads and fills."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from outgrid.stencil.points import corners
from outgrid.stencil.problem import Problem


class Points(msgspec.Struct, frozen=True):
    """Cells as rows of (field, plane, row, column), in the order of the problem.

    ``amounts`` and ``samples`` have one row per step; what stands in ``samples`` is valid for the
    steps that all planes have made. ``weights``, one for each of these cells, turn samples into
    traces: those of a receiver follow each other, from ``firsts`` of it on.
    """

    injected: NDArray[np.int64]
    amounts: NDArray[np.float64]
    sampled: NDArray[np.int64]
    samples: NDArray[np.float64]
    weights: NDArray[np.float64]
    firsts: NDArray[np.int64]

    @classmethod
    def of(cls, problem: Problem) -> Points:
        """The tables of a problem, with samples still to be filled."""
        injected: list[tuple[int, ...]] = []
        amounts: list[NDArray[np.float64]] = []
        for source in problem.sources:
            around, values = source.amounts(problem.steps, problem.dtype_of(source.field))
            injected += [_row(problem, source.field, cell) for cell in around]
            amounts.append(values)
        cells, weights, firsts = sampled(problem)
        table = np.hstack([np.zeros((problem.steps, 0)), *amounts])
        return cls(
            np.array(injected, np.int64).reshape(-1, 4),
            np.ascontiguousarray(table),
            cells,
            np.zeros((problem.steps, len(cells))),
            weights,
            firsts,
        )


def sampled(
    problem: Problem,
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """The cells that receivers look at, their weights, and the first of each; see `Points`."""
    cells: list[tuple[int, ...]] = []
    weights: list[float] = []
    firsts: list[int] = []
    for receiver in problem.receivers:
        firsts.append(len(cells))
        for cell, weight in corners(receiver.position):
            cells.append(_row(problem, receiver.field, cell))
            weights.append(weight)
    return np.array(cells, np.int64).reshape(-1, 4), np.array(weights), np.array(firsts, np.int64)


def traces_of(
    samples: NDArray[np.float64], weights: NDArray[np.float64], firsts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Traces of (steps, receivers), each the sum of its samples in their order.

    So the trace of a step does not depend on how many steps there are, as a product of matrices.
    """
    traces = np.zeros((len(samples), len(firsts)))
    counts = np.diff(firsts, append=len(weights))
    for corner in range(counts.max(initial=0)):
        columns = np.flatnonzero(corner < counts)
        cells = firsts[columns] + corner
        traces[:, columns] += samples[:, cells] * weights[cells]
    return traces


def _row(problem: Problem, field: str, cell: tuple[int, ...]) -> tuple[int, int, int, int]:
    number = [known.name for known in problem.stencil.fields].index(field)
    plane, row, column = cell if problem.ndim == 3 else (cell[0], 0, cell[1])
    return number, plane, row, column
