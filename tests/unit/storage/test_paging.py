"""Arrays whose pages come and go: what is read is what was written, whoever does it, and when."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrid.errors import StoreError, UsageError
from outgrid.storage import Pager, paged

PAGE = 16 << 10
try:
    Pager("1MiB", page=PAGE)
except StoreError as refused:
    pytest.skip(str(refused), allow_module_level=True)


def pager(pages=24, **options):
    return Pager(pages * PAGE, page=PAGE, **options)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 39999), st.integers(1, 9000), st.booleans()),
        min_size=1,
        max_size=40,
    ),
    st.booleans(),
    st.integers(0, 3),
)
def test_any_accesses_see_what_an_array_would_hold(tmp_path_factory, accesses, tracked, ahead):
    path = tmp_path_factory.mktemp("paged") / "a.npy"
    expected = np.zeros(40000, "int64")
    with pager(12 + 2 * ahead, track_writes=tracked, ahead=ahead) as used:
        values = used.create(path, 40000, "int64")
        for number, (first, count, writes) in enumerate(accesses):
            part = slice(first, first + count)
            if writes:
                values[part] += number + 1
                expected[part] += number + 1
            else:
                assert (values[part] == expected[part]).all()
        assert (values == expected).all()
        assert used.statistics().most_resident <= used.resident_limit
        del values
    assert (np.load(path) == expected).all()


def test_threads_share_pages_that_do_not_fit(tmp_path):
    cells, threads = 200_000, 6
    expected = np.zeros(cells, "int64")
    with pager(16, threads=3) as used:
        values = used.create(tmp_path / "a.npy", cells, "int64")

        def work(number, shared):
            chosen = np.random.default_rng(number)
            for _ in range(150):
                # Threads write to neighbouring cells of the same pages.
                first = int(chosen.integers(0, cells - 600)) // threads * threads + number
                shared[first : first + 600 : threads] += number + 1
                expected[first : first + 600 : threads] += number + 1

        workers = [
            threading.Thread(target=work, args=(number, values)) for number in range(threads)
        ]
        for worker in workers:
            worker.start()
        for _ in range(20):
            used.flush()  # in the midst of it all
        for worker in workers:
            worker.join()
        assert (values == expected).all()
        assert used.statistics().evictions > 100
        del values, workers
    assert (np.load(tmp_path / "a.npy") == expected).all()


def test_arrays_go_while_other_threads_flush_them(tmp_path):
    with pager(40) as used:
        over = threading.Event()

        def flush():
            while not over.is_set():
                used.flush()

        flushing = [threading.Thread(target=flush) for _ in range(2)]
        for each in flushing:
            each.start()
        for number in range(20):
            values = used.create(tmp_path / f"{number}.npy", 20_000, "int64")
            values[:] = number + 1
            del values
        over.set()
        for each in flushing:
            each.join()
    for number in range(20):
        assert (np.load(tmp_path / f"{number}.npy") == number + 1).all()


def test_files_of_any_header_and_order_are_opened(tmp_path):
    expected = np.asfortranarray(np.arange(30_000.0).reshape(100, 300))
    np.save(tmp_path / "f.npy", expected)  # its data begin at byte 128
    with pager() as used:
        values = used.open(tmp_path / "f.npy")
        assert values.flags.f_contiguous
        assert not values.flags.writeable
        assert (values == expected).all()
        changed = used.open(tmp_path / "f.npy", "r+")
        changed[7] = -1
        used.flush()
        assert (np.load(tmp_path / "f.npy")[7] == -1).all()
        del values, changed


def test_pages_only_read_are_not_written_back(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(100_000))
    for tracked, written in ((True, 3 * PAGE), (False, 50 * PAGE)):
        with pager(12, track_writes=tracked) as used:
            values = used.open(tmp_path / "a.npy", "r+")
            values[10 * PAGE // 8 : 12 * PAGE // 8 + 1] += 0
            values.sum()
            assert used.statistics().fetched_bytes >= values.nbytes
            del values
        moved = used.statistics().written_bytes
        assert moved == written if tracked else moved > 40 * PAGE


def test_pages_that_follow_are_read_ahead(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(100_000))
    with pager(24, ahead=2) as used:
        values = used.open(tmp_path / "a.npy")
        values.sum()
        del values
    statistics = used.statistics()
    assert statistics.ahead_used >= statistics.faults - 2
    with pager(24, ahead=2) as used:
        values = used.open(tmp_path / "a.npy")
        for page in range(40, 0, -2):
            values[page * PAGE // 8]
        del values
    assert used.statistics().ahead_used == 0


def test_a_page_read_ahead_in_vain_bothers_nobody(tmp_path, capfd):
    np.save(tmp_path / "a.npy", np.arange(100_000))
    used = pager(24, threads=1)
    values = used.open(tmp_path / "a.npy")
    os.truncate(tmp_path / "a.npy", 6 * PAGE)
    for page in (3, 4, 2):  # where the 4th follows the 3rd, the 5th is read ahead
        assert values[page * PAGE // 8] == page * PAGE // 8
    ahead = used.statistics().ahead_pages
    del values
    used.close()
    assert ahead == 1
    assert capfd.readouterr().err == ""


def test_system_calls_may_touch_pages_that_are_away(tmp_path):
    with pager(12) as used:
        if not used.serves_system_calls:
            pytest.skip("this kernel lets the process page in user mode alone")
        values = used.create(tmp_path / "a.npy", 60_000, "int64")
        np.arange(60_000).tofile(tmp_path / "raw")
        with open(tmp_path / "raw", "rb", buffering=0) as source:
            assert source.readinto(memoryview(values).cast("B")) == values.nbytes
        assert (values == np.arange(60_000)).all()
        del values, source


def test_memory_is_kept_while_arrays_use_it(tmp_path):
    used = pager()
    values = used.create(tmp_path / "a.npy", (50, 50), "float32")
    part = values[3:5]
    del values
    with pytest.raises(UsageError, match="1 arrays use it"):
        used.close()
    part[...] = 5
    del part
    used.close()
    assert np.load(tmp_path / "a.npy")[3:5].sum() == 500


def test_sizes_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(UsageError, match="8 pages of 16384 bytes; paging needs at least"):
        pager(8, threads=4)
    with pytest.raises(UsageError, match="no multiple of the system's 4096"):
        Pager("1MiB", page=5000)
    with pytest.raises(StoreError, match="cannot read"):
        pager().open(tmp_path / "none.npy")


FAULT = """
import os, sys, numpy as np, outgrid as og
path = sys.argv[1]
values = og.paged(path, "r", local="1MiB", page=16384)
print(values[0], flush=True)
os.truncate(path, 200_000)
print(values[-1], flush=True)
"""

LEFT = """
import sys, outgrid as og
values = og.paged(sys.argv[1], "w+", local="1MiB", page=16384, shape=(500_000,))
values[:] = 3
"""

FORKED = """
import os, sys
import numpy as np
from outgrid.errors import StoreError
from outgrid.storage import Pager

