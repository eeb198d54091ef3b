"""The experiments of the papers as verbs below `outgrid bench`, and all of them as one."""

from outgrid_bench.cli.experiment import run_all, run_experiment
from outgrid_bench.cli.measurement import UNSEEN, Measurement
from outgrid_bench.emulation import CLASSES
from outgrid_bench.experiments import EXPERIMENTS

PRINTED = (
    "Prints a table, what papers claim beside what was found here, the reference, and what the "
    "disk moved meanwhile; exit code 1 if an answer is wrong."
)
COMMON = {
    "--quick": "less than 90 seconds (the default)",
    "--tiny": UNSEEN,  # for tests: the whole flow, and figures that mean nothing
    "--scratch": "folder on the disk that is measured (the working folder)",
    "--also": "a folder on one more disk, to tell what that moved meanwhile, may be repeated",
    "--json": "write rows, claims, machine and disks to FILE",
    "--figure": "draw the rows into FILE (.png or .svg)",
    "--resume": "go on behind the last part that was measured for FILE of --json; take what FILE "
    "holds instead of measuring again",
    "--stop-after": "begin no further part after so long, for example 4min; --resume goes on",
    "--endurance": 'what the disk may be written in its life, for example "600TBW", to tell the '
    "share that this took",
}
ALONE = ("--json", "--figure")  # of one experiment; all of them write into a folder
BEYOND = {
    "--memory": "limit of each run, for example 1GiB (256MiB, with --full 512MiB)",
    "--with-swap": "tier swap as well, on a swap file that is made in the scratch folder and "
    "removed",
    "--full": "larger grids under a larger limit, for minutes to hours",
}
EMULATED = {
    "--emulate": "emulate disks in the scratch folder and measure these, as root: "
    f"CLASS[:COUNT][/SLOWER] as in msata:16/10, may be repeated; {', '.join(CLASSES)}",
}
WITHOUT_DISKS = ("counted", "gpu", "cluster", "getput")
MEASURED_ON = {"--also": "a folder on one more disk to measure, may be repeated"}


def _paper(
    name: str, about: str, options: dict[str, str], *examples: tuple[str, str]
) -> Measurement:
    return Measurement(
        name,
        EXPERIMENTS[name].purpose,
        f"{about} {PRINTED}",
        run_experiment,
        COMMON | ({} if name in WITHOUT_DISKS else EMULATED) | options,
        examples or ((f"outgrid bench {name} --scratch /nvme", ""),),
    )


