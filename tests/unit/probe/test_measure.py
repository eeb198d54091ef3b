import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from outgrid.errors import StoreError
from outgrid.machine import describe_machine
from outgrid.probe import scratch as scratches
from outgrid.probe.effort import Effort
from outgrid.probe.measure import measure_machine
from outgrid.probe.memory import working_sets
from outgrid.probe.profile import MEASURED, Key, keep_profile, known_machine, known_profile
from outgrid.probe.scratch import Flow, Moved, measure_scratch
from outgrid.probe.taking import Computing

TINY = Effort(
    rounds=2,
    file_bytes=1 << 20,
    transfer_seconds=0.01,
    request_bytes=64 << 10,
    queue_depth=4,
    pass_bytes=1 << 16,
    memory_bytes=4 << 20,
)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to measure, and a cache that knows nothing yet but its compiled loop."""
    monkeypatch.setenv("OUTGRID_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def test_what_was_measured_is_found_again(scratch):
    assert known_machine(scratch) == describe_machine()
    profile = measure_machine(scratch, TINY)
    path = keep_profile(profile)
    assert known_profile(describe_machine(), scratch) == profile
    machine = known_machine(scratch / "not" / "made" / "yet")
    assert machine.measured
    assert {name: getattr(machine, name) for name in MEASURED} == profile.rates
    # What transfers take may be too little to be seen.
    assert all(rate > 0 or name == "moving_seconds" for name, rate in profile.rates.items())
    assert profile.rates["moving_seconds"] >= 0
    assert machine.l3_effective_bytes >= machine.l2_effective_bytes
    assert list(scratch.iterdir()) == []
    text = path.read_bytes()
    for torn in (text[:-9], b"", bytes(len(text)), text.replace(b"cpu", b"c\xffu")):
        path.write_bytes(torn)
        assert not known_machine(scratch).measured


@pytest.mark.parametrize(("beside", "taken"), [(75.0, 0.25), (100.0, 0.0), (130.0, 0.0)])
def test_what_transfers_take_is_what_computing_loses(scratch, monkeypatch, beside, taken):
    rates = iter([100.0, beside] * TINY.rounds)
    monkeypatch.setattr(Computing, "rate_since", lambda *_: next(rates))
    monkeypatch.setattr(scratches, "_flush_seconds", lambda *_: 0.5)
    monkeypatch.setattr(Flow, "moved", lambda *_, **__: Moved(2 * 10**9, 1.0))
    found = measure_scratch(scratch, TINY, 3)
    assert found.moving_seconds == pytest.approx(3 * taken * 1.5 / 2e9)
    assert found.flushing_seconds == pytest.approx(0.5 / 2e9)
    assert found.flush_seconds > 0.5
    assert set(found.samples) == {"read", "write", "mixed", "flush", "flushing", "moving"}
    assert {len(values) for values in found.samples.values()} == {TINY.rounds}


def test_computing_goes_on_in_all_threads_until_it_is_left():
    with Computing(2) as computing:
        before = time.perf_counter(), 0
        while not all(computing.counts):
            time.sleep(1e-3)
        assert computing.rate_since(before) > 0
    ended = computing.now[1]
    time.sleep(0.01)
    assert computing.now[1] == ended


def test_another_machine_has_another_profile(scratch):
    described = describe_machine()
    key = Key.of(described, scratch)
    others = [
        replace(key, device=key.device + 1),
        replace(key, mount="/elsewhere"),
        Key.of(replace(described, cores=described.cores + 1), scratch),
        Key.of(replace(described, compiler="/usr/bin/other"), scratch),
        Key.of(replace(described, kernel="9.9"), scratch),
    ]
    assert len({key.digest, *(other.digest for other in others)}) == len(others) + 1
    assert Key.of(replace(described, memory_bytes=1), scratch) == key


def test_a_cache_that_is_none_knows_no_profile(scratch, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OUTGRID_CACHE", str(tmp_path / "file"))
    assert not known_machine(scratch).measured


def test_a_scratch_folder_that_is_too_small_is_refused(scratch):
    with pytest.raises(StoreError, match="4096 PiB for some seconds"):
        measure_scratch(scratch, replace(TINY, file_bytes=4 << 60), 1)
    assert list(scratch.iterdir()) == []


def test_a_scratch_folder_that_is_missing_is_named(scratch):
    with pytest.raises(StoreError, match="absent"):
        measure_scratch(scratch / "absent", TINY, 1)


def test_working_sets_grow_by_half_octaves_up_to_the_largest():
    sizes = working_sets(1 << 20)
    assert sizes[0] == 128 << 10
    assert sizes[-1] == 1 << 20
    assert sizes[2] == 256 << 10
    assert all(size % 4096 == 0 for size in sizes)
    assert working_sets(4096) == (4096,)
