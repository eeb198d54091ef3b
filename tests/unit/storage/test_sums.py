import errno
import os

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrid.errors import StoreError, UsageError
from outgrid.formats.npy import header_bytes, read_header
from outgrid.storage import DirectStore, Planes, Transfers
from outgrid.storage.sums import sums_path
from outgrid.testing.stores import Shuffled

SHAPE = (12, 7, 33)


def put(store, transfers, planes, rows, values):
    store.put(planes, rows, Planes.of(values, rows))
    transfers.drain()


def get(store, transfers, planes, rows, into):
    store.get(planes, rows, Planes.of(into, rows))
    return transfers.drain()


@pytest.fixture
def written(tmp_path):
    """A field on disk with its checksums, and its values."""
    values = np.random.default_rng(1).random(SHAPE)
    path = tmp_path / "u.npy"
    with Transfers("threads") as transfers:
        store = DirectStore.create(path, SHAPE, "f8", transfers, sums=True)
        put(store, transfers, range(12), range(7), values)
        store.flush()
        transfers.drain()
        store.close()
    return path, values


def read_all(path):
    """Read a field plane by plane; the errors by plane."""
    into, errors = np.empty(SHAPE), {}
    with Transfers("threads") as transfers:
        store = DirectStore.open(path, transfers, sums=True)
        for plane in range(SHAPE[0]):
            store.get(range(plane, plane + 1), range(7), Planes.of(into[plane : plane + 1]))
            (ended,) = transfers.wait()
            if ended.error:
                errors[plane] = ended.error
        store.close()
    return into, errors


def test_a_header_is_as_it_was_written_or_refused(written):
    path, _ = written
    whole = path.read_bytes()
    places = [*range(160), *range(160, 4096, 97), 4095]
    with Transfers("threads", depth=1) as transfers:
        for place in places:
            for bit in range(8):
                changed = bytes([whole[place] ^ 1 << bit])
                path.write_bytes(whole[:place] + changed + whole[place + 1 :])
                with pytest.raises((StoreError, UsageError), match=path.name):
                    DirectStore.open(path, transfers, sums=True)
        # Such a change can leave a header that others read: numbers of the other byte order.
        place = whole.index(b"<f8")
        path.write_bytes(whole[:place] + b">" + whole[place + 1 :])
        assert read_header(path).dtype == np.dtype(">f8")
        with pytest.raises(StoreError, match=f"byte {place} is b'>', not b'<'"):
            DirectStore.open(path, transfers, sums=True)
        path.write_bytes(whole)
        DirectStore.open(path, transfers, sums=True).close()


def test_anybody_can_check_a_field_with_numpy_and_xxhash(written):
    path, values = written
    sums = np.load(sums_path(path))
    assert sums.shape == SHAPE[:2]
    assert (np.load(path) == values).all()
    for plane, row in np.ndindex(*SHAPE[:2]):
        assert sums[plane, row] == xxhash.xxh3_64_intdigest(values[plane, row].tobytes())


@pytest.mark.parametrize("row_bytes", [1, 239, 4095, 4096, 4097, 8191, 8192, 8193, 40_000])
def test_rows_of_any_length_have_the_sums_that_anybody_computes(tmp_path, row_bytes):
    values = np.random.default_rng(2).integers(0, 256, (3, 2, row_bytes), np.uint8)
    path = tmp_path / "u.npy"
    with Transfers("threads") as transfers:
        store = DirectStore.create(path, values.shape, "u1", transfers, sums=True)
        put(store, transfers, range(3), range(2), values)
        store.close()
    expected = [[xxhash.xxh3_64_intdigest(row.tobytes()) for row in plane] for plane in values]
    assert np.load(sums_path(path)).tolist() == expected


