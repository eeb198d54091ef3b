"""The stores of a run: made or opened together, and closed together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from outgrid.config import RunOptions
from outgrid.errors import StoreError
from outgrid.execute.moves import StoreKey
from outgrid.execute.packing import packed
from outgrid.execute.required import NOT_DIRECT, NOT_LOCKED, refusal
from outgrid.native import Buffer, as_array
from outgrid.plan.model import Plan
from outgrid.plan.schedule.rings import Arrival, Ring
from outgrid.plan.schedule.seam import SeamKey
from outgrid.plan.tiers import madvise
from outgrid.remote.borrowed import Borrowed
from outgrid.runs.seals import Seals, level_name
from outgrid.runs.state import RunFolder
from outgrid.runs.together import Together
from outgrid.runs.working import is_seam, level_of
from outgrid.seal import Seal
from outgrid.stencil.problem import PREVIOUS
from outgrid.stencil.series import Series
from outgrid.storage import (
    BegunStore,
    BesideStore,
    DirectStore,
    GivenStore,
    Habits,
    NewField,
    Planes,
    SeriesStore,
    SpreadStore,
    Stamps,
    Store,
    Transfers,
    Uncopied,
    check_stamps,
    create_store,
    frames_of,
    open_store,
    other_planes,
)
from outgrid.storage.sums import SUMS_SUFFIX, sums_path
from outgrid.tiers import TIERS

__all__ = ["Files"]

Opener = Callable[[Path, str, tuple[int, ...]], Store]


class Files:
    """The files of ``folder`` that ``chosen`` works in, on the tier that it names.

    ``fallbacks`` says what could not be had as it was asked for. ``leaving`` are the files that
    fields are copied into in the end, by field and level, where they are no files themselves;
    they are named like those of parity 0. ``series`` are the coefficients that lie in files of
    others, and change, ``stamps`` what these files were when the run began; ``uncopied`` the levels
    that a run begins with and reads where they lie.
    """

    def __init__(
        self,
        folder: RunFolder,
        chosen: Plan,
        options: RunOptions,
        transfers: Transfers,
        seals: Seals,
        remote: Borrowed | None = None,
        series: Mapping[str, Series] | None = None,
        uncopied: Mapping[str, Uncopied] | None = None,
        stamps: Mapping[str, Stamps] | None = None,
    ) -> None:
        self.series, self.uncopied, self.stamps = series or {}, uncopied or {}, stamps or {}
        self.folder, self.plan, self.options = folder, chosen, options
        self.transfers, self.remote, self.seals = transfers, remote, seals
        self._parity = 0  # of the files that a resume goes on from
        self.shape = chosen.stored_shape
        self.habits = Habits(madvise(options), options.msync)
        self.fallbacks: list[str] = list(transfers.refusals)
        self.leaving: dict[tuple[str, int], DirectStore] = {}
        self._opened: list[Store] = []
        self._given: dict[Arrival, GivenStore] = {}
        self._reserved = True

    def make(self, parity: int, exported: bool) -> dict[StoreKey, Store]:
        """Make and reserve the files of all levels, state 0 in those of ``parity``.

        Fields that are not ``exported`` yet are going to be copied in the end.
        """
        if self.folder.together is not None:
            self._make_together(self.folder.together)
        stores = self._stores(self._create, parity)
        if not exported:
            self._make_results()
        if not (self._reserved and all(store.reserved for store in self._own)):
            self.fallbacks.append("the file system cannot reserve space: the disk may fill up")
        return stores

    def open(self, parity: int, exported: bool) -> dict[StoreKey, Store]:
        """Open the files that an earlier process made; see `make`."""
        self._parity = parity
        if not exported:
            for level in self.plan.schedule.arrivals:
                for number in (0, 1):  # what that process had made, with other sweeps to go
                    path = self.folder.working.path(level, number)
                    if self._result(level).within is None:
                        path.unlink(missing_ok=True)
                    sums_path(path).unlink(missing_ok=True)
            self._make_results()
        return self._stores(self._open, parity)

    @property
    def _own(self) -> Iterator[DirectStore]:
        """The files that the run has made."""
        for store in self._opened:
            if isinstance(store, DirectStore) and not isinstance(store, GivenStore):
                yield store

    def close(self) -> None:
        """Let go of all of them, once: what is closed again has nothing left to let go of."""
        opened, self._opened = self._opened, []
        for store in opened:
            store.close()

    def check_unchanged(self, state: int) -> None:
        """Raise UsageError where a file of others changed that was read up to a state."""
        for level, store in self._given.items():
            if level.constant or state <= 1:
                store.check_unchanged()
        for name, stamps in self.stamps.items():
            check_stamps(name, self.series[name].paths, stamps)

    def pack(self, store: Store, path: Path) -> Store:
        """The store of a coefficient, read from a packed copy of its planes from now on.

        Made before the window is. Raises StoreError.
        """
        memory_bytes, threads = self.plan.memory.before_bytes, self.plan.threads
        made = packed(store, path, self.transfers, memory_bytes, threads)
        self._opened[self._opened.index(store)] = made
        return made

    def remove_seams(self, names: Iterable[str]) -> None:
        """Remove those of the files ``names`` that hold seams of no use: most sweeps begin anew."""
        kept = {
            self.folder.working.seam(*key).name
            for key in self.plan.schedule.places
            if self._is_begun(key)
        }
        for name in filter(is_seam, names):
            if name.removesuffix(SUMS_SUFFIX) not in kept:
                (self.folder.scratch / name).unlink(missing_ok=True)

    def _is_begun(self, key: SeamKey) -> bool:
        """Whether a restart reads what an earlier process left in the place of a seam."""
        plan = self.plan
        return plan.schedule.begin.begun > 0 and key.depth == plan.schedule.depths[0]

    def seams(self) -> dict[SeamKey, Store]:
        """Files for the seams of strips, and of planes that come round again."""
        seams: dict[SeamKey, Store] = {}
        for key, shape in self.plan.schedule.places.items():
            path, dtype = self.folder.working.seam(*key), self.plan.dtype_of(key.field)
            if self._is_begun(key):
                store = self._open(path, key.field, shape)
            elif self.remote is not None:
                store = self.remote.create_seam(NewField(path, shape, dtype), self.transfers)
            else:
                new = NewField(path, shape, dtype, self.habits, sums=True, overwrite=True)
                store = create_store(self.plan.store_tier, new, self.transfers)
            self._opened.append(store)
            seams[key] = store
        return seams

    def ring(self, ring: Ring, nbytes: int) -> Buffer:
        """The memory of a ring: that of the tier where sweeps work in place."""
        plan, tier = self.plan, TIERS[self.plan.tier]
        if plan.in_place:
            path = self.folder.working.ring(ring.field, ring.index)
            path.unlink(missing_ok=True)  # of a process that was cut off
            if tier.files:
                buffer = Buffer.of_new_file(path, nbytes)
            else:  # huge pages would be taken apart on their way to swap
                buffer = Buffer(nbytes, huge_pages=False)
            for order in self.habits.madvise:
                buffer.advise(order)
            return buffer
        if not tier.swapped and "mlock" not in self.options.require:
            return Buffer(nbytes, huge_pages=ring.huge_pages)
        try:
            return Buffer(nbytes, lock=True)
        except OSError as error:
            self.fall_back("mlock", f"{NOT_LOCKED}: {error.strerror}")
            return Buffer(nbytes)

    def fall_back(self, wanted: str, what: str) -> None:
        """Note that ``what`` was had instead. Raises StoreError where ``wanted`` is required."""
        if wanted in self.options.require:
            self.transfers.close()
            self.close()
            raise refusal(wanted, what, self.folder.scratch)
        self.fallbacks.append(what)

    def _apart(self, opener: Opener, path: Path, field: str) -> Store:
        """The store of a level: with its halos, where there are any, in files of their own."""
        apart = self.plan.schedule.stored.apart
        if len(apart) == 1:
            self._opened.append(opener(path, field, self.shape))
            return self._opened[-1]
        parts: list[Store] = []
        for name, rows in apart.items():
            shape = (self.shape[0], len(rows), self.shape[-1])
            parts.append(opener(self.folder.working.beside(path, name), field, shape))
            self._opened.append(parts[-1])
        return BesideStore(parts, [*apart].index(""), self.transfers)

    def _make_results(self) -> None:
        for level in self.plan.schedule.arrivals:
            if not level.constant:
                store = DirectStore.create_as(self._result(level), self.transfers)
                self._opened.append(store)
                self.leaving[level.field, level.level] = store

    def _result(self, level: Arrival) -> NewField:
        """What a field is copied into in the end."""
        path, dtype = self.folder.working.path(level, 0), self.plan.dtype_of(level.field)
        within = self.folder.working.within(path, self.shape, dtype)
        return NewField(path, self.shape, dtype, sums=True, within=within)

    def _make_together(self, together: Together) -> None:
        """Make the files that all fields lie in, of each parity that is wanted."""
        dtype = self.plan.dtype_of(together.field.removesuffix(PREVIOUS))
        holes = self._absent_bytes(together) if together.nbytes[1] else ()
        for parity, nbytes in enumerate(together.nbytes):
            if nbytes:
                given = together.file(self.folder.scratch, parity), self.shape, dtype
                store = DirectStore.create(*given, self.transfers, file_bytes=nbytes, holes=holes)
                self._reserved &= store.reserved
                store.close()

    def _absent_bytes(self, together: Together) -> tuple[range, ...]:
        """Where in the files that fields lie in together nothing is ever written, in order."""
        fields = {level_name(level): level.field for level in self.plan.schedule.kept}
        holes: list[range] = []
        for name, at in sorted(together.offsets.items(), key=lambda place: place[1]):
            if name in fields:
                size = self.plan.plane_bytes(fields[name])
                absent = self._absent(fields[name])
                holes += [range(at + size * some.start, at + size * some.stop) for some in absent]
        return tuple(holes)

    def _create(self, path: Path, field: str, shape: tuple[int, ...]) -> Store:
        dtype, absent = self.plan.dtype_of(field), self._absent(field)
        parts = self.folder.working.parts(path)
        if parts is not None:
            store = SpreadStore.make(path, shape, dtype, self.transfers, parts, sums=True)
            self._clear(store, absent)
            return store
        within = self.folder.working.within(path, shape, dtype)
        new = NewField(
            path,
            shape,
            dtype,
            self.habits,
            sums=True,
            absent=absent,
            within=within,
            fortran=self.plan.fortran,
        )
        if self.remote is not None:
            return self.remote.create(new, self.transfers)
        return create_store(self.plan.store_tier, new, self.transfers)

    def _absent(self, field: str) -> tuple[range, ...]:
        """The planes of the files of a field in which it does not exist."""
        bands, planes = self.plan.schedule.bands(field), self.plan.schedule.planes
        if bands is None:
            return ()
        return other_planes((range(*band) for band in bands), planes)

    def _clear(self, store: SpreadStore, planes: tuple[range, ...]) -> None:
        """Write zeroes to planes of what may lie on a device that had other things before."""
        if not planes:
            return
        buffer = Buffer(store.plane_bytes)
        as_array(buffer, np.uint8)[:] = 0
        for plane in (plane for part in planes for plane in part):
            memory = Planes(np.array([buffer.address], np.int64), store.row_bytes, buffer)
            store.put(range(plane, plane + 1), range(store.rows_per_plane), memory)
        self.transfers.drain()
        buffer.release()
        store.leave_out(planes)

    def _open(self, path: Path, field: str, shape: tuple[int, ...]) -> Store:
        dtype = self.plan.dtype_of(field)
        if self.remote is not None:
            return self.remote.open(path, self.transfers, *self._kept(path))
        parts = self.folder.working.parts(path)
        within = self.folder.working.within(path, shape, dtype)
        store = (
            open_store(self.plan.store_tier, path, self.transfers, self.habits, within)
            if parts is None
            else SpreadStore.reopen(path, self.transfers, parts, "rw", sums=True)
        )
        if (store.shape, store.dtype) != (shape, np.dtype(dtype)):
            store.close()
            raise StoreError(
                f"a working file holds {store.dtype} of shape {store.shape}, the run needs "
                f"{dtype} of shape {shape}",
                path=path,
            )
        store.leave_out(self._absent(field))
        return store

    def _kept(self, path: Path) -> tuple[Seal, range]:
        """What the checksums of a file are of, and which of its planes are durable."""
        name, parity = level_of(path.name)
        level = next(arrival for arrival in self.plan.schedule.kept if level_name(arrival) == name)
        if parity in (None, self._parity):
            if self._begins and name in self.uncopied:
                return self.seals.level(level, 0), range(0)
            return self.seals.level(level, 0), range(self.plan.schedule.planes)
        begun = self.plan.schedule.begin.begun > 0
        planes = range(self.plan.schedule.begin.planes if begun else 0)
        return self.seals.level(level, int(begun)), planes

    def _stores(self, opener: Opener, parity: int) -> dict[StoreKey, Store]:
        stores: dict[StoreKey, Store] = {}
        for level in self.plan.schedule.kept:
            place = self.uncopied.get(level_name(level))
            for state in (0, 1):
                if level.constant and (state or place is not None):
                    continue
                path = self.folder.working.field(level, (state + parity) % 2)
                stores[level.field, level.level, state] = self._apart(opener, path, level.field)
            if place is not None and (level.constant or self._begins):
                key, given = (level.field, level.level, 0), self._where_it_lies(level, place)
                stores[key] = given if level.constant else BegunStore(stores[key], given, 0)
        for arrival in self.plan.schedule.arrivals:
            if arrival.given:
                stores[arrival.field, arrival.level, 0] = self._series(arrival)
        if self.plan.store_tier == "direct" and not all(store.direct for store in self._own):
            self.fall_back("direct", NOT_DIRECT)
        return stores

    @property
    def _begins(self) -> bool:
        """Whether state 0 is that of the initial values."""
        return self.seals.steps[0] == 0

    def _where_it_lies(self, level: Arrival, place: Uncopied) -> Store:
        """A level in the file of others that it begins in."""
        dtype = self.plan.dtype_of(level.field)
        store = GivenStore.at(place, level_name(level), self.shape, dtype, self.transfers)
        self._given[level] = store
        self._opened.append(store)
        return store

    def _series(self, arrival: Arrival) -> Store:
        """What one step of each sweep reads of a coefficient that changes with every step."""
        name, series = arrival.field, self.series[arrival.field]
        schedule, dtype = self.plan.schedule, self.plan.dtype_of(name)
        lacks = series.lacks(len(schedule.shape))
        frames = frames_of(series.paths, name, schedule.shape, dtype, lacks)
        store = SeriesStore(
            name,
            {
                step: frames[series.number(step + arrival.level)]
                for step, depth in zip(self.seals.steps, schedule.depths, strict=False)
                if arrival.of(depth)
            },
            self.shape,
            (schedule.stored.planes.start, schedule.stored.rows.start),
            self.transfers,
            np.dtype(dtype),
            lacks,
        )
        self._opened.append(store)
        return store
