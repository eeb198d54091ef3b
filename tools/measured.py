"""Write the measured tables of the texts from the committed records.

python tools/measured.py          rewrite the parts between the markers
python tools/measured.py --check  exit with 1 if a text does not say what the records say
python tools/measured.py --draw   draw the pictures of experiments from their records as well
python tools/measured.py --take FOLDER  keep what `outgrid bench all` left there, and do all this
"""

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from outgrid_bench import rows as bench_rows
from outgrid_bench import where
from outgrid_bench.claims import OWN, PAPERS, Paper
from outgrid_bench.experiments import EXPERIMENTS, Outcome
from outgrid_bench.experiments.figure import draw_outcome

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "benchmarks" / "records"
GALLERY = ROOT / "docs" / "gallery"

SUMMARY = (("heat7", "float64"), ("wave:8", "float32"), ("heat5", "float32"))
FAR = 16  # times memory; beyond that planes were so large that they passed in strips
UNSTEADY = 1.2  # times as fast as the other of two plain sweeps beside a row
DISTURBED = (
    "\\* The plain sweeps right before and after this row differ by more than 20 %: other programs"
    " disturbed them,\nand the ratio may be wrong by as much.\n\n"
)
IN_MEMORY = {"plain": "plain sweep, in memory", "tiled": "temporally blocked, in memory"}


def table() -> str:
    """What a reader wants to know first: the rates beyond memory beside those in memory."""
    machines = by_machine()
    lines = [line for of in SUMMARY for line in summary_rows(machines, *of)]
    lines += demo_rows(json.loads((RECORDS / "demo.json").read_text()), machines)
    heading = ["", *(cell for name in machines for cell in (f"GLUP/s, {name}", "over plain"))]
    return "\n".join(
        [
            "## Measured",
            "",
            f"| {' | '.join(heading)} |",
            "|---" * len(heading) + "|",
            *(f"| {' | '.join(line)} |" for line in lines),
            "",
            textwrap.fill(" ".join(notes()), 150, break_long_words=False, break_on_hyphens=False),
            "",
            "",
        ]
    )


