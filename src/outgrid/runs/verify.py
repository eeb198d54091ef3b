"""Reading a run back, finished or not, and comparing every row with its checksum."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
from msgspec.structs import replace

from outgrid.errors import Error, StoreError, UsageError
from outgrid.formats.npy import HEADER_BYTES, Header, read_header
from outgrid.formats.shard import check_index
from outgrid.native import Buffer
from outgrid.plan.schedule.subgrid import Box
from outgrid.record import RECORD_NAME, Record, read_record
from outgrid.regular import check_own
from outgrid.runs.frames import Frames, frames_of
from outgrid.runs.group import Durable, durable
from outgrid.runs.lock import RunLock
from outgrid.runs.manifest import MANIFEST_NAME, Manifest
from outgrid.runs.places import SPREAD_SUFFIX
from outgrid.runs.samples import REDUCTIONS_NAME, TRACES_NAME, check_placed
from outgrid.runs.single import become, file_of
from outgrid.runs.working import is_halo, is_seam, level_of
from outgrid.seal import UNSEALED, Seal
from outgrid.stencil.problem import PREVIOUS, Problem
from outgrid.stencil.snapshot import snapshots_by_file
from outgrid.storage import DirectStore, Parts, Planes, SpreadStore, Transfers, Within
from outgrid.storage.sums import sums_digest, sums_path

CHUNK_BYTES = 16 << 20


class Verified(msgspec.Struct, frozen=True):
    """The files that were read, their bytes, and everything that was found wrong.

    Of an unfinished run the state after ``steps`` steps was read, from which it goes on.
    """

    files: tuple[Path, ...]
    nbytes: int
    errors: tuple[Error, ...]
    steps: int | None = None

    def with_frames(self, kept: Iterator[tuple[Frames, int]]) -> Verified:
        """With the frames of snapshots after so many steps."""
        files, nbytes, errors = self.files, self.nbytes, self.errors
        for frames, steps in kept:
            try:
                frames.check(steps)
                nbytes += frames.nbytes(steps)
            except (UsageError, StoreError) as error:
                errors = (*errors, error)
            files = tuple(dict.fromkeys((*files, frames.out)))
        return Verified(files, nbytes, errors, self.steps)

    def with_samples(self, out: Path, record: Record) -> Verified:
        """With the traces and reductions in ``out``, if a record has their checksums."""
        files, nbytes, errors = self.files, self.nbytes, self.errors
        for name in (TRACES_NAME, REDUCTIONS_NAME):
            if name in record.checksums:
                files = (*files, out / name)
                try:
                    nbytes += check_placed(out / name, record.checksums[name])
                except StoreError as error:
                    errors = (*errors, error)
        return Verified(files, nbytes, errors, self.steps)


class _Field(msgspec.Struct, frozen=True):
    """A field to be read, in a file or in parts, unless something is wrong with it already.

    It may be ``within`` another file, and its path then names its checksums.
    Of what a rank keeps, halos too, ``owned`` is read, counted from the first cell that is there.
    """

    path: Path
    parts: Parts | None = None
    owned: Box | None = None
    wrong: Error | None = None
    seal: Seal = UNSEALED
    within: Within | None = None


def verify(out: Path, seen: Callable[[Path, int, int], None] | None = None) -> Verified:
    """Read the results of a finished run, or the durable state of an unfinished one, and compare.

    What an unfinished run has made since that state is not read here, but when it goes on: seams
    and planes of the sweep under way are compared as any that are read. So are halos of ranks.

    ``seen(path, planes done, planes)`` is told how far it has come. Raises UsageError where there
    is no run, or a process works on it.
    """
    if (out / RECORD_NAME).exists():
        record = read_record(out)
        verified = _verify(_results(out, record), seen)
        return verified.with_frames(_result_frames(out, record)).with_samples(out, record)
    durable(out)
    with RunLock(out):
        state = durable(out)
        verified = _verify(_working_files(state), seen).with_frames(_working_frames(out, state))
        return replace(verified, steps=state.steps)


def read_back(path: Path, seal: Seal, owned: Box, within: Within | None = None) -> list[Error]:
    """What differs from its checksums in the part ``owned`` of the file of a result."""
    errors: list[Error] = []
    _read(_Field(path, owned=owned, seal=seal, within=within), errors, None)
    return errors


def _results(out: Path, record: Record) -> Iterator[_Field]:
    """The fields of a finished run, and whether their checksums are those of its record."""
    if not record.checksums:
        raise UsageError(f"the record in {out} has no checksums: an older version wrote it")
    pieces = {piece.file: piece for of in (record.pieces or {}).values() for piece in of}
    for name, file in record.files.items():
        path, owned = out / file, None
        if file in pieces:  # beside what a rank owns are halos, of other steps
            piece = pieces[file]
            owned = Box(range(piece.low, piece.high), range(piece.low_row, piece.high_row))
            owned = owned.counted_from(piece.first, piece.first_row)
        if not _is_inside(Path(file)):
            raise UsageError(f"the record in {out} names a file {file!r} outside of it")
        seal, rows = record.seals.get(name, UNSEALED), out / record.rows_file(name)
        within = _within(path, record, name) if name in record.offsets else None
        wrong = _compare_digest(rows, record.checksums.get(name, ""), seal, within)
        yield _Field(rows, within=within, owned=owned, wrong=wrong, seal=seal)


def _within(path: Path, record: Record, name: str) -> Within:
    """Where a field lies in a file with others."""
    problem = Problem.from_dict(record.problem)
    dtype = np.dtype(problem.dtype_of(name.removesuffix(PREVIOUS)))
    return Within(path, Header(problem.shape, dtype, False, record.offsets[name]))


def _result_frames(out: Path, record: Record) -> Iterator[tuple[Frames, int]]:
    """The snapshots of a finished run, if their checksums were kept."""
    whole = Problem.from_dict(record.problem)
    box = Box.whole(whole.shape)
    for name, snapshot in snapshots_by_file(whole.snapshots).items():
        path = out / name
        if path.stem in record.seals:
            run = record.seals[path.stem].run
            frames = Frames(path, sums_path(path), run, snapshot, whole, box)
            if path.stem in record.offsets:
                within = out / record.frames_file(path.stem), record.offsets[path.stem]
                frames = replace(frames, within=within)
            yield frames, record.parts[-1].last_step


def _working_frames(out: Path, durable: Durable) -> Iterator[tuple[Frames, int]]:
    """What the shares of an unfinished run have kept in snapshots."""
    whole = Problem.from_dict(durable.problem)
    for share in durable.shares:
        for frames in frames_of(out, share.folder.out, share.manifest, share.owned, whole):
            path, offset = frames.within or (frames.out, HEADER_BYTES)
            if frames.within is not None and not path.exists():
                path = out / share.manifest.results[0]
            there = become(out, share.manifest, path)
            lies = frames.within is None and there == frames.out
            yield frames if lies else replace(frames, within=(there, offset)), durable.steps


def _is_inside(file: Path) -> bool:
    """Whether a relative path stays in its folder, one level down at most, as those of ranks do."""
    return not file.is_absolute() and ".." not in file.parts and 1 <= len(file.parts) <= 2


def _compare_digest(
    path: Path, expected: str, seal: Seal, within: Within | None = None
) -> Error | None:
    try:
        digest = sums_digest(path, seal, within.header if within else None)
    except StoreError as error:
        return error
    except OSError as error:
        return StoreError("cannot read", path=sums_path(path), errno=error.errno)
    if digest == expected:
        return None
    return StoreError(
        f"the checksums belong to another run: expected {expected or 'none'}, found {digest}",
        path=sums_path(path),
    )


def _working_files(durable: Durable) -> Iterator[_Field]:
    """The files that hold the last durable state of an unfinished run."""
    problem, uncopied = Problem.from_dict(durable.problem), durable.uncopied
    try:
        durable.check_unchanged()
    except UsageError as error:
        yield _Field(durable.shares[0].folder.out / MANIFEST_NAME, wrong=error)
    for share in durable.shares:
        folder, manifest = share.folder, share.manifest
        folder.check_owner(manifest)
        owned = share.owned.counted_from(manifest.first, manifest.first_row)
        kept = SPREAD_SUFFIX if folder.spread is not None else ".npy"
        for name in manifest.files:
            path = folder.scratch / name
            level, parity = level_of(name)
            other = parity == 1 - durable.parity(share)
            elsewhere = level in uncopied  # and what is there is none of the run's
            whole = not (is_seam(name) or is_halo(name) or other or elsewhere)
            if (
                whole
                and path.suffix == kept
                and (folder.spread is None or folder.working.parts(path))
            ):
                seal = durable.seal(share, level, constant=parity is None)
                dtype = problem.dtype_of(level.removesuffix(PREVIOUS))
                within = folder.working.within(path, problem.shape, dtype)
                field = _Field(path, folder.working.parts(path), owned, seal=seal, within=within)
                if parity is not None:
                    whole = Header(problem.shape, np.dtype(dtype), False, HEADER_BYTES)
                    field = _placed(field, folder.out, manifest, whole)
                yield field


def _placed(field: _Field, out: Path, manifest: Manifest, whole: Header) -> _Field:
    """A field of a run that was cut off while results were put in place in ``out``: as it lies."""
    if field.parts is not None:
        return field
    path, within = field.path, field.within
    rows = path if _stays(sums_path(path), sums_path(_result(path, out))) else _result(path, out)
    values = path if within is None else within.path
    result = become(out, manifest, _result(values, out))
    if not _stays(values, result):
        values = result
        if within is None and file_of(manifest):  # for which it gets another head
            within = Within(values, whole)
    try:
        if within is not None or values != rows:
            within = Within(values, within.header if within is not None else read_header(values))
    except (UsageError, StoreError) as error:
        return replace(field, wrong=error)
    return replace(field, path=rows, within=within)


def _result(path: Path, out: Path) -> Path:
    """What the working file of an evolving level becomes in the end."""
    return out / f"{level_of(path.name)[0]}.npy"


def _stays(working: Path, result: Path) -> bool:
    """Whether a working file is not yet in place."""
    return working.exists() or not result.exists()


def _verify(files: Iterator[_Field], seen: Callable[[Path, int, int], None] | None) -> Verified:
    paths: list[Path] = []
    errors: list[Error] = []
    nbytes = 0
    for field in files:
        paths.append(field.path if field.within is None else field.within.path)
        if field.wrong is not None:
            errors.append(field.wrong)
            continue
        try:
            nbytes += _read(field, errors, seen)
            if field.parts is None and field.within is None:
                header = read_header(field.path)
                check_index(field.path, header.data_offset + header.nbytes)
        except (UsageError, StoreError) as error:
            errors.append(error)
    return Verified(tuple(paths), nbytes, tuple(errors))


def _read(field: _Field, errors: list[Error], seen: Callable[[Path, int, int], None] | None) -> int:
    path = field.path
    if field.owned is not None:  # as a run that goes on opens them
        for file in (field.within.path if field.within else path, sums_path(path)):
            check_own(file)
    with Transfers() as transfers:
        store = (
            DirectStore.open(path, transfers, sums=True, within=field.within)
            if field.parts is None
            else SpreadStore.reopen(path, transfers, field.parts, sums=True)
        )
        store.hold(field.seal)
        there = Box(range(store.planes), range(store.rows_per_plane))
        owned = field.owned or there
        if not owned.within(there):
            store.close()
            raise UsageError(f"{path} holds {there}, but the run owns {owned}")
        plane_bytes = len(owned.rows) * store.row_bytes
        per_chunk = max(1, min(len(owned.planes), CHUNK_BYTES // max(1, plane_bytes)))
        buffer = Buffer(max(1, per_chunk * plane_bytes))
        addresses = buffer.address + plane_bytes * np.arange(per_chunk, dtype=np.int64)
        try:
            for first in range(owned.planes.start, owned.planes.stop, per_chunk):
                planes = range(first, min(owned.planes.stop, first + per_chunk))
                part = Planes(addresses[: len(planes)], store.row_bytes, buffer)
                store.get(planes, owned.rows, part)
                errors += [ended.error for ended in transfers.wait() if ended.error is not None]
                if seen is not None:
                    seen(path, planes.stop, store.planes)
        finally:
            transfers.close()
            store.close()
        return owned.count * store.row_bytes
