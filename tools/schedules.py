"""What schedules of the package checkpoint-schedules would take for a gradient, beside our own.

python tools/schedules.py     (needs pip install checkpoint-schedules, which is under the LGPL)

A schedule of the package keeps a number of states, on disk, and goes back one step at a time. For
as much disk space we keep fewer states and a history between two of them. Counted are steps
forward, and fields that move past memory: `wave:4` reads 3 and writes 2 in each sweep forward, and
reads 4 and writes 3 in each sweep back; a state is 2 fields, a frame of the history 1.
"""

from __future__ import annotations

import math

from checkpoint_schedules import EndReverse, Forward, MultistageCheckpointSchedule

from outgrid.reversal.cuts import Cuts, most_kept, steps_forward

FORWARD, BACK, STATE, FRAME = 5, 7, 2, 1
DEPTH = 12  # steps of a sweep where several are made


def sweeps(steps: int) -> int:
    """Sweeps that make so many steps."""
    return math.ceil(steps / DEPTH)


def theirs(steps: int, states: int) -> tuple[int, int]:
    """Steps forward, and fields moved, of the package's schedule of multiple stages."""
    made = moved = 0
    for action in MultistageCheckpointSchedule(steps, 0, states):
        if isinstance(action, Forward):
            run = min(action.n1, steps) - action.n0
            made, moved = made + run, moved + FORWARD * sweeps(run)
        if isinstance(action, EndReverse):
            break
    return made, moved + BACK * steps + 2 * FRAME * steps  # each step back reads a state of a step


def ours(steps: int, fields: int) -> tuple[int, int]:
    """The same of the fewest steps that we make with room for so many fields."""
    cuts = Cuts(steps, 1)
    one = [(length,) for length in range(1, steps)]
    two = [(outer, inner) for outer in range(8, steps, 8) for inner in range(4, outer, 4)]
    for ways in (one, two):
        fitting = []
        for lengths in ways:
            kept, history = most_kept(cuts, lengths)
            if STATE * kept + FRAME * history <= fields:
                fitting.append(steps_forward(cuts, lengths))
        if fitting:
            made = min(fitting)
            return made, FORWARD * sweeps(made) + BACK * sweeps(steps) + 2 * FRAME * steps
    raise SystemExit(f"no strategy of ours makes {steps} steps with room for {fields} fields")


def main() -> None:
    """Print the table."""
    print("| steps | states | steps forward, theirs | ours | fields moved, theirs | ours |")
    print("|---|---|---|---|---|---|")
    for steps, states in ((48, 10), (48, 16), (1000, 32), (1000, 64), (1000, 128)):
        other, own = theirs(steps, states), ours(steps, STATE * states)
        row = steps, states, other[0], own[0], other[1], own[1]
        print("| " + " | ".join(map(str, row)) + " |")


if __name__ == "__main__":
    main()
