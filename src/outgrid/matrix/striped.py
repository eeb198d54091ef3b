"""A .npy file laid in stripes over several paths, as RAID 0 does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from outgrid.errors import StoreError, UsageError
from outgrid.formats.npy import read_header
from outgrid.matrix.chunks import check_stripe, stripe_mark

__all__ = ["lay_out"]


def lay_out(
    path: str | os.PathLike[str], parts: Sequence[str | os.PathLike[str]], stripe_bytes: int
) -> None:
    """Copy the file so that its bytes [k*stripe, (k + 1)*stripe) are in part k mod n.

    Behind them each part has a mark of what it is part of. The parts are made anew, and durable on
    return. Raises UsageError where `path` is no .npy file, a part exists, or a stripe is no
    multiple of a block, StoreError where the system refuses.
    """
    read_header(path)
    check_stripe(stripe_bytes)
    places = [Path(part) for part in parts]
    if len(set(places)) < max(2, len(places)):
        raise UsageError(f"stripes need at least two different paths; given: {parts}")
    for place in places:
        if place.exists():
            raise UsageError(f"{place} exists; give a new path")
    try:
        with ExitStack() as stack:
            source = stack.enter_context(open(path, "rb"))
            files = [stack.enter_context(open(place, "xb")) for place in places]
            turn = 0
            while stripe := source.read(stripe_bytes):
                files[turn % len(files)].write(stripe)
                turn += 1
            for number, file in enumerate(files):
                file.write(stripe_mark(stripe_bytes, number, len(files)))
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise StoreError("cannot lay out", path=Path(path), errno=error.errno) from error
