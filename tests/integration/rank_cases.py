"""What each rank of a test does: run ten problems, each into a folder of its own.

mpiexec -n 4 python rank_cases.py FOLDER
"""

import sys
from pathlib import Path

import numpy as np

import outgrid as og
from outgrid.comm import launched_ranks


@og.stencil
def staggered(e, h, c, *, k):
    """Two stages, each field in place."""
    return [
        {"h": h + k * c * (e[1, 0, 0] - e + e[0, 2, 0] - e[0, -1, 1])},
        {"e": e + k * (h - h[-1, 0, 0] + h[0, 1, 0])},
    ]


AROUND = {"x": "periodic", "y-": "neumann", "y+": "mirror"}
KINDS = (
    ("heat7", "float64", "dirichlet"),
    ("heat5", "float32", AROUND),
    (staggered, "float64", "dirichlet"),
    ("wave:4", "float64", "dirichlet"),
)


def problems() -> list[tuple[og.Problem, dict[str, object]]]:
    """Ten problems with the options of their runs; the same in every process."""
    draw = np.random.default_rng(7)
    return [_problem(draw, number) for number in range(10)]


def _problem(draw: np.random.Generator, number: int) -> tuple[og.Problem, dict[str, object]]:
    kind, dtype, boundary = KINDS[number % len(KINDS)]
    planes = int(draw.integers(64, 90))
    shape = (planes, int(draw.integers(9, 20)), 24)
    if kind in ("heat5", "wave:4"):  # rows that fill blocks of a file move without staging
        shape = (planes, 1024 if number > 6 else int(draw.integers(20, 40)))
    initial = {"u": draw.random(shape)}
    if kind == "wave:4":
        initial["c"] = 0.1 + 0.1 * draw.random(shape)
    if kind is staggered:
        initial = {name: draw.random(shape) for name in "ehc"}
    points = {}
    if number in (0, 1):
        points = {
            "sources": [og.Source("u", (planes // 2, *(n // 2 for n in shape[1:])), 0.25)],
            "receivers": [og.Receiver("u", (planes / 2 - 0.3, *(n / 2 for n in shape[1:])))],
        }
    if number in (3, 4, 5):
        points["snapshots"] = [
            og.Snapshot("u", every=2, stride=3, **{"yz"[len(shape) - 2]: "3:-9:5"}),
            og.Snapshot("u", every=3, first=1, x=7),
        ]
    problem = og.Problem(
        kind,
        shape,
        dtype,
        int(draw.integers(1, 15)),
        parameters={"k": 0.05} if kind is staggered else {},
        boundary=boundary,
        initial=initial,
        **points,
    )
    options = {"depth": int(draw.integers(1, 4)), "slab_planes": int(draw.integers(1, 6))}
    return problem, options


def main(folder: Path) -> None:
    """Run all of them."""
    for number, (problem, options) in enumerate(problems()):
        ranks = launched_ranks()
        if ranks > 1:
            cuts = row_cuts(problem, ranks, number)
            seams = not cuts and number in (0, 1, 3, 5, 9)
            options |= {"exchange": "seams" if seams else "halos", "row_cuts": cuts}
        og.run(problem, memory="1GiB", threads=1, out=folder / str(number), **options)


def row_cuts(problem: og.Problem, ranks: int, number: int) -> tuple[int, ...]:
    """Cuts of the rows into some of the numbers of parts that go, none of them like another."""
    if problem.ndim == 2:
        return ()
    goes = [parts for parts in range(1, ranks + 1) if ranks % parts == 0]
    parts = goes[number // 2 % len(goes)]
    draw = np.random.default_rng(number)
    inside = draw.permutation(np.arange(1, problem.shape[1]))[: parts - 1]
    return tuple(int(row) for row in sorted(inside))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
