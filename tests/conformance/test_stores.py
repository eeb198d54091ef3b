"""What every store must do, over every tier and engine, against a plain array."""

import itertools
import os
from functools import partial

import numpy as np
import pytest

from outgrid import native
from outgrid.errors import StoreError
from outgrid.remote.placement import cut, shares, spread
from outgrid.remote.store import RemoteSpace, RemoteStore
from outgrid.storage import (
    BesideStore,
    DirectStore,
    Habits,
    MemoryStore,
    NewField,
    Parts,
    Planes,
    SpreadStore,
    Transfers,
    create_store,
)
from outgrid.testing.stores import Fault, Faulty, Shuffled
from outgrid.tiers import TIERS

SHAPES = [
    (5, 32, 128),  # planes of whole blocks
    (7, 13, 37),  # nothing aligned, planes smaller than a block
    (9, 19, 129),  # planes of several ragged blocks
    (64, 1000),  # 2-D: a plane is a row
    (3, 1, 1),
]
MAPPED = [("normal", "none"), ("sequential", "async"), ("willneed", "sync"), ("dontneed", "none")]
SWAPPED = ("threads", "dontneed")
LENT_BYTES = 1 << 12  # at a time, so that rows lie on two nodes
KINDS = ["memory", *(f"direct-{engine}" for engine in native.engines()), "buffered-threads"]
KINDS += ["memory-shuffled", "direct-shuffled", "mmap-shuffled"]
KINDS += [f"mmap-{order}-{sync}" for order, sync in MAPPED]
KINDS += [f"{name}-{how}" for name, tier in TIERS.items() if tier.swapped for how in SWAPPED]
KINDS += [f"beside-{engine}" for engine in (*native.engines(), "shuffled")]
KINDS += [f"spread-{engine}" for engine in (*native.engines(), "shuffled")]
if "OUTGRID_LENDERS" in os.environ:  # ranks that lend are there: see the tests of remote memory
    KINDS = ["remote-cyclic-threads", "remote-contiguous-shuffled"]
    SHAPES = SHAPES[1:]  # lent memory has no blocks


@pytest.fixture(params=KINDS)
def make(request, tmp_path):
    """A function that makes a store holding the given values, and its transfers."""
    tier, *how = request.param.split("-")
    engine = how[-1 if tier == "remote" else 0] if how else "auto"
    if engine == "shuffled":
        transfers = Shuffled(seed=3)
    else:
        engine = engine if engine in native.engines() else "threads"
        transfers = Transfers(engine, depth=4, request_bytes=1 << 14, staging_bytes=1 << 14)

    def make(values):
        if tier == "memory":
            return MemoryStore("u", values.copy(), transfers), transfers
        path, shape = tmp_path / "u.npy", values.shape
        if tier == "remote":
            store = remote_store(request.config.lenders, how[0], values, transfers)
            put(store, transfers, range(store.planes), range(store.rows_per_plane), values)
            return store, transfers
        if tier == "buffered":
            store = DirectStore.create(path, shape, values.dtype, transfers, direct=False)
        elif tier == "beside":
            rows = store_rows(shape)
            main = len(rows) // 2
            names = [tmp_path / str(number) / "u.npy" for number in range(len(rows))]
            for name in names:
                name.parent.mkdir()
            shapes = [(shape[0], *(() if len(shape) == 2 else (each,)), shape[-1]) for each in rows]
            stores = [
                DirectStore.create(name, each, values.dtype, transfers, sums=True)
                for name, each in zip(names, shapes, strict=True)
            ]
            store = BesideStore(stores, main, transfers) if len(rows) > 1 else stores[0]
        elif tier == "spread":
            places = [(tmp_path / f"u.{part}", 4096 * part) for part in range(3)]
            parts = Parts(tuple(places), 8192)
            store = SpreadStore.make(path, shape, values.dtype, transfers, parts, sums=True)
        else:
            words = [word for word in how if word in ("sequential", "willneed", "dontneed")]
            habits = Habits(tuple(words), how[1] if len(how) > 1 else "none")
            store = create_store(tier, NewField(path, shape, values.dtype, habits), transfers)
        put(store, transfers, range(store.planes), range(store.rows_per_plane), values)
        return store, transfers

    yield make
    transfers.close()


def store_rows(shape):
    """Rows of a plane in three parts, where there are so many."""
    rows = shape[1] if len(shape) == 3 else 1
    first, last = rows // 4, rows - rows // 3
    return (first, last - first, rows - last) if first else (shape[-2],)


def remote_store(lenders, placement, values, transfers):
    amounts = shares(values.nbytes, [offer.nbytes for offer in lenders.offers], LENT_BYTES)
    window = lenders.window(amounts)
    where = partial(cut, spread(amounts, placement, LENT_BYTES))
    space = RemoteSpace(window.calls, sum(amounts), where)
    return RemoteStore("u", values.shape, values.dtype, transfers, space)


def put(store, transfers, planes, rows, values):
    ticket = store.put(planes, rows, Planes.of(values))
    (ended,) = transfers.drain()
    assert (ended.ticket, ended.nbytes) == (ticket, values.nbytes)


def get(store, transfers, planes, rows, into):
    ticket = store.get(planes, rows, Planes.of(into))
    (ended,) = transfers.drain()
    assert (ended.ticket, ended.nbytes) == (ticket, into.nbytes)


def values_of(shape, dtype="float64"):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


