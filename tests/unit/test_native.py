import errno
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from outgrid import native


def segments(*rows):
    return np.array(rows, np.int64).reshape(-1, 3)


def finish(queue):
    ended = []
    while queue.outstanding:
        ended += queue.wait()
    return {completion.ticket: completion for completion in ended}


@pytest.fixture(params=native.engines())
def queue(request):
    queue = native.Queue(request.param, depth=3, request_bytes=1 << 16, staging_bytes=3 << 14)
    yield queue
    queue.close()


def test_buffer_is_aligned_zeroed_and_writable():
    buffer = native.Buffer((5 << 20) + 1)
    assert buffer.address % (2 << 20) == 0
    assert (buffer.nbytes, buffer.mapped_bytes) == ((5 << 20) + 1, (5 << 20) + 4096)
    values = native.as_array(buffer, "float64", offset_bytes=8, count=3)
    assert values.ctypes.data == buffer.address + 8
    assert values.tolist() == [0, 0, 0]
    values[:] = 1
    assert native.as_array(buffer, "float64")[:5].tolist() == [0, 1, 1, 1, 0]


def test_buffer_is_kept_while_an_array_uses_it():
    buffer = native.Buffer(4096)
    values = native.as_array(buffer, "uint8")
    with pytest.raises(BufferError, match="1 arrays use"):
        buffer.release()
    del values
    buffer.release()
    buffer.release()
    with pytest.raises(BufferError, match="released"):
        native.as_array(buffer, "uint8")


def test_buffer_outlives_its_name_while_an_array_uses_it():
    values = native.as_array(native.Buffer(1 << 22), "uint8")
    values[:] = 7
    assert values.sum() == 7 << 22


@pytest.mark.parametrize("nbytes", [0, 1 << 62])
def test_buffer_of_impossible_size_is_refused(nbytes):
    with pytest.raises(OSError, match=f"{nbytes} bytes"):
        native.Buffer(nbytes)


def test_a_thread_asks_for_short_slices_and_those_that_it_starts_do_too():
    def seen():
        slices = []
        thread = threading.Thread(target=lambda: slices.append(native.set_slice(0)))
        thread.start()
        thread.join()
        return slices[0]

    usual = native.set_slice(native.PROMPT_SLICE)
    try:
        if native.set_slice(native.PROMPT_SLICE) == 0:
            pytest.skip("Linux knows no slices before 6.12")
        assert seen() == native.PROMPT_SLICE
        native.set_slice(0)
        assert seen() == usual > native.PROMPT_SLICE
    finally:
        assert native.set_slice(0) in (native.PROMPT_SLICE, usual)


