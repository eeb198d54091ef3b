"""YASK (Intel's Yet Another Stencil Kit) on those of its stencils that are ones of ours.

It is not downloaded and not built here: a folder is named in which it was. It fills its own grid,
so answers are not compared; what it computes is known from what it says of itself.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from outgrid import Problem
from outgrid.probe.profile import known_machine
from outgrid_bench.measure import in_memory, out_of_core, update_rate
from outgrid_bench.peers.compare import PeerRow
from outgrid_bench.workloads import Workload, choose

__all__ = ["SOLUTIONS", "VARIABLE", "Solution", "cube_workload", "measure_yask"]

VARIABLE = "OUTGRID_YASK"  # in the environment: the folder of a built YASK
RATE = re.compile(r"mid-throughput \(num-points/sec\):\s*([\d.]+)([KMGT]?)")
THREADS = re.compile(r"Num outer threads:\s*(\d+)")
REAL_BYTES = re.compile(r"element-size:\s*(\d+)")
VERSION = re.compile(r"^Version: (\S+)", re.MULTILINE)
COMPILER = re.compile(r"^YK_CXXVER=(.+?)(?: Copyright.*| Target:.*)?$", re.MULTILINE)
FOUND = re.compile(r"auto-tuner: (micro-)?block-size:\s*(?:t=\d+ \* )?(.+)")
PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
STEPS = 48
ROUNDS = 3
SECONDS = 900.0  # for one of its runs


@dataclass(frozen=True, slots=True)
class Solution:
    """A stencil of YASK, by its name and radius there, in values of ``real_bytes``.

    Tiles are the best of those that were tried by hand on 512 cells along each axis:
    ``steps_at_once`` steps in ``parts`` of cells that stay in the second cache.
    """

    name: str
    radius: int
    real_bytes: int
    steps_at_once: int
    parts: tuple[int, int, int]

    @property
    def built_by(self) -> str:
        """The command that builds it."""
        return f"make stencil={self.name} radius={self.radius} real_bytes={self.real_bytes} mpi=0"

    def said_by(self, kernel: str) -> bool:
        """Whether what a kernel said is said of this one."""
        size = REAL_BYTES.search(kernel)
        described = f"{self.name} radius {self.radius}" in kernel
        return described and size is not None and int(size[1]) == self.real_bytes

    def arch(self, folder: Path) -> str:
        """The processor that its kernel in a folder was built for; empty where there is none."""
        kernels = sorted((folder / "bin").glob(f"yask_kernel.{self.name}.*.exe"))
        return kernels[0].name.split(".")[2] if kernels else ""

    def ways(self, extent: int, threads: int) -> dict[str, tuple[str, ...]]:
        """Options of YASK for a cube, by a name.

        Its threads take one block each, so that fewer blocks than threads leave some of them idle.
        Its tuner runs before what is timed, and takes minutes.
        """
        sizes = {"bt": self.steps_at_once, "bx": -(-extent // threads), "by": extent, "bz": extent}
        sizes |= zip(("mbx", "mby", "mbz"), self.parts, strict=True)
        tiles = tuple(word for name, size in sizes.items() for word in (f"-{name}", str(size)))
        begin = f"which starts from {' '.join(tiles)}"
        return {
            f"tiles {' '.join(tiles)}": (*tiles, "-no-pre_auto_tune"),
            f"tuner of blocks and their parts, {begin}": (*tiles, "-auto_tune_targets", "mb,b"),
        }


SOLUTIONS = {
    "wave:8": Solution("iso3dfd", 4, 4, 6, (32, 64, 128)),
    "heat7": Solution("3axis", 1, 8, 12, (64, 64, 128)),
    "box27": Solution("cube", 1, 8, 6, (32, 64, 128)),
}
"""By the name of ours. Those of YASK for `heat7` and `box27` take the mean of the cells."""


@dataclass(slots=True)
class _Way:
    """What one way to run YASK gave: rates, tiles that its tuner found, or why there are none."""

    options: tuple[str, ...]
    rates: list[float] = field(default_factory=list[float])
    found: list[str] = field(default_factory=list[str])
    version: str = ""
    refusal: str = ""

    @property
    def rate(self) -> float | None:
        """The median of its rates, unless a run failed."""
        return statistics.median(self.rates) if self.rates and not self.refusal else None

    def note(self, name: str) -> str:
        """What is said of it in its row."""
        if self.refusal:
            return f"{name}: {self.refusal}"
        found = f", and found {'; '.join(self.found)}" if self.found else ""
        return f"{self.version}, {name}{found}"


def cube_workload(
    name: str, memory_bytes: int, factor: float, extent: int = 512, steps: int = STEPS
) -> Workload:
    """One of `SOLUTIONS` out of core, on planes of the cube that is measured in memory."""
    return Workload(choose(name), memory_bytes, factor, (extent, extent), steps)


def measure_yask(
    folder: Path | None, place: Path | None, say: Callable[[str], None], workload: Workload
) -> list[PeerRow]:
    """Our tiles in memory and YASK's on a cube of the planes of ``workload``, which is what we run
    out of core: all in turns, with as many threads each.

    ``folder`` is where YASK was built (None: where the environment says). Rates are medians, and
    the fastest way to run YASK comes first. Where it cannot be run, its row says why.
    """
    extent, solution = workload.plane[0], SOLUTIONS[workload.case.name]
    problem = workload.problem(0, extent)
    named = folder or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    ours: list[float] = []
    streamed: list[float] = []
    enforced = ""
    with tempfile.TemporaryDirectory(prefix="outgrid-peers-", dir=place) as scratch:
        threads = known_machine(Path(scratch)).cores
        ways = solution.ways(extent, threads)
        theirs = {name: _Way(options) for name, options in ways.items()}
        for turn in range(ROUNDS):
            say(f"our tiles, in memory, round {turn + 1} of {ROUNDS}")
            ours.append(_ours(problem, Path(scratch), threads))
            for name, way in theirs.items():
                if not way.refusal:
                    say(f"yask, in memory, round {turn + 1} of {ROUNDS}: {name}")
                    _theirs(named, Path(scratch), solution, problem, threads, way)
            say(f"our tiles, out of core, round {turn + 1} of {ROUNDS}")
            rate, enforced = _streamed(workload, Path(scratch))
            streamed.append(rate)
    mine = statistics.median(ours)
    order = sorted(theirs.items(), key=lambda item: -(item[1].rate or 0.0))
    best = order[0][1].rate
    rows = [_row("outgrid", problem, f"{threads} threads", mine, 1.0)]
    for place_in_order, (name, way) in enumerate(order):
        counted = "fastest: " if way.rate and not place_in_order else ""
        over = mine / way.rate if way.rate else None
        rows.append(_row("yask", problem, f"{counted}{way.note(name)}", way.rate, over))
    beside = f"{statistics.median(streamed) / best:.2f} of yask in memory; " if best else ""
    whole, limit = workload.problem(), workload.memory_bytes
    rate = statistics.median(streamed)
    rows.append(_row("outgrid", whole, f"{beside}{enforced}", rate, 1.0, limit))
    return rows


def _ours(problem: Problem, place: Path, threads: int) -> float:
    record, _ = in_memory(problem, "tiled", place, slice(0, 1), threads)
    return update_rate(record)


def _streamed(workload: Workload, place: Path) -> tuple[float, str]:
    """1e9 updates per second of the whole run, reading and writing included, and its limit."""
    done = out_of_core(workload, place)
    shutil.rmtree(done.result.parent)
    return done.record.measured.glups, done.enforced


def _theirs(
    folder: Path | None,
    place: Path,
    solution: Solution,
    problem: Problem,
    threads: int,
    way: _Way,
) -> None:
    """One run of YASK, which is noted in ``way``."""
    build = f"build it by `{solution.built_by}`"
    if folder is None:
        way.refusal = f"not named: {build}, give its folder by --yask or {VARIABLE}"
        return
    arch = solution.arch(folder)
    if not arch:
        way.refusal = f"{folder} holds no kernel: {build}"
        return
    size = ("-g", str(problem.shape[0]), "-num_trials", "1", "-trial_steps", str(problem.steps))
    team = ("-max_threads", str(threads), "-outer_threads", str(threads), "-inner_threads", "1")
    script = str((folder / "bin" / "yask.sh").resolve())
    chosen = ("-stencil", solution.name, "-arch", arch, "-ranks", "1", "-log_dir", str(place))
    command = (script, *chosen, *team, *size, *way.options)
    try:
        code, said = _run(command, folder)
    except subprocess.TimeoutExpired:
        way.refusal = f"stopped after {SECONDS:.0f} s"
        return
    rate, used = RATE.search(said), THREADS.search(said)
    if code != 0:
        way.refusal = f"exit code {code}"
    elif rate is None or not solution.said_by(said):
        way.refusal = f"it is another kernel: {build}"
    elif used is None or int(used[1]) != threads:
        way.refusal = f"it did not run with {threads} threads"
    else:
        way.rates.append(float(rate[1]) * PREFIXES[rate[2]] / 1e9)
        way.version = _version(folder, f"{solution.name}.{arch}", said)
        way.found += _found(said)


def _run(command: tuple[str, ...], folder: Path) -> tuple[int, str]:
    """Its exit code and what it said. A script starts it, so that both are ended when time is up.

    Raises TimeoutExpired.
    """
    with subprocess.Popen(
        command,
        cwd=folder,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        try:
            said, _ = running.communicate(timeout=SECONDS)
        except BaseException:
            os.killpg(running.pid, signal.SIGKILL)
            raise
    return running.returncode, said


def _found(said: str) -> list[str]:
    """The sizes with which its tuner ended, of blocks by their parts; none without a tuner."""
    sizes = {bool(part): text.strip() for part, text in FOUND.findall(said)}
    return [f"{sizes[False]} by {sizes[True]}".replace(" * ", " ")] if len(sizes) == 2 else []


def _version(folder: Path, kernel: str, said: str) -> str:
    """Its version, and by which compiler it was built if its report of that is there."""
    version = VERSION.search(said)
    report = folder / "build" / f"yask_kernel.{kernel}.make-report.txt"
    compiler = COMPILER.search(report.read_text()) if report.is_file() else None
    built = f" built by {compiler[1]}" if compiler else ""
    return f"YASK {version[1] if version else 'of unknown version'}{built}"


def _row(
    name: str,
    problem: Problem,
    note: str,
    rate: float | None,
    over: float | None,
    limit: int | None = None,
) -> PeerRow:
    seconds = problem.updates / rate / 1e9 if rate else None
    return PeerRow(
        name,
        "outofcore" if limit else "memory",
        problem.shape,
        problem.dtype,
        problem.steps,
        limit,
        note,
        seconds=seconds,
        glups=rate,
        ours_over=over,
    )
