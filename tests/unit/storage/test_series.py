"""Frames of a series in a file each: what is read is that of the sweep that asked for it."""

import os

import numpy as np
import pytest

from outgrid.device import bytes_at
from outgrid.native import Buffer
from outgrid.seal import Seal
from outgrid.storage import Planes, Transfers, frames_of
from outgrid.storage.series import SeriesStore
from outgrid.storage.staged import StagedStore, StagedTransfers
from outgrid.testing.stores import Shuffled

COUNT, SHAPE = 12, (7, 5, 64)


class Copying:
    """A device whose memory is that of the process; it copies at once."""

    def allocate_host(self, nbytes):
        self.held = Buffer(nbytes)
        return self.held.address

    def release_host(self, address):
        self.held.release()

    def mark(self):
        return None

    def done(self, mark):
        return True

    def wait(self, mark):
        pass

    def upload(self, parts, after):
        for part in parts:
            for row in range(part.rows):
                source = bytes_at(part.source + row * part.source_stride, part.row_bytes)
                bytes_at(part.to + row * part.to_stride, part.row_bytes)[:] = source


@pytest.fixture
def frames(tmp_path):
    """The values of each frame, and the frames."""
    values = np.random.default_rng(2).random((COUNT, *SHAPE))
    paths = [str(tmp_path / f"{number}.npy") for number in range(COUNT)]
    for path, frame in zip(paths, values, strict=True):
        np.save(path, frame)
    return values, dict(enumerate(frames_of(paths, "c", SHAPE, "float64")))


def store_of(frames, transfers):
    return SeriesStore("c", frames, SHAPE, (0, 0), transfers, np.dtype("float64"))


def opened(folder):
    """How many files of a folder the process has open."""
    links = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
    return sum(os.readlink(link).startswith(str(folder)) for link in links if os.path.lexists(link))


@pytest.mark.parametrize("late", [False, True])
def test_files_of_frames_are_closed_behind_the_sweeps(frames, tmp_path, late):
    values, given = frames
    transfers = Shuffled(seed=4) if late else Transfers("threads")
    store, into = store_of(given, transfers), np.zeros_like(values)
    for number in range(COUNT):
        store.hold(Seal("run", "c", number))
        store.get(range(SHAPE[0]), range(SHAPE[1]), Planes.of(into[number]))
        if not late:
            transfers.drain()
            assert opened(tmp_path) <= 4  # two files, and each of them for direct transfers as well
    transfers.drain()
    np.testing.assert_array_equal(into, values)
    assert opened(tmp_path) <= 4
    store.close()
    assert opened(tmp_path) == 0
    transfers.close()


@pytest.mark.parametrize("seed", range(3))
def test_pieces_that_wait_for_memory_are_of_the_sweep_that_asked(frames, seed):
    values, given = frames
    device, inner = Copying(), Shuffled(seed=seed)
    staged = StagedTransfers(inner, device, 1, 2 * values[0, 0].nbytes)
    store, into = StagedStore(store_of(given, inner), staged), np.zeros_like(values)
    for number in range(COUNT):
        store.hold(Seal("run", "c", number))
        store.get(range(SHAPE[0]), range(SHAPE[1]), Planes.of(into[number]))
    staged.drain()
    np.testing.assert_array_equal(into, values)
    staged.close()
