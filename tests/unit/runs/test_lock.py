import json
import os
import socket
import subprocess
import sys

import pytest

from outgrid.errors import StoreError, UsageError
from outgrid.runs.lock import LOCK_NAME, RunLock


def test_a_second_run_in_a_folder_is_refused_with_the_first_ones_pid_and_host(tmp_path):
    with (
        RunLock(tmp_path),
        pytest.raises(UsageError, match=f"process {os.getpid()} on {socket.gethostname()}"),
        RunLock(tmp_path),
    ):
        pass
    assert not list(tmp_path.iterdir())
    with RunLock(tmp_path) as lock:
        assert lock.left_by is None


def test_a_lock_of_a_process_that_was_killed_is_taken_over(tmp_path):
    program = (
        "import os, signal, sys, pathlib; from outgrid.runs.lock import RunLock\n"
        "with RunLock(pathlib.Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
    killed.wait()
    assert json.loads((tmp_path / LOCK_NAME).read_text())["pid"] == killed.pid
    with RunLock(tmp_path) as lock:
        assert lock.left_by.pid == killed.pid
    assert not list(tmp_path.iterdir())


def test_a_lock_that_another_host_left_is_for_a_person_to_judge(tmp_path):
    path = tmp_path / LOCK_NAME
    path.write_text('{"pid": 7, "host": "elsewhere", "since": "yesterday"}')
    with pytest.raises(UsageError, match=f"process 7 on elsewhere, since yesterday.*{path}"):
        RunLock(tmp_path).__enter__()
    path.unlink()
    with RunLock(tmp_path):
        pass


def test_a_lock_that_was_made_and_not_signed_is_free(tmp_path):
    (tmp_path / LOCK_NAME).touch()
    with RunLock(tmp_path) as lock:
        assert lock.left_by is None


def test_an_owner_that_lets_go_while_we_look_leaves_a_new_file_to_lock(tmp_path, monkeypatch):
    first, removed = RunLock(tmp_path), []
    lock = RunLock._lock

    def late(self, descriptor):
        if not removed:  # opened, not locked yet: the owner ends
            removed.append(first.path.unlink())
        lock(self, descriptor)

    first.path.touch()
    monkeypatch.setattr(RunLock, "_lock", late)
    with RunLock(tmp_path) as second:
        assert os.fstat(second._descriptor).st_ino == second.path.stat().st_ino


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("7")
    (tmp_path / LOCK_NAME).symlink_to(tmp_path / "precious")
    with pytest.raises(StoreError, match="it is a link, and only regular files"):
        RunLock(tmp_path).__enter__()
    assert (tmp_path / "precious").read_text() == "7"


def test_a_folder_that_the_lock_made_goes_with_it_if_nothing_came(tmp_path):
    with RunLock(tmp_path / "a"):
        pass
    assert not (tmp_path / "a").exists()
    with RunLock(tmp_path / "a"):
        (tmp_path / "a" / "result").touch()
    assert (tmp_path / "a" / "result").exists()
