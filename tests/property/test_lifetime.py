"""Lifetimes of planes against a front that moves over an endless grid, touch by touch."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from outgrid.plan.schedule.lifetime import (
    dependences,
    lifetimes,
    needed_from,
    ring_count,
    write_shift,
)
from outgrid.testing.strategies import stencils


def touches(found, skew, field, depth):
    """(front, kind, version) of everything that happens to plane 0 of `field` in one sweep."""
    reach = 16 + skew.per_step * (depth + 2) + max(skew.shifts)
    for front in range(-reach, reach + 1):
        for step in range(1, depth + 1):
            for read in found.readings:
                plane = front - skew.per_step * step - skew.shifts[read.reader]
                if read.field == field and plane + read.low <= 0 <= plane + read.high:
                    yield front, "read", step + read.version
            for write in found.writings:
                plane = front - skew.per_step * step - skew.shifts[write.writer]
                if write.field == field and plane == 0:
                    yield front, "write", step


@given(stencils(), st.integers(0, 5), st.integers(1, 7))
def test_lifetimes_span_all_touches(stencil, base, depth):
    found = dependences(stencil)
    skew = found.skew()
    for field in stencil.fields:
        rings = ring_count(field, stencil)
        fronts = defaultdict(list)
        for front, _, version in touches(found, skew, field.name, depth):
            fronts[(base + version) % rings].append(front)
        lives = lifetimes(field.name, rings, found, skew, frozenset({(base, depth)}))
        assert len(lives) == rings
        for ring, life in enumerate(lives):
            wanted = fronts[ring] or [0]
            assert (life.low, life.high) == (min(wanted), max(wanted))
            assert life.span == life.high - life.low


@given(stencils(), st.integers(1, 7))
def test_no_version_is_overwritten_before_its_last_read(stencil, depth):
    found = dependences(stencil)
    skew = found.skew()
    for field in stencil.fields:
        if not field.evolving:
            continue
        rings = ring_count(field, stencil)
        written, last_read = {}, {}
        for front, kind, version in touches(found, skew, field.name, depth):
            if kind == "write":
                written[version] = front
            else:
                last_read[version] = front
        for version, front in last_read.items():
            assert written.get(version, -(10**6)) <= front
            assert written.get(version + rings, 10**6) >= front


@given(stencils(), st.integers(1, 7))
def test_levels_are_needed_from_their_first_read_on(stencil, depth):
    found = dependences(stencil)
    skew = found.skew()
    for field in stencil.fields:
        reads = defaultdict(list)
        for front, kind, version in touches(found, skew, field.name, depth):
            if kind == "read":
                reads[version if field.evolving else 0].append(front)
        for level in (0, -1) if field.levels == 2 else (0,):
            if reads[level]:
                lead = needed_from(field.name, level, found, skew)
                # Arrivals are timed for sweeps of any depth, so for the second step as well.
                assert lead == min(reads[level]) if depth > 1 else lead <= min(reads[level])
        if field.evolving:
            writes = [
                (front, version)
                for front, kind, version in touches(found, skew, field.name, depth)
                if kind == "write"
            ]
            shift = write_shift(field.name, found, skew)
            assert all(front == skew.per_step * version + shift for front, version in writes)
