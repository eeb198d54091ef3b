"""Products of matrices in files: any shape, type, order, chunk, method and number of files."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outgrid as og
from outgrid.build.compiler import find_compiler
from outgrid.errors import InfeasiblePlan, StoreError, UsageError
from outgrid.matrix.onto import Upload
from outgrid.matrix.product import StreamedMatrix
from outgrid.matrix.sources import SOURCES
from outgrid.matrix.stages import ahead
from outgrid.testing.device import SlowDevice

ROOM = 64 << 20


def saved(folder, values, files=1):
    paths = []
    for number, part in enumerate(np.array_split(values, files)):
        paths.append(folder / f"part{number}.npy")
        np.save(paths[-1], part)
    return paths


@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_any_product_agrees_with_numpy(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("matrix")
    rows, columns = data.draw(st.integers(1, 70)), data.draw(st.integers(1, 600))
    dtype = data.draw(st.sampled_from(["float64", "float32", "complex128", ">f8", "int16"]))
    files = data.draw(st.integers(1, min(3, rows)))
    random = np.random.default_rng(rows * columns)
    values = (100 * random.standard_normal((rows, columns))).astype(dtype)
    if values.dtype.kind == "c":
        values += 1j * random.standard_normal((rows, columns))
    if files == 1 and data.draw(st.booleans()):
        values = np.asfortranarray(values)
    matrix = StreamedMatrix(
        saved(folder, values, files),
        ROOM,
        method=data.draw(st.sampled_from(list(SOURCES))),
        chunk_bytes=data.draw(st.integers(1, 20000)),
        overlap=data.draw(st.booleans()),
    )
    assert matrix.shape == values.shape
    width = data.draw(st.sampled_from([(), (1,), (3,)]))
    right = random.standard_normal((columns, *width))
    left = random.standard_normal((rows, *width)).astype("float32")
    for _ in range(2):  # the second product finds rows in memory
        np.testing.assert_allclose(matrix.matmat(right), values @ right, rtol=1e-9, atol=1e-9)
        single = np.result_type(values, left).char in "fF"
        np.testing.assert_allclose(
            matrix.rmatmat(left),
            values.conj().T @ left,
            rtol=1e-4 if single else 1e-9,
            atol=1e-2 if single else 1e-9,
        )


@pytest.mark.parametrize("method", SOURCES)
@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0)])
def test_a_matrix_without_elements_is_one_of_zeroes(tmp_path, method, shape):
    matrix = StreamedMatrix(saved(tmp_path, np.ones(shape)), ROOM, method=method)
    rows, columns = shape
    assert matrix.matmat(np.ones((columns, 2))).tolist() == [[0.0, 0.0]] * rows
    assert matrix.rmatmat(np.ones(rows)).tolist() == [0.0] * columns


@pytest.mark.parametrize("method", SOURCES)
def test_the_same_bits_whatever_is_kept_and_overlapped(tmp_path, method):
    values = np.random.default_rng(3).standard_normal((300, 500))
    paths = saved(tmp_path, values, 2)
    right = np.random.default_rng(4).standard_normal(300)
    found = []
    for memory_bytes, overlap in ((ROOM, True), (ROOM, False), (18 << 20, True)):
        matrix = StreamedMatrix(
            paths, memory_bytes, method=method, chunk_bytes=40000, overlap=overlap
        )
        found += [matrix.rmatmat(right).tobytes() for _ in range(2)]
    assert len(set(found)) == 1


def test_what_memory_leaves_over_is_kept_and_not_read_again(tmp_path):
    (path,) = saved(tmp_path, np.ones((100, 1000)))
    matrix = StreamedMatrix([path], (8 << 20) + 400_000, chunk_bytes=80_000, method="pread")
    assert 0 < matrix.kept_bytes < matrix.nbytes
    ones = np.ones(1000)
    assert (matrix.matmat(ones) == 1000).all()
    with open(path, "r+b") as file:  # every row of the file becomes zeroes
        file.seek(128)
        file.write(bytes(matrix.nbytes))
    kept_rows = matrix.kept_bytes // 8000
    assert matrix.matmat(ones).tolist() == [1000.0] * kept_rows + [0.0] * (100 - kept_rows)


def test_a_copying_stage_sees_every_block_once(tmp_path):
    values = np.random.default_rng(5).standard_normal((64, 512))
    (path,) = saved(tmp_path, values)
    seen, events = [], []

    def to_device(block):
        seen.append(block.rows)
        return type(block)(block.rows, block.values.copy())

    matrix = StreamedMatrix([path], ROOM, chunk_bytes=4096 * 5, copies=[to_device], events=events)
    np.testing.assert_allclose(matrix.matmat(np.ones(512)), values.sum(1), atol=1e-9)
    assert [row for rows in seen for row in rows] == list(range(64))
    stages = {event.stage for event in events}
    assert stages == {"read", "to_device", "multiply"}
    assert all(event.begin <= event.end for event in events)


def test_a_failed_read_comes_out_and_no_thread_stays(tmp_path):
    paths = saved(tmp_path, np.ones((64, 512)), 2)
    matrix = StreamedMatrix(paths, ROOM, chunk_bytes=8192, method="pread")
    with open(paths[1], "r+b") as file:
        file.truncate(9000)
    matrix._to_keep = frozenset()
    before = threading.active_count()
    with pytest.raises(StoreError, match="ends before its data"):
        matrix.matmat(np.ones(512))
    assert threading.active_count() == before


def test_ahead_never_makes_more_than_it_may():
    made, used = [], []

    def items():
        for number in range(20):
            made.append(number)
            assert number - len(used) < 3
            yield number

    for number in ahead(items(), 3):
        used.append(number)
    assert used == made == list(range(20))


def test_mistakes_are_named(tmp_path):
    (path,) = saved(tmp_path, np.ones((10, 10)))
    cube = tmp_path / "cube.npy"
    np.save(cube, np.ones((2, 2, 2)))
    wide = tmp_path / "wide.npy"
    np.save(wide, np.ones((10, 11)))
    with pytest.raises(UsageError, match="2 axes"):
        og.matrix(cube)
    with pytest.raises(UsageError, match="cannot be parts"):
        og.matrix([path, wide])
    with pytest.raises(UsageError, match="did you mean 'pread'"):
        og.matrix(path, method="read")
    with pytest.raises(UsageError, match="first axis must be 10"):
        StreamedMatrix([path], ROOM).matmat(np.ones(9))
    with pytest.raises(InfeasiblePlan, match="too small for two rows"):
        og.matrix(path, memory="1MiB")


def test_an_operator_for_scipy_stays_within_its_memory(tmp_path):
    """A process that may keep 48 MiB of a matrix of 192 MiB grows by no more than that."""
    path = tmp_path / "large.npy"
    script = f"""
