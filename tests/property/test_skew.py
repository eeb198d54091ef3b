"""The skew of random constraint systems against trying every skew and every shift."""

import itertools

from hypothesis import assume, given
from hypothesis import strategies as st

from outgrid.errors import DefinitionError
from outgrid.plan.schedule.lifetime import dependences
from outgrid.plan.schedule.skew import Reading, Skew, Writing, solve
from outgrid.testing.strategies import stencils

LARGEST_SKEW = 6
LARGEST_SHIFT = 9


@st.composite
def systems(draw):
    """Up to three stages, each of which writes one field and reads some, one step back or none."""
    stages = draw(st.integers(1, 3))
    fields = [f"f{number}" for number in range(stages)]
    writings = tuple(Writing(j, fields[j], draw(st.integers(1, 2))) for j in range(stages))
    readings = []
    for reader in range(stages):
        for number in draw(st.lists(st.integers(0, stages - 1), min_size=1, max_size=3)):
            # A stage sees what the stages before it wrote in this step, or the step before.
            newest = 0 if number < reader else -1
            version = draw(st.integers(-writings[number].rings, newest))
            low, high = sorted((draw(st.integers(-2, 2)), draw(st.integers(-2, 2))))
            readings.append(Reading(reader, fields[number], version, low, high))
    return stages, tuple(readings), writings


def holds(skew: Skew, readings, writings) -> bool:
    """Every constraint, spelled out in positions of the front.

    With the front at 0, stage j of step t works on plane -(S*t + s_j): plane Z is written at
    S*t + s_j and read, at offset o, by the update of plane Z - o.
    """
    step = 10
    for write, read in itertools.product(writings, readings):
        if write.field != read.field:
            continue
        written = skew.per_step * (step + read.version) + skew.shifts[write.writer]
        reads = [
            skew.per_step * step + skew.shifts[read.reader] - offset
            for offset in range(read.low, read.high + 1)
        ]
        overwritten = written + skew.per_step * write.rings
        if any(time < written or time > overwritten for time in reads):
            return False
    return True


def search(stages, readings, writings) -> int | None:
    """The smallest skew for which any shifts hold; the first stage may stay where it is."""
    for per_step in range(LARGEST_SKEW + 1):
        shifts = range(-LARGEST_SHIFT, LARGEST_SHIFT + 1)
        for others in itertools.product(shifts, repeat=stages - 1):
            if holds(Skew(per_step, (0, *others)), readings, writings):
                return per_step
    return None


@given(systems())
def test_skew_is_the_smallest_that_holds(system):
    smallest = search(*system)
    try:
        found = solve(*system)
    except DefinitionError:
        assert smallest is None
        return
    assert holds(found, *system[1:])
    assume(found.per_step <= LARGEST_SKEW)
    assert found.per_step == smallest


@given(systems(), st.integers(0, 3))
def test_a_wider_reading_never_needs_less(system, more):
    stages, readings, writings = system
    try:
        before = solve(stages, readings, writings)
        first = readings[0]
        wider = Reading(first.reader, first.field, first.version, first.low - more, first.high)
        after = solve(stages, (wider, *readings[1:]), writings)
    except DefinitionError:
        return
    assert after.per_step >= before.per_step


@given(stencils())
def test_a_stencil_trails_by_its_radius_or_less_for_each_stage(stencil):
    found = dependences(stencil)
    skew = found.skew()
    # A circle of constraints passes each stage once, each time by a radius or less: a field that
    # its own stage updates in one ring must stay until the later stages have read around it.
    assert 0 <= skew.per_step <= len(stencil.stages) * stencil.radius[0]
    assert holds(skew, found.readings, found.writings)
    # No plane is needed before the front reaches it.
    assert all(skew.per_step + skew.shifts[r.reader] - r.high >= 0 for r in found.readings)
