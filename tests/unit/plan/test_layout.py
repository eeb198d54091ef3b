import pytest

from outgrid.plan.layout import LINE_BYTES, SECTOR_BYTES, describe, layout


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
        ((9, 512, 512), "float64", 4096, 512 * 4096 + 512, False),  # an odd number of sectors
        ((9, 513, 512), "float64", 4096, 513 * 4096 + 512, False),
        ((9, 16384), "float32", 65536, 65536 + 512, False),
        # An odd number of sectors and a line, where none has to be whole.
        ((9, 32, 63), "float64", 512, 32 * 512 + 512 + 64, True),
    ],
)
def test_rows_fill_lines_and_planes_fill_blocks_where_the_file_does(
    shape, dtype, stride, pitch, staged
):
    found = layout(shape, dtype)
    assert (found.row_stride_bytes, found.pitch_bytes, found.staged) == (stride, pitch, staged)
    assert found.row_stride_bytes % LINE_BYTES == 0
    assert staged or found.pitch_bytes % SECTOR_BYTES == 0


def sets(pitch, planes):
    """The sets of a first-level cache that the first lines of planes are in."""
    return {plane * pitch // LINE_BYTES % 64 for plane in range(planes)}


@pytest.mark.parametrize("shape", [(9, 256, 256), (9, 512, 512), (9, 100, 100), (9, 16384)])
def test_planes_that_begin_on_lines_share_no_sets(shape):
    found, sectors = layout(shape, "float32", lines=True), layout(shape, "float32")
    assert (found.staged, found.row_stride_bytes) == (sectors.staged, sectors.row_stride_bytes)
    assert found.pitch_bytes % (2 * SECTOR_BYTES) == SECTOR_BYTES + LINE_BYTES
    assert 0 <= found.pitch_bytes - sectors.rows * sectors.row_stride_bytes < 2 * SECTOR_BYTES
    assert len(sets(found.pitch_bytes, 64)) == 64
    assert len(sets(sectors.pitch_bytes, 64)) == (64 if sectors.staged else 8)
    assert ("on lines of the caches" in describe(found)) is not found.staged
    small = layout((9, 8, 64), "float32", lines=True)
    assert small.pitch_bytes == 8 * 64 * 4  # no room is lost


def test_the_way_of_the_bytes_is_told():
    assert describe(layout((9, 8, 64), "float64")) == (
        "planes of 4.00 KiB move straight into the window"
    )
    assert "through a staging buffer" in describe(layout((9, 7, 5), "float64"))
    mixed = layout((9, 8, 512), "float64", apart={"c": "float32", "m": "uint8"})
    assert describe(mixed) == (
        "planes of 32.0 KiB (16.0 KiB of c, 4.00 KiB of m) move straight into the window"
    )


def test_fields_of_other_types_have_as_many_cells_in_a_row():
    found = layout((9, 7, 13), "float64", apart={"c": "float32", "m": "uint8"})
    assert (found.row_bytes, found.row_stride_bytes) == (8 * 13, 8 * 16)
    assert (found.of("c").row_bytes, found.of("c").row_stride_bytes) == (4 * 13, 4 * 16)
    assert (found.of("m").row_bytes, found.of("m").row_stride_bytes) == (13, 16)
    assert [found.of(name).pitch_bytes for name in ("u", "c", "m")] == [896, 448, 128]
    assert found.of("u") is found


@pytest.mark.parametrize(
    ("shape", "rows", "apart", "staged"),
    [
        ((9, 8, 64), None, {}, False),
        ((9, 8, 64), None, {"c": "float32"}, True),  # half a block in a plane
        ((9, 16, 64), None, {"c": "float32"}, False),
        ((9, 16, 64), 5, {"c": "float32"}, True),  # rows of strips are no whole blocks
        ((9, 8, 4096), 5, {"c": "uint8"}, False),
        ((9, 16, 63), None, {"c": "float32"}, True),
    ],
)
def test_planes_are_staged_if_those_of_any_field_are(shape, rows, apart, staged):
    assert layout(shape, "float64", rows, apart).staged == staged
