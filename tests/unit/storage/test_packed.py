"""Packed planes come back exactly, where they are read to, and damage to them is noticed."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outgrid import units
from outgrid.errors import StoreError
from outgrid.execute.packing import packed
from outgrid.native import BLOCK_BYTES, Buffer, as_array, pack, unpack
from outgrid.storage import MemoryStore, Planes, Transfers
from outgrid.storage.packed import MARGIN_BYTES, PackedStore, packed_room
from outgrid.testing.stores import Shuffled

DTYPES = ("float32", "float64", "int32", "uint64")
KINDS = ("constant", "smooth", "layers", "noise", "special", "last rows of noise")


def values(kind: str, shape: tuple[int, int], dtype: str, seed: int = 0) -> np.ndarray:
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    choose = np.random.default_rng(seed)
    match kind:
        case "constant":
            found = np.full(shape, 3.25)
        case "smooth":
            found = 2000 + 500 * np.sin(0.013 * columns) * np.cos(0.017 * rows + seed)
        case "layers":
            found = np.where(rows + 9 * np.sin(columns / 9) > shape[0] / 2, 1500.0, 4000.0)
        case "last rows of noise":
            found = np.where(rows > shape[0] * 0.8, choose.normal(size=shape) * 1e6, 1.0)
        case _:
            found = choose.normal(size=shape) * 10.0 ** choose.integers(-3, 9, shape)
    if kind == "special" and dtype.startswith("float"):
        found.flat[:: max(1, found.size // 40)] = np.nan
        found.flat[:: max(1, found.size // 30)] = -0.0
        found.flat[:: max(1, found.size // 20)] = np.inf
    if not dtype.startswith("float"):
        found = np.abs(np.clip(np.nan_to_num(found), -1e9, 1e9))
    return found.astype(dtype)


def copied(array: np.ndarray) -> Buffer:
    buffer = Buffer(max(1, array.nbytes))
    as_array(buffer, np.uint8, count=array.nbytes)[:] = array.reshape(-1).view(np.uint8)
    return buffer


shapes = st.tuples(st.integers(1, 40), st.integers(1, 3000))


@given(shapes, st.sampled_from(DTYPES), st.sampled_from(KINDS), st.integers(0, 9))
def test_a_plane_is_unpacked_exactly(shape, dtype, kind, seed):
    plane = values(kind, shape, dtype, seed)
    rows, row_bytes = shape[0], shape[1] * plane.itemsize
    source, target = copied(plane), Buffer(4 * plane.nbytes + (1 << 16))
    size = (rows, row_bytes, plane.itemsize)
    nbytes, total = pack(source.address, *size, target.address, 1 << 40, 0)
    if not nbytes:  # it can be unpacked, though not in place
        assert kind in ("noise", "special", "last rows of noise") or plane.nbytes < 1 << 16
        return
    found = Buffer(plane.nbytes)
    stride = (row_bytes, plane.itemsize)
    assert unpack(target.address, nbytes, total, found.address, rows, row_bytes, *stride)
    assert as_array(found, np.uint8, count=plane.nbytes).tobytes() == plane.tobytes()


@given(
    shapes,
    st.sampled_from(DTYPES),
    st.sampled_from(KINDS),
    st.integers(0, 9),
    st.integers(0, 5),
    st.integers(0, 40),
)
def test_a_plane_is_unpacked_in_the_memory_that_it_is_read_to(
    shape, dtype, kind, seed, gap, margin
):
    plane = values(kind, shape, dtype, seed)
    rows, row_bytes, item = shape[0], shape[1] * plane.itemsize, plane.itemsize
    source, target = copied(plane), Buffer(plane.nbytes + (1 << 16))
    nbytes, total = pack(
        source.address, rows, row_bytes, item, target.address, plane.nbytes - margin, margin
    )
    if not nbytes:
        return
    stride = row_bytes + gap * item
    extent = (rows - 1) * stride + row_bytes
    memory = Buffer(extent)
    there = as_array(memory, np.uint8, count=extent)
    begin = extent - margin - nbytes
    there[begin : begin + nbytes] = as_array(target, np.uint8, count=nbytes)
    place = (memory.address + begin, nbytes, total, memory.address)
    assert unpack(*place, rows, row_bytes, stride, item)
    for row in range(rows):
        assert there[row * stride :][:row_bytes].tobytes() == plane[row].tobytes()


@given(st.integers(0, 2**32 - 1), st.sampled_from(("float32", "float64")))
def test_what_was_damaged_is_not_unpacked(seed, dtype):
    choose = np.random.default_rng(seed)
    plane = values("smooth", (20, 700), dtype)
    source, target = copied(plane), Buffer(plane.nbytes)
    size = (20, 700 * plane.itemsize, plane.itemsize)
    nbytes, total = pack(source.address, *size, target.address, plane.nbytes, 0)
    assert 0 < nbytes < 0.75 * plane.nbytes
    at = int(choose.integers(nbytes))
    as_array(target, np.uint8, count=nbytes)[at] ^= np.uint8(1 + choose.integers(255))
    found = Buffer(plane.nbytes)
    place = (20, 700 * plane.itemsize, 700 * plane.itemsize, plane.itemsize)
    assert not unpack(target.address, nbytes, total, found.address, *place)


def test_planes_without_rows_or_with_other_items_are_refused():
    memory = Buffer(1 << 16)
    for size in ((0, 64, 4), (4, 64, 2), (4, 66, 4)):
        with pytest.raises(ValueError, match="items of 4 or 8 bytes"):
            pack(memory.address, *size, memory.address, 1 << 16, 0)


def kept(path: Path, transfers: Transfers, field: np.ndarray, memory_bytes: int) -> PackedStore:
    store = MemoryStore("c", field, transfers)
    return packed(store, path / "c.packed", transfers, memory_bytes, 2)


@pytest.fixture(params=["threads", "late"])
def transfers(request):
    with Shuffled(3) if request.param == "late" else Transfers("threads") as found:
        yield found


FIELD = np.stack([values(kind, (60, 777), "float32", seed) for seed in range(3) for kind in KINDS])


@pytest.mark.parametrize("memory_bytes", [1, 1 << 20, 1 << 30])
def test_a_store_gives_whole_planes_and_parts_of_them(tmp_path, transfers, memory_bytes):
    store = kept(tmp_path, transfers, FIELD, memory_bytes)
    assert not [*tmp_path.iterdir()]  # the file has no name
    for planes in (range(len(FIELD)), range(4, 5), range(3, 11)):
        for rows in (range(60), range(7, 33)):
            for gap in (0, 3):
                memory = Buffer(len(planes) * len(rows) * (777 + gap) * 4)
                shape = (len(planes), len(rows), 777 + gap)
                found = as_array(memory, np.float32).reshape(shape)[..., :777]
                store.get(planes, rows, Planes.of(found))
                transfers.drain()
                expected = FIELD[planes.start : planes.stop, rows.start : rows.stop]
                assert found.tobytes() == expected.tobytes()
    read = transfers.statistics()
    assert read.unpacked_bytes > FIELD.nbytes / 2
    with pytest.raises(ValueError, match="read only"):
        store.put(range(1), range(60), Planes.of(found))
    store.close()


def test_damage_on_the_disk_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "unlink", lambda path: None)  # so that it can be damaged
    with Transfers("threads") as transfers:
        store = kept(tmp_path, transfers, FIELD[:2], 1 << 20)
        path = tmp_path / "c.packed"
        with open(path, "r+b") as file:
            file.seek(100)
            file.write(b"?" * 40)
        memory = Buffer(FIELD[0].nbytes)
        found = as_array(memory, np.float32).reshape(FIELD[:1].shape)
        store.get(range(1), range(60), Planes.of(found))
        with pytest.raises(StoreError, match="not what was written"):
            transfers.drain()
        store.close()


def test_the_room_of_a_plane_leaves_whole_blocks_at_both_ends():
    assert packed_room(MARGIN_BYTES) == 0
    assert packed_room(1 << 20) < (1 << 20) - MARGIN_BYTES
    assert BLOCK_BYTES == units.BLOCK_BYTES == 4096
