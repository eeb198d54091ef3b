"""Runs beyond the memory of many nodes, simulated by discrete events.

Every node is a few processes that wait for each other, for their flash and for messages, with the
counts of `outgrid_bench.cluster`. What takes time: updates, bytes from and to flash (one at a
time), bytes of messages (one at a time from each node, then a latency), and in a stream what bytes
take of the cores beside the updates. What is left out: switches between nodes, the initial fill and
the export of results.

``spread`` is the only thing left to chance: the relative standard deviation of how fast a node
goes, drawn anew for each block (of a stream: each sweep) from a generator that begins with
``seed``.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import astuple, dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

from outgrid_bench.cluster import Choice, Cluster, Cut, GridSize, Part, part_of

if TYPE_CHECKING:
    import simpy

__all__ = ["ACTIVITIES", "Simulated", "Times", "simulate"]

Steps = Generator[Any, Any, None]
Direction = Literal["upward", "opposite"]
Where = tuple[int, int]
Costs = list[tuple[float, float, float]]

ACTIVITIES = ("compute", "get", "put", "exchange", "agree")
MOST_CHUNKS = 16  # of a sweep of a stream: events per sweep against how finely messages are cut
AHEAD = 3  # chunks of a window that are being read, computed or written
LEAST_SPEED = 0.2


@dataclass(slots=True)
class Times:
    """Seconds of one node, by what it did or waited for.

    Of those of ``get`` and ``put``, ``beside`` went to waiting within updates, for a half of a
    block that moved while the other one was updated.
    """

    compute: float = 0.0
    get: float = 0.0
    put: float = 0.0
    exchange: float = 0.0
    agree: float = 0.0
    beside: float = 0.0


@dataclass(frozen=True, slots=True)
class Simulated:
    """Seconds of all sweeps, and of each node by activity."""

    seconds: float
    nodes: tuple[Times, ...]

    def mean(self, activity: str) -> float:
        """Seconds of an activity, the mean over nodes."""
        return sum(getattr(node, activity) for node in self.nodes) / len(self.nodes)

    def share(self, *activities: str) -> float:
        """The part of all seconds that went into activities."""
        return sum(map(self.mean, activities)) / self.seconds


@dataclass
class _Run:
    """What all nodes share: the clock, mailboxes, and who has come to the barrier."""

    env: simpy.Environment
    choice: Choice
    cluster: Cluster
    sweeps: int
    spread: float
    chance: random.Random
    cores: simpy.Resource | None = None
    came: dict[object, simpy.Event] = field(default_factory=dict[object, "simpy.Event"])
    waiting: dict[int, int] = field(default_factory=dict[int, int])

    def event(self, key: object) -> simpy.Event:
        """What others wait for under a name."""
        if key not in self.came:
            self.came[key] = self.env.event()
        return self.came[key]

    def agree(self, sweep: int) -> simpy.Event:
        """One more node is done with a sweep; the event is that all are."""
        self.waiting[sweep] = self.waiting.get(sweep, 0) + 1
        done = self.event(("agree", sweep))
        if self.waiting[sweep] == self.cluster.count:
            done.succeed()
        return done

    def updates(self, seconds: float) -> Steps:
        """Have a core for so long."""
        if self.cores is None:
            yield self.env.timeout(seconds)
            return
        mine: Any = self.cores.request()
        with mine:
            yield mine
            yield self.env.timeout(seconds)

    def slowness(self) -> float:
        """A factor of time, 1 on the average."""
        return max(LEAST_SPEED, self.chance.gauss(1.0, self.spread)) if self.spread else 1.0


@dataclass
class _Node:
    run: _Run
    at: Where
    part: Part
    times: Times = field(default_factory=Times)

    def __post_init__(self) -> None:
        import simpy

        self.disk = simpy.Resource(self.run.env)
        self.wire = simpy.Resource(self.run.env)

    def blocks(self) -> Costs:
        """Seconds of each block: updates, reading, writing."""
        depth, machine = self.run.choice.depth, self.run.cluster.node
        return [
            (
                block.updates(depth) / machine.updates_per_second,
                block.read_bytes(depth) / machine.read_bandwidth,
                block.written_bytes / machine.write_bandwidth,
            )
            for block in self.part.blocks(self.run.choice.block)
        ]

    def transfer(self, seconds: float) -> Steps:
        """Have the flash for so long."""
        # SimPy's own types are incomplete.
        mine: Any = self.disk.request()
        with mine:
            yield mine
            yield self.run.env.timeout(seconds)

    def send(self, nbytes: float, key: object) -> Steps:
        """A message; ``key`` has come when all of it is with the receiver."""
        network = self.run.cluster.node.network
        mine: Any = self.wire.request()
        with mine:
            yield mine
            yield self.run.env.timeout(nbytes / network.bandwidth)
        yield self.run.env.timeout(network.latency_seconds)
        self.run.event(key).succeed()

    def neighbours(self) -> list[tuple[str, Where]]:
        """Side and place of each, sides as seen from here."""
        (z, y), cut = self.at, self.run.choice.cut
        every = [("z-", (z - 1, y)), ("z+", (z + 1, y)), ("y-", (z, y - 1)), ("y+", (z, y + 1))]
        return [(side, at) for side, at in every if 0 <= at[0] < cut.z and 0 <= at[1] < cut.y]

    def timed(self, activity: str, began: float, *, beside: bool = False) -> None:
        """Count what has passed since ``began``, also as a wait ``beside`` updates."""
        passed = self.run.env.now - began
        setattr(self.times, activity, getattr(self.times, activity) + passed)
        self.times.beside += beside * passed


def simulate(
    grid: GridSize,
    cluster: Cluster,
    choice: Choice,
    *,
    spread: float = 0.0,
    direction: Direction = "opposite",
    most_sweeps: int | None = None,
    seed: int = 1,
) -> Simulated:
    """Simulate what was chosen; of more than ``most_sweeps`` sweeps so many, and scale.

    ``direction`` says whether neighbours of a stream along z go the same way. Raises ImportError
    without SimPy.
    """
    import simpy

    sweeps = max(1, round(grid.steps / choice.depth))
    made = min(sweeps, most_sweeps or sweeps)
    env = simpy.Environment()
    run = _Run(env, choice, cluster, made, spread, random.Random(seed))
    if cluster.cores is not None:
        run.cores = simpy.Resource(env, cluster.cores)
    places = product(range(choice.cut.z), range(choice.cut.y))
    parts: dict[Where, Part] = {}  # there are nine kinds
    nodes: list[_Node] = []
    for at in places:
        kind = _kind(at, choice.cut)
        part = parts.setdefault(kind, part_of(grid, choice.cut, at))
        nodes.append(_Node(run, at, part))
    for node in nodes:
        if choice.scheme == "blocks" and cluster.node.ahead:
            env.process(_ahead(node))
        elif choice.scheme == "blocks":
            env.process(_blocks(node))
        else:
            mirrored = direction == "opposite" and node.at[0] % 2 == 1
            _Stream(node, mirrored).start()
    env.run()
    scale = sweeps / made
    scaled = tuple(Times(*(seconds * scale for seconds in astuple(node.times))) for node in nodes)
    return Simulated(env.now * scale, scaled)


def _kind(at: Where, cut: Cut) -> Where:
    z, y = at
    return 2 * (z > 0) + (z + 1 < cut.z), 2 * (y > 0) + (y + 1 < cut.y)


def _ahead(node: _Node) -> Steps:
    """As runs of outgrid have it: blocks are read ahead and written behind, both at once."""
    import simpy

    run, env = node.run, node.run.env
    for sweep in range(run.sweeps):
        blocks = node.blocks()
        credit = simpy.Container(env, init=1 + run.cluster.node.ahead)
        ready, done = simpy.Store(env), simpy.Store(env)

        def reads(blocks: Costs = blocks, credit: Any = credit, ready: Any = ready) -> Steps:
            for _, read, _ in blocks:
                yield credit.get(1)
                yield env.timeout(read)
                ready.put(None)

        def writes(blocks: Costs = blocks, done: Any = done) -> Steps:
            for _, _, write in blocks:
                yield done.get()
                yield env.timeout(write)

        env.process(reads())
        writer = env.process(writes())
        for compute, _, _ in blocks:
            began = env.now
            yield ready.get()
            node.timed("get", began)
            began = env.now
            yield from run.updates(run.slowness() * compute)
            node.timed("compute", began)
            credit.put(1)
            done.put(None)
        began = env.now
        yield writer
        node.timed("put", began)
        yield from _exchange(node, sweep)
        began = env.now
        yield run.agree(sweep)
        node.timed("agree", began)


def _blocks(node: _Node) -> Steps:
    """Read half of a block, step it while the other comes; write one half beside the last step."""
    run, env = node.run, node.run.env
    depth = run.choice.depth
    blocks = node.blocks()
    for sweep in range(run.sweeps):
        for compute, read, write in blocks:
            slow = run.slowness()
            half_step = slow * compute / depth / 2
            began = env.now
            yield env.timeout(slow * read / 2)
            node.timed("get", began)
            rest = env.process(node.transfer(slow * read / 2))
            began = env.now
            yield env.timeout(half_step)
            node.timed("compute", began)
            began = env.now
            yield rest
            node.timed("get", began, beside=True)
            began = env.now
            yield env.timeout(slow * compute - 2 * half_step)
            first = env.process(node.transfer(slow * write / 2))
            yield env.timeout(half_step)
            node.timed("compute", began)
            began = env.now
            yield first
            node.timed("put", began, beside=True)
            began = env.now
            yield env.timeout(slow * write / 2)
            node.timed("put", began)
        yield from _exchange(node, sweep)
        began = env.now
        yield run.agree(sweep)
        node.timed("agree", began)


def _exchange(node: _Node, sweep: int) -> Steps:
    """Halos along z, then along y with their corners: from flash, over the network, to flash."""
    run, env, machine = node.run, node.run.env, node.run.cluster.node
    sizes = dict(zip("zy", node.part.sent_bytes(run.choice.depth), strict=True))
    began = env.now
    for axis in "zy":
        peers = [(side, at) for side, at in node.neighbours() if side[0] == axis]
        for _, at in peers:
            yield env.timeout(sizes[axis] / machine.read_bandwidth)
            env.process(node.send(sizes[axis], (sweep, axis, node.at, at)))
        for _, at in peers:
            yield run.event((sweep, axis, at, node.at))
            yield env.timeout(sizes[axis] / machine.write_bandwidth)
    node.timed("exchange", began)


class _Stream:
    """One trip after the other: a reader, the updates, and a writer, in chunks of planes.

    Planes of a face are final as many planes after the front as the sweep is deep; a face goes in
    as many pieces as it has chunks. Halos that were received are written beside all else and read
    with their chunk. The writer waits before it overwrites a state until all nodes have left it.
    """

    def __init__(self, node: _Node, mirrored: bool) -> None:
        import simpy

        self.node, self.mirrored = node, mirrored
        run, machine, depth = node.run, node.run.cluster.node, node.run.choice.depth
        # All nodes cut their faces alike, so the count comes from a part amid the others.
        inner = node.part.z.cells + 2 * depth
        self.pieces = max(1, min(2, depth * MOST_CHUNKS // inner))
        self.chunks = max(4 * self.pieces, min(MOST_CHUNKS, inner * self.pieces // depth))
        self.compute = machine.busy_seconds(node.part, depth) / self.chunks
        self.read = node.part.read_bytes(depth) / machine.read_bandwidth / self.chunks
        self.write = node.part.written_bytes / machine.write_bandwidth / self.chunks
        along_z, along_y = node.part.sent_bytes(depth)
        self.sizes = {"z": along_z / self.pieces, "y": along_y / self.chunks}
        self.credit = simpy.Container(run.env, init=AHEAD)
        self.ready: simpy.Store = simpy.Store(run.env)
        self.done: simpy.Store = simpy.Store(run.env)
        self.made, self.wanted = self._messages()
        self.halted = self.ended = 0.0

    def start(self) -> None:
        """Set the three going."""
        for activity in (self._reads(), self._updates(), self._writes()):
            self.node.run.env.process(activity)

    def _messages(self) -> tuple[dict[int, list[Any]], dict[int, list[Any]]]:
        """By chunk: (axis, peer, piece) that can be sent after it, and that must have come."""
        made: dict[int, list[Any]] = {}
        wanted: dict[int, list[Any]] = {}
        last = self.chunks - 1
        for side, at in self.node.neighbours():
            if side[0] == "y":
                for chunk in range(self.chunks):
                    made.setdefault(chunk, []).append(("y", at, chunk))
                    wanted.setdefault(chunk, []).append(("y", at, chunk))
                continue
            begins = (side == "z-") != self.mirrored  # the stream begins at this face
            for piece in range(self.pieces):
                local = self.pieces - 1 - piece if self.mirrored else piece
                tail = self.chunks - self.pieces + local
                head = min(last, 2 * self.pieces + local)
                made.setdefault(head if begins else tail, []).append(("z", at, piece))
                wanted.setdefault(local if begins else tail, []).append(("z", at, piece))
        return made, wanted

    def _reads(self) -> Steps:
        node, run, env = self.node, self.node.run, self.node.run.env
        for sweep in range(run.sweeps):
            for chunk in range(self.chunks):
                waits = Times()
                began, halted = env.now, self.halted
                yield self.credit.get(1)
                waits.agree = min(env.now - began, self.halted - halted)
                waits.put = env.now - began - waits.agree
                began = env.now
                for axis, at, piece in self.wanted.get(chunk, []) if sweep else []:
                    yield run.event(("stored", (sweep - 1, axis, at, node.at, piece)))
                waits.exchange = env.now - began
                yield from node.transfer(self.read)
                self.ready.put(waits)

    def _updates(self) -> Steps:
        node, run, env = self.node, self.node.run, self.node.run.env
        for sweep in range(run.sweeps):
            slow = run.slowness()
            for chunk in range(self.chunks):
                began = env.now
                waits = yield self.ready.get()
                self._blame(env.now - began, waits)
                began = env.now
                yield env.timeout(slow * self.compute)
                node.timed("compute", began)
                for axis, at, piece in self.made.get(chunk, []):
                    env.process(self._deliver(self.sizes[axis], (sweep, axis, node.at, at, piece)))
                self.done.put(None)
        self.ended = env.now

    def _blame(self, seconds: float, waits: Times) -> None:
        """Count what the updates waited, by what the reader had waited for; the rest is reading."""
        times = self.node.times
        for name in ("exchange", "agree", "put"):
            part = min(seconds, getattr(waits, name))
            setattr(times, name, getattr(times, name) + part)
            seconds -= part
        times.get += seconds

    def _deliver(self, nbytes: float, key: tuple[Any, ...]) -> Steps:
        """A message, and its way into the receiver's file.

        All nodes are alike, so the time on the receiver's flash is taken on the sender's.
        """
        node, run = self.node, self.node.run
        yield from node.send(nbytes, key)
        yield from node.transfer(nbytes / run.cluster.node.write_bandwidth)
        run.event(("stored", key)).succeed()

    def _writes(self) -> Steps:
        node, run, env = self.node, self.node.run, self.node.run.env
        for sweep in range(run.sweeps):
            for _ in range(self.chunks):
                yield self.done.get()
                began = env.now
                if sweep:
                    yield run.event(("agree", sweep - 1))
                self.halted += env.now - began
                yield from node.transfer(self.write)
                yield self.credit.put(1)
            run.agree(sweep)
        node.timed("put", self.ended)
        began = env.now
        yield run.event(("agree", run.sweeps - 1))
        node.timed("agree", began)
