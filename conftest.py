"""How the suite runs.

The same cases are drawn every time, so that a change is judged by what it did and not by its luck.
OUTGRID_HYPOTHESIS=search draws others each time, OUTGRID_HYPOTHESIS=thorough 60 times as many.
Tests that `tests/thorough.txt` names have the mark "thorough"; pytest runs them as all others,
`make test` does not.
"""

import gc
import os
import shlex
import signal
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from outgrid.build.compiler import find_compiler

settings.register_profile(
    "quick",
    max_examples=16,
    derandomize=True,
    deadline=None,  # some examples compile a kernel
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("search", settings.get_profile("quick"), derandomize=False)
settings.register_profile("thorough", settings.get_profile("search"), max_examples=1000)
settings.load_profile(os.environ.get("OUTGRID_HYPOTHESIS", "quick"))


# A shell starts what runs in the background with Ctrl-C ignored, and processes inherit that: those
# that the tests start and interrupt would not end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Keep what is compiled for the tests from one run to the next, out of the user's cache.

    They are compiled with little optimisation, which takes a third of the time and changes no bit.
    Those tests that look at what users get take the variable away; CXX="g++ -O3" does so for all.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each process would compile all modules anew
    os.environ["OUTGRID_CACHE"] = str(config.cache.mkdir("kernels"))
    if "CXX" not in os.environ:
        os.environ["CXX"] = f"{shlex.join(find_compiler().command)} -Og"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that are left to `make thorough`, and put short ones last.

    So that none is begun when other workers have no more to do that takes long.
    """
    lines = (Path(__file__).parent / "tests" / "thorough.txt").read_text().splitlines()
    named = [line.split() for line in lines if line and not line.startswith("#")]
    patterns = {node: some or ["*"] for node, *some in named}
    for item in items:
        node, _, given = item.nodeid.partition("[")
        if any(fnmatchcase(given.removesuffix("]"), one) for one in patterns.get(node, ())):
            item.add_marker("thorough")
    items.sort(key=lambda item: "tests/unit/" in item.nodeid)


def pytest_collection_finish() -> None:
    """Let the collector pass over what stays until the end: thousands of tests, and all modules.

    A run that takes much memory has it look through everything, at a third of a second each time.
    """
    gc.collect()
    gc.freeze()
