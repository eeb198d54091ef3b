"""Stencils with a name, and the way from a name to a definition."""

import inspect
import runpy
from pathlib import Path
from typing import Any

from outgrid.errors import DefinitionError
from outgrid.stencil.components import Vector
from outgrid.stencil.definition import Definition, stencil
from outgrid.stencil.difference import compatible, half_way, second
from outgrid.stencil.laplacian import laplacian
from outgrid.stencil.symbol import FieldSymbol, Operand, Symbol, minimum, where
from outgrid.units import suggest

__all__ = ["CATALOG", "load", "lookup", "resolve"]


@stencil(ndim=2)
def heat5(u: FieldSymbol, *, k: Operand = 0.1) -> Symbol:
    """Heat in 2-D, explicit Euler, 5 points. k = diffusivity*dt/h^2, stable up to 1/4."""
    return u + k * laplacian(u)


@stencil(ndim=3)
def heat7(u: FieldSymbol, *, k: Operand = 0.1) -> Symbol:
    """Heat in 3-D, explicit Euler, 7 points. k = diffusivity*dt/h^2, stable up to 1/6."""
    return u + k * laplacian(u)


@stencil(ndim=3)
def box27(
    u: FieldSymbol,
    *,
    c0: Operand = 8 / 64,
    c1: Operand = 4 / 64,
    c2: Operand = 2 / 64,
    c3: Operand = 1 / 64,
) -> Symbol:
    """Weighted mean of 27 points: c0 centre, c1 faces, c2 edges, c3 corners (1-2-1 filter)."""

    # Column by column in x: the two outer columns are the same expression of another x, which a
    # generator that keeps columns in registers can compute once for both.
    def column(x: int, centre: Operand, cross: Operand, diagonal: Operand) -> Symbol:
        crossed = (u[0, -1, x] + u[0, 1, x]) + (u[-1, 0, x] + u[1, 0, x])
        diagonals = (u[-1, -1, x] + u[-1, 1, x]) + (u[1, -1, x] + u[1, 1, x])
        return centre * u[0, 0, x] + cross * crossed + diagonal * diagonals

    return column(0, c0, c1, c2) + (column(-1, c1, c2, c3) + column(1, c1, c2, c3))


def _wave(order: int) -> Definition:
    @stencil(name=f"wave{order}")
    def wave(u: FieldSymbol, c: FieldSymbol) -> Symbol:
        """Acoustic wave, second order in time; coefficient field c = (velocity*dt/h)^2."""
        return 2 * u - u.previous + c * laplacian(u, order)

    return wave


def _acoustic(order: int) -> Definition:
    weights = compatible(order)

    @stencil(name=f"acoustic_pml{order}")
    def acoustic_pml(
        p: FieldSymbol,
        c: FieldSymbol,
        slope: Vector,
        bend: Vector,
        *,
        decay: Vector,
        gain: Vector,
        decay_half: Vector,
        gain_half: Vector,
    ) -> list[dict[str, Any]]:
        """Acoustic wave in a C-PML; c = (velocity*dt/h)^2, parameters from matched_layers.

        `slope` and `bend` are the memories of first derivatives, half a cell on, and of second
        ones; they begin as 0. A. Pasalic and R. McGarry, Convolutional perfectly matched layer for
        isotropic and anisotropic acoustic wave equations, SEG annual meeting (2010),
        doi:10.1190/1.3513453. First derivatives are `compatible` with second ones: where slow
        waves are damped most, what differs between both is left, and must damp.
        """
        slopes = {
            axis: decay_half[axis] * slope[axis] + gain_half[axis] * half_way(p, axis, weights, 0)
            for axis in slope
        }
        bent = {
            axis: second(p, axis, order) + half_way(slope[axis], axis, weights, -1)
            for axis in slope
        }
        bends = {axis: decay[axis] * bend[axis] + gain[axis] * bent[axis] for axis in bent}
        first, *others = (bent[axis] + bends[axis] for axis in bent)
        for other in others:
            first = first + other
        return [{"slope": slopes}, {"bend": bends, "p": 2 * p - p.previous + c * first}]

    return acoustic_pml


@stencil(ndim=2)
def shallow_water(
    eta: FieldSymbol,
    h: FieldSymbol,
    *,
    g: Operand = 9.81,
    dt: Operand,
    dx: Operand,
) -> Symbol:
    """Linear shallow water: eta_tt = div(g h grad eta) of the surface eta over the depth h.

    h in metres, positive below sea level; land (h <= 0) is a wall. Stable while
    dt*sqrt(g*max(h)) < dx/sqrt(2).
    """

    # The depth of a face is the mean of both cells, and nothing flows into land or out of it; what
    # leaves one cell through a face enters the other, so water is conserved. Both cells write the
    # depths alike, so kernels compute them once for both.
    def inflow(y: int, x: int) -> Symbol:
        one, other = (h[y, x], h) if (y, x) < (0, 0) else (h, h[y, x])
        depths = where(minimum(one, other) > 0, one + other, 0.0)
        return depths * (eta[y, x] - eta)

    inflows = inflow(0, -1) + inflow(0, 1) + inflow(-1, 0) + inflow(1, 0)
    return 2 * eta - eta.previous + g * dt * dt / (2 * dx * dx) * inflows


CATALOG: dict[str, Definition] = {
    "heat5": heat5,
    "heat7": heat7,
    "box27": box27,
    "wave": _wave(8),
    "wave:2": _wave(2),
    "wave:4": _wave(4),
    "wave:6": _wave(6),
    "wave:8": _wave(8),
    "acoustic_pml": _acoustic(8),
    **{f"acoustic_pml:{order}": _acoustic(order) for order in (2, 4, 6, 8)},
    "shallow_water": shallow_water,
}


def lookup(name: str) -> Definition:
    """The catalogue's definition called `name`. Raises DefinitionError with the nearest name."""
    if name in CATALOG:
        return CATALOG[name]
    raise DefinitionError(f"unknown stencil {name!r}{suggest(name, CATALOG)}")


def load(reference: str) -> Definition:
    """The definition at "path.py:function"; a plain function there is taken as one too.

    Runs the file. Raises DefinitionError when there is no such file or function, or when the file
    fails, with its error as the cause.
    """
    path, _, function = reference.rpartition(":")
    if not path.endswith(".py") or not function.isidentifier():
        raise DefinitionError(f'{reference!r} must have the form "path.py:function"')
    if not Path(path).is_file():
        raise DefinitionError(f"{reference!r}: the file {path} does not exist")
    try:
        names = runpy.run_path(path)
    except Exception as error:
        raise DefinitionError(f"{path} fails with {type(error).__name__}: {error}") from error
    definition = names.get(function)
    if isinstance(definition, Definition):
        return definition
    if inspect.isfunction(definition):
        return stencil()(definition)
    definitions = [name for name, value in names.items() if isinstance(value, Definition)]
    raise DefinitionError(f"{path} defines no stencil {function!r}{suggest(function, definitions)}")


def resolve(text: str) -> Definition:
    """The definition meant by `text`: "path.py:function", or a name in the catalogue."""
    return load(text) if ".py:" in text else lookup(text)
