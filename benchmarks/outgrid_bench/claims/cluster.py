"""Midorikawa 2016: stencils beyond the memory of all nodes of TSUBAME 2.5."""

from outgrid_bench.claims.model import Claim, Paper, Reason, between, exactly, near

ONE_SIDE = Reason(
    "implementation",
    "a node keeps halos only towards neighbours: with 2 parts of an axis one side, so that a sweep "
    "of 64 steps keeps 142 GiB; the paper keeps both sides, 153.4 GiB",
)
SHARED = Reason(
    "another experiment",
    "ranks share the processors and the network of one host, and the disks bound them; the paper's "
    "nodes were bound by their processors",
)
OPEN = Reason(
    "another experiment",
    "simulated, fitted on strong scaling alone, which leaves open how fast flash is beside the "
    "processors; fits as good give the range beside it",
)

BESIDE = Reason(
    "another experiment",
    "blocks of 128 cells with halos of 8 repeat 11 % of the updates and move two states in 16 "
    "steps; the paper has 256 steps in two passes. Other programs ran beside",
)

CLUSTER = Paper(
    "memory and storage of a cluster",
    "Midorikawa 2016, stencils on nodes of TSUBAME 2.5",
    "cluster",
    (
        Claim(
            "cube.32",
            "counted",
            "shapes",
            "cube on (2, 4), depth 32: flash of a node by the paper's formula",
            *exactly(140.6, 0.06, " GiB"),
        ),
        Claim(
            "cube.64",
            "counted",
            "shapes",
            "cube on (2, 4), depth 64: flash of a node by the paper's formula",
            *exactly(153.4, 0.06, " GiB"),
        ),
        Claim(
            "cuboid.128",
            "counted",
            "shapes",
            "cuboid on (1, 8), depth 128: flash of a node by the paper's formula",
            *exactly(144.3, 0.06, " GiB"),
        ),
        Claim(
            "cube.depth",
            "counted",
            "shapes",
            "cube: the deepest sweep in powers of two, by the paper's formula",
            *exactly(32, 0),
        ),
        Claim(
            "cuboid.depth",
            "counted",
            "shapes",
            "cuboid: the deepest sweep in powers of two, by the paper's formula",
            *exactly(128, 0),
        ),
        Claim(
            "cube.planned",
            "counted",
            "shapes",
            "cube: depth by the planner of runs, scheme overlapped",
            *exactly(32, 0),
            ONE_SIDE,
        ),
        Claim(
            "cube.inner",
            "counted",
            "shapes",
            "cube, a node with neighbours on all sides: depth by the planner of runs",
            *exactly(32, 0),
        ),
        Claim(
            "cuboid.planned",
            "counted",
            "shapes",
            "cuboid: depth by the planner of runs, scheme overlapped",
            *exactly(128, 0),
        ),
        Claim(
            "least.nodes",
            "counted",
            "strong scaling",
            "the fewest nodes that hold the problem of 1 TiB, by the paper's formula",
            *exactly(7, 0),
        ),
        Claim(
            "least.planned",
            "counted",
            "strong scaling",
            "the fewest nodes that hold it, by the planner of runs",
            *exactly(7, 0),
        ),
        Claim(
            "raid",
            "devices",
            "figure 1",
            "an ioDrive2 over the RAID 0 of a node, 12 MiB read and 8 MiB written",
            *between(4.4, 5.8),
        ),
        Claim(
            "dram.share",
            "methods",
            "section 2",
            "on one node, blocked by direct transfers, rate over that of memory alone",
            *between(0.80, 0.87),
            BESIDE,
        ),
        Claim(
            "nodes.strong.16",
            "nodes",
            "strong scaling",
            "efficiency on 16 ranks over 8",
            *near(0.97, 0.03),
            SHARED,
        ),
        Claim(
            "nodes.weak.8",
            "nodes",
            "weak scaling",
            "time on 8 ranks over 4",
            *between(1.03, 1.07),
            SHARED,
        ),
        Claim(
            "nodes.weak.16",
            "nodes",
            "weak scaling",
            "time on 16 ranks over 4",
            *between(1.03, 1.07),
            SHARED,
        ),
        Claim("nodes.shape", "nodes", "shapes", "time, cube over cuboid", *near(1.7, 0.1), SHARED),
        Claim(
            "nodes.transfers",
            "nodes",
            "shapes",
            "time of transfers, cube over cuboid",
            *near(3, 0.1),
            SHARED,
        ),
        Claim(
            "nodes.compute",
            "nodes",
            "shapes",
            "time of updates, cube over cuboid",
            *near(1.2, 0.1),
            SHARED,
        ),
        Claim(
            "nodes.cube_exchange",
            "nodes",
            "shapes",
            "share of the exchange, cube",
            *near(0.04, 0.25),
            SHARED,
        ),
        Claim(
            "nodes.cuboid_exchange",
            "nodes",
            "shapes",
            "share of the exchange, cuboid",
            *near(0.04, 0.25),
            SHARED,
        ),
        Claim(
            "weak.8",
            "cluster",
            "weak scaling",
            "time on 8 nodes over 4",
            *between(1.03, 1.07),
            OPEN,
        ),
        Claim(
            "weak.16",
            "cluster",
            "weak scaling",
            "time on 16 nodes over 4",
            *between(1.03, 1.07),
            OPEN,
        ),
        Claim("shape", "cluster", "shapes", "time, cube over cuboid", *near(1.7, 0.1), OPEN),
        Claim(
            "transfers",
            "cluster",
            "shapes",
            "time of transfers, cube over cuboid",
            *near(3, 0.1),
            OPEN,
        ),
        Claim(
            "compute",
            "cluster",
            "shapes",
            "time of updates, cube over cuboid",
            *near(1.2, 0.1),
            OPEN,
        ),
        Claim(
            "cube_share", "cluster", "shapes", "share of transfers, cube", *near(0.38, 0.1), OPEN
        ),
        Claim(
            "cuboid_share",
            "cluster",
            "shapes",
            "share of transfers, cuboid",
            *near(0.20, 0.1),
            OPEN,
        ),
        Claim(
            "cube_exchange",
            "cluster",
            "shapes",
            "share of the exchange, cube",
            *near(0.04, 0.25),
            OPEN,
        ),
        Claim(
            "cuboid_exchange",
            "cluster",
            "shapes",
            "share of the exchange, cuboid",
            *near(0.04, 0.25),
            OPEN,
        ),
    ),
)