@given(st.data(), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_regions_written_and_read_in_any_order_are_found_right(tmp_path_factory, data, seed):
    path = tmp_path_factory.mktemp("sums") / "u.npy"
    rng = np.random.default_rng(seed)
    values, into = rng.random(SHAPE), np.zeros(SHAPE)
    cuts = data.draw(st.sets(st.integers(1, 6), max_size=3))
    strips = list(zip([0, *sorted(cuts)], [*sorted(cuts), 7], strict=True))
    step = data.draw(st.integers(1, 5))
    with Shuffled(seed) as transfers:
        store = DirectStore.create(path, SHAPE, "f8", transfers, sums=True)
        for first, last in strips:  # written in strips of rows, read whole, and the other way
            for plane in range(0, 12, step):
                planes = range(plane, min(12, plane + step))
                rows = range(first, last)
                store.put(planes, rows, Planes.of(values[planes.start : planes.stop], rows))
        transfers.drain()
        get(store, transfers, range(12), range(7), into)
        assert (into == values).all()
        for first, last in strips:
            get(store, transfers, range(12), range(first, last), into)
        store.close()
    assert (into == values).all()


@pytest.mark.parametrize("refused", [False, True])
def test_sums_are_asked_for_when_a_transfer_begins(refused, written, monkeypatch):
    path, values = written
    asked = []

    def advise(descriptor, offset, nbytes, advice):
        asked.append((offset, nbytes))
        if refused:
            raise OSError(errno.EINVAL, "no")

    monkeypatch.setattr(os, "posix_fadvise", advise)
    into = np.zeros((3, 7, 33))
    first = read_header(sums_path(path)).data_offset
    with Transfers("threads") as transfers:
        store = DirectStore.open(path, transfers, "rw", sums=True)
        store.get(range(2, 5), range(1, 5), Planes.of(into, range(1, 5)))
        assert asked == [(first + 8 * (7 * plane + 1), 8 * 4) for plane in (2, 3, 4)]
        transfers.drain()
        del asked[:]
        store.put(range(2, 5), range(7), Planes.of(values[2:5]))
        assert asked == [(first + 8 * 7 * 2, 8 * 7 * 3)]
        transfers.drain()
        store.close()
    assert (into[:, 1:5] == values[2:5, 1:5]).all()
    assert read_all(path)[1] == {}


def test_every_flipped_bit_is_found_and_named(written):
    path, values = written
    chance = np.random.default_rng(2)
    for _ in range(200):
        where, bit = int(chance.integers(4096, path.stat().st_size)), int(chance.integers(8))
        flip(path, where, bit)
        _, errors = read_all(path)
        cell = (where - 4096) // 8
        plane, row = cell // (7 * 33), cell // 33 % 7
        assert list(errors) == [plane]
        error = errors[plane]
        assert f"plane {plane} of 12 did not match the checksums" in str(error)
        assert f"the first is row {row} of plane {plane}" in str(error)
        expected = xxhash.xxh3_64_hexdigest(values[plane, row].tobytes())
        assert f"checksum expected {expected}, found " in str(error)
        assert (error.path, error.offset) == (path, 4096 + (plane * 7 + row) * 33 * 8)
        flip(path, where, bit)
    assert read_all(path)[1] == {}


def flip(path, where, bit):
    with path.open("r+b") as file:
        file.seek(where)
        (byte,) = file.read(1)
        file.seek(where)
        file.write(bytes([byte ^ 1 << bit]))


def test_swapped_stale_and_missing_planes_are_found(written):
    path, values = written
    nbytes, (fd) = SHAPE[1] * SHAPE[2] * 8, os.open(path, os.O_RDWR)
    try:
        planes = [os.pread(fd, nbytes, 4096 + plane * nbytes) for plane in range(12)]
        os.pwrite(fd, planes[3], 4096 + 5 * nbytes)
        os.pwrite(fd, planes[5], 4096 + 3 * nbytes)
        assert sorted(read_all(path)[1]) == [3, 5]
        os.pwrite(fd, planes[3] + planes[4] + planes[5], 4096 + 3 * nbytes)
        # Plane 7 is written anew, and the write is lost on its way.
        with Transfers("threads") as transfers:
            store = DirectStore.open(path, transfers, "rw", sums=True)
            put(store, transfers, range(7, 8), range(7), values[7:8] + 1)
            store.close()
        os.pwrite(fd, planes[7], 4096 + 7 * nbytes)
        assert sorted(read_all(path)[1]) == [7]
    finally:
        os.close(fd)


def test_a_row_that_was_never_written_is_no_row_of_zeroes(tmp_path):
    with Transfers("threads") as transfers:
        store = DirectStore.create(tmp_path / "u.npy", SHAPE, "f8", transfers, sums=True)
        with pytest.raises(StoreError, match=r"planes 2\.\.3 of 12.*\(never written\)"):
            get(store, transfers, range(2, 4), range(7), np.empty((2, 7, 33)))
        store.close()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.unlink(), "No such file"),
        (lambda path: os.truncate(path, 4100), "the file has 4100"),
        (lambda path: path.write_bytes(header_bytes((5, 0), "u8")), "cannot be those of 12 planes"),
    ],
)
def test_checksums_that_are_damaged_are_named(damage, words, written):
    path, _ = written
    damage(sums_path(path))
    with Transfers("threads") as transfers, pytest.raises(StoreError, match=words) as caught:
        DirectStore.open(path, transfers, sums=True)
    assert caught.value.path == sums_path(path)


def test_checksums_of_another_file_are_not_written_over(tmp_path):
    sums_path(tmp_path / "u.npy").write_text("precious")
    with Transfers("threads") as transfers, pytest.raises(StoreError) as caught:
        DirectStore.create(tmp_path / "u.npy", SHAPE, "f8", transfers, sums=True)
    assert caught.value.errno == errno.EEXIST
    assert [path.name for path in tmp_path.iterdir()] == ["u.npy.xxh3"]
    assert (tmp_path / "u.npy.xxh3").read_text() == "precious"


def test_a_flush_that_fails_for_one_of_two_files_fails(tmp_path, monkeypatch):
    with Transfers("threads") as transfers:
        store = DirectStore.create(tmp_path / "u.npy", SHAPE, "f8", transfers, sums=True)
        submit, calls = transfers._queue, iter(range(9))

        class Failing:
            def __getattr__(self, name):
                return getattr(submit, name)

            def wait(self, timeout_seconds=None):
                ended = submit.wait(timeout_seconds)
                return [Failed(each) if next(calls) == 0 else each for each in ended]

        class Failed:
            def __init__(self, ended):
                self.ticket, self.nbytes, self.seconds = ended.ticket, 0, 0.0
                self.errno, self.path, self.offset, self.length = 5, str(tmp_path / "u.npy"), 0, 0

        monkeypatch.setattr(transfers, "_queue", Failing())
        ticket = store.flush()
        (ended,) = transfers.wait()
        assert (ended.ticket, ended.error.errno) == (ticket, errno.EIO)
        assert transfers.outstanding == 0
        monkeypatch.undo()
        store.close()
