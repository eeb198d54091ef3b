"""Draw the moving pictures of the documents.

python tools/pictures.py          write them
python tools/pictures.py --check  exit with 1 if one is not what would be drawn
"""

import sys
from pathlib import Path

import outgrid as og
from outgrid.report.tiling import Sweep, diamonds_picture, sweep_picture

DOCS = Path(__file__).resolve().parent.parent / "docs"
SLABS = Sweep(planes=96, depth=24, skew=1, slab_planes=4, window_planes=28)
PLAIN = Sweep(planes=96, depth=1, skew=1, slab_planes=4, window_planes=6)


def pictures() -> dict[str, str]:
    """The pictures by the names of their files."""
    problem = og.Problem("heat7", (96, 96, 96), steps=24, parameters={"k": 0.1}, initial={"u": 0.0})
    tiled = {"depth": 24, "slab_planes": 4, "tile_rows": 24, "tile_planes": 4, "threads": 1}
    plan = og.plan(problem, memory="1GiB", tier="direct", **tiled)
    return {
        "sweep.svg": sweep_picture(SLABS),
        "plain.svg": sweep_picture(PLAIN),
        "diamonds.svg": diamonds_picture(plan.to_dict()),
    }


def main() -> int:
    """Write or check every picture."""
    stale = 0
    for name, text in pictures().items():
        path = DOCS / name
        if path.exists() and path.read_text() == f"{text}\n":
            continue
        stale += 1
        if "--check" in sys.argv:
            print(f"{name} is not what would be drawn: run tools/pictures.py")
        else:
            path.write_text(f"{text}\n")
    return int(stale > 0 and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