def by_machine() -> dict[str, list[dict[str, Any]]]:
    """The records of `bench core` that have what the summary tells, by the processor.

    The first one of each name, and none of code for another processor, which arguments of the
    compiler name.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(RECORDS.glob("rows*.json")):
        rows = json.loads(path.read_text())
        machine = rows[-1]["machine"]
        measured = {(row["stencil"], row["dtype"]) for row in rows}
        if measured.issuperset(SUMMARY) and "-march=" not in machine:
            found.setdefault(processor(machine), rows)
    return found


def processor(machine: str) -> str:
    """The name of a processor, of a machine as records have it: "Intel Xeon"."""
    name = bench_rows.processor_of(machine).rpartition(" of ")[2]
    return re.sub(r" \(.*\)", "", name.replace("(R)", "").replace(" Processor", ""))


Rates = dict[str, tuple[float, float]]  # by machine: GLUP/s, and how much that is over plain


def in_cells(name: str, rates: Rates, machines: Iterable[str]) -> list[str]:
    """A line of the summary, in which some machines may have no rate."""
    known = (rates.get(machine) for machine in machines)
    return [name, *(cell for both in known for cell in (map(number, both) if both else ("", "")))]


def summary_rows(
    machines: dict[str, list[dict[str, Any]]], stencil: str, dtype: str
) -> list[list[str]]:
    """Of one stencil: two rates in memory, and all of the largest grids."""
    found: dict[str, Rates] = {}
    for machine, every in machines.items():
        rows = [row for row in every if (row["stencil"], row["dtype"]) == (stencil, dtype)]
        farthest = min(FAR, max(row["factor"] for row in rows))
        for row in rows:
            if row["mode"] in IN_MEMORY:
                name = f"{IN_MEMORY[row['mode']]}, {extents(row['shape'])} cells"
            elif row["mode"] == "outofcore" and row["factor"] >= farthest:
                limit = row["memory_limit_bytes"] / 2**20
                times = f"{row['factor']:g} times the limit of {limit:g} MiB{along(row)}"
                name = f"**out of core, {extents(row['shape'])} cells, {times}**"
            else:
                continue
            found.setdefault(name, {})[machine] = row["glups"], row["over_plain"]
    lines = [in_cells(name, rates, machines) for name, rates in found.items()]
    return [in_cells(f"*{stencil}, {dtype}*", {}, machines), *lines]


def extents(shape: list[int]) -> str:
    return " x ".join(map(str, shape))


def demo_rows(demo: dict[str, Any], machines: Iterable[str]) -> list[list[str]]:
    shape = " x ".join(str(extent) for extent in demo["record"]["problem"]["shape"])
    limit = demo["record"]["measured"]["memory_limit_bytes"] / 2**20
    plain, rate = demo["plain_glups"], demo["record"]["derived"]["glups"]
    factor, machine = demo["fields_over_memory"], processor(demo["record"]["machine"]["cpu"])
    found: dict[str, Rates] = {
        f"*shallow water, float32, {shape} cells (the demonstration)*": {},
        "plain sweep, in memory, 4096 x 4096 cells": {machine: (plain, 1.0)},
        f"**out of core, {factor:.0f} times its {limit:g} MiB**": {machine: (rate, rate / plain)},
    }
    return [in_cells(name, rates, machines) for name, rates in found.items()]


def notes() -> list[str]:
    every = [row for rows in by_machine().values() for row in rows]
    rows = [row for row in every if row["mode"] == "outofcore"]
    waits = max(row["wait_share"] for row in rows if row["factor"] >= 16)
    peak = max(row["peak_memory_over_limit"] for row in rows)
    limit, _, _ = rows[-1]["limit"].partition(" of ")
    plain = (re.sub(r"/[^ ,]*/", "", row["machine"]) for row in rows)
    names = dict.fromkeys(re.sub(r"(Linux [\d.]+)[^,]*", r"\1", name) for name in plain)
    return [
        "GLUP/s are 1e9 cell updates per second. Each needed update is counted once. The ratio of",
        "an out-of-core run is over a plain sweep that was measured right before and after it.",
        f"`outgrid bench core` up to {max(row['ended'] for row in rows)[:10]}: {'; '.join(names)};",
        f"bytes moved over the ideal at most {max(row['io_over_ideal'] for row in rows):.3f},",
        f"waiting for transfers at 16 times memory or more at most {waits:.1%} of the time,",
        f"peak memory at most {peak:.2f} of the limit ({limit});",
        "answers identical to the byte."
        if all(row["identical"] for row in rows)
        else "ANSWERS DIFFER.",
        "Records: [benchmarks/records](benchmarks/records).",
    ]


def row_records() -> list[dict[str, Any]]:
    """All rows of `bench core`: of one whole record, or of single ones."""
    whole = RECORDS / "rows.json"
    paths = [whole] if whole.exists() else sorted(RECORDS.glob("*-*.json"))
    return [row for path in paths for row in json.loads(path.read_text())]


def markdown(heading: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    """A table."""
    rule = "|---" * len(heading) + "|"
    rows = ["| " + " | ".join(cells) + " |" for cells in (heading, *lines)]
    return "\n".join([rows[0], rule, *rows[1:], "", ""])


def times(ratio: float | None) -> str:
    """A ratio, of a large one fewer digits."""
    return number(ratio, 1 if ratio is not None and ratio >= 10 else 2)


def number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def rows_table() -> str:
    """Every recorded row: a kernel in cache, in memory and out of core."""
    heading = ("stencil", "mode", "GLUP/s", "GFLOP/s", "over plain", "over tiled", "over resident")
    lines: list[tuple[str, ...]] = []
    for row in row_records():
        if row["mode"] in ("bandwidth", "peak"):
            continue
        lines.append(
            (
                f"{row['stencil']} {row['dtype']}",
                mode_of(row),
                number(row["glups"]),
                number(row["gflops"], 1),
                number(row["over_plain"]),
                number(row["over_tiled"]),
                number(row.get("over_resident")),
                number(row["over_ceiling"]),
                share(row.get("over_peak")),
                share(row["wait_share"]),
                number(row["io_over_ideal"], 3),
            )
        )
    return markdown((*heading, "over ceiling", "of peak", "waiting", "bytes over ideal"), lines)


def mode_of(row: dict[str, Any]) -> str:
    if row["mode"] != "outofcore":
        return row["mode"]
    return f"**out of core, {beyond(row)}**"


def beyond(row: dict[str, Any]) -> str:
    limit = row["memory_limit_bytes"] / 2**20
    plane = " x ".join(str(extent) for extent in row["shape"][1:])
    return f"{row['factor']:g} times {limit:g} MiB, planes of {plane}{along(row)}"


def along(row: dict[str, Any]) -> str:
    """The axis that planes passed along, where it was asked for."""
    return f", along {row['axis']}" if row.get("axis") else ""


def bounds_table() -> str:
    """How far each stencil is from what bounds it: the chain from cache to disk, link by link."""
    heading = (
        "stencil",
        "in cache, GLUP/s",
        "in memory over in cache",
        "out of core over in memory",
        "on the same planes",
        "waiting",
        "plain over by hand",
    )
    cases = dict.fromkeys((r["stencil"], r["dtype"]) for r in row_records() if r["steps"])
    lines: list[tuple[str, ...]] = []
    for stencil, dtype in cases:
        rows = [r for r in row_records() if (r["stencil"], r["dtype"]) == (stencil, dtype)]
        rates = {row["mode"]: row["glups"] for row in rows}
        ceiling = max(rate for mode, rate in rates.items() if mode.startswith("ceiling"))
        farthest = max(
            (row for row in rows if row["mode"] == "outofcore"),
            key=lambda row: (min(FAR, row["factor"]), row["glups"]),
            default=None,
        )
        by_hand = [rate for mode, rate in rates.items() if mode.startswith("hand")]
        hand = rates["plain"] / max(by_hand) if by_hand else None
        lines.append(
            (
                f"{stencil} {dtype}",
                number(ceiling),
                number(rates["tiled"] / ceiling),
                number(farthest["over_tiled"]) if farthest else "",
                number(farthest.get("over_resident")) if farthest else "",
                share(farthest["wait_share"]) if farthest else "",
                number(hand),
            )
        )
    return markdown(heading, lines)


def machines_table() -> str:
    """Rates of every recorded machine over the best sweep of one step, plain or by hand."""
    heading = (
        "stencil",
        "machine",
        "best of one step, GLUP/s",
        "tiles in memory",
        "over it",
        "out of core",
        "over it, beside",
        "over tiles on the same planes",
        "waiting",
    )
    paths = sorted(RECORDS.glob("rows*.json"))
    rows = [row for path in paths for row in json.loads(path.read_text())]
    lines: list[tuple[str, ...]] = []
    marked = False
    for row in sorted(rows, key=lambda row: (row["stencil"], row["dtype"], row["machine"])):
        if row["mode"] != "outofcore":
            continue
        own = ("stencil", "dtype", "machine")
        beside = [other for other in rows if all(other[name] == row[name] for name in own)]
        references = {other["mode"]: other for other in beside if other["mode"] != "outofcore"}
        rates = {mode: other["glups"] for mode, other in references.items()}
        best = max((mode for mode in bench_rows.ONE_STEP if mode in rates), key=rates.__getitem__)
        over = row.get("over_best") or (row["over_plain"] if best == "plain" else None)
        if best != "plain" and references[best]["ended"] > row["ended"]:
            over = None  # the record cannot have known of that reference
        unsteady = over is not None and is_unsteady(row["plain_beside"])
        marked = marked or unsteady
        lines.append(
            (
                f"{row['stencil']} {row['dtype']}",
                bench_rows.processor_of(row["machine"]),
                f"{number(rates[best])} ({best.replace('hand', 'by hand')})",
                number(rates["tiled"]),
                number(rates["tiled"] / rates[best]),
                f"{number(row['glups'])} ({beyond(row)})",
                f"{number(over)} \\*" if unsteady else number(over),
                number(row.get("over_resident") or row["over_tiled"]),
                share(row["wait_share"]),
            )
        )
    return markdown(heading, lines) + (DISTURBED if marked else "")


def is_unsteady(beside: list[float]) -> bool:
    """Whether plain sweeps around a row differ so much that its ratio to them says little."""
    return bool(beside) and max(beside) > UNSTEADY * min(beside)


def where_table() -> str:
    """Which part of an update's time out of core goes where."""
    rows = [bench_rows.Row.from_dict(row) for row in row_records()]
    return markdown(where.HEADING, where.where_lines(rows))


