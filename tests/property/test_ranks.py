"""Programs of several ranks, obeyed side by side in random orders with messages that take time."""

import random
from functools import cache, partial
from itertools import chain, product

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.errors import UnsatisfiedAssumption
from msgspec.structs import replace

from outgrid.build.compiler import build, find_compiler
from outgrid.codegen.kernel import generate
from outgrid.config import RunOptions
from outgrid.definition import stencil
from outgrid.errors import InfeasiblePlan
from outgrid.execute.fill import InitialValues, fill
from outgrid.execute.kernel import Kernel
from outgrid.execute.moves import Hierarchy
from outgrid.execute.streaming import Callbacks, stream
from outgrid.execute.window import Window
from outgrid.machine import Network
from outgrid.observe.points import Points
from outgrid.plan.ending import ended
from outgrid.plan.program import Advance, Commit, Get, Point, Put, Receive, Send, program
from outgrid.plan.ranks import Ranks, plan_rank
from outgrid.runs.seals import level_name
from outgrid.stencil.boundary import boundary_of
from outgrid.stencil.catalog import resolve
from outgrid.stencil.model import Reduction
from outgrid.stencil.problem import Problem
from outgrid.storage import MemoryStore
from outgrid.testing import counting
from outgrid.testing.counting import check_ranks, count
from outgrid.testing.machine import MACHINE
from outgrid.testing.orders import caught_in_some_order
from outgrid.testing.stores import Shuffled
from outgrid.testing.strategies import problems, run_options, stencils
from outgrid.testing.threads import in_threads

FIXED_BYTES = 1 << 20
NETWORK = Network(1e9, 1e-5)
SEEDS = st.integers(0, 2**32 - 1)


@stencil
def staggered(e, h, c, *, k):
    """Two stages, each field in place."""
    return [
        {"h": h + k * c * (e[1, 0, 0] - e + e[0, 2, 0] - e[0, -1, 1])},
        {"e": e + k * (h - h[-1, 0, 0] + h[0, 1, 0])},
    ]


AROUND = ["dirichlet", {"x": "periodic", "y-": "neumann", "y+": "mirror"}]
KNOWN = problems(
    st.sampled_from(
        [
            resolve("heat5").trace(2),
            staggered.trace(3),
        ]
    ),
    around=st.sampled_from(AROUND).map(lambda each: boundary_of(each, None)),
)
ANY = problems(with_arrays=False, rules=stencils(largest_radius=2))
STILL = problems(st.sampled_from([resolve("heat5").trace(2), resolve("heat7").trace(3)]))
LONG = problems(with_arrays=False, rules=stencils(largest_radius=2), most_planes=90)
LONG_KNOWN = problems(
    st.sampled_from([resolve("heat5").trace(2), staggered.trace(3), resolve("wave:4").trace(2)]),
    around=st.sampled_from(AROUND).map(lambda each: boundary_of(each, None)),
    most_planes=90,
    most_cells=8,
)


def watched(rule):
    """A rule with a number over the grid that a run may end by."""
    first, *others = rule.stages
    most = Reduction("most", "max", first.assignments[0].expression)
    return replace(rule, stages=(replace(first, reductions=(most,)), *others))


@st.composite
def ending(draw, most_planes):
    """Problems that may end every few steps."""
    rules = [resolve("heat5").trace(2), staggered.trace(3), resolve("wave:4").trace(2)]
    around = st.sampled_from(AROUND).map(lambda each: boundary_of(each, None))
    found = draw(
        problems(
            st.sampled_from([watched(rule) for rule in rules]),
            around=around,
            most_planes=most_planes,
            most_cells=8,
            dtypes={},
        )
    )
    until = {"reduction": "most", "every": draw(st.integers(1, 5)), "above": 1e300}
    return with_steps(found, found.steps, until)


def with_steps(problem, steps, until=None):
    """The first steps of a problem, and when they may end."""
    parameters = {
        name: value[:steps] if isinstance(value, tuple) else value
        for name, value in problem.parameters.items()
    }
    given = (problem.stencil, problem.shape, problem.dtype, steps, parameters, problem.boundary)
    return Problem(*given, problem.initial, until=until)


@cache
def library_of(rule, dtype, edges, apart):
    return build(generate(rule, dtype, edges, dict(apart)), find_compiler())


def kernel_of(problem):
    apart = tuple(problem.dtypes.items())
    library = library_of(problem.stencil, problem.dtype, problem.edges, apart)
    return Kernel.of(library, problem, points=Points.of(problem))


