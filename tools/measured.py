"""Write the measured tables of the texts from the committed records.

python tools/measured.py          rewrite the parts between the markers
python tools/measured.py --check  exit with 1 if a text does not say what the records say
"""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "benchmarks" / "records"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->"


def table() -> str:
    """The text between the markers."""
    core = json.loads((RECORDS / "core.json").read_text())
    demo = json.loads((RECORDS / "demo.json").read_text())
    return "\n".join(
        [
            "## Measured",
            "",
            "| | GLUP/s | over plain |",
            "|---|---|---|",
            *core_rows(core),
            *demo_rows(demo),
            "",
            " ".join(notes(core)),
            "",
            "",
        ]
    )


def core_rows(core: dict[str, Any]) -> list[str]:
    shape = " x ".join(str(extent) for extent in core["shape"])
    limit = core["memory_limit_bytes"] / 2**30
    plain = core["plain_glups"]
    rows = [
        ("plain sweep, in memory", core["plain_glups"]),
        ("blocked sweep, in memory", core["blocked_glups"]),
        (f"**out of core, {core['factor']:g} times its {limit:g} GiB**", core["outofcore_glups"]),
    ]
    head = f"| *{core['stencil']}, {core['dtype']}, {shape} cells* | | |"
    return [head, *(f"| {name} | {rate:.2f} | {rate / plain:.2f} |" for name, rate in rows)]


def demo_rows(demo: dict[str, Any]) -> list[str]:
    shape = " x ".join(str(extent) for extent in demo["record"]["problem"]["shape"])
    limit = demo["record"]["measured"]["memory_limit_bytes"] / 2**20
    plain, rate = demo["plain_glups"], demo["record"]["derived"]["glups"]
    factor = demo["fields_over_memory"]
    return [
        f"| *shallow water, float32, {shape} cells (the demonstration)* | | |",
        f"| plain sweep, in memory, 4096 x 4096 cells | {plain:.2f} | 1.00 |",
        f"| **out of core, {factor:.0f} times its {limit:g} MiB** | {rate:.2f} "
        f"| {rate / plain:.2f} |",
    ]


def notes(core: dict[str, Any]) -> list[str]:
    machine = core["machine"]
    return [
        "GLUP/s are 1e9 cell updates per second, each needed update counted once.",
        f"`outgrid bench core` on {core['started'][:10]}: {machine['cores']} cores of an",
        f"{machine['cpu']}, Linux {machine['kernel']}, {machine['compiler']};",
        f"bytes moved over the ideal {core['io_over_ideal']:.3f},",
        f"waiting for transfers {core['wait_share']:.1%} of the time,",
        f"peak memory {core['peak_memory_over_limit']:.2f} of the limit ({core['limit']});",
        "answers identical to the byte." if core["identical"] else "ANSWERS DIFFER.",
        "Records: [benchmarks/records](benchmarks/records).",
    ]


def rows_table() -> str:
    """Every recorded row: a kernel in cache, in memory and out of core."""
    lines = [
        "| stencil | mode | GLUP/s | over plain | over best ceiling | waiting |",
        "|---|---|---|---|---|---|",
    ]
    for path in sorted(RECORDS.glob("*-*.json")):
        for row in json.loads(path.read_text()):
            if row["mode"] == "bandwidth":
                continue
            mode, waiting = row["mode"], row["wait_share"]
            if mode == "outofcore":
                limit = row["memory_limit_bytes"] / 2**20
                mode = f"**out of core, {row['factor']:g} times {limit:g} MiB**"
            figures = [f"{row[key]:.2f}" for key in ("glups", "over_plain", "over_ceiling")]
            figures.append("" if waiting is None else f"{waiting:.1%}")
            lines.append(f"| {row['stencil']} {row['dtype']} | {mode} | {' | '.join(figures)} |")
    return "\n".join([*lines, "", ""])


def main() -> int:
    """Rewrite or check every text with a measured part."""
    texts = {ROOT / "README.md": table, ROOT / "docs" / "design" / "performance.md": rows_table}
    stale = 0
    for path, part in texts.items():
        text = path.read_text()
        head, rest = text.split(BEGIN)
        _, tail = rest.split(END)
        wanted = f"{head}{BEGIN}\n{part()}{END}{tail}"
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
