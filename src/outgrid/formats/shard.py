"""The index by which the bytes of a file are a shard of a Zarr array as well, of version 3.

    data ... | offset, length of chunk 0 | offset, length of chunk 1 | ... | crc32c

Offsets and lengths are 8 bytes each, the checksum of all of them 4, the lowest first: the codec
`sharding_indexed` with its index at the end, of chunks that are not compressed.
"""

import os
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import StoreError
from outgrid.regular import given

__all__ = [
    "ABSENT",
    "CHUNK_BYTES",
    "check_index",
    "chunk_of",
    "index_of",
    "is_index",
    "stored_chunks",
]

CHUNK_BYTES = 1 << 20
ABSENT = np.iinfo(np.uint64).max
"""Offset and length of a chunk that lies outside of the array."""

_PART_BYTES = 1 << 20  # of an index that are looked at together
_POLYNOMIAL = 0x82F63B78


def chunk_of(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The chunks of an array: whole planes, and as many as make a MiB where they divide it.

    Of an array of two axes a plane is a row. Each chunk is one run of bytes.
    """
    chunk = [max(1, extent) for extent in shape]
    for axis in range(len(shape) - min(2, len(shape) - 1)):
        others = prod(chunk[axis + 1 :]) * itemsize
        fitting = range(min(chunk[axis], CHUNK_BYTES // others), 1, -1)
        chunk[axis] = next((count for count in fitting if not chunk[axis] % count), 1)
        if chunk[axis] > 1:
            break
    return tuple(chunk)


def index_of(chunks: NDArray[np.uint64]) -> bytes:
    """The index of chunks: their offsets and lengths, (chunks, 2)."""
    content = chunks.astype("<u8").tobytes()
    return content + _crc32c(content).to_bytes(4, "little")


def is_index(file: int, begin: int, end: int, size: int) -> bool:
    """Whether behind the data of an open file, bytes `begin` to `end`, lies an index of them."""
    length = size - end
    if length < 20 or length % 16 != 4:
        return False
    # A part at a time: what is no index may have any length.
    places = range(end, size - 4, _PART_BYTES)
    return all(_is_part(file, at, min(at + _PART_BYTES, size - 4), begin, end) for at in places)


def _is_part(file: int, at: int, stop: int, begin: int, end: int) -> bool:
    """Whether all chunks that bytes `at` to `stop` name lie in bytes `begin` to `end`."""
    content = os.pread(file, stop - at, at)
    if len(content) < stop - at:
        return False
    chunks = np.frombuffer(content, "<u8").reshape(-1, 2)
    there = chunks[chunks[:, 1] != ABSENT]
    first, nbytes = there[:, 0], there[:, 1]
    # Lengths are looked at first, as sums of any numbers may run over.
    return bool(
        (nbytes <= end).all() and ((first >= begin) & (first <= np.uint64(end) - nbytes)).all()
    )


def stored_chunks(
    path: Path, counts: tuple[int, ...], *, at_start: bool, more_bytes: int
) -> NDArray[np.bool_]:
    """Which of the chunks of a shard are stored: so many along each axis. Reads the index alone.

    None is where the file is not there. The index has `more_bytes` beside its entries. Raises
    OSError, and ValueError where the file is too short for it.
    """
    nbytes = 16 * prod(counts)
    try:
        with open(path, "rb", buffering=0, opener=given) as file:
            size = os.fstat(file.fileno()).st_size
            begin = 0 if at_start else max(0, size - nbytes - more_bytes)
            content = os.pread(file.fileno(), nbytes, begin)
    except FileNotFoundError:
        return np.zeros(counts, bool)
    if len(content) < nbytes:
        raise ValueError(f"the shard {path.name} has {size} bytes, and its index {nbytes}")
    return (np.frombuffer(content, "<u8").reshape(*counts, 2) != ABSENT).any(-1)


def check_index(path: Path, end: int) -> None:
    """Raise StoreError where the index behind byte `end` is not what its checksum is of."""
    with path.open("rb") as file:
        file.seek(end)
        content = file.read()
    if content and _crc32c(content[:-4]).to_bytes(4, "little") != content[-4:]:
        raise StoreError(
            "the index of its chunks differs from the written one", path=path, offset=end
        )


def _table() -> list[int]:
    table: list[int] = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_CRC = _table()


def _crc32c(content: bytes) -> int:
    """The checksum of Castagnoli, as in iSCSI."""
    crc, table = 0xFFFFFFFF, _CRC
    for byte in content:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
