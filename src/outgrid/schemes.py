"""The schemes, listed once: ways to carry a grid through memory."""

from __future__ import annotations

import msgspec

__all__ = ["DEFAULT", "SCHEMES", "Scheme", "named_by_depth"]


class Scheme(msgspec.Struct, frozen=True):
    """A scheme of the name that users give, which a ``module`` of `plan/` chooses the plans of.

    Of ``blocks`` with halos, else of slabs. One that has a ``depth`` makes no other sweeps.
    """

    name: str
    words: str = ""
    module: str = "slabs"
    blocks: bool = False
    depth: int | None = None


SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme("skewed", "several steps per sweep"),
        Scheme("plain", "one step per sweep", depth=1),
        Scheme("overlapped", "blocks with halos", "overlapped", blocks=True),
    )
}
"""In the order in which they are told."""

DEFAULT = next(iter(SCHEMES.values()))
"""The scheme of plans where none is asked for."""


def named_by_depth(depth: int) -> str:
    """What slabs in sweeps of at most ``depth`` steps are called."""
    fixed = (scheme.name for scheme in SCHEMES.values() if scheme.depth == depth)
    return next(fixed, DEFAULT.name)
