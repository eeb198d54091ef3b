"""Codecs of chunks that encode into memory which is there.

What a library makes anew for each chunk takes the system as long as half of zstd: memory of a MiB
is mapped, filled with zeroes and given back each time, by one thread after another.
"""

import ctypes
from collections.abc import Callable
from threading import local
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import StoreError
from outgrid.formats.registry import library
from outgrid.formats.sink import Codec

__all__ = ["Encode", "decoder", "encoder", "most_bytes"]

Encode = Callable[[NDArray[Any], NDArray[np.uint8]], int]
"""Encodes a chunk, contiguous in memory, into memory of `most_bytes`; how many bytes it made."""


def most_bytes(chunk_bytes: int) -> int:
    """Of a chunk that a codec cannot make smaller."""
    return chunk_bytes + chunk_bytes // 64 + 1024


def encoder(codec: Codec, file: object) -> Encode:
    """What encodes so, for any number of threads. Raises UsageError where a library is missing."""
    numcodecs: Any = library("numcodecs", file, "zarr")
    level = {} if codec.level is None else {"level": codec.level}
    if codec.name == "zstd":
        try:
            return _Zstd(ctypes.CDLL(numcodecs.zstd.__file__), codec.level or 0)
        except (OSError, AttributeError):  # one that shows no names of the library in it
            return _put(numcodecs.Zstd(**level or {"level": 0}).encode)
    if codec.name == "gzip":
        return _put(numcodecs.GZip(**level or {"level": 5}).encode)
    if codec.name == "blosc":
        shuffled = numcodecs.Blosc.SHUFFLE
        return _put(numcodecs.Blosc("zstd", level.get("level", 5), shuffled).encode)
    return _put(np.ravel)


def decoder(codec: Codec, file: object) -> Callable[[Any, NDArray[Any]], object]:
    """What decodes a chunk into an array that is there."""
    numcodecs: Any = library("numcodecs", file, "zarr")
    known = {"zstd": numcodecs.Zstd, "gzip": numcodecs.GZip, "blosc": numcodecs.Blosc}
    if codec.name in known:
        return known[codec.name]().decode
    return lambda content, out: np.copyto(out.reshape(-1).view(np.uint8), content)


def _put(encode: Callable[[NDArray[Any]], Any]) -> Encode:
    """What encodes into memory of its own, which is copied."""

    def put(chunk: NDArray[Any], room: NDArray[np.uint8]) -> int:
        content = np.frombuffer(encode(chunk), np.uint8)
        room[: content.size] = content
        return content.size

    return put


class _Zstd:
    """The library of Zstandard that numcodecs has in it, with a context for each thread."""

    def __init__(self, zstd: Any, level: int) -> None:
        self._zstd, self._level, self._local = zstd, level, local()
        zstd.ZSTD_createCCtx.restype = ctypes.c_void_p
        zstd.ZSTD_freeCCtx.argtypes = [ctypes.c_void_p]
        room = [ctypes.c_void_p, ctypes.c_size_t]
        zstd.ZSTD_compressCCtx.argtypes = [ctypes.c_void_p, *room, *room, ctypes.c_int]
        zstd.ZSTD_compressCCtx.restype = ctypes.c_size_t
        zstd.ZSTD_isError.argtypes = zstd.ZSTD_getErrorName.argtypes = [ctypes.c_size_t]
        zstd.ZSTD_getErrorName.restype = ctypes.c_char_p

    def __call__(self, chunk: NDArray[Any], room: NDArray[np.uint8]) -> int:
        context: _Context | None = getattr(self._local, "context", None)
        if context is None:
            context = self._local.context = _Context(self._zstd)
        there, here = (room.ctypes.data, room.nbytes), (chunk.ctypes.data, chunk.nbytes)
        count = self._zstd.ZSTD_compressCCtx(context.address, *there, *here, self._level)
        if self._zstd.ZSTD_isError(count):
            said = self._zstd.ZSTD_getErrorName(count).decode()
            raise StoreError(f"a chunk cannot be encoded with zstd: {said}")
        return count


class _Context:
    """Memory of the library, which goes with the thread that has it."""

    def __init__(self, zstd: Any) -> None:
        self._free, self.address = zstd.ZSTD_freeCCtx, zstd.ZSTD_createCCtx()
        if not self.address:
            raise StoreError("there is no memory to encode with zstd")

    def __del__(self) -> None:
        self._free(self.address)
