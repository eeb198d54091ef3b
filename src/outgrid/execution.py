"""One run: its files, its sweeps, what is durable of it, and its record."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial, reduce
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from outgrid.comm import Comm, Serial
from outgrid.config import RunOptions
from outgrid.durable import partial_path
from outgrid.errors import ExecutionError, Stopped, StoreError
from outgrid.execute.account import Account
from outgrid.execute.device import DeviceKernel
from outgrid.execute.files import Files
from outgrid.execute.fill import Filled, fill
from outgrid.execute.kernel import Kernel
from outgrid.execute.origin import first_of
from outgrid.execute.site import Site
from outgrid.execute.stop import Stop
from outgrid.execute.streaming import (
    PROGRESS_SECONDS,
    Observer,
    Progress,
    StoreKey,
    doing,
    stream,
)
from outgrid.machine import Machine
from outgrid.observe.preview import PREVIEW_NAME, Preview
from outgrid.observe.reductions import CELLS, Table, added, numbers, totals_of
from outgrid.observe.snapshots import Snapshots, place, reserve
from outgrid.observe.totals import Totals
from outgrid.observe.watch import NotFinite, Watch
from outgrid.plan.ending import ended
from outgrid.plan.instruction import Point
from outgrid.plan.model import Plan
from outgrid.plan.schedule.rings import Arrival
from outgrid.plan.schedule.seam import SeamKey
from outgrid.plan.schedule.subgrid import Box
from outgrid.purposes import COPIED_TIERS
from outgrid.record import CUT_OFF, FINISHED, Part, Record, combine, compilers_of, write_record
from outgrid.remote.borrowed import Borrowed
from outgrid.result import Result
from outgrid.runs.frames import frames_of, snapshot_files, sums_within
from outgrid.runs.places import describe
from outgrid.runs.seals import Seals, level_name
from outgrid.runs.space import reserve_results
from outgrid.runs.state import Manifest, RunFolder, at_start_of_sweep, how_far
from outgrid.runs.verify import read_back
from outgrid.seal import Seal
from outgrid.stencil.problem import Problem
from outgrid.storage import Joined, Store, Transfers
from outgrid.storage.export import export
from outgrid.storage.sums import sums_digest
from outgrid.version import __version__

__all__ = ["Execution", "open_transfers"]


class Execution:
    """One run, or what one of its ranks does, from filled stores to a record.

    ``done`` are steps made before the first state of this process; ``ended`` says why no others
    are to be made, where the run has come to its end early. ``kept`` are the options that a resume
    goes by.
    """

    def __init__(
        self,
        problem: Problem,
        options: RunOptions,
        machine: Machine,
        chosen: Plan,
        folder: RunFolder,
        transfers: Transfers,
        manifest: Manifest | None = None,
        comm: Comm | None = None,
        done: int | None = None,
        whole: Problem | None = None,
        remote: Borrowed | None = None,
        ended: str = "",
        kept: dict[str, Any] | None = None,
    ) -> None:
        self.problem, self.comm = problem, comm or Serial()
        self.options, self.machine, self.plan = options, machine, chosen
        self.folder, self.transfers = folder, transfers
        self.manifest = manifest or Manifest(
            version=__version__,
            run=uuid.uuid4().hex,
            problem=(whole or problem).to_dict(),
            folder=folder.relative_scratch(),
            files=folder.working_names(
                chosen.schedule.arrivals, chosen.schedule.places, chosen.schedule.stored_apart
            ),
            results=(
                *folder.result_names(chosen.schedule.arrivals),
                # Ranks share the snapshots of the run; each has sums of its own part.
                *snapshot_files(problem)[
                    0 if chosen.schedule.subgrid is None else len(problem.snapshots) :
                ],
                *((PREVIEW_NAME,) if options.preview else ()),
            ),
            steps_done=-1,
            parity=0,
            sealed=True,
            durable=chosen.outlives,
            exported=chosen.outlives and folder.spread is None,
            spread=folder.spread,
            first=chosen.schedule.stored.planes.start,
            first_row=chosen.schedule.owned_rows.start,
        )
        self.manifest = msgspec.structs.replace(
            self.manifest, options=kept or options.kept(self.out), tier=chosen.tier
        )
        self.remote = remote
        if remote is not None:
            remote.take(chosen)
        self.before = self.manifest  # where this process found the run
        self.parity = self.before.parity
        self.done = max(0, self.before.steps_done) if done is None else done
        self.seals = Seals.of(self.manifest.identity, chosen, self.done)
        self.files = Files(folder, chosen, options, transfers, self.seals, remote)
        self.account = Account(problem, chosen, transfers, self.before, self.done)
        self.preview: Preview | None = None
        self.kernel: Kernel | DeviceKernel | None = None
        self.site: Site[Any] | None = None
        self.finite = self.before.finite
        self.watch: Watch | None = None
        self.snapshots: Snapshots | None = None
        self.totals: Totals | None = None  # of one of several ranks
        self.earlier: np.ndarray | None = None  # seen in the steps before this process
        self.ended = ended or self.before.ended
        mine = Box(chosen.schedule.owned, chosen.schedule.owned_rows)
        made = Problem.from_dict(self.manifest.problem)
        self.frames = frames_of(self.out, folder.out, self.manifest, mine, made)

    def begin(self) -> dict[StoreKey, Store]:
        """Say what is going to be made, and make and reserve the files of all levels."""
        self.folder.create(self.manifest)
        reserve_results(self.plan, self.folder)
        if self.plan.schedule.subgrid is None:  # ranks share those of the run
            reserve(self.folder.out, self.problem)
        for frames in self.frames:
            frames.create()
        return self.files.make(self.parity, self.manifest.exported)

    def open_stores(self) -> dict[StoreKey, Store]:
        """Open the files that an earlier run made."""
        self.files.remove_seams(self.manifest.files)
        return self.files.open(self.parity, self.manifest.exported)

    def keep_samples(self, samples: np.ndarray) -> None:
        """Begin with what receivers have seen in the steps before this process."""
        self.manifest = self.folder.write_samples(self.manifest, samples)

    def fill(
        self,
        stores: dict[StoreKey, Store],
        progress: Observer | None,
        given: dict[str, Joined] | None = None,
    ) -> None:
        """Bring in the initial values, or those ``given`` in files, and commit state 0."""
        begin = reported = time.perf_counter()
        if self.options.preview and self.plan.schedule.departures:
            path = partial_path(self.folder.out / PREVIEW_NAME)
            self.preview = Preview(self.plan, path, self.options.preview)

        def store_of(arrival: Arrival) -> Store:
            store = stores[arrival.field, arrival.level, 0]
            store.hold(self.seals.level(arrival, 0))
            return store

        def told(filled: Filled) -> None:
            nonlocal reported
            now = time.perf_counter()
            if progress is not None and now - reported > PROGRESS_SECONDS:
                reported = now
                progress(self._filling(filled, now - begin))

        seen = self.preview.initial if self.preview else None
        held = self.plan.schedule.held(self.plan.depth)
        filled = fill(
            self.problem,
            self.plan.schedule.arrivals,
            store_of,
            self.transfers,
            seen,
            held,
            given,
            told,
            memory_bytes=self.plan.memory.window_bytes,  # which is made when this has ended
        )
        for store in {id(store): store for store in stores.values()}.values():
            store.flush()
        self.transfers.drain()
        self.finite = all(self.comm.share(filled.finite))
        self.account.fill_ended(filled, time.perf_counter() - begin)
        self._commit(Point(0))

    def _filling(self, filled: Filled, seconds: float) -> Progress:
        """How far the initial values are in place."""
        return Progress(
            sweep=0,
            sweeps=self.plan.sweeps,
            slab=0,
            slabs=self.plan.schedule.slabs,
            updates_done=0,
            updates_total=self.plan.work.updates,
            seconds=seconds,
            read_bytes=filled.read_bytes,
            written_bytes=filled.written_bytes,
            wait_seconds=0.0,
            filled=min(1.0, filled.written_bytes / max(1, self.plan.volume.fill_bytes)),
        )

    def sweep(
        self,
        stores: dict[StoreKey, Store],
        kernel: Kernel | DeviceKernel,
        progress: Observer | None,
        stop: Stop,
    ) -> Result:
        """Carry the grid through all sweeps, put the results in place and write the record."""
        self.carry(stores, kernel, progress, stop)
        self._place_observed()
        with doing(progress, "putting the results in place"):
            place(self.folder.out, self.whole)
            for frames in self.frames:
                frames.place(self.done + self.problem.steps)
            if self.preview is not None:
                self.preview.place(self.folder.out / PREVIEW_NAME)
            fields = self.place()
        record = self._record(fields)
        write_record(record, self.folder.out)
        self.folder.abandon(self.manifest)
        return Result(self.folder.out, record)

    def place(self) -> dict[str, str]:
        """Put the results in place; their files by name."""
        parity = (self.plan.schedule.states + self.parity) % 2
        fields = self.folder.place_results(self.plan.schedule.arrivals, parity)
        if self._took_over:
            self._read_back()
        return fields

    @property
    def _took_over(self) -> bool:
        """Whether results, or planes of them, are of an earlier process and were not read since."""
        before = self.before
        begun = self.plan.schedule.begin.begun > 0 and self.plan.sweeps == 1
        return before.exported and before.steps_done >= 0 and (begun or not self.problem.steps)

    def _read_back(self) -> None:
        """Compare the results with their checksums. Raises StoreError where they differ."""
        mine = Box(self.plan.schedule.owned, self.plan.schedule.owned_rows)
        mine = mine.counted_from(self.manifest.first, self.manifest.first_row)
        for level in self._results:
            seal = self.seals.level(level, self.plan.sweeps)
            errors = read_back(self.folder.result(level), seal, mine)
            if errors:
                raise errors[0]

    def sealed(self) -> dict[str, Seal]:
        """What the checksums of each result are of, by name."""
        seals = self.seals
        return {level_name(level): seals.level(level, self.plan.sweeps) for level in self._results}

    @property
    def _results(self) -> Iterator[Arrival]:
        return (level for level in self.plan.schedule.arrivals if not level.constant)

    def carry(
        self,
        stores: dict[StoreKey, Store],
        kernel: Kernel | DeviceKernel,
        progress: Observer | None,
        stop: Stop,
    ) -> None:
        """Make all steps."""
        if self.before.steps_done >= 0:
            for frames in self.frames:
                frames.check(self.done, self.before.depth, self.before.planes)
        if self.problem.snapshots and self.problem.steps:
            self.snapshots = Snapshots.open(self.out, self.whole, self.done)
            kernel = replace(kernel, snapshots=self.snapshots)
        self.kernel = kernel
        if kernel.reductions is not None and self.plan.schedule.subgrid is not None:
            path, run = self.folder.totals(self.manifest)
            self.totals = Totals(path, run, kernel.reductions.kinds)
            kernel.reductions.keep = self._keep_totals
        seen = self.folder.read_samples(self.manifest) if self._observes else None
        if seen is not None:
            self.earlier = seen[: self.done]
            rest = seen[self.done : self.done + self.problem.steps]
            for table, first in self._tables:
                table[...] = rest[:, first : first + table.shape[1]]
        begin = time.perf_counter()
        self.site = site = self._place(kernel)
        self.account.window_seconds = time.perf_counter() - begin
        self.account.device, self.account.copied = kernel.device_name, site.copied_bytes
        self.account.compiler = kernel.compiler
        self.files.fallbacks += kernel.notes
        self.finite = self.finite and self.options.watch
        until = self.problem.until
        self.watch = Watch(self.plan, self._names, until=until) if self.finite else None
        seams: dict[SeamKey, Store] = {}
        leaving = self.preview.leaving if self.preview else None
        stop.listening = True
        try:
            seams = self.files.seams()
            stream(
                self.plan,
                site.updates(self.plan, replace(kernel, watch=self.watch)),
                site.window,
                site.reach(stores),
                site.transfers,
                self._commit,
                progress,
                leaving,
                tally=self.account.tally,
                stop=stop,
                seams=site.reach(seams),
                comm=self.comm,
                until=self if until is not None else None,
                seal=self.seals.move,
            )
            site.settle()
            site.release()  # after an error, frames of its traceback may still look at it
            self._export(stores)
            if self.snapshots is not None:
                self.snapshots.sync()
        except Stopped as stopped:
            raise self._stopped(str(stopped)) from None
        except NotFinite as found:
            stop.listening = False
            kernel = replace(kernel, snapshots=None)  # what is repeated is only looked at
            raise self._not_finite(self._where(found, kernel, site, stores, seams)) from None
        finally:
            self.close()
            stop.listening = False

    @property
    def whole(self) -> Problem:
        """All steps that the run makes, those of processes before this one included."""
        whole = Problem.from_dict(self.manifest.problem)
        return whole.ending(self.done + self.problem.steps) if self.ended else whole

    def seen(self, sweeps: int) -> bytes | None:
        """What the run may end by after so many sweeps, as far as this rank has added it up."""
        until, steps = self.problem.until, sum(self.plan.schedule.depths[:sweeps])
        if until is None or not until.looks(steps):
            return None
        return self._total(sweeps, self.done + steps).tobytes()

    def ending(self, sweeps: int, seen: Sequence[bytes]) -> Plan | None:
        """The plan to end with if the run ends after so many sweeps."""
        until, steps = self.problem.until, sum(self.plan.schedule.depths[:sweeps])
        if until is None:
            return None
        kinds = (self._reduction[1],)
        totals = [np.frombuffer(each, np.int64).reshape(1, 1, CELLS) for each in seen]
        value = float(numbers(kinds, reduce(partial(added, kinds), totals))[0, 0])
        if not until.holds(value):
            return None
        self.ended = until.words(self.done + steps, value)
        self.problem = self.problem.ending(steps)
        self.plan = ended(self.plan, self.problem, sweeps)
        self.account.end(self.problem, self.plan)
        for observer in (self.watch, self.preview):
            if observer is not None:
                observer.end(self.plan)
        return self.plan

    @property
    def _reduction(self) -> tuple[int, str]:
        """Which reduction, from the last one, the run may end by, and its kind."""
        until, reductions = self.problem.until, self.problem.stencil.reductions
        name = until.reduction if until is not None else ""
        number = [each.name for each in reductions].index(name)
        return number - len(reductions), reductions[number].kind

    def _total(self, sweeps: int, step: int) -> Table:
        """The total of that reduction in a step of the run, once so many sweeps are computed."""
        if self.kernel is not None and self.kernel.reductions is not None:
            self.kernel.reductions.settle(sweeps)
        column, kind = self._reduction
        if self.totals is not None:
            return self.totals.read(range(step - 1, step))[:, [column]]
        return totals_of((kind,), self.observed()[step - 1 : step, [column]])

    def how_it_ended(self, reductions: np.ndarray) -> str:
        """What was seen last of a condition to end by, early or after all steps.

        ``reductions`` has a row for each step of the run.
        """
        until, steps = self.whole.until, self.done + self.problem.steps
        if self.ended or until is None or steps < until.begin:
            return self.ended
        last = steps - (steps - until.begin) % until.every
        return until.words(last, reductions[last - 1, self._reduction[0]])

    def _place(self, kernel: Kernel | DeviceKernel) -> Site[Any]:
        """Where the kernel updates planes."""
        return kernel.site(self.plan, self.files.ring, self.transfers)

    def _export(self, stores: dict[StoreKey, Store]) -> None:
        """Leave what is no file in files, and say so: from here on they are there."""
        if self.manifest.exported:
            return
        begin, parity = time.perf_counter(), self.plan.schedule.states % 2
        self.parity = parity  # with which the last state is that of parity 0, as its copies are
        for (field, level), file in self.files.leaving.items():
            seal = self.seals.at(field, level, self.plan.sweeps)
            for store in (stores[field, level, parity], file):
                store.hold(seal)
            export(stores[field, level, parity], file, self.transfers)
            self.account.exported_bytes += self.problem.stored_bytes(field)
        self.account.export_seconds = time.perf_counter() - begin
        self.manifest = msgspec.structs.replace(self.manifest, durable=True, exported=True)
        self._commit(Point(self.plan.schedule.states))

    def _commit(self, point: Point) -> None:
        """Say durably that everything up to ``point`` of this process's sweeps is there."""
        if self.site is not None:
            self.site.settle()
        if self.watch is not None:
            self.watch.check(point.begun)
        if self.manifest.durable:
            self._keep(point)
        if self.watch is not None:
            self.watch.kept(point.state)

    def _keep(self, point: Point) -> None:
        sweeps = self.plan.schedule.sweeps_until(point.state)
        steps = self.done + sum(self.plan.schedule.depths[:sweeps])
        part = self._part(steps, self.account.share(point), CUT_OFF)
        within = point.begun > point.state
        self._keep_samples(sweeps)
        if self.snapshots is not None:
            self.snapshots.sync()
        depth = self.plan.schedule.depths[sweeps] if within else 0
        told = within and sums_within(self.whole, steps, depth, self.plan.schedule.cut)
        for frames in self.frames:
            frames.settle(steps, depth, point.planes if told else 0)
        self.manifest = msgspec.structs.replace(
            self.manifest,
            steps_done=steps,
            parity=(point.state + self.parity) % 2,
            depth=depth,
            part=point.part,
            planes=point.planes,
            cut=self.plan.schedule.cut if within else (),
            parts=(*self.before.parts, part),
            finite=self.finite,
            ended=self.ended if point.state == self.plan.schedule.states else "",
        )
        self.folder.write_manifest(self.manifest)

    @property
    def _observes(self) -> bool:
        """Whether steps leave anything beside fields: traces, or reductions of the whole grid."""
        reduces = self.problem.stencil.reductions and self.plan.schedule.subgrid is None
        return bool(self.problem.receivers or reduces)

    @property
    def _tables(self) -> list[tuple[np.ndarray, int]]:
        """What is seen in each step of this process, and the column of all that it begins with."""
        kernel, found = self.kernel, list[tuple[np.ndarray, int]]()
        if kernel is not None and kernel.points is not None:
            found.append((kernel.points.samples, 0))
        if kernel is not None and kernel.reductions is not None and self.totals is None:
            found.append((kernel.reductions.values, sum(table.shape[1] for table, _ in found)))
        return found

    def observed(self) -> np.ndarray:
        """What was seen in all steps of the run; rows of steps to come are 0."""
        seen = np.hstack([table for table, _ in self._tables])
        return seen if self.earlier is None else np.vstack([self.earlier, seen])

    def _keep_samples(self, sweeps: int) -> None:
        """Write what was seen so far, for a resume to go on with; ``sweeps`` are complete.

        A resume in mid-sweep does not come by the planes that were durable, so what receivers saw
        there in steps that are not complete is kept as well.
        """
        if self.kernel is not None and self.kernel.reductions is not None:
            self.kernel.reductions.settle(sweeps)
        if self.totals is not None:
            self.totals.sync()
        if self.kernel is not None and self._observes:
            self.manifest = self.folder.write_samples(self.manifest, self.observed())

    def _keep_totals(self, done: int, table: Table) -> None:
        """Write the totals of a sweep that begins after ``done`` steps of this process."""
        if self.totals is not None:
            self.totals.write(self.done + done, table)

    def _place_observed(self) -> None:
        """Leave traces and reductions in files of their own."""
        if self.kernel is None or not self._observes:
            return
        if self.kernel.reductions is not None:
            self.kernel.reductions.settle(self.plan.sweeps)
        seen, points = self.observed()[: self.done + self.problem.steps], self.kernel.points
        if points is not None and self.problem.receivers:
            self.folder.place_traces(seen[:, : len(points.sampled)] @ points.weights)
        names = [each.name for each in self.problem.stencil.reductions]
        if names:
            self.folder.place_reductions(names, seen[:, -len(names) :])

    def close(self) -> None:
        """Let go of all files, after the transfers under way have ended."""
        (self.transfers if self.site is None else self.site).close()
        self.files.close()
        for each in (self.snapshots, self.totals):
            if each is not None:
                each.close()

    def _note_end(self, how: str) -> bool:
        """Note in the manifest how this process ended; False where nothing is left of the run."""
        if not self.manifest.durable:
            self.folder.abandon(self.manifest)
            return False
        if len(self.manifest.parts) > len(self.before.parts):
            last = msgspec.structs.replace(self.manifest.parts[-1], ended=how)
            parts = (*self.manifest.parts[:-1], last)
            self.manifest = msgspec.structs.replace(self.manifest, parts=parts)
            self.folder.write_manifest(self.manifest)
        return True

    def _nothing_left(self, how: str) -> ExecutionError:
        return ExecutionError(f"{how}; on tier {self.plan.tier} nothing of the run is left")

    def _stopped(self, how: str) -> Stopped | ExecutionError:
        """How the run was stopped, and how to go on."""
        if not self._note_end(how):
            return self._nothing_left(how)
        lent = self.options.tier == "remote"
        where = " in one process on tier direct, under mpiexec in lent memory" if lent else ""
        kept = self._what_is_durable
        return Stopped(f"{how}; {kept}; outgrid resume {self.out} continues{where}", kept)

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.problem.stencil.fields)

    @property
    def out(self) -> Path:
        """The folder of the run; that of one of several ranks lies in it."""
        whole = self.options.out if self.plan.schedule.subgrid is not None else None
        return whole or self.folder.out

    @property
    def _what_is_durable(self) -> str:
        parts = self.plan.schedule.parts(self.manifest.depth) if self.manifest.depth else 0
        return how_far(self.manifest, parts)

    def _not_finite(self, how: str) -> ExecutionError:
        """What is left of a run that was ended by a value, and how to go on regardless."""
        if not self._note_end(how):
            return self._nothing_left(how)
        return ExecutionError(
            f"{how}; {self._what_is_durable}, all of them finite, in {self.folder.scratch}; "
            f"outgrid resume {self.out} --set watch=false goes on regardless"
        )

    def _where(
        self,
        found: NotFinite,
        kernel: Kernel | DeviceKernel,
        site: Site[Any],
        stores: dict[StoreKey, Store],
        seams: dict[SeamKey, Store],
    ) -> str:
        """Where a value became NaN or infinite, in words: the sweep is repeated to find it."""
        site.transfers.drain()
        if self.plan.schedule.places and (self.manifest.part or self.manifest.planes):
            # What is repeated writes to the seams that a restart within the sweep would read.
            self.manifest = at_start_of_sweep(self.manifest)
            self.folder.write_manifest(self.manifest)
        # What other ranks left to this one in that sweep is gone.
        if any(each.cut for each in self.plan.schedule.seams):
            begin, end = (sum(self.plan.schedule.depths[: found.sweep + each]) for each in (0, 1))
            return (
                f"a value became NaN or infinite in steps {self.done + begin + 1} to "
                f"{self.done + end}; a run with exchange = 'halos', or on one rank, finds the step"
            )
        first = first_of(
            found, self.plan, self.problem, kernel, site, stores, seams, self.transfers, self.seals
        )
        if first is not None:
            return first.words(self.done, self.manifest.problem["steps"])
        return (
            f"a value became NaN or infinite in sweep {found.sweep}, but not when that was "
            "repeated: memory or processor of this machine are at fault"
        )

    def _part(self, steps: int, share: Fraction, ended: str) -> Part:
        limit, fallbacks = self.options.memory_bytes, self.files.fallbacks
        return self.account.part(steps, share, ended, limit, fallbacks)

    def parts(self) -> tuple[Part, ...]:
        """What all processes did for the run, this one included, at its end."""
        steps = self.done + self.problem.steps
        return (*self.before.parts, self._part(steps, Fraction(1), FINISHED))

    def _record(self, fields: dict[str, str]) -> Record:
        parts, seals = self.parts(), self.sealed()
        return Record(
            version=__version__,
            started=parts[0].started,
            problem=self.manifest.problem,
            plan=self.plan.to_dict(),
            machine=self.machine.to_dict(),
            measured=combine(parts),
            fields=fields,
            preview=PREVIEW_NAME if self.preview else None,
            warnings=(
                *self.account.filled.warnings,
                *self.account.beyond(self.options.memory_bytes),
                *compilers_of(part.compiler for part in parts),
            ),
            parts=parts,
            ended=self.how_it_ended(self.observed()) if self._observes else "",
            spread=describe(self.folder.spread) if self.folder.spread is not None else "",
            checksums={
                **{
                    name: sums_digest(self.folder.out / file, seals[name])
                    for name, file in fields.items()
                },
                **{frames.out.stem: frames.digest(parts[-1].last_step) for frames in self.frames},
            },
            seals=seals | {frames.out.stem: frames.seal for frames in self.frames},
        )


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
