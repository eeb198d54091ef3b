"""All outcomes on one page: every claim of the papers in words, their figure, ours, and whether it
still holds. The pictures are inside the page, so that it is one file."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Sequence
from pathlib import Path

from outgrid.bench.experiments import EXPERIMENTS
from outgrid.bench.experiments.outcome import Finding, Outcome, disk_lines, row_lines
from outgrid.errors import UsageError
from outgrid.units import format_bytes, format_seconds

__all__ = ["PAGE_NAME", "read_outcomes", "write_page"]

PAGE_NAME = "index.html"
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem;
       color: #1c1c1c; background: #fff; }
h1 { font-size: 1.7rem; } h2 { margin-top: 3rem; border-bottom: 1px solid #ccc; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; margin: 1rem 0; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem;
         border-bottom: 1px solid #ddd; }
img { max-width: 100%; height: auto; border: 1px solid #eee; }
.yes { color: #0a6b2d; font-weight: 600; white-space: nowrap; }
.no { color: #a32020; font-weight: 600; white-space: nowrap; }
.open { color: #666; white-space: nowrap; }
.small { color: #555; font-size: .85rem; }
pre { overflow-x: auto; font-size: .75rem; background: #f6f6f6; padding: .6rem; }
"""
VERDICTS = {
    True: ("yes", "still holds"),
    False: ("no", "no longer"),
    None: ("open", "not judged"),
}


def read_outcomes(folder: Path) -> list[Outcome]:
    """The outcomes whose files lie in ``folder``, in the order of experiments.

    Raises UsageError where there is none.
    """
    found = [Outcome.from_dict(json.loads(path.read_text())) for path in folder.glob("*.json")]
    if not found:
        raise UsageError(
            f"{folder} holds no outcome of an experiment; outgrid bench all makes some"
        )
    order = list(EXPERIMENTS)
    return sorted(found, key=lambda outcome: order.index(outcome.bench))


def write_page(outcomes: Sequence[Outcome], folder: Path) -> Path:
    """Write the page beside the figures ``folder / NAME.png``; returns its path."""
    path = folder / PAGE_NAME
    machine = outcomes[0].machine
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width'>",
        "<title>Papers and here</title>",
        f"<style>{STYLE}</style></head><body>",
        "<h1>Papers and here</h1>",
        "<p>What was claimed of computing beyond memory, measured again: each claim in words, its "
        "figure in the paper, the figure on this machine, and whether it still holds. Every "
        "experiment measured its own reference in the same run and compared its answers.</p>",
        f"<p>{_text(machine.get('cpu', ''))}, {machine.get('cores')} cores, "
        f"{_text(format_bytes(machine.get('memory_bytes', 0)))} of memory, Linux "
        f"{_text(machine.get('kernel', ''))}, {_text(machine.get('compiler', ''))}.</p>",
        "<h2>All claims</h2>",
        f"<p>{_counted([each for outcome in outcomes for each in outcome.findings])}</p>",
        _table([(outcome.bench, each) for outcome in outcomes for each in outcome.findings]),
        *(_section(outcome, folder) for outcome in outcomes),
        "</body></html>",
    ]
    path.write_text("\n".join(parts))
    return path


def _counted(findings: Sequence[Finding]) -> str:
    """How many claims have which verdict."""
    counts = [
        f"{sum(each.holds is verdict for each in findings)} <span class='{kind}'>{word}</span>"
        for verdict, (kind, word) in VERDICTS.items()
    ]
    return f"{len(findings)} claims: {', '.join(counts)}."


def _section(outcome: Outcome, folder: Path) -> str:
    picture = folder / f"{outcome.bench}.png"
    figure = ""
    if picture.exists():
        data = base64.b64encode(picture.read_bytes()).decode()
        alt = html.escape(f"figure of the experiment {outcome.bench}", quote=True)
        figure = f"<img alt='{alt}' src='data:image/png;base64,{data}'>"
    answers = "All answers agree." if outcome.agrees else "<b class='no'>Answers differ.</b>"
    facts = (
        f"<p class='small'>{outcome.size}, {_text(outcome.started)}, "
        f"{_text(format_seconds(outcome.seconds))}, load {outcome.load:.1f} at the beginning, "
        f"outgrid {_text(outcome.version)}. Reference: {_text(outcome.reference)}. {answers}</p>"
    )
    purpose = EXPERIMENTS[outcome.bench].purpose
    notes = "".join(
        f"<li>{_text(line)}</li>"
        for line in (*(f"disk {each}" for each in disk_lines(outcome)), *outcome.notes)
    )
    return "\n".join(
        [
            f"<h2 id='{outcome.bench}'>{outcome.bench}</h2>",
            f"<p>{_text(purpose[0].upper() + purpose[1:])}. "
            f"<code>outgrid bench {outcome.bench} --{outcome.size}</code></p>",
            figure,
            _table([("", each) for each in outcome.findings]),
            facts,
            f"<ul class='small'>{notes}</ul>" if notes else "",
            f"<details><summary>All rows</summary><pre>{_text(row_lines(outcome))}</pre></details>",
        ]
    )


def _table(findings: Sequence[tuple[str, Finding]]) -> str:
    named = any(name for name, _ in findings)
    head = "<th>experiment</th>" if named else ""
    rows = [f"<tr>{head}<th>where</th><th>claim</th><th>paper</th><th>here</th><th>today</th></tr>"]
    for name, each in findings:
        kind, word = VERDICTS[each.holds]
        first = f"<td><a href='#{name}'>{name}</a></td>" if named else ""
        cells = "".join(
            f"<td>{_text(text)}</td>" for text in (each.figure, each.claim, each.paper, each.here)
        )
        rows.append(f"<tr>{first}{cells}<td class='{kind}'>{word}</td></tr>")
    return f"<table>{''.join(rows)}</table>"


def _text(value: object) -> str:
    return html.escape(str(value))
