"""Rows of which parts are kept: what lies in memory between others, and whole in files."""

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from outgrid import native
from outgrid.plan.presence import nearest_rows
from outgrid.storage import MemoryStore, Planes, Transfers

SPAN = 1 << 18  # bytes of a file and of the memory before it
ITEM = 4


@st.composite
def parted(draw):
    """(bytes of a row, from row to row, parts): no part of a row meets one of another."""
    row_bytes = ITEM * draw(st.integers(2, 300))
    ends = draw(st.sets(st.integers(0, row_bytes), min_size=2, max_size=6))
    ends = sorted(ends)[: len(ends) // 2 * 2]
    parts = tuple(zip(ends[::2], ends[1::2], strict=True))
    total = sum(end - begin for begin, end in parts)
    apart = [
        stride
        for stride in range(total, row_bytes + 1)
        if len({at % stride for begin, end in parts for at in range(begin, end)}) == total
    ]
    return row_bytes, draw(st.sampled_from(apart[:3] + apart[-1:])), parts


def laid(values, stride, parts, memory, place):
    """Puts the parts of rows where they lie; returns which bytes these are."""
    there = np.zeros(memory.size, bool)
    for number, row in enumerate(values):
        for begin, end in parts:
            first = place + number * stride + begin
            assert not there[first : first + end - begin].any()
            there[first : first + end - begin] = True
            memory[first : first + end - begin] = row[begin:end]
    return there


def rows_of(choose, count, row_bytes, parts):
    """Rows as they are in a file: 0 but for the parts."""
    values = np.zeros((count, row_bytes), np.uint8)
    for begin, end in parts:
        values[:, begin:end] = choose.integers(0, 256, (count, end - begin))
    return values


@given(parted(), st.integers(1, 20), st.data())
def test_what_lies_in_parts_comes_from_any_byte_on(how, count, data):
    row_bytes, stride, parts = how
    choose = np.random.default_rng(count)
    values = rows_of(choose, count, row_bytes, parts)
    folding = (1, 0, row_bytes, stride, parts)
    memory = np.full((count - 1) * stride + row_bytes + 2, 7, np.uint8)
    there = laid(values, stride, parts, memory, 1)
    begin = data.draw(st.integers(0, values.nbytes))
    end = data.draw(st.integers(begin, values.nbytes))
    into = np.full(end - begin + 2, 7, np.uint8)
    native.unfold(memory.ctypes.data + 1, begin, end, into.ctypes.data + 1, folding)
    assert into[1:-1].tobytes() == values.tobytes()[begin:end]
    assert (into[0], into[-1]) == (7, 7)

    again = np.full_like(memory, 7)
    flat = values.ravel()
    for first, last in ((0, begin), (begin, end), (end, values.nbytes)):
        native.put_parts(flat.ctypes.data + first, first, last, again.ctypes.data + 1, folding)
    assert (again == memory).all()
    assert (again[~there] == 7).all()


@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("engine", native.engines())
@given(
    how=parted(),
    counts=st.lists(
        st.tuples(st.sampled_from([0, 0, 5, 512, 5000]), st.integers(1, 40)), max_size=4
    ),
    request_bytes=st.sampled_from([4096, 1 << 14, 1 << 18]),
    staging_bytes=st.sampled_from([1 << 14, 1 << 16, 1 << 20]),
    sums=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_file_has_whole_rows(
    tmp_path_factory, engine, direct, files, how, counts, request_bytes, staging_bytes, sums, seed
):
    row_bytes, stride, parts = how
    choose, folder = np.random.default_rng(seed), tmp_path_factory.mktemp("parts")
    queue = native.Queue(engine, 2, request_bytes, staging_bytes)
    each = [native.File(folder / str(n), "create", direct) for n in range(files)]
    for one in each:
        one.reserve(SPAN)
    file = native.File.striped(each, 8192) if files > 1 else each[0]
    memory, whole = native.Buffer(SPAN), native.Buffer(SPAN)
    window = native.as_array(memory, np.uint8)
    expected = choose.integers(0, 256, SPAN, np.uint8)
    native.as_array(whole, np.uint8)[:] = expected
    queue.submit_write(file, np.array([(0, whole.address, SPAN)], np.int64))
    queue.wait()

    window[:] = 3
    table, summed, there, offset, place = [], [], np.zeros(SPAN, bool), 0, 64
    for gap, count in counts:
        values = rows_of(choose, count, row_bytes, parts)
        offset, place = offset + gap, place + gap
        table.append((offset, memory.address + place, values.nbytes))
        there |= laid(values, stride, parts, window, place)
        expected[offset : offset + values.nbytes] = values.ravel()
        offset, place = offset + values.nbytes, place + (count - 1) * stride + row_bytes
        summed += [xxhash.xxh3_64_intdigest(row.tobytes()) for row in values]
    table = np.array(table, np.int64).reshape(-1, 3)
    kept, given_sums = window.copy(), (row_bytes if sums else 0, (1, 0, row_bytes, stride, parts))

    queue.submit_write(file, table, *given_sums)
    (done,) = queue.wait()
    assert (done.errno, done.nbytes) == (0, table[:, 2].sum())
    assert np.frombuffer(done.sums, np.uint64).tolist() == (summed if sums else [])
    assert (window == kept).all()
    queue.submit_read(file, np.array([(0, whole.address, SPAN)], np.int64))
    queue.wait()
    assert (native.as_array(whole, np.uint8) == expected).all()

    window[there] = 9
    queue.submit_read(file, table, *given_sums)
    (done,) = queue.wait()
    assert (done.errno, done.nbytes) == (0, table[:, 2].sum())
    assert np.frombuffer(done.sums, np.uint64).tolist() == (summed if sums else [])
    assert (window == kept).all()
    queue.close()


@pytest.mark.parametrize(
    ("parts", "stride", "message"),
    [
        (((0, 64), (128, 192)), 64, "bytes 0 to 64 of a row lie where bytes 128 to 192 of another"),
        (((0, 64), (100, 164)), 128, "bytes 0 to 64 of a row lie where bytes 100 to 164"),
        (((0, 130),), 128, "no longer than from row to row"),
        (((64, 128), (0, 32)), 256, "in order and apart"),
        (((0, 260),), 512, "in order and apart"),
        (((8, 8),), 256, "in order and apart"),
    ],
)
def test_parts_that_meet_are_refused(tmp_path, parts, stride, message):
    file, queue = native.File(tmp_path / "u", "create"), native.Queue()
    memory = np.zeros(4096, np.uint8)
    table = np.array([(0, memory.ctypes.data, 512)], np.int64)
    for submit in (queue.submit_read, queue.submit_write):
        with pytest.raises(ValueError, match=message):
            submit(file, table, 0, (1, 0, 256, stride, parts))
    with pytest.raises(ValueError, match="100 bytes are no whole rows"):
        queue.submit_read(
            file, np.array([(0, memory.ctypes.data, 100)], np.int64), 0, (1, 0, 256, 256, ((0, 8),))
        )
    assert queue.outstanding == 0
    queue.close()


@given(parted(), st.integers(1, 9))
def test_stores_in_memory_keep_whole_rows(how, count):
    row_bytes, stride, parts = how
    values = rows_of(np.random.default_rng(count), count, row_bytes, parts)
    with Transfers("threads") as transfers:
        array = np.full((1, count, row_bytes), 7, np.uint8)
        store = MemoryStore("u", array, transfers)
        memory = np.full((count - 1) * stride + row_bytes, 5, np.uint8)
        there = laid(values, stride, parts, memory, 0)
        kept = memory.copy()
        planes = Planes(np.array([memory.ctypes.data]), stride, memory, parts=parts)
        store.put(range(1), range(count), planes)
        transfers.wait(10)
        assert (array[0] == values).all()
        memory[there] = 9
        store.get(range(1), range(count), planes)
        transfers.wait(10)
        assert (memory == kept).all()


@given(
    st.lists(st.integers(0, 300), min_size=2, max_size=6, unique=True),
    st.integers(0, 4),
    st.sampled_from(["float32", "float64"]),
)
def test_rows_lie_as_near_each_other_as_what_they_read_lets_them(ends, reach, dtype):
    ends, columns = sorted(ends)[: len(ends) // 2 * 2], 301
    filled = tuple(zip(ends[::2], ends[1::2], strict=True))
    line = 64 // np.dtype(dtype).itemsize
    near = np.zeros(-(-columns // line) * line, bool)
    for first, end in filled:
        near[max(0, first - reach) : min(columns, end + reach)] = True
    near = np.repeat(near.reshape(-1, line).any(axis=1), line)[:columns]
    cuts = np.flatnonzero(np.diff(near, prepend=False, append=False)).tolist()
    bands = tuple(zip(cuts[::2], cuts[1::2], strict=True))
    beyond = [
        at
        for first, end in bands
        for at in (*range(first - reach, first), *range(end, end + reach))
    ]
    beyond = [at for at in beyond if 0 <= at < columns and not near[at]]

    def right(stride):
        """Whether rows do not meet, and cells that are read beside their bands are +0."""
        rows = columns // stride + 2
        full = np.zeros((rows - 1) * stride + len(near) + 1, int)
        for row in range(rows):
            held = full[row * stride : row * stride + columns]
            if held[near].any():
                return False
            held[near] = 1
            for first, end in filled:
                held[first:end] = 2
        middle = [row * stride + at for row in range(rows) for at in beyond]
        return not (full[middle] == 2).any()

    stride = nearest_rows(bands, filled, reach, columns, dtype)
    whole = -(-columns // line) * line
    assert stride % line == 0
    assert stride == whole or right(stride)
    assert not any(right(apart) for apart in range(line, stride, line))
