"""All outcomes on one page: every claim of the papers in words, their figure, ours, and whether it
still holds. The pictures are inside the page, so that it is one file."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Sequence
from pathlib import Path

from outgrid.bench.experiments import EXPERIMENTS
from outgrid.bench.experiments.outcome import (
    PAPERS,
    Finding,
    Outcome,
    disk_lines,
    row_lines,
)
from outgrid.errors import UsageError
from outgrid.lines import format_wear
from outgrid.units import format_bytes, format_seconds

__all__ = ["PAGE_NAME", "read_outcomes", "write_page"]

PAGE_NAME = "index.html"
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
th.experiment, th.today { width: 6.8rem; } th.where { width: 16%; } th.claim { width: 24%; }
th.paper { width: 18%; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem;
         border-bottom: 1px solid var(--line); overflow-wrap: break-word; }
th { background: var(--soft); }
figure { margin: 1rem 0; overflow-x: auto; }
figure img { display: block; width: 100%; height: auto; min-width: 44rem; background: #fff;
             border: 1px solid var(--line); }
.yes, .no, .open { white-space: nowrap; font-weight: 600; }
.yes { color: var(--yes); } .no { color: var(--no); } .open { color: var(--dim); }
.small { color: var(--dim); font-size: .85rem; overflow-wrap: anywhere; }
code { background: var(--soft); padding: .1rem .3rem; }
pre { overflow-x: auto; font-size: .75rem; background: var(--soft); padding: .6rem; }
@media (max-width: 48rem) {  /* a claim is a card: its cells below each other, with their names */
  table, tbody, tr, td { display: block; } tr:first-child { display: none; }
  tr { border: 1px solid var(--line); margin-bottom: .8rem; }
  td { border: 0; padding: .2rem .6rem; white-space: normal; }
  td::before { content: attr(data-name) ": "; color: var(--dim); font-weight: 400; } }
"""
VERDICTS = {
    True: ("yes", "holds"),
    False: ("no", "does not hold"),
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
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        "<title>Papers and here</title>",
        f"<style>{STYLE}</style></head><body>",
        "<h1>Papers and here</h1>",
        "<p>What was claimed of computing beyond memory, measured again: each claim in words, its "
        "figure in the paper, the figure on this machine, and whether it still holds. Every "
        "experiment measured its own reference in the same run and compared its answers.</p>",
        f"<p>{_text(machine.get('cpu', ''))}, {machine.get('cores')} cores, "
        f"{_text(format_bytes(machine.get('memory_bytes', 0)))} of memory, Linux "
        f"{_text(machine.get('kernel', ''))}, {_text(machine.get('compiler', ''))}.</p>",
        f"<p>{_answers(outcomes)} {_written(outcomes)}</p>",
        f"<nav>{''.join(_link(outcome.bench) for outcome in outcomes)}</nav>",
        "<h2 id='claims'>All claims</h2>",
        f"<p>{_counted([each for outcome in outcomes for each in outcome.findings])}</p>",
        _table([(outcome.bench, each) for outcome in outcomes for each in outcome.findings]),
        "<h2 id='papers'>The papers</h2>",
        f"<ul>{''.join(f'<li>{_text(k)}: {_text(v)}</li>' for k, v in PAPERS.items())}</ul>",
        *(_section(outcome, folder) for outcome in outcomes),
        "</body></html>",
    ]
    path.write_text("\n".join(parts))
    return path


def _load(outcome: Outcome) -> str:
    cores = outcome.machine.get("cores") or 1
    busy = f", <b class='no'>busy with other work on {cores} cores</b>"
    return f"load {outcome.load:.1f} at the beginning{busy if outcome.load > cores / 2 else ''}"


def _link(bench: str) -> str:
    return f"<a href='#{bench}'>{bench}</a>"


def _answers(outcomes: Sequence[Outcome]) -> str:
    wrong = [outcome.bench for outcome in outcomes if not outcome.agrees]
    if wrong:
        return f"<b class='no'>Answers differ in {', '.join(wrong)}.</b>"
    return "All answers agree."


def _written(outcomes: Sequence[Outcome]) -> str:
    """What all experiments wrote to each disk, and what that is of its life where that is known."""
    totals: dict[str, int] = {}
    for outcome in outcomes:
        for disk in outcome.disks:
            totals[disk.device] = totals.get(disk.device, 0) + disk.written_bytes
    endurance = max(outcome.endurance_bytes for outcome in outcomes)
    told = [
        f"{device or 'no disk'} {format_bytes(nbytes)}{format_wear(nbytes, endurance)}"
        for device, nbytes in totals.items()
    ]
    return f"Written meanwhile, by others too: {_text('; '.join(told))}." if told else ""


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
        image = f"<img alt='{alt}' src='data:image/png;base64,{data}'>"
        figure = f"<figure tabindex='0'>{image}</figure>"
    facts = (
        f"<p class='small'>{outcome.size}, {_text(outcome.started)}, "
        f"{_text(format_seconds(outcome.seconds))}, {_load(outcome)}, "
        f"outgrid {_text(outcome.version)}. Reference: {_text(outcome.reference)}. "
        f"{_answers([outcome])}</p>"
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
    """One row for each claim, with its experiment where that is told; none without claims."""
    if not findings:
        return ""
    named = any(name for name, _ in findings)
    names = ["experiment", "where", "claim", "paper", "here", "today"][0 if named else 1 :]
    head = "".join(f"<th class='{name}'>{name}</th>" for name in names)
    rows = [f"<tr>{head}</tr>"]
    for bench, each in findings:
        kind, word = VERDICTS[each.holds]
        texts = [_text(text) for text in (each.figure, each.claim, each.paper, each.here)]
        cells = [*([_link(bench)] if named else []), *texts, f"<span class='{kind}'>{word}</span>"]
        pairs = zip(names, cells, strict=True)
        row = "".join(f"<td data-name='{name}'>{cell}</td>" for name, cell in pairs)
        rows.append(f"<tr>{row}</tr>")
    return f"<table>{''.join(rows)}</table>"


def _text(value: object) -> str:
    return html.escape(str(value))
