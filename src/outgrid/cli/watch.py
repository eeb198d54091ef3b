"""`outgrid watch RUN`: show the progress of a run until it ends, from any terminal."""

import argparse
import json
import sys
import time
from pathlib import Path

from outgrid.cli.parser import examples
from outgrid.config import run_folder
from outgrid.durable import replace_file
from outgrid.errors import Stopped, UsageError
from outgrid.report.blocks import draw_blocks, shows_colours
from outgrid.report.live import View, latest_frame, view
from outgrid.report.picture import draw_plane
from outgrid.units import parse_seconds


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.epilog = examples(
        ("outgrid watch heat.run", "until it is finished, stopped or killed"),
        ("outgrid watch heat.run --once --json", "for a script"),
        ("outgrid watch heat.run --html heat.html", "a page that reloads itself"),
    )
    parser.add_argument("run_folder", type=run_folder, metavar="RUN", help="the folder of a run")
    parser.add_argument("--once", action="store_true", help="show it once, and end")
    parser.add_argument(
        "--every", default="2s", metavar="TIME", help="how often to look (default: 2s)"
    )
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each look")
    parser.add_argument(
        "--picture", type=Path, metavar="FILE.png", help="keep the latest preview in a picture"
    )
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE.html",
        help="write a page instead, with the latest preview if the run keeps one",
    )


def run(arguments: argparse.Namespace) -> int:
    """Look at the run until nothing more is to come of it."""
    every, shown = parse_seconds(arguments.every), ""
    if not every > 0:
        raise UsageError(f"--every must be a duration above 0, such as 2s, not {arguments.every}")
    while True:
        seen = view(arguments.run_folder)
        shown = _show(seen, arguments, every, shown)
        if seen.over or arguments.once:
            break
        time.sleep(every)
    return 0 if seen.finished or arguments.once else Stopped.exit_code


def _show(seen: View, arguments: argparse.Namespace, every: float, before: str) -> str:
    """Show a run where that is wanted, in place of what was shown ``before``."""
    if arguments.html is not None:
        replace_file(arguments.html, seen.page(every).encode())
    if arguments.picture is not None and (frame := latest_frame(seen.out)) is not None:
        draw_plane(frame, arguments.picture, "latest preview", frame.shape)
    if arguments.json:
        print(json.dumps(seen.to_dict()), flush=True)
    elif arguments.html is None:
        text = str(seen)
        if shows_colours(sys.stdout) and (frame := latest_frame(seen.out)) is not None:
            text += f"\n{draw_blocks(frame)}"
        if sys.stdout.isatty() and before:
            sys.stdout.write(f"\x1b[{before.count(chr(10)) + 1}F\x1b[J")
        if sys.stdout.isatty() or text != before:
            print(text, flush=True)
        return text
    return before
