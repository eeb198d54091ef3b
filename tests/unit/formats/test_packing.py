"""Markers of missing values: which values they are, and what stands in their place."""

from pathlib import Path

import numpy as np
import pytest

from outgrid.errors import StoreError, UsageError
from outgrid.formats import InputFile, Sliced
from outgrid.formats.packing import absent, unpacked


def read(values, attributes, missing=None, unwritten=()):
    file = InputFile("m.h5", missing=missing)
    array = np.asarray(values)
    source = Sliced(Path("m.h5"), array, array.shape, lambda: None)
    view = unpacked(source, attributes, file, unwritten)
    found = view.read(tuple(map(range, array.shape)))
    assert found.dtype == view.dtype
    return found


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int16"])
def test_a_marker_of_another_type_is_that_of_the_values(dtype):
    marker = np.float64(-999.9) if np.dtype(dtype).kind == "f" else np.float64(-999)
    values = np.array([1, marker, 3], dtype)
    attributes = {"_FillValue": marker}
    np.testing.assert_array_equal(read(values, attributes, missing=0), [1, 0, 3])
    with pytest.raises(StoreError, match=r"no value at cell \(1,\)"):
        read(values, attributes)
    np.testing.assert_array_equal(read(values[::2], attributes), [1, 3])


def test_all_markers_count():
    values = np.array([1, -9, -8, 0, 5, 6], "float32")
    attributes = {"_FillValue": -9.0, "missing_value": [-8.0, 6.0]}
    unwritten = absent(1, 2, np.float32(0), InputFile("m.h5", missing=7))
    found = read(values, attributes, missing=7, unwritten=unwritten)
    np.testing.assert_array_equal(found, [1, 7, 7, 7, 5, 7])


@pytest.mark.parametrize(
    ("missing", "dtype"),
    [(0, "int16"), (-3.0, "int16"), (0.5, "float64"), (np.nan, "float64"), (1e30, "float64")],
)
def test_what_stands_for_missing_values_of_whole_numbers_is_not_rounded(missing, dtype):
    for values, wanted in (([1, -9], [1, missing]), ([1, 2], [1, 2])):
        found = read(np.array(values, "int16"), {"missing_value": np.int16(-9)}, missing)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("stored", "attribute", "dtype"),
    [
        ("int16", np.int16(10), "float64"),
        ("float32", np.int64(10), "float64"),
        ("uint8", 10, "float64"),
        ("int16", np.float32(10), "float32"),
        ("int32", np.float64(10), "float64"),
        (">f4", np.float64(10), "float64"),
        ("float64", np.float32(10), "float64"),
        ("int16", [np.float32(10)], "float32"),
    ],
)
def test_what_is_unpacked_has_room_for_its_values(stored, attribute, dtype):
    values = np.array([200, 3], stored)
    found = read(values * 25 if values.itemsize > 1 else values, {"scale_factor": attribute})
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, [50000, 750] if values.itemsize > 1 else [2000, 30])
    found = read(values, {"add_offset": attribute})
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, [210, 13])


@pytest.mark.parametrize("key", ["scale_factor", "add_offset"])
@pytest.mark.parametrize("value", [None, [], "0.1", [1, 2], True, {}, np.nan, 1j, 2**70])
def test_what_is_no_real_number_unpacks_nothing(key, value):
    for dtype in ("int16", "float32"):
        with pytest.raises(UsageError, match=f"m.h5 has {key} = .*one finite real number"):
            read(np.array([1, 2], dtype), {key: value})


def test_markers_are_numbers():
    for dtype in ("int16", "float32"):
        values = np.array([1, -9], dtype)
        np.testing.assert_array_equal(read(values, {"_FillValue": None}), values)
        np.testing.assert_array_equal(read(values, {"missing_value": "-9"}, 0), [1, 0])
        with pytest.raises(UsageError, match="missing_value = 'none', which must be a number"):
            read(values, {"missing_value": "none"})
