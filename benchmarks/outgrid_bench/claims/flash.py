"""Midorikawa and Tan 2014: temporal blocking of stencils on flash, one node."""

from outgrid_bench.claims.model import (
    Claim,
    Paper,
    Reason,
    at_least,
    at_most,
    between,
    exactly,
    from_range,
    more,
    near,
)

# GiB of the problem; of one block, of one buffer, of all four.
TABLE_2 = {
    16: (5.62, 8.03, 27.34),
    32: (10.12, 16.06, 52.36),
    64: (10.12, 32.09, 84.42),
    128: (10.12, 64.13, 148.48),
    256: (10.12, 128.19, 276.61),
    512: (10.12, 256.25, 532.73),
}
_SIZES = ("block", "buffer", "total")


def _figure_8(key: str, text: str, low: float, high: float) -> Claim:
    return Claim(f"fig8.{key}", "blocking", "figure 8", text, *between(low, high), CACHES)


CACHES = Reason(
    "hardware",
    "the processor here has 1 MiB of L2 for each core, four times that of the paper, and 2 cores "
    "share 32 MiB of L3, where 8 shared 20 MB",
)
NEARER = Reason(
    "hardware",
    "4 KiB come from the virtual disk in 44 us, sooner than from flash of 2014, and a line of "
    "memory of this host takes 182 ns",
)
DIAMONDS = Reason(
    "implementation",
    "the second level here takes its steps in diamonds, which compute nothing twice; the blocks of "
    "the paper repeat their halos",
)
BOUND = Reason(
    "hardware",
    "cubes of 256 with 32 steps at once repeat 20 % of their updates and leave the caches of two "
    "cores; the best cubes in memory, of 64 with 8 steps, take 0.67 times as long as blocks of "
    "space alone",
)
FAULTS = Reason(
    "hardware",
    "the bytes are those of the paper (1.7 times direct transfers), but two processors, which "
    "other programs used as well, take the faults of 128 KiB one after the other",
)
RECLAIM = Reason(
    "hardware",
    "the disk moved 2.1 GB in 58 s, a fifteenth of what it gives: on two processors, which "
    "other programs used as well, the system takes that long to find pages to swap out",
)
LOCKED = Reason(
    "implementation",
    "block buffers are locked and Linux 6 reads at most 8 pages around one, so that swap brought "
    "in 1.4 times what blocks asked for; that of 2014 brought in 5.5 times as much",
)

SAME = Reason(
    "hardware",
    "they take the same time within 3 %, 0.44 s: flash moves one state of 128 MiB beside updates, "
    "which in the paper it did not keep up with",
)
SEARCH = Reason(
    "implementation",
    "Linux 6 keeps 1.9 of 2 processors busy with pages to swap out and moves 0.33 GB/s, a seventh "
    "of what the emulated flash gives both ways",
)

FLASH = Paper(
    "temporal blocking on flash",
    "Midorikawa and Tan 2014, stencils beyond memory on flash",
    "flash",
    (
        *(
            Claim(
                f"table2.{name}.{gib}",
                "counted",
                "table 2",
                f"{name} of the problem of {gib} GiB",
                *exactly(size, 0.03, " GiB"),
            )
            for gib, sizes in TABLE_2.items()
            for name, size in zip(_SIZES, sizes, strict=True)
        ),
        Claim(
            "traffic.aio.read",
            "counted",
            "figure 14",
            "read by direct transfers, 64 GiB, 256 steps, depth 128",
            *exactly(110.25, 0.01, " GiB"),
        ),
        Claim(
            "traffic.aio.written",
            "counted",
            "figure 14",
            "written, with the initial values in both buffers",
            *exactly(128.19, 0.01, " GiB"),
        ),
        Claim(
            "fig11.swap",
            "methods",
            "figure 11",
            "blocked on swap, time over plain in memory",
            *near(2.22, 0.25),
            RECLAIM,
        ),
        Claim(
            "fig11.mmap",
            "methods",
            "figure 11",
            "blocked on mapped files, time over plain in memory",
            *near(1.58, 0.25),
            FAULTS,
        ),
        Claim(
            "fig11.direct",
            "methods",
            "figure 11",
            "blocked by direct transfers, time over plain in memory",
            *near(1.51, 0.25),
        ),
        Claim(
            "fig11.plain",
            "methods",
            "figure 11",
            "plain on swap, time over plain in memory",
            *at_least(53.8),
        ),
        Claim(
            "fig14.swap",
            "methods",
            "figure 14",
            "read by swap over direct transfers, blocked",
            *near(600.90 / 110.25, 0.25),
            LOCKED,
        ),
        Claim(
            "fig14.mmap",
            "methods",
            "figure 14",
            "read by mapped files over direct transfers, blocked",
            *near(209.70 / 110.25, 0.25),
            FAULTS,
        ),
        Claim(
            "order.mmap",
            "methods",
            "figure 11",
            "blocked on mapped files, time over blocked by direct transfers",
            *more("1.05"),
        ),
        Claim(
            "order.swap",
            "methods",
            "figure 11",
            "blocked on swap, time over blocked on mapped files",
            *more("1.41"),
            LOCKED,
        ),
        Claim(
            "order.read.swap",
            "methods",
            "figure 14",
            "read by swap over mapped files, blocked",
            *more("2.87"),
            LOCKED,
        ),
        Claim(
            "fig11.memory",
            "blocking",
            "figure 11",
            "blocks of space and time in memory, time over blocks of space alone",
            *near(1373 / 1222, 0.1),
            BOUND,
        ),
        Claim(
            "ladder.latency",
            "ladder",
            "figure 1",
            "latency of 4 KiB from flash over that of a line of memory",
            *near(1000, 0.5),
            NEARER,
        ),
        _figure_8("edge", "edge of the best cubes between cache and memory", 32, 64),
        _figure_8("depth", "depth of the best cubes between cache and memory", 4, 8),
        Claim(
            "second.level",
            "blocking",
            "section 3.3",
            "steps at once in the second level, rate over blocks of space alone there",
            *at_most(1, 1.05),
            DIAMONDS,
        ),
        Claim(
            "fig9.block",
            "blocking",
            "figure 9",
            "edge of the best block out of core over that of the largest that fits",
            *exactly(1, 0),
        ),
        Claim(
            "fig9.depth",
            "blocking",
            "figure 9",
            "depth of the best block out of core over its edge (128 of 1024)",
            *near(128 / 1024, 0.4),
        ),
        Claim(
            "fig9.collapse",
            "blocking",
            "figure 9",
            "the largest edge at twice that depth, rate over the best (0: two do not fit)",
            *at_most(0.5),
        ),
        Claim(
            "fig10.gain",
            "blocking",
            "figure 10",
            "what two levels gain over one with all threads, over what they gain with one",
            *more(),
        ),
        Claim(
            "fig12.direct",
            "scaling",
            "figure 12",
            "by direct transfers at 16 times the memory, rate over blocked on swap at half of it",
            *from_range(0.40, 0.65),
        ),
        Claim(
            "fig12.swap",
            "scaling",
            "figure 12",
            "on swap at once the memory, rate over that at half of it",
            *near(0.52, 0.25),
            SEARCH,
        ),
        Claim(
            "fig12.least",
            "scaling",
            "figure 12",
            "what direct transfers keep from half to 16 times the memory, over the best of others",
            *more(),
        ),
        Claim(
            "fig12.constant",
            "scaling",
            "figure 12",
            "direct transfers over swap where the grid fits memory, rate: transfers always cost",
            *at_most(1),
            SAME,
        ),
    ),
)
