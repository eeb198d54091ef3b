"""The example that traverses a graph by an adjacency matrix larger than its memory."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "graph.py"
MPIEXEC = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.mpi)])
def test_distances_and_ranks_are_those_of_scipy(ranks, tmp_path):
    if ranks > 1 and MPIEXEC is None:
        pytest.skip("needs mpiexec")
    options = ["--vertices", "3600", "--memory", "9MiB", "--folder", str(tmp_path)]
    start = [] if ranks == 1 else [MPIEXEC, "-n", str(ranks)]
    done = subprocess.run(
        [*start, sys.executable, str(EXAMPLE), *options],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert "1.4 times its memory" in done.stdout
    assert "NOT THOSE" not in done.stdout
    assert done.stdout.count("those of SciPy") == 1  # rank 0 alone speaks
    assert not list(tmp_path.iterdir())