def tune_table() -> str:
    """The planner's choice beside the best of an exhaustive search."""
    path = RECORDS / "tune.json"
    if not path.exists():
        return f"{made_by('tune')}\n\n"
    heading = ("problem", "chosen", "GLUP/s", "best found", "choice over best")
    lines = [
        (
            row["problem"],
            row["choice"],
            number(row["choice_glups"]),
            row["best"],
            number(row["choice_over_best"]),
            number(row["predicted_over_measured"]),
        )
        for row in json.loads(path.read_text())
    ]
    return markdown((*heading, "predicted over measured time"), lines)


def peers_table(record: str = "peers") -> str:
    """What one would pick instead, on the same grid in the same run."""
    path = RECORDS / f"{record}.json"
    if not path.exists():
        return f"{made_by('peers')}\n\n"
    lines = [
        (
            row["peer"],
            {"memory": "in memory", "outofcore": "out of core"}[row["mode"]],
            number(row["glups"]),
            "" if row["peer"] == "outgrid" else times(row["ours_over"]),
            row["note"],
        )
        for row in json.loads(path.read_text())
    ]
    return markdown(("program", "grid", "GLUP/s", "ours over it", "version, or why not"), lines)


def io_table() -> str:
    """The queue beside fio and a plain loop, and a run that waits for the disk."""
    path = RECORDS / "queue.json"
    if not path.exists():
        return f"{made_by('io', 'queue')}\n\n"
    record = json.loads(path.read_text())
    lines = [
        (
            row["kind"],
            row["method"],
            number(row["bytes_per_second"] / 1e9),
            number(row["over_reference"]),
            number(row["over_fio"]),
        )
        for row in record["rows"]
    ]
    run = record["starved"]
    lines.append(
        (
            f"a run of {run['depth']} steps per sweep",
            "",
            number(run["moved_bytes"] / run["seconds"] / 1e9),
            f"{run['whole_over_bandwidth']:.2f} of mixed, {run['over_bandwidth']:.2f} after the "
            "first sweep",
            "",
        )
    )
    return markdown(("transfers", "by", "GB/s", "over the faster reference", "over fio"), lines)


