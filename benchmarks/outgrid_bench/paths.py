"""Every way into a run and out of it, of a field many times as large as a limit of memory.

Each way is a program of its own in a control group of that limit, page cache included: it has to
end, with the values that were written, and its own memory has to stay within the limit.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import outgrid as og
from outgrid.errors import ExecutionError
from outgrid.formats import InputFile, open_file
from outgrid_bench.limit import Limited, limited

EDGE = 512
MOST_SECONDS = 1800
IMPORT = ("import", "u.npy", "--memory", "128MiB", "--to")
IMPORTED = {"in.h5": (), "in.zarr": ("--codec", "zstd:1", "--chunks", "4,512,512")}
BEGUN = {
    ".npy": 'og.InputFile("u.npy")',
    "HDF5": 'og.InputFile("in.h5")',
    "Zarr, zstd": 'og.InputFile("in.zarr")',
    "h5py": 'h5py.File("in.h5")["u"]',
    "dask": 'da.from_array(h5py.File("in.h5")["u"], chunks=(4, 512, 512))',
    "xarray": 'xr.open_dataset("in.h5", engine="h5netcdf")["u"]',
}
LEFT = ("out.h5", "out.vtkhdf", "out.run")
EXPORT = ("export", "out.run", "--memory", "128MiB", "--to")
EXPORTED = {
    "to.zarr": ("--codec", "zstd:1", "--chunks", "64", "--levels"),
    "to.h5": (),
    "to.tif": (),
}
RUN = """
import json, resource, sys
import outgrid as og

planes, memory, given, out = sys.argv[1:]
if "h5py" in given:
    import h5py
if "da." in given:
    import dask.array as da
if "xr." in given:
    import xarray as xr
shape = int(planes), 512, 512
problem = og.Problem("heat7", shape, "float32", 0, {"k": 0.1}, initial={"u": eval(given)})
og.run(problem, memory=int(memory), tier="direct", out=out, progress=False)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
"""
VERB = """
import resource, sys
from outgrid.cli import main

code = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
sys.exit(code)
"""

Say = Callable[[str], None]


def measure_paths(
    folder: Path, limit_bytes: int, times: float, say: Say, *, few: bool = False
) -> dict[str, Any]:
    """The peak of each way over the limit, or of a `few` of them.

    Raises ExecutionError where one ends or values differ. Where no control group can be made, says
    so and measures nothing.
    """
    planes = max(1, int(times * limit_bytes) // (4 * EDGE * EDGE))
    with limited(limit_bytes) as group:
        if not group.enforced:
            return {"reason": group.reason}
        peaks = _Peaks(group, folder, planes, limit_bytes, say).measured(few)
    return {"limit_bytes": limit_bytes, "times": times, "peak_over_limit": peaks}


class _Peaks:
    """The peaks of programs that are run in a control group, in a folder of their own."""

    def __init__(
        self, group: Limited, folder: Path, planes: int, limit_bytes: int, say: Say
    ) -> None:
        self.group, self.folder, self.say = group, folder, say
        self.planes, self.limit_bytes = planes, limit_bytes
        self.peaks: dict[str, float] = {}

    def measured(self, few: bool) -> dict[str, float]:
        """Those of all ways."""
        _write(self.folder / "u.npy", self.planes)
        for name, how in (*IMPORTED.items(),)[: 1 if few else None]:
            self._take(f"import to {name}", VERB, *IMPORT, name, *how)
        for name, given in (*BEGUN.items(),)[: 1 if few else None]:
            self._run(f"run that begins with {name}", given, "out.run")
        for out in LEFT[-1:] if few else LEFT:
            self._run(f"run to {out}", BEGUN[".npy"], out, kept=out == LEFT[-1])
        for name, how in (*EXPORTED.items(),)[: 1 if few else None]:
            self._take(f"export to {name}", VERB, *EXPORT, name, *how)
            self._check(InputFile(f"{self.folder}/{name}" + (":u/0" if "--levels" in how else "")))
            self._remove(name)
        return self.peaks

    def _run(self, name: str, given: str, out: str, *, kept: bool = False) -> None:
        self._take(name, RUN, str(self.planes), str(self.limit_bytes), given, out)
        result = og.open(self.folder / "out.run")
        if "u" in result.record.offsets:
            inside = "VTKHDF/PointData/u" if out.endswith(".vtkhdf") else "u"
            self._check(InputFile(f"{self.folder}/{out}:{inside}"))
        else:
            self._check(InputFile(str(result.path("u"))))
        if not kept:
            for path in {out, "out.run"}:
                self._remove(path)

    def _take(self, name: str, program: str, *words: str) -> None:
        self.say(f"under the limit: {name}")
        text = f"import os; os.chdir({str(self.folder)!r})\n{program}"
        done = self.group.try_run([sys.executable, "-c", text, *words], MOST_SECONDS)
        if done.returncode:
            raise ExecutionError(f"{name} ended with {done.returncode}: {done.stderr[-2000:]}")
        self.peaks[name] = int(done.stdout.split()[-1]) / self.limit_bytes

    def _check(self, file: InputFile) -> None:
        """Raise ExecutionError where the values are not those that were written."""
        source = open_file(file)
        for number in range(self.planes):
            box = range(number, number + 1), range(EDGE), range(EDGE)
            if not np.array_equal(source.read(box)[0], _plane(number)):
                raise ExecutionError(f"{file} does not hold the values that were written")
        source.close()

    def _remove(self, name: str) -> None:
        path = self.folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _plane(number: int) -> NDArray[Any]:
    """What is in a plane: no two are alike."""
    cells = np.arange(EDGE * EDGE, dtype="f4")
    return (cells * (number % 7 + 1) + number).reshape(EDGE, EDGE)


def _write(path: Path, planes: int) -> None:
    with path.open("wb") as file:
        header: dict[str, Any] = {"descr": "<f4", "fortran_order": False}
        np.lib.format.write_array_header_1_0(file, header | {"shape": (planes, EDGE, EDGE)})
        for number in range(planes):
            file.write(_plane(number).data)
