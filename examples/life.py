"""J. H. Conway's game of life, one byte for each cell.

A cell lives on with two or three living neighbours of its eight, and comes to life with three
(M. Gardner, Scientific American 223 (1970), number 4, 120). The field is of whole numbers, uint8,
and is updated; what is computed in between is float32, exact for such small numbers.

Checked: the R-pentomino, five cells, settles after 1103 steps to 116 cells, six gliders that fly
away among them; the acorn, seven cells, after 5206 steps to 633 (the LifeWiki, conwaylife.com).
"""

import numpy as np

import outgrid as og

PATTERNS = {"r-pentomino": (".##", "##.", ".#."), "acorn": (".#.....", "...#...", "##..###")}
SETTLED = {"r-pentomino": (1103, 116), "acorn": (5206, 633)}
"""The steps after which a pattern is stable, and how many cells live then."""


@og.stencil
def life(alive):
    """One generation, and how many lived in the one before."""
    around = sum(alive[j, i] for j in (-1, 0, 1) for i in (-1, 0, 1)) - alive
    lives = (around == 3) | ((alive == 1) & (around == 2))
    return {"alive": og.where(lives, 1, 0), "living": og.sum(alive)}


def begun(pattern, size):
    """A pattern in the middle of an empty square."""
    cells = np.zeros((size, size), np.uint8)
    shape = np.array([[letter == "#" for letter in row] for row in PATTERNS[pattern]])
    low, left = ((size - extent) // 2 for extent in shape.shape)
    cells[low : low + shape.shape[0], left : left + shape.shape[1]] = shape
    return cells


def problem(pattern="r-pentomino", size=0, steps=0):
    """A pattern until it has settled, on a square that no glider leaves by then."""
    steps = steps or SETTLED[pattern][0] + 2
    size = size or 2 * (steps // 4 + 40)  # gliders make a cell in four steps
    return og.Problem(
        life, (size, size), "float32", steps, boundary="empty",
        initial={"alive": begun(pattern, size)}, dtypes={"alive": "uint8"},
    )  # fmt: skip


def draw(result, path):
    """The cells at the end, and how many lived at each step."""
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(7, 3.4), layout="constrained")
    cells = np.asarray(result["alive"])
    middle = [slice(extent // 2 - 120, extent // 2 + 120) for extent in cells.shape]
    left.imshow(cells[tuple(middle)], cmap="gray_r")
    left.set(xticks=[], yticks=[])
    right.plot(result.reductions["living"])
    right.set(xlabel="step", ylabel="living cells", ylim=0)
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    from command import arguments, run

    given = arguments(
        __doc__,
        pattern={"choices": tuple(PATTERNS), "default": "r-pentomino", "help": "what begins"},
        size={"type": int, "default": 0, "help": "cells of an edge; as many as gliders need"},
        steps={"type": int, "default": 0, "help": "time steps; until the pattern has settled"},
    )
    result = run(problem(given.pattern, given.size, given.steps), given)
    living = result.reductions["living"].astype(int)
    settled, cells = SETTLED[given.pattern]
    if len(living) > settled:
        print(f"{living[settled]} cells after {settled} steps, {cells} are known")
    if given.picture:
        draw(result, given.picture)
