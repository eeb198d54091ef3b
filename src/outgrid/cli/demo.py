"""`outgrid demo`: a tsunami over a real sea floor, ten times larger than its memory."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from outgrid.cli.arguments import add_json_argument, print_json
from outgrid.cli.parser import examples
from outgrid.demo import tsunami
from outgrid.demo.scene import DEFAULT_SCENE


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.epilog = examples(
        ("outgrid demo", ""),
        ("outgrid demo --columns 6144 --out small", "a quarter of the cells"),
    )
    scene = DEFAULT_SCENE
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("outgrid-demo"),
        metavar="DIR",
        help="folder for everything (outgrid-demo)",
    )
    parser.add_argument(
        "--columns",
        type=int,
        default=scene.columns,
        metavar="N",
        help=f"cells from west to east ({scene.columns})",
    )
    parser.add_argument(
        "--steps", type=int, default=scene.steps, metavar="N", help=f"time steps ({scene.steps})"
    )
    parser.add_argument(
        "--memory", default=scene.memory, metavar="SIZE", help=f"memory limit ({scene.memory})"
    )
    add_json_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prepare, run, compare, draw and tell."""
    scene = replace(
        DEFAULT_SCENE,
        columns=arguments.columns,
        steps=arguments.steps,
        memory=arguments.memory,
    )
    out: Path = arguments.out
    _say(f"sea floor: {scene.columns} x {scene.region.rows} cells into {out / 'h.npy'}")
    tsunami.prepare(scene, out)
    _say(f"run: {scene.steps} steps under {scene.memory}, outgrid run {out / tsunami.JOB}")
    record = tsunami.run(out)
    _say("reference: the same kernel on a grid in memory, one step per sweep")
    reference = tsunami.run_reference(out)
    _say("pictures")
    outcome = tsunami.Outcome(scene, record, reference, *tsunami.draw(scene, out, record))
    print_json(outcome.to_dict()) if arguments.json else print(tsunami.tell(outcome))
    return 0


def _say(words: str) -> None:
    print(words, file=sys.stderr)
