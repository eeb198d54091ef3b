"""The same bytes from every compiler for every processor, on one rank and on ranks that differ."""

import os
import platform
import runpy
import shutil
import subprocess
import sys
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
    if shutil.which(compiler) is not None
]


def compiled_by(command: str, out: Path, dtype: str) -> dict[str, bytes]:
    """What a run leaves whose kernel a command has made."""
    result = og.run(problem(dtype), memory="512MiB", tier="direct", depth=3, threads=1, out=out)
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
