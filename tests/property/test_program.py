"""Programs of random plans, obeyed in random orders by an executor that checks every rule."""

import random
from contextlib import suppress
from functools import partial
from itertools import pairwise
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from outgrid.config import RunOptions
from outgrid.definition import stencil
from outgrid.errors import ExecutionError, InfeasiblePlan
from outgrid.plan.commits import Begin
from outgrid.plan.model import Plan
from outgrid.plan.planner import plan
from outgrid.plan.program import Advance, Commit, Get, Mark, Put, program
from outgrid.plan.schedule.lifetime import dependences
from outgrid.plan.schedule.places import SeamPlaces
from outgrid.plan.schedule.skew import Skew
from outgrid.plan.sizing import Sizing
from outgrid.plan.sweeps import given_steps
from outgrid.stencil.catalog import resolve
from outgrid.stencil.expression import is_index
from outgrid.stencil.problem import Problem
from outgrid.testing import counting
from outgrid.testing.counting import check, count
from outgrid.testing.machine import MACHINE
from outgrid.testing.orders import caught_in_some_order
from outgrid.testing.strategies import machines, problems, run_options, stencils

FIXED_BYTES = 1 << 20
SEEDS = st.integers(0, 2**32 - 1)
SHARE = settings.default.max_examples // 2  # costly tests take a part of it


@st.composite
def plans(draw):
    """A problem and any plan of it."""
    problem = draw(problems(with_arrays=False))
    options = draw(run_options(problem))
    return problem, plan(problem, options, draw(machines()), FIXED_BYTES)


@given(plans(), SEEDS)
def test_any_order_that_the_gates_allow_keeps_every_rule(drawn, seed):
    problem, found = drawn
    closed = problem.edges.periodic(0)
    total = check(found, problem.stencil, random.Random(seed), closed)
    assert (total.read_bytes, total.written_bytes) == (
        found.volume.read_bytes,
        found.volume.written_bytes,
    )
    assert total == count(found)


@given(plans(), SEEDS)
def test_what_a_slab_moves_may_go_in_pieces(drawn, seed):
    problem, found = drawn
    with patch("outgrid.plan.program.PIECE_BYTES", 1):
        total = check(found, problem.stencil, random.Random(seed), problem.edges.periodic(0))
        pieces = count(found)
    whole = count(found)
    assert total == pieces
    assert (pieces.read_bytes, pieces.written_bytes) == (whole.read_bytes, whole.written_bytes)
    assert pieces.gets >= whole.gets
    moved = found.schedule.slab_planes > 1 and found.schedule.blocks is None
    if moved and found.schedule.subgrid is None and found.schedule.planes > 3:
        event("in pieces" if pieces.gets > whole.gets else "as a whole")


