"""Remote arrays on a stand-in for MPI: what is moved, when that begins, and what errors say."""

import ctypes
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outgrid import remote
from outgrid.errors import StoreError, UsageError
from outgrid.native import MpiWindow
from outgrid.remote.placement import block_bytes, shares, spread

PATIENCE = 100.0  # seconds, after which a thread that waits for another one gives up
BYTE, HANDLE = 1, 77
INT, WORD, POINTER = ctypes.c_int, ctypes.c_ssize_t, ctypes.c_void_p
SIGNATURES = {
    "MPI_Get": (POINTER, INT, WORD, INT, WORD, INT, WORD, WORD),
    "MPI_Put": (POINTER, INT, WORD, INT, WORD, INT, WORD, WORD),
    "MPI_Win_flush": (INT, WORD),
    "MPI_Type_create_hindexed": (INT, POINTER, POINTER, WORD, ctypes.POINTER(WORD)),
    "MPI_Type_commit": (ctypes.POINTER(WORD),),
    "MPI_Type_free": (ctypes.POINTER(WORD),),
    "MPI_Error_string": (INT, ctypes.POINTER(ctypes.c_char), ctypes.POINTER(INT)),
}


class StandIn:
    """Ranks whose memory is an array of this process, and calls that move bytes when flushed.

    `begun` hears of every get and put, `ending` before a flush ends; `code` is what all return.
    """

    def __init__(self, nbytes, ranks=2, seen=()):
        self.memory = [np.full(nbytes, 255, np.uint8) for _ in range(ranks + 1)]
        self.begun = self.ending = lambda: None
        self.code = self.messages = 0
        self._types, self._waiting = {BYTE: None}, []
        self._lock = threading.Lock()
        self._kept = {
            name: ctypes.CFUNCTYPE(INT, *taken)(getattr(self, name[4:].lower()))
            for name, taken in SIGNATURES.items()
        }
        table = {name: ctypes.cast(each, POINTER).value for name, each in self._kept.items()}
        known = [each.ctypes.data if rank in seen else 0 for rank, each in enumerate(self.memory)]
        self.calls = MpiWindow(table | {"MPI_BYTE": BYTE, "window": HANDLE}, known)

    def get(self, *given):
        return self._begin(False, *given)

    def put(self, *given):
        return self._begin(True, *given)

    def _begin(self, put, address, count, kind, rank, displacement, there_count, there, window):
        assert window == HANDLE
        with self._lock:
            ours = self._blocks(address, count, kind)
            place = self.memory[rank].ctypes.data + displacement
            theirs = self._blocks(place, there_count, there)
            self._waiting.append((rank, *((theirs, ours) if put else (ours, theirs))))
            self.messages += 1
        self.begun()
        return self.code

    def _blocks(self, address, count, kind):
        if kind == BYTE:
            return [(address, count)]
        return [(address + place, length) for place, length in self._types[kind]]

    def win_flush(self, rank, window):
        self.ending()
        with self._lock:
            for message in [each for each in self._waiting if each[0] == rank]:
                self._waiting.remove(message)
                _, to, source = message
                data = b"".join(ctypes.string_at(*block) for block in source)
                assert len(data) == sum(length for _, length in to)
                for address, length in to:
                    ctypes.memmove(address, data[:length], length)
                    data = data[length:]
        return self.code

    def type_create_hindexed(self, count, lengths, places, kind, made):
        with self._lock:
            starts, sizes = (WORD * count).from_address(places), (INT * count).from_address(lengths)
            made[0] = max(self._types) + 1
            self._types[made[0]] = list(zip(starts, sizes, strict=True))
        return 0

    def type_commit(self, kind):
        return 0

    def type_free(self, kind):
        with self._lock:
            del self._types[kind[0]]
        return 0

    def error_string(self, code, text, length):
        said = b"no such luck"
        ctypes.memmove(text, said, len(said))
        length[0] = len(said)
        return 0


@pytest.fixture
def borrowed(monkeypatch):
    """Makes a remote array in the memory of a stand-in, and gives both."""

    def make(shape, dtype="uint8", placement="cyclic", **given):
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        unit = block_bytes(nbytes, 2)
        amounts = shares(nbytes, [nbytes + unit] * 2, unit)
        stand_in = StandIn(max(amounts), **given)
        monkeypatch.setattr(
            remote, "_borrow", lambda *_: (stand_in, spread(amounts, placement, unit))
        )
        return remote.array(shape, dtype, placement=placement), stand_in

    return make


