"""What a finished run leaves: its record, and its fields as files that open lazily."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from outgrid.config import run_folder
from outgrid.errors import UsageError
from outgrid.fields import Field, FieldArray, JoinedField, Snapshots
from outgrid.formats.axis import Along, Axis
from outgrid.formats.npy import Header, load_npy, map_npy, read_header
from outgrid.labelled import dataset
from outgrid.lines import format_work
from outgrid.markup import facts
from outgrid.plan.model import Plan
from outgrid.record import RECORD_NAME, Record, read_record
from outgrid.report.summary import heading, summary_rows
from outgrid.runs.manifest import MANIFEST_NAME
from outgrid.runs.samples import REDUCTIONS_NAME, TRACES_NAME
from outgrid.stencil.grid import Grid
from outgrid.stencil.meaning import described
from outgrid.stencil.model import Stencil
from outgrid.stencil.problem import PREVIOUS, Problem
from outgrid.stencil.series import Series
from outgrid.stencil.snapshot import snapshots_by_file
from outgrid.storage import Piece
from outgrid.units import suggest

__all__ = ["TRACES", "Result", "open_run"]

TRACES = "traces"
"""Traces of the receivers, beside the names of fields and snapshots."""


@dataclass(frozen=True, slots=True)
class Result(Mapping[str, Any]):
    """A finished run: its record, and its fields as files that open lazily.

    It is a mapping of fields: ``result["u"]`` is one of them, ``list(result)`` are their names.
    ``out`` is its folder; ``record`` has the problem, the plan, the machine and what was measured.
    """

    out: Path
    record: Record

    def __post_init__(self) -> None:
        # Its files are opened lazily, perhaps after a change of the working directory.
        object.__setattr__(self, "out", self.out.absolute())

    def __repr__(self) -> str:
        """In a line; ``record`` tells the rest."""
        work, names = (
            format_work(self.record.planned, self.record.steps),
            ", ".join(self),
        )
        return f"<Result in {self.out}: {work}; {names}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the folder, what was measured, and the fields."""
        rows = [("folder", str(self.out)), *summary_rows(self.record)]
        return facts(f"result: {heading(self.record)}", rows)

    @property
    def plan(self) -> Plan:
        """The plan that the run followed, with the names of one of `outgrid.plan`."""
        return self.record.plan

    def path(self, field: str) -> Path:
        """The .npy file of a field, or the file of HDF5 that it is in.

        Raises UsageError for a name that the run did not leave, and where several ranks left it in
        pieces.
        """
        if field in self.record.pieces:
            files = ", ".join(piece.file for piece in self.record.pieces[field])
            raise UsageError(f"{field!r} is stored in pieces of several ranks: {files}")
        if field not in self.record.files:
            raise UsageError(
                f"the run in {self.out} has no field {field!r}{suggest(str(field), self)}"
            )
        return self.out / self.record.files[field]

    @property
    def traces(self) -> np.ndarray:
        """What each receiver saw after each step made: float64 of shape (steps, receivers).

        Raises UsageError where the problem has no receivers.
        """
        path = self.out / TRACES_NAME
        if not path.exists():
            raise UsageError(f"the run in {self.out} had no receivers")
        return load_npy(path)

    @property
    def reductions(self) -> dict[str, np.ndarray]:
        """The reductions by name: float64 of shape (steps,); none where the stencil has none."""
        path = self.out / REDUCTIONS_NAME
        if not path.exists():
            return {}
        totals = load_npy(path)
        return {name: totals[name].copy() for name in totals.dtype.names or ()}

    @property
    def snapshots(self) -> Snapshots:
        """What each snapshot kept, of shape (taken, planes, rows, columns), read when it is used.

        Axes with an index are left out. ``snapshots["u"]`` is the one of the field u, and
        ``snapshots["u"].animate("wave.gif")`` writes it as an animation.
        """
        kept, taken = self._frames(), self._taken
        fields = [snapshot["field"] for snapshot in taken.values()]
        if self._is_line:
            rows = [frames[:, 0] for frames in kept]
            return Snapshots(map(FieldArray.of, rows, fields), fields)
        meanings = [partial(self._meaning, Path(name).stem) for name in taken]
        return Snapshots(map(FieldArray.of, kept, fields, meanings), fields)

    def history(self, field: str, *, reverse: bool = False) -> Series:
        """What the only snapshot of a field kept, as a coefficient that changes with every step.

        In `reverse` the last frame comes first. A problem that reads it has the shape of a frame,
        and for the field `dtypes` with the type that was kept. Raises UsageError where there is no
        such snapshot or more than one, where it took nothing, or is not in a .npy file.
        """
        taken = [
            name
            for name, one in self._taken.items()
            if one["field"] == field and (self.out / name).exists()
        ]
        if len(taken) != 1:
            raise UsageError(
                f"the run in {self.out} has left {len(taken)} files of snapshots of {field!r};"
                " a history is read from one .npy file"
            )
        header = read_header(self.out / taken[0])
        if not header.shape[0]:
            raise UsageError(f"{self.out / taken[0]} holds no frame: there were too few steps")
        return Series(
            self.out / taken[0], header.shape[0] - 1 if reverse else 0, -1 if reverse else 1
        )

    def _frames(self) -> list[np.ndarray]:
        """The snapshots as they lie on disk: those of a line are of one row."""
        names = [Path(name).stem for name in self._taken]
        files = (self.out / self.record.frames_file(name) for name in names)
        return [map_npy(file, self.header(name)) for file, name in zip(files, names, strict=True)]

    @property
    def _taken(self) -> dict[str, Any]:
        """What each snapshot was to keep, by the name of its file."""
        return snapshots_by_file(self.record.problem.get("snapshots", ()))

    @property
    def _is_line(self) -> bool:
        return bool(self.record.problem.get("line", False))

    def described(
        self, dt: float | None = None
    ) -> dict[str, tuple[tuple[Axis, ...], dict[str, str]]]:
        """Where the cells of each field and snapshot lie, and what the grid says of it.

        These are axes and attributes such as units, by name: fields first, then "snapshot.0", ...,
        and "traces" of receivers. A step takes `dt` seconds, in place of what the grid says.
        """
        problem = Problem.from_dict(self.record.problem)
        meanings = described(problem, self, dt)
        if problem.receivers and TRACES not in meanings:
            grid = problem.grid or Grid()
            grid = grid if dt is None else replace(grid, dt=dt)
            steps = grid.times(Axis("step", problem.first_step + 1.0))
            meanings[TRACES] = (Axis("receiver"), steps), {}
        return meanings

    @property
    def places(self) -> tuple[Along, ...]:
        """Where the receivers are: a coordinate for each axis of the grid, along "receiver"."""
        problem = Problem.from_dict(self.record.problem)
        grid = problem.grid or Grid()
        at = [grid.place(receiver.field, receiver.position) for receiver in problem.receivers]
        return tuple(
            Along(f"receiver_{axis.name}", "receiver", tuple(p[axis.name] for p in at), axis.units)
            for axis in grid.axes(problem.ndim)
        )

    @property
    def source_places(self) -> dict[str, float]:
        """Where the source is, by "source_z" and so on; nothing where there are none or several."""
        problem = Problem.from_dict(self.record.problem)
        if len(problem.sources) != 1:
            return {}
        source = problem.sources[0]
        at = (problem.grid or Grid()).place(source.field, source.position)
        return {f"source_{name}": place for name, place in at.items()}

    def to_xarray(self) -> Any:
        """All that the run left as an `xarray.Dataset` with coordinates, read when it is used.

        These are fields, snapshots ("snapshot.0") and "traces" of (receiver, step), which are
        counted in time where the grid has a `dt`.

        `pip install 'outgrid[xarray]'` brings xarray. Raises UsageError where it is not there.
        """
        arrays: list[Any] = [*(self._whole(name) for name in self), *self._frames()]
        meanings = self.described()
        if len(meanings) > len(arrays):
            arrays.append(map_npy(self.out / TRACES_NAME).T)
        described = zip(meanings.items(), arrays, strict=True)
        return dataset(
            {name: (array, axes, said) for (name, (axes, said)), array in described},
            {"outgrid_version": self.record.version, "source": str(self.out)},
            self.places if TRACES in meanings else (),
        )

    def plot(self, field: str | None = None, *, index: int | None = None) -> Any:
        """A `matplotlib.figure.Figure` of a field, the first one where none is named.

        Of three axes the plane `index` of the first one is shown, or the middle one; axes and
        colours carry the names and units of the grid. Raises UsageError for what the run did not
        leave.
        """
        return self[next(iter(self)) if field is None else field].plot(index)

    def __getitem__(self, field: str) -> Field:
        """The field as a read-only array on disk, of the problem's shape and the field's dtype.

        Slices are read when they are used. Raises UsageError as `path` does, and for a file that
        is no array.

        One that several ranks left in pieces is read like an array; `numpy.asarray` reads it all.
        It draws itself: ``result["u"].plot()``, ``.hist()``.
        """
        values = self._whole(field)
        return FieldArray.of(np.asanyarray(values[0]), field) if self._is_line else values

    def _whole(self, field: str) -> Field:
        """The field as it lies on disk: that of a line is one row."""
        drawn = field, partial(self._meaning, field)
        if field in self.record.pieces:
            return JoinedField(
                [
                    Piece(
                        self.out / piece.file,
                        (piece.first, piece.first_row),
                        range(piece.low, piece.high),
                        range(piece.low_row, piece.high_row),
                    )
                    for piece in self.record.pieces[field]
                ],
                *drawn,
            )
        return FieldArray.of(map_npy(self.path(field), self.header(field)), *drawn)

    def _meaning(self, field: str) -> tuple[tuple[Axis, ...], str]:
        """Where the cells of a field lie, and the units of its values."""
        axes, said = self.described().get(field, ((), {}))
        return axes, said.get("units", "")

    def header(self, field: str) -> Header | None:
        """What the file of HDF5 that a field is in does not say by itself; None for a .npy file.

        Of a snapshot as well, by the name "snapshot.0".
        """
        if field not in self.record.offsets:
            return None
        problem = Problem.from_dict(self.record.problem)
        snapshot = snapshots_by_file(problem.snapshots).get(f"{field}.npy")
        if snapshot is not None:
            shape = snapshot.shape(problem.shape, self.record.steps)
            dtype = np.dtype(problem.dtype_kept(snapshot))
            return Header(shape, dtype, False, self.record.offsets[field])
        dtype = np.dtype(problem.dtype_of(field.removesuffix(PREVIOUS)))
        return Header(problem.shape, dtype, False, self.record.offsets[field])

    def __iter__(self) -> Iterator[str]:
        """The names of the fields that the run left."""
        return iter(self.record.pieces or self.record.files)

    def __len__(self) -> int:
        """How many fields the run left."""
        return len(self.record.pieces or self.record.files)

    def __contains__(self, field: object) -> bool:
        return field in (self.record.pieces or self.record.files)

    def get(self, field: str, default: Any = None) -> Any:
        """The field, or ``default`` where the run left none of that name."""
        return self[field] if field in list(self) else default

    def components(self, name: str) -> dict[str, Field]:
        """The components of a vector or tensor, each mapped from disk, by the names of fields."""
        stencil = Stencil.from_dict(self.record.problem["stencil"]).naming([name])
        names = [field for field in stencil.components(name) if field in self]
        return {field: self[field] for field in names or (name,)}


def open_run(out: str | os.PathLike[str]) -> Result:
    """A finished run: ``open_run("run")["u"]`` is its field u, read from disk slice by slice.

    Raises UsageError where the folder holds no record of one.
    """
    folder = run_folder(out)
    if not folder.exists():
        raise UsageError(f"there is no folder {folder}")
    if (folder / MANIFEST_NAME).exists() and not (folder / RECORD_NAME).exists():
        raise UsageError(
            f"the run in {folder} is not finished: outgrid resume {folder}, or"
            f" og.resume({str(out)!r}), continues it"
        )
    return Result(folder, read_record(folder))
