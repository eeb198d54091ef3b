"""The road of the data: define, plan, build, execute, record. A reader starts here."""

from __future__ import annotations

import datetime
import os
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from outgrid.build.compiler import build, find_compiler
from outgrid.codegen.kernel import generate
from outgrid.config import RunOptions
from outgrid.errors import Stopped, StoreError, UsageError
from outgrid.execute.calibrate import calibrate, calibration_path, keep, known
from outgrid.execute.fill import Filled, fill
from outgrid.execute.kernel import Kernel
from outgrid.execute.lock import RunLock
from outgrid.execute.points import Points
from outgrid.execute.preview import PREVIEW_NAME, Preview
from outgrid.execute.space import check_space, reserve_results
from outgrid.execute.state import TRACES_NAME, Manifest, RunFolder
from outgrid.execute.stop import Stop, stop_in_time
from outgrid.execute.streaming import Progress, Tally, stream
from outgrid.execute.window import Window
from outgrid.machine import (
    Machine,
    peak_memory_bytes,
    reset_peak_memory,
)
from outgrid.plan.calibration import Calibration
from outgrid.plan.model import Arrival, Plan
from outgrid.plan.planner import Begin
from outgrid.plan.planner import plan as choose
from outgrid.probe.profile import known_machine
from outgrid.record import CUT_OFF, FINISHED, Measured, Part, Record, combine, write_record
from outgrid.stencil.problem import Problem
from outgrid.storage import Store, Transfers
from outgrid.storage.direct import DirectStore
from outgrid.storage.npy import check_npy
from outgrid.storage.sums import sums_digest
from outgrid.version import __version__

# Interpreter, libraries, kernel, thread stacks and tables beside the window. Measured at 55 to
# 70 MiB; what a run really took stands in its record.
FIXED_BYTES = 80 << 20
# A kernel is measured, in a window of at most so many bytes, before a run expected to take longer.
WORTH_CALIBRATING_SECONDS = 20.0
CALIBRATION_BYTES = 768 << 20

Observer = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Result:
    """A finished run: its record, and its fields as files that open lazily."""

    out: Path
    record: Record

    def path(self, field: str) -> Path:
        """The .npy file of a field. Raises UsageError for a name that the run did not leave."""
        if field not in self.record.fields:
            names = ", ".join(self.record.fields)
            raise UsageError(f"the run left no field {field!r}; it left {names}")
        return self.out / self.record.fields[field]

    @property
    def traces(self) -> np.ndarray:
        """What each receiver saw after each step: float64 of shape (steps, receivers)."""
        path = self.out / TRACES_NAME
        if not path.exists():
            raise UsageError(f"the run in {self.out} had no receivers")
        return np.load(path)

    def __getitem__(self, field: str) -> np.ndarray:
        """The field as a read-only array mapped from disk: slices are read when they are used."""
        return np.load(self.path(field), mmap_mode="r")


def plan(
    problem: Problem,
    options: RunOptions,
    machine: Machine | None = None,
    begin: Begin | None = None,
) -> Plan:
    """The plan that a run would follow, from what is known of the kernel's rate by now.

    Compiles and measures nothing; the first long run of a kernel measures it for later plans.
    """
    machine = machine or known_machine(_folder(options).scratch)
    path = _calibration_path(problem, options, machine)
    return choose(problem, options, machine, FIXED_BYTES, known(path), begin)


def _calibrated_plan(
    first: Plan,
    problem: Problem,
    options: RunOptions,
    machine: Machine,
    kernel: Kernel,
    begin: Begin | None = None,
) -> Plan:
    """The plan of a run that is about to start: a kernel that runs for long is measured first."""
    if first.predicted_seconds < WORTH_CALIBRATING_SECONDS:
        return first
    measured = calibration(problem, options, machine, kernel)
    if measured is None:
        return first
    return choose(problem, options, machine, FIXED_BYTES, measured, begin)