def cuts_of(extent, parts):
    """Where an axis is cut into parts of any size, some of them thinner than a halo."""
    inside = st.integers(1, max(1, extent - 1))
    cuts = st.lists(inside, min_size=parts - 1, max_size=parts - 1, unique=True)
    return cuts.map(lambda each: tuple(sorted(each)))


@st.composite
def cut_problems(draw, drawn=ANY):
    """A problem, options, and the plans of some ranks."""
    problem = draw(drawn)
    assume(not problem.edges.periodic(0))
    along, across = draw(st.sampled_from([(1, 1), (2, 1), (3, 1), (5, 1), (1, 3), (2, 2), (3, 2)]))
    rows = problem.shape[1] if problem.ndim == 3 and not problem.edges.periodic(1) else 1
    across = min(across, rows)
    assume(along <= problem.shape[0])
    cuts = draw(cuts_of(problem.shape[0], along)) if draw(st.booleans()) else ()
    row_cuts = draw(cuts_of(rows, across)) if across > 1 or cuts else ()
    exchange = draw(st.sampled_from(["auto", "halos"]))
    named = {"cuts": cuts, "row_cuts": row_cuts, "exchange": exchange}
    options = draw(run_options(problem, tier="direct", strip_rows=None, **named))
    assume(options.scheme != "overlapped")
    return problem, options, plans_of(problem, options, along * across)


@st.composite
def block_problems(draw, drawn=ANY):
    """The same with blocks of any size on each rank."""
    problem = draw(drawn)
    assume(not problem.edges.periodic(0))
    along, across = draw(st.sampled_from([(1, 1), (2, 1), (3, 1), (5, 1), (1, 3), (2, 2), (3, 2)]))
    rows = problem.shape[1] if problem.ndim == 3 and not problem.edges.periodic(1) else 1
    across = min(across, rows)
    assume(along <= problem.shape[0])
    cuts = draw(cuts_of(problem.shape[0], along)) if draw(st.booleans()) else ()
    row_cuts = draw(cuts_of(rows, across)) if across > 1 or cuts else ()
    depth = draw(st.none() | st.integers(1, 6))
    given = {"scheme": "overlapped", "depth": depth, "cuts": cuts, "row_cuts": row_cuts}
    interior = [len(inside) for inside in problem.interior]
    edges = [draw(st.integers(1, extent + 3)) for extent in interior[:-1]]
    given["block"] = [*edges, interior[-1]]
    options = RunOptions.of(memory="1GiB", tier="direct", **given)
    return problem, options, plans_of(problem, options, along * across)


@st.composite
def seam_problems(draw, drawn=LONG):
    """The same where nothing is to be computed twice; cuts are uneven where that goes."""
    problem = draw(drawn)
    assume(not problem.edges.periodic(0))
    count = draw(st.integers(2, 6))
    assume(count < problem.shape[0])
    options = draw(run_options(problem, tier="direct", strip_rows=None, exchange="seams"))
    assume(options.scheme != "overlapped")
    depth = draw(st.none() | st.integers(1, 6))
    if draw(st.booleans()):
        cuts = draw(cuts_of(problem.shape[0], count))
        cut = msgspec.structs.replace(options, depth=depth, cuts=cuts)
        try:
            return problem, cut, plans_of(problem, cut, count)
        except UnsatisfiedAssumption:
            depth = draw(st.none() | st.just(1))
    options = msgspec.structs.replace(options, depth=depth)
    return problem, options, plans_of(problem, options, count)


def plans_of(problem, options, count):
    """The plans of all ranks."""
    try:
        return [
            plan_rank(problem, options, MACHINE, FIXED_BYTES, Ranks(rank, count, NETWORK))
            for rank in range(count)
        ]
    except InfeasiblePlan:
        assume(False)
        raise


@given(st.one_of(cut_problems(), seam_problems(), block_problems()), SEEDS)
def test_ranks_in_any_order_keep_every_rule(drawn, seed):
    problem, _, plans = drawn
    totals = check_ranks(plans, problem.stencil, random.Random(seed))
    for plan, total in zip(plans, totals, strict=True):
        assert total == count(plan)
        assert (total.read_bytes, total.written_bytes) == (
            plan.volume.read_bytes,
            plan.volume.written_bytes,
        )
        assert (total.sent_bytes, total.received_bytes) == (
            plan.volume.sent_bytes,
            plan.volume.received_bytes,
        )
    assert sum(plan.work.updates for plan in plans) == problem.updates
    assert len({plan.schedule.depths for plan in plans}) == 1
    rows = problem.shape[1] if problem.ndim == 3 else 1
    if plans[0].schedule.subgrid.seams:
        assert sum(total.row_updates for total in totals) == problem.shape[0] * rows * problem.steps
    owned = np.zeros((problem.shape[0], rows), int)
    for plan in plans:
        owned[place(plan.schedule.subgrid.owned)] += 1
    assert (owned == 1).all()


