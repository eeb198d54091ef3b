"""Bars of this project: no paper measured these."""

from outgrid_bench.claims.model import (
    Claim,
    Paper,
    Reason,
    at_least,
    at_most,
    between,
)
from outgrid_bench.emulation import CLASSES

COUNTED = Reason(
    "implementation",
    "the kernel splits 1 MiB in two requests and counts each, which bounds disks of few requests a "
    "second, and lets requests pass in slices of a tenth of a second: 2 at a time of the hard disk",
)


SHARED = Reason(
    "hardware",
    "16 ranks share two processors with other programs here: what the system and MPI take of them "
    "for each rank is not in the simulator",
)


def _foreseen(key: str, bench: str, text: str, reason: Reason | None = None) -> Claim:
    return Claim(
        key, bench, "simulator", f"{text}, expected over measured", *between(0.8, 1.2), reason
    )


OWN = Paper(
    "outgrid",
    "bars of this project",
    "own",
    (
        *(
            Claim(
                f"emulation.{name}",
                "devices",
                "emulation",
                f"{name}: the pattern that differs most from what was asked for, share of it",
                *between(0.9, 1.1),
                COUNTED,
            )
            for name in CLASSES
        ),
        Claim(
            "future.methods",
            "methods",
            "computing nothing twice",
            "skewed over overlapped, both by direct transfers, rate",
            *at_least(1.5),
        ),
        Claim(
            "future.blocking",
            "blocking",
            "computing nothing twice",
            "skewed out of core over the best block, rate",
            *at_least(1.5),
        ),
        Claim(
            "himeno.ours",
            "himeno",
            "beyond memory",
            "skewed on direct with all cores, time over plain in memory",
            *at_most(5),
            Reason(
                "implementation",
                "skewed reads all 14 arrays, 0.91 GB in 1.5 s from half an ioDrive2; plain sweeps "
                "by direct transfers read 0.29 GB here and take 3.3 times as long as in memory",
            ),
        ),
        Claim(
            "stream.ours",
            "stream",
            "beyond memory",
            "triad by mapped files over direct transfers with all cores, time",
            *at_least(1),
        ),
        Claim(
            "matvec.overlap",
            "matvec",
            "overlap",
            "reading the next chunk while one is multiplied, the best gain of all chunks over what "
            "is to be had",
            *at_least(0.9),
        ),
        Claim(
            "regions",
            "getput",
            "regions",
            "the largest region by get or put, rate over a plain call of MPI",
            *at_least(0.8),
        ),
        _foreseen(
            "nodes.simulator",
            "nodes",
            "blocks on ranks with disks of their own: the worst of all runs",
            SHARED,
        ),
        _foreseen("ranks.disk", "ranks", "two ranks bound by the disk, time: the worst cut"),
        _foreseen("ranks.cores", "ranks", "two ranks bound by the cores, time: the worst cut"),
        _foreseen("ranks.busy", "ranks", "two ranks bound by the cores, processor time: the worst"),
        Claim(
            "ranks.seams",
            "ranks",
            "planner",
            "seams over halos, bound by the cores, planned over measured",
            *between(0.8, 1.2),
        ),
        Claim(
            "gpu.plain",
            "gpu",
            "a kernel on a GPU",
            "plain sweep, share of what copies allow",
            *at_least(0.85),
        ),
        Claim(
            "gpu.levels",
            "gpu",
            "a kernel on a GPU",
            "several levels in a launch, rate over one, the lesser of heat7 and box27",
            *at_least(1.5),
        ),
        Claim(
            "gpu.beyond",
            "gpu",
            "beyond GPU memory",
            "a grid of 8 times its memory, rate over plain in it",
            *at_least(0.8),
        ),
    ),
)
