"""Views of sources: values between cells, in memory that does not grow with the file."""

import tracemalloc

import numpy as np
import pytest

from outgrid.formats import views
from outgrid.formats.views import Resampled


class Ramp:
    """A source of any size whose values are linear."""

    dims, decoded_bytes, dtype = (), 0, np.dtype("float64")

    def __init__(self, shape):
        self.shape, self.chunk = shape, (1, 1, shape[-1])
        self.largest = 0

    def read(self, box):
        made = sum(
            np.arange(cells.start, cells.stop, dtype=float).reshape(-1, *(1,) * (2 - axis))
            * 10.0**-axis
            for axis, cells in enumerate(box)
        )
        self.largest = max(self.largest, made.nbytes)
        return made


def test_pieces_give_what_the_whole_gives(monkeypatch):
    onto, box = (9, 11, 13), (range(2, 9), range(1, 11), range(13))
    whole = Resampled(Ramp((40, 50, 60)), onto).read(box)
    for nbytes in (1, 20_000, 90_000):
        monkeypatch.setattr(views, "PIECE_BYTES", nbytes)
        np.testing.assert_array_equal(Resampled(Ramp((40, 50, 60)), onto).read(box), whole)
    wanted = 39 / 8 * np.arange(2, 9)[:, None, None] + 4.9 / 10 * np.arange(1, 11)[:, None]
    np.testing.assert_allclose(whole, wanted + 0.59 / 12 * np.arange(13), rtol=1e-13)


@pytest.mark.parametrize("shape", [(512, 512, 2048), (4096, 64, 64), (33, 40, 50)])
def test_a_finer_file_is_read_in_little_memory(shape):
    source = Ramp(shape)
    view = Resampled(source, (33, 40, 50))
    tracemalloc.start()
    found = view.read((range(33), range(40), range(50)))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert source.largest <= 2 * views.PIECE_BYTES
    assert peak_bytes <= 6 * views.PIECE_BYTES + found.nbytes
    assert view.decoded_bytes <= 4 * views.PIECE_BYTES


def test_rows_that_are_very_long_are_counted():
    assert Resampled(Ramp((4, 4, 1 << 20)), (4, 4, 8)).decoded_bytes > 1 << 23
