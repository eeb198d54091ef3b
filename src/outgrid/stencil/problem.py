"""The question a run answers: a stencil on a grid, for so many steps, from given values."""

import copy
import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import DTypeLike, NDArray

from outgrid.axes import in_rows_of_files
from outgrid.errors import DefinitionError
from outgrid.folding import Folding
from outgrid.lines import align, format_extents
from outgrid.markup import facts
from outgrid.stencil.boundary import Boundary, Edges, boundary_of, by_field, edges_of
from outgrid.stencil.checks import (
    PREVIOUS,
    check_boundary,
    check_counts,
    check_extents,
    check_together,
    checked_dtype,
    checked_initial,
    checked_shape,
    checked_sources,
    checked_stencil,
    checked_steps,
    listed,
    mapped,
)
from outgrid.stencil.definition import Definition
from outgrid.stencil.dtypes import fields_apart, saturated
from outgrid.stencil.expression import is_index
from outgrid.stencil.formula import shown
from outgrid.stencil.given import value_of
from outgrid.stencil.grid import Grid, grid_of
from outgrid.stencil.history import History
from outgrid.stencil.initial import (
    RESERVED,
    InitialExpression,
    evaluate_along,
)
from outgrid.stencil.labels import grid_of_labels
from outgrid.stencil.lagged import Lagged
from outgrid.stencil.line import ROW, bounded_row, row_of
from outgrid.stencil.lowered import lowered
from outgrid.stencil.model import Staging, Stencil
from outgrid.stencil.parameters import (
    ParameterValues,
    ProfileValues,
    checked_parameters,
    checked_profiles,
    over_steps,
    value_to_json,
)
from outgrid.stencil.points import Receiver, Source, in_row
from outgrid.stencil.recomputed import recomputing
from outgrid.stencil.region import Region, plain
from outgrid.stencil.series import Series
from outgrid.stencil.snapshot import Snapshot
from outgrid.stencil.staged import staged
from outgrid.stencil.transposed import transposed_arguments, why_not_transposed
from outgrid.stencil.until import Until
from outgrid.stencil.values import (
    Initial,
    initial_from_dict,
    initial_to_dict,
)
from outgrid.units import format_bytes, suggest

SHOWN_LETTERS = 60  # of a formula or a path, in a notebook

__all__ = ["PREVIOUS", "Boundary", "Problem"]


