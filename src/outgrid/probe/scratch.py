"""Rates of a scratch folder, through the queue that runs use, past the page cache."""

from __future__ import annotations

import errno
import math
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from outgrid.durable import replace_file
from outgrid.errors import StoreError
from outgrid.native import Buffer, File, as_array
from outgrid.probe.effort import Effort
from outgrid.probe.taking import Computing
from outgrid.storage.transfers import Transfers
from outgrid.units import format_bytes

Kind = Literal["read", "write", "mixed"]
KINDS: tuple[Kind, ...] = ("read", "write", "mixed")
SECONDS = ("flush", "flushing", "moving")  # what else is measured

# A slab of a run is several requests; as many slabs are under way as keep the queue full.
REQUESTS_PER_TICKET = 4
MARK_BYTES = 4096  # of a manifest, about


class ScratchRates(msgspec.Struct, frozen=True):
    """Bytes per second by kind of transfer, and the seconds of a commit with nothing to flush.

    Each byte written takes ``flushing_seconds`` to become durable. Of processors that compute
    meanwhile transfers and flushes take ``moving_seconds`` for each byte moved. ``samples`` are
    all values behind these medians.
    """

    bandwidth: dict[Kind, float]
    flush_seconds: float
    flushing_seconds: float
    moving_seconds: float
    samples: dict[str, tuple[float, ...]]
    engine: str
    direct: bool


class NoiseFile(msgspec.Struct, frozen=True):
    """A file whose every block was written, and how to reach it."""

    path: Path
    file: File
    nbytes: int


class Moved(msgspec.Struct, frozen=True):
    """What was moved, from the beginning to the last completion."""

    nbytes: int
    seconds: float

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.nbytes / self.seconds


def measure_scratch(folder: Path, effort: Effort, cores: int) -> ScratchRates:
    """Medians of `effort.rounds` rounds over a file in `folder` that is removed afterwards.

    All ``cores`` compute in a part of them.

    Raises StoreError where the space is missing or a transfer fails.
    """
    samples: dict[str, list[float]] = {name: [] for name in (*KINDS, *SECONDS)}
    with (
        Transfers(depth=effort.queue_depth, request_bytes=effort.request_bytes) as transfers,
        noise_file(folder, effort, transfers) as noise,
    ):
        flow = Flow(transfers, effort)
        for turn in range(effort.rounds):
            for kind in KINDS[turn % 3 :] + KINDS[: turn % 3]:
                moved = flow.moved(noise, kind, effort.transfer_seconds)
                samples[kind].append(moved.rate)
                seconds = _flush_seconds(transfers, noise)
                if kind == "write":
                    samples["flushing"].append(seconds / moved.nbytes)
                    samples["flush"].append(_committing_seconds(transfers, noise))
            samples["moving"].append(_moving_seconds(flow, noise, effort, cores))
        flow.release()
        median = {name: statistics.median(values) for name, values in samples.items()}
        return ScratchRates(
            bandwidth={kind: median[kind] for kind in KINDS},
            flush_seconds=median["flush"],
            flushing_seconds=median["flushing"],
            moving_seconds=median["moving"],
            samples={name: tuple(values) for name, values in samples.items()},
            engine=transfers.engine,
            direct=noise.file.direct,
        )


