import errno
import os
import weakref

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from outgrid.errors import StoreError, UsageError
from outgrid.storage import (
    BesideStore,
    DirectStore,
    NewField,
    Planes,
    Transfers,
    create_store,
    open_store,
)
from outgrid.tiers import TIERS


@pytest.fixture
def transfers():
    with Transfers("threads", depth=2) as transfers:
        yield transfers


def test_created_file_opens_with_numpy(tmp_path, transfers):
    store = DirectStore.create(tmp_path / "u.npy", (5, 7, 3), "float32", transfers)
    values = np.arange(105, dtype="float32").reshape(5, 7, 3)
    store.put(range(5), range(7), Planes.of(values))
    transfers.drain()
    loaded = np.load(tmp_path / "u.npy", mmap_mode="r")
    assert (loaded == values).all()
    assert store.name == "u"
    assert (tmp_path / "u.npy").stat().st_size == 4096 + values.nbytes


def test_new_file_holds_zeroes(tmp_path, transfers):
    for reserve in (True, False):
        path = tmp_path / f"{reserve}.npy"
        store = DirectStore.create(path, (50, 100), "float64", transfers, reserve=reserve)
        assert not (store.reserved and not reserve)
        assert not np.load(path).any()


def test_existing_file_is_kept_unless_told_otherwise(tmp_path, transfers):
    path = tmp_path / "u.npy"
    path.write_bytes(b"precious")
    with pytest.raises(StoreError, match="not overwritten") as caught:
        DirectStore.create(path, (2, 2), "float64", transfers)
    assert (caught.value.errno, caught.value.path) == (errno.EEXIST, path)
    assert path.read_bytes() == b"precious"
    store = DirectStore.create(path, (2, 2), "float64", transfers, overwrite=True)
    assert store.shape == (2, 2)


def test_too_small_a_disk_is_told_with_figures_and_leaves_nothing(tmp_path, transfers):
    path = tmp_path / "u.npy"
    with pytest.raises(StoreError, match=r"needed, .* free") as caught:
        DirectStore.create(path, (10**6, 10**6, 100), "float64", transfers)
    assert caught.value.errno == errno.ENOSPC
    assert str(8 * 10**14 + 4096) in str(caught.value)
    assert not path.exists()


def test_space_refused_by_the_file_system_is_told_alike(tmp_path, transfers, monkeypatch):
    def refuse(self, nbytes):
        raise OSError(errno.ENOSPC, "cannot reserve")

    monkeypatch.setattr("outgrid.native.File.reserve", refuse)
    with pytest.raises(StoreError, match=r"needed, .* free"):
        DirectStore.create(tmp_path / "u.npy", (10, 10), "float64", transfers)
    assert not (tmp_path / "u.npy").exists()


def test_missing_directory_is_named(tmp_path, transfers):
    with pytest.raises(StoreError, match="No such file") as caught:
        DirectStore.create(tmp_path / "no" / "u.npy", (2, 2), "float64", transfers)
    assert caught.value.path == tmp_path / "no" / "u.npy"
    with pytest.raises(StoreError, match="No such file"):
        DirectStore.open(tmp_path / "v.npy", transfers)


def test_files_of_numpy_are_opened_at_any_offset(tmp_path, transfers):
    values = np.random.default_rng(0).standard_normal((6, 50, 77))
    np.save(tmp_path / "u.npy", values)
    store = DirectStore.open(tmp_path / "u.npy", transfers, "rw")
    into = np.empty((3, 20, 77))
    store.get(range(2, 5), range(10, 30), Planes.of(into))
    transfers.drain()
    assert (into == values[2:5, 10:30]).all()
    store.put(range(3), range(10, 30), Planes.of(into))
    transfers.drain()
    values[:3, 10:30] = into
    assert (np.load(tmp_path / "u.npy") == values).all()


def test_file_opened_for_reading_refuses_put(tmp_path, transfers):
    np.save(tmp_path / "u.npy", np.zeros((2, 2)))
    store = DirectStore.open(tmp_path / "u.npy", transfers)
    with pytest.raises(OSError, match="reading"):
        store.put(range(2), range(1), Planes.of(np.zeros((2, 2))))