@dataclass(frozen=True, slots=True, init=False, eq=False)
class Problem:
    """A stencil, a grid, a number of steps and the values to begin with.

    `shape` counts all cells, slowest axis first, the boundary layer included. A grid of one axis is
    a `line`, kept as one row: its shape is (1, n) then, and its results have one axis. `dtype` is
    the type that all arithmetic is made in, and that fields are kept in, but for those in `dtypes`.
    `initial` has an entry for every array that is read at the first step: each field (a vector or
    tensor has one for all of its components, or one for each), and "u.previous" for a field u of
    second order in time, which begins as u does unless given (zero velocity). The boundary layer of
    u.previous is that of u. `edges` is what `boundary` means for the stencil; where it absorbs,
    faces have become fixed ones, and the rest a part of `stencil` and `profiles`.
    `parameters` are numbers, or sequences of one number per step, also given as a formula of
    `step`, or Lagged values, which follow a reduction; of a parameter that is used along
    an axis, `profiles` has what was given: a number, a formula of that axis, or a sequence of one
    number per index. Steps are counted from `first_step`, which `outgrid.step` and the formulas of
    a boundary begin with; those of parameters and sources count the steps of the problem, from 0.
    `sources` and `receivers` are Source and Receiver values, or mappings of their arguments, and so
    are `snapshots`. Where a condition `until` is given, an Until or a mapping, `steps` are the most
    that are made. Problems with equal `digest` have equal answers, as long as the files they name
    do not change.
    """

    stencil: Stencil
    shape: tuple[int, ...]
    line: bool
    dtype: str
    dtypes: Mapping[str, str]
    steps: int
    parameters: Mapping[str, ParameterValues]
    profiles: Mapping[str, ProfileValues]
    boundary: Boundary
    initial: Mapping[str, Initial]
    first_step: int
    edges: Edges
    sources: tuple[Source, ...]
    receivers: tuple[Receiver, ...]
    snapshots: tuple[Snapshot, ...]
    until: Until | None
    grid: Grid | None
    regions: Mapping[str, Region]
    # The arguments that attributes are derived from; others are kept as they are given.
    _given: Mapping[str, Any] = dataclasses.field(repr=False)
    # The previous levels that were given no values: each begins as its field does.
    alike: frozenset[str] = dataclasses.field(repr=False, compare=False)
    # The axis of the problem that was asked for which is the first one here; 0 is its own first.
    transposed: int = dataclasses.field(repr=False, compare=False)

    def __init__(
        self,
        stencil: Definition | Stencil | str,
        shape: Iterable[int],
        dtype: DTypeLike = "float64",
        steps: int = 0,
        parameters: Mapping[str, Any] | None = None,
        boundary: str | float | Mapping[str, Any] | Boundary = "dirichlet",
        initial: Mapping[str, Any] | None = None,
        first_step: int = 0,
        sources: Iterable[Any] = (),
        receivers: Iterable[Any] = (),
        snapshots: Iterable[Any] = (),
        until: Any = None,
        dtypes: Mapping[str, DTypeLike] | None = None,
        grid: Any = None,
        regions: Mapping[str, Any] | None = None,
    ) -> None:
        """Check and normalise. `stencil` may be a name in the catalogue or "path.py:function".

        `dtypes` gives fields, or vectors and tensors whole, a type of their own: "float32" where
        the problem is computed in "float64", "float16" or "bfloat16" where in "float32", or "int8",
        "uint8", "int16", "uint16" or "int32". Results are rounded to the nearest it holds.

        `initial` maps names to a file (its path, or an InputFile), a number, a formula of z, y, x,
        an array of `shape`; or to a function of arrays z, y, x of such indices (float64), which is
        called block by block and returns what broadcasts to them. An array is held, not copied, and
        must not be changed before the run has begun; others than those of NumPy (xarray, dask,
        h5py, zarr, or whatever has a shape, a dtype and slices) are read slice by slice then. Of a
        coefficient a Series gives other values for every step.
        `grid`, a Grid or a mapping of its arguments, says where cells lie and in which units; left
        out, it is what the first array of xarray with coordinates says.
        `regions` names fields, or vectors and tensors whole, that exist in a part of the grid only,
        and gives for each a Box, a Shell, a mapping of their arguments, or several of these:
        outside they are +0, whatever they begin with. Raises DefinitionError.
        """
        # What is given, each of its type.
        extents = cells = checked_shape(shape)
        line = len(extents) == 1
        asked = mapped("parameters", parameters, '{"k": 0.1}')
        begins = mapped("initial", initial, '{"u": ...}')
        steps = checked_steps("steps", steps)
        numbers = {name: over_steps(name, number, steps) for name, number in asked.items()}
        added = tuple(
            value_of(Source, one) for one in listed("sources", sources, 'Source("u", (5, 6), 1.0)')
        )
        seen = tuple(
            value_of(Receiver, one)
            for one in listed("receivers", receivers, 'Receiver("u", (5, 6))')
        )
        taken = tuple(
            one.snapshot if isinstance(one, History) else value_of(Snapshot, one)
            for one in listed("snapshots", snapshots, 'Snapshot("u", every=10)')
        )
        traced = checked_stencil(stencil, len(extents))
        around = boundary_of(boundary)

        # What it means: a line is a row, and faces and regions are parts of the stencil.
        by_name = by_field(around, traced)
        if line:
            begins, cells, by_name = row_of(begins, *extents), (ROW, *extents), bounded_row(by_name)
        made = lowered(traced, by_name, cells, numbers, begins, regions or {})
        dtype = checked_dtype(dtype, made.stencil)
        apart = fields_apart(dtypes or {}, made.stencil, dtype)
        rule, behind = saturated(made.stencil, apart), made.boundary
        check_boundary(behind, rule, dtype, apart)
        edges = edges_of(rule, behind)
        check_extents(cells, rule, edges)
        first = checked_steps("first_step", first_step)
        check_counts(cells, rule, dtype, first + steps)

        # The values of all that it reads.
        begins = {**begins, **made.frames}
        names = [field.name for field in rule.fields]
        if grid is None:
            grid = grid_of_labels(begins, names, len(cells))
        described = grid_of(grid, len(cells), names, RESERVED)
        values = checked_parameters(made.parameters, rule, dtype, steps)
        profiles = checked_profiles(made.parameters, rule, cells, dtype)
        begun, alike = checked_initial(begins, rule, cells, dtype, apart, described)
        either = {**values, **profiles}
        own = {name: begun[name] for name in begun if name not in alike | made.frames.keys()}
        given = {
            "stencil": traced,
            "shape": extents,
            "parameters": {
                name: number if isinstance(number, str) else value_to_json(either[name])
                for name, number in asked.items()
            },
            "boundary": around,
            "initial": own,
            "sources": added,
            "dtypes": dict(dtypes or {}),
            "regions": dict(regions or {}),
        }
        for attribute, value in {
            "stencil": rule,
            "shape": cells,
            "line": line,
            "dtype": dtype,
            "dtypes": apart,
            "steps": steps,
            "first_step": first,
            "parameters": values,
            "profiles": profiles,
            "boundary": behind,
            "edges": edges,
            "initial": begun,
            "alike": alike,
            "sources": tuple(in_row(one, line) for one in checked_sources(added, steps)),
            "receivers": tuple(in_row(one, line) for one in seen),
            "snapshots": taken,
            "until": None if until is None else value_of(Until, until),
            "grid": described,
            "regions": made.regions,
            "transposed": 0,
            "_given": given,
        }.items():
            object.__setattr__(self, attribute, value)
        check_together(self)

    def replace(self, **changes: Any) -> "Problem":
        """The problem with some of its arguments replaced: `problem.replace(steps=100)`.

        They are those of Problem, each as a whole, and checked anew with what has stayed: a formula
        is one of the new shape and steps, an array has to fit them. Raises DefinitionError.
        """
        derived = ("profiles", "edges", "line", "alike", "transposed", "_given")
        names = [field.name for field in dataclasses.fields(self)]
        known = [name for name in names if name not in derived]
        for name in changes:
            if name not in known:
                raise DefinitionError(f"a problem has no argument {name!r}{suggest(name, known)}")
        stays = {name: getattr(self, name) for name in known} | dict(self._given)
        return Problem(**(stays | changes))

    def recomputing(self, names: Iterable[str]) -> "Problem":
        """The same problem, equal to this one, which computes these temporaries again."""
        return self._computed_by(recomputing(self.stencil, names))

    def folding(self, how: Folding | None) -> "Problem":
        """The same problem, equal to this one, whose rows are folded so in the window."""
        return self._computed_by(msgspec.structs.replace(self.stencil, folded=how))

    def in_stages(self, staging: Staging) -> "Problem":
        """The same problem, whose stages are made in these parts; as they are where there are none.

        Raises DefinitionError where these are not parts of its stages.
        """
        return self._computed_by(staged(self.stencil, staging)) if staging else self

    def _computed_by(self, stencil: Stencil) -> "Problem":
        """The same problem, by another form of its stencil."""
        changed = copy.copy(self)
        object.__setattr__(changed, "stencil", stencil)
        return changed

    def transpose(self, axis: int = 1) -> "Problem":
        """The problem with its first axis and another exchanged; exchanged again, it is as before.

        Its initial values are those of the problem, in whose axes they are. The same operations
        give the same values in each cell. Raises DefinitionError where that does not hold.
        """
        if reason := why_not_transposed(self):
            raise DefinitionError(f"the axes of the problem cannot be exchanged: {reason}")
        turned = Problem(**transposed_arguments(self, axis)).recomputing(self.stencil.recomputed)
        object.__setattr__(turned, "transposed", 0 if self.transposed else axis)
        object.__setattr__(turned, "initial", self.initial)  # whose memory plans count
        return turned

    @property
    def in_rows_of_files(self) -> bool:
        """Whether planes are rows of files, and lie in as many pieces as these have planes."""
        return in_rows_of_files(self.transposed)

    def profile_values(self, name: str) -> NDArray[Any]:
        """The values of a profile along its axis, rounded to the dtype."""
        profile = next(one for one in self.stencil.profiles if one.name == name)
        axis = profile.axis
        if is_index(profile):
            return np.arange(self.shape[axis]).astype(self.dtype)
        given = self.profiles[name]
        if isinstance(given, InitialExpression):
            return evaluate_along(given, axis, self.shape, self.dtype)
        values = np.empty(self.shape[axis], self.dtype)
        values[:] = given
        return values

    @property
    def given_profiles(self) -> tuple[str, ...]:
        """The profiles that the problem was given: not those of boundaries and regions."""
        traced: Stencil = self._given["stencil"]
        return tuple(dict.fromkeys(profile.name for profile in traced.given_profiles))

    def after(self, steps: int) -> "Problem":
        """The same problem with `steps` of its steps made."""
        data = self.to_dict()
        data["steps"] -= steps
        data["first_step"] += steps
        data["sources"] = [source.after(steps).to_dict() for source in self.sources]
        data["snapshots"] = [snapshot.after(steps).to_dict() for snapshot in self.snapshots]
        data["until"] = self.until.after(steps).to_dict() if self.until is not None else None
        for name, series in self.series.items():
            data["initial"][name] = series.after(steps).to_dict()
        return _of_steps(self, data, slice(steps, None))

    def ending(self, steps: int) -> "Problem":
        """The first `steps` steps of the problem, all of which are made."""
        data = self.to_dict()
        data["steps"] = steps
        data["until"] = None
        data["sources"] = [source.ending(steps).to_dict() for source in self.sources]
        return _of_steps(self, data, slice(steps))

    @property
    def stretches(self) -> tuple[int, ...]:
        """Steps between which a run may end; they are those of the problem in all."""
        if self.until is not None:
            return self.until.stretches(self.steps)
        return (self.steps,) if self.steps else ()

    @property
    def deepest(self) -> int:
        """The most steps that a sweep may make.

        One where a coefficient changes with every step and the first planes come round again.
        """
        lags = (lagged.lag for lagged in self.lagged.values())
        round_again = [1 for _ in self.series if self.edges.periodic(0)]
        return min(max(self.stretches, default=0), *lags, self.steps, *round_again)

    @property
    def lagged(self) -> dict[str, Lagged]:
        """The parameters that follow a reduction."""
        return {name: value for name, value in self.parameters.items() if isinstance(value, Lagged)}

    @property
    def series(self) -> dict[str, Series]:
        """The coefficients that change with every step, by name."""
        return {name: given for name, given in self.initial.items() if isinstance(given, Series)}

    @property
    def ndim(self) -> int:
        """2 or 3."""
        return len(self.shape)

    @property
    def interior(self) -> tuple[range, ...]:
        """Per axis the indices of the cells that are updated."""
        return tuple(
            range(low, extent - high)
            for (low, high), extent in zip(self.edges.layers, self.shape, strict=True)
        )

    @property
    def cells(self) -> int:
        """All cells of the grid, boundary layer included."""
        return math.prod(self.shape)

    @property
    def updates(self) -> int:
        """Cell updates in all: interior cells times steps."""
        return math.prod(len(inside) for inside in self.interior) * self.steps

    @property
    def flops(self) -> int:
        """Floating-point operations in all, each needed update counted once."""
        return self.updates * self.stencil.flops

    def dtype_of(self, field: str) -> str:
        """The type that a field is kept in."""
        return self.dtypes.get(field, self.dtype)

    def row_bytes(self, field: str) -> int:
        """Bytes of a row of a field: of all columns of one index of the other axes."""
        return self.shape[-1] * np.dtype(self.dtype_of(field)).itemsize

    def stored_bytes(self, field: str) -> int:
        """Bytes of a field as it is kept."""
        return math.prod(self.shape[:-1]) * self.row_bytes(field)

    @property
    def item_bytes(self) -> int:
        """Bytes of one value of `dtype`: no field has larger ones."""
        return np.dtype(self.dtype).itemsize

    @property
    def plane_bytes(self) -> int:
        """Bytes of one index of axis 0 of a field of `dtype`."""
        return math.prod(self.shape[1:]) * self.item_bytes

    @property
    def field_bytes(self) -> int:
        """Bytes of a field of `dtype`."""
        return self.cells * self.item_bytes

    @property
    def snapshot_bytes(self) -> int:
        """Bytes of all snapshots of all steps."""
        return self.kept_bytes(self.steps)

    def dtype_kept(self, snapshot: Snapshot) -> str:
        """The type of the numbers that a snapshot keeps."""
        return snapshot.dtype or self.dtype_of(snapshot.field)

    def kept_bytes(self, steps: int, part: tuple[range, ...] = ()) -> int:
        """Bytes of all snapshots of the first `steps` steps; of a ``part`` of the grid, if given:
        of some planes, or some rows of these."""
        return sum(
            snapshot.taken(steps) * snapshot.part_bytes(self.shape, self.dtype_kept(snapshot), part)
            for snapshot in self.snapshots
        )

    @property
    def question(self) -> dict[str, Any]:
        """The JSON-able form of what decides the answer: problems are equal where it is."""
        return self.to_dict() | {"stencil": self.stencil.rule}

    @property
    def digest(self) -> str:
        """sha256 in hex of the canonical JSON form of the `question`."""
        text = json.dumps(self.question, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Problem):
            return NotImplemented
        return self.question == other.question

    def __hash__(self) -> int:
        return hash(self.digest)

    def __str__(self) -> str:
        """The grid, the steps and what it begins with, one line each."""
        return align([(self._title, ""), *self._rows])

    def _repr_html_(self) -> str:
        """What a notebook shows: the same, and the stencil."""
        return facts(self._title, self._rows, shown(self.stencil))

    @property
    def _title(self) -> str:
        return f"problem of {self.stencil.name}"

    @property
    def _rows(self) -> list[tuple[str, str]]:
        given = {name: initial_to_dict(value) for name, value in sorted(self.initial.items())}
        stored = sum(self.stored_bytes(field.name) for field in self.stencil.fields)
        rows = [
            ("grid", f"{format_extents(self.shape)} {self.dtype}"),
            ("steps", str(self.steps)),
            ("updates", f"{self.updates:.3g}"),
            ("fields", f"{format_bytes(stored)} in all"),
            (
                "parameters",
                ", ".join(f"{name} = {_short(x)}" for name, x in sorted(self.parameters.items())),
            ),
            ("initial", ", ".join(f"{name}: {_short_of(x)}" for name, x in given.items())),
            ("sources", str(len(self.sources) or "")),
            ("receivers", str(len(self.receivers) or "")),
            ("snapshots", str(len(self.snapshots) or "")),
        ]
        return [(name, value) for name, value in rows if value]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form; an array is represented by the sha256 of its bytes."""
        apart = {"dtypes": dict(self.dtypes)} if self.dtypes else {}
        apart |= {"grid": self.grid.to_dict()} if self.grid is not None else {}
        apart |= {"line": True} if self.line else {}
        regions = {name: plain(region) for name, region in self.regions.items()}
        apart |= {"regions": regions} if regions else {}
        return apart | {
            "stencil": self.stencil.to_dict(),
            "shape": list(self.shape),
            "dtype": self.dtype,
            "steps": self.steps,
            "first_step": self.first_step,
            "parameters": {
                name: value_to_json(value) for name, value in sorted(self.parameters.items())
            }
            | {
                profile.name: value_to_json(self.profiles[profile.name])
                for profile in sorted(self.stencil.given_profiles, key=lambda one: one.name)
            },
            "boundary": self.boundary.to_dict(),
            "sources": [source.to_dict() for source in self.sources],
            "receivers": [receiver.to_dict() for receiver in self.receivers],
            "snapshots": [snapshot.to_dict() for snapshot in self.snapshots],
            "until": self.until.to_dict() if self.until is not None else None,
            "initial": {name: initial_to_dict(self.initial[name]) for name in sorted(self.initial)},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Problem":
        """The inverse of `to_dict`, except that an array comes back as its ArrayDigest."""
        known = (
            *("stencil", "shape", "dtype", "steps", "first_step"),
            *("parameters", "boundary", "initial", "sources", "receivers", "snapshots", "until"),
        )
        for key in data:
            if key not in (*known, "dtypes", "grid", "line", "regions"):
                raise DefinitionError(f"a problem has no entry {key!r}{suggest(key, known)}")
        for key in known:
            if key not in data:
                raise DefinitionError(f"the problem needs the entry {key!r}")
        try:
            boundary = boundary_of(data["boundary"])
            given: dict[str, Any] = {
                **data,
                "stencil": Stencil.from_dict(data["stencil"]).naming(
                    name for name, _ in boundary.fields
                ),
                "shape": data["shape"][1:] if data.get("line") else data["shape"],
                "boundary": boundary,
                "initial": {n: initial_from_dict(n, one) for n, one in data["initial"].items()},
            }
            given.pop("line", None)
            return cls(**given)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise DefinitionError(f"an entry of the problem is invalid: {error!r}") from error


def _of_steps(problem: "Problem", data: dict[str, Any], steps: slice) -> "Problem":
    """Of the JSON-able form `data`, with what parameters are in `steps`."""
    data["parameters"] |= {
        name: value[steps] for name, value in problem.parameters.items() if isinstance(value, tuple)
    }
    return Problem.from_dict(data)


def _short(value: Any) -> str:
    """A parameter in a few letters."""
    if isinstance(value, Lagged):
        return value.rule
    return f"{value:.6g}" if isinstance(value, (int, float)) else f"{len(value)} numbers"


def _short_of(given: Mapping[str, Any]) -> str:
    """Initial values in a few letters: a number, a formula, a file, or that it is an array."""
    value = next(
        (given[key] for key in ("expression", "value", "path", "function") if key in given), None
    )
    text = "an array" if value is None else str(value)
    return text if len(text) <= SHOWN_LETTERS else f"{text[:SHOWN_LETTERS]}..."
