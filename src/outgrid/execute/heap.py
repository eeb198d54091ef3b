"""Memory that runs of before, and arrays that are gone, still take."""

import ctypes
import gc

__all__ = ["give_back"]

LEAST_BYTES = 32 << 20


def give_back(wanted_bytes: int) -> None:
    """Return it to the system before so much is taken, which the limit leaves no more than.

    The interpreter keeps what runs of before were made of until it looks for cycles, some MiB of
    each. glibc serves arrays of many MiB from its heap once some were freed, and keeps their pages.
    For little memory it is not worth the time, some 20 ms.
    """
    if wanted_bytes < LEAST_BYTES:
        return
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
