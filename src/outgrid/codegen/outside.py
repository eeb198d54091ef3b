"""Statements of cells around which some fields do not exist that exist in a region only.

There such fields are +0, and their new values too: nothing of them is read, made or stored, and
nothing is computed of them. A
temporary that is computed again exists near faces only: elsewhere its expression stands where it is
read. All else is computed by the same operations as in regions, so the bytes are the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from outgrid.codegen.names import Names
from outgrid.codegen.statements import Inputs, Statements, Work
from outgrid.codegen.vanishing import vanished
from outgrid.stencil.expression import Access, Leaf, Profile, nodes
from outgrid.stencil.model import Assignment
from outgrid.stencil.recomputed import INSIDE, inlined, involved
from outgrid.stencil.region import regional

__all__ = ["Outside"]


class Outside(Statements):
    """What is left of the statements of a stencil outside of the regions of ``absent`` fields."""

    def __init__(self, names: Names, absent: Iterable[str]) -> None:
        super().__init__(names)
        self.again = names.stencil.recomputed_set
        self.absent = frozenset(absent)
        conditions = regional(names.stencil)
        by_absence = {
            away: {
                node
                for name in conditions
                if (name in self.absent) == away
                for node in nodes(conditions[name])
                if isinstance(node, Profile)
            }
            for away in (True, False)
        }
        # 0 as the fields are: they say where their regions end.
        self._ends = by_absence[True] - by_absence[False]

    def made(self, stage: int) -> bool:
        """Whether a stage makes any field that exists in a region only, or is to make it again."""
        if self.again:
            return involved(self.names.stencil, stage)
        return any(field.name in self.absent for field in self.names.written(stage))

    def moved(self, assignments: tuple[Assignment, ...], stage: int, planes: int) -> Work:
        """Those of fields that exist everywhere."""
        if self.again:
            left = inlined(assignments, self.names.stages, self.again)
            return super().moved(left, stage, planes)
        left = [made for made in assignments if made.field not in self.absent]
        rest = vanished([made.expression for made in left], self._vanishes, self.names.dtype)
        made = (Assignment(one.field, value) for one, value in zip(left, rest, strict=True))
        return super().moved(tuple(made), stage, planes)

    def _vanishes(self, leaf: Leaf) -> bool:
        return leaf in self._ends or (isinstance(leaf, Access) and leaf.field in self.absent)

    def inputs(self, work: Work, stage: int, planes: int) -> Inputs:
        """The planes of fields that exist everywhere."""
        inputs = super().inputs(work, stage, planes)
        return {place: name for place, name in inputs.items() if place[0] not in self.absent}

    def load(self, inputs: Inputs, access: Access, index: str = "i", cut: bool = False) -> str:
        """+0 of a temporary beyond the end of a row, where it is computed again."""
        return "V{}" if access.field in self.again else super().load(inputs, access, index, cut)

    def profile(self, profile: Profile, vector: str = "") -> str:
        """Where a row ends, which counts in vectors at an edge; else as in regions."""
        if profile.name == INSIDE:
            return f"inside_row<decltype(edge)::value>(x + ({profile.offset}), first, last)"
        return super().profile(profile, vector)

    def _used_profiles(self, work: Work) -> tuple[Profile, ...]:
        return tuple(one for one in super()._used_profiles(work) if one.name != INSIDE)
