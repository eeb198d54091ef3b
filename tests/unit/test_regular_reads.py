"""Reading a part of a file into memory, all of it or an error that says what is missing."""

import os
from pathlib import Path

import numpy as np
import pytest

from outgrid.errors import StoreError
from outgrid.regular import read_fully


def test_what_comes_in_pieces_is_read_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(100)))
    whole = os.preadv

    def few(descriptor: int, into: list[memoryview], offset: int) -> int:
        return whole(descriptor, [into[0][:7]], offset)

    monkeypatch.setattr(os, "preadv", few)
    found = np.zeros(10, np.int64)
    with path.open("rb") as file:
        read_fully(file.fileno(), found, 20, path)
    assert found.tobytes() == bytes(range(20, 100))


def test_a_file_that_is_too_short_is_named_with_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    with path.open("rb") as file, pytest.raises(StoreError, match="ends before its data") as caught:
        read_fully(file.fileno(), bytearray(30), 90, path)
    assert (caught.value.offset, caught.value.length) == (100, 20)
