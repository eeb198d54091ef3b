"""One run: its files, its sweeps, what is durable of it, and its record."""

from __future__ import annotations

import errno
import time
from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any

import msgspec
from msgspec.structs import replace

from outgrid.config import RunOptions
from outgrid.errors import Stopped, StoreError
from outgrid.execute.account import Account
from outgrid.execute.device import DeviceKernel
from outgrid.execute.files import Files
from outgrid.execute.fill import Filled, InitialValues, fill
from outgrid.execute.inputs import Inputs
from outgrid.execute.kernel import Kernel
from outgrid.execute.moves import Hierarchy, Sparing, StoreKey
from outgrid.execute.origin import first_of
from outgrid.execute.site import Site, reached
from outgrid.execute.stop import Stop
from outgrid.execute.streaming import (
    PROGRESS_SECONDS,
    Callbacks,
    Listener,
    Progress,
    SweepListener,
    doing,
    stream,
)
from outgrid.observe import Noted, Reached, files_of, observers_of
from outgrid.observe.watch import NotFinite
from outgrid.plan.instruction import Point
from outgrid.plan.model import Plan
from outgrid.plan.schedule.rings import Arrival
from outgrid.record import CUT_OFF, FINISHED, Part
from outgrid.remote.borrowed import Borrowed
from outgrid.runs.group import Durable
from outgrid.runs.ledger import Ledger
from outgrid.runs.manifest import Manifest, write_manifest
from outgrid.runs.pace import Pace
from outgrid.runs.results import Results
from outgrid.runs.run import Run
from outgrid.runs.seals import Seals, level_name
from outgrid.runs.space import reserve_results
from outgrid.sharing import Told
from outgrid.storage import Joined, Store, Transfers, TransposedStore, stamps_of
from outgrid.storage.export import export
from outgrid.tiers import COPIED_TIERS

__all__ = ["Execution", "open_transfers"]

AnyKernel = Kernel | DeviceKernel


