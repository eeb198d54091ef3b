"""Planes whose rows lie folded in memory, from and to every store that moves them so."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outgrid.execute.packing import packed
from outgrid.folding import Folding
from outgrid.native import Buffer, as_array
from outgrid.seal import Seal
from outgrid.storage import (
    BesideStore,
    DirectStore,
    GivenStore,
    MemoryStore,
    NewField,
    Parts,
    Planes,
    SpreadStore,
    Transfers,
    TransposedStore,
    Uncopied,
    create_store,
    frames_of,
)
from outgrid.storage.series import SeriesStore
from outgrid.storage.staged import StagedStore, StagedTransfers
from outgrid.testing.stores import Shuffled, Volatile

WRITTEN = ["memory", "volatile", "direct", "buffered", "mmap", "swap", "spread", "beside"]
READ = ["packed", "given", "series", "filled series"]


def stride_of(columns, itemsize):
    """Bytes from row to row: whole lines."""
    return -(-columns * itemsize // 64) * 64


def folded(values, folding):
    """Values of shape (planes, rows, x) as their planes lie folded; a row for each plane.

    What there is beyond rows, and in the last group beyond the last of them, is 0.
    """
    planes, rows, columns = values.shape
    items = folding.vector_bytes // folding.rows // values.itemsize
    beyond = stride_of(columns, values.itemsize) // values.itemsize - columns
    filled = np.pad(values, ((0, 0), (0, -rows % folding.rows), (0, beyond)))
    groups = filled.reshape(planes, -1, folding.rows, filled.shape[2] // items, items)
    return groups.transpose(0, 1, 3, 2, 4).reshape(planes, -1)


def begun(kind, folder, values, transfers):
    """A store of some kind; one that is only read holds the values."""
    path, shape, dtype = folder / "u.npy", values.shape, values.dtype
    if kind in ("memory", "volatile"):
        made = MemoryStore if kind == "memory" else Volatile
        return made("u", np.zeros(shape, dtype), transfers)
    if kind in ("direct", "buffered"):
        direct = kind == "direct"
        return DirectStore.create(path, shape, dtype, transfers, direct=direct, sums=True)
    if kind == "spread":
        parts = Parts(tuple((folder / f"u.{part}", 4096 * part) for part in range(3)), 8192)
        return SpreadStore.make(path, shape, dtype, transfers, parts, sums=True)
    if kind == "beside":
        stores = []
        for number, rows in enumerate((4, shape[1] - 4)):
            (folder / str(number)).mkdir()
            part = folder / str(number) / "u.npy", (shape[0], rows, shape[2]), dtype, transfers
            stores.append(DirectStore.create(*part, sums=True))
        return BesideStore(stores, 0, transfers)
    if kind == "packed":
        store = MemoryStore("u", values, transfers)
        return packed(store, folder / "u.packed", transfers, 1 << 20, 2)
    if kind == "given":
        path.write_bytes(b"head" + values.tobytes())
        return GivenStore.at(Uncopied.of(path, 4), "u", shape, str(dtype), transfers)
    if kind in ("series", "filled series"):
        lacks = 2 if kind == "filled series" else None
        np.save(path, values[..., 0] if lacks else values)
        frames = frames_of([str(path)], "u", shape, str(dtype), lacks)
        store = SeriesStore("u", {0: frames[0]}, shape, (0, 0), transfers, dtype, lacks)
        store.hold(Seal(run="r", name="u", step=0))
        return store
    return create_store(kind, NewField(path, shape, dtype), transfers)


def window_of(planes, nbytes, order, folding):
    """Memory of planes that lie in some order, a gap between them, and what says where."""
    pitch = nbytes + 192
    memory = Buffer(planes * pitch)
    slots = as_array(memory, np.uint8).reshape(-1)[: planes * pitch].reshape(planes, pitch)
    slots[:] = 0xFF
    addresses = memory.address + np.array(order, np.int64) * pitch
    return slots[:, :nbytes], Planes(addresses, 0, memory, folding)


@st.composite
def regions(draw):
    """A folding, a shape, a type, and a part of the planes and of rows.

    These begin with a group, and end with one or with the plane.
    """
    folding = Folding(draw(st.sampled_from([2, 4])), draw(st.sampled_from([32, 64])))
    dtype = np.dtype(draw(st.sampled_from(["float32", "float64"])))
    lines = draw(st.sampled_from([1, 3, 16, 25]))
    planes, height = draw(st.integers(1, 6)), draw(st.integers(5, 50))
    columns = 64 * lines // dtype.itemsize + draw(st.sampled_from([0, 0, 1, 13]))
    shape = planes, height, columns
    first = sorted(draw(st.tuples(st.integers(0, planes), st.integers(0, planes))))
    rows = draw(st.tuples(*2 * [st.integers(0, -(-height // folding.rows))]))
    rows = sorted(min(height, group * folding.rows) for group in rows)
    return folding, dtype, shape, range(*first), range(*rows)


def transfers_of(late):
    sizes = {"depth": 2, "request_bytes": 1 << 13, "staging_bytes": 1 << 15}
    return Shuffled(3) if late else Transfers("threads", **sizes)


ways = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def put_and_get(store, transfers, values, region, slots, memory):
    """Put a region of values, which lies in ``slots``, over others, and get it again."""
    whole, (planes, rows) = (range(values.shape[0]), range(values.shape[1])), region
    before, expected = slots.copy(), values + 1
    store.put(*whole, Planes.of(expected))
    transfers.drain()
    there = slice(planes.start, planes.stop), slice(rows.start, rows.stop)
    expected[there] = values[there]
    store.put(planes, rows, memory)
    transfers.drain()
    assert (slots == before).all()
    plain = np.full_like(values, np.nan)
    store.get(*whole, Planes.of(plain))  # with the checksums of whole rows
    transfers.drain()
    assert plain.tobytes() == expected.tobytes()
    slots[:] = 0xFF
    store.get(planes, rows, memory)
    transfers.drain()
    assert (slots == before).all()
    store.close()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kind", WRITTEN)
@ways
@given(regions(), st.randoms(use_true_random=False))
def test_a_region_is_put_and_got_folded(tmp_path_factory, kind, late, region, choose):
    folding, dtype, shape, planes, rows = region
    folder = tmp_path_factory.mktemp("folding")
    values = np.random.default_rng(len(rows)).standard_normal(shape).astype(dtype)
    order = list(range(len(planes)))
    choose.shuffle(order)
    with transfers_of(late) as transfers:
        part = values[planes.start : planes.stop, rows.start : rows.stop]
        lies = folded(part, folding).view(np.uint8) if part.size else np.empty((len(planes), 0))
        slots, memory = window_of(max(1, len(planes)), lies.shape[1], order, folding)
        stride = stride_of(shape[2], dtype.itemsize)
        memory = Planes(memory.addresses, stride, memory.owner, folding)
        slots[order] = lies
        store = begun(kind, folder, values, transfers)
        put_and_get(store, transfers, values, (planes, rows), slots, memory)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kind", READ)
@ways
@given(regions())
def test_a_region_of_what_is_only_read_is_got_folded(tmp_path_factory, kind, late, region):
    folding, dtype, shape, planes, rows = region
    values = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    if kind == "packed":
        values[:] = np.linspace(1, 2, shape[1], dtype=dtype)[:, None]  # can be packed
    elif kind == "filled series":
        values[:] = values[..., :1]
    with transfers_of(late) as transfers:
        store = begun(kind, tmp_path_factory.mktemp("folding"), values, transfers)
        for wanted in (rows, range(shape[1])):
            part = values[planes.start : planes.stop, wanted.start : wanted.stop]
            if not part.size:
                continue
            lies = folded(part, folding)
            slots, memory = window_of(len(planes), lies[0].nbytes, range(len(planes)), folding)
            stride = stride_of(shape[2], dtype.itemsize)
            memory = Planes(memory.addresses, stride, memory.owner, folding)
            store.get(planes, wanted, memory)
            transfers.drain()
            assert slots.tobytes() == lies.tobytes()
        if kind == "packed" and values[0].nbytes > 1 << 15 and planes:
            assert transfers.statistics().unpacked_bytes > 0
        store.close()


@st.composite
def narrow_regions(draw):
    """Columns that are kept, cells from row to row, a shape, a type, and a part of the field."""
    dtype = np.dtype(draw(st.sampled_from(["float32", "float64"])))
    planes, height = draw(st.integers(1, 6)), draw(st.integers(1, 50))
    columns = draw(st.integers(2, 300))
    ends = sorted(draw(st.sets(st.integers(0, columns), min_size=2, max_size=4)))
    ends = ends[: len(ends) // 2 * 2]
    bands = tuple(zip(ends[::2], ends[1::2], strict=True))
    kept = [column for first, end in bands for column in range(first, end)]
    fit = (n for n in range(len(kept), columns + 1) if len({at % n for at in kept}) == len(kept))
    first = sorted(draw(st.tuples(st.integers(0, planes), st.integers(0, planes))))
    rows = sorted(draw(st.tuples(st.integers(0, height), st.integers(0, height))))
    shape = planes, height, columns
    return bands, next(fit), dtype, shape, range(*first), range(*rows)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kind", WRITTEN)
@ways
@given(narrow_regions(), st.randoms(use_true_random=False))
def test_a_region_is_put_and_got_in_parts(tmp_path_factory, kind, late, region, choose):
    bands, apart, dtype, shape, planes, rows = region
    if kind == "beside" and shape[1] < 5:
        return
    folder = tmp_path_factory.mktemp("parts")
    values = np.zeros(shape, dtype)
    for first, end in bands:
        there = (*shape[:2], end - first)
        values[:, :, first:end] = np.random.default_rng(len(rows)).standard_normal(there)
    order = list(range(len(planes)))
    choose.shuffle(order)
    with transfers_of(late) as transfers:
        part = values[planes.start : planes.stop, rows.start : rows.stop]
        pitch = (max(1, len(rows)) - 1) * apart + shape[2]
        slots, memory = window_of(max(1, len(planes)), pitch * dtype.itemsize, order, None)
        for plane, cells in zip(order, part, strict=True):
            slot = slots[plane].view(dtype)
            for row, line in enumerate(cells):
                for first, end in bands:
                    slot[row * apart + first : row * apart + end] = line[first:end]
        item = dtype.itemsize
        parts = tuple((first * item, end * item) for first, end in bands)
        memory = Planes(memory.addresses, apart * item, memory.owner, parts=parts)
        store = begun(kind, folder, values, transfers)
        put_and_get(store, transfers, values, (planes, rows), slots, memory)


@pytest.mark.parametrize("direct", [True, False])
def test_files_and_checksums_are_those_of_natural_rows(tmp_path, direct):
    values = np.random.default_rng(3).standard_normal((5, 24, 40))
    folding = Folding(4, 64)
    memory = folded(values, folding)
    addresses = memory.ctypes.data + memory.strides[0] * np.arange(5)
    with Transfers(request_bytes=8192, staging_bytes=1 << 15) as transfers:
        for name, source in (
            ("natural", Planes.of(values)),
            ("folded", Planes(addresses, 320, memory, folding)),
        ):
            (tmp_path / name).mkdir()
            store = DirectStore.create(
                tmp_path / name / "u.npy",
                values.shape,
                "float64",
                transfers,
                direct=direct,
                sums=True,
            )
            store.hold(Seal(run="r", name="u", step=3))
            store.put(range(5), range(24), source)
            transfers.drain()
            store.flush()
            transfers.drain()
            store.close()
    natural, other = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("natural", "folded")
    )
    assert len(natural) == 2
    assert natural == other


@pytest.mark.parametrize(
    ("columns", "stride", "rows", "words"),
    [
        (12, 96, range(4, 12), "rows cannot be folded with a stride of 96"),
        (16, 128, range(2, 10), r"rows 2\.\.10 do not begin with a group of 4"),
    ],
)
@pytest.mark.parametrize("kind", ["memory", "direct", "swap", "packed"])
def test_what_cannot_be_folded_is_refused(tmp_path, kind, columns, stride, rows, words):
    with Transfers("threads") as transfers:
        values = np.zeros((1, 12, columns))
        store = begun(kind, tmp_path, values, transfers)
        buffer = Buffer(1 << 14)
        memory = Planes(np.array([buffer.address]), stride, buffer, Folding(4, 64))
        with pytest.raises(ValueError, match=words):
            store.get(range(1), rows, memory)
        if kind != "packed":
            with pytest.raises(ValueError, match=words):
                store.put(range(1), rows, memory)
        store.close()


def test_stores_that_do_not_fold_refuse_it():
    with Transfers("threads") as transfers:
        inner = MemoryStore("u", np.zeros((4, 8, 64)), transfers)
        buffer = Buffer(1 << 14)
        device = SimpleNamespace(allocate_host=lambda nbytes: 0, release_host=lambda address: None)
        staged = StagedTransfers(transfers, device, 1, 1 << 16)
        memory = Planes(np.array([buffer.address]), 512, buffer, Folding(4, 64))
        for store in (TransposedStore(inner, transfers), StagedStore(inner, staged)):
            for move in (store.get, store.put):
                with pytest.raises(ValueError, match="does not fold rows"):
                    move(range(1), range(4), memory)
        staged.close()
