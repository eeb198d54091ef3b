"""A page in one file: its style, text made safe, pictures inside it, and the page of a run."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from pathlib import Path

from outgrid.lines import format_share
from outgrid.markup import safe
from outgrid.plan.explain import explain_rows
from outgrid.record import Part, Record
from outgrid.regular import read_own
from outgrid.report.ranks import SHOWN
from outgrid.report.summary import heading, summary_rows
from outgrid.units import format_seconds

__all__ = ["document", "picture", "run_page", "safe"]

STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --paper: #fff; --line: #d4d4d4; --soft: #f4f4f2;
        --dim: #5a5a5a; --yes: #0a6b2d; --no: #a32020; --link: #0b57a4; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e3; --paper: #161718; --line: #3c3d3f; --soft: #222325; --dim: #a8a8a4;
          --yes: #6fd08c; --no: #ff8d85; --link: #8ab8f5; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
       color: var(--ink); background: var(--paper); }
h1 { font-size: 1.7rem; } h2 { margin-top: 3rem; border-bottom: 1px solid var(--line); }
a { color: var(--link); }
nav a { display: inline-block; margin: 0 .9rem .3rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; margin: 1rem 0;
        table-layout: fixed; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem;
         border-bottom: 1px solid var(--line); overflow-wrap: break-word; }
th { background: var(--soft); }
figure { margin: 1rem 0; overflow-x: auto; }
figure img { display: block; width: 100%; height: auto; min-width: 44rem; background: #fff;
             border: 1px solid var(--line); }
.small { color: var(--dim); font-size: .85rem; overflow-wrap: anywhere; }
code { background: var(--soft); padding: .1rem .3rem; }
pre { overflow-x: auto; font-size: .75rem; background: var(--soft); padding: .6rem; }
"""
RUN_STYLE = """
h2 { margin-top: 2rem; font-size: 1.2rem; }
.facts td:first-child { width: 9rem; color: var(--dim); }
.facts { table-layout: auto; }
figure img { min-width: 0; width: auto; max-width: 100%; }
.bar { display: flex; height: 1.6rem; border: 1px solid var(--line); }
.bar span { height: 100%; }
.legend span { display: inline-block; margin-right: 1.2rem; white-space: nowrap; }
.legend i { display: inline-block; width: .8rem; height: .8rem; margin-right: .4rem; }
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


def run_page(record: Record, pictures: Sequence[tuple[str, Path]]) -> str:
    """The page of a run: what it did and how fast, where its time went, what was planned, and
    ``pictures`` with what they show."""
    machine = record.machine
    parts = [
        f"<p class='small'>{safe(record.started)}, {safe(machine.get('cpu', ''))}, "
        f"{safe(machine.get('cores', ''))} cores, Linux {safe(machine.get('kernel', ''))}, "
        f"outgrid {safe(record.version)}</p>",
        _facts(summary_rows(record)),
        "<h2>Where the time went</h2>",
        _bar(record),
        *(f"<h2>{safe(told)}</h2>{picture(path, told)}" for told, path in pictures),
        *(["<h2>Parts</h2>", _parts(record.parts)] if len(record.parts) > 1 else []),
        "<h2>Plan</h2>",
        _facts(explain_rows(record.plan)),
    ]
    return document(heading(record.plan), parts, RUN_STYLE)


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
