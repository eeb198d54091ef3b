"""Which cut and depth suit a cluster of equal nodes, each with memory and flash of its own.

A grid of interior extents (z, y, x) is cut along z and y. A node keeps its part twice, for the
states that a sweep reads and writes, each with a layer of fixed cells and with a halo of ``depth``
cells (radius one) on both sides along the axes that are cut:

    2 * item * (nx + 2) * (ny/cy + 2 + 2*depth) * (nz/cz + 2 + 2*depth)

Two schemes are priced. ``blocks`` is the one of Midorikawa and Tan for clusters: blocks with halos
of their own, read, stepped and written one after the other, then an exchange, then a barrier.
``stream`` is skewed: one trip over the part, transfers and messages beside the computing. Both are
the same geometry, since what is streamed is one block as large as the part.

These are the papers' formulas, and no second planner of runs: that is `outgrid.plan.ranks`, which
plans a stencil with its kernel's rates for the ranks that are there. What is simulated here has
neither, a radius of one and nodes that nobody has; both schemes are priced in the same terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from outgrid.errors import InfeasiblePlan
from outgrid.machine import Network
from outgrid.units import format_bytes

__all__ = [
    "Choice",
    "Cluster",
    "Cut",
    "Extent",
    "GridSize",
    "Node",
    "Part",
    "choose",
    "powers",
    "price",
]

Scheme = Literal["blocks", "stream"]
BUFFER_SHARE = 0.63  # of a node's memory that goes to block buffers, as the papers had it
SPARE_PLANES = 16  # of a window beyond its depth: four slabs of four planes
GIB = 1 << 30
STATES = 2  # kept of every part, the one that is read and the one that is written


@dataclass(frozen=True, slots=True)
class Node:
    """What one node has; bandwidths of its flash and of its network in bytes per second.

    What moves beside updates takes from the cores ``moved_seconds`` of all of them for each byte
    from or to flash, ``sent_seconds`` for each that is sent while another one comes, and the share
    ``attention`` of their time to look whether messages have come. The papers' blocks come and go
    in turns; with ``ahead`` so many are read before the one that is updated is done, and those that
    are done are written meanwhile, by flash that reads and writes at the same time.
    """

    updates_per_second: float
    memory_bytes: int
    disk_bytes: int
    read_bandwidth: float
    write_bandwidth: float
    network: Network
    moved_seconds: float = 0.0
    sent_seconds: float = 0.0
    attention: float = 0.0
    ahead: int = 0

    def busy_seconds(self, part: Part, depth: int) -> float:
        """Seconds that the cores work for a sweep of a stream, with what moves beside it."""
        sent = part.exchanged_bytes(depth)
        moved = part.read_bytes(depth) + part.written_bytes + sent  # as much comes, and is written
        work = part.updates(depth) / self.updates_per_second
        work += moved * self.moved_seconds + sent * self.sent_seconds
        return work / (1 - self.attention if sent else 1)


@dataclass(frozen=True, slots=True)
class Cluster:
    """``count`` equal nodes; ``cores`` that all of them share, as ranks on one host do, one each at
    a time. None: each has its own."""

    count: int
    node: Node
    cores: int | None = None


@dataclass(frozen=True, slots=True)
class GridSize:
    """Interior extents (z, y, x) and steps of a problem of one field."""

    shape: tuple[int, int, int]
    steps: int
    item_bytes: int = 8

    @property
    def cells(self) -> int:
        """Cells that are updated."""
        z, y, x = self.shape
        return z * y * x

    @property
    def nbytes(self) -> int:
        """Bytes of one state."""
        return self.cells * self.item_bytes


@dataclass(frozen=True, slots=True)
class Cut:
    """Into how many parts each axis is cut."""

    y: int
    z: int

    def __str__(self) -> str:
        return f"({self.y}, {self.z})"


@dataclass(frozen=True, slots=True)
class Extent:
    """Cells of a block along one axis, and how many of its two ends have a halo."""

    cells: int
    halos: int

    def held(self, depth: int) -> int:
        """Cells with the halos of ``depth`` steps."""
        return self.cells + self.halos * depth


@dataclass(frozen=True, slots=True)
class Part:
    """What one node owns, along z and y; ``x`` is never cut."""

    z: Extent
    y: Extent
    x: int
    item_bytes: int

    def updates(self, depth: int) -> int:
        """Cell updates of a sweep: step t covers the part and halos of ``depth - t`` cells."""
        first = depth * (depth - 1) // 2
        second = (depth - 1) * depth * (2 * depth - 1) // 6
        z, y = self.z, self.y
        once = z.cells * y.cells * depth
        return self.x * (
            once + (z.cells * y.halos + y.cells * z.halos) * first + z.halos * y.halos * second
        )

    def read_bytes(self, depth: int) -> int:
        """Bytes that a sweep reads, halos included."""
        return self.x * self.z.held(depth) * self.y.held(depth) * self.item_bytes

    @property
    def written_bytes(self) -> int:
        """Bytes that a sweep writes."""
        return self.x * self.z.cells * self.y.cells * self.item_bytes

    def sent_bytes(self, depth: int) -> tuple[int, int]:
        """Bytes of a message along z and along y; corners travel with the second."""
        along_z = self.x * depth * self.y.cells * self.item_bytes
        along_y = self.x * depth * self.z.held(depth) * self.item_bytes
        return along_z, along_y

    def exchanged_bytes(self, depth: int) -> int:
        """Bytes that the node sends before the next sweep, as many as it receives."""
        along_z, along_y = self.sent_bytes(depth)
        return self.z.halos * along_z + self.y.halos * along_y

    def blocks(self, core: tuple[int, int]) -> Iterator[Part]:
        """The part in blocks of ``core`` (z, y) cells; the node's ends have the node's halos."""
        for z, y in product(_blocks(self.z, core[0]), _blocks(self.y, core[1])):
            yield Part(z, y, self.x, self.item_bytes)

    def block_bytes(self, depth: int) -> int:
        """Two buffers of a block of this size that has halos on all sides."""
        wide = (self.z.cells + 2 * depth) * (self.y.cells + 2 * depth)
        return STATES * self.item_bytes * wide * (self.x + 2)

    def window_bytes(self, depth: int) -> int:
        """The window of a stream along z: two rings of planes."""
        planes = min(depth + SPARE_PLANES, self.z.held(depth))
        return STATES * self.item_bytes * planes * (self.y.held(depth) + 2) * (self.x + 2)


def _blocks(extent: Extent, core: int) -> list[Extent]:
    """Blocks of an extent: all have halos between each other; the last may be smaller."""
    low, high = extent.halos == 2, extent.halos > 0
    cells = [min(core, extent.cells - begin) for begin in range(0, extent.cells, core)]
    last = len(cells) - 1
    return [
        Extent(cell, (index > 0 or low) + (index < last or high))
        for index, cell in enumerate(cells)
    ]


def part_of(grid: GridSize, cut: Cut, at: tuple[int, int] | None = None) -> Part:
    """The part of the node at (z, y); of one amid the others where ``at`` is None.

    Extents are those of the largest part.
    """
    nz, ny, nx = grid.shape
    return Part(
        Extent(-(-nz // cut.z), _halos(cut.z, at[0] if at else None)),
        Extent(-(-ny // cut.y), _halos(cut.y, at[1] if at else None)),
        nx,
        grid.item_bytes,
    )


def _halos(count: int, index: int | None) -> int:
    if index is None:
        return min(2, count - 1)
    return (index > 0) + (index + 1 < count)


def disk_bytes(grid: GridSize, cut: Cut, depth: int) -> int:
    """What a node keeps on flash. All nodes keep halos at both ends of an axis that is cut."""
    nz, ny, nx = grid.shape
    z = -(-nz // cut.z) + 2 + (2 * depth if cut.z > 1 else 0)
    y = -(-ny // cut.y) + 2 + (2 * depth if cut.y > 1 else 0)
    return STATES * grid.item_bytes * (nx + 2) * y * z


def block_core(part: Part, depth: int, memory_bytes: int) -> tuple[int, int] | None:
    """Cells (z, y) of the largest block that memory holds: the longer edge is halved until it fits.

    None where even the smallest block, of edges of twice the depth, does not fit.
    """
    z, y = part.z.cells, part.y.cells
    while Part(Extent(z, 2), Extent(y, 2), part.x, part.item_bytes).block_bytes(depth) > (
        BUFFER_SHARE * memory_bytes
    ):
        if max(z, y) // 2 < 2 * depth:
            return None
        z, y = (-(-z // 2), y) if z >= y else (z, -(-y // 2))
    return z, y


@dataclass(frozen=True, slots=True)
class Choice:
    """A cut and a depth, what they take, and why.

    Seconds are those of all steps of a node amid the others; of ``stream`` they pass beside each
    other, of ``blocks`` one after the other. ``redundancy`` is updates over needed ones. ``block``
    (z, y) is as large as the part in a stream.
    """

    scheme: Scheme
    cut: Cut
    depth: int
    block: tuple[int, int]
    disk_bytes: int
    memory_bytes: int
    redundancy: float
    compute_seconds: float
    transfer_seconds: float
    exchange_seconds: float
    why: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Expected time of all steps."""
        parts = (self.compute_seconds, self.transfer_seconds, self.exchange_seconds)
        return max(parts) if self.scheme == "stream" else sum(parts)

    @property
    def bound_by(self) -> str:
        """The longest of the three."""
        seconds = {
            "compute": self.compute_seconds,
            "read+write": self.transfer_seconds,
            "exchange": self.exchange_seconds,
        }
        return max(seconds, key=lambda name: seconds[name])


