"""All outcomes on one page: every claim of the papers in words, their figure, ours, and whether it
still holds. The pictures are inside the page, so that it is one file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from outgrid.errors import UsageError
from outgrid.lines import format_wear
from outgrid.report.page import document, picture, safe
from outgrid.units import format_bytes, format_seconds
from outgrid_bench.experiments import EXPERIMENTS
from outgrid_bench.experiments.outcome import (
    PAPERS,
    Finding,
    Outcome,
    disk_lines,
    row_lines,
)

__all__ = ["PAGE_NAME", "read_outcomes", "write_page"]

PAGE_NAME = "index.html"
STYLE = """
th.experiment, th.today { width: 6.8rem; } th.where { width: 16%; } th.claim { width: 24%; }
th.paper { width: 18%; }
.yes, .no, .open { white-space: nowrap; font-weight: 600; }
.yes { color: var(--yes); } .no { color: var(--no); } .open { color: var(--dim); }
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
    outcomes = [Outcome.from_dict(json.loads(path.read_text())) for path in folder.glob("*.json")]
    if not outcomes:
        raise UsageError(
            f"{folder} holds no outcome of an experiment; outgrid bench all makes some"
        )
    order = list(EXPERIMENTS)
    return sorted(outcomes, key=lambda outcome: order.index(outcome.bench))


def write_page(outcomes: Sequence[Outcome], folder: Path) -> Path:
    """Write the page beside the figures ``folder / NAME.png``; returns its path."""
    path = folder / PAGE_NAME
    machine = outcomes[0].machine
    parts = [
        "<p>What was claimed of computing beyond memory, measured again: each claim in words, its "
        "figure in the paper, the figure on this machine, and whether it still holds. Every "
        "experiment measured its own reference in the same run and compared its answers.</p>",
        f"<p>{safe(machine.get('cpu', ''))}, {machine.get('cores')} cores, "
        f"{safe(format_bytes(machine.get('memory_bytes', 0)))} of memory, Linux "
        f"{safe(machine.get('kernel', ''))}, {safe(machine.get('compiler', ''))}.</p>",
        f"<p>{_answers(outcomes)} {_written(outcomes)}</p>",
        f"<nav>{''.join(_link(outcome.bench) for outcome in outcomes)}</nav>",
        "<h2 id='claims'>All claims</h2>",
        f"<p>{_counted([finding for outcome in outcomes for finding in outcome.findings])}</p>",
        _table([(outcome.bench, finding) for outcome in outcomes for finding in outcome.findings]),
        "<h2 id='papers'>The papers</h2>",
        f"<ul>{''.join(f'<li>{safe(k)}: {safe(v)}</li>' for k, v in PAPERS.items())}</ul>",
        *(_section(outcome, folder) for outcome in outcomes),
    ]
    path.write_text(document("Papers and here", parts, STYLE))
    return path


def _load(outcome: Outcome) -> str:
    cores = outcome.machine.get("cores") or 1
    busy = f", <b class='no'>busy with other work on {cores} cores</b>"
    return f"{outcome.load:.1f} threads of others{busy if outcome.load > cores / 2 else ''}"


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
    return f"Written meanwhile, by others too: {safe('; '.join(told))}." if told else ""


def _counted(findings: Sequence[Finding]) -> str:
    """How many claims have which verdict."""
    held = [finding.holds for finding in findings]
    counts = [
        f"{held.count(verdict)} <span class='{kind}'>{word}</span>"
        for verdict, (kind, word) in VERDICTS.items()
    ]
    return f"{len(findings)} claims: {', '.join(counts)}."


def _section(outcome: Outcome, folder: Path) -> str:
    drawn = folder / f"{outcome.bench}.png"
    told = f"figure of the experiment {outcome.bench}"
    figure = picture(drawn, told) if drawn.exists() else ""
    facts = (
        f"<p class='small'>{outcome.size}, {safe(outcome.started)}, "
        f"{safe(format_seconds(outcome.seconds))}, {_load(outcome)}, "
        f"outgrid {safe(outcome.version)}. Reference: {safe(outcome.reference)}. "
        f"{_answers([outcome])}</p>"
    )
    purpose = EXPERIMENTS[outcome.bench].purpose
    notes = "".join(
        f"<li>{safe(line)}</li>"
        for line in (*(f"disk {disk_line}" for disk_line in disk_lines(outcome)), *outcome.notes)
    )
    return "\n".join(
        [
            f"<h2 id='{outcome.bench}'>{outcome.bench}</h2>",
            f"<p>{safe(purpose[0].upper() + purpose[1:])}. "
            f"<code>outgrid bench {outcome.bench} --{outcome.size}</code></p>",
            figure,
            _table([("", finding) for finding in outcome.findings]),
            facts,
            f"<ul class='small'>{notes}</ul>" if notes else "",
            f"<details><summary>All rows</summary><pre>{safe(row_lines(outcome))}</pre></details>",
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
    for bench, finding in findings:
        kind, word = VERDICTS[finding.holds]
        texts = [
            safe(text) for text in (finding.figure, finding.claim, finding.paper, finding.here)
        ]
        cells = [*([_link(bench)] if named else []), *texts, f"<span class='{kind}'>{word}</span>"]
        pairs = zip(names, cells, strict=True)
        row = "".join(f"<td data-name='{name}'>{cell}</td>" for name, cell in pairs)
        rows.append(f"<tr>{row}</tr>")
    return f"<table>{''.join(rows)}</table>"
