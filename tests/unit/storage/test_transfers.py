"""How long transfers are waited for, and when their memory goes."""

import gc
from types import SimpleNamespace

import numpy as np
import pytest

from outgrid.errors import ExecutionError
from outgrid.native import Buffer, File
from outgrid.storage import Transfers, transfers


class Late:
    """A queue in which a ticket ends after so many looks, each of which takes all its time.

    In each of the first ``moving`` looks a request ends.
    """

    def __init__(self, clock, looks):
        self.clock, self.looks, self.outstanding = clock, looks, 0
        self.moving = self.moved = 0

    def submit_flush(self, file):
        self.outstanding += 1
        return self.outstanding

    def submit_read(self, file, segments, row_bytes, folding):
        return self.submit_flush(file)

    def wait(self, seconds):
        self.clock[0] += seconds
        self.looks -= 1
        self.moved += self.moved < self.moving
        if self.looks:
            return []
        self.outstanding -= 1
        return [SimpleNamespace(ticket=1, errno=0, nbytes=0, seconds=self.clock[0], sums=b"")]

    def statistics(self):
        return SimpleNamespace(read_requests=self.moved, write_requests=0)

    def abandon(self):
        pass


@pytest.fixture
def waiting(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(transfers, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    (tmp_path / "u").write_bytes(b"u")
    with Transfers("threads") as found:
        monkeypatch.setattr(found, "_queue", Late(clock, looks=5 * transfers.LOOKS))
        yield found, File(tmp_path / "u", "r", False)
        monkeypatch.undo()


def test_a_flush_may_take_as_long_as_the_disk(waiting):
    found, file = waiting
    found.flush(file)
    (ended,) = found.wait()
    assert ended.seconds == 5 * transfers.STUCK_SECONDS


def test_a_flush_does_not_hide_a_read_that_never_ends(waiting):
    found, file = waiting
    found.flush(file)
    found.read(file, transfers._NOTHING, None)
    with pytest.raises(ExecutionError, match="no transfer ended for 300 s; under way: flushing"):
        found.wait()


def test_a_read_may_take_as_long_as_its_requests_end(waiting):
    found, file = waiting
    found.read(file, transfers._NOTHING, None)
    found._queue.moving = found._queue.looks
    (ended,) = found.wait()
    assert ended.seconds == 5 * transfers.STUCK_SECONDS


def test_requests_that_end_no_more_are_waited_for_so_long(waiting):
    found, file = waiting
    found.read(file, transfers._NOTHING, None)
    found._queue.moving = 17
    with pytest.raises(ExecutionError, match="no transfer ended for 300 s; under way: reading"):
        found.wait()
    assert (
        found._queue.clock[0] == (17 + transfers.LOOKS) * transfers.STUCK_SECONDS / transfers.LOOKS
    )


class Memory:
    """The owner of a buffer, which goes with it; the collector looks at neither."""

    __slots__ = ("buffer", "gone")

    def __init__(self, gone):
        self.buffer, self.gone = Buffer(1 << 20), gone

    def __del__(self):
        self.gone()


def test_memory_outlives_transfers_that_the_collector_finds_with_it(tmp_path, monkeypatch):
    (tmp_path / "u").write_bytes(bytes(1 << 20))
    said, close = [], transfers._close
    monkeypatch.setattr(transfers, "_close", lambda *given: (close(*given), said.append("closed")))
    found = Transfers("threads")
    memory = Memory(lambda: said.append("gone"))
    segments = np.array([[0, memory.buffer.address, 1 << 20]], np.int64)
    found.read(File(tmp_path / "u", "r", False), segments, memory)
    cycle = [found]
    cycle.append(cycle)
    del found, memory, cycle
    gc.collect()
    assert said == ["closed", "gone"]
