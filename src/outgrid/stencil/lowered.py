"""What faces and regions mean: parts of a stencil, values of its profiles, and simpler faces.

What is lowered is an equal problem, with fixed layers, images and periodic axes only. So nothing
beyond this module knows of faces that absorb or are driven, nor of what is made outside of regions.
"""

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from outgrid.stencil.absorbing import absorbing, memories
from outgrid.stencil.boundary import Boundary
from outgrid.stencil.driven import driven
from outgrid.stencil.initial import InitialExpression
from outgrid.stencil.model import Stencil
from outgrid.stencil.region import Region, bounded, regions_of
from outgrid.stencil.series import Series
from outgrid.stencil.symbol import is_number

__all__ = ["Lowered", "lowered"]


class Lowered(msgspec.Struct, frozen=True):
    """What is left of a stencil and its boundary, and what it needs: parameters, among which are
    profiles, and the coefficients `frames`, which hold what faces read from files."""

    stencil: Stencil
    boundary: Boundary
    parameters: Mapping[str, Any]
    frames: Mapping[str, Series]
    regions: Mapping[str, Region]


def lowered(
    stencil: Stencil,
    boundary: Boundary,
    shape: tuple[int, ...],
    parameters: Mapping[str, Any],
    initial: Mapping[str, Any],
    regions: Any,
) -> Lowered:
    """The stencil with what its faces and `regions` mean for it.

    The `boundary` has rules for fields by their names. Fields that matched faces need exist in
    their layers alone, but for those with `regions` or `initial` values. Raises DefinitionError.
    """
    rule, behind, numbers = absorbing(stencil, boundary, shape, parameters)
    rule, behind, numbers, frames = driven(rule, behind, shape, numbers)
    own: dict[str, Any] = {}
    if isinstance(regions, Mapping):
        named = cast("Mapping[str, Any]", regions)
        wanted = (*named, *_not_zero({**initial, **frames}))
        kept = {part for name in wanted for part in stencil.components(name)}
        layers = memories(stencil, boundary, shape, numbers)
        own = {name: boxes for name, boxes in layers.items() if name not in kept}
        regions = {**own, **named}
    cells = regions_of(regions, rule, shape)
    rule, numbers = bounded(rule, cells, shape, numbers, own)
    return Lowered(rule, behind, numbers, frames, cells)


def _not_zero(initial: Mapping[str, Any]) -> list[str]:
    """The names of what does not begin as the number 0, or as the formula of it."""

    def zero(given: Any) -> bool:
        text = given.text if isinstance(given, InitialExpression) else given
        return (
            text.strip() in ("0", "0.0") if isinstance(text, str) else is_number(text) and text == 0
        )

    return [name for name, given in initial.items() if not zero(given)]
