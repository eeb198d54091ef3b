"""YASK (Intel's Yet Another Stencil Kit) on its wave of order 8, which is the one of `wave:8`.

It is not downloaded and not built here: a folder is named in which it was. It fills its own grid,
so answers are not compared; what it computes is known from what it says of itself.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from outgrid import Problem
from outgrid_bench.measure import in_memory, update_rate
from outgrid_bench.peers.compare import PeerRow
from outgrid_bench.workloads import choose

__all__ = ["VARIABLE", "measure_yask"]

VARIABLE = "OUTGRID_YASK"  # in the environment: the folder of a built YASK
BUILT_BY = "make stencil=iso3dfd radius=4 real_bytes=4 mpi=0"
STENCIL = "iso3dfd radius 4"
KERNEL = re.compile(r"yask_kernel\.iso3dfd\.(\w+)\.exe")
RATE = re.compile(r"mid-throughput \(num-points/sec\):\s*([\d.]+)([KMGT]?)")
PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
# Tiles in space and time for 512 cells along each axis: the best of those that were tried by hand,
# and what its tuner finds from there. The tuner runs before the trial and takes minutes.
TIME_TILES = ("-bt", "6", "-b", "512", "-mb", "64")
WAYS = {
    f"tiles {' '.join(TIME_TILES)}": (*TIME_TILES, "-no-pre_auto_tune"),
    f"tiles of its tuner, which starts from {' '.join(TIME_TILES)}": TIME_TILES,
}
STEPS = 48
ROUNDS = 3
SECONDS = 600.0  # for one of its runs


def measure_yask(
    folder: Path | None,
    place: Path | None,
    say: Callable[[str], None],
    extent: int = 512,
    steps: int = STEPS,
) -> list[PeerRow]:
    """Our tiles in memory and YASK's, in turns, on a cube of ``extent`` cells along each axis.

    ``folder`` is where YASK was built (None: where the environment says). Rates are medians. Where
    it cannot be run, its row says why.
    """
    problem = _problem(extent, steps)
    named = folder or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    ours: list[float] = []
    theirs: dict[str, list[float]] = {way: [] for way in WAYS}
    notes: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="outgrid-peers-", dir=place) as scratch:
        for turn in range(ROUNDS):
            say(f"our tiles, in memory, round {turn + 1} of {ROUNDS}")
            ours.append(_ours(problem, Path(scratch)))
            for way in [way for way in WAYS if way not in notes]:
                say(f"yask, in memory, round {turn + 1} of {ROUNDS}: {way}")
                rate, note = _theirs(named, extent, steps, WAYS[way])
                if rate is None:
                    notes[way] = note
                else:
                    theirs[way].append(rate)
    mine = statistics.median(ours)
    rows = [_row("outgrid", problem, "", mine, 1.0)]
    for way, rates in theirs.items():
        other = statistics.median(rates) if rates else None
        rows.append(_row("yask", problem, notes.get(way, way), other, other and mine / other))
    return rows


def _problem(extent: int, steps: int) -> Problem:
    case = choose("wave:8")
    shape = (extent, extent, extent)
    return Problem(case.stencil, shape, case.dtype, steps, {}, "frozen", case.initial())


def _ours(problem: Problem, place: Path) -> float:
    record, _ = in_memory(problem, "tiled", place, slice(0, 1))
    return update_rate(record)


def _theirs(
    folder: Path | None, extent: int, steps: int, tiles: tuple[str, ...]
) -> tuple[float | None, str]:
    """1e9 updates per second, or why there are none."""
    if folder is None:
        return None, f"not named: build it by `{BUILT_BY}`, give its folder by --yask or {VARIABLE}"
    kernels = sorted((folder / "bin").glob("yask_kernel.iso3dfd.*.exe"))
    named = KERNEL.fullmatch(kernels[0].name) if kernels else None
    if named is None:
        return None, f"{folder} holds no kernel: build it by `{BUILT_BY}`"
    size = ("-g", str(extent), "-num_trials", "1", "-trial_steps", str(steps))
    script = str((folder / "bin" / "yask.sh").resolve())
    command = (script, "-stencil", "iso3dfd", "-arch", named[1], "-ranks", "1", *size, *tiles)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=SECONDS, cwd=folder
        )
    except subprocess.TimeoutExpired:
        return None, f"stopped after {SECONDS:.0f} s"
    if done.returncode != 0:
        return None, f"exit code {done.returncode}"
    rate = RATE.search(done.stdout)
    if STENCIL not in done.stdout or rate is None:
        return None, f"it was not built for {STENCIL}: build it by `{BUILT_BY}`"
    return float(rate[1]) * PREFIXES[rate[2]] / 1e9, ""


def _row(name: str, problem: Problem, note: str, rate: float | None, over: float | None) -> PeerRow:
    seconds = problem.updates / rate / 1e9 if rate else None
    return PeerRow(
        name,
        "memory",
        problem.shape,
        problem.dtype,
        problem.steps,
        None,
        note,
        seconds=seconds,
        glups=rate,
        ours_over=over,
    )
