"""Midorikawa and Tan 2014: temporal blocking of stencils on flash, one node."""

from outgrid_bench.claims.model import Claim, Paper, at_least, exactly, near

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
        ),
        Claim(
            "fig11.mmap",
            "methods",
            "figure 11",
            "blocked on mapped files, time over plain in memory",
            *near(1.58, 0.25),
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
        ),
        Claim(
            "fig14.mmap",
            "methods",
            "figure 14",
            "read by mapped files over direct transfers, blocked",
            *near(209.70 / 110.25, 0.25),
        ),
    ),
)
