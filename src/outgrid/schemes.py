"""The schemes, listed once: ways to carry a grid through memory."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SCHEMES", "Scheme"]


@dataclass(frozen=True, slots=True)
class Scheme:
    """A scheme of the name that users give; of ``blocks`` with halos, else of slabs."""

    name: str
    words: str = ""
    blocks: bool = False


SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme("skewed"),
        Scheme("plain", "one step per sweep"),
        Scheme("overlapped", "blocks with halos", blocks=True),
    )
}
"""In the order in which they are told."""
