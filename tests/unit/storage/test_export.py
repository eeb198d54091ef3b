"""Copying from store to store: what happens to its memory when it is interrupted."""

from pathlib import Path

import numpy as np
import pytest

from outgrid.storage import Planes, Transfers
from outgrid.storage.export import export


class Interrupted:
    """A store whose transfers are never waited for: the first wait is interrupted."""

    planes, rows_per_plane, row_bytes, plane_bytes = 4, 8, 512, 4096

    def __init__(self):
        self.addresses = np.empty(0, np.int64)

    def get(self, planes: range, rows: range, into: Planes) -> int:
        self.addresses = into.addresses
        return 0


def is_mapped(address):
    lines = Path("/proc/self/maps").read_text().splitlines()
    ranges = (line.split()[0].split("-") for line in lines)
    return any(int(first, 16) <= address < int(last, 16) for first, last in ranges)


def test_memory_of_transfers_under_way_stays_when_waiting_is_interrupted(monkeypatch):
    def interrupt(transfers):
        raise KeyboardInterrupt

    monkeypatch.setattr(Transfers, "drain", interrupt)
    store = Interrupted()
    with Transfers("threads") as transfers:
        with pytest.raises(KeyboardInterrupt) as caught:
            export(store, store, transfers)
        assert all(map(is_mapped, store.addresses.tolist()))
        assert len(store.addresses) == 4
        del caught
