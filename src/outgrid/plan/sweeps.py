"""Sweeps: how the steps of a run are split into them."""

from __future__ import annotations

from outgrid.stencil.problem import Problem


def split_steps(steps: int, depth: int) -> tuple[int, ...]:
    """Steps per sweep, none above ``depth``, balanced and even where possible, shorter first.

    Shorter first because a shorter sweep that follows a longer one would overtake its last
    planes; even because then results leave from the ring that they arrived in.
    """
    rest, usual, others = _balanced(steps, depth)
    return (rest, *([usual] * others)) if steps else ()


def deepest_of_split(steps: int, depth: int) -> int:
    """The deepest sweep of `split_steps`, without listing all of them."""
    rest, usual, others = _balanced(steps, depth)
    return usual if others else rest


def _balanced(steps: int, depth: int) -> tuple[int, int, int]:
    """(steps of the first sweep, of each other one, how many others) of `split_steps`."""
    if steps == 0:
        return 0, 0, 0
    sweeps = -(-steps // depth)
    usual = -(-steps // sweeps)
    if usual % 2 and usual < depth:
        usual += 1
    sweeps = -(-steps // usual)  # an even depth may need one sweep less
    return steps - (sweeps - 1) * usual, usual, sweeps - 1


def sweep_steps(problem: Problem, depth: int, *, given: bool) -> tuple[int, ...]:
    """Steps per sweep of a problem: sweeps end wherever the run may end.

    A ``depth`` that was asked for is kept where it is ``given``, else it is balanced.
    """
    split = given_steps if given else split_steps
    return tuple(steps for stretch in problem.stretches for steps in split(stretch, depth))


def given_steps(steps: int, depth: int) -> tuple[int, ...]:
    """Steps per sweep where the depth was asked for: first what is over, then that depth."""
    full, rest = divmod(steps, depth)
    return (*((rest,) if rest else ()), *([depth] * full))
