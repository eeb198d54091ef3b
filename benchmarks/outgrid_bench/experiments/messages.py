"""What messages between ranks of this host take: seconds, and seconds of processors.

The ranks do what those of a run do: they copy what is sent into the buffer of its message, look in
once per millisecond while messages are under way, and otherwise sleep.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

from outgrid.errors import ExecutionError
from outgrid.native import Buffer
from outgrid.parts import Comm, Rows, world
from outgrid_bench.experiments.getput import launcher

__all__ = ["Messages", "main", "measure_messages"]

MESSAGE_BYTES, SMALL_BYTES = 8 << 20, 512
MESSAGES, SMALL_MESSAGES = 32, 64
TURN_SECONDS = 1e-3
WATCHED_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Messages:
    """Between two ranks that send to each other: bytes per second each way, and seconds until a
    small message has come. A rank takes ``sent_seconds`` of a processor for each byte that it sends
    while as many come, and the share ``attention`` of one as long as it waits for a message."""

    bandwidth: float
    latency_seconds: float
    sent_seconds: float
    attention: float


def measure_messages() -> Messages:
    """Measure with two ranks on this host. Raises ExecutionError where they fail."""
    begin = f"from {__name__} import main; main()"
    command = [launcher("ranks"), "-n", "2", sys.executable, "-c", begin]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ExecutionError(f"ranks that send messages ended so: {done.stderr.strip()}")
    return Messages(**json.loads(done.stdout))


def main() -> None:
    """What each of the two ranks runs; the first tells what it found."""
    comm = world()
    source, leaving, coming = (Buffer(MESSAGE_BYTES) for _ in range(3))
    for buffer in (source, leaving, coming):  # first touched here, not on the way
        ctypes.memset(buffer.address, comm.rank + 1, MESSAGE_BYTES)

    def swap(nbytes: int, times: int) -> tuple[float, float]:
        """Seconds, and seconds of processors, of a message each way."""
        comm.share(None)
        began, busy = time.perf_counter(), time.process_time()
        for _ in range(times):
            ctypes.memmove(leaving.address, source.address, nbytes)
            _end(
                comm,
                comm.receive(1 - comm.rank, 0, Rows(coming.address, 1, nbytes)),
                comm.send(1 - comm.rank, 0, Rows(leaving.address, 1, nbytes)),
            )
        return (time.perf_counter() - began) / times, (time.process_time() - busy) / times

    swap(MESSAGE_BYTES, 2)
    seconds, busy = swap(MESSAGE_BYTES, MESSAGES)
    latency, _ = swap(SMALL_BYTES, SMALL_MESSAGES)
    # One rank waits for a message that the other sends late, and the other way round.
    expected = comm.receive(1 - comm.rank, 1, Rows(coming.address, 1, SMALL_BYTES))
    before = time.process_time()
    time.sleep(WATCHED_SECONDS)
    attention = (time.process_time() - before) / WATCHED_SECONDS
    _end(comm, expected, comm.send(1 - comm.rank, 1, Rows(leaving.address, 1, SMALL_BYTES)))
    messages = Messages(MESSAGE_BYTES / seconds, latency, busy / MESSAGE_BYTES, attention)
    if not comm.rank:
        sys.stdout.write(json.dumps(asdict(messages)))
    comm.share(None)


def _end(comm: Comm, *tickets: int) -> None:
    """Wait until messages are through."""
    left = set(tickets)
    while left := left.difference(comm.ended()):
        time.sleep(TURN_SECONDS)
