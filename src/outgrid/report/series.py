"""What a run told of itself while it went on, as lines over its time: SVG without scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from outgrid.lines import format_count
from outgrid.markup import COLOURS, safe
from outgrid.runs.reading import Reading
from outgrid.units import format_bytes, format_rate, format_seconds

__all__ = ["charts"]

MOST_POINTS = 400
WIDTH, HEIGHT, LEFT, TOP = 420, 150, 8, 30
WIDE, HIGH = WIDTH - 2 * LEFT, HEIGHT - TOP - 26


def charts(readings: Sequence[Reading]) -> str:
    """Small charts of bandwidth, rate, processors and memory over the time of the sweeps.

    Parts of a run that was resumed follow each other. Nothing for readings of less than two times.
    """
    times = list(_times(readings)) if readings else []
    if len(set(times)) < 2:
        return ""
    every = -(-len(readings) // MOST_POINTS)
    times, chosen = times[::every], readings[::every]
    limit = max(reading.memory_limit_bytes for reading in chosen)
    read = [reading.read_bytes_per_second for reading in chosen]
    written = [reading.written_bytes_per_second for reading in chosen]
    rate = [reading.updates_per_second for reading in chosen]
    busy = [reading.processors for reading in chosen]
    threads = max(reading.threads for reading in chosen)
    memory = [float(reading.memory_bytes) for reading in chosen]
    fastest = max(*read, *written)
    return "".join(
        (
            _chart(
                f"bandwidth, up to {format_bytes(fastest)}/s",
                times,
                {"read": read, "written": written},
                fastest,
            ),
            _chart(f"rate, up to {format_rate(max(rate))}", times, {"updates": rate}, max(rate)),
            _chart(
                f"processors in use, up to {max(busy):.2f} for {format_count(threads, 'thread')}",
                times,
                {"processors": busy},
                max(threads, *busy),
            ),
            _chart(
                f"memory, up to {format_bytes(max(memory))} of {format_bytes(limit)}",
                times,
                {"memory": memory},
                max(limit, *memory),
            ),
        )
    )


def _times(readings: Sequence[Reading]) -> Iterator[float]:
    """Seconds from the beginning, with each part after the one before it."""
    before, latest, started = 0.0, 0.0, readings[0].started
    for reading in readings:
        if reading.started != started:
            before, latest, started = before + latest, 0.0, reading.started
        latest = max(latest, reading.seconds)
        yield before + latest


def _chart(title: str, times: Sequence[float], lines: dict[str, list[float]], top: float) -> str:
    """One chart from 0 to ``top``."""
    first, last = times[0], times[-1]
    across, up = WIDE / ((last - first) or 1.0), HIGH / (top or 1.0)
    drawn, legend = "", ""
    for (name, values), colour in zip(lines.items(), COLOURS, strict=False):
        points = " ".join(
            f"{LEFT + (time - first) * across:.1f},{TOP + HIGH - value * up:.1f}"
            for time, value in zip(times, values, strict=True)
        )
        drawn += f"<polyline points='{points}' stroke='{colour}'/>"
        if len(lines) > 1:
            legend += f"<tspan fill='{colour}'> {safe(name)}</tspan>"
    bottom = TOP + HIGH
    return (
        f"<svg class='chart' viewBox='0 0 {WIDTH} {HEIGHT}' role='img'>"
        f"<text x='{LEFT}' y='18'>{safe(title)}{legend}</text>"
        f"<path d='M{LEFT} {TOP}h{WIDE}M{LEFT} {bottom}h{WIDE}'/>{drawn}"
        f"<text x='{LEFT}' y='{HEIGHT - 6}'>{safe(format_seconds(first))}</text>"
        f"<text x='{LEFT + WIDE}' y='{HEIGHT - 6}' text-anchor='end'>"
        f"{safe(format_seconds(last))}</text></svg>"
    )