def paper_table(paper: Paper) -> str:
    """What a paper claims, and what the recorded experiments found of it."""
    records = findings_records()
    judged: dict[str, dict[str, Any]] = {}
    for _, finding in records:  # a record that measured it comes before one that did not
        if (key := finding.get("key")) and (finding["holds"] is not None or key not in judged):
            judged[key] = finding
    lines: list[tuple[str, ...]] = []
    for claim in paper:
        finding = judged.get(claim.key, {"here": "not measured", "holds": None})
        reason = claim.reason if finding["holds"] is False else None
        why = "" if reason is None else f"{reason.kind}: {reason.evidence}"
        told = claim.experiment, claim.figure, claim.text, finding, why, claim.printed
        lines.append(_claim_line(*told))
    for bench, finding in records:
        if finding.get("key") or not finding["figure"].startswith(f"{paper.name}, "):
            continue
        figure = finding["figure"].removeprefix(f"{paper.name}, ")
        lines.append(_claim_line(bench, figure, finding["claim"], finding, "", finding["paper"]))
    heading = ("figure", "claim", "`outgrid bench`", "paper", "here", "holds", "reason")
    return markdown(heading, lines)


def _claim_line(
    bench: str, figure: str, claim: str, finding: dict[str, Any], why: str, printed: str
) -> tuple[str, ...]:
    holds = {True: "yes", False: "**no**", None: ""}[finding["holds"]]
    return figure, claim, f"`{bench}`", printed, finding["here"], holds, why


def findings_records() -> list[tuple[str, dict[str, Any]]]:
    """Findings of the records that are kept, each with its experiment."""
    return [
        (record["bench"], finding) for record in outcome_records() for finding in record["findings"]
    ]


def outcome_records() -> list[dict[str, Any]]:
    """The records of experiments."""
    records = [json.loads(path.read_text()) for path in sorted(RECORDS.glob("*.json"))]
    return [record for record in records if isinstance(record, dict) and "findings" in record]


def recorded_table() -> str:
    """When, where and how large the recorded experiments were."""
    lines = [
        (
            f"`{record['bench']}`",
            record["size"],
            record["started"][:10],
            f"{record['machine']['cores']} cores of {record['machine']['cpu']}",
            number(record["load"], 1),
            "agree" if record["agrees"] else "**DIFFER**",
        )
        for record in outcome_records()
    ]
    return markdown(("experiment", "size", "day", "machine", "others", "answers"), lines)


def made_by(name: str) -> str:
    return (
        f"No record is kept here yet; `outgrid bench {name} --json benchmarks/records/{name}.json` "
        "makes one."
    )


