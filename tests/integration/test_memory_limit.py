"""The memory limit holds, and the system is asked to say so: a run in a control group."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from outgrid import pipeline
from outgrid.build.compiler import build, find_compiler
from outgrid.codegen.kernel import generate
from outgrid.errors import InfeasiblePlan
from outgrid.job import load_job
from outgrid.stencil.catalog import resolve
from outgrid.units import parse_bytes

LIMIT = "128MiB"
LIMIT_BYTES = parse_bytes(LIMIT)
SHAPE = (512, 512, 512)  # 1 GiB, eight times the limit
GROUPS = Path("/sys/fs/cgroup")

JOB = f"""
[problem]
stencil = "heat7"
shape = {list(SHAPE)}
steps = 12
parameters = {{k = 0.125}}
initial = {{u = "z"}}
[run]
memory = "{LIMIT}"
out = "run"
"""


@contextmanager
def control_group(limit_bytes: int) -> Iterator[Path]:
    """A control group of this process's own whose members may use `limit_bytes`, without swap."""
    old = GROUPS / "memory"
    group = (old if old.is_dir() else GROUPS) / f"outgrid-test-{os.getpid()}"
    limits = (
        {"memory.limit_in_bytes": limit_bytes, "memory.swappiness": 0}
        if old.is_dir()
        else {"memory.max": limit_bytes, "memory.swap.max": 0}
    )
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    try:
        try:
            for name, value in limits.items():
                (group / name).write_text(str(value))
        except OSError as error:
            pytest.skip(f"the control group takes no limit of memory: {error}")
        yield group
    finally:
        group.rmdir()


def peak_of(group: Path) -> int | None:
    """The largest use of memory of all members so far, page cache included."""
    for name in ("memory.max_usage_in_bytes", "memory.peak"):
        if (group / name).exists():
            return int((group / name).read_text())
    return None


def free_bytes(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def test_a_grid_eight_times_the_limit(tmp_path):
    if free_bytes(tmp_path) < 4 << 30:
        pytest.skip(f"needs 4 GiB of free disk, {free_bytes(tmp_path) >> 20} MiB are there")
    (tmp_path / "job.toml").write_text(JOB)
    # The compiler is another process, whose memory the limit of a run does not speak of.
    build(generate(resolve("heat7").trace(3), "float64"), find_compiler())
    join = 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"'
    command = [sys.executable, "-m", "outgrid", "run", str(tmp_path / "job.toml"), "--quiet"]
    with control_group(LIMIT_BYTES) as group:
        done = subprocess.run(
            ["sh", "-c", join, "sh", str(group), *command], capture_output=True, text=True
        )
        peak_bytes = peak_of(group)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert peak_bytes is None or peak_bytes <= LIMIT_BYTES
    record = json.loads((tmp_path / "run/record.json").read_text())
    assert record["measured"]["peak_memory_bytes"] <= LIMIT_BYTES
    assert record["plan"]["memory_bytes"] == LIMIT_BYTES
    assert record["plan"]["depth"] > 1
    # Heat does not change what is linear; all values and their sums are exact.
    found = np.load(tmp_path / "run/u.npy", mmap_mode="r")
    assert found.shape == SHAPE
    for plane in range(0, SHAPE[0], 7):
        assert (found[plane] == plane).all()


@pytest.mark.parametrize(
    ("stencil", "dtype", "source"),
    [("heat7", "float32", "wide.npy"), ("wave:2", "float64", "exp(-(x - 900)**2 / 4e4)")],
)
def test_the_smallest_limit_that_fits_holds(stencil, dtype, source, tmp_path):
    """Planes of 8 or 16 MiB through staging, values of another type or from a formula."""
    shape = (9, 1447, 1447)
    np.save(tmp_path / "wide.npy", np.full(shape, 0.5))
    names = ["u"] if stencil == "heat7" else ["u", "c"]
    initial = ", ".join(f'{name} = "{source}"' for name in names)
    (tmp_path / "job.toml").write_text(
        f"""
        [problem]
        stencil = "{stencil}"
        shape = {list(shape)}
        dtype = "{dtype}"
        steps = 3
        initial = {{{initial}}}
        [run]
        tier = "direct"
        out = "run"
        """
    )
    job = load_job(tmp_path / "job.toml", {"memory": "32MiB"})
    with pytest.raises(InfeasiblePlan) as refused:
        pipeline.plan(job.problem, job.options)
    (limit,) = re.findall(r"a limit of (\d+ MiB) fits", str(refused.value))
    command = [sys.executable, "-m", "outgrid", "run", str(tmp_path / "job.toml"), "--quiet"]
    subprocess.run([*command, "--memory", limit], check=True, stdout=subprocess.DEVNULL)
    record = json.loads((tmp_path / "run/record.json").read_text())
    assert record["measured"]["peak_memory_bytes"] <= parse_bytes(limit)
