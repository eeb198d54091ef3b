"""Midorikawa and Tan 2013: flash on the bus against other disks, and as more memory."""

from outgrid_bench.claims.model import (
    Bounds,
    Claim,
    Paper,
    Reason,
    at_least,
    at_most,
    between,
    from_range,
    more,
    near,
)

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

CORES = Reason(
    "hardware",
    "16 cores of the paper draw many times what its flash gives; 2 cores here wait for an emulated "
    "disk as long as one does",
)
FAULTS = Reason(
    "hardware",
    "faults of mapped files keep about one core busy here, of 2; in the paper of 16",
)
LOOPS = Reason(
    "hardware",
    "one core makes 1.4e9 updates of 3 x 3 and 0.12e9 of 15 x 15 a second in memory here, 22 and "
    "1.9 GB/s, 37 and 3.3 times half an ioDrive2; a core of the paper took less than its gave",
)
STAYS = Reason(
    "implementation",
    "Linux 6 keeps what fits in memory: of all four loops by swap copy alone goes at the rate of "
    "the flash (0.5 GB/s, 74 times as long as in memory), triad at 4.5 GB/s",
)
ONE_ROUND = Reason(
    "another experiment",
    "in one round nothing is written back yet: copy, which touches its pages first, takes 2.7 "
    "times as long as in memory, the other loops 1.0 to 1.1 times",
)
MEMORY = Reason(
    "hardware",
    "two cores make 37 GB/s in memory here, 63 times half an ioDrive2, all of which mapped files "
    "take (0.57 to 0.68 GB/s)",
)


PIECES = Reason(
    "hardware",
    "Linux 6.18 reads mapped files of an emulated disk in pieces of 4 KiB, by its counters, in "
    "order too, and the disk is asked for as few of these as an ioDrive2 reads; the disk that is "
    "here gives 1146 MiB/s in order and 13 at random",
)


def _suite(key: str, text: str, bounds: Bounds, reason: Reason | None = None) -> Claim:
    return Claim(key, "io", "figures 3 and 4", text, *bounds, reason)


def _stream(key: str, text: str, bounds: Bounds, reason: Reason | None = None) -> Claim:
    return Claim(key, "stream", "figure 5", text, *bounds, reason)


def _mask(key: str, text: str, bounds: Bounds, reason: Reason | None = None) -> Claim:
    return Claim(key, "mask", "figures 7 to 10", text, *bounds, reason)


def _himeno(key: str, text: str, bounds: Bounds, reason: Reason | None = None) -> Claim:
    return Claim(key, "himeno", "figure 13", text, *bounds, reason)


def _reason(pattern: str, over: str) -> Reason:
    if pattern.startswith("4 KiB"):
        return BUSY
    return SWAPPED if (over, pattern[:5]) == ("sata", "4 MiB") else SEEKS


BUS = Paper(
    "bus flash beyond memory",
    "Midorikawa and Tan 2013, flash on the bus as more memory",
    "bus",
    (
        *(
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
        Claim(
            "iodrive2.4KiB",
            "devices",
            "figure 1",
            "ioDrive2, requests of 4 KiB, reading over writing",
            *at_most(0.53, 1.2),
        ),
        Claim(
            "iodrive2.128KiB",
            "devices",
            "figure 1",
            "ioDrive2, requests of 128 KiB, reading over writing: from here on reads are faster",
            *more("1.07"),
        ),
        Claim(
            "iodrive2.4MiB",
            "devices",
            "figure 1",
            "ioDrive2, requests of 4 MiB, reading over writing",
            *near(1122 / 1048, 0.1),
        ),
        _suite(
            "async.write",
            "file below memory, best random writes by MS_ASYNC over MS_SYNC",
            near(1436 / 514, 0.3),
        ),
        _suite(
            "async.read",
            "file below memory, random reads of 512 KiB, mapped for MS_ASYNC over MS_SYNC",
            near(3340 / 3326, 0.15),
        ),
        _suite(
            "mapped.read",
            "file below memory, random reads of 512 KiB, mapped over the best read of the device",
            at_least(3326 / 1122, 0.7),
        ),
        _suite(
            "beyond.random",
            "file beyond memory, random reads of 4 MiB, mapped over read(2)",
            at_most(60 / 1122, 2.0),
        ),
        _suite(
            "beyond.flat",
            "file beyond memory, mapped random reads of 4 KiB to 4 MiB, fastest over slowest",
            at_most(60 / 50, 1.2),
        ),
        _suite(
            "beyond.order",
            "file beyond memory, mapped reads of 1 MiB, in order over random",
            at_least(510 / 60, 0.7),
            PIECES,
        ),
        _suite(
            "beyond.async",
            "file beyond memory, mapped writes of 1 MiB in order, MS_ASYNC over MS_SYNC",
            near(342 / 216, 0.3),
        ),
        _stream(
            "stream.sata",
            "34 GB on 32 GiB, swap on SATA flash, time over that in memory",
            near(96, 0.3),
            STAYS,
        ),
        _stream(
            "stream.bus",
            "34 GB on 32 GiB, swap on flash on the bus, time over that in memory",
            near(52, 0.3),
            STAYS,
        ),
        _stream(
            "stream.second",
            "swap on SATA flash over swap on the bus, time",
            near(96 / 52, 0.25),
            STAYS,
        ),
        _stream(
            "stream.below",
            "mapped files that memory holds, time over that in memory",
            between(2, 8),
            ONE_ROUND,
        ),
        _stream(
            "stream.above",
            "110 GB on 32 GiB, mapped files, time over that in memory",
            near(24.3, 0.3),
            MEMORY,
        ),
        _stream("stream.mapped", "beyond memory, time by swap over mapped files", more("2"), STAYS),
        _stream(
            "stream.cores", "beyond memory, mapped: all cores over one, time over memory", more()
        ),
        _mask("mask15.cores", "15 x 15, all cores, mapped, time over memory", near(3, 0.3), LOOPS),
        _mask(
            "mask3.cores",
            "3 x 3, all cores, the slower of swap and mapped, time over memory",
            from_range(30, 50),
            CORES,
        ),
        _mask("mask15.one", "15 x 15, one core, mapped, time over memory", near(1.0, 0.15), LOOPS),
        _mask("mask3.one", "3 x 3, one core, mapped, time over memory", near(1.6, 0.25), LOOPS),
        _mask("mask3.swap", "3 x 3, one core, swap, time over memory", at_most(5.8), LOOPS),
        _mask(
            "mask15.busy",
            "15 x 15, all cores, mapped, share of cores at work",
            near(11.66 / 16, 0.2),
            LOOPS,
        ),
        _mask(
            "mask3.busy",
            "3 x 3, all cores, mapped, share of cores at work",
            near(2.55 / 16, 0.3),
            FAULTS,
        ),
        _mask("mask.mapped", "3 x 3, all cores, time by swap over mapped files", more()),
        _mask(
            "mask.suffers",
            "3 x 3, mapped: all cores over one, time over memory",
            more("18 to 31"),
            CORES,
        ),
        _himeno("himeno.mapped", "all cores, time by swap over mapped files", more()),
        _himeno("himeno.suffers", "mapped: all cores over one, time over memory", more()),
    ),
)
