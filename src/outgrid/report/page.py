"""A page in one file: its style, text made safe, pictures inside it, and the page of a run."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from outgrid.lines import format_share
from outgrid.markup import safe
from outgrid.plan.explain import explain_rows
from outgrid.record import Part, Record
from outgrid.regular import read_own
from outgrid.report.advice import advice, over_plain
from outgrid.report.ranks import SHOWN
from outgrid.report.series import charts
from outgrid.report.summary import heading, summary_rows
from outgrid.report.tiling import diamonds_picture, sweep_of, sweep_picture
from outgrid.runs.reading import Reading
from outgrid.units import format_bytes, format_rate, format_seconds

__all__ = ["document", "picture", "run_page", "safe"]

STYLE = """
:root { color-scheme: light dark; --ink: #1f2933; --paper: #fff; --line: #d5d9de; --soft: #f0f2f4;
        --dim: #5a6672; --yes: #0a6b2d; --no: #a32020; --link: #0b57a4; --accent: #c2571a;
        --done: #b7cde0; --now: #e8833a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e3; --paper: #14181e; --line: #3c434b; --soft: #222832; --dim: #a8b0b8;
          --yes: #6fd08c; --no: #ff8d85; --link: #8ab8f5; --accent: #f5a970; --done: #34557a;
          --now: #d9742b; } }
* { box-sizing: border-box; }
body { font: 16px/1.55 -apple-system, "Segoe UI", "Helvetica Neue", Arial, system-ui, sans-serif;
       max-width: 72rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; color: var(--ink);
       background: var(--paper); }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { margin-top: 3rem; border-bottom: 1px solid var(--line); }
a { color: var(--link); }
nav a { display: inline-block; margin: 0 .9rem .3rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; margin: 1rem 0;
        table-layout: fixed; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem;
         border-bottom: 1px solid var(--line); overflow-wrap: break-word; }
th { background: var(--soft); }
figure { margin: 1rem 0; overflow-x: auto; }
figure img { display: block; width: 100%; height: auto; min-width: 44rem; background: #fff;
             border: 1px solid var(--line); border-radius: .3rem; }
.small { color: var(--dim); font-size: .85rem; overflow-wrap: anywhere; }
code { background: var(--soft); padding: .1rem .3rem; }
pre { overflow-x: auto; font-size: .75rem; background: var(--soft); padding: .6rem; }
"""
RUN_STYLE = """
h2 { margin-top: 2.2rem; font-size: 1.25rem; color: var(--link); padding-bottom: .2rem; }
.facts td:first-child { width: 9rem; color: var(--dim); }
.facts { table-layout: auto; }
figure img { min-width: 0; width: auto; max-width: 100%; }
.head { display: grid; grid-template-columns: minmax(0, 3fr) minmax(13rem, 2fr); gap: 1.2rem;
        align-items: start; margin-top: 1rem; }
.head figure { margin: 0; }
.figures { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: .8rem; }
.figures div { border: 1px solid var(--line); border-radius: .4rem; padding: .7rem .8rem; }
.figures strong { display: block; font-size: 1.5rem; line-height: 1.2; color: var(--accent); }
.figures span { display: block; color: var(--dim); font-size: .85rem; }
.moving { max-width: 52rem; }
.charts { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: .8rem 1.2rem; }
.chart { width: 100%; font-size: 13px; fill: var(--ink); }
.chart path { stroke: var(--line); } .chart polyline { fill: none; stroke-width: 1.5; }
.chart tspan { font-weight: 600; }
.bar { display: flex; height: 1.6rem; border: 1px solid var(--line); }
.bar span { height: 100%; }
.legend span { display: inline-block; margin-right: 1.2rem; white-space: nowrap; }
.legend i { display: inline-block; width: .8rem; height: .8rem; margin-right: .4rem; }
@media (max-width: 46rem) {
  h1 { font-size: 1.3rem; }
  .head, .charts { grid-template-columns: minmax(0, 1fr); }
  .facts, .facts tbody, .facts tr, .facts td { display: block; width: 100%; }
  .facts td { border: 0; padding: 0 .2rem; }
  .facts td:first-child { width: 100%; padding-top: .5rem; font-size: .8rem; }
  .facts tr { border-bottom: 1px solid var(--line); padding-bottom: .4rem; }
  .moving { overflow-x: auto; } .moving svg { min-width: 40rem; }
}
"""


def document(
    title: str, parts: Iterable[str], style: str = "", *, refresh_seconds: float = 0.0
) -> str:
    """A page of ``parts``, which are HTML; browsers read it again after so many seconds, if any."""
    again = f"<meta http-equiv='refresh' content='{max(1, round(refresh_seconds))}'>"
    head = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        again if refresh_seconds else "",
        f"<title>{safe(title)}</title>",
        f"<style>{STYLE}{style}</style></head><body>",
        f"<h1>{safe(title)}</h1>",
    ]
    return "\n".join([*head, *parts, "</body></html>"])


def picture(path: Path, told: str) -> str:
    """The PNG file at ``path``, put inside the page; ``told`` to those who cannot see it."""
    data = base64.b64encode(read_own(path)).decode()
    image = f"<img alt='{html.escape(told, quote=True)}' src='data:image/png;base64,{data}'>"
    return f"<figure tabindex='0'>{image}</figure>"


def run_page(
    record: Record, pictures: Sequence[tuple[str, Path]], readings: Sequence[Reading] = ()
) -> str:
    """The page of a run, which opens with the first of the ``pictures`` and four figures.

    Then how its sweeps moved, where its time went, its ``readings`` over time, what would make it
    faster, the other pictures with what they show, and all that was measured and planned.
    """
    machine = record.machine
    answer = "".join(picture(path, told) for told, path in pictures[:1])
    lines = charts(readings)
    remedies = "".join(f"<li>{safe(text)}</li>" for text in advice(record))
    parts = [
        f"<p class='small'>{safe(record.started)}, {safe(machine.get('cpu', ''))}, "
        f"{safe(machine.get('cores', ''))} cores, Linux {safe(machine.get('kernel', ''))}, "
        f"outgrid {safe(record.version)}</p>",
        f"<div class='head'>{answer}<div class='figures'>{_figures(record)}</div></div>",
        *_moving(record.planned),
        "<h2>Where the time went</h2>",
        _bar(record),
        *(["<h2>Over time</h2>", f"<div class='charts'>{lines}</div>"] if lines else []),
        *(["<h2>What would make it faster</h2>", f"<ul>{remedies}</ul>"] if remedies else []),
        *(f"<h2>{safe(told)}</h2>{picture(path, told)}" for told, path in pictures[1:]),
        "<h2>Measured</h2>",
        _facts(summary_rows(record)),
        *(["<h2>Parts</h2>", _parts(record.parts)] if len(record.parts) > 1 else []),
        "<h2>Plan</h2>",
        _facts(explain_rows(record.planned)),
    ]
    return document(heading(record), parts, RUN_STYLE)


def _figures(record: Record) -> str:
    """The four figures that matter: rate, over plain, waiting, memory of the limit."""
    measured = record.measured
    ratio = over_plain(record)
    waiting = measured.wait_seconds / measured.seconds if measured.seconds > 0 else 0.0
    figures = (
        (format_rate(measured.glups * 1e9), f"in {format_seconds(measured.seconds)}"),
        (
            "unknown" if ratio is None else f"{ratio:.3g} x",
            "the rate of one step per sweep at the planned bandwidth, estimated",
        ),
        (format_share(waiting), "of the time waiting for transfers"),
        (
            format_share(measured.peak_memory_over_limit),
            f"of the memory limit, {format_bytes(measured.memory_limit_bytes)}, at the peak",
        ),
    )
    return "".join(
        f"<div><strong>{safe(figure)}</strong><span>{safe(words)}</span></div>"
        for figure, words in figures
    )


def _moving(plan: dict[str, Any]) -> list[str]:
    """How a sweep of the run went through planes and steps."""
    sweep = sweep_of(plan)
    if sweep is None:
        return []
    pictures = f"{sweep_picture(sweep)}{diamonds_picture(plan)}"
    return ["<h2>How a sweep moved through the grid</h2>", f"<div class='moving'>{pictures}</div>"]


def _facts(rows: Iterable[tuple[str, str]]) -> str:
    shown = "".join(
        f"<tr><td>{safe(name)}</td><td>{safe(text)}</td></tr>" for name, text in rows if text
    )
    return f"<table class='facts'>{shown}</table>"


def _bar(record: Record) -> str:
    """One bar of the run's time, as wide as each activity was long."""
    measured = record.measured
    swept = {
        "compute": measured.compute_seconds,
        "wait": measured.wait_seconds,
        "other": max(0.0, measured.seconds - measured.compute_seconds - measured.wait_seconds),
    }
    shown = {
        "fill": ("writing initial values", "#9ecae9"),
        "window": ("getting memory", "#b279a2"),
        "wait": ("waiting for transfers", "#f58518"),
        "export": ("copying results", "#72b7b2"),
    } | {name: SHOWN[name] for name in ("compute", "other")}
    spent = {"fill": measured.fill_seconds, "window": measured.window_seconds} | swept
    spent["export"] = measured.export_seconds
    whole = sum(spent.values())
    if not whole:
        return "<p>No step was made.</p>"
    bars, legend = "", ""
    for name, seconds in spent.items():
        label, colour = shown[name]
        share = seconds / whole
        bars += f"<span style='width:{100 * share:.3f}%;background:{colour}'></span>"
        if seconds:
            told = f"{label} {format_seconds(seconds)}, {format_share(share)}"
            legend += f"<span><i style='background:{colour}'></i>{safe(told)}</span>"
    return f"<div class='bar'>{bars}</div><p class='legend'>{legend}</p>"


def _parts(parts: Sequence[Part]) -> str:
    head = "".join(f"<th>{name}</th>" for name in ("started", "host", "steps", "time", "ended"))
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td>{safe(cell)}</td>"
            for cell in (
                part.started,
                part.host,
                f"{part.first_step} to {part.last_step}",
                format_seconds(part.measured.seconds),
                part.ended,
            )
        )
        + "</tr>"
        for part in parts
    )
    return f"<table><tr>{head}</tr>{rows}</table>"
