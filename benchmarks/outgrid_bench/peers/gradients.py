"""Gradients of the same misfit by programs that keep all states in memory, in turns with ours."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import outgrid as og
from outgrid.errors import ExecutionError
from outgrid_bench.peers.compare import FIND, FOLDER, PeerRow
from outgrid_bench.rows import largest_difference

__all__ = ["measure_gradients", "pulse"]

ROUNDS = 3


@dataclass(frozen=True, slots=True)
class _Peer:
    """A script, what it imports, and how far from ours its gradient may be: of the largest value.

    The code that Devito generates has coefficients of nine digits.
    """

    name: str
    script: str
    modules: tuple[str, ...]
    bound: float = 1e-12


PEERS = (
    _Peer("devito", "by_devito_gradient.py", ("devito",), 1e-6),
    _Peer("deepwave", "by_deepwave_gradient.py", ("deepwave", "torch")),
    _Peer("jax", "by_jax_gradient.py", ("jax",)),
)


def pulse(steps: int) -> tuple[float, ...]:
    """A wavelet of Ricker."""
    t = np.arange(steps) - 15.0
    return tuple(((1 - (t / 5) ** 2) * np.exp(-((t / 5) ** 2) / 2)).tolist())


def measure_gradients(
    python: Path | None, folder: Path | None, say: Callable[[str], None], size: int, steps: int
) -> list[PeerRow]:
    """Ours, by a history of all states on disk, and that of each peer: medians of seconds, in
    turns, with everything compiled before.

    The model is one of ``size`` x ``size`` cells of waves in float64. ``python`` is the interpreter
    that has the peers (left out: this one). Raises ExecutionError where one of them fails.
    """
    place = Path(tempfile.mkdtemp(prefix="outgrid-gradients-", dir=folder))
    try:
        return _Comparison(python or Path(sys.executable), place, size, steps).rows(say)
    finally:
        shutil.rmtree(place)


class _Comparison:
    def __init__(self, python: Path, place: Path, size: int, steps: int) -> None:
        self.python, self.place, self.steps, self.shape = python, place, steps, (size, size)
        self.given: dict[str, Any] = {"memory": "4GiB", "progress": False}
        self.edge = np.zeros(self.shape)  # 0 where the layers are fixed
        self.edge[2:-2, 2:-2] = 1.0
        y, x = np.indices(self.shape)
        self.start = 0.16 * self.edge
        truth = np.where(np.hypot(y - size / 2, x - size / 2) < size / 8, 0.2, 0.16) * self.edge
        self.source = 3 * size // 8, size // 2
        self.receivers = [(size // 2, column) for column in range(10, size - 10, 4)]
        self.observed = og.run(self.posed(truth), out=place / "data", **self.given).traces
        names = {name: str(place / f"{name}.npy") for name in ("model", "observed", "answer")}
        np.save(names["model"], self.start)
        np.save(names["observed"], self.observed)
        told = {"steps": steps, "source": self.source, "receivers": self.receivers}
        told |= {"pulse": pulse(steps), "threads": os.cpu_count()}
        (place / "problem.json").write_text(json.dumps(names | told))

    def posed(self, model: np.ndarray) -> og.Problem:
        """The shot, with a model."""
        return og.Problem(
            "wave:4",
            self.shape,
            "float64",
            self.steps,
            initial={"u": 0.0, "c": model},
            sources=[og.Source("u", self.source, pulse(self.steps))],
            receivers=[og.Receiver("u", cell) for cell in self.receivers],
        )

    def rows(self, say: Callable[[str], None]) -> list[PeerRow]:
        """Ours first, then the peers."""
        there = {peer: self._is_there(peer) for peer in PEERS}
        seconds: dict[str, list[float]] = {}
        said: dict[str, str] = {}
        apart: dict[str, float] = {}
        for turn in range(ROUNDS + 1):
            say(f"round {turn} of {ROUNDS}")
            begin = time.perf_counter()
            og.run(self.posed(self.start), out=self.place / f"run.{turn}", **self.given)
            between = time.perf_counter()
            slope = self._ours(turn)
            taken = {"outgrid forward": between - begin, "outgrid": time.perf_counter() - between}
            for peer in (peer for peer, here in there.items() if here):
                made = self._peer(peer)
                taken[peer.name], said[peer.name] = made["seconds"], made["version"]
                taken[f"{peer.name} forward"] = made["forward_seconds"]
                other = np.load(self.place / "answer.npy") * self.edge
                apart[peer.name] = largest_difference(other, slope)
            for name, one in taken.items() if turn else ():  # the first round compiles
                seconds.setdefault(name, []).append(one)
        medians = {name: statistics.median(all_of) for name, all_of in seconds.items()}
        rows = [self._row("outgrid", medians["outgrid"], medians, _times(medians, "outgrid"))]
        for peer, here in there.items():
            if not here:
                packages = " ".join(peer.modules)
                note = f"not installed; {self.python} -m pip install {packages}"
                rows.append(self._row(peer.name, None, medians, note))
                continue
            note = f"{said[peer.name]}, {_times(medians, peer.name)}"
            one = self._row(peer.name, medians[peer.name], medians, note)
            rows.append(one.compared(apart[peer.name], peer.bound))
        return rows

    def _ours(self, turn: int) -> np.ndarray:
        out, misfit = self.place / f"gradient.{turn}", og.LeastSquares(self.observed)
        g = og.gradient(
            self.posed(self.start), misfit, wrt=["c"], out=out, adjoint="history", **self.given
        )
        return np.array(g["c"])

    def _is_there(self, peer: _Peer) -> bool:
        command = [str(self.python), "-c", FIND, *peer.modules]
        return not subprocess.run(command, check=False).returncode

    def _peer(self, peer: _Peer) -> dict[str, Any]:
        command = [str(self.python), str(FOLDER / peer.script), str(self.place / "problem.json")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ExecutionError(f"{peer.name} failed: {done.stderr.strip().splitlines()[-1:]}")
        return json.loads(done.stdout.splitlines()[-1])

    def _row(
        self, name: str, seconds: float | None, medians: dict[str, float], note: str
    ) -> PeerRow:
        figures: dict[str, Any] = {}
        if seconds is not None:
            updates = (self.shape[0] - 4) * (self.shape[1] - 4) * self.steps
            figures = {
                "seconds": seconds,
                "glups": updates / seconds / 1e9,
                "ours_over": seconds / medians["outgrid"],
            }
        return PeerRow(name, "memory", self.shape, "float64", self.steps, None, note, **figures)


def _times(medians: dict[str, float], name: str) -> str:
    times = medians[name] / medians[f"{name} forward"]
    return f"{times:.1f} times its own run forward"
