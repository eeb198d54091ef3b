"""Programs of several ranks, obeyed side by side in random orders with messages that take time."""

import random
import threading
from functools import cache

import msgspec
import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from outgrid.build.compiler import build, find_compiler
from outgrid.codegen.kernel import generate
from outgrid.comm.threads import Aborted, Threads
from outgrid.errors import InfeasiblePlan
from outgrid.execute.counting import check_ranks, count
from outgrid.execute.fill import fill
from outgrid.execute.kernel import Kernel
from outgrid.execute.points import Points
from outgrid.execute.state import level_name
from outgrid.execute.streaming import stream
from outgrid.execute.window import Window
from outgrid.machine import Machine, Network
from outgrid.plan.instruction import Point
from outgrid.plan.ranks import Ranks, plan_rank
from outgrid.stencil.boundary import boundary_of
from outgrid.stencil.catalog import resolve
from outgrid.stencil.definition import stencil
from outgrid.storage import MemoryStore
from outgrid.testing.stores import Shuffled
from outgrid.testing.strategies import problems, run_options, stencils

FIXED_BYTES = 1 << 20
MACHINE = Machine(2, 1 << 34, 1 << 20, 1 << 25, 2e10, 1e9, 1e9, False, "", "", "", "")
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


@cache
def library_of(rule, dtype, edges, apart):
    return build(generate(rule, dtype, edges, dict(apart)), find_compiler())


def kernel_of(problem):
    apart = tuple(problem.dtypes.items())
    library = library_of(problem.stencil, problem.dtype, problem.edges, apart)
    return Kernel(library, problem.parameter_table(), Points.of(problem))


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
    named = {"cuts": cuts, "row_cuts": row_cuts}
    options = draw(run_options(problem, tier="direct", strip_rows=None, **named))
    assume(options.scheme != "overlapped")
    count = along * across
    try:
        plans = [
            plan_rank(problem, options, MACHINE, FIXED_BYTES, Ranks(rank, count, NETWORK))
            for rank in range(count)
        ]
    except InfeasiblePlan:
        assume(False)
    return problem, options, plans


@given(cut_problems(), SEEDS)
def test_ranks_in_any_order_keep_every_rule(drawn, seed):
    problem, _, plans = drawn
    totals = check_ranks(plans, problem.stencil, random.Random(seed))
    for plan, total in zip(plans, totals, strict=True):
        assert total == count(plan)
        assert (total.read_bytes, total.written_bytes) == (plan.read_bytes, plan.written_bytes)
        assert (total.sent_bytes, total.received_bytes) == (plan.sent_bytes, plan.received_bytes)
    assert sum(plan.updates for plan in plans) == problem.updates
    assert len({plan.depths for plan in plans}) == 1
    rows = problem.shape[1] if problem.ndim == 3 else 1
    owned = np.zeros((problem.shape[0], rows), int)
    for plan in plans:
        owned[place(plan.subgrid.owned)] += 1
    assert (owned == 1).all()


def place(box, origin=(0, 0)):
    """A box as an index of arrays that begin at ``origin``."""
    return tuple(
        slice(cells.start - low, cells.stop - low)
        for cells, low in zip((box.planes, box.rows), origin, strict=True)
    )


def in_threads(problem, options, count, seed):
    """The final fields of a run whose ranks are threads of this process."""
    comms = Threads.group(count, random.Random(seed))
    found = [None] * count
    errors: list[BaseException] = []
    kernel = kernel_of(problem)

    def work(comm):
        try:
            found[comm.rank] = one_rank(problem, options, kernel, comm, seed)
        except BaseException as error:
            errors.append(error)
            comm.abort(1)

    threads = [threading.Thread(target=work, args=(comm,)) for comm in comms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((each for each in errors if not isinstance(each, Aborted)), errors[0])
    whole = {name: np.empty(problem.shape, part.dtype) for name, part in found[0][1].items()}
    for owned, parts in found:
        for name, values in parts.items():
            whole[name][place(owned)[: problem.ndim - 1]] = values
    return whole


def one_rank(problem, options, kernel, comm, seed):
    ranks = Ranks(comm.rank, comm.size, NETWORK)
    plan = plan_rank(problem, options, MACHINE, FIXED_BYTES, ranks)
    held = plan.held(plan.depth)
    with Shuffled(seed + comm.rank) as transfers:
        stores = {
            (each.field, each.level, parity): MemoryStore.create(
                each.field, plan.stored_shape, problem.dtype_of(each.field), transfers
            )
            for each in plan.arrivals
            for parity in (0, 1)
        }
        fill(problem, plan.arrivals, lambda a: stores[a.field, a.level, 0], transfers, held=held)
        window, states = Window(plan), []
        tally = stream(
            plan,
            kernel,
            window,
            stores,
            transfers,
            states.append,
            comm=comm,
        )
        window.release()
    assert states == [Point(state) for state in range(1, plan.sweeps + 1)]
    moved = (tally.read_bytes, tally.written_bytes, tally.sent_bytes, tally.received_bytes)
    assert moved == (plan.read_bytes, plan.written_bytes, plan.sent_bytes, plan.received_bytes)
    assert tally.row_updates == plan.row_updates
    owned = plan.subgrid.owned
    mine = place(owned, (held.planes.start, held.rows.start))[: problem.ndim - 1]
    return owned, {
        level_name(each): stores[each.field, each.level, plan.sweeps % 2].array[mine].copy()
        for each in plan.departures
    }


@settings(max_examples=settings.default.max_examples // 4)
@given(cut_problems(KNOWN), SEEDS)
def test_threads_as_ranks_give_the_bytes_of_one(drawn, seed):
    problem, options, plans = drawn
    found = in_threads(problem, options, len(plans), seed)
    uncut = msgspec.structs.replace(options, cuts=(), row_cuts=())
    alone = in_threads(problem, uncut, 1, seed)
    for name, values in alone.items():
        bits = f"u{values.itemsize}"
        assert (found[name].view(bits) == values.view(bits)).all(), name
