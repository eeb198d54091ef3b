"""The same bytes from every compiler for every processor, on one rank and on ranks that differ."""

import importlib.util
import os
import platform
import runpy
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import outgrid as og

RANKS = Path(__file__).with_name("compiled_ranks.py")
problem = runpy.run_path(str(RANKS))["problem"]
MPIEXEC = Path(sys.executable).parent / "mpiexec"
TARGETS = {"x86_64": ("", "-march=x86-64-v2", "-march=x86-64-v3")}.get(platform.machine(), ("",))
COMMANDS = [
    f"{compiler} -O1 {target}".strip()
    for compiler in ("g++", "clang++")
    for target in TARGETS
    if shutil.which(compiler.split()[0]) is not None
]


def compiled_by(
    command: str, out: Path, dtype: str, threads: int = 1, pin: bool = False
) -> dict[str, bytes]:
    """What a run leaves whose kernel a command has made."""
    result = og.run(
        problem(dtype),
        memory="512MiB",
        tier="direct",
        depth=3,
        threads=threads,
        pin=pin,
        out=out,
    )
    assert f", {command} " in result.record.parts[-1].compiler
    return {name: np.asarray(result[name]).tobytes() for name in result}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_compiler_and_processor_gives_the_same_bytes(dtype, tmp_path, monkeypatch):
    found, commands = [], COMMANDS if dtype == "float32" else COMMANDS[::2]
    for number, command in enumerate(commands):
        monkeypatch.setenv("CXX", command)
        found.append(compiled_by(command, tmp_path / str(number), dtype))
    assert set(found[0]) == {"u", "u.previous", "v"}
    assert all(np.isfinite(np.frombuffer(each, dtype)).all() for each in found[0].values())
    for command, each in zip(commands, found, strict=True):
        assert each == found[0], command


def test_the_compiler_that_pip_installs_gives_the_same_bytes(tmp_path, monkeypatch):
    """It builds its C++ library first, which takes minutes."""
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("the package ziglang is not installed")
    wanted = compiled_by(os.environ["CXX"], tmp_path / "usual", "float32")
    command = f"{sys.executable} -m ziglang c++"
    for n, options in enumerate(
        ("", " -O1 -march=x86_64_v3" if "x86" in platform.machine() else " -O1")
    ):
        monkeypatch.setenv("CXX", command + options)
        assert compiled_by(command + options, tmp_path / str(n), "float32", threads=2) == wanted


def test_teams_of_any_size_leave_the_same_bytes(tmp_path):
    command = os.environ["CXX"]
    wanted = compiled_by(command, tmp_path / "one", "float32")
    for threads, pin in ((3, False), (2, True), (5, False), (1, True)):
        found = compiled_by(command, tmp_path / f"{threads}{pin}", "float32", threads, pin)
        assert found == wanted, (threads, pin)


def test_teams_of_several_callers_and_of_a_forked_process(tmp_path):
    command = os.environ["CXX"]
    wanted = compiled_by(command, tmp_path / "alone", "float32", threads=2)
    with ThreadPoolExecutor(3) as callers:
        places = [tmp_path / f"caller{number}" for number in range(3)]
        for found in callers.map(lambda out: compiled_by(command, out, "float32", 2), places):
            assert found == wanted
    program = f"""
import os, runpy
import numpy as np
import outgrid as og
problem = runpy.run_path({str(RANKS)!r})["problem"]("float32")
def run(out):
    return og.run(problem, memory="512MiB", tier="direct", depth=3, threads=2, out=out)
run({str(tmp_path / "parent")!r})
child = os.fork()
if child == 0:
    run({str(tmp_path / "child")!r})
    raise SystemExit(0)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=300)
    for name, content in wanted.items():
        assert np.asarray(og.open(tmp_path / "child")[name]).tobytes() == content


@pytest.mark.mpi
def test_ranks_whose_compilers_differ_give_the_bytes_of_one(tmp_path):
    pytest.importorskip("mpi4py")
    chosen = [COMMANDS[0], COMMANDS[-1], COMMANDS[len(TARGETS) - 1]]
    command = [str(MPIEXEC)]
    for each in chosen:
        command += ["-n", "1", "-env", "CXX", each, sys.executable, str(RANKS), str(tmp_path), ":"]
    environment = os.environ | {"MPIR_CVAR_ENABLE_BUSY_WAIT_YIELD": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command[:-1], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    wanted = compiled_by(os.environ["CXX"], tmp_path / "alone", "float32")
    for exchange in ("halos", "seams"):
        found = og.open(tmp_path / exchange)
        assert len(found.record.ranks) == 3
        for name, content in wanted.items():
            assert np.asarray(found[name]).tobytes() == content, (exchange, name)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")
def test_settings_that_bind_threads_leave_all_processors_to_the_process(tmp_path):
    """As on clusters. No library of OpenMP is loaded, which would bind the thread that calls it."""
    program = f"""
import os, outgrid as og
before = os.sched_getaffinity(0)
problem = og.Problem("heat7", (20, 12, 16), steps=4, parameters={{"k": 0.1}}, initial={{"u": "x"}})
og.run(problem, out={str(tmp_path / "run")!r}, memory="200MiB", threads=2, progress=False)
assert os.sched_getaffinity(0) == before
assert "libgomp" not in open("/proc/self/maps").read()
"""
    binding = os.environ | {"OMP_PROC_BIND": "true", "OMP_PLACES": "cores"}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300, env=binding)
