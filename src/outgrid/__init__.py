"""Stencil computations on grids that outgrow memory.

>>> import outgrid as og
>>> @og.stencil
... def heat(u, *, k):
...     return u + k * og.laplacian(u)
>>> problem = og.Problem(heat, shape=(34, 34, 34), steps=4, parameters={"k": 0.1},
...                      initial={"u": "exp(-((x - 17)**2 + (y - 17)**2 + (z - 17)**2) / 20)"})
>>> og.plan(problem, memory="1GiB").scheme
'skewed'
"""

# `plan` and `stencil` are functions named like the rooms they come from. Importing a room binds its
# name here, once; all rooms are imported by the first line, so the functions win.
from outgrid.api import Result, plan, resume, run
from outgrid.stencil.definition import stencil
from outgrid.stencil.laplacian import laplacian
from outgrid.stencil.points import Receiver, Source
from outgrid.stencil.problem import Problem
from outgrid.stencil.symbol import (
    absolute,
    cos,
    exp,
    log,
    maximum,
    minimum,
    sin,
    sqrt,
    step,
    tanh,
    where,
)
from outgrid.version import __version__

__all__ = [
    "Problem",
    "Receiver",
    "Result",
    "Source",
    "__version__",
    "absolute",
    "cos",
    "exp",
    "laplacian",
    "log",
    "maximum",
    "minimum",
    "plan",
    "resume",
    "run",
    "sin",
    "sqrt",
    "stencil",
    "step",
    "tanh",
    "where",
]
