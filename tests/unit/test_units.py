import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outgrid import units
from outgrid.errors import UsageError


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("1GiB", 2**30),
        ("256 MiB", 256 * 2**20),
        ("2GB", 2 * 10**9),
        ("1.5 kib", 1536),
        (" 8 B ", 8),
        ("12", 12),
        ("4G", 4 * 2**30),
        ("1.5 m", 3 * 2**19),
        (".5KiB", 512),
        (7, 7),
        ("9007199254740993", 2**53 + 1),
        ("1.001GB", 1_001_000_000),
        (2**63 - 1, 2**63 - 1),
    ],
)
def test_parse_bytes(text: str | int, size_bytes: int) -> None:
    assert units.parse_bytes(text) == size_bytes


@pytest.mark.parametrize(
    "text", ["", "GiB", "-1GiB", "1 GiBB", "ten", "0.3", "1.0000001B", -5, True, "9" * 5000]
)
def test_parse_bytes_refuses_with_the_text_and_examples(text: str | int) -> None:
    with pytest.raises(UsageError) as caught:
        units.parse_bytes(text)
    assert str(text) in str(caught.value)
    assert "1GiB" in str(caught.value)


@pytest.mark.parametrize("text", [2**63, 10**400, "8192PiB"])
def test_parse_bytes_refuses_more_than_64_bits(text: str | int) -> None:
    with pytest.raises(UsageError, match=f"{text} .* at most {2**63 - 1}"):
        units.parse_bytes(text)


def test_parse_bytes_suggests_the_nearest_unit() -> None:
    with pytest.raises(UsageError, match='did you mean "3GiB"'):
        units.parse_bytes("3 giib")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1 h 30 min", 5400),
        ("1.5min", 90),
        ("250ms", 0.25),
        ("1d", 86400),
        ("12", 12),
        (2.5, 2.5),
    ],
)
def test_parse_seconds(text: str | float, seconds: float) -> None:
    assert units.parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "  ", "h", "5x", "1h 30", "-3s", -1, math.nan, True])
def test_parse_seconds_refuses(text: str | float) -> None:
    with pytest.raises(UsageError, match="is not a duration"):
        units.parse_seconds(text)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.98 KiB"),
        (2**30, "1.00 GiB"),
        (71.2 * 2**30, "71.2 GiB"),
        (512 * 2**30, "512 GiB"),
        (1023 * 2**20, "1.00 GiB"),
        (5000 * 2**50, "5000 PiB"),
    ],
)
def test_format_bytes(size_bytes: float, text: str) -> None:
    assert units.format_bytes(size_bytes) == text


@given(st.integers(0, 2**62))
def test_format_bytes_is_within_one_percent(size_bytes: int) -> None:
    number, unit = units.format_bytes(size_bytes).split()
    scale = units.parse_bytes(f"1{unit}")
    assert float(number) * scale == pytest.approx(size_bytes, rel=0.01, abs=0.5)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (2e-9, "2 ns"),
        (3.5e-4, "350 us"),
        (0.25, "250 ms"),
        (4.2, "4.20 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (123, "2 min 03 s"),
        (11220, "3 h 07 min"),
        (190800, "2 d 05 h"),
        (-4.2, "-4.20 s"),
        (math.inf, "forever"),
    ],
)
def test_format_seconds(seconds: float, text: str) -> None:
    assert units.format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (1.234e9, "1.23 GLUP/s"),
        (6e10, "60.0 GLUP/s"),
        (4.56e7, "0.0456 GLUP/s"),
        (2.5e5, "0.00025 GLUP/s"),
    ],
)
def test_format_rate(rate: float, text: str) -> None:
    assert units.format_rate(rate) == text


def test_suggest_names_the_nearest_or_all() -> None:
    assert units.suggest("heet", ["heat", "wave"]) == "; did you mean 'heat'?"
    assert units.suggest("zzz", ["heat", "wave"]) == "; known: heat, wave"
    assert units.suggest("zzz", []) == "; there is none"
