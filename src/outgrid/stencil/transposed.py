"""A problem with its first axis and another exchanged: planes pass through memory along that one.

A grid whose first axis is short has large planes, and passes through memory better along a longer
axis. The stencil then reads at exchanged offsets, and its operations and their order are the same:
so are the values of the answer.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from outgrid.axes import NAMES, exchanged
from outgrid.stencil import expression as ex
from outgrid.stencil.boundary import Boundary
from outgrid.stencil.model import Assignment, Stage, Stencil
from outgrid.stencil.points import Source

if TYPE_CHECKING:
    from outgrid.stencil.problem import Problem

__all__ = ["transposed_arguments", "why_not_transposed"]


def why_not_transposed(problem: Problem) -> str:
    """Why the axes of a problem cannot be exchanged, in words; empty where they can."""
    stencil = problem.stencil
    random = any(
        isinstance(node, ex.Operation) and node.name == "random"
        for node in ex.nodes(*stencil.expressions)
    )
    reasons = {
        "a grid of two axes has one for its planes": problem.ndim != 3,
        "reductions are summed up plane by plane": bool(stencil.reductions),
        "random numbers follow from the place of a cell": random,
        "snapshots are kept plane by plane": bool(problem.snapshots),
        "receivers between cells add up what is around them in the order of axes": bool(
            problem.receivers
        ),
        "coefficients that change with every step lie in files of others": bool(problem.series),
        "fields that exist in parts of the grid are kept by planes": bool(problem.regions),
    }
    return next((words for words, holds in reasons.items() if holds), "")


def transposed_arguments(problem: Problem, axis: int) -> dict[str, Any]:
    """The arguments of the problem with the first axis and another exchanged.

    All values begin with 0.

    Profiles are given by their values.
    """
    profiles = {
        one.name: problem.profile_values(one.name) for one in problem.stencil.given_profiles
    }
    return {
        "stencil": _transposed(problem.stencil, axis),
        "shape": exchanged(problem.shape, axis),
        "dtype": problem.dtype,
        "dtypes": problem.dtypes,
        "steps": problem.steps,
        "first_step": problem.first_step,
        "parameters": {**problem.parameters, **profiles},
        "boundary": _around(problem.boundary, axis),
        "initial": dict.fromkeys(problem.initial, 0.0),
        "sources": [
            Source(source.field, exchanged(source.position, axis), source.values)
            for source in problem.sources
        ],
        "until": problem.until,
    }


def _transposed(stencil: Stencil, axis: int) -> Stencil:
    """The stencil that reads at exchanged offsets."""
    made = [assignment.expression for assignment in stencil.assignments]
    turned: dict[ex.Expression, ex.Expression] = {}
    axes = exchanged(range(stencil.ndim), axis)
    for node in ex.nodes(*made):
        if isinstance(node, ex.Access):
            turned[node] = replace(node, offset=exchanged(node.offset, axis))
        elif isinstance(node, ex.Profile):
            turned[node] = replace(node, axis=axes[node.axis])
    expressions = iter(ex.substitute_all(made, turned))
    stages = tuple(
        Stage(tuple(Assignment(one.field, next(expressions)) for one in stage.assignments))
        for stage in stencil.stages
    )
    return replace(stencil, stages=stages)


def _around(boundary: Boundary, axis: int) -> Boundary:
    """The boundary with the faces of the first axis and another exchanged."""
    names = dict(zip(NAMES, exchanged(NAMES, axis), strict=True))
    return dataclasses.replace(
        boundary,
        faces=tuple(
            (names[name[0]] + name[1:], _around(face, axis)) for name, face in boundary.faces
        ),
        fields=tuple((name, _around(own, axis)) for name, own in boundary.fields),
    )