def test_pieces_have_many_bytes_and_follow_each_other():
    problem = Problem("heat7", (90, 256, 256), "float64", 12, {"k": 0.1}, initial={"u": 0.0})
    for planes, pieces in ((7, 1), (8, 1), (16, 2), (24, 3), (32, 3)):
        ways = {"tier": "direct", "depth": 4, "slab_planes": planes}
        found = plan(problem, RunOptions.of(memory="1GiB", **ways), MACHINE, FIXED_BYTES)
        (arrival,), (departure,) = found.schedule.arrivals, found.schedule.departures
        lag = departure.lag(4, found.schedule.skew.per_step)
        for kind, beside in ((Get, arrival.lead), (Put, lag)):
            moves = [each for each in program(found) if isinstance(each, kind)]
            slab = [each for each in moves if each.trip.sweep == 1]
            slab = [each for each in slab if (each.first + beside) // planes == 1]
            sizes = [each.last - each.first for each in slab]
            assert (len(sizes), sum(sizes)) == (pieces, planes)
            assert max(sizes) - min(sizes) <= 1
            assert all(a.last == b.first for a, b in pairwise(slab))


@pytest.mark.parametrize("planes", [4, 5, 6])
@pytest.mark.parametrize("core", [1, 2])
def test_blocks_of_a_closed_grid_read_planes_that_come_again(planes, core):
    periodic = {"y": "periodic", "x": "periodic"}
    problem = Problem("heat5", (planes, 9), "float32", 4, {"k": 0.1}, periodic, {"u": 0.0})
    ways = {"scheme": "overlapped", "depth": 1, "block": [core, 9]}
    found = plan(problem, RunOptions.of(memory="1GiB", tier="direct", **ways), MACHINE, FIXED_BYTES)
    assert check(found, problem.stencil, random.Random(planes), closed=True) == count(found)


@given(plans())
def test_the_order_of_the_program_is_itself_valid(drawn):
    """Each gate waits for instructions that stand before it."""
    _, found = drawn
    seen = {Get: 0, Advance: 0, Put: 0, Commit: 0}
    for instruction in (each for each in program(found) if not isinstance(each, Mark)):
        gate = instruction.gate
        waits = {
            Get: gate.got,
            Advance: gate.advanced,
            Put: gate.put,
            Commit: gate.committed,
        }
        assert all(waits[kind] <= seen[kind] for kind in seen)
        assert instruction.index == seen[type(instruction)]
        seen[type(instruction)] += 1


@given(plans())
def test_rows_of_evolving_fields_go_in_once_and_out_once_per_sweep(drawn):
    """Strips share no row, and miss none; of coefficients they read some rows again."""
    _, found = drawn
    assume(found.schedule.blocks is None)  # whose halos are read again
    moved = {Get: [], Put: []}
    constant = {each.field for each in found.schedule.arrivals if each.constant}
    for move in program(found):
        if isinstance(move, Get | Put) and not (move.seam or move.field in constant):
            key = (move.trip.sweep, move.field, move.level)
            there = move.there
            moved[type(move)] += [(*key, at, row) for at in there.planes for row in there.rows]
    first, last = range(found.sweeps), range(found.sweeps)
    if found.schedule.resident:
        first = first[:1]
        last = [sweep for sweep in last if found.schedule.states.after(sweep + 1) is not None]
    arrivals = [each for each in found.schedule.arrivals if not each.constant]
    for kind, sweeps, levels in ((Get, first, arrivals), (Put, last, found.schedule.departures)):
        assert sorted(moved[kind]) == sorted(
            (sweep, each.field, each.level, plane, row)
            for sweep in sweeps
            for each in levels
            for plane in range(found.schedule.planes)
            for row in range(found.schedule.rows)
        )


def blank(rule, shape, steps, **given):
    """A problem of no particular numbers."""
    given_profiles = (profile for profile in rule.profiles if not is_index(profile))
    profiles = {profile.name: [0.5] * shape[profile.axis] for profile in given_profiles}
    initial = dict.fromkeys([field.name for field in rule.fields], 0.0)
    return Problem(rule, shape, "float64", steps, profiles, initial=initial, **given)


@st.composite
def plans_within_a_sweep(draw):
    """A problem and a plan that goes on in the middle of its first sweep."""
    rule = draw(stencils())
    depth, rest = draw(st.integers(1, 6)), draw(st.integers(0, 12))
    face = dependences(rule).face()
    lean = face.per_step * depth + max(face.shifts)
    planes = lean + 2 * rule.radius[0] + draw(st.integers(2, 30))
    problem = blank(rule, (planes, *(2 * r + 1 for r in rule.radius[1:])), depth + rest)
    begin = Begin(depth, draw(st.integers(lean + 1, planes - 1)))
    options = draw(run_options(problem, tier="direct", strip_rows=None))
    assume(options.scheme != "overlapped")
    return problem, begin, plan(problem, options, draw(machines()), FIXED_BYTES, begin=begin)


@given(plans_within_a_sweep(), SEEDS)
def test_a_run_goes_on_within_a_sweep_from_what_its_inward_face_needs(drawn, seed):
    """State 0 is void below the face, and the planes of state 1 that are durable stay."""
    problem, begin, found = drawn
    assert (found.schedule.depths[0], found.schedule.begin.planes) == (begin.depth, begin.planes)
    assert sum(found.schedule.depths) == problem.steps
    total = check(found, problem.stencil, random.Random(seed))
    assert (total.read_bytes, total.written_bytes) == (
        found.volume.read_bytes,
        found.volume.written_bytes,
    )
    assert total == count(found)


@given(plans_within_a_sweep(), SEEDS)
def test_a_face_that_leans_less_reads_what_is_not_there(drawn, seed):
    problem, _, found = drawn
    needed = max(0, *(-read.low for read in dependences(problem.stencil).readings))
    assume(needed > 0 and len(problem.stencil.stages) == 1)
    # The face begins one plane per step higher, and the first level reads below it.
    face = Skew(needed - 1, (0,))
    wrong = replace(found, schedule=replace(found.schedule, face=face))
    assume(wrong.schedule.trips[0].planes.low > 0)
    with pytest.raises(ExecutionError):
        check(wrong, problem.stencil, random.Random(seed))


@st.composite
def strips(draw, around=None, **given):
    """A plan in strips, down to single rows, of a grid whose rows do not close to a circle."""
    small = {"most_planes": 12, "most_cells": 12, "with_arrays": False}
    problem = draw(problems(stencils(ndim=3), around=around, **small))
    assume(problem.steps > 0 and not Sizing(problem).across.periodic)
    depth, slab = draw(st.integers(1, 7)), draw(st.integers(1, min(5, problem.shape[0])))
    depths = given_steps(problem.steps, min(depth, problem.steps))
    assume(Sizing(problem).least_planes(depths, slab) <= problem.shape[0])
    cut = {"depth": depth, "slab_planes": slab, "strip_rows": draw(st.integers(1, 12))}
    options = RunOptions.of(memory="1GiB", tier="direct", **cut, **given)
    return problem, plan(problem, options, draw(machines()), FIXED_BYTES)


@settings(max_examples=SHARE)
@given(strips(commit_every=0), SEEDS)
def test_strips_find_what_the_one_before_them_left(drawn, seed):
    problem, found = drawn
    assert [each.depth for each in between_strips(found)] == sorted(
        {depth for depth in found.schedule.depths if found.schedule.strips.count(depth) > 1}
    )
    total = check(found, problem.stencil, random.Random(seed), problem.edges.periodic(0))
    assert (total.read_bytes, total.written_bytes) == (
        found.volume.read_bytes,
        found.volume.written_bytes,
    )
    assert total == count(found)
    assert found.schedule.redundancy == 0


@given(strips(st.just("frozen")), SEEDS, st.data())
def test_a_seam_of_strips_that_lacks_a_row_is_noticed(drawn, seed, data):
    """What is kept of each ring is the smallest block of rows that will do."""
    problem, found = drawn
    stairs = [stair for seam in between_strips(found) for stair in seam.stairs]
    assume(stairs)
    height, rows = found.schedule.strips.height, found.schedule.rows
    most = max(each.high for each in stairs)
    # Some border has all of its seam in the grid, and no ring still holds what is missing.
    assume(any(most <= border <= rows for border in range(height, rows + 1, height)))
    assume(all(found.schedule.pitch_planes % ring.planes for ring in found.schedule.rings))
    wrong = with_a_shorter_seam(found, between_strips(found), data)
    with pytest.raises(ExecutionError):
        check(wrong, problem.stencil, random.Random(seed))


@st.composite
def closed_plans(draw, **given):
    """A streamed plan of a grid that is periodic along the stream, with few planes to spare."""
    rule = draw(stencils())
    assume(rule.radius[0] > 0)
    depth, slab, steps = (draw(st.integers(1, most)) for most in (7, 6, 20))
    axis = "z" if rule.ndim == 3 else "y"

    def of(planes):
        shape = (planes, *(2 * r + 1 for r in rule.radius[1:]))
        return blank(rule, shape, steps, boundary={axis: "periodic"})

    depths = given_steps(steps, min(depth, steps))
    least = Sizing(of(1000)).least_planes(depths, slab)
    problem = of(max(least, slab, 2 * rule.radius[0] + 2) + draw(st.integers(0, 20)))
    options = RunOptions.of(memory="1GiB", tier="direct", depth=depth, slab_planes=slab, **given)
    return problem, plan(problem, options, MACHINE, FIXED_BYTES)


def between_strips(found):
    """The seams that strips leave to the next ones."""
    return [each for each in found.schedule.seams if not (each.closes or each.cut)]


def closing(found, axis):
    """The seams through which the first planes, or rows, come round again."""
    return [each for each in found.schedule.seams if each.closes and each.axis == axis]


def with_a_shorter_seam(found, seams, data):
    """The same, but one of the seams lacks its first or its last plane, or row."""
    seam = data.draw(st.sampled_from(seams))
    held = [number for number, each in enumerate(seam.stairs) if each.high > each.low]
    assume(held)  # else only a coefficient reads its neighbours
    number = data.draw(st.sampled_from(held))
    stair = seam.stairs[number]
    low, high = data.draw(st.sampled_from([(1, 0), (0, 1)]))
    shorter = replace(stair, low=stair.low + low, high=stair.high - high)
    stairs = (*seam.stairs[:number], shorter, *seam.stairs[number + 1 :])
    spoilt = replace(seam, stairs=stairs)
    seams = tuple(spoilt if each is seam else each for each in found.schedule.seams)
    return replace(found, schedule=replace(found.schedule, seams=seams))


@given(closed_plans(), SEEDS)
def test_what_comes_round_again_is_what_was_left(drawn, seed):
    """The first planes of a grid that is closed come back from the seam, in their versions."""
    problem, found = drawn
    assert len(closing(found, 0)) == len(set(found.schedule.depths))
    total = check(found, problem.stencil, random.Random(seed), closed=True)
    assert (total.read_bytes, total.written_bytes) == (
        found.volume.read_bytes,
        found.volume.written_bytes,
    )
    assert total == count(found)
    assert found.schedule.redundancy == 0


@given(closed_plans(), SEEDS, st.data())
def test_a_seam_that_lacks_a_plane_is_noticed(drawn, seed, data):
    problem, found = drawn
    # A ring that is as long as the grid holds what is missing.
    assume(all(found.schedule.planes % ring.planes for ring in found.schedule.rings))
    wrong = with_a_shorter_seam(found, closing(found, 0), data)
    with pytest.raises(ExecutionError):
        check(wrong, problem.stencil, random.Random(seed), closed=True)


@given(closed_plans(), SEEDS, st.data())
def test_a_front_goes_over_a_closed_grid_in_memory(drawn, seed, data):
    problem, _ = drawn
    commits = {"commit_every": data.draw(st.sampled_from([None, 1e-9]))}
    slab = data.draw(st.integers(1, min(9, problem.shape[0])))
    given = {"depth": data.draw(st.integers(1, 7)), "slab_planes": slab}
    options = RunOptions.of(memory="1GiB", tier="memory", **given, **commits)
    found = plan(problem, options, MACHINE, FIXED_BYTES)
    assert found.depth > 1 or not found.schedule.seams
    assert not found.schedule.places
    total = check(found, problem.stencil, random.Random(seed), closed=True)
    assert (total.read_bytes, total.written_bytes) == (
        found.volume.read_bytes,
        found.volume.written_bytes,
    )
    assert found.schedule.redundancy == 0


@st.composite
def closed_strips(draw, **given):
    """A plan in strips of a grid that is periodic along the stream, with few planes to spare."""
    rule = draw(stencils(ndim=3))
    assume(rule.radius[0] > 0)
    depth, slab, steps = (draw(st.integers(1, most)) for most in (5, 4, 11))
    circle = draw(st.booleans())
    around = {"kind": draw(st.sampled_from(["dirichlet", "neumann"])), "z": "periodic"}
    around |= {"y": "periodic"} if circle else {}

    def of(planes, rows):
        return blank(rule, (planes, rows, 2 * rule.radius[2] + 1), steps, boundary=around)

    large = Sizing(of(1000, 1000))
    thinnest = max(1, large.strips(depth, 1).beside(min(depth, steps))) if circle else 1
    rows = max(2 * thinnest, 2 * rule.radius[1] + 2) + draw(st.integers(0, 18))
    least = large.least_planes(given_steps(steps, min(depth, steps)), slab)
    problem = of(max(least, slab, 2 * rule.radius[0] + 2) + draw(st.integers(0, 12)), rows)
    height = draw(st.integers(thinnest, rows - 1))
    cut = {"depth": depth, "slab_planes": slab, "strip_rows": height}
    options = RunOptions.of(memory="1GiB", tier="direct", **cut, **given)
    return problem, plan(problem, options, MACHINE, FIXED_BYTES)


@settings(max_examples=SHARE)
@given(closed_strips(commit_every=0), SEEDS)
def test_strips_come_round_one_by_one(drawn, seed):
    problem, found = drawn
    assert found.schedule.strips.count(found.depth) > 1
    total = check(found, problem.stencil, random.Random(seed), closed=True)
    assert (total.read_bytes, total.written_bytes) == (
        found.volume.read_bytes,
        found.volume.written_bytes,
    )
    assert total == count(found)
    assert found.schedule.redundancy == 0
    assert not points_within(found)  # it goes on from whole states


@st.composite
def circles(draw, **given):
    """A plan whose strips go round a circle, with rows just enough or more."""
    rule = draw(stencils(ndim=3))
    assume(rule.radius[1] > 0)
    depth, steps = draw(st.integers(1, 5)), draw(st.integers(1, 12))
    planes = 2 * rule.radius[0] + draw(st.integers(6, 20))

    def of(rows):
        shape = (planes, rows, 2 * rule.radius[2] + 1)
        return blank(rule, shape, steps, boundary={"y": "periodic"})

    least = Sizing(of(1000)).strips(depth, 1).beside(min(depth, steps))
    rows = 2 * least + draw(st.integers(0, 3 * least))
    height, problem = draw(st.integers(least, rows - 1)), of(rows)
    cut = {"depth": depth, "strip_rows": height, "slab_planes": draw(st.integers(1, 6))}
    options = RunOptions.of(memory="1GiB", tier="direct", **cut, **given)
    return problem, plan(problem, options, MACHINE, FIXED_BYTES)


def test_rows_in_two_pieces_are_read_when_both_are_written():
    """Across the end of the rows, in a slab of planes across the end of the planes."""
    around = {"boundary": {"z": "periodic", "y": "periodic"}}
    problem = blank(resolve("heat7").trace(3), (20, 8, 3), 2, **around)
    given = {"depth": 1, "slab_planes": 2, "strip_rows": 4}
    options = RunOptions.of(memory="1GiB", tier="direct", **given)
    found = plan(problem, options, MACHINE, FIXED_BYTES)
    for seed in range(20):
        check(found, problem.stencil, random.Random(seed), closed=True)


@stencil
def drifting(u, v):
    """Of its rows it reads those of a coefficient, on one side."""
    return u + 0.5 * v[0, 1, 0]


def test_ends_of_strips_need_not_move_to_close_a_circle():
    problem = blank(drifting.trace(), (1, 4, 1), 1, boundary={"y": "periodic"})
    options = RunOptions.of(memory="1GiB", tier="direct", strip_rows=2, commit_every=0)
    found = plan(problem, options, MACHINE, FIXED_BYTES)
    assert (found.schedule.strips.fall.per_step, found.schedule.strips.rise.per_step) == (0, 0)
    points = points_within(found)
    assert points
    for begin in (None, *(Begin(1, at.planes, at.part, found.schedule.cut) for at in points)):
        rest = plan(problem, options, MACHINE, FIXED_BYTES, begin=begin)
        total = check(rest, problem.stencil, random.Random(0))
        assert (total.read_bytes, total.written_bytes) == (
            rest.volume.read_bytes,
            rest.volume.written_bytes,
        )


@settings(max_examples=SHARE)
@given(circles(), SEEDS)
def test_strips_close_round_a_circle(drawn, seed):
    """The first rows come back in the last strip, in their versions."""
    problem, found = drawn
    assert found.schedule.strips.count(found.depth) > 1
    assert [each.depth for each in closing(found, 1)] == sorted(set(found.schedule.depths))
    total = check(found, problem.stencil, random.Random(seed))
    assert (total.read_bytes, total.written_bytes) == (
        found.volume.read_bytes,
        found.volume.written_bytes,
    )
    assert total == count(found)
    assert found.schedule.redundancy == 0


@given(circles(), SEEDS, st.data())
def test_a_seam_of_a_circle_that_lacks_a_row_is_noticed(drawn, seed, data):
    problem, found = drawn
    wrong = with_a_shorter_seam(found, closing(found, 1), data)
    with pytest.raises(ExecutionError):
        check(wrong, problem.stencil, random.Random(seed))


def points_within(found):
    """Where a run of a plan may have come to within its sweeps."""
    named = (each.point for each in program(found) if isinstance(each, Commit | Mark))
    return [point for point in named if point.begun > point.state]


@st.composite
def plans_that_go_on(draw):
    """A problem and a plan of it, and the plan that goes on within one of its sweeps."""
    kind = draw(st.sampled_from(["open", "closed", "circle"]))
    closed = kind == "closed"
    if kind != "open":
        problem, found = draw((closed_plans if closed else circles)(commit_every=0))
        options = RunOptions.of(memory="1GiB", tier="direct", commit_every=0)
    else:
        problem = draw(problems(with_arrays=False))
        options = draw(run_options(problem, tier="direct", commit_every=0))
        assume(not problem.edges.periodic(0) or options.scheme == "overlapped")
        found = plan(problem, options, MACHINE, FIXED_BYTES)
    points = points_within(found)
    assume(points)
    point = draw(st.sampled_from(points))
    begin = Begin(found.schedule.depths[point.state], point.planes, point.part, found.schedule.cut)
    rest = problem.after(sum(found.schedule.depths[: point.state]))
    thickest = min(6, problem.shape[0])
    slab, depth = draw(st.none() | st.integers(1, thickest)), draw(st.none() | st.integers(1, 9))
    # The first planes, or rows, come round in time in such sweeps, and halos reach round once.
    if kind != "open" or found.schedule.blocks:
        slab, depth = (
            draw(st.integers(1, found.schedule.slab_planes)),
            draw(st.integers(1, found.depth)),
        )
    slab = None if found.schedule.blocks else slab
    options = msgspec.structs.replace(options, depth=depth, slab_planes=slab, strip_rows=None)
    return rest, begin, plan(rest, options, draw(machines()), FIXED_BYTES, begin=begin)


@settings(max_examples=SHARE)
@given(plans_that_go_on(), SEEDS)
def test_a_run_goes_on_from_any_point_that_is_named_within_a_sweep(drawn, seed):
    """In whole planes, strips, blocks and planes that come round: rows and seams are there."""
    problem, begin, found = drawn
    assert (found.schedule.depths[0], found.schedule.cut) == (begin.depth, begin.cut)
    assert (found.schedule.begin.part, found.schedule.begin.planes) == (begin.part, begin.planes)
    closed = problem.edges.periodic(0)
    total = check(found, problem.stencil, random.Random(seed), closed)
    assert (total.read_bytes, total.written_bytes) == (
        found.volume.read_bytes,
        found.volume.written_bytes,
    )
    assert total == count(found)
    assert total.row_updates == found.schedule.row_updates


@st.composite
def single_sweeps(draw):
    """A streamed plan of one sweep, over a grid with room for the longest life of a plane."""
    stencil = draw(stencils())
    depth, slab = draw(st.integers(1, 9)), draw(st.integers(1, 7))
    skew = dependences(stencil).skew()
    planes = skew.per_step * (depth + 2) + max(skew.shifts) + 2 * stencil.radius[0] + 3 * slab + 1
    shape = (planes + draw(st.integers(0, 20)), *(2 * r + 1 for r in stencil.radius[1:]))
    problem = blank(stencil, shape, depth)
    options = RunOptions.of(memory="1GiB", tier="direct", depth=depth, slab_planes=slab)
    return problem, plan(problem, options, MACHINE, FIXED_BYTES)


def with_ring(found: Plan, number: int, planes: int) -> Plan:
    """The plan with another size of one ring."""
    rings = list(found.schedule.rings)
    rings[number] = replace(rings[number], planes=planes)
    return replace(found, schedule=replace(found.schedule, rings=tuple(rings)))


@given(single_sweeps(), SEEDS, st.data())
def test_rings_of_their_span_and_a_slab_are_enough(drawn, seed, data):
    problem, found = drawn
    smallest = found
    for number, ring in enumerate(found.schedule.rings):
        least = ring.high - ring.low + found.schedule.slab_planes
        assert ring.planes >= least
        if data.draw(st.booleans()):
            smallest = with_ring(smallest, number, least)
    check(smallest, problem.stencil, random.Random(seed))


@given(single_sweeps(), st.data())
def test_no_ring_can_be_a_plane_smaller(drawn, data):
    problem, found = drawn
    number = data.draw(st.integers(0, len(found.schedule.rings) - 1))
    ring = found.schedule.rings[number]
    least = ring.high - ring.low + found.schedule.slab_planes
    assume(least > 1)
    smaller = with_ring(found, number, least - 1)
    with pytest.raises((ExecutionError, InfeasiblePlan)):
        check(smaller, problem.stencil, random.Random(0))


@given(plans(), st.data(), SEEDS)
def test_a_smaller_ring_is_refused_or_harmless(drawn, data, seed):
    """Whatever is taken away, the check ends: it never hangs or stumbles."""
    problem, found = drawn
    assume(found.schedule.depths)
    number = data.draw(st.integers(0, len(found.schedule.rings) - 1))
    planes = data.draw(st.integers(1, found.schedule.rings[number].planes))
    smaller = with_ring(found, number, planes)
    with suppress(ExecutionError, InfeasiblePlan):
        check(smaller, problem.stencil, random.Random(seed))


def streamed(name="heat7", depth=4, steps=16, **options):
    """A plan of several sweeps whose window is much smaller than the grid."""
    fields = {"heat7": ["u"], "wave:4": ["u", "c"]}[name]
    problem = Problem(name, (60, 9, 9), "float64", steps, initial=dict.fromkeys(fields, 0.0))
    given = {"tier": "direct", "depth": depth, "slab_planes": 3} | options
    chosen = plan(problem, RunOptions.of(memory="1GiB", **given), MACHINE, FIXED_BYTES)
    return problem, chosen


def caught(problem, found, monkeypatch, instructions, orders=40) -> bool:
    """Whether the check finds in one of so many random orders that a rule was broken."""
    monkeypatch.setattr(counting, "program", lambda plan: iter(instructions))
    return caught_in_some_order(partial(check, found, problem.stencil), orders)


EVERYWHERE = [("heat7", 4), ("heat7", 5), ("wave:4", 4), ("wave:4", 5)]


@pytest.mark.parametrize(
    ("kind", "mark", "cases"),
    [
        # The slot still holds a plane in use. With results leaving from the ring of arrival alone,
        # the wait for their writes says as much.
        (Get, "advanced", [("heat7", 5), ("wave:4", 4), ("wave:4", 5)]),
        # The place in the file, or the result in the slot, is not written yet.
        (Get, "put", [("heat7", 4), ("wave:4", 4), ("wave:4", 5)]),
        # The plane has not arrived.
        (Advance, "got", EVERYWHERE),
        # A result in a ring that nothing arrives in is overwritten before it is written.
        (Advance, "put", [("heat7", 5)]),
        # The result is not final.
        (Put, "advanced", EVERYWHERE),
        # The state that is destroyed is the last durable one.
        (Put, "committed", EVERYWHERE),
        # The state is not complete.
        (Commit, "put", EVERYWHERE),
    ],
)
def test_a_gate_that_is_removed_is_noticed(kind, mark, cases, monkeypatch):
    for name, depth in cases:
        problem, found = streamed(name, depth, steps=3 * depth)
        instructions = [
            replace(each, gate=replace(each.gate, **{mark: 0})) if isinstance(each, kind) else each
            for each in program(found)
        ]
        with monkeypatch.context() as patch:
            assert caught(problem, found, patch, instructions), (name, depth)


@pytest.mark.parametrize(("name", "depth"), [*EVERYWHERE, ("wave:4", 1), ("heat7", 1)])
def test_gates_as_they_are_break_nothing(name, depth, monkeypatch):
    problem, found = streamed(name, depth, steps=3 * depth)
    assert not caught(problem, found, monkeypatch, list(program(found)), orders=16)


def in_parts(way):
    """A plan with seams that is committed within its sweeps, and whether its grid is closed."""
    shape, given, more = (40, 3, 3), {"boundary": {"z": "periodic"}}, {}
    if way == "strips":
        shape, given, more = (24, 7, 3), {}, {"strip_rows": 2}
    if way == "strips of a circle":
        shape, given, more = (24, 10, 3), {"boundary": {"y": "periodic"}}, {"strip_rows": 3}
    problem = blank(resolve("heat7").trace(3), shape, 6, **given)
    options = RunOptions.of(
        memory="1GiB", tier="direct", depth=2, slab_planes=3, commit_every=0, **more
    )
    return problem, plan(problem, options, MACHINE, FIXED_BYTES), way == "planes that come round"


def test_a_shorter_sweep_does_not_overtake_the_seams_that_its_commits_need():
    """The last strip leaves no seam itself, and begins to leave early."""
    problem = blank(resolve("wave:2").trace(3), (18, 23, 5), 6)
    given = {"depth": 5, "slab_planes": 2, "strip_rows": 21, "commit_every": 0}
    options = RunOptions.of(memory="1GiB", tier="direct", **given)
    found = plan(problem, options, MACHINE, FIXED_BYTES)
    assert found.schedule.depths == (1, 5)
    for seed in range(20):
        check(found, problem.stencil, random.Random(seed))


@pytest.mark.parametrize("way", ["strips", "strips of a circle", "planes that come round"])
def test_a_seam_that_is_written_too_early_is_noticed(way, monkeypatch):
    """Before the trip is durable that had to read what it is written over."""
    problem, found, closed = in_parts(way)

    def spoilt(each):
        if isinstance(each, Put) and each.seam:
            return replace(each, gate=replace(each.gate, committed=0))
        if isinstance(each, Commit):  # late
            return replace(each, gate=replace(each.gate, put=each.gate.put + 4))
        return each

    check(found, problem.stencil, random.Random(0), closed)
    early = [spoilt(each) for each in program(found)]
    monkeypatch.setattr(counting, "program", lambda plan: iter(early))
    with pytest.raises(ExecutionError, match="destroys a seam"):
        check(found, problem.stencil, random.Random(0), closed)


def test_what_closes_a_circle_is_kept_until_the_last_strip_has_it(monkeypatch):
    """In a place of its own: seams of other borders would write over it."""
    problem, found, _ = in_parts("strips of a circle")
    number = SeamPlaces.number

    def shared(places, seam, border):
        return min(number(places, seam, border), places.turns - 1)

    monkeypatch.setattr(SeamPlaces, "number", shared)
    with pytest.raises((ExecutionError, ValueError)):
        check(found, problem.stencil, random.Random(0))


def test_seams_on_both_sides_of_a_strip_in_one_place_are_noticed(monkeypatch):
    problem, found, _ = in_parts("strips")
    monkeypatch.setattr(SeamPlaces, "turns", 1)
    with pytest.raises(ExecutionError, match="destroys a seam"):
        check(found, problem.stencil, random.Random(0))


def test_a_window_without_room_is_refused_with_its_size():
    _, found = streamed()
    with pytest.raises(
        InfeasiblePlan, match=f"do not fit a window of {found.memory.window_bytes} bytes"
    ):
        list(program(with_ring(found, 0, 6)))
