"""Memory that holds bytes of 0 alone: told and made by functions that let other threads run."""

from __future__ import annotations

from ctypes import CDLL, c_int, c_size_t, c_void_p, string_at

__all__ = ["all_zero", "clear"]

_HEAD_BYTES = 64

_libc = CDLL(None)
_memcmp, _memset = _libc.memcmp, _libc.memset
_memcmp.argtypes, _memcmp.restype = (c_void_p, c_void_p, c_size_t), c_int
_memset.argtypes, _memset.restype = (c_void_p, c_int, c_size_t), c_void_p


def all_zero(address: int, nbytes: int) -> bool:
    """Whether all bytes there are 0: the first ones are, and each is the same as one before it."""
    head = min(nbytes, _HEAD_BYTES)
    if any(string_at(address, head)):
        return False
    return _memcmp(address, address + head, nbytes - head) == 0


def clear(address: int, nbytes: int) -> None:
    """Set all bytes there to 0."""
    _memset(address, 0, nbytes)
