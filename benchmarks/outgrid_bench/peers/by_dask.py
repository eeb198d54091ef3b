"""Dask's map_overlap over Zarr arrays on disk, one step per pass: the usual way out of core."""

# pyright: basic, reportMissingImports=false, reportPrivateImportUsage=false

import json
import sys
import time
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import zarr

CHUNKS_IN_MEMORY = 64  # an update of a chunk holds several copies of it, on every thread


def update(u, k):
    """One step of a chunk with a halo of one plane."""
    inside = u[1:-1, 1:-1, 1:-1]
    near = (u[1:-1, 1:-1, :-2] + u[1:-1, 1:-1, 2:]) + (u[1:-1, :-2, 1:-1] + u[1:-1, 2:, 1:-1])
    near += u[:-2, 1:-1, 1:-1] + u[2:, 1:-1, 1:-1]
    following = u.copy()
    following[1:-1, 1:-1, 1:-1] += k * (near - 6 * inside)
    return following


def main() -> None:
    """Step the problem of the JSON file that is named."""
    with open(sys.argv[1]) as file:
        problem = json.load(file)
    start = np.load(problem["start"], mmap_mode="r")
    k = start.dtype.type(problem["k"])
    planes = max(2, problem["memory_bytes"] // CHUNKS_IN_MEMORY // start[0].nbytes)
    chunks = (planes, *start.shape[1:])
    stores = []
    for i in (0, 1):
        path = str(Path(problem["folder"]) / f"grid-{i}.zarr")
        form = {"shape": start.shape, "chunks": chunks, "dtype": start.dtype}
        stores.append(zarr.create_array(path, compressors=None, **form))
    for first in range(0, start.shape[0], planes):
        stores[0][first : first + planes] = start[first : first + planes]
    dask.config.set(scheduler="threads")
    begin = time.perf_counter()
    for step in range(problem["steps"]):
        u = da.from_zarr(stores[step % 2])
        # Only the first axis is cut, so only there is a halo; the ends of the grid stay as they
        # are because a chunk's outermost planes are never updated.
        following = u.map_overlap(
            update, k=k, depth={0: 1, 1: 0, 2: 0}, boundary="none", dtype=u.dtype
        )
        da.store(following, stores[(step + 1) % 2], lock=False)
    seconds = time.perf_counter() - begin
    last = stores[problem["steps"] % 2]
    answer = np.lib.format.open_memmap(
        problem["answer"], mode="w+", dtype=start.dtype, shape=start.shape
    )
    for first in range(0, start.shape[0], planes):
        answer[first : first + planes] = last[first : first + planes]
    answer.flush()
    version = f"{dask.__version__}, zarr {zarr.__version__}"
    json.dump({"seconds": seconds, "version": version}, sys.stdout)


if __name__ == "__main__":
    main()
