import pytest

from outgrid.plan.layout import BLOCK_BYTES, LINE_BYTES, describe, layout


@pytest.mark.parametrize(
    ("shape", "dtype", "stride", "pitch", "staged"),
    [
        ((9, 8, 64), "float64", 512, 4096, False),
        ((9, 8, 128), "float32", 512, 4096, False),
        ((9, 16, 64), "float64", 512, 8192, False),
        ((9, 7, 64), "float64", 512, 3584, True),  # plane is no whole number of blocks
        ((9, 8, 63), "float64", 512, 4096, True),  # rows are padded to whole lines
        ((9, 512), "float64", 4096, 4096, False),  # 2-D: a plane is a row
        ((9, 500), "float64", 4032, 4032, True),
        ((9, 1, 1), "float32", 64, 64, True),
        ((9, 512, 512), "float64", 4096, 512 * 4096 + 4096, False),  # an odd number of pages
        ((9, 513, 512), "float64", 4096, 513 * 4096, False),
    ],
)
def test_rows_fill_lines_and_planes_fill_blocks_where_the_file_does(
    shape, dtype, stride, pitch, staged
):
    found = layout(shape, dtype)
    assert (found.row_stride_bytes, found.pitch_bytes, found.staged) == (stride, pitch, staged)
    assert found.row_stride_bytes % LINE_BYTES == 0
    assert staged or found.pitch_bytes % BLOCK_BYTES == 0


def test_the_way_of_the_bytes_is_told():
    assert describe(layout((9, 8, 64), "float64")) == (
        "planes of 4.00 KiB move straight into the window"
    )
    assert "through a staging buffer" in describe(layout((9, 7, 5), "float64"))