def powers(steps: int) -> tuple[int, ...]:
    """1, 2, 4 ... up to ``steps``."""
    return tuple(1 << bit for bit in range(steps.bit_length()))


def choose(
    grid: GridSize,
    cluster: Cluster,
    scheme: Scheme = "stream",
    cuts: Sequence[Cut] = (),
    depths: Sequence[int] = (),
) -> Choice:
    """The cheapest of ``cuts`` (default: all) and ``depths`` (default: powers of two).

    Ties go to the shallower depth and to the cut with more parts along z, whose messages lie in one
    piece. Raises InfeasiblePlan, with what the shallowest sweep lacked, where nothing fits.
    """
    refused: list[str] = []
    choices: list[Choice] = []
    for cut in cuts or _cuts(cluster.count):
        for depth in depths or powers(grid.steps):
            priced = price(grid, cluster, cut, depth, scheme)
            if isinstance(priced, str):
                refused.append(priced)
            else:
                choices.append(priced)
    if not choices:
        raise InfeasiblePlan(
            f"no cut and depth fits {cluster.count} nodes: {refused[0]}; allow other cuts, "
            "or take nodes with more"
        )
    best = min(choices, key=lambda choice: (choice.seconds, choice.depth, -choice.cut.z))
    return _explained(best, choices, refused)