@given(
    st.tuples(*[st.integers(1, 6), st.integers(1, 40), st.integers(1, 90_000)]),
    st.sampled_from(["cyclic", "contiguous"]),
    st.sets(st.integers(1, 2)),
    st.data(),
)
def test_regions_are_moved_whatever_ranks_are_seen(shape, placement, seen, data):
    with pytest.MonkeyPatch.context() as patch:
        make = borrowed.__wrapped__(patch)
        array, _ = make(shape, "uint8", placement, seen=seen)
        expected = np.random.default_rng(1).integers(0, 250, shape, np.uint8)
        array[:] = expected
        region = []
        for extent in shape:
            first = data.draw(st.integers(0, extent))
            region.append(slice(first, data.draw(st.integers(first, extent))))
        region = tuple(region)
        block = np.zeros([extent + 2 for extent in expected[region].shape], np.uint8)
        inner = block[1:-1, 1:-1, 1:-1]
        array.get(region, inner)
        assert (inner == expected[region]).all()
        inner += 1
        expected[region] += 1
        array.put(region, inner)
        assert (array.get() == expected).all()
        inner[...] = 0
        assert not block.any()


def test_nothing_is_got_into_an_array_that_is_read_only(borrowed):
    array, _ = borrowed((4, 5))
    array[:] = 3
    zeroes = np.zeros((4, 5), "uint8")
    zeroes.flags.writeable = False
    for get in (array.get, array.start_get):
        with pytest.raises(UsageError, match="the local array is read-only"):
            get((), zeroes)
    assert not zeroes.any()
    array.put((), zeroes)
    assert not array.get().any()


def test_small_pieces_go_as_one_message_to_each_rank(borrowed):
    array, stand_in = borrowed((2000, 100))
    array[:, 10:20] = 3
    assert stand_in.messages == 2
    assert (array.get((slice(None), 15)) == 3).all()
    assert stand_in.messages == 4


def test_the_next_chunk_is_on_its_way_while_one_is_computed(borrowed):
    chunks, cells = 5, 3 << 20
    array, stand_in = borrowed((chunks, cells))
    array[:] = np.arange(chunks, dtype=np.uint8)[:, None]
    begun = [threading.Event() for _ in range(chunks)]
    computing = [threading.Event() for _ in range(chunks)]
    coming = 0
    waited = []

    def ending():
        if coming > 0:  # no transfer ends before the chunk before it is being computed
            waited.append(computing[coming - 1].wait(PATIENCE))

    stand_in.begun, stand_in.ending = lambda: begun[coming].set(), ending
    here = np.zeros((2, cells), np.uint8)
    moving = array.start_get(0, here[0])
    for chunk in range(chunks):
        moving.wait()
        if chunk + 1 < chunks:
            coming = chunk + 1
            moving = array.start_get(coming, here[coming % 2])
        computing[chunk].set()
        if chunk + 1 < chunks:  # and no chunk is computed before the transfer of the next began
            assert begun[chunk + 1].wait(PATIENCE)
        assert (here[chunk % 2] == chunk).all()
    assert all(waited)


def test_gets_of_several_threads_begin_one_at_a_time_and_end_together(borrowed):
    array, stand_in = borrowed(1000)
    inside, most = 0, []
    waiting = threading.Barrier(3)

    def begun():
        nonlocal inside
        inside += 1
        most.append(inside)
        threading.Event().wait(0.05)  # long enough for the others to come in where they may
        inside -= 1

    stand_in.begun, stand_in.ending = begun, lambda: waiting.wait(PATIENCE)
    threads = [threading.Thread(target=array.get, args=(slice(0, 100),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1]
    assert not waiting.broken


def test_memory_of_a_transfer_stays_until_it_has_ended(borrowed):
    array, stand_in = borrowed(1000)
    go = threading.Event()
    stand_in.ending = lambda: go.wait(PATIENCE)
    moving = array.start_put((), np.arange(1000).astype(np.uint8))
    np.full(1000, 9, np.uint8)  # would lie where the values were
    go.set()
    moving.wait()
    assert (array.get() == np.arange(1000).astype(np.uint8)).all()


def test_what_mpi_says_is_told_when_all_has_ended(borrowed):
    array, stand_in = borrowed((4, 3 << 20))
    stand_in.code = 13
    with pytest.raises(StoreError, match="remote memory: no such luck"):
        array.get()
    stand_in.code = 0
    stand_in.calls.lose(2)
    with pytest.raises(StoreError, match="Host is down"):
        array.get()


def test_a_closed_window_has_no_transfer_under_way_and_begins_none(borrowed):
    array, stand_in = borrowed(1000)
    flushing, go = threading.Event(), threading.Event()

    def ending():
        flushing.set()
        go.wait(PATIENCE)

    stand_in.ending = ending
    moving = array.start_get((), np.zeros(1000, np.uint8))
    assert flushing.wait(PATIENCE)
    closer = threading.Thread(target=stand_in.calls.close)
    closer.start()
    closer.join(0.05)
    assert closer.is_alive()
    go.set()
    moving.wait()
    closer.join()
    before = stand_in.messages
    array[:] = 5  # goes where the memory has gone
    with pytest.raises(StoreError, match="shutdown"):
        array.get()
    assert stand_in.messages == before
