"""Running the peers and us on the same grid, and comparing rates and answers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from outgrid import Problem, pipeline
from outgrid.config import RunOptions
from outgrid.errors import ExecutionError
from outgrid.parts import InitialExpression, evaluate
from outgrid.record import read_record
from outgrid.units import parse_bytes
from outgrid_bench.limit import Limited, limited
from outgrid_bench.rows import ROUNDING, largest_difference
from outgrid_bench.workloads import Workload, choose

__all__ = ["PEERS", "Peer", "PeerRow", "all_agree", "measure_peers", "peer_workload"]

FOLDER = Path(__file__).parent
FIND = (
    "import importlib.util as u, sys; "
    "sys.exit(0 if all(u.find_spec(m) for m in sys.argv[1:]) else 1)"
)
CHUNK_PLANES = 16
PATIENT_SECONDS = 120  # given less, a peer that tunes itself tries fewer variants
K = 0.1


@dataclass(frozen=True, slots=True)
class Peer:
    """What a user would pick instead: a script, what it imports, and where the grid lives."""

    name: str
    script: str
    modules: tuple[str, ...]
    packages: str
    out_of_core: bool
    swap: bool = False


PEERS: tuple[Peer, ...] = (
    Peer("devito", "by_devito.py", ("devito",), "devito", False),
    Peer("numba", "by_numba.py", ("numba",), "numba", False),
    Peer("jax", "by_jax.py", ("jax",), "jax", False),
    Peer("c + mmap", "by_c.py", ("numpy",), "numpy", True),
    Peer("numba + memmap", "by_memmap_numba.py", ("numba",), "numba", True),
    Peer("dask + zarr", "by_dask.py", ("dask", "zarr"), "'dask[array]' zarr", True),
    Peer("c + swap", "by_c.py", ("numpy",), "numpy", True, swap=True),
)


@dataclass(frozen=True, slots=True)
class PeerRow:
    """One program on the grid. ``mode`` is "memory" or "outofcore".

    ``ours_over`` is our rate in the same mode over that of this program; ``difference`` the largest
    difference from our answer over the largest value, ``agrees`` whether that is rounding. Without
    a rate ``note`` says why, and for a missing package how to install it.
    """

    peer: str
    mode: str
    shape: tuple[int, ...]
    dtype: str
    steps: int
    memory_limit_bytes: int | None
    note: str
    seconds: float | None = None
    glups: float | None = None
    ours_over: float | None = None
    difference: float | None = None
    agrees: bool | None = None

    def compared(self, difference: float, bound: float) -> PeerRow:
        """The row with a difference, which may be so large."""
        return replace(self, difference=difference, agrees=difference <= bound)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return asdict(self) | {"shape": list(self.shape)}


def peer_workload(
    memory: str | None, factor: float | None, dtype: str, quick: bool, steps: int | None = None
) -> Workload:
    """heat7 on a grid that fits the machine, so that peers in memory run too, and not the limit."""
    case = choose(f"heat7:{dtype}")
    usual = ("192MiB", 2.0, (512, 512), 6) if quick else ("512MiB", 4.0, (1024, 1024), 24)
    limit = parse_bytes(memory or usual[0])
    return Workload(case, limit, factor or usual[1], usual[2], steps or usual[3])


def all_agree(rows: Sequence[PeerRow]) -> bool:
    """Whether every answer that there is differs from ours by rounding alone."""
    return all(row.agrees is not False for row in rows)


def measure_peers(
    workload: Workload,
    python: Path | None,
    folder: Path | None,
    say: Callable[[str], None],
    seconds: float,
    swap: bool = False,
) -> list[PeerRow]:
    """Us and every peer, one after the other, each in a process and for at most ``seconds``.

    ``python`` is the interpreter that has the peers (left out: this one). Raises ExecutionError
    where our own run fails.
    """
    place = Path(tempfile.mkdtemp(prefix="outgrid-peers-", dir=folder))
    try:
        peers = [peer for peer in PEERS if swap or not peer.swap]
        interpreter = python or Path(sys.executable)
        return _Comparison(workload, interpreter, place, say, seconds).rows(peers)
    finally:
        shutil.rmtree(place)


class _Comparison:
    """One grid, our answer, and the peers that are held against it."""

    def __init__(
        self,
        workload: Workload,
        python: Path,
        place: Path,
        say: Callable[[str], None],
        seconds: float,
    ) -> None:
        self.workload, self.python, self.place = workload, python, place
        self.say, self.seconds = say, seconds
        self.tuning = "basic" if seconds < PATIENT_SECONDS else "aggressive"
        self.start, self.answer = place / "start.npy", place / "answer-ours.npy"
        formula = workload.problem()
        self.problem = Problem(
            formula.stencil,
            formula.shape,
            formula.dtype,
            formula.steps,
            {"k": K},
            "frozen",
            {"u": self.start},
        )
        self._write_start(formula)

    def rows(self, peers: Sequence[Peer]) -> list[PeerRow]:
        """Ours first, in both modes; then the peers."""
        ours = {"memory": self._ours_in_memory(), "outofcore": self._ours_out_of_core()}
        rates = {mode: row.glups or 0.0 for mode, row in ours.items()}
        rows = list(ours.values())
        for peer in peers:
            self.say(f"{peer.name}, {_mode(peer).replace('outofcore', 'out of core')}")
            rows.append(self._peer(peer, rates[_mode(peer)]))
        return rows

    def _write_start(self, formula: Problem) -> None:
        source = formula.initial["u"]
        assert isinstance(source, InitialExpression)
        shape, dtype = formula.shape, formula.dtype
        file = np.lib.format.open_memmap(self.start, mode="w+", dtype=dtype, shape=shape)
        for first in range(0, shape[0], CHUNK_PLANES):
            part = range(first, min(shape[0], first + CHUNK_PLANES))
            file[part.start : part.stop] = evaluate(source, part, shape, dtype)
        file.flush()

    def _row(self, name: str, mode: str, note: str, **figures: Any) -> PeerRow:
        limit = self.workload.memory_bytes if mode == "outofcore" else None
        problem = self.problem
        return PeerRow(
            name, mode, problem.shape, problem.dtype, problem.steps, limit, note, **figures
        )

    def _ours_in_memory(self) -> PeerRow:
        self.say("outgrid, in memory")
        out = self.place / "ours-memory"
        memory = 3 * self.problem.field_bytes + (1 << 30)
        result = pipeline.run(self.problem, RunOptions.of(memory=memory, out=out, tier="memory"))
        result.path("u").rename(self.answer)
        shutil.rmtree(out)
        seconds = result.record.measured.compute_seconds
        return self._row("outgrid", "memory", "", **self._rate(seconds))

    def _ours_out_of_core(self) -> PeerRow:
        self.say("outgrid, out of core")
        job, out = self.place / "job.toml", self.place / "ours-outofcore"
        job.write_text(
            f"[problem]\nstencil = 'heat7'\nshape = {list(self.problem.shape)}\n"
            f"dtype = '{self.problem.dtype}'\nsteps = {self.problem.steps}\nboundary = 'frozen'\n"
            f"parameters = {{ k = {K} }}\ninitial = {{ u = '{self.start}' }}\n"
            f"[run]\nmemory = {self.workload.memory_bytes}\ntier = 'direct'\n"
        )
        command = (sys.executable, "-m", "outgrid", "run", str(job), "--out", str(out), "--json")
        with limited(self.workload.memory_bytes) as group:
            done = group.run(command)
        if done.returncode != 0:
            raise ExecutionError(f"our run out of core ended with exit code {done.returncode}")
        figures = self._rate(read_record(out).measured.seconds)
        figures |= self._compared(out / "u.npy")
        shutil.rmtree(out)
        return self._row("outgrid", "outofcore", group.reason, **figures)

    def _peer(self, peer: Peer, ours: float) -> PeerRow:
        mode = _mode(peer)
        if reason := self._missing(peer):
            return self._row(peer.name, mode, reason)
        folder = self.place / "peer"
        folder.mkdir()
        answer = folder / "answer.npy"
        spec = {
            "start": str(self.start),
            "answer": str(answer),
            "folder": str(folder),
            "dtype": self.problem.dtype,
            "steps": self.problem.steps,
            "k": K,
            "memory_bytes": self.workload.memory_bytes,
            "tuning": self.tuning,
        }
        (folder / "problem.json").write_text(json.dumps(spec))
        command = [str(self.python), str(FOLDER / peer.script), str(folder / "problem.json")]
        command += ["swap"] if peer.swap else []
        limit = self.workload.memory_bytes
        unlimited = nullcontext(Limited(None, ""))
        try:
            swap = None if peer.swap else 0
            with limited(limit, swap) if peer.out_of_core else unlimited as group:
                done = group.try_run(command, self.seconds)
            if done.returncode != 0:
                return self._row(peer.name, mode, _complaint(done))
            said = json.loads(done.stdout.splitlines()[-1])
            figures = self._rate(said["seconds"], ours) | self._compared(answer)
            return self._row(peer.name, mode, said["version"], **figures)
        except subprocess.TimeoutExpired:
            return self._row(peer.name, mode, f"stopped after {self.seconds:.0f} s")
        finally:
            shutil.rmtree(folder)

    def _missing(self, peer: Peer) -> str | None:
        """Why the peer cannot run here, and what to do about it; None if it can."""
        if peer.swap and len(Path("/proc/swaps").read_text().splitlines()) < 2:
            return "no swap space is active; mkswap and swapon make some"
        search = subprocess.run(
            [str(self.python), "-c", FIND, *peer.modules], capture_output=True, check=False
        )
        if search.returncode == 0:
            return None
        return f"not installed; {self.python} -m pip install {peer.packages}"

    def _rate(self, seconds: float, ours: float | None = None) -> dict[str, float]:
        """Figures from seconds; ``ours`` is our rate, None for our own run."""
        glups = self.problem.updates / seconds / 1e9
        return {"seconds": seconds, "glups": glups, "ours_over": (ours or glups) / glups}

    def _compared(self, answer: Path) -> dict[str, Any]:
        values, expected = (np.load(path, mmap_mode="r") for path in (answer, self.answer))
        difference = largest_difference(values, expected)
        bound = ROUNDING[self.problem.dtype] * max(1, self.problem.steps)
        return {"difference": difference, "agrees": difference <= bound}


def _mode(peer: Peer) -> str:
    return "outofcore" if peer.out_of_core else "memory"


def _complaint(done: subprocess.CompletedProcess[str]) -> str:
    """The last line of a failed program, or the signal that ended it."""
    if done.returncode < 0:
        why = "; the memory limit did it" if done.returncode == -9 else ""
        return f"ended by signal {-done.returncode}{why}"
    lines = done.stderr.strip().splitlines()
    return f"exit code {done.returncode}: {lines[-1] if lines else 'it said nothing'}"
