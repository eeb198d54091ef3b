"""The problems on which the planner's choice is judged: small enough to be run in every way.

They differ in what bounds them: dimensions, radius, number of fields, and whether the memory limit
holds the whole problem. All of them stay near a value that is not zero however long they run, so
that no numbers turn subnormal, at which processors slow down.
"""

from __future__ import annotations

from dataclasses import dataclass

from outgrid import Definition, Problem, laplacian, stencil
from outgrid.errors import UsageError
from outgrid.parts import FieldSymbol, Operand, Symbol
from outgrid.units import suggest

__all__ = ["TUNINGS", "Tuning", "choose_tunings", "fitzhugh_nagumo", "shallow_flow", "small"]


@stencil(ndim=2)
def fitzhugh_nagumo(
    u: FieldSymbol, v: FieldSymbol, *, dt: Operand = 0.05, a: Operand = 0.5, b: Operand = 0.7
) -> dict[str, Symbol]:
    """Two fields that react: a wave of excitation u spreads, the recovery v follows it."""
    return {
        "u": u + dt * (laplacian(u) + u - u * u * u / 3 - v + a),
        "v": v + dt * 0.08 * (u + b - 0.8 * v),
    }


@stencil(ndim=2)
def shallow_flow(
    h: FieldSymbol, p: FieldSymbol, q: FieldSymbol, *, c: Operand = 0.3
) -> dict[str, Symbol]:
    """Three fields of linear shallow water, by the scheme of Lax and Friedrichs.

    ``h`` is the height of the surface, ``p`` and ``q`` the flow along x and y, ``c`` half the speed
    of waves times dt/dx; stable up to 1/sqrt(8).
    """

    def mean(field: FieldSymbol) -> Symbol:
        return 0.25 * ((field[0, -1] + field[0, 1]) + (field[-1, 0] + field[1, 0]))

    return {
        "h": mean(h) - c * ((p[0, 1] - p[0, -1]) + (q[1, 0] - q[-1, 0])),
        "p": mean(p) - c * (h[0, 1] - h[0, -1]),
        "q": mean(q) - c * (h[1, 0] - h[-1, 0]),
    }


@dataclass(frozen=True, slots=True)
class Tuning:
    """One problem and its memory limit; ``name`` is what ``--only`` takes."""

    name: str
    problem: Problem
    memory_bytes: int

    @property
    def state_bytes(self) -> int:
        """Bytes of all levels that the first step reads."""
        levels = sum(field.levels for field in self.problem.stencil.fields)
        return levels * self.problem.field_bytes


def _tuning(
    name: str,
    definition: Definition | str,
    shape: tuple[int, ...],
    dtype: str,
    steps: int,
    memory_mib: int,
) -> Tuning:
    rule = Problem(definition, shape, dtype, steps, initial=_initial(definition, len(shape)))
    return Tuning(name, rule, memory_mib << 20)


def _initial(definition: Definition | str, ndim: int) -> dict[str, str]:
    slow = "z" if ndim == 3 else "y"
    noise = f"1 + 0.1*sin(12.9898*x + 0.5)*cos(37.719*{slow} + 78.233)"
    if isinstance(definition, str) and definition.startswith("wave"):
        return {"u": noise, "c": f"0.1 + 0.02*sin(0.013*x)*cos(0.021*{slow})"}
    if isinstance(definition, str):
        return {"u": noise}
    return {field.name: noise for field in definition.trace(ndim).fields}


TUNINGS: tuple[Tuning, ...] = (
    _tuning("heat5-poor", "heat5", (4096, 8192), "float64", 192, 128),
    _tuning("heat7-rich", "heat7", (256, 256, 256), "float64", 128, 1024),
    _tuning("heat7-poor", "heat7", (256, 512, 512), "float64", 60, 256),
    _tuning("heat7-wide", "heat7", (48, 2048, 2048), "float64", 32, 160),
    _tuning("wave4-poor", "wave:4", (192, 512, 512), "float32", 40, 256),
    _tuning("wave8-rich", "wave:8", (256, 256, 256), "float32", 96, 1024),
    _tuning("wave8-poor", "wave:8", (192, 512, 512), "float32", 40, 384),
    _tuning("reaction-rich", fitzhugh_nagumo, (4096, 4096), "float32", 128, 1024),
    _tuning("flow-poor", shallow_flow, (2048, 8192), "float64", 96, 192),
)


def choose_tunings(names: list[str] | None) -> tuple[Tuning, ...]:
    """The problems called ``names``, all of them without. Raises UsageError with the nearest."""
    known = {tuning.name: tuning for tuning in TUNINGS}
    for name in names or ():
        if name not in known:
            raise UsageError(f"no tuned problem is called {name!r}{suggest(name, known)}")
    return tuple(known[name] for name in names) if names else TUNINGS


def small(tuning: Tuning) -> Tuning:
    """The same problem on a grid of a few MiB that still is larger or smaller than its memory."""
    problem = tuning.problem
    shape = (96, 96, 64) if problem.ndim == 3 else (512, 1024)
    data = problem.to_dict() | {"shape": list(shape), "steps": 12}
    memory = tuning.memory_bytes if tuning.state_bytes * 2 < tuning.memory_bytes else 0
    return Tuning(tuning.name, Problem.from_dict(data), memory or (84 << 20))
