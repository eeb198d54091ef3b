"""HTML of values, as notebooks show them: tables and bars without scripts, safe text."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

__all__ = ["COLOURS", "bars", "facts", "safe", "shares"]

COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#72b7b2", "#9d755d")
TEXT_STYLE = "text-align:left;vertical-align:top;padding:.1em 0"
NAME_STYLE = f"{TEXT_STYLE};padding-right:1em;white-space:nowrap;opacity:.7"
BAR_STYLE = "height:1.2em;max-width:40em;border:1px solid rgba(128,128,128,.6)"


def safe(value: object) -> str:
    """The value as text of a page."""
    return html.escape(str(value))


def facts(title: str, rows: Iterable[tuple[str, str]], *more: str) -> str:
    """A title, names and values in two columns, and ``more`` HTML below."""
    shown = "".join(
        f"<tr><td style='{NAME_STYLE}'>{safe(name)}</td>"
        f"<td style='{TEXT_STYLE}'>{safe(text)}</td></tr>"
        for name, text in rows
        if text
    )
    table = f"<table style='border-collapse:collapse;margin:.3em 0'>{shown}</table>"
    return f"<div><strong>{safe(title)}</strong>{table if shown else ''}{''.join(more)}</div>"


def shares(parts: Sequence[tuple[str, float]], whole: float) -> str:
    """One bar of ``whole``, with a coloured piece for each of the named parts, and a legend."""
    pieces, legend = "", ""
    for number, (name, size) in enumerate(parts):
        colour = COLOURS[number % len(COLOURS)]
        pieces += f"<span style='width:{_percent(size, whole)};background:{colour}'></span>"
        mark = f"<span style='color:{colour}'>&#9632;</span>"
        legend += f"<span style='margin-right:1.2em'>{mark} {safe(name)}</span>"
    return f"<div style='display:flex;{BAR_STYLE}'>{pieces}</div><div>{legend}</div>"


def bars(parts: Sequence[tuple[str, float]]) -> str:
    """A bar for each of the named parts, as long as it is large."""
    longest = max((size for _, size in parts), default=0)
    rows = "".join(
        f"<tr><td style='{NAME_STYLE}'>{safe(name)}</td><td style='width:24em'>"
        f"<div style='height:.8em;width:{_percent(size, longest)};background:{COLOURS[0]}'></div>"
        "</td></tr>"
        for name, size in parts
    )
    return f"<table style='border-collapse:collapse;margin:.3em 0'>{rows}</table>"


def _percent(size: float, whole: float) -> str:
    return f"{100 * min(1.0, max(0.0, size / whole if whole else 0.0)):.2f}%"