path = sys.argv[1]
used = Pager("1MiB", page=16384)
values = used.open(path, "r+")
values[:9] = 7  # dirty, and most pages are away
for way in ("ends", "drops", "flushes"):
    if not (child := os.fork()):
        if way == "drops":
            del values, used
        elif way == "flushes":
            try:
                used.open(path)
            except StoreError as error:
                assert "forked" in str(error)
            used.flush()
            del values
            used.close()
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, way
    assert (np.load(path)[:9] == np.arange(1, 10)).all()  # not written back from there
assert (values[:9] == 7).all()
assert (values[9:] == np.arange(10, 100_001)).all()
values[-9:] = 8
"""


def test_a_child_of_the_process_leaves_what_its_parent_pages_alone(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(1, 100_001))
    command = [sys.executable, "-W", "ignore", "-c", FORKED, tmp_path / "a.npy"]
    subprocess.run(command, check=True)
    kept = np.load(tmp_path / "a.npy")
    assert (kept[:9] == 7).all()
    assert (kept[-9:] == 8).all()


LOCKED = """
import ctypes, sys
import numpy as np
from outgrid.storage import Pager

path, when = sys.argv[1:]
lock = ctypes.CDLL(None).mlockall
used = Pager("1MiB", page=16384)
refused = when == "before" and lock(2)  # MCL_FUTURE
values = used.open(path, "r+")
values[:9] += 6
refused = refused or (when == "after" and lock(1 | 4))  # MCL_CURRENT | MCL_ONFAULT
assert (values[9:] == np.arange(10, 200_001)).all()
values[-9:] = 8
assert used.statistics().evictions > 0
del values
used.close()
print("refused" if refused else "locked")
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_locks_its_memory_pages_all_the_same(tmp_path, when):
    np.save(tmp_path / "a.npy", np.arange(1, 200_001))
    command = [sys.executable, "-c", LOCKED, tmp_path / "a.npy", when]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    if "refused" in done.stdout:
        pytest.skip("this process may not lock its memory")
    kept = np.load(tmp_path / "a.npy")
    assert (kept[:9] == np.arange(7, 16)).all()
    assert (kept[9:-9] == np.arange(10, 199_992)).all()
    assert (kept[-9:] == 8).all()


def test_a_page_that_is_gone_ends_the_process_and_says_why(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(100_000))
    done = subprocess.run(
        [sys.executable, "-c", FAULT, tmp_path / "a.npy"], capture_output=True, text=True
    )
    assert done.stdout == "0\n"
    assert done.returncode in (-signal.SIGBUS, -signal.SIGABRT)
    assert f"of {tmp_path / 'a.npy'}: No data available" in done.stderr


def test_what_an_ended_program_wrote_is_in_the_file(tmp_path):
    subprocess.run([sys.executable, "-c", LEFT, tmp_path / "a.npy"], check=True)
    values = paged(tmp_path / "a.npy", local="1MiB", page=PAGE)
    assert (values == 3).all()
