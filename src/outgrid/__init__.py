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
from outgrid import remote
from outgrid.api import Result, matrix, plan, resume, run
from outgrid.api import open_run as open  # noqa: A004 - og.open is to read like that
from outgrid.stencil.absorb import matched_layer, matched_layers, sponge
from outgrid.stencil.components import Gradient, Tensor, Vector
from outgrid.stencil.definition import stencil
from outgrid.stencil.difference import backward, forward, second
from outgrid.stencil.laplacian import laplacian
from outgrid.stencil.points import Receiver, Source
from outgrid.stencil.problem import Problem
from outgrid.stencil.reduction import max_over as max  # noqa: A004
from outgrid.stencil.reduction import min_over as min  # noqa: A004
from outgrid.stencil.reduction import sum_over as sum  # noqa: A004
from outgrid.stencil.snapshot import Snapshot
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
from outgrid.stencil.until import Until
from outgrid.storage.paging import Pager, paged
from outgrid.version import __version__

__all__ = [
    "Gradient",
    "Pager",
    "Problem",
    "Receiver",
    "Result",
    "Snapshot",
    "Source",
    "Tensor",
    "Until",
    "Vector",
    "__version__",
    "absolute",
    "backward",
    "cos",
    "exp",
    "forward",
    "laplacian",
    "log",
    "matched_layer",
    "matched_layers",
    "matrix",
    "max",
    "maximum",
    "min",
    "minimum",
    "open",
    "paged",
    "plan",
    "remote",
    "resume",
    "run",
    "second",
    "sin",
    "sponge",
    "sqrt",
    "stencil",
    "step",
    "sum",
    "tanh",
    "where",
]
