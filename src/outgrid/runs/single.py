"""The results of a run in one HDF5 file, which is what the file of its first field becomes.

    OUT/heat.h5     head of 4096 bytes | planes of u | what describes all arrays | planes of v ...
    heat.h5         the same file under a second name (a hard link), beside the folder
    OUT/u.npy.xxh3  the checksums of its rows, for each field, and those of snapshots

The library of the format makes a skeleton, a sparse file in which the place of each array is set
aside, and says where that is. It does so before the run begins, and all fields and snapshots,
arrays with an axis of steps, are written there, see `Together`. Fields that are spread or kept in
memory are copied there when the last state is complete. In the end the 4096 bytes before the first
field are replaced, and what the skeleton has between and behind the arrays is written there. Arrays
that have a file of their own are copied to their places, within the kernel where it can: snapshots
of a run that may end early, of which nobody knows how many there will be, and all fields where
working files and results lie on two file systems. Image data of VTK have one list of times for all
arrays in a file: there each snapshot becomes a file of its own, `heat.snapshot.0.vtkhdf`.

All of it follows from the manifest and is written before the record. A process that goes on gives
the first array of each file its `.npy` head back, and does it again.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from math import prod
from pathlib import Path

import msgspec
import numpy as np
from msgspec.structs import replace

from outgrid.durable import mount_of, partial_path, sync_folder
from outgrid.errors import StoreError, UsageError
from outgrid.formats.axis import told_apart
from outgrid.formats.npy import HEADER_BYTES, header_bytes
from outgrid.formats.registry import check_library, format_of
from outgrid.formats.sink import Array
from outgrid.formats.source import writing
from outgrid.numbers import BFLOAT16
from outgrid.plan.model import Plan
from outgrid.record import RECORD_NAME, Record
from outgrid.regular import own
from outgrid.runs.manifest import Manifest
from outgrid.runs.state import RunFolder, way_out
from outgrid.runs.together import Together, copy_bytes, take_copy
from outgrid.runs.zarr import NO_LINKS
from outgrid.stencil.meaning import described
from outgrid.stencil.problem import PREVIOUS, Problem
from outgrid.stencil.snapshot import Snapshot, snapshots_by_file
from outgrid.tiers import TIERS

__all__ = [
    "become",
    "can_lie_together",
    "check_left",
    "check_single",
    "file_of",
    "is_image",
    "leave_file",
    "lie_together",
    "names_of",
    "remove_copied",
    "restore",
    "second_names",
    "separate",
    "take_apart",
]


def _beside(out: Path, file: str) -> Path:
    """The second name of the file, beside the folder of the run."""
    return out.absolute().parent / file


def second_names(out: Path, files: Iterable[str]) -> Iterator[Path]:
    """Those files beside the folder of a run that are other names of the ones in it."""
    for file in files:
        whole, second = out / file, _beside(out, file)
        if whole.is_file() and second.is_file() and second.samefile(whole):
            yield second


def file_of(manifest: Manifest) -> str:
    """The name of the one file that a run leaves its results in; "" where it leaves several."""
    return str(manifest.options.get("file", ""))


def names_of(file: str, problem: Problem) -> tuple[str, ...]:
    """The names of all files that a run leaves its arrays in, where it is to leave ``file``."""
    if not file:
        return ()
    return (file, *(_file_of(file, name) for name in _apart(file, problem)))


def become(out: Path, manifest: Manifest, path: Path) -> Path:
    """The file that a result of an unfinished run is in: ``path``, or what this has become."""
    file = file_of(manifest)
    if not file or path.exists():
        return path
    whole = out / (file if path.name == manifest.results[0] else _file_of(file, path.stem))
    return whole if whole.is_file() else path


def _apart(file: str, problem: Problem) -> dict[str, Snapshot]:
    """The snapshots that have a file of their own, by the name of the array."""
    if not is_image(file):
        return {}
    return {Path(name).stem: kept for name, kept in snapshots_by_file(problem.snapshots).items()}


def _file_of(file: str, snapshot: str) -> str:
    """heat.snapshot.0.vtkhdf, beside heat.vtkhdf."""
    whole = Path(file)
    return f"{whole.stem}.{snapshot}{whole.suffix}"


def check_single(
    out: Path, file: str, problem: Problem, fields: Iterable[str], replaced: Iterable[Path] = ()
) -> None:
    """Raise UsageError where the results of a run cannot be left in one file.

    For want of a library, as formats lack the type of a field, as a file of that name is there
    which is not to be ``replaced``, or as the format has one place for all fields, and these lie
    half a cell from each other.
    """
    check_library(format_of(file), file)
    for name in (*fields, *(snapshot.field for snapshot in problem.snapshots)):
        if _dtype(problem, name) == BFLOAT16:
            raise UsageError(
                f"{name} is stored in bfloat16, and {file} would hold bits that other programs do "
                "not read; name a folder with --out, and outgrid export writes it in float32"
            )
    going = {path.absolute() for path in replaced}
    for place in (_beside(out, name) for name in names_of(file, problem)):
        if os.path.lexists(place) and place not in going:
            raise UsageError(f"{place} exists and is not overwritten; {way_out(out)}")
    origins = {
        tuple(axis.origin for axis in axes)
        for name, (axes, _) in described(problem, fields).items()
        if not name.startswith("snapshot.")
    }
    if is_image(file) and len(origins) > 1:
        raise UsageError(
            f"the fields of this run are half a cell apart, and {file} has one position for all "
            "of them; name a folder with --out, and export each field to a separate file"
        )


def lie_together(
    file: str, folder: RunFolder, problem: Problem, chosen: Plan, fields: Iterable[str]
) -> Together | None:
    """Where in the one ``file`` of a run its arrays are going to be; None where they are copied.

    Those are written there which are behind none whose number of steps is not known: from the
    beginning, or, where fields are no files, once the last state is complete. Raises UsageError
    where the library is missing.
    """
    if not can_lie_together(file, folder, chosen):
        return None
    there: dict[str, Array] = {}
    for array in _files(file, problem, [*fields], problem.steps)[file]:
        there[array.name] = array
        if array.name not in fields and problem.until is not None:
            break
    with tempfile.TemporaryDirectory() as place:
        offsets = _described(partial_path(Path(place) / file), file, [*there.values()])
    first = next(iter(offsets))
    # Those that share a block with others are small, and are copied.
    offsets = {name: at for name, at in offsets.items() if at and at % HEADER_BYTES == 0}
    if offsets.get(first) != HEADER_BYTES or len(offsets) < 2:
        return None
    ends = {name: offset + _nbytes(there[name]) for name, offset in offsets.items()}
    other = max(end for name, end in ends.items() if name in fields)
    in_files = chosen.outlives and folder.spread is None
    return Together(first, offsets, (max(ends.values()), other if in_files else 0))


def can_lie_together(file: str, folder: RunFolder, chosen: Plan) -> bool:
    """Whether a run may write its arrays to their places in one file.

    Not where working files and results lie on two file systems, nor where files of their own are
    kept beside fields in memory.
    """
    return (
        bool(file)
        and mount_of(folder.out) == mount_of(folder.scratch)
        and (TIERS[chosen.store_tier].files or not chosen.outlives)
    )


def leave_file(out: Path, record: Record, file: str, together: Together | None = None) -> Record:
    """Leave the results of a finished run in one file, durably; the record that says where.

    Snapshots of a file of VTK are left in files of their own. Arrays that lie ``together`` in the
    file of the first one stay where they are. The files of arrays that were copied stay for
    `remove_copied` once the record is written. Raises StoreError.
    """
    problem, text = Problem.from_dict(record.problem), json.dumps(record.to_dict())
    offsets: dict[str, int] = {}
    frames: dict[str, str] = {}
    placed = _placed(out, together)
    for name, arrays in _files(file, problem, record.files, record.steps).items():
        told = [replace(array, attributes={"outgrid": text} | array.attributes) for array in arrays]
        offsets |= _leave(out, name, told, placed if name == file else {})
        frames |= {array.name: name for array in arrays if array.name not in record.files}
    sync_folder(out)
    fields = dict.fromkeys(record.files, file)
    named = msgspec.structs.replace(record, files=fields, frames=frames, offsets=offsets)
    for name in dict.fromkeys((file, *frames.values())):
        named = _linked(out, name, named)
    return named


def check_left(out: Path, record: Record, file: str) -> None:
    """Raise UsageError where a finished run has not left its results in that one ``file``, or "".

    The second name of that file is made again where it is gone.
    """
    if not file:
        return
    if file not in record.files.values():
        raise UsageError(
            f"the run in {out} is finished, and its results are not in {file}: make that with "
            f"outgrid export {out} --to {file}, or run the job again with --overwrite"
        )
    for name in dict.fromkeys((file, *record.frames.values())):
        _linked(out, name, record)


def _placed(out: Path, together: Together | None) -> dict[str, int]:
    """The first byte of each array that is in the file of the first one, and not in its own."""
    if together is None:
        return {}
    return {
        name: offset
        for name, offset in together.offsets.items()
        if name == together.field or not (out / f"{name}.npy").exists()
    }


def _leave(out: Path, file: str, arrays: list[Array], placed: Mapping[str, int]) -> dict[str, int]:
    """Leave arrays, whose planes are in `.npy` files, in one file; the first byte of each.

    Those that are ``placed`` are in the file of the first array.
    """
    skeleton, whole = partial_path(out / file), out / file
    skeleton.unlink(missing_ok=True)
    offsets = _described(skeleton, file, arrays)
    first, *others = offsets
    sizes = {array.name: _nbytes(array) for array in arrays}
    # Another version of the library may have other places.
    stay = all(offsets[name] == placed[name] for name in offsets if name in placed)
    with writing(whole):
        if offsets[first] == HEADER_BYTES and stay:
            target, others = out / f"{first}.npy", [name for name in others if name not in placed]
            _become(target, skeleton, offsets, sizes, others, out)
        else:
            target = skeleton
            with open(target, "r+b", buffering=0, opener=own) as to:
                for name in offsets:
                    of, begin = (first, placed[name]) if name in placed else (name, HEADER_BYTES)
                    source = out / f"{of}.npy"
                    _copy_field(source, begin, to.fileno(), offsets[name], sizes[name])
                os.fsync(to.fileno())
        os.replace(target, whole)
        skeleton.unlink(missing_ok=True)
    return offsets


def _become(
    target: Path,
    skeleton: Path,
    offsets: Mapping[str, int],
    sizes: Mapping[str, int],
    others: Iterable[str],
    out: Path,
) -> None:
    """Make the file of the first field the whole: what is behind its planes, then its head."""
    size = skeleton.stat().st_size
    taken = [(at, at + sizes[name]) for name, at in offsets.items() if at >= HEADER_BYTES]
    with (
        open(target, "r+b", buffering=0, opener=own) as to,
        open(skeleton, "r+b", buffering=0, opener=own) as of,
    ):
        to.truncate(size)
        for begin, end in _between(HEADER_BYTES, size, taken):
            copy_bytes(of.fileno(), begin, to.fileno(), begin, end - begin)
        for name in others:  # the smallest may be in the head, which is written last
            source, whole = out / f"{name}.npy", of if offsets[name] < HEADER_BYTES else to
            _copy_field(source, HEADER_BYTES, whole.fileno(), offsets[name], sizes[name])
        os.fsync(to.fileno())
        copy_bytes(of.fileno(), 0, to.fileno(), 0, HEADER_BYTES)
        os.fsync(to.fileno())


def restore(out: Path, manifest: Manifest) -> None:
    """Give the first array of each file of an unfinished run its own file back.

    That is where a process was cut off. Does nothing where no result is in place, or the record is
    written. Raises StoreError.
    """
    file = file_of(manifest)
    if not file or (out / RECORD_NAME).exists():
        return
    problem = Problem.from_dict(manifest.problem)
    take_apart(out, file, manifest.results[0], problem, manifest.together)
    for name, snapshot in _apart(file, problem).items():
        shape = snapshot.shape(problem.shape, manifest.steps_done)
        _take_out(out, _file_of(file, name), name, shape, problem.dtype_kept(snapshot))


def take_apart(
    out: Path, file: str, field: str, problem: Problem, together: Together | None = None
) -> None:
    """Make a `.npy` file of that name of the planes of the first field. Raises StoreError.

    What lies ``together`` with it stays there.
    """
    name, nbytes = Path(field).stem, together.nbytes[0] if together is not None else 0
    _take_out(out, file, name, problem.shape, _dtype(problem, name), nbytes)


def separate(out: Path, manifest: Manifest) -> None:
    """Give all fields of an unfinished run that are in place files of their own.

    Where the first one has its own, see `restore`. Raises StoreError.
    """
    together, first = manifest.together, out / f"{Path(manifest.results[0]).stem}.npy"
    if together is None or not first.is_file() or (out / RECORD_NAME).exists():
        return
    problem = Problem.from_dict(manifest.problem)
    kept = snapshots_by_file(problem.snapshots)
    for name, offset in together.offsets.items():
        path = out / f"{name}.npy"
        if path.exists():
            continue
        shape, dtype, place = problem.shape, _dtype(problem, name), (first, offset)
        if path.name in kept:
            snapshot = kept[path.name]
            shape, dtype = snapshot.shape(shape, problem.steps), problem.dtype_kept(snapshot)
            place = together.frames(out, out / manifest.folder, name) or place
        take_copy(*place, path, shape, dtype)
        os.replace(partial_path(path), path)
    sync_folder(out)
    take_apart(out, file_of(manifest), first.name, problem)


def _take_out(
    out: Path, file: str, name: str, shape: tuple[int, ...], dtype: str, nbytes: int = 0
) -> None:
    """Make a `.npy` file of the first array of a file; at least so many bytes of it are kept."""
    whole, first = out / file, out / f"{name}.npy"
    with writing(whole):
        partial_path(whole).unlink(missing_ok=True)
        if whole.is_file() and not whole.is_symlink():
            for second in second_names(out, [file]):
                second.unlink()
            if first.exists():
                whole.unlink()
            else:
                os.replace(whole, first)
        if not first.is_file():
            return
        with open(first, "r+b", buffering=0, opener=own) as to:
            os.pwrite(to.fileno(), header_bytes(shape, dtype), 0)
            to.truncate(max(nbytes, HEADER_BYTES + prod(shape) * np.dtype(dtype).itemsize))
            os.fsync(to.fileno())
    sync_folder(out)


def remove_copied(out: Path, record: Record) -> None:
    """Remove the files that were copied, now that the record says where what was in them is."""
    for name in record.offsets:
        (out / f"{name}.npy").unlink(missing_ok=True)


def _described(skeleton: Path, file: str, arrays: list[Array]) -> dict[str, int]:
    """Make the skeleton of a file; where in it the numbers of each array belong."""
    output = format_of(file).create_output(skeleton)
    offsets: dict[str, int] = {}
    try:
        for array in arrays:
            offset = output.array(array).offset
            if offset is None:
                raise StoreError(
                    f"the format does not give the position of {array.name}", path=skeleton
                )
            offsets[array.name] = offset
        output.commit()
    finally:
        output.close()
    return offsets


def _files(
    file: str, problem: Problem, fields: Collection[str], steps: int
) -> dict[str, list[Array]]:
    """What is to be in each file: the fields, and the snapshots that are taken in so many steps."""
    stored = {name: (problem.shape, _dtype(problem, name)) for name in fields}
    for kept, snapshot in snapshots_by_file(problem.snapshots).items():
        shape = snapshot.shape(problem.shape, steps)
        if prod(shape):
            stored[Path(kept).stem] = shape, problem.dtype_kept(snapshot)
    apart = [name for name in _apart(file, problem) if name in stored]
    together = [name for name in stored if name not in apart]
    said = described(problem, fields)
    files: dict[str, list[Array]] = {}
    for whole, names in ((file, together), *((_file_of(file, name), [name]) for name in apart)):
        axes = told_apart({name: (said[name][0], stored[name][0]) for name in names})
        files[whole] = [
            Array(name, shape, np.dtype(dtype), axes[name], attributes=dict(said[name][1]))
            for name, (shape, dtype) in ((name, stored[name]) for name in names)
        ]
    return files


def is_image(file: str) -> bool:
    """Whether a file is one of VTK, beside which each snapshot has a file of its own."""
    return file.lower().endswith(".vtkhdf")


def _linked(out: Path, file: str, record: Record) -> Record:
    """Give the file its second name; the record warns where it has none."""
    second = _beside(out, file)
    try:
        os.link(out / file, second)
        sync_folder(second.parent)
    except OSError as error:
        if error.errno not in (*NO_LINKS, errno.EEXIST, errno.EXDEV):
            raise StoreError("cannot write", path=second, errno=error.errno) from error
        text = f"the results are in {out / file}, not in {second}: {os.strerror(error.errno)}"
        return msgspec.structs.replace(record, warnings=(*record.warnings, text))
    return record


def _between(begin: int, end: int, taken: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The parts of [begin, end) that are not taken."""
    for low, high in sorted(taken):
        yield begin, low
        begin = high
    yield begin, end


def _copy_field(source: Path, begin: int, to: int, offset: int, nbytes: int) -> None:
    """Copy an array from where it begins in a file."""
    with open(source, "rb", buffering=0, opener=own) as of:
        copy_bytes(of.fileno(), begin, to, offset, nbytes)


def _nbytes(array: Array) -> int:
    return prod(array.shape) * array.dtype.itemsize


def _dtype(problem: Problem, name: str) -> str:
    return problem.dtype_of(name.removesuffix(PREVIOUS))
