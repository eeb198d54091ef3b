import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from outgrid.errors import StoreError
from outgrid.formats import codecs
from outgrid.formats.codecs import encoder, most_bytes
from outgrid.formats.sink import Codec

numcodecs = pytest.importorskip("numcodecs")

READERS = {
    "none": lambda content: content,
    "zstd": numcodecs.Zstd().decode,
    "gzip": numcodecs.GZip().decode,
    "blosc": numcodecs.Blosc().decode,
}


def encoded(codec, chunk):
    room = np.empty(most_bytes(chunk.nbytes), np.uint8)
    count = encoder(codec, "a file")(chunk, room)
    return room[:count].tobytes()


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("cells", [1, 3, 1000, 1 << 18])
def test_what_hardly_shrinks_fits_into_the_memory_set_aside(name, cells):
    chunk = np.random.default_rng(cells).bytes(4 * cells)
    chunk = np.frombuffer(chunk, "<i4")
    content = encoded(Codec(name), chunk)
    assert bytes(READERS[name](content)) == chunk.tobytes()


def test_zstd_makes_what_numcodecs_makes():
    chunk = np.arange(50000, dtype="<f4")
    for level in (1, 5, -3):
        codec = Codec("zstd", level)
        assert encoded(codec, chunk) == numcodecs.Zstd(level=level).encode(chunk)
    assert encoded(Codec("zstd"), chunk) == numcodecs.Zstd(level=0).encode(chunk)


def test_a_library_that_shows_no_names_is_called_by_numcodecs(monkeypatch):
    monkeypatch.setattr(codecs.ctypes, "CDLL", lambda _: SimpleNamespace())
    chunk = np.arange(5000, dtype="<f4")
    assert encoded(Codec("zstd", 1), chunk) == numcodecs.Zstd(level=1).encode(chunk)


def test_memory_that_is_too_small_is_an_error():
    encode = encoder(Codec("zstd", 1), "a file")
    assert isinstance(encode._zstd, ctypes.CDLL)
    chunk = np.random.default_rng(0).random(1000)
    with pytest.raises(StoreError, match="cannot be encoded with zstd: Dest"):
        encode(chunk, np.empty(100, np.uint8))
