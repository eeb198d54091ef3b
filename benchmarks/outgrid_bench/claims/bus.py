"""Midorikawa and Tan 2013: flash on the bus against other disks, and as more memory."""

from outgrid_bench.claims.model import Claim, Paper, Reason, near

WITHIN = 0.2
# ioDrive2 over a hard disk and over SATA flash, figure 2 and its text: read, written.
RATIOS = {
    "4 KiB at random": {"hdd": (57.2, 107.1), "sata": (25.5, 51.3)},
    "4 MiB at random": {"hdd": (10.7, 10.4), "sata": (4.1, 2.6)},
    "1 MiB at random": {"hdd": (15.6, 10.4), "sata": (4.8, 2.6)},
    "1 MiB in order": {"hdd": (8.1, 7.5), "sata": (2.9, 2.5)},
}
NAMES = {"hdd": "a hard disk", "sata": "SATA flash"}
SEEKS = Reason(
    "hardware",
    "an emulated disk takes the same time for a request in order and at a place of chance; the "
    "hard disk and the SATA flash of the paper did not",
)
SWAPPED = Reason(
    "slip of the paper",
    "by its figure 1 an ioDrive2 reads 1122 and writes 1048 MiB/s, SATA flash 418 and 260: 2.7 and "
    "4.0 times; the text has reading and writing of SATA flash the other way round",
)
# A busy machine takes longer for 4 KiB than an ioDrive2 that is slowed down should.
BUSY = Reason(
    "hardware",
    "an emulated ioDrive2 gives fewer requests of 4 KiB than asked for, one at a time, since a "
    "request takes the way through a loop device on two busy cores",
)


def _reason(pattern: str, over: str) -> Reason:
    if pattern.startswith("4 KiB"):
        return BUSY
    return SWAPPED if (over, pattern[:5]) == ("sata", "4 MiB") else SEEKS


BUS = Paper(
    "bus flash beyond memory",
    "Midorikawa and Tan 2013, flash on the bus as more memory",
    "bus",
    tuple(
        Claim(
            f"{over}.{kind}.{pattern}",
            "devices",
            "figure 2",
            f"{kind} of {pattern}, ioDrive2 over {NAMES[over]}",
            *near(value, WITHIN),
            _reason(pattern, over),
        )
        for pattern, by_disk in RATIOS.items()
        for over, values in by_disk.items()
        for kind, value in zip(("read", "write"), values, strict=True)
    ),
)