@given(seam_problems())
def test_every_plane_of_a_step_is_made_by_who_owns_it_or_takes_a_seam_there(drawn):
    problem, _, plans = drawn
    for step, stage in product(range(1, problem.steps + 1), range(len(problem.stencil.stages))):
        found = []
        for plan in plans:
            schedule, made = plan.schedule, plan.schedule.made(step, stage)
            cuts = [cut for _, cut in schedule.cutting.between_ranks(schedule.depth)]
            takes = [schedule.subgrid.of(cut.peer) for cut in cuts if not cut.given]
            there = [subgrid.owned.planes for subgrid in (schedule.subgrid, *takes)]
            assert {*made} <= {*chain(*there)}
            found += made
        assert sorted(found) == [*range(problem.shape[0])]


def place(box, origin=(0, 0)):
    """A box as an index of arrays that begin at ``origin``."""
    return tuple(
        slice(cells.start - low, cells.stop - low)
        for cells, low in zip((box.planes, box.rows), origin, strict=True)
    )


class EndsAfter:
    """Ends a run on several ranks after some sweeps, once all have said that they are there."""

    def __init__(self, problem, plan, comm, sweeps):
        self.problem, self.plan, self.comm, self.sweeps = problem, plan, comm, sweeps

    def seen(self, sweeps):
        return bytes([sweeps, self.comm.rank])

    def ending(self, sweeps, seen):
        assert seen == [bytes([sweeps, rank]) for rank in range(self.comm.size)]
        return ended(self.plan, self.problem, sweeps) if sweeps == self.sweeps else None


def across_ranks(problem, options, count, seed, sweeps=None):
    """The final fields of a run whose ranks are threads of this process, after all ``sweeps``."""
    kernel = kernel_of(problem)
    found = in_threads(
        lambda comm: one_rank(problem, options, kernel.after(problem), comm, seed, sweeps),
        count,
        random.Random(seed),
    )
    whole = {name: np.empty(problem.shape, part.dtype) for name, part in found[0][1].items()}
    for owned, parts in found:
        for name, values in parts.items():
            whole[name][place(owned)[: problem.ndim - 1]] = values
    return whole


def one_rank(problem, options, kernel, comm, seed, sweeps=None):
    ranks = Ranks(comm.rank, comm.size, NETWORK)
    plan = plan_rank(problem, options, MACHINE, FIXED_BYTES, ranks)
    held = plan.schedule.stored.held(plan.depth)
    with Shuffled(seed + comm.rank) as transfers:
        stores = {
            (each.field, each.level, parity): MemoryStore.create(
                each.field, plan.schedule.stored.shape, problem.dtype_of(each.field), transfers
            )
            for each in plan.schedule.arrivals
            for parity in (0, 1)
        }
        fill(
            InitialValues(problem, held),
            plan.schedule.arrivals,
            lambda a: stores[a.field, a.level, 0],
            transfers,
        )
        seams = {
            key: MemoryStore.create(key[0], shape, problem.dtype_of(key[0]), transfers)
            for key, shape in plan.schedule.places.items()
        }
        window, states = Window(plan), []
        tally = stream(
            plan,
            kernel,
            Hierarchy(window, stores, transfers, seams),
            Callbacks(
                states.append,
                until=EndsAfter(problem, plan, comm, sweeps) if sweeps is not None else None,
            ),
            comm=comm,
        )
        window.release()
    if sweeps is not None and sweeps < plan.sweeps:
        plan = ended(plan, problem, sweeps)
    assert states == [Point(state) for state in range(1, plan.sweeps + 1)]
    moved = (tally.written_bytes, tally.sent_bytes, tally.received_bytes)
    assert moved == (plan.volume.written_bytes, plan.volume.sent_bytes, plan.volume.received_bytes)
    if sweeps is None:
        assert (tally.read_bytes, tally.row_updates) == (
            plan.volume.read_bytes,
            plan.schedule.row_updates,
        )
    owned = plan.schedule.subgrid.owned
    mine = place(owned, (held.planes.start, held.rows.start))[: problem.ndim - 1]
    return owned, {
        level_name(each): stores[each.field, each.level, plan.sweeps % 2].array[mine].copy()
        for each in plan.schedule.departures
    }


