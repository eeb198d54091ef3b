"""What an objective counts by: its code, and all values that this reads."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import outgrid as og
from outgrid.reversal.identity import identity

SHAPE = (6, 5)
PROBLEM = og.Problem("heat5", SHAPE, steps=1, parameters={"k": 0.1}, initial={"u": 0.0})

SOURCE = """
import logging, math
import numpy as np
from types import SimpleNamespace
from functools import cache
log = logging.getLogger("misfit")
OBS = np.zeros(3)
SCALE, PLACES, UNUSED = 2.0, {"a": [1, 2]}, 1
traces = 4
VALUES, CALLS = [], 0
SETTINGS = SimpleNamespace(power=2)
LOOP = [1]
LOOP.append(LOOP)

class Norm:
    power = 2
    def __init__(self, scale):
        self.scale, self.own = scale, self
    def of(self, apart):
        return self.scale * (apart ** self.power).sum()

NORM = Norm(1.0)

def weighed(values):
    return SCALE * even(values)

def even(values, depth=0):
    return values if depth else weighed(values)

@cache
def place(name):
    return PLACES[name]

def misfit(seen):
    global CALLS
    CALLS += 1
    log.info(LOOP)
    value = NORM.of(weighed(seen.traces - OBS)) + place("a")[0] ** SETTINGS.power
    VALUES.append(value)
    inner = [math.sqrt(one) for one in OBS if one in {"a", "b", "c", "d", "e"}]
    return value, inner
"""


def digest(source=SOURCE, change=""):
    made = {"__name__": "misfits"}
    exec(source + change, made)
    return identity(PROBLEM, made["misfit"], [])


@pytest.mark.parametrize(
    "change",
    [
        "OBS = np.ones(3)",
        "OBS[1] = 2",
        "SCALE = 3",
        "PLACES['a'].append(3)",
        "SETTINGS.power = 1",
        "NORM.scale = 2",
        "Norm.power = 1",
        "Norm.of = lambda self, apart: 0",
        "even = lambda values, depth=0: values",
        "LOOP.append(2)",
    ],
)
def test_values_that_the_code_of_an_objective_reads_count(change):
    assert digest(change=change) != digest()


@pytest.mark.parametrize(
    "change",
    ["", "UNUSED = 2", "traces = 5", "VALUES.append(1)", "CALLS = 7", "log.setLevel(10)"],
)
def test_others_do_not(change):
    assert digest(change=change) == digest()


def test_the_digest_is_that_of_another_process():
    told = subprocess.run(
        [sys.executable, "-c", "from test_identity import digest; print(digest())"],
        env={"PYTHONPATH": str(Path(__file__).parent), "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == f"{digest()}\n"


def test_files_and_what_is_no_file_of_values(tmp_path):
    path = tmp_path / "observed.npy"

    def of(value):
        return identity(PROBLEM, partial(print, value), [])

    missing = of(str(path))
    np.save(path, np.zeros(3))
    there = of(str(path))
    np.save(path, np.ones(3))
    assert len({missing, there, of(str(path)), of(tmp_path)}) == 4