import numpy as np, outgrid as og
from outgrid.machine import peak_memory_bytes, reset_peak_memory
from scipy.sparse.linalg import eigsh
side = 5016
matrix = np.lib.format.open_memmap({str(path)!r}, "w+", "float64", (side, side))
for start in range(0, side, 264):
    matrix[start : start + 264] = 0.001
matrix[np.arange(side), np.arange(side)] += np.arange(side)
matrix[7, 7] = 1e5
matrix.flush()
del matrix
np.ones((500, 500)) @ np.ones((500, 500))  # the memory of BLAS itself
og.matrix  # and that of the modules that it loads
reset_peak_memory()
before = peak_memory_bytes()
operator = og.matrix({str(path)!r}, memory="48MiB")
values = eigsh(operator, k=1, tol=1e-6, return_eigenvectors=False)
assert abs(values[0] - 1e5) < 0.01, values
grown = peak_memory_bytes() - before
assert grown < 48 << 20, grown
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100)


@pytest.mark.parametrize("pinned", [True, False])
def test_products_on_a_device_are_those_of_the_processor(tmp_path, pinned):
    values = np.random.default_rng(5).standard_normal((64, 512))
    paths, events = saved(tmp_path, values), []
    for seed in range(3):  # copies end late, and spoil what they were made from
        device = SlowDevice("struct Slab {};", find_compiler(), seed)
        onto = Upload(device, pinned=pinned)
        matrix = StreamedMatrix(paths, ROOM, chunk_bytes=4096 * 5, onto=onto, events=events)
        for _ in range(2):
            np.testing.assert_allclose(matrix.matmat(values[0]), values @ values[0], atol=1e-9)
        np.testing.assert_allclose(matrix.rmatmat(np.ones(64)), values.sum(0), atol=1e-12)
        assert {event.stage for event in events} == {"read", "upload", "multiply"}
        onto.release()
        assert device.allocations == 0


