"""The memory limit holds, and the system is asked to say so: a run in a control group."""

import json
import os
import re
import subprocess
import sys
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
from outgrid_bench.limit import limited

LIMIT = "128MiB"
LIMIT_BYTES = parse_bytes(LIMIT)
SHAPE = (512, 512, 512)  # 1 GiB, eight times the limit

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


def free_bytes(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def test_a_grid_eight_times_the_limit(tmp_path):
    if free_bytes(tmp_path) < 4 << 30:
        pytest.skip(f"needs 4 GiB of free disk, {free_bytes(tmp_path) >> 20} MiB are there")
    (tmp_path / "job.toml").write_text(JOB)
    # The compiler is another process, whose memory the limit of a run does not speak of.
    build(generate(resolve("heat7").trace(3), "float64"), find_compiler())
    command = [sys.executable, "-m", "outgrid", "run", str(tmp_path / "job.toml"), "--quiet"]
    with limited(LIMIT_BYTES) as group:
        if not group.enforced:
            pytest.skip(group.reason)
        done = group.try_run(command, 120)
        peak_bytes = group.peak_bytes
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


WAYS = {
    "plain": {"tier": "direct", "scheme": "plain"},
    "skewed": {"tier": "direct", "depth": 6},
    "strips": {"tier": "direct", "depth": 4, "strip_rows": 96},
    "overlapped": {"tier": "direct", "scheme": "overlapped", "depth": 2, "block": [12, 126, 254]},
    "memory": {"tier": "memory"},
    "mmap": {"tier": "mmap", "depth": 4},
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_stays_under_the_smallest_limit_that_it_names(way, tmp_path):
    """From the import to the report, in a control group; a limit of less is refused."""
    settings = "".join(f"{key} = {json.dumps(value)}\n" for key, value in WAYS[way].items())
    job = JOB.replace("512, 512, 512", "64, 256, 256").replace("steps = 12", "steps = 7")
    (tmp_path / "job.toml").write_text(job + settings)
    build(generate(resolve("heat7").trace(3), "float64"), find_compiler())
    job_file = tmp_path / "job.toml"
    given = load_job(job_file, {"memory": "16MiB"})
    with pytest.raises(InfeasiblePlan) as refused:
        pipeline.plan(given.problem, given.options)
    (mebibytes,) = re.findall(r"a limit of (\d+) MiB fits", str(refused.value))
    limit_bytes = int(mebibytes) << 20
    command = [sys.executable, "-m", "outgrid", "run", str(job_file), "--memory"]
    less = subprocess.run([*command, f"{int(mebibytes) - 1}MiB"], capture_output=True, text=True)
    assert less.returncode == 3
    assert f"a limit of {mebibytes} MiB fits" in less.stderr
    with limited(limit_bytes) as group:
        if not group.enforced:
            pytest.skip(group.reason)
        done = group.try_run([*command, f"{mebibytes}MiB"], 120)
        assert done.returncode == 0, done.stderr
        assert group.peak_bytes is None or group.peak_bytes <= limit_bytes
    record = json.loads((tmp_path / "run/record.json").read_text())
    assert record["measured"]["peak_memory_bytes"] <= limit_bytes
    found = np.load(tmp_path / "run/u.npy", mmap_mode="r")
    assert all((found[plane] == plane).all() for plane in range(0, 64, 7))


@pytest.mark.parametrize("given", [{}, {"in_place": True, "scheme": "plain"}], ids=str)
def test_mapped_files_under_a_limit_that_is_enforced(given, tmp_path):
    """What the page cache keeps counts as well: it is given back where the limit asks for it."""
    settings = "".join(f"{key} = {json.dumps(value)}\n" for key, value in given.items())
    job = JOB.replace("512, 512, 512", "80, 512, 512").replace("steps = 12", "steps = 3")
    (tmp_path / "job.toml").write_text(job + 'tier = "mmap"\n' + settings)
    build(generate(resolve("heat7").trace(3), "float64"), find_compiler())
    command = [sys.executable, "-m", "outgrid", "run", str(tmp_path / "job.toml"), "--quiet"]
    with limited(LIMIT_BYTES) as group:
        if not group.enforced:
            pytest.skip(group.reason)
        done = group.try_run(command, 120)
        assert done.returncode == 0, done.stderr
        assert group.peak_bytes is None or group.peak_bytes <= LIMIT_BYTES
    record = json.loads((tmp_path / "run/record.json").read_text())
    # In place, pages of libraries that other processes had loaded count for us, not for the group.
    assert given or record["measured"]["peak_memory_bytes"] <= LIMIT_BYTES
    found = np.load(tmp_path / "run/u.npy", mmap_mode="r")
    assert all((found[plane] == plane).all() for plane in range(0, 80, 7))