def soak_table() -> str:
    """What the last recorded soak and the last recorded fuzzing came to."""
    soak = json.loads((RECORDS / "soak.json").read_text())
    fuzz = json.loads((RECORDS / "fuzz.json").read_text())
    bits = soak["bits"]
    lines: list[tuple[str, ...]] = [
        ("minutes", number(soak["seconds"] / 60, 0)),
        ("problems, each to its end", str(soak["problems"])),
        ("processes", str(soak["attempts"])),
        ("killed by SIGKILL", str(soak["kills"])),
        *((f"cut off: {way}", str(count)) for way, count in sorted(soak.get("cut", {}).items())),
        ("resumed within a sweep", str(soak["in_mid_sweep"])),
        *(
            (words, str(soak[key]))
            for key, words in (
                ("spread", "problems spread over several folders"),
                ("checked_with_numpy", "problems compared with NumPy as well"),
                ("flips_named", "flipped bits of working files named"),
                ("flips_without_effect", "flipped bits where nothing durable was"),
            )
            if key in soak
        ),
        ("**wrong bytes**", f"**{soak['wrong']}**"),
        ("**hangs**", f"**{soak['hangs']}**"),
        ("**unexpected ends**", f"**{len(soak['unexpected'])}**"),
        ("single bits of finished runs flipped / found", f"{bits['flipped']} / {bits['found']}"),
        *(
            (f"prefixes of a run's operations, {way}: looked at", str(sum(ends.values())))
            for way, ends in sorted(soak["prefixes"].items())
        ),
        ("minutes of fuzzing", number(fuzz["seconds"] / 60, 0)),
        ("files that lie, read or refused", str(sum(fuzz["files"].values()))),
        ("**tracebacks**", f"**{len(fuzz['failures'])}**"),
    ]
    days = soak["started"][:10], fuzz["started"][:10]
    heading = f"`tools/soak.py` on {days[0]}, `tools/fuzz.py` on {days[1]}"
    return markdown((heading, "count"), lines)


def memory_table() -> str:
    """Examples and tiers under the smallest limits that they name."""
    path = RECORDS / "memory.json"
    record = json.loads(path.read_text())
    heading = (
        f"MiB, `tools/memory.py` on {record['started'][:10]}",
        "limit that it names",
        "peak of the process",
        "peak of its control group",
        "one MiB less",
    )
    lines = [
        (
            row["name"],
            number(row["limit_bytes"] / 2**20, 0),
            number(row["process_peak_bytes"] / 2**20, 0),
            number(row["group_peak_bytes"] / 2**20, 0),
            "refused" if row["refused_below"] else "**NOT REFUSED**",
        )
        for row in record["rows"]
    ]
    return markdown(heading, lines)


def applications_table() -> str:
    """Every application beyond memory, and how far its answer is from one from elsewhere."""
    record = json.loads((RECORDS / "applications.json").read_text())
    heading = ("", "grid", "limit", "state over limit", "peak over limit", "steps per sweep")
    lines = [
        (
            f"{row['name']} {row['checked']}".strip(),
            f"{extents(row['shape'])}, {row['dtype']}, {row['steps']} steps",
            f"{row['limit_bytes'] / 2**20:.0f} MiB",
            number(row["state_bytes"] / row["limit_bytes"], 1),
            number(row["peak_bytes"] / row["limit_bytes"]),
            str(row["depth"]),
            f"**{row['failure'].upper()}**" if row["failure"] else "the same",
            "; ".join(row["said"]) or f"checked as {row['against']}",
        )
        for row in record["rows"]
    ]
    places = dict[str, list[str]]()
    for row in record["rows"]:
        of = row["origin"]
        place = (
            f"on {of['started'][:10]}, outgrid {of['commit']}, {of['cores']} cores of {of['cpu']}"
        )
        names = places.setdefault(place, [])
        names += [row["name"]] if row["name"] not in names else []
    most = max(places, key=lambda place: len(places[place]))
    others = [f"{', '.join(names)} {place}" for place, names in places.items() if place != most]
    origins = "; ".join((f"`tools/applications.py` {most}", *others))
    return markdown((*heading, "bytes", "what it says of a small grid"), lines) + (
        f"{origins}. The record has rates and how busy the machine was; for rates see "
        "`outgrid bench core`.\n\n"
    )


