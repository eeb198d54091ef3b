"""Every way into a run and out of it, of a field many times as large as a limit of memory.

Each way is a program of its own in a control group of that limit, page cache included: it has to
end, with the values that were written, and its own memory has to stay within the limit.
"""

from __future__ import annotations

import gzip
import importlib
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterator
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
IMPORTED = {
    "in.h5": (),
    "in.zarr": ("--codec", "zstd:1", "--chunks", "4,512,512"),
    "levels.zarr": ("--chunks", "64", "--levels"),
    "in.nc": (),
    "in.tif": (),
}
SAMPLES = 32767  # of a trace, the most of SEG-Y
TRACES = ("import", "traces.h5", "--memory", "128MiB", "--to", "traces.segy")
RAW = 'og.InputFile("in.raw", shape=(int(planes), 512, 512), dtype="<f4", offset=128)'
BEGUN = {
    ".npy": 'og.InputFile("u.npy")',
    "HDF5": 'og.InputFile("in.h5")',
    "Zarr, zstd": 'og.InputFile("in.zarr")',
    "NetCDF": 'og.InputFile("in.nc")',
    "TIFF": 'og.InputFile("in.tif")',
    "NIfTI, gzip": 'og.InputFile("in.nii.gz")',
    "SEG-Y": 'og.InputFile("in.segy")',
    "bare numbers": RAW,
    "transpose": 'og.InputFile("turned.npy", transpose=(1, 0, 2))',
    "interp": 'og.InputFile("finer.npy", interp="linear")',
    "h5py": 'h5py.File("in.h5")["u"]',
    "dask": 'da.from_array(h5py.File("in.h5")["u"], chunks=(4, 512, 512))',
    "xarray": 'xr.open_dataset("in.h5", engine="h5netcdf")["u"]',
}
LEFT = {
    "out.h5": {},
    "out.vtkhdf": {},
    "out.nc": {},
    "levels.run": {"pyramid": True},
    "out.run": {},
}
EXPORT = ("export", "out.run", "--memory", "128MiB", "--to")
EXPORTED = {
    "to.zarr": ("--codec", "zstd:1", "--chunks", "64", "--levels"),
    "shards.zarr": ("--codec", "zstd:1", "--chunks", "64"),
    "files.zarr": ("--codec", "zstd:1", "--chunks", "64", "--unsharded"),
    "to.nc": (),
    "to.h5": (),
    "to.tif": (),
}
PARTS = ("import", "begin", "leave")
RUN = """
import json, sys
import outgrid as og

planes, memory, given, out, more = sys.argv[1:]
if "h5py" in given:
    import h5py
if "da." in given:
    import dask.array as da
if "xr." in given:
    import xarray as xr
shape = int(planes), 512, 512
problem = og.Problem("heat7", shape, "float32", 0, {"k": 0.1}, initial={"u": eval(given)})
og.run(problem, memory=int(memory), tier="direct", out=out, progress=False, **json.loads(more))
print(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
"""
SERVED = """
import http.client, sys, threading
from pathlib import Path
from outgrid.serving import Served

served = Served(Path(sys.argv[1]))
threading.Thread(target=served.serve_forever, daemon=True).start()
for name in sys.argv[2:]:
    client = http.client.HTTPConnection(*served.server_address)
    client.request("GET", "/" + name)
    answer = client.getresponse()
    there, left = open(sys.argv[1] + "/" + name, "rb"), (Path(sys.argv[1]) / name).stat().st_size
    while left:
        piece = answer.read(1 << 20)
        assert piece and piece == there.read(len(piece)), name
        left -= len(piece)
served.shutdown()
print(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
"""
VERB = """
import sys
from outgrid.cli import main

code = main(sys.argv[1:])
print(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
sys.exit(code)
"""

Say = Callable[[str], None]


