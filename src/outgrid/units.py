"""Text to bytes and seconds, and back.

Everything inside outgrid counts bytes and seconds; only the edges speak other units.
"""

import difflib
import math
import re
from collections.abc import Iterable

from outgrid.errors import UsageError

__all__ = [
    "BLOCK_BYTES",
    "format_bytes",
    "format_rate",
    "format_seconds",
    "nearest",
    "nearest_three",
    "parse_bytes",
    "parse_endurance",
    "parse_rate",
    "parse_seconds",
    "suggest",
]

MOST_BYTES = (1 << 63) - 1
BLOCK_BYTES = 4096
"""Of a disk: transfers past the page cache move whole blocks."""

_BYTES_BY_UNIT: dict[str, int] = {
    "": 1,
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgtp", start=1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgtp", start=1)},
    **{prefix: 1024**power for power, prefix in enumerate("kmgtp", start=1)},
}
_BINARY_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")
_SECONDS_BY_UNIT: dict[str, float] = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_NUMBER_AND_UNIT = re.compile(r"\s*(\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})\s*([a-z]*)\s*", re.ASCII)
_BYTES_EXAMPLES = 'examples: "1GiB", "256 MiB", "2GB", 1048576'
_SECONDS_EXAMPLES = 'examples: "90s", "15min", "1h30m", 5400'


def parse_bytes(text: str | float) -> int:
    """Bytes meant by `text`: "1GiB" and "1G" are 2**30, "2GB" is 2e9, a plain number is bytes.

    A single letter means what it does for Slurm, systemd and containers.

    Raises UsageError for anything else: negative sizes, unknown units, fractions of a byte.
    """
    if isinstance(text, bool):
        raise UsageError(f"{text} is not a size in bytes; {_BYTES_EXAMPLES}")
    if isinstance(text, float):
        raise UsageError(
            f"{text} is not a size in bytes: it must be a whole number; {_BYTES_EXAMPLES}"
        )
    if isinstance(text, int):
        if text < 0:
            raise UsageError(
                f"{text} is not a size in bytes: it must be at least 0; {_BYTES_EXAMPLES}"
            )
        return _bounded(text, text)
    match = _NUMBER_AND_UNIT.fullmatch(text.lower())
    if match is None:
        raise UsageError(f"{text!r} is not a size in bytes; {_BYTES_EXAMPLES}")
    number, unit = match.groups()
    if unit not in _BYTES_BY_UNIT:
        guess = nearest(unit, _BYTES_BY_UNIT)
        hint = f'did you mean "{number}{_spelled(guess)}"? ' if guess else ""
        raise UsageError(f"{text!r} has the unknown unit {unit!r}; {hint}{_BYTES_EXAMPLES}")
    whole, _, part = number.partition(".")
    scale = 10 ** len(part)
    size, rest = divmod(int(whole + part) * _BYTES_BY_UNIT[unit], scale)
    if rest:
        raise UsageError(
            f"{text!r} must be a whole number of bytes, not {size + rest / scale}; "
            f"{_BYTES_EXAMPLES}"
        )
    return _bounded(size, text)


def _bounded(size_bytes: int, text: str | int) -> int:
    if size_bytes > MOST_BYTES:
        raise UsageError(f"{text} is not a size in bytes: it must be at most {MOST_BYTES} (8 EiB)")
    return size_bytes


def parse_endurance(text: str | int) -> int:
    """Bytes that a device may be written in its life: "600TBW" is 600e12, other texts are sizes.

    Raises UsageError for what is no size, has no unit, or is 0.
    """
    size = text.strip() if isinstance(text, str) else str(text)
    if not size.lower().rstrip("w").endswith("b"):
        number = size.rstrip("kmgtpKMGTPwW ")
        near = number if _NUMBER_AND_UNIT.fullmatch(number) else "600"
        raise UsageError(f'the endurance {size!r} has no unit; did you mean "{near}TBW"?')
    endurance_bytes = parse_bytes(size.removesuffix("W").removesuffix("w"))
    if endurance_bytes == 0:
        raise UsageError(
            f'{text!r} is not an endurance; give the rating of the device, such as "600TBW"'
        )
    return endurance_bytes