@settings(max_examples=settings.default.max_examples // 4)
@given(st.one_of(cut_problems(KNOWN), seam_problems(LONG_KNOWN), block_problems(STILL)), SEEDS)
def test_threads_as_ranks_give_the_bytes_of_one(drawn, seed):
    problem, options, plans = drawn
    found = across_ranks(problem, options, len(plans), seed)
    uncut = msgspec.structs.replace(options, cuts=(), row_cuts=())
    alone = across_ranks(problem, uncut, 1, seed)
    for name, values in alone.items():
        bits = f"u{values.itemsize}"
        assert (found[name].view(bits) == values.view(bits)).all(), name


@settings(max_examples=settings.default.max_examples // 4)
@given(st.one_of(cut_problems(ending(48)), seam_problems(ending(90))), SEEDS, st.data())
def test_threads_as_ranks_end_together(drawn, seed, data):
    problem, options, plans = drawn
    depths = plans[0].schedule.depths
    assume(depths)
    sweeps = data.draw(st.integers(1, len(depths)))
    found = across_ranks(problem, options, len(plans), seed, sweeps)
    uncut = msgspec.structs.replace(options, cuts=(), row_cuts=(), depth=None)
    alone = across_ranks(with_steps(problem, sum(depths[:sweeps])), uncut, 1, seed)
    for name, values in alone.items():
        bits = f"u{values.itemsize}"
        assert (found[name].view(bits) == values.view(bits)).all(), name


@given(st.one_of(cut_problems(ending(48)), seam_problems(ending(90))))
def test_nothing_leaves_for_other_ranks_before_the_sweep_before_is_computed(drawn):
    """So that a rank may wait with it until it is known that the run goes on."""
    for plan in drawn[2]:
        sent = 0
        for each in program(plan):
            if isinstance(each, Advance):
                assert all(part.trip.sweep >= sent for part in each.parts)
            elif isinstance(each, Send):
                assert each.trip.sweep >= sent
                sent = each.trip.sweep


def seamed(name, depth):
    """A problem, and the plans of four ranks that leave seams."""
    rule = resolve(name).trace(2)
    initial = {field.name: 0.0 for field in rule.fields}
    parameters = dict.fromkeys(rule.parameters, 0.1)
    problem = Problem(rule, (72, 5), "float64", 4 * depth, parameters, initial=initial)
    given = {"depth": depth, "slab_planes": 2, "exchange": "seams"}
    return problem, plans_of(problem, RunOptions.of(memory="1GiB", tier="direct", **given), 4)


def caught(problem, plans) -> bool:
    """Whether the check finds in one of 6 random orders that a rule was broken."""
    return caught_in_some_order(partial(check_ranks, plans, problem.stencil), 6)


@pytest.mark.parametrize(
    ("kind", "mark", "case"),
    [
        (Get, "received", ("heat5", 2)),
        (Receive, "got", ("heat5", 2)),
        (Receive, "committed", ("heat5", 2)),
        (Commit, "received", ("heat5", 2)),
        (Send, "advanced", ("heat5", 2)),
        (Advance, "sent", ("heat5", 3)),
        (Put, "committed", ("wave:2", 2)),
        (None, "", ("heat5", 2)),
        (None, "", ("heat5", 3)),
        (None, "", ("wave:2", 2)),
    ],
)
def test_a_gate_between_ranks_that_is_removed_is_noticed(kind, mark, case, monkeypatch):
    problem, plans = seamed(*case)

    def without(plan):
        for each in program(plan):
            removed = kind is not None and isinstance(each, kind)
            yield replace(each, gate=replace(each.gate, **{mark: 0})) if removed else each

    monkeypatch.setattr(counting, "program", without)
    assert caught(problem, plans) == (kind is not None)


@pytest.mark.parametrize("end", ["low", "high"])
def test_a_seam_that_lacks_a_plane_is_noticed(end):
    problem, plans = seamed("heat5", 2)
    short = {"low": 1} if end == "low" else {"high": -1}

    def without(seam):
        stairs = (
            replace(stair, **{key: getattr(stair, key) + by for key, by in short.items()})
            for stair in seam.stairs
        )
        return replace(seam, stairs=tuple(stairs))

    def spoil(plan):
        seams = tuple(map(without, plan.schedule.seams))
        return replace(plan, schedule=replace(plan.schedule, seams=seams))

    spoilt = [*map(spoil, plans)]
    # The other end of the same planes is the near one of those that stream the other way.
    assert caught(problem, spoilt)