def test_files_that_are_no_field_are_refused(tmp_path, transfers):
    np.save(tmp_path / "f.npy", np.zeros((3, 2), order="F"))
    with pytest.raises(UsageError, match="Fortran"):
        DirectStore.open(tmp_path / "f.npy", transfers)
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(UsageError, match="2 or 3 axes"):
        DirectStore.open(tmp_path / "one.npy", transfers)


def test_file_cut_short_behind_our_back_is_an_error_with_its_place(tmp_path, transfers):
    store = DirectStore.create(tmp_path / "u.npy", (8, 64, 64), "float64", transfers)
    os.truncate(tmp_path / "u.npy", 100_000)
    store.get(range(8), range(64), Planes.of(np.empty((8, 64, 64))))
    with pytest.raises(StoreError, match="the file ends inside a read, at 100000 bytes"):
        transfers.drain()


def test_memory_stays_until_its_transfer_has_ended(tmp_path, transfers):
    store = DirectStore.create(tmp_path / "u.npy", (8, 64, 64), "float64", transfers)
    for start in (store.put, store.get):
        values = np.ones((8, 64, 64))
        lives = weakref.ref(values)
        start(range(8), range(64), Planes.of(values))
        del values
        assert lives() is not None
        transfers.drain()
        assert lives() is None
    assert (np.load(tmp_path / "u.npy") == 1).all()


@pytest.mark.parametrize("beside", [False, True])
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1000))
def test_rows_that_are_not_kept_are_put_as_zeroes_whatever_memory_has_there(
    tmp_path, transfers, beside, seed
):
    random = np.random.default_rng(seed)
    planes, rows, columns = random.integers(1, (5, 40, 260)).tolist()
    columns *= int(random.choice([1, 1, 80]))  # of which 2 MiB are less than all rows
    first = random.integers(rows)
    put = range(first, random.integers(first, rows) + 1)
    ends = np.flatnonzero(random.random(len(put) + 1) < 0.3).tolist()
    kept = tuple(map(range, ends[::2], ends[1::2]))
    values = random.random((planes, rows, columns))
    wanted = np.zeros_like(values)
    for part in kept:
        of_plane = slice(first + part.start, first + part.stop)
        wanted[:, of_plane] = values[:, of_plane]
    heights = [rows // 3, rows - rows // 3] if beside and rows >= 3 else [rows]
    folders = [tmp_path / f"{number}" for number in range(len(heights))]
    stores = []
    for folder, height in zip(folders, heights, strict=True):
        folder.mkdir(exist_ok=True)
        shape = (planes, height, columns)
        stores.append(
            DirectStore.create(folder / "u.npy", shape, "f8", transfers, sums=True, overwrite=True)
        )
    store = BesideStore(stores, 0, transfers) if len(stores) > 1 else stores[0]
    store.put(range(planes), put, replace(Planes.of(values, put), kept=kept))
    transfers.drain()
    into = np.full_like(values, 7.0)
    store.get(range(planes), put, Planes.of(into, put))  # compares with checksums
    transfers.drain()
    store.close()
    assert np.array_equal(into[:, put.start : put.stop], wanted[:, put.start : put.stop])
    files = np.concatenate([np.load(folder / "u.npy") for folder in folders], axis=1)
    assert np.array_equal(files, wanted)


def test_engines_are_named_when_misspelt():
    with pytest.raises(UsageError, match="did you mean 'threads'"):
        Transfers("thread")


def test_tiers_are_found_by_name(tmp_path, transfers):
    path = tmp_path / "u.npy"
    for tier in (name for name, each in TIERS.items() if each.module):
        store = create_store(tier, NewField(path, (3, 4), "float64", overwrite=True), transfers)
        assert (store.name, store.shape) == ("u", (3, 4))
        assert path.exists() == TIERS[tier].files
        path.unlink(missing_ok=True)
    with pytest.raises(UsageError, match="did you mean 'direct'"):
        create_store("dircet", NewField(path, (3, 4), "float64"), transfers)
    with pytest.raises(UsageError, match="tier swap keeps no files"):
        open_store("swap", path, transfers)
