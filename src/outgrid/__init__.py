"""Stencil computations on grids that are larger than memory.

>>> import outgrid as og
>>> @og.stencil
... def heat(u, *, k):
...     return u + k * og.laplacian(u)
>>> problem = og.Problem(heat, shape=(34, 34, 34), steps=4, parameters={"k": 0.1},
...                      initial={"u": "exp(-((x - 17)**2 + (y - 17)**2 + (z - 17)**2) / 20)"})
>>> og.plan(problem, memory="1GiB").scheme
'skewed'
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

from outgrid.version import __version__

if TYPE_CHECKING:
    from outgrid import remote
    from outgrid.api import matrix, plan, resume, run, stripe
    from outgrid.api import open_run as open  # noqa: A004 - og.open is to read like that
    from outgrid.definition import Definition, stencil
    from outgrid.equations import from_sympy
    from outgrid.errors import (
        BuildError,
        DefinitionError,
        DeviceError,
        Error,
        ExecutionError,
        InfeasiblePlan,
        Stopped,
        StoreError,
        UsageError,
        VerificationError,
    )
    from outgrid.execute.streaming import Progress
    from outgrid.exports import convert, export
    from outgrid.formats.input import InputFile
    from outgrid.gradients import (
        Cotangents,
        Derivatives,
        GradientPlan,
        LeastSquares,
        Seen,
        Total,
        adjoint,
        gradient,
        plan_gradient,
    )
    from outgrid.machine import Machine
    from outgrid.plan.model import Plan
    from outgrid.record import Record
    from outgrid.result import Result
    from outgrid.runs.reading import Reading
    from outgrid.stencil.absorb import matched_layer, matched_layers, sponge
    from outgrid.stencil.boundary import Boundary
    from outgrid.stencil.chance import random
    from outgrid.stencil.components import Gradient, Tensor, Vector, channels
    from outgrid.stencil.difference import (
        backward,
        centered,
        cross,
        derivative,
        divergence,
        forward,
        interpolate,
        second,
        upwind,
    )
    from outgrid.stencil.grid import Grid
    from outgrid.stencil.history import History
    from outgrid.stencil.lagged import Lagged
    from outgrid.stencil.laplacian import laplacian
    from outgrid.stencil.points import Receiver, Source
    from outgrid.stencil.problem import Problem
    from outgrid.stencil.reduction import max_over as max  # noqa: A004
    from outgrid.stencil.reduction import min_over as min  # noqa: A004
    from outgrid.stencil.reduction import sum_over as sum  # noqa: A004
    from outgrid.stencil.region import Box, Shell, blocks
    from outgrid.stencil.series import Series
    from outgrid.stencil.snapshot import Snapshot
    from outgrid.stencil.symbol import (
        absolute,
        arctan,
        arctan2,
        ceil,
        clip,
        cos,
        cosh,
        exp,
        floor,
        hypot,
        isnan,
        log,
        maximum,
        minimum,
        sign,
        sin,
        sinh,
        sqrt,
        step,
        tan,
        tanh,
        trunc,
        where,
    )
    from outgrid.stencil.symbol import round_whole as round  # noqa: A004
    from outgrid.stencil.temporary import index, temporary
    from outgrid.stencil.until import Until
    from outgrid.storage.paging import Pager, paged
    from outgrid.survey import Fired, Iteration, Misfit, shots

__all__ = [
    "Boundary",
    "Box",
    "BuildError",
    "Cotangents",
    "Definition",
    "DefinitionError",
    "Derivatives",
    "DeviceError",
    "Error",
    "ExecutionError",
    "Fired",
    "Gradient",
    "GradientPlan",
    "Grid",
    "History",
    "InfeasiblePlan",
    "InputFile",
    "Iteration",
    "Lagged",
    "LeastSquares",
    "Machine",
    "Misfit",
    "Pager",
    "Plan",
    "Problem",
    "Progress",
    "Reading",
    "Receiver",
    "Record",
    "Result",
    "Seen",
    "Series",
    "Shell",
    "Snapshot",
    "Source",
    "Stopped",
    "StoreError",
    "Tensor",
    "Total",
    "Until",
    "UsageError",
    "Vector",
    "VerificationError",
    "__version__",
    "absolute",
    "adjoint",
    "arctan",
    "arctan2",
    "backward",
    "blocks",
    "ceil",
    "centered",
    "channels",
    "clip",
    "convert",
    "cos",
    "cosh",
    "cross",
    "derivative",
    "divergence",
    "exp",
    "export",
    "floor",
    "forward",
    "from_sympy",
    "gradient",
    "hypot",
    "index",
    "interpolate",
    "isnan",
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
    "plan_gradient",
    "random",
    "remote",
    "resume",
    "round",
    "run",
    "second",
    "shots",
    "sign",
    "sin",
    "sinh",
    "sponge",
    "sqrt",
    "stencil",
    "step",
    "stripe",
    "sum",
    "tan",
    "tanh",
    "temporary",
    "trunc",
    "upwind",
    "where",
]

# Each public name is imported when it is first used, from the module that has it: a script that
# only defines a problem loads no executor, and `outgrid --help` not even NumPy.
_HOMES = {
    "api": ("matrix", "open", "plan", "resume", "run", "stripe"),
    "definition": ("Definition", "stencil"),
    "equations": ("from_sympy",),
    "errors": (
        "BuildError",
        "DefinitionError",
        "DeviceError",
        "Error",
        "ExecutionError",
        "InfeasiblePlan",
        "Stopped",
        "StoreError",
        "UsageError",
        "VerificationError",
    ),
    "exports": ("convert", "export"),
    "execute.streaming": ("Progress",),
    "formats.input": ("InputFile",),
    "gradients": (
        "Cotangents",
        "Derivatives",
        "GradientPlan",
        "LeastSquares",
        "Seen",
        "Total",
        "adjoint",
        "gradient",
        "plan_gradient",
    ),
    "machine": ("Machine",),
    "plan.model": ("Plan",),
    "record": ("Record",),
    "result": ("Result",),
    "runs.reading": ("Reading",),
    "survey": ("Fired", "Iteration", "Misfit", "shots"),
    "stencil.absorb": ("matched_layer", "matched_layers", "sponge"),
    "stencil.boundary": ("Boundary",),
    "stencil.components": ("Gradient", "Tensor", "Vector", "channels"),
    "stencil.difference": (
        "backward",
        "centered",
        "cross",
        "derivative",
        "divergence",
        "forward",
        "interpolate",
        "second",
        "upwind",
    ),
    "stencil.grid": ("Grid",),
    "stencil.history": ("History",),
    "stencil.lagged": ("Lagged",),
    "stencil.laplacian": ("laplacian",),
    "stencil.chance": ("random",),
    "stencil.points": ("Receiver", "Source"),
    "stencil.problem": ("Problem",),
    "stencil.reduction": ("max", "min", "sum"),
    "stencil.region": ("Box", "Shell", "blocks"),
    "stencil.series": ("Series",),
    "stencil.snapshot": ("Snapshot",),
    "stencil.temporary": ("index", "temporary"),
    "stencil.symbol": (
        "absolute",
        "arctan",
        "arctan2",
        "ceil",
        "clip",
        "cos",
        "cosh",
        "exp",
        "floor",
        "hypot",
        "isnan",
        "log",
        "maximum",
        "minimum",
        "round",
        "sign",
        "sin",
        "sinh",
        "sqrt",
        "step",
        "tan",
        "tanh",
        "trunc",
        "where",
    ),
    "stencil.until": ("Until",),
    "storage.paging": ("Pager", "paged"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_NAMES_THERE = {
    "max": "max_over",
    "min": "min_over",
    "open": "open_run",
    "round": "round_whole",
    "sum": "sum_over",
}


def __getattr__(name: str) -> Any:
    if name == "remote":
        return importlib.import_module("outgrid.remote")
    if name not in _HOME:
        raise AttributeError(f"module 'outgrid' has no attribute {name!r}")
    home = importlib.import_module(f"outgrid.{_HOME[name]}")
    value = globals()[name] = getattr(home, _NAMES_THERE.get(name, name))
    return value


def __dir__() -> list[str]:
    return __all__


# A room that is imported binds its name here, once. Those that share theirs with a function are
# imported now, and the name is left to the function.
for _room in ("matrix", "plan", "stencil"):
    importlib.import_module(f"outgrid.{_room}")
    del globals()[_room]

# Ranks that run the same script make the same mistakes, which one of them tells.
for _mark in {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMIX_RANK"} & {
    *os.environ
}:
    importlib.import_module("outgrid.comm.scripts").tell_once()