def parse_rate(text: str | float) -> float:
    """Bytes per second meant by `text`: "1.5GB/s", "400MiB/s"; a plain number is bytes per second.

    Raises UsageError for anything else, and for 0.
    """
    number = isinstance(text, int | float) and not isinstance(text, bool)
    size = text if number else str(text).strip()
    if isinstance(size, str) and not size.endswith("/s"):
        raise UsageError(f'{text!r} is not a rate; examples: "1.5GB/s", "400MiB/s", 1.5e9')
    rate = parse_bytes(size.removesuffix("/s")) if isinstance(size, str) else size
    if not (math.isfinite(rate) and rate > 0):
        raise UsageError(f"{text} is not a rate: it must be finite and above 0")
    return float(rate)


def parse_seconds(text: str | float) -> float:
    """Seconds meant by `text`: "90s", "2h", "1h30m", "1.5 min"; a plain number is seconds.

    Raises UsageError for anything else, and for durations below 0.
    """
    if isinstance(text, bool):
        raise UsageError(f"{text} is not a duration; {_SECONDS_EXAMPLES}")
    if isinstance(text, int | float):
        if not (math.isfinite(text) and text >= 0):
            raise UsageError(f"{text} is not a duration: it must be finite and not below 0")
        return float(text)
    lowered = text.lower()
    seconds, position = 0.0, 0
    while position < len(lowered):
        match = _NUMBER_AND_UNIT.match(lowered, position)
        if match is None:
            break
        number, unit = match.groups()
        if unit == "" and match.span() == (0, len(lowered)):
            unit = "s"
        if unit not in _SECONDS_BY_UNIT:
            break
        seconds += float(number) * _SECONDS_BY_UNIT[unit]
        position = match.end()
    if not lowered.strip() or position < len(lowered):
        raise UsageError(f"{text!r} is not a duration; {_SECONDS_EXAMPLES}")
    return seconds


def format_bytes(size_bytes: float) -> str:
    """Three significant figures in binary units: "512 B", "1.00 GiB", "71.2 GiB"."""
    if abs(size_bytes) < 1000:
        return f"{size_bytes:.0f} B"
    scaled = float(size_bytes)
    for unit in _BINARY_UNITS:
        scaled /= 1024
        if abs(scaled) < 999.5 or unit == _BINARY_UNITS[-1]:
            return f"{_three_figures(scaled)} {unit}"
    raise AssertionError("unreachable")


def format_seconds(seconds: float) -> str:
    """Readable at a glance: "350 us", "4.20 s", "2 min 03 s", "3 h 07 min", "2 d 05 h"."""
    if not math.isfinite(seconds):
        return "forever" if seconds > 0 else str(seconds)
    if seconds < 0:
        return f"-{format_seconds(-seconds)}"
    if seconds < 59.95:
        for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
            if seconds >= 0.9995 * scale:
                return f"{_three_figures(seconds / scale)} {unit}"
        return "0 s" if seconds == 0 else f"{seconds * 1e9:.0f} ns"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24:02d} h"


def format_rate(updates_per_second: float) -> str:
    """Cell updates per second in GLUP/s (1e9 updates per second): "1.23 GLUP/s"."""
    giga = updates_per_second / 1e9
    return f"{giga:.3g} GLUP/s" if giga < 0.1 else f"{_three_figures(giga)} GLUP/s"


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice that `word` is most likely a misspelling of, or None when nothing is close."""
    matches = difflib.get_close_matches(word, [*choices], n=1, cutoff=0.5)
    return matches[0] if matches else None


def nearest_three(word: str, choices: Iterable[str]) -> str:
    """The choices that are most like `word`: "'a', 'b' or 'c'"."""
    known = [*choices]
    matches = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    matches = matches or difflib.get_close_matches(word, known, n=3, cutoff=0.0)
    *others, last = map(repr, matches)
    return f"{', '.join(others)} or {last}" if others else last


def suggest(word: str, known: Iterable[str]) -> str:
    """The end of a message about the unknown `word`: the nearest known one, or all of them."""
    names = [*known]
    guess = nearest(word, names)
    if guess is not None:
        return f"; did you mean {guess!r}?"
    return f"; known: {', '.join(names)}" if names else "; there is none"


def _three_figures(value: float) -> str:
    magnitude = abs(value)
    if magnitude >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if magnitude >= 9.995 else f"{value:.2f}"


def _spelled(unit: str) -> str:
    return unit.upper().replace("IB", "iB")
