import os
import struct
import tracemalloc

import numpy as np
import pytest

from outgrid.errors import StoreError, UsageError
from outgrid.formats import InputFile
from outgrid.formats.npy import (
    HEADER_BYTES,
    header_bytes,
    open_source,
    read_header,
    write_header,
)


def save(path, text, *, version=(1, 0), data=b"", length=None):
    raw = text.encode()
    width = "<H" if version[0] == 1 else "<I"
    length = len(raw) if length is None else length
    path.write_bytes(b"\x93NUMPY" + bytes(version) + struct.pack(width, length) + raw + data)
    return path


@pytest.mark.parametrize("shape", [(3, 4, 5), (7, 2), (1, 1, 1), (123456789, 987654321, 55)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_written_header_is_read_by_us(tmp_path, shape, dtype):
    path = tmp_path / "a.npy"
    path.touch()
    nbytes = int(np.prod([float(n) for n in shape])) * np.dtype(dtype).itemsize
    write_header(path, shape, dtype)
    assert path.stat().st_size == HEADER_BYTES == len(header_bytes(shape, dtype))
    if nbytes < 1 << 20:
        os.truncate(path, HEADER_BYTES + nbytes)
        header = read_header(path)
        assert (header.shape, header.dtype, header.data_offset) == (shape, dtype, HEADER_BYTES)
        assert not header.fortran_order


def test_written_header_is_read_by_numpy(tmp_path):
    values = np.arange(24.0).reshape(2, 3, 4)
    (tmp_path / "a.npy").write_bytes(header_bytes((2, 3, 4), "float64") + values.tobytes())
    loaded = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert (loaded == values).all()
    assert loaded.offset == HEADER_BYTES


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_headers_of_numpy_are_read(tmp_path, version, order):
    values = np.asarray(np.arange(24, dtype=">i2").reshape(4, 6), order=order)
    with open(tmp_path / "a.npy", "wb") as file:
        np.lib.format.write_array(file, values, version=version)
    header = read_header(tmp_path / "a.npy")
    assert (header.shape, header.dtype) == ((4, 6), np.dtype(">i2"))
    assert header.fortran_order == (order == "F")
    assert header.nbytes == 48


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "plain numbers"),
        ("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,)}", "structured"),
        ("{'descr': '<f8,<f8', 'fortran_order': False, 'shape': (1,)}", "plain numbers"),
        ("{'descr': '<M8[s]', 'fortran_order': False, 'shape': (1,)}", "plain numbers"),
        ("{'descr': 'rubbish', 'fortran_order': False, 'shape': (1,)}", "no type"),
        ("{'descr': '<f8', 'fortran_order': 0, 'shape': (1,)}", "neither True nor False"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': [1]}", "not a tuple"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}", "extent -1"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (1.5,)}", "extent 1.5"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (True,)}", "extent True"),
        ("{'descr': '<f8', 'fortran_order': False}", "keys other"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (), 'x': 1}", "keys other"),
        ("('descr',)", "not a dictionary"),
        ("__import__('os').getpid()", "not a Python literal"),
        ("{'descr'", "not a Python literal"),
        ("{[]: 1}", "not a Python literal"),
        ("", "not a Python literal"),
        ("\x00", "not a Python literal"),
        ("(" * 60000, "too deeply nested"),
        ("-" * 60000 + "1", "not a"),
    ],
)
def test_bad_header_is_refused_with_its_reason(tmp_path, text, reason):
    path = save(tmp_path / "a.npy", text, data=bytes(8))
    with pytest.raises(UsageError, match=reason) as caught:
        read_header(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 600


def test_no_npy_file_is_refused(tmp_path):
    for content in (b"", b"\x93NUM", b"PK\x03\x04 and so on", b"\x93NUMPY"):
        (tmp_path / "a").write_bytes(content)
        with pytest.raises(UsageError, match=r"not a \.npy file"):
            read_header(tmp_path / "a")


def test_unknown_version_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"version 9\.0"):
        read_header(save(tmp_path / "a.npy", "{}", version=(9, 0)))


def test_header_longer_than_the_file_or_the_bound_is_refused(tmp_path):
    with pytest.raises(StoreError, match="2 of 500 bytes"):
        read_header(save(tmp_path / "a.npy", "{}", length=500))
    with pytest.raises(UsageError, match="4000000000 bytes"):
        read_header(save(tmp_path / "a.npy", "{}", version=(2, 0), length=4_000_000_000))


@pytest.mark.parametrize("nbytes", [0, 79, 81])
def test_length_other_than_promised_is_refused_with_figures(tmp_path, nbytes):
    text = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 5)}"
    path = save(tmp_path / "a.npy", text, data=bytes(nbytes))
    promised, found = 10 + len(text) + 80, 10 + len(text) + nbytes
    with pytest.raises(StoreError, match=f"{promised} bytes, but the file has {found}"):
        read_header(path)


@pytest.mark.parametrize("content", [b"\0", b"\xff"])
def test_many_bytes_behind_the_data_take_little_memory(tmp_path, content):
    path = tmp_path / "a.npy"
    np.save(path, np.zeros(10))
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(content * (5 << 20))
        file.truncate(size + (64 << 20) + 4)
    tracemalloc.start()
    with pytest.raises(StoreError, match="but the file has"):
        read_header(path)
    most_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most_bytes < 8 << 20


def test_promise_beyond_any_file_is_refused(tmp_path):
    shape = (2**63, 2**63)
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}"
    with pytest.raises(StoreError, match="but the file has"):
        read_header(save(tmp_path / "a.npy", text))


def test_missing_file_is_named(tmp_path):
    with pytest.raises(StoreError, match="No such file") as caught:
        read_header(tmp_path / "a.npy")
    assert caught.value.path == tmp_path / "a.npy"


@pytest.mark.parametrize("stored", ["float64", "float32", ">f8", "int16", "bool"])
@pytest.mark.parametrize("cut", [(1, 1), (1, 2), (2, 2), (2, 3), (5, 3)])
def test_boxes_are_read_as_they_are_in_the_file(tmp_path, stored, cut):
    values = (np.arange(60).reshape(5, 3, 4) % 7).astype(stored)
    np.save(tmp_path / "a.npy", values)
    source = open_source(InputFile(tmp_path / "a.npy"))
    for z in range(0, 5, cut[0]):
        for y in range(0, 3, cut[1]):
            planes, rows = range(z, min(z + cut[0], 5)), range(y, min(y + cut[1], 3))
            box = source.read((planes, rows, range(1, 4)))
            assert box.dtype == values.dtype
            wanted = values[planes.start : planes.stop, rows.start : rows.stop, 1:]
            assert np.array_equal(box, wanted)
    source.close()


def test_what_is_no_array_of_numbers_is_refused(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.zeros((4, 3), order="F"))
    with pytest.raises(UsageError, match="ascontiguousarray"):
        open_source(InputFile(path))
    np.save(path, np.zeros((4, 3)))
    with pytest.raises(UsageError, match="leave order out"):
        open_source(InputFile(path, order="F"))
    np.save(path, np.array([None]), allow_pickle=True)
    with pytest.raises(UsageError, match="plain numbers"):
        open_source(InputFile(path))
