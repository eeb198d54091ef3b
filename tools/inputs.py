"""Every way into a run: the rate of what is read straight beside `.npy`, and the peak of memory.

    .venv/bin/python tools/inputs.py --limit 384MiB --times 16 --folder /nvme/inputs

Writes one field, `times` as large as the limit, in each format; reads those that lie in one piece
in turns with the `.npy` file, three times each, and gives the best rates and their ratios; then
begins a run with each in a control group of the limit, page cache included, compares what the run
has with what was written, and gives the peak of its process. Ends with 1 where a value differs, a
ratio is below 0.95 or a peak is above the limit.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from outgrid.errors import UsageError
from outgrid.exports import convert
from outgrid.formats import InputFile, boxes, open_input
from outgrid.units import format_bytes, parse_bytes
from outgrid_bench.limit import limited

EDGE = 512
TURNS = 3
LEAST_RATIO = 0.95
SLAB_BYTES = 8 << 20
STRAIGHT = {"raw": "u.raw", "HDF5": "u.h5", "NetCDF": "u.nc", "TIFF": "u.tif"}
DECODED = {"Zarr, zstd": ("u.zarr", "zstd:1"), "HDF5, gzip": ("g.h5", "gzip:1")}
RUN = """
import json, sys
import numpy as np
import outgrid as og

def given(kind, path):
    if kind == "file":
        return og.InputFile(**json.loads(path))
    if kind == "mapped":
        return np.load(path, mmap_mode="r")
    import h5py
    array = h5py.File(path)["u"]
    if kind == "h5py":
        return array
    import dask.array as da
    array = da.from_array(array, chunks=(4, 512, 512))
    if kind == "dask":
        return array
    import xarray as xr
    return xr.DataArray(array, dims=("z", "y", "x"))

kind, path, planes, memory, out = sys.argv[1:]
problem = og.Problem("heat7", (int(planes), 512, 512), "float32", 0, {"k": 0.1},
                     initial={"u": given(kind, path)})
og.run(problem, memory=memory, tier="direct", out=out, progress=False)
"""


def plane(number):
    """What is in a plane: no two are alike."""
    return (np.arange(EDGE * EDGE, dtype="f4") * (number % 7 + 1) + number).reshape(EDGE, EDGE)


def write(path, planes):
    """The field, a plane at a time."""
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (planes, EDGE, EDGE)}
        np.lib.format.write_array_header_1_0(file, header)
        for number in range(planes):
            file.write(plane(number).data)


def read_seconds(file, shape):
    """Seconds to read all of a file, planes at a time, past what is cached."""
    with open(file.path, "rb") as stored:
        os.fsync(stored.fileno())
        os.posix_fadvise(stored.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    source = open_input(file, shape)
    begin = time.perf_counter()
    cells = SLAB_BYTES // (4 * shape[-1])
    for box in boxes(tuple(map(range, shape[:-1])), source.chunk[:-1], cells):
        source.read((*box, range(shape[-1])))
    seconds = time.perf_counter() - begin
    source.close()
    return seconds


def rates(files, shape):
    """The best rate of each in bytes per second, read in turns."""
    best = {}
    for _ in range(TURNS):
        for name, file in files.items():
            seconds = read_seconds(file, shape)
            best[name] = min(best.get(name, seconds), seconds)
    return {name: 4 * np.prod(shape) / seconds for name, seconds in best.items()}


def peak(kind, path, planes, limit, folder):
    """The peak of a run that begins so, and whether it has the right values."""
    out = folder / "out.run"
    command = [sys.executable, "-c", RUN, kind, path, str(planes), str(limit), str(out)]
    with limited(limit) as group:
        if not group.enforced:
            raise UsageError(group.reason)
        done = group.try_run(command, 3600)
    if done.returncode:
        print(done.stderr)
        return None, False
    record = json.loads((out / "record.json").read_text())
    peak_bytes = record["measured"]["peak_memory_bytes"]
    result = np.load(out / "u.npy", mmap_mode="r")
    same = all(np.array_equal(result[number], plane(number)) for number in range(planes))
    shutil.rmtree(out)
    return peak_bytes, same


def measure(folder, limit, times, only):
    """Print both tables; whether all is as it should be."""
    planes = times * limit // (4 * EDGE * EDGE)
    shape = (planes, EDGE, EDGE)
    write(folder / "u.npy", planes)
    files = {"npy": InputFile(str(folder / "u.npy"))}
    for name, file in STRAIGHT.items():
        convert(files["npy"], folder / file)
        bare = {"shape": shape, "dtype": "f4"} if name == "raw" else {}
        files[name] = InputFile(str(folder / file), **bare)
    measured, good = rates(files, shape), True
    print(f"{format_bytes(4 * np.prod(shape))}, limit {format_bytes(limit)}")
    for name, rate in measured.items():
        ratio = rate / measured["npy"]
        good &= ratio >= LEAST_RATIO
        print(f"{name:12} {rate / 1e9:6.2f} GB/s  {ratio:5.2f} of npy")
    for name, (file, codec) in DECODED.items():
        convert(files["npy"], folder / file, chunks=(4, EDGE, EDGE), codec=codec)
        files[name] = InputFile(str(folder / file))
    ways = {name: ("file", json.dumps(file.to_dict())) for name, file in files.items()}
    ways |= {"mapped": ("mapped", str(folder / "u.npy"))}
    ways |= {kind: (kind, str(folder / "u.h5")) for kind in ("h5py", "dask", "xarray")}
    for name, (kind, path) in ways.items():
        if only and name not in only:
            continue
        peak_bytes, same = peak(kind, path, planes, limit, folder)
        good &= same and peak_bytes is not None and peak_bytes <= limit
        shown = "none" if peak_bytes is None else f"{peak_bytes / limit:.2f} of the limit"
        print(f"{name:12} peak {shown}, {'the same values' if same else 'OTHER VALUES'}")
    return good


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--limit", default="384MiB", type=parse_bytes)
    parser.add_argument("--times", default=16, type=int)
    parser.add_argument("--folder", type=Path, help="on the disk that is measured")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="ways that begin a run (all)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as made:
        sys.exit(0 if measure(Path(made), given.limit, given.times, given.only) else 1)