def calibration(
    problem: Problem,
    options: RunOptions,
    machine: Machine,
    kernel: Kernel,
    again: bool = False,
) -> Calibration | None:
    """What is known of the kernel's rates; measured now, and kept, where nothing is.

    ``again`` measures in any case. None where the memory limit leaves no room to measure.
    """
    path = _calibration_path(problem, options, machine)
    found = None if again else known(path)
    if found is None:
        room = min(CALIBRATION_BYTES, (options.memory_bytes - FIXED_BYTES) * 3 // 4)
        found = calibrate(problem, options, machine, kernel, room)
        if found is not None:
            keep(found, path)
    return found


def _calibration_path(problem: Problem, options: RunOptions, machine: Machine) -> Path:
    source = generate(problem.stencil, problem.dtype, problem.edges)
    threads = options.threads or machine.cores
    return calibration_path(problem, threads, source, f"{machine.cpu} {machine.compiler}")


def run(
    problem: Problem,
    options: RunOptions,
    progress: Observer | None = None,
    stop: Stop | None = None,
) -> Result:
    """Run a problem and leave its fields and its record in ``options.out``.

    Raises Stopped where ``stop`` or a limit of time ends the run early, and it can be resumed.
    """
    stop = stop or Stop()
    stop_in_time(stop, options.stop_after_seconds)
    folder = _folder(options)
    machine = known_machine(folder.scratch)
    chosen = plan(problem, options, machine)
    _check_inputs(problem)
    kernel = load_kernel(problem)
    chosen = _calibrated_plan(chosen, problem, options, machine, kernel)
    check_space(chosen, folder)
    with RunLock(folder.out):
        folder.check_free(chosen.arrivals)
        with _transfers(chosen, options) as transfers:
            execution = _Execution(problem, options, machine, chosen, folder, transfers)
            try:
                stores = execution.begin()
                execution.fill(stores)
            except BaseException:
                execution.close()
                folder.abandon(execution.manifest)
                raise
            return execution.sweep(stores, kernel, progress, stop)


def resume(
    out: Path,
    options: RunOptions,
    progress: Observer | None = None,
    stop: Stop | None = None,
) -> Result:
    """Go on with an unfinished run from its last durable state; see ``run``."""
    stop = stop or Stop()
    stop_in_time(stop, options.stop_after_seconds)
    RunFolder.of_manifest(out)
    with RunLock(out):
        folder, manifest = RunFolder.of_manifest(out)
        if manifest.steps_done < 0:
            raise UsageError(
                f"the run in {out} stopped before its initial values were complete; clear it with "
                f"outgrid clean {out} --delete and run it again"
            )
        machine = known_machine(folder.scratch)
        whole = Problem.from_dict(manifest.problem)
        rest = whole.after(manifest.steps_done)
        if rest.steps:
            folder.check_owner(manifest)
        begin = Begin(manifest.depth, manifest.planes) if manifest.planes else None
        chosen = plan(rest, options, machine, begin)
        kernel = load_kernel(rest)
        chosen = _calibrated_plan(chosen, rest, options, machine, kernel, begin)
        with _transfers(chosen, options) as transfers:
            if begin is not None and not chosen.begin_planes:
                # The sweep begins again, perhaps with another depth: what is there of it is void.
                manifest = msgspec.structs.replace(manifest, depth=0, planes=0)
                folder.write_manifest(manifest)
            execution = _Execution(rest, options, machine, chosen, folder, transfers, manifest)
            # With all steps made, results may be in place already.
            stores = execution.open_stores() if rest.steps else {}
            return execution.sweep(stores, kernel, progress, stop)


class _Execution:
    """One run from filled stores to a record."""

    def __init__(
        self,
        problem: Problem,
        options: RunOptions,
        machine: Machine,
        chosen: Plan,
        folder: RunFolder,
        transfers: Transfers,
        manifest: Manifest | None = None,
    ) -> None:
        self.problem = problem
        self.options, self.machine, self.plan = options, machine, chosen
        self.folder, self.transfers = folder, transfers
        self.manifest = manifest or Manifest(
            version=__version__,
            run=uuid.uuid4().hex,
            problem=problem.to_dict(),
            folder=folder.relative_scratch(),
            files=folder.working_names(chosen.arrivals),
            results=folder.result_names(chosen.arrivals),
            steps_done=-1,
            parity=0,
        )
        self.before = self.manifest  # where this process found the run
        self.parity = self.before.parity
        self.tally, self.filled = Tally(), Filled()
        self.fill_seconds = self.window_seconds = 0.0
        self.counted = transfers.statistics()
        self.started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self.fallbacks: list[str] = list(transfers.refusals)
        self.opened: list[DirectStore] = []
        self.preview: Preview | None = None
        self.points: Points | None = None
        self.earlier: np.ndarray | None = None  # seen in the steps before this process
        reset_peak_memory()

    def begin(self) -> dict[tuple[str, int, int], Store]:
        """Say what is going to be made, and make and reserve the files of all levels."""
        self.folder.create(self.manifest)
        reserve_results(self.plan, self.folder)
        stores = self._stores(
            lambda path: DirectStore.create(
                path, self.problem.shape, self.problem.dtype, self.transfers, sums=True
            )
        )
        if not all(store.reserved for store in self.opened):
            self.fallbacks.append("the file system cannot reserve space: the disk may fill up")
        return stores

    def open_stores(self) -> dict[tuple[str, int, int], Store]:
        """Open the files that an earlier run made."""
        return self._stores(self._open)

    def _open(self, path: Path) -> DirectStore:
        store = DirectStore.open(path, self.transfers, "rw", sums=True)
        if (store.shape, store.dtype) != (self.problem.shape, np.dtype(self.problem.dtype)):
            store.close()
            raise StoreError(
                f"a working file holds {store.dtype} of shape {store.shape}, the run needs "
                f"{self.problem.dtype} of shape {self.problem.shape}",
                path=path,
            )
        return store

    def _stores(self, opener: Callable[[Path], DirectStore]) -> dict[tuple[str, int, int], Store]:
        found: dict[tuple[str, int, int], Store] = {}
        for level in self.plan.arrivals:
            for state in (0, 1):
                if level.constant and state:
                    continue
                store = opener(self.folder.path(level, (state + self.parity) % 2))
                self.opened.append(store)
                found[level.field, level.level, state] = store
        if not all(store.direct for store in self.opened):
            self._fall_back("direct", "the file system refused O_DIRECT: the page cache is used")
        return found

    def _seams(self) -> dict[tuple[str, int], Store]:
        """Files for the seams of strips. A sweep begins without any, so old ones are of no use."""
        found: dict[tuple[str, int], Store] = {}
        for (field, ring), shape in self.plan.seams.items():
            path = self.folder.seam(field, ring)
            store = DirectStore.create(
                path, shape, self.problem.dtype, self.transfers, overwrite=True, sums=True
            )
            self.opened.append(store)
            found[field, ring] = store
        return found

    def _fall_back(self, wanted: str, what: str) -> None:
        if wanted in self.options.require:
            self.close()
            raise StoreError(f"{what}, but the run requires {wanted}", path=self.folder.scratch)
        self.fallbacks.append(what)

    def fill(self, stores: dict[tuple[str, int, int], Store]) -> None:
        """Bring in the initial values and commit state 0."""
        begin = time.perf_counter()
        if self.options.preview and self.plan.departures:
            path = self.folder.out / PREVIEW_NAME
            self.preview = Preview(self.plan, path, self.options.preview)

        def store_of(arrival: Arrival) -> Store:
            return stores[arrival.field, arrival.level, 0]

        seen = self.preview.initial if self.preview else None
        self.filled = fill(self.problem, self.plan.arrivals, store_of, self.transfers, seen)
        for store in {id(store): store for store in stores.values()}.values():
            store.flush()
        self.transfers.drain()
        self.fill_seconds = time.perf_counter() - begin
        self.counted = self.transfers.statistics()
        self._commit(0, self.plan.planes)

    def sweep(
        self,
        stores: dict[tuple[str, int, int], Store],
        kernel: Kernel,
        progress: Observer | None,
        stop: Stop,
    ) -> Result:
        """Carry the grid through all sweeps, put the results in place and write the record."""
        self.points = kernel.points
        if kernel.points is not None and self.problem.receivers:
            seen = self.folder.read_samples()
            if seen is not None:
                done = max(0, self.before.steps_done)
                self.earlier = seen[:done]
                kernel.points.samples[...] = seen[done:]
        begin = time.perf_counter()
        window = Window(self.plan, partial(kernel.touch, self.plan))
        self.window_seconds = time.perf_counter() - begin
        leaving = self.preview.leaving if self.preview else None
        stop.listening = True
        try:
            stream(
                self.plan,
                kernel,
                window,
                stores,
                self.transfers,
                self._commit,
                progress,
                leaving,
                tally=self.tally,
                stop=stop,
                seams=self._seams(),
            )
        except Stopped as stopped:
            raise self._stopped(str(stopped)) from None
        finally:
            self.close()
            stop.listening = False
        window.release()  # after an error, frames of its traceback may still look at the window
        parity = (len(self.plan.kept) + self.parity) % 2
        if self.points is not None and self.problem.receivers:
            seen = self._samples(self.points)
            self.folder.place_traces(seen @ self.points.weights)
        fields = self.folder.place_results(self.plan.arrivals, parity)
        record = self._record(fields)
        write_record(record, self.folder.out)
        self.folder.abandon(self.manifest)
        return Result(self.folder.out, record)

    def _commit(self, state: int, planes: int) -> None:
        """Say durably that ``planes`` planes of ``state`` of this process's sweeps are there."""
        whole = state if planes == self.plan.planes else state - 1
        sweeps = self.plan.sweeps_until(whole)
        steps = max(0, self.before.steps_done) + sum(self.plan.depths[:sweeps])
        part = self._part(steps, self._share(state, planes), CUT_OFF)
        self._keep_samples()
        self.manifest = msgspec.structs.replace(
            self.manifest,
            steps_done=steps,
            parity=(whole + self.parity) % 2,
            depth=0 if whole == state else self.plan.depths[sweeps],
            planes=0 if whole == state else planes,
            parts=(*self.before.parts, part),
        )
        self.folder.write_manifest(self.manifest)

    def _share(self, state: int, planes: int) -> Fraction:
        """The share of this process's steps that is made where so much of ``state`` is there."""
        plan = self.plan
        if not self.problem.steps:
            return Fraction(1)

        def steps(state: int, planes: int) -> Fraction:
            last = plan.sweeps_until(state)
            left = Fraction(plan.planes - planes, plan.planes)
            return Fraction(sum(plan.depths[:last])) - left * sum(plan.depths[last - 1 : last])

        begun = self._begun()
        return (steps(state, planes) / self.problem.steps - begun) / (1 - begun)

    def _begun(self) -> Fraction:
        """The share of the steps from ``steps_done`` on that was made before this process began."""
        if not self.plan.begin_planes:
            return Fraction(0)
        first = Fraction(self.plan.begin_planes, self.plan.planes) * self.plan.depths[0]
        return first / self.problem.steps

    def _samples(self, points: Points) -> np.ndarray:
        """What was seen in all steps of the run; rows of steps to come are 0."""
        return points.samples if self.earlier is None else np.vstack([self.earlier, points.samples])

    def _keep_samples(self) -> None:
        """Write what receivers saw so far, for a resume to go on with.

        A resume in mid-sweep does not come by the planes that were durable, so what was seen
        there in steps that are not complete is kept as well.
        """
        if self.points is not None and self.problem.receivers:
            self.folder.write_samples(self._samples(self.points))

    def close(self) -> None:
        """Let go of all files, after the transfers under way have ended."""
        self.transfers.close()
        for store in self.opened:
            store.close()

    def _stopped(self, how: str) -> Stopped:
        """Note in the manifest how this part ended, and say how to go on."""
        if len(self.manifest.parts) > len(self.before.parts):
            last = msgspec.structs.replace(self.manifest.parts[-1], ended=how)
            parts = (*self.manifest.parts[:-1], last)
            self.manifest = msgspec.structs.replace(self.manifest, parts=parts)
            self.folder.write_manifest(self.manifest)
        steps, whole = self.manifest.steps_done, self.manifest.problem["steps"]
        within = ""
        if self.manifest.planes:
            within = f" and {self.manifest.planes} of {self.plan.planes} planes of the next sweep"
        return Stopped(
            f"{how}; {steps} of {whole} steps{within} are durable and outgrid resume "
            f"{self.folder.out} continues"
        )

    def _part(self, steps: int, share: Fraction, ended: str) -> Part:
        """What this process did up to step ``steps``, a ``share`` of what there was to do."""
        statistics, before = self.transfers.statistics(), self.counted
        moved = self.plan.read_bytes + self.plan.written_bytes
        first = max(0, self.before.steps_done)
        begun = self._begun()
        updates = int(self.problem.updates * (1 - begun) * share)
        if share == 1:  # what earlier parts have rounded off
            whole = Problem.from_dict(self.manifest.problem).updates
            updates = whole - sum(part.measured.updates for part in self.before.parts)
        measured = Measured(
            seconds=self.tally.seconds,
            compute_seconds=self.tally.compute_seconds,
            wait_seconds=self.tally.wait_seconds,
            fill_seconds=self.fill_seconds,
            window_seconds=self.window_seconds,
            checksum_seconds=statistics.sum_seconds - before.sum_seconds,
            read_bytes=statistics.read_bytes - before.read_bytes,
            written_bytes=statistics.written_bytes - before.written_bytes,
            fill_read_bytes=self.filled.read_bytes,
            fill_written_bytes=self.filled.written_bytes,
            ideal_bytes=int(moved * share),
            buffered_bytes=statistics.buffered_bytes - before.buffered_bytes,
            updates=updates,
            flops=updates * self.problem.stencil.flops,
            peak_memory_bytes=peak_memory_bytes(),
            memory_limit_bytes=self.options.memory_bytes,
            engine=self.transfers.engine,
            fallbacks=tuple(self.fallbacks),
        )
        return Part(
            started=self.started,
            host=socket.gethostname(),
            pid=os.getpid(),
            first_step=first,
            last_step=steps,
            ended=ended,
            measured=measured,
        )

    def _record(self, fields: dict[str, str]) -> Record:
        steps = max(0, self.before.steps_done) + self.problem.steps
        parts = (*self.before.parts, self._part(steps, Fraction(1), FINISHED))
        return Record(
            version=__version__,
            started=parts[0].started,
            problem=self.manifest.problem,
            plan=self.plan.to_dict(),
            machine=self.machine.to_dict(),
            measured=combine(parts),
            fields=fields,
            preview=PREVIEW_NAME if self.preview else None,
            warnings=self.filled.warnings,
            parts=parts,
            checksums={name: sums_digest(self.folder.out / file) for name, file in fields.items()},
        )


def load_kernel(problem: Problem) -> Kernel:
    """The compiled kernel of a problem with its parameters; from the cache if it is there."""
    library = build(generate(problem.stencil, problem.dtype, problem.edges), find_compiler())
    return Kernel(library, problem.parameter_table(), Points.of(problem))


def _folder(options: RunOptions) -> RunFolder:
    out = options.out or Path("outgrid.run")
    return RunFolder(out, options.scratch or out / "scratch")


def _transfers(chosen: Plan, options: RunOptions) -> Transfers:
    staging: dict[str, Any] = (
        {"staging_bytes": chosen.transfer_bytes} if chosen.transfer_bytes else {}
    )
    transfers = Transfers(
        options.engine, depth=options.queue_depth, request_bytes=options.request_bytes, **staging
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


def _check_inputs(problem: Problem) -> None:
    """Compare the header of every input file, before anything is written."""
    for name, source in problem.initial.items():
        if isinstance(source, Path):
            try:
                check_npy(source, problem.dtype, problem.shape)
            except StoreError as error:
                raise UsageError(f"the initial values of {name!r}: {error}") from error
