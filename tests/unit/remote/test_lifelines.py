"""Who reaches rank 0, and who is gone; no MPI is needed for that."""

import os
import resource
import socket
import struct

import pytest

from outgrid.errors import ExecutionError
from outgrid.remote import lifelines
from outgrid.remote.lifelines import ended, greeted, has_ended, reach

TOKEN = b"0123456789abcdef"


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


def close(*lines):
    for line in lines:
        line.close()


def test_whoever_else_connects_is_dropped(listener):
    silent, scan, other = (socket.create_connection(listener.getsockname()) for _ in range(3))
    scan.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    scan.close()  # with a reset
    other.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    mine = [reach(["127.0.0.1"], listener.getsockname()[1], TOKEN, rank) for rank in (1, 2)]
    found = greeted(listener, TOKEN, 2)
    assert sorted(found) == [1, 2]
    assert found[2].getpeername() == mine[1].getsockname()
    silent.settimeout(60)
    assert silent.recv(1) == b""
    assert not has_ended(mine[0])
    close(silent, other, *mine, *found.values())


def test_ranks_that_do_not_come_are_an_error(listener, monkeypatch):
    monkeypatch.setattr(lifelines, "GREET_SECONDS", 0.01)
    line = reach(["127.0.0.1"], listener.getsockname()[1], TOKEN, 1)
    with pytest.raises(ExecutionError, match="1 of 2 ranks that lend memory reached rank 0 within"):
        greeted(listener, TOKEN, 2)
    close(line)


def test_ends_are_seen_however_many_files_are_open():
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most[1] < 1100:
        pytest.skip("a process may open few files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(most[0], 1100), most[1]))
    low = [os.open("/dev/null", os.O_RDONLY) for _ in range(1030)]
    here, there = socket.socketpair()
    stop, stopped = socket.socketpair()
    try:
        assert here.fileno() > 1023
        seen = ended({3: here}, stopped)
        there.close()
        assert next(seen) == 3
        stop.close()
        assert [*seen] == []
    finally:
        close(here, there, stop, stopped)
        for number in low:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
