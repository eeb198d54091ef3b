"""What a kernel puts into an outlet is in its files, from whatever thread it comes."""

import ctypes
import errno
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from outgrid.errors import StoreError
from outgrid.storage import outlet
from outgrid.storage.outlet import Outlet

PUT = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_char_p, ctypes.c_int64
)


def put(found, file, at, content):
    """As a kernel calls it: the first member of the structure is the function."""
    call = PUT(ctypes.c_void_p.from_address(found.address).value)
    call(found.address, file, at, content, len(content))


@pytest.fixture
def paths(tmp_path):
    found = [tmp_path / name for name in ("a", "b")]
    for path in found:
        path.write_bytes(bytes(100))
    return found


def test_what_is_put_is_in_its_file(paths):
    found = Outlet(paths, 0)
    put(found, 1, 40, b"here")
    put(found, 0, 98, b"beyond the end")
    found.check()
    found.sync()
    found.close()
    assert paths[1].read_bytes() == bytes(40) + b"here" + bytes(56)
    assert paths[0].read_bytes() == bytes(98) + b"beyond the end"


def test_many_threads_put_at_once(paths):
    found = Outlet(paths, 0)
    pieces = [bytes([k]) * 5000 for k in range(100)]
    with ThreadPoolExecutor(8) as threads:
        ended = threads.map(lambda k: put(found, k % 2, k // 2 * 5000, pieces[k]), range(100))
    list(ended)
    found.sync()
    found.close()
    assert paths[0].read_bytes() == b"".join(pieces[0::2])
    assert paths[1].read_bytes() == b"".join(pieces[1::2])


def test_the_file_that_cannot_be_written_is_named(paths, monkeypatch):
    own = outlet.own
    monkeypatch.setattr(outlet, "own", lambda path, flags: own(path, os.O_RDONLY))
    found = Outlet(paths, 0)
    put(found, 1, 0, b"")
    found.check()
    put(found, 1, 0, b"content")
    with pytest.raises(StoreError, match="cannot write a snapshot") as caught:
        found.sync()
    found.close()
    assert (caught.value.path, caught.value.errno) == (paths[1], errno.EBADF)


def test_a_file_that_is_not_there_or_a_link_is_refused(paths):
    paths[1].unlink()
    with pytest.raises(StoreError, match="cannot open"):
        Outlet(paths, 0)
    paths[1].symlink_to(paths[0])
    with pytest.raises(StoreError, match="it is a link"):
        Outlet(paths, 0)


def test_more_blocks_than_there_is_memory_for_come_in_any_order(paths):
    """Pieces of 200 blocks, of which 64 are held: some are written in parts, and opened again."""
    rng = np.random.default_rng(1)
    whole = rng.bytes(200 * 65536 + 1000)
    size = 5000
    begins = rng.permutation(np.arange(0, len(whole), size))
    found = Outlet(paths, 0)
    with ThreadPoolExecutor(4) as threads:
        ended = threads.map(lambda at: put(found, 0, int(at), whole[at : at + size]), begins)
        list(ended)
    found.sync()
    assert paths[0].read_bytes() == whole
    put(found, 0, 7, b"again")
    found.close()
    assert paths[0].read_bytes() == whole[:7] + b"again" + whole[12:]
