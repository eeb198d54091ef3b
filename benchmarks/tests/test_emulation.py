"""Emulated disks: their rates stand with the kernel, and nothing of them stays, whatever ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from outgrid.errors import ExecutionError, UsageError
from outgrid_bench import emulation
from outgrid_bench.emulation import CLASSES, GROUP, Asked, emulated, parse_disks, refusal

OWNER = """
import pathlib, sys, time
from outgrid_bench.emulation import emulated, parse_disks
with emulated([parse_disks("hdd/10")], pathlib.Path(sys.argv[1])) as (place,):
    print(place, flush=True)
    time.sleep(1000)
"""


@pytest.fixture
def folder(tmp_path):
    reason = refusal()
    if reason is not None:
        pytest.skip(reason)
    return tmp_path / "disks"


def devices(folder):
    """Numbers of the loop devices on images of a folder."""
    return [
        (path.parent.parent / "dev").read_text().strip()
        for path in Path("/sys/block").glob("loop*/loop/backing_file")
        if path.read_text().startswith(str(folder.resolve()))
    ]


def rate(kind, number):
    lines = (GROUP / f"blkio.throttle.{kind}_device").read_text().splitlines()
    return {line.split()[0]: int(line.split()[1]) for line in lines}.get(number)


def owner_of_a_disk(folder):
    command = [sys.executable, "-c", OWNER, str(folder)]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    place = Path(owner.stdout.readline().strip())
    assert place.is_mount()
    return owner


def test_disks_are_named_in_one_word():
    assert parse_disks("hdd") == Asked("hdd")
    assert parse_disks("msata:16/10") == Asked("msata", 16, 10)
    assert parse_disks("sata/4").label == "sata/4"
    assert parse_disks("sata/4").disk.write_bytes == CLASSES["sata"].write_bytes // 4
    for text in ("hd", "hdd:0", "hdd:17", "hdd/0", "hdd:x", "hdd:2:3", ""):
        with pytest.raises(UsageError):
            parse_disks(text)


def test_small_requests_are_bound_by_their_number_and_large_ones_by_their_bytes():
    disk = CLASSES["hdd"]
    assert disk.rate("read", 4096) == 200 * 4096
    assert disk.rate("write", 4 << 20) == 101 << 20


def test_who_is_not_root_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(emulation.os, "geteuid", lambda: 1000)
    with pytest.raises(ExecutionError, match="root alone"), emulated([Asked("hdd")], tmp_path):
        pass
    assert not [*tmp_path.iterdir()]


def test_a_machine_without_rates_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(emulation.os, "geteuid", lambda: 0)
    monkeypatch.setattr(emulation, "GROUP", tmp_path)
    assert "has no rates" in refusal()


def test_disks_have_the_rates_of_their_class_and_go(folder):
    asked = [parse_disks("hdd:2/10"), parse_disks("nvme")]
    with emulated(asked, folder) as places:
        numbers = [f"{os.major(n)}:{os.minor(n)}" for n in (p.stat().st_dev for p in places)]
        assert len(set(numbers)) == 3
        for number, one in zip(numbers, (asked[0], asked[0], asked[1]), strict=True):
            assert rate("read_bps", number) == one.disk.read_bytes
            assert rate("write_iops", number) == one.disk.writes
            ahead = Path(f"/sys/dev/block/{number}/queue/read_ahead_kb").read_text()
            assert int(ahead) << 10 == one.disk.ahead_bytes
        for place in places:
            (place / "file").write_bytes(b"1" * 4096)
            assert not (place / "lost+found").exists()
    assert not [*folder.iterdir()]
    assert not devices(folder)
    assert not any(rate("read_bps", number) for number in numbers)


def test_an_error_within_leaves_nothing(folder):
    held = []  # an open file: the disk goes nevertheless

    def fail():
        with emulated([Asked("nvme")], folder) as (place,):
            held.append((place / "file").open("wb"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not [*folder.iterdir()]
    held[0].close()


def test_too_many_are_refused(folder):
    asked = [Asked("hdd", 16), Asked("sata")]
    with pytest.raises(UsageError, match="17 disks"), emulated(asked, folder):
        pass


def test_nothing_stays_behind_an_owner_that_was_killed(folder):
    owner = owner_of_a_disk(folder)
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    waited = 0
    while [*folder.iterdir()] and waited < 400:
        time.sleep(0.05)
        waited += 1
    assert not [*folder.iterdir()]
    assert not devices(folder)


def test_what_a_killed_guard_left_is_removed_by_the_next_start(folder):
    owner = owner_of_a_disk(folder)
    told = Path(f"/proc/{owner.pid}/task/{owner.pid}/children").read_text().split()
    (guard,) = told
    os.kill(int(guard), signal.SIGKILL)
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    assert devices(folder)
    with emulated([Asked("nvme")], folder) as places:
        assert len(devices(folder)) == len(places) == 1
    assert not [*folder.iterdir()]
    assert not devices(folder)


def test_disks_of_another_process_that_lives_stay(folder):
    owner = owner_of_a_disk(folder)
    try:
        with emulated([Asked("nvme")], folder):
            assert len(devices(folder)) == 2
        assert len(devices(folder)) == 1
    finally:
        owner.terminate()
        owner.communicate()
