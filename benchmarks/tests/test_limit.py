"""Limits on children: enforced, told where they are not, and cleaned up whatever happens."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from outgrid_bench import limit
from outgrid_bench.limit import limited

LIMIT_BYTES = 32 << 20
TAKE = "import sys; taken = bytearray(int(sys.argv[1])); print(len(taken))"
# Two threads that touch all of their memory again and again, far more of it than there is.
CHURN = """
import threading, sys, numpy
def churn():
    mine = numpy.zeros(int(sys.argv[1]) // 16)
    for _ in range(4):
        mine += 1
    assert mine.min() == mine.max() == 4
threads = [threading.Thread(target=churn) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
OWNER = """
import pathlib, subprocess, sys
from outgrid_bench.limit import limited
with limited(32 << 20, 16 << 20, pathlib.Path(sys.argv[1])) as group:
    child = subprocess.Popen(group.command(["sleep", "1000"]))
    print(group.folder, child.pid, flush=True)
    child.wait()
"""


def take(group, nbytes):
    return group.run([sys.executable, "-c", TAKE, str(nbytes)]).returncode


def groups():
    return {path for root in (limit.V1, limit.V2) for path in root.glob(f"outgrid-{os.getpid()}-*")}


def swaps():
    return {line.split()[0] for line in Path("/proc/swaps").read_text().splitlines()[1:]}


def test_a_child_that_wants_more_is_ended_and_the_group_goes():
    with limited(LIMIT_BYTES) as group:
        if group.folder is None:
            pytest.skip(group.reason)
        assert "no swap" in group.reason
        assert take(group, LIMIT_BYTES // 2) == 0
        assert take(group, 2 * LIMIT_BYTES) == -signal.SIGKILL
        assert 0 < group.peak_bytes <= LIMIT_BYTES
        command = group.command(["sh", "-c", "echo inside; exec sleep 1000"])
        left = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert left.stdout.readline() == "inside\n"
    assert left.wait(10) == -signal.SIGKILL
    left.communicate()
    assert not groups()


def test_a_swap_file_is_made_on_request_and_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # where tools of administrators are not
    before = swaps()
    with limited(LIMIT_BYTES, 4 * LIMIT_BYTES, tmp_path) as group:
        if group.folder is None or not group.swap_bytes:
            pytest.skip(group.reason)
        assert len([*tmp_path.iterdir()]) == 1
        assert take(group, 3 * LIMIT_BYTES) == 0
        assert take(group, 8 * LIMIT_BYTES) == -signal.SIGKILL
    assert swaps() == before
    assert not [*tmp_path.iterdir()]


def test_what_is_swapped_out_and_in_all_the_time_goes_on(tmp_path):
    nbytes = 8 * LIMIT_BYTES
    with limited(LIMIT_BYTES, nbytes + LIMIT_BYTES, tmp_path) as group:
        if group.folder is None or not group.swap_bytes:
            pytest.skip(group.reason)
        assert group.run([sys.executable, "-c", CHURN, str(nbytes)]).returncode == 0


def test_nothing_stays_behind_an_owner_that_was_killed(tmp_path):
    before = swaps()
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    folder, child = owner.stdout.readline().split()
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    if folder == "None":
        os.kill(int(child), signal.SIGKILL)
        pytest.skip("no control group can be made")
    waited = 0
    while (Path(folder).exists() or [*tmp_path.iterdir()]) and waited < 200:
        time.sleep(0.05)
        waited += 1
    assert not Path(folder).exists()
    assert not [*tmp_path.iterdir()]
    assert swaps() == before


def test_systemd_is_asked_where_no_group_can_be_made(tmp_path, monkeypatch):
    monkeypatch.setattr(limit, "V1", tmp_path / "none")
    monkeypatch.setattr(limit, "V2", tmp_path / "none")
    tool = tmp_path / "systemd-run"
    tool.write_text('#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"\n')
    tool.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        with limited(LIMIT_BYTES, None) as group:
            assert group.enforced
            assert group.reason == "systemd scope of 32.0 MiB, swap allowed"
            assert f"--property=MemoryMax={LIMIT_BYTES}" in group.entering
            assert group.run(["echo", "here"]).stdout == "here\n"
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    with limited(LIMIT_BYTES) as group:
        assert not group.enforced
        assert "32.0 MiB is not enforced" in group.reason