class Flow:
    """Tickets of several requests, each in its own part of one buffer, always enough of them."""

    def __init__(self, transfers: Transfers, effort: Effort) -> None:
        self.transfers = transfers
        self._ticket_bytes = min(effort.request_bytes * REQUESTS_PER_TICKET, effort.file_bytes // 2)
        under_way = effort.queue_depth * effort.request_bytes
        self._slots = 1 + max(2, -(-under_way // self._ticket_bytes))
        self._buffer = Buffer(self._slots * self._ticket_bytes)
        fill_with_noise(self._buffer)

    def move(self, noise: NoiseFile, kind: Kind, seconds: float) -> float:
        """Bytes per second over `seconds`; see `moved`."""
        return self.moved(noise, kind, seconds).rate

    def moved(self, noise: NoiseFile, kind: Kind, seconds: float, most: float = math.inf) -> Moved:
        """What is moved in `seconds`, or until it is `most` bytes.

        One request is made at least, however little time there is.

        "mixed" reads one half of the file and writes the other, ticket by ticket in turn.
        """
        tickets = noise.nbytes // self._ticket_bytes
        free = list(range(self._slots))
        taken: dict[int, int] = {}
        turns = count()
        moved = asked = 0
        begin = time.perf_counter()
        while True:
            late = asked > 0 and time.perf_counter() >= begin + seconds
            while free and asked < most and not late:
                slot, turn = free.pop(), next(turns)
                taken[self._start(noise.file, kind, turn, tickets, slot)] = slot
                asked += self._ticket_bytes
                late = time.perf_counter() >= begin + seconds
            if not taken:
                return Moved(moved, time.perf_counter() - begin)
            for completion in self.transfers.wait():
                moved += completion.check().nbytes
                free.append(taken.pop(completion.ticket))

    def release(self) -> None:
        """Give the memory back."""
        self._buffer.release()

    def _start(self, file: File, kind: Kind, turn: int, tickets: int, slot: int) -> int:
        writes = kind == "write"
        place = turn % tickets
        if kind == "mixed":
            half = tickets // 2
            writes = turn % 2 == 1
            place = turn // 2 % half + (half if writes else 0)
        size = self._ticket_bytes
        segment = np.array([[place * size, self._buffer.address + slot * size, size]], np.int64)
        start = self.transfers.write if writes else self.transfers.read
        return start(file, segment, self._buffer)


@contextmanager
def noise_file(folder: Path, effort: Effort, transfers: Transfers) -> Generator[NoiseFile]:
    """A file of `effort.file_bytes` of noise in `folder`, removed afterwards."""
    nbytes = effort.file_bytes
    _require_space(folder, nbytes)
    path = Path(tempfile.mkdtemp(prefix="outgrid-probe-", dir=folder)) / "noise"
    try:
        file = File(path, "create")
        try:
            file.reserve(nbytes)
            # Space that was set aside but never written reads as zeroes, without the device.
            flow = Flow(transfers, effort)
            noise = NoiseFile(path, file, nbytes)
            flow.moved(noise, "write", math.inf, most=nbytes)
            flow.release()
            _flush_seconds(transfers, noise)
            yield noise
        finally:
            file.close()
    except StoreError:
        raise
    except OSError as error:
        raise StoreError("cannot measure here", path=path, errno=error.errno) from error
    finally:
        shutil.rmtree(path.parent)


def fill_with_noise(buffer: Buffer) -> None:
    """Bytes that no device can compress."""
    words = as_array(buffer, np.uint64)
    words[:] = np.random.default_rng(len(words)).integers(0, 1 << 63, len(words), np.uint64)


def _moving_seconds(flow: Flow, noise: NoiseFile, effort: Effort, cores: int) -> float:
    """Seconds of processors that a byte takes from all ``cores``, which compute.

    What makes durable the half of them that is written takes processors as well.
    """
    with Computing(cores) as computing:
        before = computing.now
        time.sleep(effort.transfer_seconds / 2)
        alone, before = computing.rate_since(before), computing.now
        moved = flow.moved(noise, "mixed", effort.transfer_seconds)
        seconds = moved.seconds + _flush_seconds(flow.transfers, noise)
        beside = computing.rate_since(before)
    return max(0.0, 1 - beside / alone) * cores * seconds / moved.nbytes if alone else 0.0


def _committing_seconds(transfers: Transfers, noise: NoiseFile) -> float:
    """Of what makes a state durable: its file is flushed, then the one that says so replaced."""
    seconds = _flush_seconds(transfers, noise)
    begin = time.perf_counter()
    replace_file(noise.path.with_name("mark"), bytes(MARK_BYTES))
    return seconds + time.perf_counter() - begin


def _flush_seconds(transfers: Transfers, noise: NoiseFile) -> float:
    """What making the file durable takes."""
    begin = time.perf_counter()
    transfers.flush(noise.file)
    (completion,) = transfers.drain()
    completion.check()
    return time.perf_counter() - begin


def _require_space(folder: Path, nbytes: int) -> None:
    try:
        status = os.statvfs(folder)
    except OSError as error:
        raise StoreError("cannot measure here", path=folder, errno=error.errno) from error
    free = status.f_bavail * status.f_frsize
    if free < nbytes:
        raise StoreError(
            f"measuring a scratch folder needs {format_bytes(nbytes)} for some seconds, and "
            f"{format_bytes(free)} are free; name another folder with --scratch",
            path=folder,
            errno=errno.ENOSPC,
        )
