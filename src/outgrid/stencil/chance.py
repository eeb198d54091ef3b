"""Random numbers in a stencil."""

from outgrid.stencil.derived import DERIVED
from outgrid.stencil.expression import STEP, Constant, Expression, operation
from outgrid.stencil.philox import checked_seed, halves_of
from outgrid.stencil.symbol import AXES, ParameterSymbol, Symbol
from outgrid.stencil.temporary import index, traced_ndim

__all__ = ["random"]


def random(seed: int | ParameterSymbol) -> Symbol:
    """A number in [0, 1), another one for each cell and step, that follows from these and the seed.

    The same seed gives the same numbers, in all places of a stencil; another one gives others that
    do not depend on them. It is a whole number from 0 to 2^48 - 1, or a parameter of which the
    whole part counts, up to 2^24. Numbers are the first 53 bits (24 in float32) that Philox4x32-10
    makes of the counter (x, y, z, step) and the seed as its key.
    """
    axes = AXES[-traced_ndim("random") :]
    if isinstance(seed, ParameterSymbol):
        halves: tuple[Expression, Expression] = _whole(seed.expression), Constant(0.0)
    else:
        low, high = halves_of(checked_seed(seed))
        halves = Constant(low), Constant(high)
    places = (index(axis).expression if axis in axes else Constant(0.0) for axis in AXES)
    return Symbol(operation("random", *halves, STEP, *places))


def _whole(seed: Expression) -> Expression:
    """The whole part of a seed, kept within what single precision counts."""
    least = operation("max", DERIVED["floor"](seed), Constant(0.0))
    return operation("min", least, Constant(2.0**24))
