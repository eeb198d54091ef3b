"""Rows that share vectors: how cells lie in the window of a stencil that reads far."""

from __future__ import annotations

import msgspec

__all__ = ["Folding"]


class Folding(msgspec.Struct, frozen=True):
    """Groups of ``rows`` neighbouring rows are kept in vectors of ``vector_bytes``.

    Vector v of a group has, row after row, cells [v*w, (v+1)*w) of each of its rows, where w cells
    take ``vector_bytes / rows``. So the neighbours of a vector along y are in two others, however
    far apart they are by less than ``rows``, and those along x as well.
    """

    rows: int
    vector_bytes: int

    def columns(self, item_bytes: int) -> int:
        """Cells of one row in a vector."""
        return self.vector_bytes // (self.rows * item_bytes)
