"""Loops with OpenMP, as people write them: compiled, and loaded so that they bind no thread.

With the settings of clusters (`OMP_PROC_BIND`) libgomp binds the thread that loads it to one
processor, and every thread and process that this one starts later.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from outgrid.parts import build, find_compiler

__all__ = ["FLAG", "built_with_openmp", "loaded"]

FLAG = "-fopenmp"
BIND = "OMP_PROC_BIND"


def built_with_openmp(source: str) -> ctypes.CDLL:
    """The library of a C++ source with OpenMP. Raises BuildError."""
    compiler = find_compiler()
    with _unbound():
        return build(source, replace(compiler, command=(*compiler.command, FLAG))).handle


def loaded(path: Path) -> ctypes.CDLL:
    """A library that was compiled with OpenMP."""
    with _unbound():
        return ctypes.CDLL(str(path))


@contextmanager
def _unbound() -> Generator[None]:
    before = os.environ.get(BIND)
    os.environ[BIND] = "false"
    try:
        yield
    finally:
        del os.environ[BIND]
        if before is not None:
            os.environ[BIND] = before