def test_a_device_has_room_for_chunks_wherever_they_are_read_from(tmp_path, monkeypatch):
    values = np.random.default_rng(5).standard_normal((64, 512))
    paths, device = saved(tmp_path, values), SlowDevice("struct Slab {};", find_compiler())
    monkeypatch.setattr(device, "_lasts", lambda address: True)  # pages of a file
    onto = Upload(device)
    for rows in (2, 5):
        matrix = StreamedMatrix(paths, ROOM, method="mmap", chunk_bytes=4096 * rows, onto=onto)
        np.testing.assert_allclose(matrix.matmat(values[0]), values @ values[0], atol=1e-9)
    onto.release()
    assert device.allocations == 0


@pytest.mark.parametrize("rows", [(10, 54), (32, 32), (50, 13, 1)])
def test_several_files_on_a_device_give_the_product_of_one(tmp_path, rows):
    values = np.random.default_rng(6).standard_normal((64, 512))
    paths = []
    for part in np.split(values, np.cumsum(rows)[:-1]):
        paths.append(tmp_path / f"{len(paths)}.npy")
        np.save(paths[-1], part)
    for seed in range(3):
        device = SlowDevice("struct Slab {};", find_compiler(), seed)
        onto = Upload(device)
        matrix = StreamedMatrix(paths, ROOM, chunk_bytes=4096 * 12, onto=onto)
        np.testing.assert_allclose(matrix.matmat(values[0]), values @ values[0], atol=1e-9)
        np.testing.assert_allclose(matrix.rmatmat(np.ones(64)), values.sum(0), atol=1e-12)
        onto.release()
        assert device.allocations == 0


