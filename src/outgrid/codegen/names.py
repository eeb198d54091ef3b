"""What a kernel calls things: fields, planes, parameters, images of what lies beyond a face."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

import msgspec

from outgrid.codegen.spelling import CELLS, ELEMENTARY
from outgrid.errors import DefinitionError
from outgrid.plan.schedule.lifetime import ring_count, row_unit
from outgrid.stencil.alike import alike
from outgrid.stencil.boundary import EVEN, STORED, Edges
from outgrid.stencil.contract import contract
from outgrid.stencil.expression import (
    Access,
    Constant,
    Expression,
    Operation,
    is_condition,
    is_uniform,
    nodes,
)
from outgrid.stencil.model import Assignment, Field, Stencil
from outgrid.stencil.region import kept_in_columns
from outgrid.stencil.symbol import AXES


class RingSlot(msgspec.Struct, frozen=True):
    """Where a field's ring stands in the kernel's list of rings."""

    field: str
    index: int


def passes_caches(field: Field, stencil: Stencil, apart: Container[str]) -> bool:
    """Whether new values of a field may be stored past the caches.

    They replace values that the update does not read, and have the type of the vectors.
    """
    return field.name not in apart and ring_count(field, stencil) > field.levels


def ring_order(stencil: Stencil) -> tuple[RingSlot, ...]:
    """Order of the rings in the kernel's argument."""
    return tuple(
        RingSlot(field.name, index)
        for field in stencil.fields
        for index in range(ring_count(field, stencil))
    )


def _contracted(assignments: Sequence[Assignment]) -> tuple[Assignment, ...]:
    """What a stage assigns: trees that say what is fused, and equal values written alike."""
    made = alike([contract(assignment.expression) for assignment in assignments])
    return tuple(
        Assignment(assignment.field, expression)
        for assignment, expression in zip(assignments, made, strict=True)
    )


class Names:
    """Names in the kernel of one stencil, for any processor."""

    def __init__(
        self, stencil: Stencil, dtype: str, edges: Edges, apart: Mapping[str, str]
    ) -> None:
        self.stencil, self.dtype, self.apart = stencil, dtype, apart
        self.planned = edges  # what plans know: skews and slopes are made of these
        self.edges = edges.with_layers_of([f.name for f in stencil.fields if f.temporary])
        self.real = CELLS[dtype]
        self.stages = tuple(_contracted(stage.assignments) for stage in stencil.stages)
        self.reduced = tuple(
            tuple(
                Assignment(reduction.name, contract(reduction.expression))
                for reduction in stage.reductions
            )
            for stage in stencil.stages
        )
        self.rings = ring_order(stencil)
        self.fields = {field.name: f"f{i}" for i, field in enumerate(stencil.fields)}
        self.profiles = tuple(profile.name for profile in stencil.profiles)
        self.radius = stencil.radius
        self.folded = stencil.folded
        # Rows of these may be kept in parts, at a stride of their own.
        self.narrow = kept_in_columns(stencil, edges)
        self.row_unit = row_unit(stencil)
        # Folded rows may share vectors with fixed ones, and with none beyond the last row.
        self.ragged = self.folded is not None
        self.uniform = self._uniform_nodes()
        used = {node.name for node in self._nodes() if isinstance(node, Operation)}
        self.elementary = bool(used & ELEMENTARY)
        self.random = "random" in used
        # Images of columns, and whatever turns its sign, are looked up vector by vector.
        images = {
            axis: any(self.image(field.name, axis) for field in stencil.fields) for axis in "xy"
        }
        folds = self.folded is not None
        odd = any(any(self.edges.odd(axis)) for axis in range(stencil.ndim))
        self.edged = not folds and (images["x"] or odd)
        # Groups of folded rows at a face, and ends of rows, look them up.
        self.imaged = folds and (images["x"] or images["y"])

    def at(self, field: str, index: str = "i") -> str:
        """Where a cell lies in a plane of a field, which most fields have at ``index``."""
        return f"{index} + aside" if field in self.narrow else index

    def made(self, field: str, plane: int) -> str:
        """Where what is made of a cell is stored, in one of the planes that are updated."""
        return f"{self.fields[field]}_out{plane} + {self.at(field)}"

    def stride(self, field: str) -> str:
        """Cells from row to row of a field."""
        return "narrow" if field in self.narrow else "stride"

    def stored(self, field: str) -> str:
        """The type of a cell of a field as it is kept."""
        return CELLS[self.apart.get(field, self.dtype)]

    def _uniform_nodes(self) -> dict[Expression, str]:
        """Names of the parameters and of what is computed from them alone, once per call."""
        names: dict[Expression, str] = {}
        for node in self._nodes():
            if node not in names and not isinstance(node, Constant) and is_uniform(node):
                names[node] = f"p{len(names)}"
        return names

    def _nodes(self) -> Iterator[Expression]:
        """All that stages compute and reduce."""
        for stage in (*self.stages, *self.reduced):
            for assignment in stage:
                yield from nodes(assignment.expression)

    def type(self, node: Expression) -> str:
        """The type of a value that is the same for all cells."""
        return "bool" if is_condition(node) else self.real

    def scalar(self, node: Expression) -> str:
        """A constant, to the last bit."""
        if not isinstance(node, Constant):
            raise DefinitionError(f"{node!r} is not a constant")
        return f"{self.real}({node.value.hex()})"

    @property
    def updated(self) -> tuple[str, ...]:
        """The types of cells that are updated."""
        cells = (self.stored(field.name) for field in self.stencil.evolving)
        return tuple(dict.fromkeys(cells))

    def image(self, field: str, axis: str) -> str | None:
        """The function that finds the plane, row or column read in place of one beyond a face."""
        if axis not in AXES[-self.stencil.ndim :]:
            return None
        rules = self.edges.rule(field, AXES.index(axis) - 3 + self.stencil.ndim)
        return None if rules == (STORED, STORED) else f"{self.fields[field]}_{axis}"

    def sign(self, field: str, axis: str) -> str | None:
        """The function that says with which sign an image is read, where not all are the same."""
        image = self.image(field, axis)
        if image is None:
            return None
        rules = self.edges.rule(field, AXES.index(axis) - 3 + self.stencil.ndim)
        return f"{image}_sign" if any(rule in EVEN for rule in rules) else None

    def ringed(self, stage: int) -> tuple[Field, ...]:
        """Fields that a stage updates out of place: what is not updated has to be carried on."""
        return tuple(f for f in self.written(stage) if ring_count(f, self.stencil) > 1)

    def cleared(self, stage: int) -> tuple[Field, ...]:
        """Temporaries that a stage makes: in fixed layers they are 0."""
        return tuple(field for field in self.written(stage) if field.temporary)

    def written(self, stage: int) -> tuple[Field, ...]:
        """The fields that a stage updates."""
        return tuple(self.stencil.field(assignment.field) for assignment in self.stages[stage])

    def offset(self, access: Access) -> tuple[int, int, int]:
        """(plane, row, column) offset; in two dimensions a plane is one row."""
        if self.stencil.ndim == 2:
            return access.offset[0], 0, access.offset[1]
        return access.offset[0], access.offset[1], access.offset[2]

    def plane(self, field: str, plane: int) -> str:
        """Where the plane that is read ``plane`` planes from z lies."""
        image = self.image(field, "z" if self.stencil.ndim == 3 else "y")
        return f"z + ({plane})" if image is None else f"{image}(z + ({plane}), s.planes)"
