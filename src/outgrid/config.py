"""The options of a run: each declared once, with its kind, its default and what it is for.

`[run]` of a job file, keywords of a call and flags of the command line all follow from the fields
of `RunOptions`. None of them changes the answer.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import msgspec

from outgrid.decoding import choice, decoded_table, shown
from outgrid.devices import DEVICES
from outgrid.errors import UsageError
from outgrid.formats.registry import BUILT_IN, is_laid_out
from outgrid.purposes import (
    ALONE,
    APART,
    BLOCKS,
    COMPUTING,
    EVERYDAY,
    EXPERT,
    FILES,
    FOLDER,
    GPU,
    HOST,
    KEPT,
    MAPPED,
    NEW,
    PLACEMENT,
    SEVERAL,
    SHARED,
    SLABS,
    STEPS,
    STREAMED,
    TUNING,
    Option,
    check_purposes,
    on_tier,
    options_of,
    spelled,
)
from outgrid.schemes import SCHEMES
from outgrid.tiers import COPIED_TIERS, OWN_TIERS, PASSING_TIERS, TIERS
from outgrid.toml import parse_toml
from outgrid.units import BLOCK_BYTES, parse_bytes, parse_endurance, parse_seconds

__all__ = [
    "AUTO",
    "OPTIONS",
    "PATHS",
    "RunOptions",
    "chosen",
    "left_out",
    "parse_settings",
    "run_folder",
]

Places = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

DEFAULT_REQUEST_BYTES = 2 << 20
DEFAULT_QUEUE_DEPTH = 16

MOST_THREADS = 1024
MOST_REQUESTS = 1024

PREVIEW_EDGE = 512
"""Longest edge, in pixels, of the frames that `preview = true` asks for."""

RANK = "{rank}"
"""Stands in the name of a folder of working files for the number of the rank."""

AUTO = "auto"
"""A value of every key of `[run]`: what is taken where the key is left out."""

PATHS = ("scratch", "erase", "out", "metrics")
"""Keys that name files."""

_ADVICE = choice("normal", "sequential", "random", "willneed", "dontneed")
_REQUIRED = choice("io_uring", "aio", "threads", "direct", "mlock")
"""What `require` may name: an I/O engine, O_DIRECT on every file, a window locked in memory."""

_PATHS = str | tuple[str, ...]
_SIZE = str | int
_TIME = str | float


def _listed(given: str | tuple[str, ...]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else given


def _edge(given: bool | int) -> int:
    return PREVIEW_EDGE if given is True else int(given)


def _unnamed(given: object) -> str:
    names = _listed(cast("Any", given))
    if any("\0" in name for name in names):
        return "no path has the character NUL"
    return "name a folder, or leave it out" if "" in names else ""


def _no_folder(given: object) -> str:
    name = str(given).lower()
    for kind in BUILT_IN:
        if not (kind.name == "Zarr" or kind.laid_out) and name.endswith(kind.suffixes):
            return (
                "results go to a folder, or to a file of HDF5, VTKHDF or NetCDF, not of "
                f"{kind.name}; name a folder, then run outgrid export RUN --to {given}"
            )
    return _unnamed(given)


def _no_file(given: str) -> str:
    if Path(given).name == given and is_laid_out(given):
        return _unnamed(given)
    return "name a file of HDF5, VTKHDF or NetCDF, such as heat.h5, beside the folder of results"


def _at_least_one(value: Any) -> str:
    return "" if value >= 1 else "it must be at least 1"


def _at_most(bound: int, words: str) -> Callable[[Any], str]:
    return lambda value: _at_least_one(value) or (words if value > bound else "")


def _above_zero(value: Any) -> str:
    return "" if value else "it must be above 0, or left out"


def _bad_stripe(value: int) -> str:
    if value % BLOCK_BYTES:
        return f"it must be a multiple of {BLOCK_BYTES}"
    return _above_zero(value)


def _bad_request(value: int) -> str:
    block = BLOCK_BYTES
    if value >= block and value % block == 0:
        return ""
    fix = max(block, value // block * block)
    return f"direct I/O needs a multiple of {block}, such as {fix}"


def _count(group: str, sets: str, otherwise: str, *needs: Any) -> Option:
    """An option that is a whole number above 0."""
    return Option(group, sets, otherwise, refuse=_at_least_one, needs=needs)


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a problem is to be run. No field may change the answer, not by one bit.

    `memory_bytes` bounds the resident memory of the whole process; where it was not
    `memory_asked` it is a share of what the machine has. None leaves a choice to the plan. `places`
    are all folders or devices that fields are spread over, `scratch` the first one, striped where
    there are `stripe_bytes`; what is on devices that `erase` names as well may go.
    "{rank}" in them stands for the number of the rank, which is 0 where there is one process.
    `file` is one file for the results, beside the folder `out`; "" leaves them in it, one each.
    `endurance_bytes` may be written to the device of `scratch` in its life, 0 if unknown.
    `require` names what must not be fallen back from. `preview` is the longest edge in pixels
    of the frames kept after each sweep, 0 for none. With `in_place` sweeps work right in the memory
    of tier "mmap" or "swap", of which the system is told what `madvise` says (None: what keeps the
    limit); `msync` is what follows a write to a mapped file. `cuts` are the planes, and
    `row_cuts` the rows, at which several ranks cut the grid; `exchange` is what goes over cuts of
    planes: "halos", some of which are computed twice, or "seams". On tier "remote" no rank lends
    more than `lend_bytes` (None: most of what its host has free), `placement` says how the grid is
    spread over them, and `keep` "disk" keeps what is put in files as well. A run stops,
    resumable, before `stop_after_seconds` are over, and makes about every `commit_seconds`
    durable what it has. With `device` "gpu" the window lies on a GPU, of whose memory no more than
    `device_memory_bytes` are taken (None: most of what is free). With `watch` a run that begins
    with finite values ends with an error where a value becomes NaN or infinite.
    """

    # Where the grid lives, and what it may take.
    memory_bytes: Annotated[
        int,
        Option(
            EVERYDAY,
            'limit on the resident memory of the process: a size, for example "32GiB", '
            'or a share of what the process may use, "50%" or 0.5',
            "half of the memory that the process may use",
            key="memory",
            written=str | int | float,
            read=parse_bytes,
            metavar="SIZE",
        ),
    ]
    memory_asked: bool = True
    tier: Annotated[
        str,
        Option(
            EVERYDAY,
            "where the grid lives: "
            + ", ".join(f"`{tier.name}` ({tier.words})" for tier in TIERS.values()),
            '"memory" if the grid fits, else "direct"',
            written=choice(AUTO, *TIERS),
            values={
                **dict.fromkeys(OWN_TIERS, (ALONE,)),
                "remote": (HOST, COMPUTING),
            },
            metavar="NAME",
        ),
    ] = AUTO
    in_place: Annotated[
        bool,
        Option(
            EXPERT,
            "tiers mmap and swap: sweeps update the memory of the tier itself, without a window",
            "`false`",
            needs=(MAPPED, HOST, ALONE),
        ),
    ] = False
    madvise: Annotated[
        tuple[str, ...] | None,
        Option(
            EXPERT,
            'tiers mmap and swap: advice to the system, `"normal"`, `"sequential"`, '
            '`"random"`, `"willneed"` before a read, `"dontneed"` after a move; one or '
            "a list",
            '`"dontneed"` for mmap, which keeps the memory limit',
            written=_ADVICE | tuple[_ADVICE, ...],
            read=_listed,
            needs=(MAPPED,),
            values={"willneed": (APART,), "dontneed": (APART,)},
        ),
    ] = None
    msync: Annotated[
        Literal["none", "async", "sync"],
        Option(
            EXPERT,
            'tier mmap: what follows each write, `"none"`, `"async"` or `"sync"`',
            '`"none"`',
            needs=(on_tier("mmap"),),
        ),
    ] = "none"
    lend_bytes: Annotated[
        int | None,
        Option(
            PLACEMENT,
            "tier remote: the most memory that a rank lends",
            "nine tenths of its share of the free memory of its host",
            key="lend",
            written=_SIZE,
            read=parse_bytes,
            refuse=_above_zero,
            needs=(on_tier("remote"),),
        ),
    ] = None
    placement: Annotated[
        Literal["cyclic", "contiguous"],
        Option(
            PLACEMENT,
            'tier remote: `"cyclic"` deals blocks to all ranks in turn, `"contiguous"` '
            "gives each rank one piece",
            '`"cyclic"`',
            needs=(on_tier("remote"),),
        ),
    ] = "cyclic"
    keep: Annotated[
        Literal["none", "disk"],
        Option(
            PLACEMENT,
            'tier remote: `"disk"` also writes the grid to files, so that the run can be resumed',
            '`"none"`',
            needs=(on_tier("remote"),),
        ),
    ] = "none"
    device: Annotated[
        str,
        Option(
            PLACEMENT,
            "where the window lies: `cpu`, "
            + ", ".join(f"`{name}`" for name in DEVICES)
            + "; needs CuPy; see [what was measured](../design/gpu.md)",
            '`"cpu"`',
            written=choice("cpu", *DEVICES),
            values=dict.fromkeys(DEVICES, (ALONE,)),
        ),
    ] = "cpu"
    device_memory_bytes: Annotated[
        int | None,
        Option(
            PLACEMENT,
            "limit on the GPU memory of the window",
            "nine tenths of the free GPU memory",
            key="device_memory",
            written=_SIZE,
            read=parse_bytes,
            refuse=_above_zero,
            needs=(GPU,),
        ),
    ] = None

    # Its files.
    scratch: Path | None = None
    places: Annotated[
        tuple[Path, ...],
        Option(
            EVERYDAY,
            "folder of the working files, on flash; or a block device; or a list of "
            "folders or devices that are used together "
            "([places](../design/tiers.md#several-places-and-raw-devices)). `{rank}` in"
            " it is the number of the rank",
            "`scratch` inside `out`",
            key="scratch",
            written=_PATHS,
            read=_listed,
            refuse=_unnamed,
            metavar="DIR",
        ),
    ] = ()
    stripe_bytes: Annotated[
        int,
        Option(
            PLACEMENT,
            "splits each field over all places of `scratch` in stripes of this size, "
            'for example `"1MiB"`',
            "each field is whole, on one of the places",
            key="stripe",
            written=_SIZE,
            read=parse_bytes,
            refuse=_bad_stripe,
            needs=(SEVERAL,),
            passing=True,
        ),
    ] = 0
    erase: Annotated[
        tuple[Path, ...],
        Option(
            PLACEMENT,
            "block device of `scratch` whose contents may be destroyed; only on the "
            "command line or in the call, never in a file",
            "a device with any contents is an error",
            written=_PATHS,
            read=_listed,
            refuse=_unnamed,
            needs=(NEW,),
            passing=True,
            metavar="DEVICE",
        ),
    ] = ()
    out: Annotated[
        Path | None,
        Option(
            EVERYDAY,
            "folder of results and record, which is a Zarr group as well; or a file of HDF5, "
            "VTKHDF or NetCDF for the fields (`heat.h5`), beside the folder `heat.run`",
            "name of the job with `.run`, or `.gradient` of its gradient; in Python `outgrid.run`",
            written=str,
            refuse=_no_folder,
            passing=True,
            metavar="DIR",
        ),
    ] = None
    file: Annotated[
        str,
        Option(
            PLACEMENT,
            "file of HDF5, VTKHDF or NetCDF for the fields, beside the folder `out`",
            "the one that `out` names, if it names a file",
            refuse=_no_file,
            needs=(ALONE,),
        ),
    ] = ""
    endurance_bytes: Annotated[
        int,
        Option(
            EVERYDAY,
            'bytes that may be written to the drive in its life, for example "600TBW"; '
            "plan and record then give the share",
            "read from the device (NVMe, smartctl)",
            key="endurance",
            written=_SIZE,
            read=parse_endurance,
            metavar="TBW",
        ),
    ] = 0

    # How sweeps go over it.
    scheme: Annotated[
        str | None,
        Option(
            TUNING,
            "schedule of the sweeps: "
            + ", ".join(f"`{scheme.name}` ({scheme.words})" for scheme in SCHEMES.values()),
            '`"auto"`: skewed or plain',
            written=choice(AUTO, *SCHEMES),
            values={name: (STREAMED, HOST) for name, scheme in SCHEMES.items() if scheme.blocks},
        ),
    ] = None
    depth: Annotated[
        int | None,
        _count(
            TUNING,
            "time steps per sweep",
            "chosen by the plan",
        ),
    ] = None
    slab_planes: Annotated[
        int | None,
        _count(TUNING, "planes per slab, which one transfer moves", "chosen by the plan", SLABS),
    ] = None
    strip_rows: Annotated[
        int | None,
        _count(
            TUNING,
            "rows per strip, where whole planes are too large for the window",
            "chosen by the plan",
            SLABS,
            STREAMED,
            ALONE,
        ),
    ] = None
    stream_axis: Annotated[
        Literal["auto", "z", "y", "x"],
        Option(
            TUNING,
            'axis of a 3-D grid along which its planes pass through memory: `"z"`, or `"y"`, whose '
            'planes are smaller in a grid of few planes, or `"x"`: results are then in Fortran '
            "order",
            '`"auto"`: y where planes are smaller and that takes less time, else z, and the plan '
            "says where x would take less; a resumed run keeps its axis",
            values={
                "y": (SLABS, HOST, ALONE, FILES, STREAMED),
                "x": (SLABS, HOST, ALONE, on_tier(AUTO, "direct"), STREAMED, FOLDER),
            },
        ),
    ] = AUTO
    block: Annotated[
        tuple[int, ...] | None,
        Option(
            EXPERT,
            "scheme overlapped: interior cells of a block in z, y, x; in x the length of the grid",
            "the largest power of two that fits; the same on all ranks",
            needs=(BLOCKS,),
        ),
    ] = None
    inner: Annotated[
        tuple[int, ...] | None,
        Option(
            EXPERT,
            "scheme overlapped: cells of a block of the second level in z, y, x",
            "32 rows",
            needs=(BLOCKS,),
        ),
    ] = None
    inner_depth: Annotated[
        int | None,
        _count(
            EXPERT,
            "scheme overlapped: time steps per block of the second level; above 1 its "
            "rows follow from the steps",
            "1",
            BLOCKS,
        ),
    ] = None
    cuts: Annotated[
        tuple[int, ...],
        Option(
            PLACEMENT,
            "planes at which several ranks cut the grid",
            "equal work for all ranks",
            needs=(SHARED,),
        ),
    ] = ()
    row_cuts: Annotated[
        tuple[int, ...],
        Option(
            PLACEMENT,
            "rows at which several ranks cut the grid",
            "the cheapest number of parts",
            needs=(SHARED,),
        ),
    ] = ()
    exchange: Annotated[
        Literal["halos", "seams"] | None,
        Option(
            PLACEMENT,
            'what ranks exchange at cuts of planes: `"halos"`, where some cells are '
            'computed twice, or `"seams"`, where none are and ranks wait '
            "([seams](../design/ranks.md#seams-nothing-computed-twice))",
            '`"auto"`: the cheaper one',
            written=choice(AUTO, "halos", "seams"),
            needs=(SHARED,),
        ),
    ] = None
    effort: Annotated[
        Literal["estimate", "measure", "patient"],
        Option(
            TUNING,
            'how tiles are chosen: `"estimate"` measures nothing, `"measure"` measures the '
            'kernel before a run of 20 s or more, `"patient"` before any run, with more tiles '
            "and repetitions; what was measured is kept, and used by all three",
            '`"measure"`',
            needs=(HOST,),
        ),
    ] = "measure"
    tile_rows: Annotated[
        int | None,
        _count(
            EXPERT,
            "width of a tile: rows in 3-D, columns in 2-D",
            "measured, or estimated from the cache sizes",
            SLABS,
            HOST,
        ),
    ] = None
    tile_planes: Annotated[
        int | None,
        _count(
            EXPERT,
            "planes that a tile advances at once",
            "measured, or estimated from the cache sizes",
            SLABS,
            HOST,
        ),
    ] = None
    tile_columns: Annotated[
        int | None,
        _count(
            EXPERT,
            "columns of a 3-D tile that pass through all its levels at once; the length"
            " of a row for whole rows",
            "measured, or estimated from the cache sizes",
            SLABS,
            HOST,
            STEPS,
        ),
    ] = None
    tile_band: Annotated[
        int | None,
        _count(
            EXPERT,
            "rows of a 3-D tile that pass through all its levels at once; the rows of "
            "the tile for no bands",
            "measured, or estimated from the cache sizes",
            SLABS,
            HOST,
            STEPS,
        ),
    ] = None
    tile_group: Annotated[
        int | None,
        _count(
            EXPERT,
            "planes (rows in 2-D) that a row update computes at once, at most; up to 8",
            "measured, or as many as the kernel has",
            SLABS,
            HOST,
        ),
    ] = None
    tile_fetch: Annotated[
        bool | None,
        Option(
            EXPERT,
            "prefetches what the edges of a tile read, one step of the front ahead",
            "measured, or `false` for bands and `true` for other tiles",
            needs=(SLABS, HOST, STEPS),
        ),
    ] = None
    tile_stream: Annotated[
        bool | None,
        Option(
            EXPERT,
            "stores past the caches in sweeps of one step",
            "measured, or `false`",
            needs=(SLABS, HOST),
        ),
    ] = None
    threads: Annotated[
        int | None,
        Option(
            TUNING,
            f"threads that compute, at most {MOST_THREADS}",
            "all cores",
            refuse=_at_most(
                MOST_THREADS,
                f"at most {MOST_THREADS}; more threads than processors only wait for each other",
            ),
            needs=(HOST,),
        ),
    ] = None
    pack: Annotated[
        Literal["auto", "always", "never"],
        Option(
            TUNING,
            'coefficients, which are read in every sweep: `"always"` keeps a packed copy of their '
            "planes in scratch (exact; float32, float64 and integers of these sizes), "
            '`"never"` does not',
            '`"auto"`: where it makes the run faster',
            needs=(SLABS, HOST, ALONE, FILES, STREAMED),
        ),
    ] = AUTO
    temporaries: Annotated[
        Literal["auto", "keep", "recompute"],
        Option(
            TUNING,
            '[temporaries](language.md#temporaries) of a stencil: `"keep"` keeps them in the '
            'window until they are read, `"recompute"` computes them again wherever they are read, '
            "where that is possible; a resumed run keeps what it has chosen",
            '`"auto"`: for each what takes less time',
            values={"recompute": (HOST,)},
        ),
    ] = AUTO
    fold: Annotated[
        Literal["auto", "always", "never"],
        Option(
            TUNING,
            "folded rows, of which two or four share each vector, for stencils that read two rows "
            'beyond a cell or more: `"always"` fails where the problem or the processor does not '
            "allow them",
            '`"auto"`: where they make a run faster, on processors with AVX-512 or AVX2',
            values={"always": (SLABS, HOST)},
        ),
    ] = AUTO
    pin: Annotated[
        bool, Option(TUNING, "keeps each thread on one processor", "`false`", needs=(HOST,))
    ] = False

    # How bytes are moved.
    engine: Annotated[
        Literal["auto", "io_uring", "aio", "threads"],
        Option(
            TUNING,
            'I/O engine: `"io_uring"`, `"aio"` or `"threads"`',
            '`"auto"`: the first one that works',
            values={"io_uring": (FILES,), "aio": (FILES,)},
        ),
    ] = AUTO
    require: Annotated[
        tuple[str, ...],
        Option(
            EXPERT,
            "what must be available, else the run fails before it starts: an I/O engine, "
            '`"direct"` (O_DIRECT), `"mlock"` (window locked in memory); one or a list',
            "nothing",
            written=_REQUIRED | tuple[_REQUIRED, ...],
            read=_listed,
            values={
                **dict.fromkeys(("io_uring", "aio", "direct"), (FILES,)),
                "mlock": (HOST, APART),
            },
        ),
    ] = ()
    queue_depth: Annotated[
        int,
        Option(
            TUNING,
            f"I/O requests in flight, at most {MOST_REQUESTS}",
            "`16`",
            refuse=_at_most(
                MOST_REQUESTS, f"at most {MOST_REQUESTS} requests are under way at once"
            ),
        ),
    ] = DEFAULT_QUEUE_DEPTH
    request_bytes: Annotated[
        int,
        Option(
            TUNING,
            "size of an I/O request",
            '`"2MiB"`',
            written=_SIZE,
            read=parse_bytes,
            refuse=_bad_request,
        ),
    ] = DEFAULT_REQUEST_BYTES

    # What is seen of a run, and when it stops.
    watch: Annotated[
        bool,
        Option(
            EVERYDAY,
            "ends a run that begins with finite values when a value becomes NaN or "
            "infinite ([how](../design/reliability.md#values-that-become-nan-or-infinite))",
            "`true`",
        ),
    ] = True
    preview: Annotated[
        int,
        Option(
            EVERYDAY,
            "keeps a picture per sweep; its longest edge in pixels, or `true` for 512",
            "none",
            written=bool | int,
            read=_edge,
            refuse=lambda value: "" if value >= 0 else "pixels of the longest edge, or 0",
            needs=(HOST, ALONE),
        ),
    ] = 0
    pyramid: Annotated[
        bool,
        Option(
            EVERYDAY,
            "also writes coarser levels of each result, after OME-Zarr 0.5 "
            "([how](../howto/results.md#levels-for-viewers)): at most a seventh more bytes",
            "`false`",
            needs=(HOST, ALONE, FOLDER),
        ),
    ] = False
    metrics: Annotated[
        Path | None,
        Option(
            EVERYDAY,
            "file of OpenMetrics, replaced every second during the run",
            "none",
            written=str,
            refuse=_unnamed,
            passing=True,
            metavar="FILE",
        ),
    ] = None
    commit_seconds: Annotated[
        float | None,
        Option(
            EVERYDAY,
            'time between commits, also within a sweep, for example `"1min"` '
            "([how](../design/reliability.md#within-a-sweep))",
            "30 s; longer for a grid in memory whose commits take long",
            key="commit_every",
            written=_TIME,
            read=parse_seconds,
            needs=(KEPT, ALONE),
        ),
    ] = None
    stop_after_seconds: Annotated[
        float | None,
        Option(
            EVERYDAY,
            'stops before this time is over, for example "2h", ready to be resumed',
            "before the end of a Slurm job, else never",
            key="stop_after",
            written=_TIME,
            read=parse_seconds,
            passing=True,
            metavar="TIME",
        ),
    ] = None

    @property
    def results(self) -> Path:
        """The folder of the results."""
        return self.out or Path("outgrid.run")

    @property
    def passing(self) -> bool:
        """Whether all fields are in memory that ends with the process."""
        return self.tier in PASSING_TIERS and not self.in_place and self.keep == "none"

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of all requests that may be under way at once."""
        return self.queue_depth * self.request_bytes

    def given(self, key: str) -> Any:
        """What was given for a key of `[run]`; None where that is what is taken without it."""
        value = getattr(self, OPTIONS[key].member)
        return None if value == left_out(key) else value

    def kept(self, out: Path) -> dict[str, Any]:
        """What a resume of the run in `out` goes by: entries of `[run]` that differ from their
        defaults. Folders inside `out` are named from there, so that it may be moved."""
        entries: dict[str, Any] = {}
        for key, option in OPTIONS.items():
            value = self.given(key)
            if value is None or option.passing or (key == "memory" and not self.memory_asked):
                continue
            entries[key] = list(cast("tuple[Any, ...]", value)) if type(value) is tuple else value
        if self.scratch is not None:
            entries["scratch"] = [
                _named_from(out, place) for place in self.places or (self.scratch,)
            ]
        if "endurance" in entries:
            entries["endurance"] = f"{self.endurance_bytes}B"
        return entries

    def of_rank(self, rank: int) -> "RunOptions":
        """The same for one of several ranks: with its own folders of working files."""

        def own(place: Path) -> Path:
            return Path(str(place).replace(RANK, str(rank)))

        scratch = None if self.scratch is None else own(self.scratch)
        return msgspec.structs.replace(
            self, scratch=scratch, places=tuple(own(place) for place in self.places)
        )

    @classmethod
    def of(cls, *, memory: str | float, **others: Any) -> "RunOptions":
        """Options from keywords spelled like the keys of `[run]`, paths relative to the process.

        None and "auto" leave a key out. Raises UsageError for an unknown keyword, a wrong type or
        a value out of range.
        """
        given = chosen({"memory": memory, **others})
        return cls.of_table({key: _plain(key, value) for key, value in given.items()})

    @classmethod
    def of_table(
        cls,
        table: Mapping[str, Any],
        base: Path | None = None,
        source: str = "",
        elsewhere: Mapping[str, Iterable[str]] | None = None,
    ) -> "RunOptions":
        """The options that a table `[run]` of the file `source` asks for, which has `memory`.

        Its paths are relative to the folder `base`. Raises UsageError for what `decoded_table`
        refuses and for a value out of range.
        """
        kinds = {key: option.written for key, option in OPTIONS.items()}
        others = {place: tuple(keys) for place, keys in (elsewhere or {}).items()}
        place, folder = "run" if source else "", base or Path()
        named: dict[str, Any] = {}
        for key, value in decoded_table(table, kinds, place, source, elsewhere=others).items():
            option = OPTIONS[key]
            read = value if option.read is None else option.read(value)
            if option.refuse is not None and (wrong := option.refuse(read)):
                raise UsageError(f"{key} = {shown(spelled(value))}: {wrong}")
            named[option.member] = read
        for field in ("places", "erase"):
            named[field] = tuple(folder / path for path in named.get(field, ()))
        named["scratch"] = next(iter(named["places"]), None)
        for file in ("out", "metrics"):
            if file in named:
                named[file] = folder / named[file]
        if "out" in named and is_laid_out(named["out"].name):
            named["file"] = named["out"].name
            named["out"] = run_folder(named["out"])
        asked = cls(**named)
        if asked.tier in COPIED_TIERS and len(asked.places) > 1:
            raise UsageError(
                f"tier {asked.tier} does not spread fields over folders, and scratch names "
                f"{len(asked.places)} places: name one, or choose tier direct"
            )
        check_purposes(asked)
        return asked


def run_folder(given: str | os.PathLike[str]) -> Path:
    """The folder of a run, which may be named by the one file that it has left."""
    path = Path(given)
    return path.with_suffix(".run") if is_laid_out(path.name) else path


OPTIONS = options_of(RunOptions)
"""What is declared of each key of `[run]`."""

_LEFT_OUT = RunOptions(memory_bytes=0)


def left_out(key: str) -> Any:
    """What is taken where a key of `[run]` is left out."""
    return getattr(_LEFT_OUT, OPTIONS[key].member)


def chosen(table: Mapping[str, Any]) -> dict[str, Any]:
    """Entries of `[run]` without those that leave the choice to the plan."""
    return {
        key: value
        for key, value in table.items()
        if value is not None and not (isinstance(value, str) and value == AUTO)
    }


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Entries of a `[run]` table from texts like "depth=8" or "scratch=/nvme".

    A value that reads as TOML is taken as such, anything else as text. Raises UsageError for a
    text without "=".
    """
    parsed: dict[str, Any] = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator or not key.strip():
            raise UsageError(
                f"a setting must be KEY=VALUE, for example depth=8, not {shown(setting)!r}"
            )
        try:
            parsed[key.strip()] = parse_toml(f"value = {value}", f"--set {shown(key)}")["value"]
        except ValueError:
            parsed[key.strip()] = value.strip()
    return parsed


def _named_from(out: Path, place: Path) -> str:
    """A folder as one inside `out` is named from there, or by its whole path."""
    place, out = place.absolute(), out.absolute()
    return os.fspath(place.relative_to(out) if place.is_relative_to(out) else place)


def _plain(key: str, value: Any) -> Any:
    """What a caller gives as text would have it: paths as text, numbers of NumPy as Python's."""
    if key in PATHS:
        return _texts(key, value)
    if isinstance(value, bool | str | bytes | Mapping):
        return cast("Any", value)
    if isinstance(value, Real):
        return int(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, Iterable):
        return [_plain("", item) for item in cast("Iterable[Any]", value)]
    return value


def _texts(key: str, path: Any) -> str | tuple[str, ...]:
    try:
        if isinstance(path, str | os.PathLike):
            return os.fspath(cast("str | os.PathLike[str]", path))
        return tuple(os.fspath(part) for part in cast("Sequence[str]", path))
    except TypeError:
        raise UsageError(f"{key} must be a string or a Path, not {path!r}") from None