def measure_paths(
    folder: Path,
    limit_bytes: int,
    times: float,
    say: Say,
    *,
    few: bool = False,
    only: Collection[str] = PARTS,
) -> dict[str, Any]:
    """The peak of each way over the limit, of some PARTS, or of a `few` of the ways of each.

    Raises ExecutionError where one ends or values differ. Where no control group can be made, says
    so and measures nothing.
    """
    planes = max(1, int(times * limit_bytes) // (4 * EDGE * EDGE))
    with limited(limit_bytes) as group:
        if not group.enforced:
            return {"reason": group.reason}
        peaks = _Peaks(group, folder, planes, limit_bytes, say).measured(few, only)
    return {"limit_bytes": limit_bytes, "times": times, "peak_over_limit": peaks}


class _Peaks:
    """The peaks of programs that are run in a control group, in a folder of their own."""

    def __init__(
        self, group: Limited, folder: Path, planes: int, limit_bytes: int, say: Say
    ) -> None:
        self.group, self.folder, self.say = group, folder, say
        self.planes, self.limit_bytes = planes, limit_bytes
        self.peaks: dict[str, float] = {}

    def measured(self, few: bool, only: Collection[str]) -> dict[str, float]:
        """Those of all ways."""
        _make("u.npy", self.folder, self.planes)
        most = 1 if few else None
        for name, how in (*IMPORTED.items(),)[:most] if "import" in only else ():
            self._convert("import", name, *IMPORT, name, *how)
        if "import" in only:
            self._trace(min(100, SAMPLES) if few else SAMPLES)
        for name, given in (*BEGUN.items(),)[:most] if "begin" in only else ():
            made = self._made(given)
            self._run(f"run that begins with {name}", given, "out.run", {})
            self._remove(*made)
        for out, more in (*LEFT.items(),)[-1 if few else None :] if "leave" in only else ():
            self._run(f"run to {out}", BEGUN[".npy"], out, more, kept=out == "out.run")
        for name, how in (*EXPORTED.items(),)[:most] if "leave" in only else ():
            self._convert("export", name, *EXPORT, name, *how)
        if "leave" in only:
            self._take("serve", SERVED, "out.run", "u.npy", "u/c/0/0/0")
        return self.peaks

    def _convert(self, verb: str, name: str, *words: str) -> None:
        self._take(f"{verb} to {name}", VERB, *words)
        self._check(InputFile(f"{self.folder}/{name}" + (":u/0" if "--levels" in words else "")))
        self._remove(name)

    def _trace(self, samples: int) -> None:
        """Traces as a file of SEG-Y; what receivers saw is in memory as long as a run is."""
        h5py, traces = importlib.import_module("h5py"), self.planes * EDGE * EDGE // samples
        shape, cells = (traces, samples), np.arange(samples, dtype="f4")
        with h5py.File(self.folder / TRACES[1], "x") as file:
            array, times = (
                file.create_dataset("u", shape, "f4"),
                file.create_dataset("time", data=np.arange(samples) * 0.001),
            )
            times.make_scale("time")
            array.dims[0].label = "trace"
            array.dims[1].attach_scale(times)
            for number in range(traces):
                array[number] = cells + number
        self._take("import to traces.segy", VERB, *TRACES)
        source = open_file(InputFile(f"{self.folder}/{TRACES[-1]}"))
        for number in range(traces):
            values = source.read((range(number, number + 1), range(samples)))
            if not np.array_equal(values[0], cells + number):
                raise ExecutionError(f"{TRACES[-1]} does not hold the values that were written")
        source.close()
        self._remove(TRACES[1], TRACES[-1])

    def _made(self, given: str) -> list[str]:
        """Make the file that a run is to begin with, outside of the group; its name."""
        name = given.partition('"')[2].partition('"')[0]
        if (self.folder / name).exists():
            return []
        self.say(f"makes {name}")
        if name in IMPORTED:
            zarr = name == "in.zarr"
            og.convert(
                InputFile(f"{self.folder}/u.npy"),
                self.folder / name,
                chunks=(4, EDGE, EDGE) if zarr else None,
                codec="zstd:1" if zarr else "none",
            )
        else:
            _make(name, self.folder, self.planes)
        return [name]

    def _run(
        self, name: str, given: str, out: str, more: dict[str, Any], *, kept: bool = False
    ) -> None:
        options = json.dumps(more)
        self._take(name, RUN, str(self.planes), str(self.limit_bytes), given, out, options)
        folder = self.folder / Path(out).with_suffix(".run")
        result = og.open(folder)
        if "u" in result.record.offsets:
            inside = "VTKHDF/PointData/u" if out.endswith(".vtkhdf") else "u"
            self._check(InputFile(f"{self.folder}/{out}:{inside}"))
        else:
            self._check(InputFile(str(result.path("u"))))
        if not kept:
            self._remove(*{out, folder.name})

    def _take(self, name: str, program: str, *words: str) -> None:
        self.say(f"under the limit: {name}")
        text = f"import os; os.chdir({str(self.folder)!r})\n{program}"
        done = self.group.try_run([sys.executable, "-c", text, *words], MOST_SECONDS)
        if done.returncode:
            raise ExecutionError(f"{name} ended with {done.returncode}: {done.stderr[-2000:]}")
        self.peaks[name] = 1024 * int(done.stdout.split()[-1]) / self.limit_bytes

    def _check(self, file: InputFile) -> None:
        """Raise ExecutionError where the values are not those that were written."""
        source = open_file(file)
        together = source.chunk[0]  # planes, of which nothing is decoded twice
        for first in range(0, self.planes, together):
            planes = range(first, min(self.planes, first + together))
            values = source.read((planes, range(EDGE), range(EDGE)))
            for number, plane in zip(planes, values, strict=True):
                if not np.array_equal(plane, _plane(number)):
                    raise ExecutionError(f"{file} does not hold the values that were written")
        source.close()

    def _remove(self, *names: str) -> None:
        for path in (self.folder / name for name in names):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _plane(number: int) -> NDArray[Any]:
    """What is in a plane: no two are alike."""
    cells = np.arange(EDGE * EDGE, dtype="f4")
    return (cells * (number % 7 + 1) + number).reshape(EDGE, EDGE)


def _make(name: str, folder: Path, planes: int) -> None:
    """Write a file of the planes of such a name, by no library but NumPy."""
    if name == "in.raw":
        os.link(folder / "u.npy", folder / name)  # whose head has 128 bytes
        return
    path = folder / name
    with gzip.GzipFile(path, "wb", 1) if name.endswith(".gz") else path.open("wb") as file:
        for piece in _CONTENTS[name](planes):
            file.write(piece)


def _npy(shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    header: dict[str, Any] = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue()


def _in_order(planes: int) -> Iterator[bytes]:
    yield _npy((planes, EDGE, EDGE))
    yield from (_plane(number).tobytes() for number in range(planes))


def _turned(planes: int) -> Iterator[bytes]:
    """Rows first, then planes."""
    yield _npy((EDGE, planes, EDGE))
    numbers = np.arange(planes, dtype="f4")[:, None]
    for row in range(EDGE):
        cells = np.arange(row * EDGE, (row + 1) * EDGE, dtype="f4")
        yield (cells * (numbers % 7 + 1) + numbers).astype("f4").tobytes()


def _finer(planes: int) -> Iterator[bytes]:
    """Every other column is one of the grid."""
    yield _npy((planes, EDGE, 2 * EDGE - 1))
    for number in range(planes):
        wider = np.zeros((EDGE, 2 * EDGE - 1), "<f4")
        wider[:, ::2] = _plane(number)
        yield wider.tobytes()


def _nifti(planes: int) -> Iterator[bytes]:
    head = np.zeros(352, np.uint8)
    head[:4] = np.array([348], "<i4").view(np.uint8)
    head[40:56] = np.array([3, EDGE, EDGE, planes, 1, 1, 1, 1], "<i2").view(np.uint8)
    head[70:74] = np.array([16, 32], "<i2").view(np.uint8)  # float32
    head[76:108] = np.ones(8, "<f4").view(np.uint8)
    head[108:120] = np.array([352, 1, 0], "<f4").view(np.uint8)  # first byte, slope, intercept
    head[344:348] = np.frombuffer(b"n+1\0", np.uint8)
    yield head.tobytes()
    yield from (_plane(number).tobytes() for number in range(planes))


def _segy(planes: int) -> Iterator[bytes]:
    """Inlines are planes, crosslines rows, IEEE numbers."""
    binary = np.zeros(400, np.uint8)
    for first, value in ((16, 1000), (20, EDGE), (24, 5), (28, 4), (300, 256), (302, 1)):
        binary[first : first + 2] = np.array([value], ">i2").view(np.uint8)
    yield b" " * 3200 + binary.tobytes()
    traces = np.zeros(EDGE, [("head", "u1", 240), ("values", ">f4", EDGE)])
    traces["head"][:, 114:118] = np.array([EDGE, 1000], ">i2").view(np.uint8)
    traces["head"][:, 192:196] = np.arange(1, EDGE + 1, dtype=">i4").view("u1").reshape(-1, 4)
    for number in range(planes):
        traces["head"][:, 188:192] = np.array([number + 1], ">i4").view(np.uint8)
        traces["values"] = _plane(number)
        yield traces.tobytes()


_CONTENTS: dict[str, Callable[[int], Iterator[bytes]]] = {
    "u.npy": _in_order,
    "turned.npy": _turned,
    "finer.npy": _finer,
    "in.nii.gz": _nifti,
    "in.segy": _segy,
}