def test_a_thread_that_runs_when_nobody_else_does_is_left_alone():
    code = """
import os
from outgrid import native
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
assert native.set_slice(native.PROMPT_SLICE) == 0
assert os.sched_getscheduler(0) == os.SCHED_IDLE
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_file_never_opens_an_existing_one_to_create_it(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"kept")
    with pytest.raises(FileExistsError) as caught:
        native.File(path, "create")
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"kept"


def test_file_reserves_space_and_length(tmp_path):
    file = native.File(tmp_path / "a", "create")
    reserved = file.reserve(1_000_001)
    assert file.nbytes == os.path.getsize(tmp_path / "a") == 1_000_001
    if reserved:
        assert (tmp_path / "a").stat().st_blocks * 512 >= 1_000_001


def test_file_mode_is_checked(tmp_path):
    with pytest.raises(ValueError, match=r'"r", "rw" or "create", not "w"'):
        native.File(tmp_path / "a", "w")


def test_closed_file_is_refused(tmp_path, queue):
    file = native.File(tmp_path / "a", "create")
    file.close()
    with pytest.raises(OSError, match="closed"):
        queue.submit_flush(file)


def test_unknown_engine_names_the_known():
    with pytest.raises(ValueError, match="threads"):
        native.Queue("turbo")


def test_auto_takes_the_first_engine_that_the_kernel_grants():
    queue = native.Queue()
    refused = [text.split(":")[0] for text in queue.refusals]
    assert [*refused, queue.engine] == native.engines()[: len(refused) + 1]


def test_a_file_open_for_reading_is_not_written(tmp_path, queue):
    (tmp_path / "a").write_bytes(bytes(8192))
    file = native.File(tmp_path / "a", "r")
    with pytest.raises(OSError, match="reading") as caught:
        queue.submit_write(file, segments([0, 0, 0]))
    assert caught.value.errno == errno.EBADF


@pytest.mark.parametrize(
    "rows", [[[10, 0, 5], [0, 0, 5]], [[0, 0, 5], [4, 0, 5]], [[-1, 0, 2]], [[0, 0, -1]]]
)
def test_segments_must_be_sorted_and_disjoint(tmp_path, queue, rows):
    file = native.File(tmp_path / "a", "create")
    with pytest.raises(ValueError, match="sorted and disjoint"):
        queue.submit_read(file, segments(*rows))
    assert queue.outstanding == 0


def test_transfer_of_nothing_completes(tmp_path, queue):
    file = native.File(tmp_path / "a", "create")
    tickets = [queue.submit_write(file, segments()), queue.submit_read(file, segments([5, 0, 0]))]
    assert {ticket: ended.nbytes for ticket, ended in finish(queue).items()} == dict.fromkeys(
        tickets, 0
    )


def test_tickets_count_up_and_wait_ends_when_none_is_outstanding(queue):
    first, second = queue.submit_complete(7, 0.5), queue.submit_complete(0)
    assert (first, second, queue.outstanding) == (1, 2, 2)
    assert [(c.ticket, c.nbytes, c.seconds) for c in queue.wait()] == [(1, 7, 0.5), (2, 0, 0.0)]
    begin = time.perf_counter()
    assert queue.wait() == queue.poll() == []
    assert time.perf_counter() - begin < 0.1


@pytest.mark.parametrize("direct", [True, False])
def test_file_that_ends_inside_a_read_is_an_error(tmp_path, queue, direct):
    (tmp_path / "a").write_bytes(bytes(200_000))
    file = native.File(tmp_path / "a", "r", direct)
    memory = np.ones(300_000, np.uint8)
    queue.submit_read(file, segments([100, memory.ctypes.data, 250_000]))
    (ended,) = finish(queue).values()
    assert ended.errno == errno.ENODATA
    assert ended.offset + ended.length > 200_000
    assert ended.path == str(tmp_path / "a")
    exact = queue.submit_read(file, segments([100, memory.ctypes.data, 199_900]))
    ended = finish(queue)[exact]
    assert (ended.errno, ended.nbytes, memory[:199_900].any()) == (0, 199_900, False)


@pytest.mark.parametrize("direct", [True, False])
def test_bad_memory_is_an_error_of_its_ticket_alone(tmp_path, queue, direct):
    (tmp_path / "a").write_bytes(bytes(1 << 20))
    file = native.File(tmp_path / "a", "rw", direct)
    memory = native.Buffer(1 << 20)
    bad = queue.submit_read(file, segments([0, 4096, 1 << 20]))
    good = queue.submit_read(file, segments([0, memory.address, 1 << 20]))
    ended = finish(queue)
    assert (ended[bad].errno, ended[bad].path) == (errno.EFAULT, str(tmp_path / "a"))
    assert (ended[good].errno, ended[good].nbytes) == (0, 1 << 20)


def test_full_disk_is_an_error_with_its_offset(queue):
    if queue.engine == "aio" or not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full, which kernel AIO does not serve")
    file = native.File("/dev/full", "rw", False)
    memory = native.Buffer(4096)
    queue.submit_write(file, segments([8192, memory.address, 4096]))
    (ended,) = finish(queue).values()
    assert (ended.errno, ended.offset, ended.length) == (errno.ENOSPC, 8192, 4096)


def test_closing_waits_for_what_is_under_way(tmp_path, queue):
    file = native.File(tmp_path / "a", "create")
    memory = native.Buffer(8 << 20)
    for part in range(8):
        queue.submit_write(file, segments([part << 20, memory.address + (part << 20), 1 << 20]))
    queue.close()
    memory.release()
    with pytest.raises(ValueError, match="closed"):
        queue.submit_flush(file)
    assert len(queue.poll()) <= 8
    assert queue.outstanding == 0


def test_aligned_transfers_are_not_copied(tmp_path, queue):
    file = native.File(tmp_path / "a", "create")
    if not file.direct:
        pytest.skip("the file system has no direct transfers")
    buffer = native.Buffer(1 << 20)
    native.as_array(buffer, "uint8")[:] = 3
    queue.submit_write(file, segments([4096, buffer.address, 1 << 20]))
    finish(queue)
    queue.submit_read(file, segments([4096, buffer.address, 1 << 20]))
    finish(queue)
    moved = queue.statistics()
    assert (moved.direct_bytes, moved.buffered_bytes, moved.staged_bytes) == (2 << 20, 0, 0)
    assert (moved.read_bytes, moved.written_bytes) == (1 << 20, 1 << 20)
    assert (moved.read_requests, moved.write_requests) == (16, 16)


def test_ragged_ends_alone_are_copied_where_memory_lies_as_the_file_does(tmp_path, queue):
    file = native.File(tmp_path / "a", "create")
    if not file.direct:
        pytest.skip("the file system has no direct transfers")
    buffer = native.Buffer(2 << 20)
    queue.submit_write(file, segments([5000, buffer.address + 5000, 1 << 20]))
    finish(queue)
    written = queue.statistics()
    inner = (1 << 20) // 4096 * 4096 - 4096
    assert (written.direct_bytes, written.staged_bytes) == (inner, 0)
    assert written.buffered_bytes == (1 << 20) - inner
    queue.submit_read(file, segments([5000, buffer.address + 5000, 1 << 20]))
    finish(queue)
    assert queue.statistics().staged_bytes == (1 << 20) - inner


STARVED = """
import os, resource
from outgrid import native

