"""What several of the integration tests do to a run."""

import numpy as np
import pytest

from outgrid.execute.kernel import Kernel
from outgrid.formats.npy import HEADER_BYTES


@pytest.fixture
def cut_off(monkeypatch):
    """``cut_off(n, run)`` calls ``run``, whose kernel fails at its n-th advance; not later ones."""

    def call(advances, run):
        advance, count = Kernel.advance, []

        def failing(self, *given):
            count.append(1)
            if len(count) == advances:
                raise RuntimeError("stop")
            return advance(self, *given)

        with monkeypatch.context() as patch:
            patch.setattr(Kernel, "advance", failing)
            with pytest.raises(RuntimeError):
                run()

    return call


@pytest.fixture
def sums_of_others():
    """``sums_of_others(out)`` fills tables of an unfinished run with sums that no frame has.

    As a process leaves them that was cut off before its manifest, and whose kernel had other bits.
    """

    def call(out):
        tables = [*out.rglob("snapshot.*.xxh3.new")]
        for path in tables:
            sums = np.memmap(path, np.uint64, "r+", HEADER_BYTES)
            sums[sums == 0] = 1
        return len(tables)

    return call
