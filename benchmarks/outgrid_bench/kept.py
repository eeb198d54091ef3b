"""Rows that are kept as they are made: an interrupted measurement goes on after its last row."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from outgrid.errors import UsageError

__all__ = ["Kept"]


class Kept:
    """A list of rows, and the file in which they stand from the moment they are added.

    ``names`` are the entries of a row that tell it from all others. Without a ``path`` the rows are
    only collected; with ``resume`` those that the file holds are kept.
    """

    def __init__(self, path: Path | None, names: Sequence[str], resume: bool) -> None:
        """Raises UsageError where there is no file to resume from, or it holds something else."""
        self.path, self.names = path, tuple(names)
        self.rows: list[dict[str, Any]] = []
        if resume:
            self.rows = self._read()

    def _read(self) -> list[dict[str, Any]]:
        if self.path is None:
            raise UsageError("--resume goes on with a file of rows: name it with --json")
        if not self.path.exists():
            return []
        try:
            rows = json.loads(self.path.read_text())
            for row in rows:
                self.key(row)
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{self.path} holds no rows to go on with ({error}); name another with --json"
            ) from error
        return rows

    def key(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """What tells ``row`` from all others."""
        return tuple(row[name] for name in self.names)

    def __contains__(self, key: tuple[Any, ...]) -> bool:
        return any(self.key(row) == key for row in self.rows)

    def add(self, row: dict[str, Any]) -> None:
        """Append a row; the file holds it when this returns."""
        self.rows.append(row)
        if self.path is None:
            return
        partial = self.path.with_name(self.path.name + ".partial")
        partial.write_text(json.dumps(self.rows, indent=2) + "\n")
        os.replace(partial, self.path)