def parts(extent):
    """Some ranges of an axis: all, none, the ends, the middle."""
    cuts = sorted({0, extent // 3, extent - 1, extent})
    return [range(first, last) for first, last in itertools.combinations(cuts, 2)] + [range(0)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_store_describes_its_field(make, shape, dtype):
    values = values_of(shape, dtype)
    store, _ = make(values)
    assert (store.name, store.shape, store.dtype) == ("u", shape, np.dtype(dtype))
    assert (store.planes, store.plane_bytes) == (shape[0], values[0].nbytes)
    assert (store.row_bytes, store.rows_per_plane) == (
        shape[-1] * values.itemsize,
        1 if len(shape) == 2 else shape[1],
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_every_region_is_got(make, shape):
    values = values_of(shape)
    store, transfers = make(values)
    for planes, rows in itertools.product(parts(store.planes), parts(store.rows_per_plane)):
        where = (slice(planes.start, planes.stop),)
        if len(shape) == 3:
            where += (slice(rows.start, rows.stop),)
        elif not rows:
            continue
        into = np.full_like(values[where], np.nan)
        if into.size:
            get(store, transfers, planes, rows, into)
            assert (into == values[where]).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_put_changes_its_region_alone(make, shape):
    expected = values_of(shape)
    store, transfers = make(expected)
    everything = range(store.planes), range(store.rows_per_plane)
    for planes, rows in itertools.product(parts(store.planes), parts(store.rows_per_plane)):
        if not planes or not rows:
            continue
        where = (slice(planes.start, planes.stop),)
        if len(shape) == 3:
            where += (slice(rows.start, rows.stop),)
        expected[where] += 1
        put(store, transfers, planes, rows, expected[where].copy())
        into = np.empty_like(expected)
        get(store, transfers, *everything, into)
        assert (into == expected).all()


def test_nothing_is_moved_for_an_empty_region(make):
    store, transfers = make(values_of((5, 4, 3)))
    into = np.ones((5, 4, 3))
    store.get(range(2, 2), range(4), Planes.of(into[:0]))
    store.put(range(5), range(1, 1), Planes.of(into))
    assert [ended.nbytes for ended in transfers.drain()] == [0, 0]
    assert (into == 1).all()


def test_planes_lie_anywhere_in_memory(make):
    values = values_of((8, 11, 50))
    store, transfers = make(values)
    pitch = 64  # elements from row to row
    memory = native.Buffer(8 * 16 * pitch * 8)
    slots = native.as_array(memory, "float64").reshape(8, 16, pitch)
    slots[:] = np.nan
    order = np.array([5, 0, 7, 2, 1, 6, 3, 4])
    addresses = (memory.address + order * slots.strides[0]).astype(np.int64)
    store.get(range(8), range(2, 9), Planes(addresses, pitch * 8, memory))
    transfers.drain()
    assert (slots[order, :7, :50] == values[:, 2:9]).all()
    assert np.isnan(slots[:, 7:]).all()
    assert np.isnan(slots[:, :, 50:]).all()
    slots += 1
    store.put(range(8), range(2, 9), Planes(addresses, pitch * 8, memory))
    transfers.drain()
    into = np.empty_like(values)
    get(store, transfers, range(8), range(11), into)
    values[:, 2:9] += 1
    assert (into == values).all()


def test_neighbouring_puts_may_overlap_in_time(make):
    values = values_of((40, 13, 37))
    store, transfers = make(np.zeros_like(values))
    for plane in range(40):
        store.put(range(plane, plane + 1), range(13), Planes.of(values[plane : plane + 1]))
    tickets = [ended.ticket for ended in transfers.drain()]
    assert len(set(tickets)) == 40
    store.flush()
    transfers.drain()
    into = np.empty_like(values)
    for plane in range(40):
        store.get(range(plane, plane + 1), range(13), Planes.of(into[plane : plane + 1]))
    transfers.drain()
    assert (into == values).all()


@pytest.mark.parametrize(
    ("planes", "rows"),
    [
        (range(6), range(4)),
        (range(-1, 2), range(4)),
        (range(0, 4, 2), range(4)),
        (range(3, 2), range(4)),
        (range(5), range(5)),
        (range(5), range(3, 1)),
    ],
)
def test_region_outside_the_field_is_refused(make, planes, rows):
    store, transfers = make(values_of((5, 4, 3)))
    memory = np.zeros((len(planes), 8, 3))
    with pytest.raises(ValueError, match="of a field with"):
        store.get(planes, rows, Planes.of(memory))
    with pytest.raises(ValueError, match="of a field with"):
        store.put(planes, rows, Planes.of(memory))
    assert transfers.outstanding == 0


def test_memory_must_fit_the_region(make):
    store, _ = make(values_of((5, 4, 3)))
    with pytest.raises(ValueError, match="5 planes need as many"):
        store.get(range(5), range(4), Planes.of(np.zeros((4, 4, 3))))
    with pytest.raises(ValueError, match="overlap at a stride of 16"):
        store.get(range(5), range(4), Planes.of(np.zeros((5, 4, 2))))


def test_chosen_requests_fail_and_say_where(make):
    values = values_of((5, 4, 3))
    store, transfers = make(values)
    faulty = Faulty(store, transfers, [Fault("put", 1, 28), Fault("get", 0)])
    put(faulty, transfers, range(5), range(4), values)
    faulty.put(range(2, 5), range(4), Planes.of(values[2:]))
    with pytest.raises(StoreError, match=f"offset {2 * 96}, 288 bytes, {os.strerror(28)}"):
        transfers.drain()
    faulty.get(range(5), range(4), Planes.of(values))
    (ended,) = transfers.wait()
    assert ended.error is not None
    assert ended.error.errno == 5
    into = np.empty_like(values)
    get(faulty, transfers, range(5), range(4), into)
    assert (into == values).all()
