"""Names of what reverse mode makes of a stencil: none that the stencil has, and one for each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from outgrid.stencil.model import Stencil
from outgrid.stencil.problem import PREVIOUS

__all__ = ["AdjointNames"]


class AdjointNames:
    """Names for the fields, parameters, profiles and reductions of an adjoint of `stencil`.

    A name that a part of the stencil has, or something else made of it, is followed by underscores.
    `cotangents` are those of fields and of their previous levels, `gradients` those of gradients by
    coefficients and profiles. Both depend on the stencil alone, so that one run back in time reads
    what another one left.
    """

    def __init__(self, stencil: Stencil) -> None:
        self._taken = {field.name for field in stencil.fields}
        self._taken |= {*stencil.parameters}
        self._taken |= {profile.name for profile in stencil.profiles}
        self._taken |= {reduction.name for reduction in stencil.reductions}
        self._made: dict[tuple[object, ...], str] = {}
        cotangents = {f.name: self.one(f"{f.name}_bar", "bar", f.name) for f in stencil.evolving}
        for name in (field.name for field in stencil.lasting if field.levels == 2):
            cotangents[name + PREVIOUS] = self.one(f"{name}_past_bar", "bar", name + PREVIOUS)
        by_cell = [field.name for field in stencil.coefficients]
        by_cell += [profile.name for profile in stencil.profiles]
        self.cotangents: Mapping[str, str] = MappingProxyType(cotangents)
        self.gradients: Mapping[str, str] = MappingProxyType(
            {name: self.one(f"{name}_grad", "grad", name) for name in by_cell}
        )

    def one(self, wanted: str, *what: object) -> str:
        """The name of something, the same for each call: `wanted` where nothing else has that."""
        if what not in self._made:
            while wanted in self._taken:
                wanted += "_"
            self._taken.add(wanted)
            self._made[what] = wanted
        return self._made[what]
