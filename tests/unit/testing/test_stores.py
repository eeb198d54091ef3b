import numpy as np
import pytest

from outgrid.errors import StoreError
from outgrid.storage import DirectStore, MemoryStore, Planes
from outgrid.testing.stores import Shuffled


@pytest.fixture(params=["memory", "direct"])
def made(request, tmp_path):
    """Zeroes in a store on shuffled transfers."""
    with Shuffled(seed=1) as transfers:
        if request.param == "memory":
            store = MemoryStore("u", np.zeros((20, 3, 4)), transfers)
        else:
            store = DirectStore.create(tmp_path / "u.npy", (20, 3, 4), "float64", transfers)
        yield store, transfers


def test_what_changes_before_a_put_completes_is_written(made):
    store, transfers = made
    values = np.ones((20, 3, 4))
    store.put(range(20), range(3), Planes.of(values))
    values[:] = 2
    transfers.drain()
    into = np.empty_like(values)
    store.get(range(20), range(3), Planes.of(into))
    transfers.drain()
    assert (into == 2).all()


def test_what_is_used_before_a_get_completes_is_garbage(tmp_path):
    with Shuffled() as transfers:
        store = DirectStore.create(tmp_path / "u.npy", (20, 3, 4), "float64", transfers)
        into = np.ones((20, 3, 4))
        store.get(range(20), range(3), Planes.of(into))
        assert np.isnan(into).all()
        transfers.drain()
        assert (into == 0).all()


def test_tickets_end_once_each_out_of_order_and_some_late(made):
    store, transfers = made
    into = np.empty((20, 3, 4))
    tickets = [
        store.get(range(plane, plane + 1), range(3), Planes.of(into[plane : plane + 1]))
        for plane in range(20)
    ]
    early = [ended.ticket for ended in transfers.poll()]
    assert 0 < len(early) < 20
    assert transfers.outstanding == 20 - len(early)
    order = early + [ended.ticket for ended in transfers.drain()]
    assert sorted(order) == tickets != order
    assert transfers.wait() == transfers.poll() == []


def test_failures_are_handed_out_late_too(made):
    _, transfers = made
    ticket = transfers.fail(StoreError("on purpose", errno=5))
    (ended,) = transfers.wait()
    assert ended.ticket == ticket
    with pytest.raises(StoreError, match="on purpose"):
        ended.check()


def test_the_same_seed_gives_the_same_order(tmp_path):
    def order():
        with Shuffled(seed=9) as transfers:
            store = MemoryStore("u", np.zeros((20, 4)), transfers)
            for _ in range(20):
                store.flush()
            return [ended.ticket for ended in transfers.drain()]

    assert order() == order()
