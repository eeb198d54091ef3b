"""What is kept as it is made: an interrupted measurement goes on behind its last row or part."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from outgrid.errors import UsageError

__all__ = ["Kept", "Pieces"]


class Kept:
    """A list of rows, and the file in which they stand from the moment they are added.

    ``names`` are the entries of a row that tell it from all others; ``usual`` has what rows of
    older files lack of these. Without a ``path`` the rows are only collected; with ``resume`` those
    that the file holds are kept.
    """

    def __init__(
        self,
        path: Path | None,
        names: Sequence[str],
        resume: bool,
        usual: Mapping[str, Any] | None = None,
    ) -> None:
        """Raises UsageError where there is no file to resume from, or it holds something else."""
        self.path, self.names, self.usual = path, tuple(names), usual or {}
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
        whole = {**self.usual, **row}
        return tuple(whole[name] for name in self.names)

    def __contains__(self, key: tuple[Any, ...]) -> bool:
        return any(self.key(row) == key for row in self.rows)

    def add(self, row: dict[str, Any]) -> None:
        """Append a row; the file holds it when this returns."""
        self.rows.append(row)
        if self.path is not None:
            _replace(self.path, self.rows)


class Pieces(dict[str, dict[str, Any]]):
    """Parts of a measurement by their names, and the file that holds each when `add` returns.

    ``of`` says in JSON what is measured: parts of something else are refused. Without a ``path``
    they are only collected; with ``resume`` those that the file holds are there from the beginning.
    """

    def __init__(self, path: Path | None, of: Mapping[str, Any], resume: bool) -> None:
        """Raises UsageError where the file holds something else."""
        super().__init__()
        self.path, self.of = path, dict(of)
        if resume and path is not None and path.exists():
            self.update(self._read(path))

    def _read(self, path: Path) -> dict[str, dict[str, Any]]:
        advice = "name another with --json, or leave --resume out"
        try:
            told = json.loads(path.read_text())
            of, pieces = told["of"], told["pieces"]
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path} holds no parts to go on with ({error}); {advice}") from error
        for name, value in self.of.items():
            if of.get(name) != value:
                raise UsageError(f"{path} is of {name} {of.get(name)}, not {value}; {advice}")
        return pieces

    def add(self, name: str, piece: dict[str, Any]) -> None:
        """Keep a part."""
        self[name] = piece
        if self.path is not None:
            _replace(self.path, {"of": self.of, "pieces": self})


def _replace(path: Path, value: Any) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(value, indent=2) + "\n")
    os.replace(partial, path)