def gpu_tables() -> str:
    """Copies, kernels and runs on a GPU."""
    record = json.loads((RECORDS / "gpu-h100.json").read_text())
    copies = record["copies"]
    roof = copies["within the GPU"]
    lines = [
        (
            f"{row['stencil']} {row['dtype']}",
            number(row["alone"], 0),
            number(row["alone"] * row["bytes"] / roof),
            number(row["together"], 0),
            number(row["together"] / row["alone"]) if row["together"] else "",
        )
        for row in record["kernels"]
    ]
    heading = (
        f"in GPU memory, {extents(record['shape'])} cells",
        "level by level, GLUP/s",
        "of what copies allow",
        "three levels in a launch",
        "over level by level",
    )
    runs = [
        (
            row["what"],
            extents(row["shape"]),
            str(row["steps"]),
            f"{row['window_bytes'] / 2**30:.2f} GiB" if row["window_bytes"] else "",
            number(row["seconds"]),
            number(row["glups"], 0),
        )
        for row in record["runs"]
    ]
    told = (f"{way} {number(rate, 1 if rate < 100 else 0)}" for way, rate in copies.items())
    where = f"{record['card']}, driver {record['driver']}; {record['host']}; {record['started']}."
    how = textwrap.fill(f"{where} Copies, GB/s: {'; '.join(told)}. Made by {record['how']}.", 150)
    columns = ("heat7 float64", "cells", "steps", "GPU memory", "seconds", "GLUP/s")
    return f"{how}\n\n{markdown(heading, lines)}{markdown(columns, runs)}"


PARTS = {
    "summary": table,
    "rows": rows_table,
    "bounds": bounds_table,
    "tune": tune_table,
    "where": where_table,
    "machines": machines_table,
    "io": io_table,
    "peers": peers_table,
    "yask": partial(peers_table, "peers-yask"),
    "yaskxeon": partial(peers_table, "peers-yask-xeon"),
    "yaskxeon85": partial(peers_table, "peers-yask-xeon85"),
    "yaskepyc5": partial(peers_table, "peers-yask-epyc5"),
    "yaskepyc3": partial(peers_table, "peers-yask-epyc3"),
    "yaskbox27": partial(peers_table, "peers-yask-box27-epyc5"),
    "yaskheat7": partial(peers_table, "peers-yask-heat7-xeon"),
    "soak": soak_table,
    "memory": memory_table,
    **{paper.page: partial(paper_table, paper) for paper in (*PAPERS, OWN)},
    "recorded": recorded_table,
    "applications": applications_table,
    "gpu": gpu_tables,
}
DESIGN = ROOT / "docs" / "design"
PAGES = ROOT / "docs" / "experiments"
TEXTS = (
    ROOT / "README.md",
    ROOT / "examples" / "README.md",
    *sorted(PAGES.glob("*.md")),
    DESIGN / "gpu.md",
    DESIGN / "performance.md",
    DESIGN / "reliability.md",
)
MARKED = re.compile(r"(<!-- measured: (\w+) begin -->\n).*?(<!-- measured: end -->)", re.DOTALL)


def take(folder: Path) -> None:
    """Keep the records that `outgrid bench all` left in a folder, and figures that pages show."""
    for path in sorted(folder.glob("*.json")):
        if json.loads(path.read_text())["size"] == "tiny":
            raise SystemExit(f"{path} is of size tiny: it measures nothing")
        shutil.copy(path, RECORDS / path.name)


def draw() -> None:
    """Draw the pictures of the records of experiments that pages show."""
    shown = "".join(path.read_text() for path in TEXTS)
    for path in sorted(RECORDS.glob("*.json")):
        picture = GALLERY / f"{path.stem}.png"
        if f"gallery/{picture.name}" in shown and "findings" in (
            load := json.loads(path.read_text())
        ):
            outcome = Outcome.from_dict(load)
            draw_outcome(EXPERIMENTS[outcome.bench], outcome, picture)


def main() -> int:
    """Rewrite or check every text with a measured part; with --draw the pictures of experiments
    too, with --take FOLDER after its records were kept."""
    if "--take" in sys.argv:
        take(Path(sys.argv[sys.argv.index("--take") + 1]))
    if "--take" in sys.argv or "--draw" in sys.argv:
        draw()
    stale = 0
    for path in TEXTS:
        text = path.read_text()
        wanted = MARKED.sub(lambda mark: f"{mark[1]}\n{PARTS[mark[2]]()}{mark[3]}", text)
        if wanted == text:
            continue
        stale += 1
        if "--check" in sys.argv:
            print(f"{path.name} differs from the records: run tools/measured.py")
        else:
            path.write_text(wanted)
    return int(stale > 0 and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
