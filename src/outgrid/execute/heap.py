"""Memory that C's allocator keeps after arrays are gone."""

import ctypes

__all__ = ["give_back"]


def give_back() -> None:
    """Return it to the system, where the allocator can: a window takes what the limit leaves.

    glibc serves arrays of many MiB from its heap once some were freed, and keeps their pages.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
