"""Our queue beside the device: every engine, and the same requests without us, in one run.

The methods take turns on one file, in an order that changes from round to round. A rate is the
median of the rounds; the ratio to the reference is the median of the ratios within each round,
since disks drift over seconds by more than methods differ. Others on the disk can only slow a round
down, so the ratio of the best rounds stands beside it. "mixed" is what a run does: one half of the
file is read while the other is written, slab by slab. At the end a run that waits for the disk is
set beside the bandwidth.
"""

from __future__ import annotations

import datetime
import os
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from outgrid.durable import existing
from outgrid.errors import StoreError
from outgrid.native import engines
from outgrid.probe.effort import Effort
from outgrid.probe.profile import known_machine
from outgrid.probe.scratch import KINDS, Flow, Kind, NoiseFile, noise_file
from outgrid.storage import Transfers
from outgrid.version import __version__
from outgrid_bench.rawio import Fio, Loop, find_fio
from outgrid_bench.starved import DEPTH, starved_run

# Short enough for a minute in all, long enough that the beginning of a process does not count.
QUICK = Effort(rounds=5, transfer_seconds=0.6)

FIO_BAR = 0.95  # of what fio reaches

Say = Callable[[str], None]
Move = Callable[[Kind], float]


def measure_io(folder: Path | None, say: Say, effort: Effort = QUICK) -> dict[str, Any]:
    """Rates in bytes per second of every method and kind of transfer, and ratios to the reference.

    The file of `effort.file_bytes` in `folder` (None: the working folder) is removed afterwards.
    Raises StoreError where the space is missing or a transfer fails.
    """
    place = existing(folder or Path())
    load = os.getloadavg()[0]
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    refusals: list[str] = []
    with ExitStack() as stack:
        queues = _queues(stack, effort, refusals)
        say(f"writing a file of {effort.file_bytes >> 20} MiB in {place}")
        noise = stack.enter_context(noise_file(place, effort, next(iter(queues.values()))))
        fio, loop = find_fio(noise, effort), Loop(effort)
        methods = {name: _ours(queue, noise, effort) for name, queue in queues.items()}
        methods["loop"] = lambda kind: loop.move(noise, kind, effort)
        if fio is not None:
            methods["fio"] = lambda kind: fio.move(noise, kind, effort)
        samples = _take_turns(methods, effort.rounds, say)
        say(f"a run of {DEPTH} steps per sweep, held up by the disk")
        ours = methods[next(iter(queues))]
        starved = starved_run(place, effort, lambda: ours("mixed"))
        direct = noise.file.direct
    return {
        "bench": "io",
        "reference": _reference(fio),
        "direct": direct,
        "request_bytes": effort.request_bytes,
        "queue_depth": effort.queue_depth,
        "file_bytes": effort.file_bytes,
        "rows": rows(samples, ("loop",) if fio is None else ("loop", "fio")),
        "starved": starved.to_dict(),
        "refusals": refusals,
        "folder": str(place),
        "load": load,
        "started": started,
        "version": __version__,
        "machine": known_machine(place).to_dict(),
    }


def rows(
    samples: dict[tuple[str, Kind], list[float]], references: tuple[str, ...]
) -> list[dict[str, Any]]:
    """One object for each method and kind, from its rate in each round.

    For each kind the faster of the references counts: the device can do at least that. ``over_fio``
    is the ratio to fio alone, None without it.
    """
    measured: list[dict[str, Any]] = []
    for (method, kind), rates in samples.items():
        medians = [statistics.median(samples[name, kind]) for name in references]
        reference = references[medians.index(max(medians))]
        ratios = [
            ours / theirs for ours, theirs in zip(rates, samples[reference, kind], strict=True)
        ]
        fio = samples.get(("fio", kind))
        over_fio = (
            None
            if fio is None
            else statistics.median(ours / theirs for ours, theirs in zip(rates, fio, strict=True))
        )
        measured.append(
            {
                "kind": kind,
                "method": method,
                "bytes_per_second": statistics.median(rates),
                "reference": reference,
                "over_reference": statistics.median(ratios),
                "over_fio": over_fio,
                "best_over_reference": max(rates) / max(samples[reference, kind]),
                "samples": rates,
            }
        )
    return measured


def _queues(stack: ExitStack, effort: Effort, refusals: list[str]) -> dict[str, Transfers]:
    queues: dict[str, Transfers] = {}
    for name in engines():
        try:
            transfers = Transfers(
                name, depth=effort.queue_depth, request_bytes=effort.request_bytes
            )
        except StoreError as error:
            refusals.append(str(error))
        else:
            queues[name] = stack.enter_context(transfers)
    return queues


def _ours(queue: Transfers, noise: NoiseFile, effort: Effort) -> Move:
    flow = Flow(queue, effort)
    return lambda kind: flow.move(noise, kind, effort.transfer_seconds)


def _take_turns(
    methods: dict[str, Move], rounds: int, say: Say
) -> dict[tuple[str, Kind], list[float]]:
    samples: dict[tuple[str, Kind], list[float]] = {
        (method, kind): [] for kind in KINDS for method in methods
    }
    names = list(methods)
    for turn in range(rounds):
        # Each begins once in as many rounds, and odd rounds run backwards, so that none always
        # follows the same other.
        first = turn % len(names)
        order = (names[first:] + names[:first])[:: -1 if turn % 2 else 1]
        say(f"round {turn + 1} of {rounds}: {', '.join(order)}")
        for kind in KINDS:
            for method in order:
                samples[method, kind].append(methods[method](kind))
    return samples


def _reference(fio: Fio | None) -> str:
    if fio is None:
        return "a thread for each request under way, pread and pwrite (fio is not installed)"
    return f"the faster of {fio.version} ({fio.engine}) and a loop of pread and pwrite"