@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_stripes_hold_what_the_file_held(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("striped")
    rows, columns = data.draw(st.integers(1, 80)), data.draw(st.integers(1, 900))
    parts = [folder / f"{part}.part" for part in range(data.draw(st.integers(2, 4)))]
    stripe = 4096 * data.draw(st.integers(1, 4))
    values = np.random.default_rng(rows).standard_normal((rows, columns))
    if data.draw(st.booleans()):
        values = np.asfortranarray(values)
    np.save(folder / "whole.npy", values)
    og.stripe(folder / "whole.npy", parts, stripe=stripe)
    right = np.ones(columns)
    chunk = data.draw(st.integers(1, 60000))
    whole = StreamedMatrix([folder / "whole.npy"], ROOM, chunk_bytes=chunk).matmat(right)
    striped = StreamedMatrix(parts, ROOM, chunk_bytes=chunk, stripe_bytes=stripe)
    assert striped.matmat(right).tobytes() == whole.tobytes()


def test_a_wrong_stripe_is_named_where_lengths_do_not_tell(tmp_path):
    (path,) = saved(tmp_path, np.ones((16, 1023)))  # 32 blocks with its header
    assert path.stat().st_size == 32 * 4096
    parts = [tmp_path / "a", tmp_path / "b"]
    og.stripe(path, parts, stripe="8KiB")
    for stripe in ("4KiB", "16KiB", "32KiB", "64KiB"):
        with pytest.raises(UsageError, match="in stripes of 8192 bytes, not"):
            og.matrix(parts, stripe=stripe)


def test_mistakes_with_stripes_are_named(tmp_path):
    (path,) = saved(tmp_path, np.ones((100, 1000)))
    parts = [tmp_path / "a", tmp_path / "b"]
    with pytest.raises(UsageError, match="must be a multiple of 4096"):
        og.stripe(path, parts, stripe=1000)
    with pytest.raises(UsageError, match="two different paths"):
        og.stripe(path, [parts[0], parts[0]])
    og.stripe(path, parts, stripe="64KiB")
    with pytest.raises(UsageError, match="exists"):
        og.stripe(path, parts, stripe="64KiB")
    for paths, stripe, words in (
        (parts[::-1], "64KiB", "b is part 2 of 2 in stripes of 65536 bytes, not part 1 of 2"),
        (parts, "256KiB", "a is part 1 of 2 in stripes of 65536 bytes, not .* of 262144 bytes"),
        (parts[:1], "64KiB", "need several paths"),
        ([*parts, path], "64KiB", "a is part 1 of 2 .*, not part 1 of 3 .*give the paths in"),
        ([path, parts[1]], "64KiB", "is no part that og.stripe wrote"),
    ):
        with pytest.raises(UsageError, match=words):
            og.matrix(paths, stripe=stripe)
    with pytest.raises(UsageError, match="needs method 'direct'"):
        og.matrix(parts, stripe="64KiB", method="mmap")
    with open(parts[1], "r+b") as file:  # cut short, with its mark
        mark = file.read()[-128:]
        file.truncate(4096)
        file.seek(0, 2)
        file.write(mark)
    with pytest.raises(UsageError, match="b has 4224 bytes; of 800128 in stripes of 65536 over"):
        og.matrix(parts, stripe="64KiB")
    parts[1].unlink()
    with pytest.raises(StoreError, match="cannot read"):
        og.matrix(parts, stripe="64KiB")


class Together:
    """Ranks as threads: what `share` needs of them."""

    def __init__(self, rank, size, barrier, values):
        self.rank, self.size, self.local = rank, size, size
        self.barrier, self.values = barrier, values

    def share(self, value):
        self.values[self.rank] = value
        self.barrier.wait(30)
        told = list(self.values)
        self.barrier.wait(30)
        return told


@pytest.mark.parametrize(("files", "ranks"), [(1, 2), (3, 3), (2, 4), (1, 7)])
def test_ranks_share_a_product(tmp_path, files, ranks):
    values = np.random.default_rng(7).standard_normal((40, 300))
    paths, right, left = saved(tmp_path, values, files), np.ones((300, 2)), np.ones(40)
    alone = StreamedMatrix(paths, ROOM, chunk_bytes=2400 * 7)
    barrier, shared = threading.Barrier(ranks), [None] * ranks
    found, read = [None] * ranks, [None] * ranks

    def run(rank):
        comm = Together(rank, ranks, barrier, shared)
        matrix = StreamedMatrix(paths, ROOM, chunk_bytes=2400 * 7, comm=comm)
        read[rank] = [row for chunks in matrix._chunks for chunk in chunks for row in chunk.rows]
        found[rank] = matrix.matmat(right), matrix.rmatmat(left)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(row for rows in read for row in rows) == list(range(40))
    if files == ranks:
        assert len({len(rows) for rows in read}) <= 2  # each has its file
    for product, transposed in found:
        assert product.tobytes() == alone.matmat(right).tobytes()
        assert transposed.tobytes() == found[0][1].tobytes()
        np.testing.assert_allclose(transposed, left @ values, atol=1e-12)