class Execution:
    """A run, or what one of its ranks does, from filled stores to a record.

    ``ledger`` says what is durable of it; ``observers`` are called at the moments that `Observer`
    lists.
    """

    def __init__(self, run: Run, transfers: Transfers, remote: Borrowed | None = None) -> None:
        self.run, self.transfers = run, transfers
        self.ledger, self.before = Ledger(run), run.manifest
        if remote is not None:
            remote.take(run.plan)
        self.parity = self.before.parity
        self.seals = Seals.of(self.manifest.identity, run.plan, run.done)
        given = run.given.series, self.before.uncopied, self.before.series
        self.files = Files(run.folder, run.plan, run.options, transfers, self.seals, remote, *given)
        self.account = Account(run.problem, run.plan, transfers, self.before, run.done)
        self.observers = observers_of(run)
        self.site: Site[Any] | None = None

    @property
    def manifest(self) -> Manifest:
        """What is durable by now."""
        return self.ledger.manifest

    def start(
        self, durable: Durable | None, progress: Listener | None, inputs: Inputs
    ) -> dict[StoreKey, Store]:
        """The stores with a state to go on from: files that are there, or new ones that are filled.

        These with initial values, of ``inputs``, or with what is ``durable`` of the run in other
        files.
        """
        if self.before.steps_done >= 0:
            run = self.run
            left = files_of(run.given, run.options, alone=run.plan.schedule.subgrid is None)
            self.ledger.manifest = run.folder.leaving(self.manifest, left)
            write_manifest(run.folder.out, self.manifest)
            # With all steps made, results may be in place already.
            there = not run.problem.steps and self.manifest.exported
            return {} if there else self._open_stores()
        try:
            stores = self._begin(durable, inputs)
            given = durable.fields(self.run.plan.schedule.kept) if durable is not None else None
            self.fill(stores, progress, given, inputs)
        except BaseException:
            self.close()
            if self.manifest.steps_done < 0:  # else it can be resumed
                with suppress(OSError):  # what stays there is listed by outgrid clean
                    self.run.folder.abandon(self.manifest)
            raise
        return stores

    def _begin(self, durable: Durable | None, inputs: Inputs) -> dict[StoreKey, Store]:
        """Say what is going to be made, and make and reserve the files of all levels.

        With what is ``durable`` of a run that goes on in them, or ``inputs`` that lie as the run
        keeps them.
        """
        run = self.run
        if run.plan.uncopied:
            self.files.uncopied = inputs.places(run.plan.uncopied)
            self.ledger.manifest = msgspec.structs.replace(
                self.manifest, uncopied=self.files.uncopied
            )
        self.files.stamps = {name: stamps_of(one.paths) for name, one in self.files.series.items()}
        self.ledger.manifest = msgspec.structs.replace(self.manifest, series=self.files.stamps)
        run.folder.create(self.manifest)
        reserve_results(run.plan, run.folder)
        self.ledger.manifest = self.observers.begin(self.manifest, durable)
        return self.files.make(self.parity, self.manifest.exported)

    def _open_stores(self) -> dict[StoreKey, Store]:
        """Open the files that an earlier process made."""
        self.files.remove_seams(self.manifest.files)
        return self.files.open(self.parity, self.manifest.exported)

    def fill(
        self,
        stores: dict[StoreKey, Store],
        progress: Listener | None,
        given: dict[str, Joined] | None = None,
        inputs: Inputs | None = None,
    ) -> None:
        """Bring in the initial values, or those ``given`` in files, and commit state 0."""
        begin = reported = time.perf_counter()
        busy_before = time.process_time()
        run, schedule = self.run, self.run.plan.schedule

        def store_of(arrival: Arrival) -> Store:
            store = stores[arrival.field, arrival.level, 0]
            store.hold(self.seals.level(arrival, 0))
            return store

        def told(filled: Filled) -> None:
            nonlocal reported
            now = time.perf_counter()
            if now - reported > PROGRESS_SECONDS:
                reported = now
                busy = time.process_time() - busy_before
                self._tell(progress, self._filling(filled, now - begin, busy))

        axis, threads = run.plan.transposed, run.plan.threads
        stored = None if run.plan.fortran else run.plan.stored
        bands = schedule.bands
        filled = fill(
            InitialValues(run.problem, stored, given or {}, inputs, bands, threads, axis),
            tuple(level for level in schedule.kept if level_name(level) not in run.plan.uncopied),
            store_of,
            self.transfers,
            self.observers.looks_at_initial(),
            told,
            memory_bytes=run.plan.memory.before_bytes,
        )
        for store in {id(store): store for store in stores.values()}.values():
            store.flush()
        self.transfers.drain()
        self.observers.filled(filled.finite)
        self.account.fill_ended(filled, time.perf_counter() - begin)
        self._commit(Point(0))

    def _tell(self, progress: Listener | None, event: Progress) -> None:
        """Tell observers and a listener how far the run is."""
        self.observers.progressed(event)
        if progress is not None:
            progress(event)

    def _filling(self, filled: Filled, seconds: float, processor_seconds: float) -> Progress:
        """How far the initial values are in place."""
        return Progress(
            sweep=0,
            sweeps=self.run.plan.sweeps,
            slab=0,
            slabs=self.run.plan.schedule.slabs,
            updates_done=0,
            updates_total=self.run.plan.work.updates,
            seconds=seconds,
            read_bytes=filled.read_bytes,
            written_bytes=filled.written_bytes,
            wait_seconds=0.0,
            processor_seconds=processor_seconds,
            filling=True,
            filled=min(1.0, filled.written_bytes / max(1, self.run.plan.volume.fill_bytes)),
        )

    @property
    def results(self) -> Results:
        """What is left of fields."""
        return Results(self.run, self.seals)

    def place(self) -> dict[str, str]:
        """Put the results in place; their files by name."""
        return self.results.place((self.run.plan.schedule.states.count + self.parity) % 2)

    def place_observed(self) -> Noted:
        """Put what observers leave in place, on all ranks at once; what is noted of it."""
        return self.run.comm.share(self.observers.place(self.run.comm))[0]

    def told(self, fields: dict[str, str]) -> Told:
        """What there is to say of this process's part of a run, with its results in place."""
        run, results = self.run, self.results
        return Told(
            folder=run.folder.out.name,
            fields=fields,
            checksums=results.checksums(fields),
            seals=results.sealed,
            owned=run.owned,
            first=(self.manifest.first, self.manifest.first_row),
            planned=run.plan.to_dict(),
            parts=(*self.before.parts, self._part(run.last, Fraction(1), FINISHED)),
            warnings=tuple(self.account.filled.warnings),
            beyond=self.account.beyond(run.options.memory_bytes),
        )

    def carry(
        self,
        stores: dict[StoreKey, Store],
        kernel: AnyKernel,
        progress: Listener | None,
        stop: Stop,
    ) -> None:
        """Make all steps."""
        if self.before.steps_done >= 0:
            self.observers.go_on()
        watched = self.observers.attach(kernel)
        stores = self._packed(stores, progress)
        self.site = site = self._made_site(kernel, watched)
        hierarchy: Hierarchy[Any] = Hierarchy(
            site.window, self._streamed(stores), self.transfers, seal=self.seals.move
        )
        self.account.still = still = watched.still if isinstance(watched, Kernel) else None
        sparing = Sparing(still, site.window, self.transfers) if still is not None else None
        stop.listening = True
        try:
            hierarchy = replace(hierarchy, seams=self.files.seams())
            stream(
                self.run.plan,
                site.updates(self.run.plan, watched),
                reached(replace(hierarchy, sparing=sparing), site),
                Callbacks(
                    committed=self._commit,
                    progress=progress,
                    live=self.observers.progressed,
                    swept=self._swept(progress),
                    leaving=self.observers.looks_at_leaving(),
                    until=self if self.observers.somebody_tells else None,
                    arriving=self.observers.looks_at_arriving(),
                ),
                tally=self.account.tally,
                stop=stop,
                comm=self.run.comm,
            )
            begin = time.perf_counter()
            site.settle()
            self.account.tally.compute_seconds += time.perf_counter() - begin
            site.release()  # after an error, frames of its traceback may still look at it
            self._export(stores)
        except Stopped as stopped:
            raise self.ledger.stopped(str(stopped)) from None
        except NotFinite as fault:
            stop.listening = False
            where = self._where(fault, kernel, site, hierarchy)
            raise self.ledger.not_finite(where) from None
        finally:
            self.close()
            stop.listening = False

    def _made_site(self, kernel: AnyKernel, watched: AnyKernel) -> Site[Any]:
        """The window, and what of it lies on a device."""
        begin = time.perf_counter()
        site = watched.site(self.run.plan, self.files.ring, self.transfers)
        self.account.window_seconds = time.perf_counter() - begin
        self.account.device, self.account.copied = kernel.device_name, site.copied_bytes
        self.account.compiler = kernel.compiler
        self.files.fallbacks += kernel.notes
        return site

    def _streamed(self, stores: dict[StoreKey, Store]) -> dict[StoreKey, Store]:
        """The stores, with the planes that sweeps stream."""
        if not self.run.plan.in_rows_of_files:
            return stores
        return {key: TransposedStore(store, self.transfers) for key, store in stores.items()}

    def _packed(
        self, stores: dict[StoreKey, Store], progress: Listener | None
    ) -> dict[StoreKey, Store]:
        """The stores, of which the coefficients that the plan says are read packed."""
        plan = self.run.plan
        if not plan.packed or not plan.sweeps:
            return stores
        begin, found = time.perf_counter(), dict(stores)
        with doing(progress, f"packing {', '.join(plan.packed)}"):
            for level in plan.schedule.kept:
                if level.field not in plan.packed:
                    continue
                key = level.field, level.level, 0
                stores[key].hold(self.seals.level(level, 0))
                path = self.run.folder.working.packed(level)
                try:
                    found[key] = self.files.pack(stores[key], path)
                except StoreError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    self.files.fall_back("pack", f"{level.field} is not packed: {error}")
        self.account.packed(time.perf_counter() - begin)
        return found

    def _swept(self, progress: Listener | None) -> Listener | None:
        """Who hears of each sweep, with a reading; None where nobody wants to."""
        if not isinstance(progress, SweepListener) or self.run.comm.rank:
            return None
        pace = Pace()

        def swept(event: Progress) -> None:
            progress.swept(self.observers.swept(event, pace))

        return swept

    def seen(self, sweeps: int) -> bytes | None:
        """What this rank says of the end after so many sweeps, if that is looked at."""
        return self.observers.seen(sweeps)

    def ending(self, sweeps: int, seen: Sequence[bytes]) -> Plan | None:
        """The plan to end with if the run ends after so many sweeps."""
        why = self.observers.ending(sweeps, seen)
        if not why:
            return None
        self.run = self.run.ending(sweeps, why)
        self.account.end(self.run.problem, self.run.plan)
        self.observers.end(self.run)
        return self.run.plan

    def _export(self, stores: dict[StoreKey, Store]) -> None:
        """Leave what is no file in files, and say so: from here on they are there."""
        if self.manifest.exported:
            return
        begin, parity = time.perf_counter(), self.run.plan.schedule.states.count % 2
        self.parity = parity  # with which the last state is that of parity 0, as its copies are
        for (field, level), file in self.files.leaving.items():
            seal = self.seals.at(field, level, self.run.plan.sweeps)
            for store in (stores[field, level, parity], file):
                store.hold(seal)
            export(stores[field, level, parity], file, self.transfers)
            self.account.exported_bytes += self.run.problem.stored_bytes(field)
        self.account.export_seconds = time.perf_counter() - begin
        exported = msgspec.structs.replace(self.manifest, durable=True, exported=True)
        self.ledger.manifest = exported
        self._commit(Point(self.run.plan.schedule.states.count))

    def _commit(self, point: Point) -> None:
        """Say durably that everything up to ``point`` of this process's sweeps is there."""
        if self.site is not None:
            self.site.settle()
        self.files.check_unchanged(point.state)
        self.observers.check(point)
        if self.manifest.durable:
            self._keep(point)
        self.observers.committed(point)

    def _keep(self, point: Point) -> None:
        plan, sweeps = self.run.plan, self.run.plan.schedule.states.sweeps_until(point.state)
        steps = self.run.done + sum(plan.schedule.depths[:sweeps])
        part = self._part(steps, self.account.share(point), CUT_OFF)
        within = point.begun > point.state
        reached = Reached(
            sweeps, steps, plan.schedule.depths[sweeps] if within else 0, point.planes
        )
        self.ledger.write(
            self.observers.commit(reached, self.manifest),
            steps_done=steps,
            parity=(point.state + self.parity) % 2,
            depth=reached.depth,
            part=point.part,
            planes=point.planes,
            cut=plan.schedule.cut if within else (),
            parts=(*self.before.parts, part),
        )

    def close(self) -> None:
        """Let go of all files, after the transfers under way have ended."""
        (self.transfers if self.site is None else self.site).close()
        self.files.close()
        self.observers.close()

    def _where(
        self,
        fault: NotFinite,
        kernel: AnyKernel,
        site: Site[Any],
        hierarchy: Hierarchy[Any],
    ) -> str:
        """Where a value became NaN or infinite, in words: the sweep is repeated to find it."""
        run, plan = self.run, self.run.plan
        site.transfers.drain()
        if plan.schedule.places:
            # What is repeated writes to the seams that a restart within the sweep would read.
            self.ledger.give_up_sweep()
        # What other ranks left to this one in that sweep is gone.
        if any(seam.cut for seam in plan.schedule.seams):
            begin, end = (sum(plan.schedule.depths[: fault.sweep + more]) for more in (0, 1))
            return (
                f"a value became NaN or infinite in steps {run.done + begin + 1} to "
                f"{run.done + end}; a run with exchange = 'halos', or on one rank, finds the step"
            )
        first = first_of(
            fault,
            plan,
            lambda done: run.form_of(run.problem.after(done)),
            kernel,
            site,
            hierarchy,
            self.transfers,
            self.seals,
        )
        if first is not None:
            return first.words(self.run.done, self.manifest.problem["steps"])
        return (
            f"a value became NaN or infinite in sweep {fault.sweep}, but not when the sweep was "
            "repeated: the memory or a processor of this machine is faulty"
        )

    def _part(self, steps: int, share: Fraction, ended: str) -> Part:
        limit, fallbacks = self.run.options.memory_bytes, self.files.fallbacks
        return self.account.part(steps, share, ended, limit, fallbacks)


def open_transfers(chosen: Plan, options: RunOptions) -> Transfers:
    staging: dict[str, Any] = (
        {"staging_bytes": chosen.memory.transfer_bytes} if chosen.memory.transfer_bytes else {}
    )
    copied = chosen.store_tier in COPIED_TIERS
    transfers = Transfers(
        "threads" if copied else options.engine,
        depth=options.queue_depth,
        request_bytes=options.request_bytes,
        **staging,
    )
    wanted = {"io_uring", "aio", "threads"} & set(options.require)
    if wanted and transfers.engine not in wanted:
        taken = transfers.engine
        transfers.close()
        raise StoreError(
            f"the run requires {' or '.join(sorted(wanted))}, but the engine is {taken}; "
            + ("; ".join(transfers.refusals) or f"ask for it with engine = {sorted(wanted)[0]!r}")
        )
    return transfers