def _cuts(count: int) -> list[Cut]:
    return [Cut(count // z, z) for z in range(1, count + 1) if count % z == 0]


def price(
    grid: GridSize,
    cluster: Cluster,
    cut: Cut,
    depth: int,
    scheme: Scheme,
    block: tuple[int, int] | None = None,
) -> Choice | str:
    """What a cut and a depth take, or why they cannot be.

    Blocks have ``block`` cells (z, y), or as many as memory holds where it is None.
    """
    node, part = cluster.node, part_of(grid, cut)
    told = f"cut {cut}, depth {depth}"
    for axis, count, cells in (("z", cut.z, part.z.cells), ("y", cut.y, part.y.cells)):
        if count > 1 and cells < depth:
            return f"{told}: a part has {cells} cells along {axis}, fewer than its neighbour's halo"
    disk = disk_bytes(grid, cut, depth)
    if disk > node.disk_bytes:
        # Finer than elsewhere: a few tenths of a percent may decide.
        return f"{told}: {disk / GIB:.1f} GiB on flash, of {node.disk_bytes / GIB:.1f} GiB"
    if scheme == "blocks":
        core = block or block_core(part, depth, node.memory_bytes)
        if core is None:
            return f"{told}: no block fits {format_bytes(node.memory_bytes)} of memory"
        blocks = list(part.blocks(core))
        largest = Part(Extent(core[0], 2), Extent(core[1], 2), part.x, part.item_bytes)
        memory = largest.block_bytes(depth)
    else:
        core, blocks = (part.z.cells, part.y.cells), [part]
        along_z, along_y = part.sent_bytes(depth)
        # Sent and received planes of MPI: two slabs for each neighbour and way.
        exchanged = part.z.halos * along_z // max(1, depth) + part.y.halos * along_y // max(
            1, part.z.held(depth)
        )
        memory = part.window_bytes(depth) + 16 * exchanged
        if memory > node.memory_bytes:
            return (
                f"{told}: a window of {format_bytes(memory)} in {format_bytes(node.memory_bytes)}"
            )
    sweeps = grid.steps / depth
    halo = part.exchanged_bytes(depth)
    updates = sum(block.updates(depth) for block in blocks)
    read = sum(block.read_bytes(depth) for block in blocks)
    transfer = read / node.read_bandwidth + (part.written_bytes) / node.write_bandwidth
    exchange = halo / node.network.bandwidth + 2 * node.network.latency_seconds
    # Halos lie on flash too: received ones are written, and in blocks those to send are read.
    stored = halo / node.write_bandwidth
    if scheme == "blocks":
        computing = updates / node.updates_per_second
        exchange += stored + halo / node.read_bandwidth
    else:
        computing = node.busy_seconds(part, depth)
        transfer += stored
    return Choice(
        scheme,
        cut,
        depth,
        core,
        disk,
        memory,
        updates / (part.z.cells * part.y.cells * part.x * depth),
        sweeps * computing,
        sweeps * transfer,
        sweeps * exchange,
    )


def _explained(best: Choice, choices: Sequence[Choice], refused: Sequence[str]) -> Choice:
    """``best`` with the reason against the next deeper sweep and against the next best cut."""
    why = [
        f"cut {best.cut}, depth {best.depth}: {format_bytes(best.disk_bytes)} on flash, "
        f"{best.redundancy:.3f} of the needed updates, bound by {best.bound_by}"
    ]
    mine = [choice for choice in choices if choice.cut == best.cut and choice.depth > best.depth]
    if mine:
        slower = min(mine, key=lambda choice: choice.depth)
        why.append(f"depth {slower.depth} takes {slower.seconds / best.seconds:.2f} times as long")
    why += [text for text in refused if text.startswith(f"cut {best.cut}, ")][:1]
    others = [choice for choice in choices if choice.cut != best.cut]
    if others:
        next_best = min(others, key=lambda choice: choice.seconds)
        why.append(
            f"cut {next_best.cut}, depth {next_best.depth} takes "
            f"{next_best.seconds / best.seconds:.2f} times as long"
        )
    return replace(best, why=tuple(why))
