"""What an installed wheel has to do: the tests that `make wheel` runs where nothing else is."""

import os
import subprocess
import sys

import numpy as np
import pytest

import outgrid as og
from outgrid import native
from outgrid.cli import main
from outgrid.errors import Stopped
from outgrid.testing.reference import run_reference

SHAPE = (24, 10, 17)
STREAMED = {"memory": "200MiB", "tier": "direct", "depth": 3, "slab_planes": 2, "progress": False}


def heat():
    initial = {"u": "x + y * z"}
    return og.Problem("heat7", SHAPE, "float64", 8, {"k": 0.125}, initial=initial)


def test_a_streamed_run_gives_the_bytes_of_the_reference(tmp_path):
    result = og.run(heat(), out=tmp_path / "run", **STREAMED)
    assert np.array(result["u"]).tobytes() == run_reference(heat())["u"].tobytes()
    assert main(["verify", str(tmp_path / "run")]) == 0


def test_a_stopped_run_goes_on(tmp_path):
    with pytest.raises(Stopped):
        og.run(heat(), out=tmp_path / "run", stop_after=1e-9, **STREAMED)
    result = og.resume(tmp_path / "run", progress=False)
    assert np.array(result["u"]).tobytes() == run_reference(heat())["u"].tobytes()


def test_the_command_is_there():
    command = [sys.executable, "-m", "outgrid", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"outgrid {og.__version__}\n"


@pytest.mark.skipif("OUTGRID_WHEEL" not in os.environ, reason="for wheels only")
def test_a_wheel_has_all_engines_and_is_what_runs():
    assert "site-packages" in og.__file__
    assert {"io_uring", "aio", "threads"} <= set(native.engines())
