"""Random segments, written and read back through every engine, against a plain array of bytes."""

import itertools

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from outgrid import native

SPAN = 300_000  # bytes of the file
positions = st.one_of(
    st.integers(0, SPAN),
    st.integers(0, SPAN // 4096).map(lambda block: block * 4096),
    st.integers(0, SPAN // 512).map(lambda sector: sector * 512),
)


@st.composite
def regions(draw):
    """Sorted disjoint parts of the file: pieces between cuts, some of them left out."""
    cuts = sorted({*draw(st.lists(positions, min_size=2, max_size=12))})
    pieces = itertools.pairwise(cuts)
    return [(first, last) for first, last in pieces if draw(st.integers(0, 3))]


def move(submit, file, regions, memory, shifts):
    """Each region from or to memory as far into a block as in the file, and its shift further."""
    rows, place = [], memory.address
    for (first, last), shift in zip(regions, itertools.cycle(shifts), strict=False):
        place += (first - place) % 4096 + shift
        rows.append((first, place, last - first))
        place += last - first
    submit(file, np.array(rows, np.int64).reshape(-1, 3))
    return rows


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("engine", native.engines())
@given(
    written=st.lists(regions(), min_size=1, max_size=3),
    wanted=regions(),
    shifts=st.lists(st.sampled_from([0, 0, 512, 8, 1, 4095]), min_size=1, max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
def test_what_is_written_is_read(tmp_path_factory, engine, direct, written, wanted, shifts, seed):
    path = tmp_path_factory.mktemp("queue") / "a"
    queue = native.Queue(engine, depth=3, request_bytes=1 << 15, staging_bytes=3 << 13)
    file = native.File(path, "create", direct)
    file.reserve(SPAN)
    expected = np.zeros(SPAN, np.uint8)
    memory = native.Buffer(SPAN + 16 * 8192)
    values = native.as_array(memory, np.uint8)
    for part in written:
        values[:] = np.random.default_rng(seed).integers(1, 256, values.size, np.uint8)
        rows = move(queue.submit_write, file, part, memory, shifts)
        for offset, address, nbytes in rows:
            start = address - memory.address
            expected[offset : offset + nbytes] = values[start : start + nbytes]
        assert [(c.errno, c.nbytes) for c in queue.wait()] == [(0, sum(r[2] for r in rows))]
    values[:] = 0
    untouched = np.ones(values.size, bool)
    rows = move(queue.submit_read, file, wanted, memory, shifts)
    assert [(c.errno, c.nbytes) for c in queue.wait()] == [(0, sum(r[2] for r in rows))]
    for offset, address, nbytes in rows:
        read = slice(address - memory.address, address - memory.address + nbytes)
        assert (values[read] == expected[offset : offset + nbytes]).all()
        untouched[read] = False
    assert not values[untouched].any()
    assert (np.fromfile(path, np.uint8) == expected).all()
    queue.close()
    path.unlink()


@st.composite
def rows_in_memory(draw):
    """Bytes of a row; segments of whole rows, as gaps before them in the file and rows of each."""
    row_bytes = draw(st.one_of(st.integers(1, 600), st.sampled_from([4096, 8192, 8208, 40_000])))
    most = max(1, min(300, 100_000 // row_bytes))
    counts = draw(st.lists(st.integers(1, most), min_size=1, max_size=5))
    gaps = [draw(st.sampled_from([0, 0, 1, 512, 4096, 5000])) for _ in counts]
    return row_bytes, list(zip(gaps, counts, strict=True))


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("engine", native.engines())
@pytest.mark.parametrize("parts", [1, 3])
@given(
    rows=rows_in_memory(),
    shifts=st.lists(st.sampled_from([0, 0, 512, 64, 1]), min_size=1, max_size=3),
    seed=st.integers(0, 2**32 - 1),
)
def test_rows_have_their_sums_however_requests_cut_them(
    tmp_path_factory, engine, parts, direct, rows, shifts, seed
):
    row_bytes, segments = rows
    folder = tmp_path_factory.mktemp("sums")
    paths = [folder / str(part) for part in range(parts)]
    queue = native.Queue(engine, depth=2, request_bytes=1 << 14, staging_bytes=1 << 15)
    files = [native.File(path, "create", direct) for path in paths]
    for each in files:
        each.reserve(300_000)
    file = native.File.striped(files, 8192) if parts > 1 else files[0]
    places, offset, end = [], 0, 0
    for (gap, count), shift in zip(segments, itertools.cycle(shifts), strict=False):
        offset += gap
        places.append((offset, end + shift, count * row_bytes))
        offset += count * row_bytes
        end += count * row_bytes + 4096
    memory = native.Buffer(end)
    values = native.as_array(memory, np.uint8)
    table = np.array([(at, memory.address + place, n) for at, place, n in places], np.int64)
    values[:] = np.random.default_rng(seed).integers(0, 256, values.size, np.uint8)
    expected = [
        xxhash.xxh3_64_intdigest(values[at : at + row_bytes].tobytes())
        for _, place, nbytes in places
        for at in range(place, place + nbytes, row_bytes)
    ]
    for submit in (queue.submit_write, queue.submit_read):
        submit(file, table, row_bytes)
        (done,) = queue.wait()
        assert (done.errno, done.nbytes) == (0, sum(nbytes for _, _, nbytes in places))
        assert np.frombuffer(done.sums, np.uint64).tolist() == expected
        values[:] = 0
    queue.close()
    for path in paths:
        path.unlink()
