"""Shirahata, Sato and Matsuoka: matrices streamed from many disks to a GPU, slides."""

from outgrid_bench.claims.model import Claim, Paper, Reason, between, near

SLIDES = Paper(
    "flash to GPU",
    "Shirahata, Sato and Matsuoka, matrices streamed from many disks",
    "slides",
    (
        Claim(
            "read.raw",
            "io",
            "raw and RAID 0",
            "reading 16 disks separately, share of 16 times one as rated",
            *near(0.962, 0.05),
        ),
        Claim(
            "read.stripes",
            "io",
            "raw and RAID 0",
            "reading stripes of 1 MB over 16 disks, share of 16 times one as rated",
            *near(0.924, 0.05),
        ),
        Claim(
            "read.small",
            "io",
            "raw and RAID 0",
            "reading separately over reading stripes of 64 KB",
            *near(1.10, 0.05),
        ),
        Claim(
            "write.stripes",
            "io",
            "raw and RAID 0",
            "writing stripes of 1 MB over 16 disks, share of 16 times one as rated",
            *near(0.902, 0.05),
        ),
        Claim(
            "write.best",
            "io",
            "raw and RAID 0",
            "writing stripes of 1 MB over writing separately",
            *between(1.0, 1.5),
        ),
        Claim(
            "matvec.devices",
            "devices",
            "matrix times vector",
            "8 mSATA disks over an ioDrive2, rate of the product",
            *between(3.20, 7.60),
            Reason(
                "hardware",
                "rated at 0.5 GB/s, 8 disks are 3.4 times an ioDrive2 of 1122 MiB/s; a product "
                "from 8 files got 84 % of that on two busy cores",
            ),
        ),
    ),
)
