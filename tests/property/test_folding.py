"""Folded rows come out of files and go into them as they are there, however requests cut them."""

import itertools

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from outgrid import native

SPAN = 400_000  # bytes of a file


def folded(values, rows, vector_bytes, stride):
    """The bytes of rows as they lie folded, 0 beyond them; values are of shape (rows, bytes)."""
    chunk = vector_bytes // rows
    filled = np.pad(values, ((0, -len(values) % rows), (0, stride - values.shape[1])))
    groups = filled.reshape(-1, rows, stride // chunk, chunk)
    return groups.transpose(0, 2, 1, 3).ravel()


def apart(values, rows, stride):
    """The same before they are folded: whole groups, `stride` from row to row."""
    return np.pad(values, ((0, -len(values) % rows), (0, stride - values.shape[1]))).copy()


@st.composite
def foldings(draw):
    """Rows of a group, bytes of a vector, of a row and from row to row.

    A part of a vector has at least 4 bytes.
    """
    rows = draw(st.sampled_from([2, 4]))
    vector_bytes = draw(st.sampled_from([16, 32, 64, 128]))
    lines = draw(st.one_of(st.integers(1, 20), st.sampled_from([64, 75, 128, 257])))
    stride = 64 * lines if draw(st.integers(0, 4)) else vector_bytes // rows * lines
    row_bytes = stride - draw(st.sampled_from([0, 0, 1, 3, stride // 2]))
    return rows, vector_bytes, row_bytes, stride


@st.composite
def transfers(draw):
    """A folding, and segments: gaps in the file and in memory, and how many rows."""
    folding = draw(foldings())
    most = folding[0] * max(1, min(20, 60_000 // (folding[0] * folding[3])))
    counts = draw(st.lists(st.integers(0, most), min_size=1, max_size=5))
    gaps = st.sampled_from([0, 0, 1, 512, 4096, 5000])
    shifts = st.sampled_from([0, 0, 64, 4096, 4])
    return folding, [(draw(gaps), draw(shifts), count) for count in counts]


@given(foldings(), st.integers(1, 20), st.data())
def test_what_is_folded_is_unfolded_from_any_byte_on(folding, count, data):
    rows, vector_bytes, row_bytes, stride = folding
    values = np.random.default_rng(count).integers(0, 256, (count, row_bytes), np.uint8)
    memory = apart(values, rows, stride)
    memory[count:] = 7
    memory[:, row_bytes:] = 7
    native.fold(memory.ctypes.data, values.nbytes, (*folding, ()))
    assert memory.tobytes() == folded(values, rows, vector_bytes, stride).tobytes()
    begin = data.draw(st.integers(0, values.nbytes))
    end = data.draw(st.integers(begin, values.nbytes))
    for first, last in ((begin, end), (0, values.nbytes)):
        into = np.full(last - first + 2, 7, np.uint8)
        native.unfold(memory.ctypes.data, first, last, into.ctypes.data + 1, (*folding, ()))
        assert into[1:-1].tobytes() == values.tobytes()[first:last]
        assert (into[0], into[-1]) == (7, 7)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("engine", native.engines())
@given(
    transfer=transfers(),
    request_bytes=st.sampled_from([4096, 1 << 14, 1 << 18]),
    staging_bytes=st.sampled_from([1 << 14, 1 << 16, 1 << 20]),
    sums=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_file_has_rows_one_after_the_other(
    tmp_path_factory, engine, direct, parts, transfer, request_bytes, staging_bytes, sums, seed
):
    (rows, vector_bytes, row_bytes, stride), segments = transfer
    folding, choose = transfer[0], np.random.default_rng(seed)
    folder = tmp_path_factory.mktemp("folding")
    paths = [folder / str(part) for part in range(parts)]
    queue = native.Queue(engine, 2, request_bytes, staging_bytes)
    files = [native.File(path, "create", direct) for path in paths]
    for each in files:
        each.reserve(SPAN)
    file = native.File.striped(files, 8192) if parts > 1 else files[0]
    memory = native.Buffer(SPAN)
    window = native.as_array(memory, np.uint8)
    window[:] = before = choose.integers(0, 256, SPAN, np.uint8)
    whole = native.Buffer(SPAN)
    queue.submit_write(file, np.array([(0, memory.address, SPAN)], np.int64))
    assert [done.errno for done in queue.wait()] == [0]

    expected = before.copy()
    table, natural, places, offset, place = [], [], [], 0, 0
    for gap, shift, count in segments:
        values = choose.integers(0, 256, (count, row_bytes), np.uint8)
        offset, place = offset + gap, place + shift
        table.append((offset, memory.address + place, values.nbytes))
        lies = folded(values, rows, vector_bytes, stride)
        places.append(range(place, place + len(lies)))
        window[place : place + len(lies)] = lies
        expected[offset : offset + values.nbytes] = values.ravel()
        offset, place = offset + values.nbytes, place + len(lies)
        natural.append(values)
    table = np.array(table, np.int64)
    summed = [xxhash.xxh3_64_intdigest(row.tobytes()) for each in natural for row in each]
    total = (0, sum(each.nbytes for each in natural))
    given_sums = (row_bytes if sums else 0, (*folding, ()))
    kept = window.copy()

    queue.submit_write(file, table, *given_sums)
    (done,) = queue.wait()
    assert (done.errno, done.nbytes) == total
    assert np.frombuffer(done.sums, np.uint64).tolist() == (summed if sums else [])
    assert (window == kept).all()
    queue.submit_read(file, np.array([(0, whole.address, SPAN)], np.int64))
    queue.wait()
    assert (native.as_array(whole, np.uint8) == expected).all()

    window[:] = 3
    queue.submit_read(file, table, *given_sums)
    (done,) = queue.wait()
    assert (done.errno, done.nbytes) == total
    assert np.frombuffer(done.sums, np.uint64).tolist() == (summed if sums else [])
    for there in places:
        assert (window[there.start : there.stop] == kept[there.start : there.stop]).all()
        window[there.start : there.stop] = 3
    assert (window == 3).all()
    assert queue.statistics().folded_bytes == 2 * total[1]
    queue.close()
    for path in paths:
        path.unlink()


def test_a_file_of_memory_has_rows_one_after_the_other():
    file, queue = native.File.anonymous("u", SPAN), native.Queue("threads", 2, 8192, 1 << 15)
    values = np.random.default_rng(1).integers(0, 256, (40, 1088), np.uint8)
    memory = folded(values, 4, 64, 1088)
    kept = memory.copy()
    table = np.array([(100, memory.ctypes.data, memory.nbytes)], np.int64)
    queue.submit_write(file, table, 1088, (4, 64, 1088, 1088, ()))
    (written,) = queue.wait()
    plain = np.zeros_like(values)
    natural = np.array([(100, plain.ctypes.data, plain.nbytes)], np.int64)
    queue.submit_read(file, natural, 1088)
    (read,) = queue.wait()
    assert (plain == values).all()
    assert (memory == kept).all()
    memory[:] = 0
    queue.submit_read(file, table, 1088, (4, 64, 1088, 1088, ()))
    (again,) = queue.wait()
    assert (memory == kept).all()
    assert written.sums == read.sums == again.sums
    queue.close()


def test_a_read_that_fails_says_where(tmp_path):
    (tmp_path / "u").write_bytes(bytes(10_000))
    memory = np.zeros(16_384, np.uint8)
    for direct in (True, False):
        file = native.File(tmp_path / "u", "r", direct)
        queue = native.Queue()
        queue.submit_read(
            file,
            np.array([(0, memory.ctypes.data, 16_384)], np.int64),
            1024,
            (2, 64, 1024, 1024, ()),
        )
        (done,) = queue.wait()
        assert done.errno != 0
        queue.close()


@pytest.mark.parametrize(
    ("folding", "nbytes", "row_bytes", "message"),
    [
        ((3, 64, 64, 64), 192, 0, "cannot share vectors of 64"),
        ((4, 8, 64, 64), 256, 0, "cannot share vectors of 8"),
        ((4, 64, 72, 72), 288, 0, "4 rows of 72 bytes"),
        ((4, 64, 80, 64), 320, 0, "4 rows of 80 bytes, 64 from row to row"),
        ((4, 0, 64, 64), 256, 0, "cannot share vectors of 0"),
        ((0, 64, 64, 64), 256, 0, "0 rows"),
        ((4, 64, 64, 64), 100, 0, "100 bytes are no whole rows of 64"),
        ((4, 64, 64, 64), 256, 128, "rows of 128 bytes cannot be summed up"),
    ],
)
def test_rows_that_cannot_be_folded_are_refused(tmp_path, folding, nbytes, row_bytes, message):
    file, queue = native.File(tmp_path / "u", "create"), native.Queue()
    memory = np.zeros(nbytes, np.uint8)
    table = np.array([(0, memory.ctypes.data, nbytes)], np.int64)
    for submit in (queue.submit_read, queue.submit_write):
        with pytest.raises(ValueError, match=message):
            submit(file, table, row_bytes, (*folding, ()))
    assert queue.outstanding == 0
    if row_bytes == 0:
        with pytest.raises(ValueError, match=message):
            native.fold(memory.ctypes.data, nbytes, (*folding, ()))
    queue.close()


def test_the_ways_of_the_fold_that_are_fast_are_all_alike():
    for rows, vector_bytes in itertools.product((2, 4), (32, 64, 128)):
        values = np.random.default_rng(rows).integers(0, 256, (8 * rows, 2048), np.uint8)
        memory = values.copy()
        native.fold(memory.ctypes.data, memory.nbytes, (rows, vector_bytes, 2048, 2048, ()))
        assert memory.tobytes() == folded(values, rows, vector_bytes, 2048).tobytes()