PAPERS = (
    _paper(
        "ladder",
        "Measures how long one access takes, and how many bytes a second there are, in each cache, "
        "in memory, in the page cache and on the disk of each folder.",
        MEASURED_ON
        | {
            "--full": "working sets of up to 2 GiB and files of 4 GiB",
        },
        ("outgrid bench ladder --scratch /nvme --also /ssd", "two disks"),
    ),
    _paper(
        "counted",
        "Measures nothing: sizes of blocks and buffers, traffic and depths as the papers print "
        "them, from plans and from programs that are run without moving a byte.",
        {"--scratch": "folder on the disk that the record tells of (the working folder)"},
        ("outgrid bench counted", ""),
    ),
    _paper(
        "devices",
        "Measures disks beside each other: requests by size, in order and at places of chance, "
        "beside what each was asked for and beside fio, large requests as runs make them, and a "
        "matrix streamed from 8 mSATA disks. Without --emulate it makes those of the papers, each "
        "a tenth as fast.",
        {"--full": "more sizes, longer"},
        ("outgrid bench devices --scratch /nvme", ""),
    ),
    _paper(
        "blocking",
        "Measures heat7 in blocks of each size and depth, out of core and in memory, and one level "
        "of blocks against two by threads, beside plain sweeps in memory and skewed ones out of "
        "core.",
        {
            "--memory": "limit of runs out of core with --full (768MiB; without it 208MiB)",
            "--full": "a grid whose states take twice the limit, in minutes; combinations that are "
            "planned to take five times as long as the fastest are left out",
        },
    ),
    _paper(
        "methods",
        "Measures heat7 on one grid beyond memory, plain and in blocks on swap, mapped files and "
        "direct transfers, and skewed by direct transfers: time, bytes, and the use of disk and "
        "processors, beside sweeps in memory.",
        BEYOND
        | {
            "--factor": "size of the grid over the limit (1, with --full 8)",
            "--steps": "time steps, but for plain ones (twice the depth of a block)",
        },
        ("outgrid bench methods --with-swap --scratch /nvme", ""),
        (
            "outgrid bench methods --full --json methods.json --resume",
            "go on after an interruption",
        ),
    ),
    _paper(
        "scaling",
        "Measures the rate of heat7 over that of plain sweeps in memory, in blocks on swap, mapped "
        "files and direct transfers, and skewed by direct transfers, for grids of half the limit "
        "and more.",
        BEYOND
        | {
            "--factor": "size of the largest grid over the limit (2, with --full 8)",
            "--steps": "time steps (twice the depth of a block)",
        },
        ("outgrid bench scaling --full --with-swap --scratch /nvme", ""),
    ),
    _paper(
        "stream",
        "Measures copy, scale, add and triad over arrays in swap, in mapped files and by direct "
        "transfers, on one core and on all, beside the same loops in memory.",
        {
            "--memory": "limit that arrays are multiples of (256MiB, with --full 512MiB)",
            "--with-swap": BEYOND["--with-swap"],
            "--full": "arrays of up to 4 times the limit instead of 2, three rounds",
        },
        ("outgrid bench stream --with-swap --scratch /nvme", ""),
    ),
    _paper(
        "mask",
        "Measures masks of 3 x 3 and of 15 x 15 over an image beyond memory, by plain sweeps on "
        "swap and on mapped files and by ours, on one core and on all, beside plain sweeps in "
        "memory.",
        BEYOND
        | {
            "--memory": "limit of each run, for example 1GiB (160MiB, with --full 512MiB)",
            "--factor": "size of the image over the limit (2)",
        },
        ("outgrid bench mask --with-swap --scratch /nvme", ""),
    ),
    _paper(
        "himeno",
        "Measures Himeno's benchmark, of whose 14 arrays memory holds 29 %, by plain sweeps on "
        "swap and on mapped files and by ours, on one core and on all, beside plain sweeps in "
        "memory.",
        BEYOND | {"--factor": "size of all arrays over the limit (3.4)"},
        ("outgrid bench himeno --with-swap --scratch /nvme", ""),
    ),
    _paper(
        "matvec",
        "Measures a dense matrix times a vector, the matrix streamed from storage: mapped, read "
        "and past the page cache, in chunks of 35 to 560 MB, from several files, with and without "
        "overlap, beside the disk alone and BLAS alone.",
        {
            "--memory": "with --full, the largest matrix is at least 8 times as large (512MiB)",
            "--device": "gpu: multiply on a GPU as well (cpu)",
            "--full": "larger matrices as well",
            "--also": "a folder on one more disk for files of the matrix, may be repeated",
        },
        ("outgrid bench matvec --scratch /nvme --also /ssd", "files on two disks"),
        ("outgrid bench matvec --device gpu --scratch /nvme", ""),
    ),
    _paper(
        "gpu",
        "Measures on a GPU whether answers are the bytes of the processor, copies from pageable "
        "and pinned memory, and heat7 in its memory and beyond it, beside copies within that "
        "memory. Without a GPU it says what was looked for.",
        {"--full": "larger copies and grids"},
    ),
    _paper(
        "cluster",
        "Measures nothing: simulates runs on 8 to 4096 nodes with flash, fitted on a cluster that "
        "a paper measured, beside all else that it reported.",
        {
            "--full": "clusters of up to 4096 nodes instead of 256",
            "--scratch": "folder on the disk that the record tells of (the working folder)",
        },
        ("outgrid bench cluster --full --json cluster.json", ""),
    ),
    _paper(
        "nodes",
        "Measures the papers' scheme on 4 to 16 ranks of MPI on this host, each with an emulated "
        "disk of its own: strong and weak scaling and shapes, at a sixteenth of the paper's "
        "extents, depth and steps, beside what the simulator of clusters expects.",
        {"--full": "16 ranks as well as 4 and 8"},
        ("outgrid bench nodes --scratch /nvme", ""),
    ),
    _paper(
        "getput",
        "Measures a vector sum and heat7 in blocks on memory that other ranks of MPI on this host "
        "lend, by get and put, beside copies from paged arrays, with local memory of 15 to 100 % "
        "of the data; and bare regions, beside one plain call of MPI.",
        {
            "--memory": "size of each vector and of the grid, with --full (512MiB, without 128MiB)",
            "--full": "larger data, and regions of 64 KiB to 1 GiB",
            "--scratch": "folder on the disk that the record tells of (the working folder)",
        },
        ("outgrid bench getput --json getput.json --figure getput.png", ""),
    ),
    _paper(
        "ranks",
        "Measures runs of one and of two ranks of MPI on this host, bound by the disk and by the "
        "cores, cut along planes and along rows, beside what the simulator of clusters expects.",
        {
            "--memory": "limit of all ranks together (512MiB, with --full 2GiB)",
            "--full": "a grid of 4 GiB instead of 256 MiB",
        },
    ),
)
ALL = Measurement(
    name="all",
    purpose="every experiment of the papers, their records, figures and one page",
    about=(
        "Makes the experiments of the papers one after the other, prints of each what it prints "
        "alone, and writes their records and figures and one page of all, index.html. Exit code 1 "
        "if an answer is wrong; an experiment that cannot be made here does not keep the others "
        "from it, and gives its exit code."
    ),
    run=run_all,
    options={name: text for name, text in COMMON.items() if name not in ALONE}
    | EMULATED
    | {
        "--only": f"an experiment, may be repeated (all): {', '.join(EXPERIMENTS)}",
        "--memory": "limit that is filled, for example 1GiB (256MiB, of mask 160MiB, with --full "
        "512MiB)",
        "--factor": "size of grids over the limit, for experiments on one (their own)",
        "--steps": "time steps, for methods and scaling (their own)",
        "--with-swap": BEYOND["--with-swap"],
        "--device": "gpu: multiply on a GPU as well, in matvec (cpu)",
        "--quick": "each in less than 90 seconds (the default)",
        "--full": "fill memory several times, for minutes to hours each",
        "--also": MEASURED_ON["--also"],
        "--results": "folder of records, figures and page (benchmarks/results/MACHINE)",
        "--resume": "keep the records and parts that the folder of results holds",
        "--price": "of the disks of all folders, in any currency, to tell the price of a GB/s",
        "--watts": "what these disks draw, in W, to tell the watts of a GB/s",
    },
    examples=(
        ("outgrid bench all --quick --scratch /nvme", "up to 20 minutes"),
        ("outgrid bench all --full --with-swap --scratch /nvme --resume", "up to three hours"),
    ),
)
