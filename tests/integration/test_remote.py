"""Remote memory with real ranks: the same bytes, the same contract, and what is said of a loss."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.errors import UsageError
from outgrid.stencil.problem import Problem

pytestmark = pytest.mark.mpi
SCRIPT = Path(__file__).with_name("remote_ranks.py")
MPIEXEC = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
if MPIEXEC is None or importlib.util.find_spec("mpi4py") is None:
    pytest.skip("needs mpi4py and mpiexec: pip install 'outgrid[mpi]'", allow_module_level=True)


# Whether rank 0 sees the memory of the others, or MPI sends messages as between hosts.
HOSTS = {"one host": {}, "as between hosts": {"MPIR_CVAR_NOLOCAL": "1"}}


def started(*arguments, launcher=(), around=(), environment=None):
    """What three ranks print; the exit code is theirs."""
    return subprocess.run(
        [MPIEXEC, *launcher, "-n", "3", *around, sys.executable, SCRIPT, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | (environment or {}),
    )


def problem(steps):
    shape = (30, 23, 37)
    values = np.random.default_rng(3).random(shape)
    return Problem("heat7", shape, "float64", steps, {"k": 0.1}, "frozen", {"u": values})


def answer(out, steps):
    options = RunOptions.of(memory="200MiB", out=out, threads=1, tier="memory")
    return pipeline.run(problem(steps), options).path("u").read_bytes()


def test_runs_in_remote_memory_give_the_same_bytes(tmp_path):
    done = started("runs", tmp_path)
    assert done.returncode == 0, done.stderr
    expected = answer(tmp_path / "whole", 7)
    for number in range(4):
        assert (tmp_path / f"run{number}" / "u.npy").read_bytes() == expected
    record = (tmp_path / "run0" / "record.json").read_text()
    assert re.search(r"rank 1 \(host .*\) lends 200 KiB of 100 MiB, cyclic", record)
    assert "not durable" in record


def test_a_script_plans_for_the_ranks_that_lend(tmp_path):
    done = started("plans", tmp_path)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if line]
    assert len(said) == 6, done.stdout
    (told,) = {line for line in said if "lends" in line and line.startswith("[")}
    for rank in (1, 2):
        assert re.search(rf"rank {rank} \(host .*?\) lends 200 KiB of 100 MiB", told)
    assert len({*said}) == 2


@pytest.mark.parametrize("hosts", HOSTS)
def test_remote_stores_pass_the_suite_of_stores(hosts, tmp_path):
    done = started("stores", tmp_path, environment=HOSTS[hosts])
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"[3-9]\d passed", done.stdout)


@pytest.mark.parametrize("hosts", HOSTS)
def test_arrays_are_got_put_and_paged(hosts, tmp_path):
    done = started("arrays", tmp_path, environment=HOSTS[hosts])
    assert (done.returncode, done.stdout) == (0, "arrays agree\n"), done.stderr


def test_a_program_may_end_with_pages_on_their_way(tmp_path):
    done = started("leave", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 131072\n", "")


def test_ranks_end_where_memory_that_was_lent_cannot_be_reached(tmp_path):
    done = started("refuse", tmp_path)
    assert done.returncode == 1
    assert done.stderr.endswith("OSError: cannot be reached\n")


def test_all_ranks_end_where_one_does_not_reach_rank_0(tmp_path):
    done = started("miss", tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("ExecutionError: 2 of 3 ranks that lend memory reached rank 0") == 3


@pytest.mark.parametrize("keep", ["none", "disk"])
def test_a_lost_memory_node_is_named(keep, tmp_path):
    # Else the launcher ends all ranks, or drops what they print, before they can say a word.
    around = ["sh", "-c", 'trap "" USR1; "$@"; true', "sh"]
    launcher = ["-disable-auto-cleanup"]
    done = started("lose", tmp_path, keep, launcher=launcher, around=around)
    said = (tmp_path / "said").read_text()
    assert re.match(r"the memory node rank 2 \(host .*, process \d+\) is lost", said)
    assert "the memory node rank 2" in done.stderr
    options = RunOptions.of(memory="200MiB", threads=1, tier="direct")
    if keep == "none":
        assert "remote memory is not durable" in said
        with pytest.raises(UsageError, match="cannot be resumed"):
            pipeline.resume(tmp_path / "run", options)
    else:
        assert "outgrid resume continues" in said
        result = pipeline.resume(tmp_path / "run", options)
        assert len(result.record.parts) == 2
        assert result.path("u").read_bytes() == answer(tmp_path / "whole", 4000)


def test_a_stopped_run_is_resumed_in_remote_memory(tmp_path):
    done = started("resume", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    said = (tmp_path / "stopped0").read_text()
    assert "enough" in said
    assert "continues in one process on tier direct, under mpiexec in lent memory" in said
    assert "wrote no result" in (tmp_path / "stopped1").read_text()
    assert (tmp_path / "run" / "u.npy").read_bytes() == answer(tmp_path / "whole", 400)


def test_remote_memory_needs_ranks():
    with pytest.raises(UsageError, match="start with mpiexec -n 3"):
        pipeline.run(problem(3), RunOptions.of(memory="200MiB", tier="remote"))
