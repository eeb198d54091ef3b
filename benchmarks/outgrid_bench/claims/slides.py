"""Shirahata, Sato and Matsuoka: matrices streamed from many disks to a GPU, slides."""

from outgrid_bench.claims.model import (
    Claim,
    Paper,
    Reason,
    at_least,
    between,
    from_range,
    more,
    near,
)

UNEVEN = Reason(
    "another experiment",
    "chunks of 14 MB are 13.4 stripes of 1 MiB: 2 on five of 8 disks and 1 on three, which wait; "
    "0.83 of the rate is what that leaves. The paper has chunks of 70 MB",
)
FAULTING = Reason(
    "hardware",
    "the thread that multiplies takes the faults of mapped files here, for 0.9 of its time, and "
    "gets 1.0 GB/s; pread(2) gets 2.0 to 2.7 GB/s of a disk that gives 2.8",
)
APART = Reason(
    "hardware",
    "emulated disks share no bus and no controller, which kept 4 to 10 % of the rate in the paper; "
    "here 16 of them give all that they are asked for, however files lie on them",
)
SLIDES = Paper(
    "flash to GPU",
    "Shirahata, Sato and Matsuoka, matrices streamed from many disks",
    "slides",
    (
        Claim(
            "mmap.large",
            "matvec",
            "read method",
            "largest matrix, rate of mmap over pread",
            *near(1.0, 0.15),
            FAULTING,
        ),
        Claim(
            "mmap.small",
            "matvec",
            "read method",
            "smallest matrix (280 MB), rate of mmap over pread in chunks of 70 MB",
            *more(),
            FAULTING,
        ),
        Claim(
            "chunk.best",
            "matvec",
            "granularity",
            "the better of chunks of 35 and 70 MB, rate over the best chunk",
            *at_least(1, 0.97),
        ),
        Claim(
            "layout.raw",
            "devices",
            "raw and RAID 0",
            "matrix times vector, stripes of 1 MiB over a file on each disk, rate",
            *more(),
            UNEVEN,
        ),
        Claim(
            "layout.small",
            "devices",
            "raw and RAID 0",
            "matrix times vector, stripes of 1 MiB over stripes of 64 KiB, rate",
            *more(),
            UNEVEN,
        ),
        Claim(
            "pinned",
            "matvec",
            "host memory",
            "pinned over pageable memory, the best gain of all chunks",
            *between(1.21, 2.28),
        ),
        Claim(
            "pinned.copies",
            "gpu",
            "host memory",
            "copies to a GPU from pinned over pageable memory, rate",
            *from_range(1.21, 2.28),
        ),
        Claim(
            "gpu.slower",
            "matvec",
            "GPU against CPU",
            "the product on the processor over that on the GPU, rate",
            *more(),
        ),
        Claim(
            "gpu.share",
            "matvec",
            "GPU against CPU",
            "multiplying on the GPU, share of the time",
            *near(0.08, 0.5),
        ),
        Claim(
            "read.scaling",
            "io",
            "number of disks",
            "reading 16 disks over reading one",
            *between(0.924 * 16, 0.962 * 16),
            APART,
        ),
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
            APART,
        ),
        Claim(
            "read.small",
            "io",
            "raw and RAID 0",
            "reading separately over reading stripes of 64 KB",
            *near(1.10, 0.05),
            APART,
        ),
        Claim(
            "write.stripes",
            "io",
            "raw and RAID 0",
            "writing stripes of 1 MB over 16 disks, share of 16 times one as rated",
            *near(0.902, 0.05),
            APART,
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