MAKERS = {
    "aio": lambda: native.Queue("aio", 4, 4096, 4096),
    "threads": lambda: native.Queue("threads", 8, 4096, 4096),
    "outlet": lambda: native.Outlet([], 0),
    "pager": lambda: native.Pager(64 * 4096, 4096, 1, 6),
}

def counted():
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

def mapped():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmSize"))

before = counted()
for name, make in MAKERS.items():
    outcomes = set()
    for room in range(0, 120 << 20, 6 << 20):
        resource.setrlimit(resource.RLIMIT_AS, (mapped() + room, resource.RLIM_INFINITY))
        try:
            make()
            outcomes.add("made")
        except OSError as error:
            outcomes.add(error.strerror.split(" (")[0])
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
        assert counted() == before, name
    print(name, *sorted(outcomes), sep=": ", flush=True)
"""


@pytest.mark.skipif("OUTGRID_SANITIZED" in os.environ, reason="its bound starves the sanitizer")
def test_what_cannot_start_all_its_threads_is_refused_and_leaves_nothing():
    """The stack of a thread takes 8 MiB of what may be mapped: any number of them fails."""
    environment = os.environ | {"GLIBC_TUNABLES": "glibc.pthread.stack_cache_size=0"}
    command = [sys.executable, "-c", STARVED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for line in done.stdout.splitlines():
        if "userfaultfd" not in line:
            assert "cannot start threads" in line
            assert "made" in line


FORKED = """
import os, sys, time
from outgrid import native

queues = [native.Queue(name, depth=2) for name in native.engines()]
outlet = native.Outlet([], 0)
file = native.File(sys.argv[1], "create")
queues[0].submit_flush(file)
while not queues[0].statistics().flushes:
    time.sleep(0.01)
if not (child := os.fork()):
    for needed in (
        lambda: queues[0].wait(1),
        lambda: queues[0].submit_complete(7),
        lambda: queues[0].submit_flush(file),
    ):
        try:
            needed()
        except RuntimeError as error:
            assert "forked" in str(error)
        else:
            raise AssertionError
    assert queues[0].outstanding == queues[0].statistics().flushes == 0
    assert queues[0].close()
    outlet.drain()
    del queues, outlet
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
queues[0].submit_complete(7)
assert [ended.nbytes for ended in queues[0].wait()] == [0, 7]
for queue in queues:
    assert queue.close()
"""


def test_a_child_of_the_process_leaves_its_queues_and_outlets_alone(tmp_path):
    """Their threads are not there, and may have held locks when it was made."""
    command = [sys.executable, "-W", "ignore", "-c", FORKED, tmp_path / "a"]
    subprocess.run(command, check=True, timeout=60)
