"""A tsunami over a real sea floor, on a grid ten times larger than its memory.

python examples/tsunami
python examples/tsunami --columns 6144 --out small
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import acts
from outgrid.errors import Error
from scene import DEFAULT_SCENE, Scene


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare, run, compare, draw and tell. Returns the exit code, that of `outgrid run`."""
    given = _parser().parse_args(arguments)
    size = {"columns": given.columns, "steps": given.steps, "memory": given.memory}
    try:
        scene = replace(DEFAULT_SCENE, **size)
        _say(f"sea floor: {scene.columns} x {scene.region.rows} cells into {given.out / 'h.npy'}")
        acts.prepare(scene, given.out)
        outcome = None if given.prepare else _outcome(scene, given.out)
    except Error as error:
        print(f"tsunami: {error}", file=sys.stderr)
        return error.exit_code
    if outcome is not None:
        print(json.dumps(outcome.to_dict(), indent=2) if given.json else acts.tell(outcome))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python examples/tsunami",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
    parser.add_argument(
        "--prepare", action="store_true", help="write the sea floor and the job files alone"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def _outcome(scene: Scene, out: Path) -> acts.Outcome:
    _say(f"run: {scene.steps} steps under {scene.memory}, outgrid run {out / acts.JOB}")
    record = acts.run(out)
    _say("reference: the same kernel on a grid in memory, one step per sweep")
    reference = acts.run_reference(out)
    _say("pictures")
    return acts.Outcome(scene, record, reference, *acts.draw(scene, out, record))


def _say(words: str) -> None:
    print(words, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
