"""A graph beyond memory: distances from some of its vertices, and PageRank, by products.

The adjacency matrix of a random graph with few vertices of many edges (R-MAT, as in Graph500) is
written strip by strip, one byte for each pair of vertices, and streamed for each product. A breadth
first search from several vertices at once is one product for each step away from them; PageRank is
the power method. Both are compared with what SciPy finds in the sparse graph.

    python graph.py --vertices 32768 --memory 128MiB --folder /nvme
    mpiexec -n 2 python graph.py

Methods: Chakrabarti, Zhan and Faloutsos, "R-MAT" (2004); Page, Brin, Motwani and Winograd, "The
PageRank Citation Ranking" (1998).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra

import outgrid as og
from outgrid.parts import world
from outgrid.units import format_bytes, parse_bytes

EDGES = 16  # for each vertex, as Graph500 has them
SHARES = (0.57, 0.19, 0.19, 0.05)  # of edges in the quarters of the matrix, again in each quarter
DAMPING = 0.85
STRIP_ROWS = 256


def random_graph(vertices: int) -> csr_matrix:
    """Edges in both directions between vertices of an R-MAT graph, each once, none to itself."""
    random = np.random.default_rng(1)
    ends = np.zeros((2, EDGES * vertices), np.int64)
    for bit in range((vertices - 1).bit_length()):
        quarter = random.choice(4, EDGES * vertices, p=SHARES)
        ends |= np.stack((quarter >> 1, quarter & 1)) << bit
    ends = ends[:, (ends[0] != ends[1]) & (ends < vertices).all(0)]
    rows, columns = np.hstack((ends, ends[::-1]))
    graph = csr_matrix((np.ones(len(rows), np.uint8), (rows, columns)), (vertices, vertices))
    graph.sum_duplicates()
    graph.data[:] = 1
    return graph


def write_adjacency(graph: csr_matrix, path: Path) -> None:
    """The dense matrix, strip by strip."""
    matrix = np.lib.format.open_memmap(path, "w+", np.uint8, graph.shape)
    for start in range(0, graph.shape[0], STRIP_ROWS):
        matrix[start : start + STRIP_ROWS] = graph[start : start + STRIP_ROWS].toarray()
    matrix.flush()


def distances(matrix, sources: np.ndarray) -> np.ndarray:
    """Edges from each source to each vertex, -1 where no path leads: (vertices, sources)."""
    vertices = matrix.shape[0]
    steps = np.full((vertices, len(sources)), -1)
    steps[sources, np.arange(len(sources))] = 0
    front = steps == 0
    while front.any():
        reached = matrix @ front.astype(np.float32) > 0
        front = reached & (steps < 0)
        steps[front] = steps.max() + 1
    return steps


def pagerank(matrix, degrees: np.ndarray, tolerance: float = 1e-7) -> np.ndarray:
    """Where somebody is who follows edges by chance and at times begins anywhere."""
    vertices = len(degrees)
    rank = np.full(vertices, 1 / vertices)
    while True:
        away = np.divide(rank, degrees, out=np.zeros(vertices), where=degrees > 0)
        lost = rank[degrees == 0].sum()
        following = DAMPING * (matrix @ away + lost / vertices) + (1 - DAMPING) / vertices
        if np.abs(following - rank).sum() < tolerance:
            return following
        rank = following


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vertices", type=int, default=8192)
    parser.add_argument("--sources", type=int, default=4)
    parser.add_argument("--memory", default="24MiB", help="of the matrix in memory at most")
    parser.add_argument("--folder", type=Path, help="where the matrix is written for a while")
    arguments = parser.parse_args()
    comm = world()
    graph = random_graph(arguments.vertices)
    degrees = np.asarray(graph.sum(1, dtype=np.int64)).ravel()
    sources = np.argsort(-degrees, kind="stable")[:: max(1, arguments.vertices // 64)]
    sources = sources[: arguments.sources]
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        # One rank writes, all read: they share a folder.
        path = Path(comm.share(folder)[0]) / "adjacency.npy"
        if comm.rank == 0:
            write_adjacency(graph, path)
        comm.share(None)
        matrix = og.matrix(path, memory=arguments.memory)
        begin = time.perf_counter()
        steps = distances(matrix, sources)
        searched = time.perf_counter()
        rank = pagerank(matrix, degrees)
        ended = time.perf_counter()
        comm.share(None)
    sparse = dijkstra(graph, unweighted=True, indices=sources).T
    same = np.array_equal(steps, np.where(np.isinf(sparse), -1, sparse))
    off = np.abs(rank - pagerank(graph.astype(np.float64), degrees)).max() / rank.max()
    if comm.rank == 0:
        size, over = graph.shape[0] ** 2, graph.shape[0] ** 2 / parse_bytes(arguments.memory)
        print(
            f"{graph.shape[0]} vertices, {graph.nnz} edges, a matrix of {format_bytes(size)}: "
            f"{over:.1f} times its memory"
        )
        print(
            f"distances from {len(sources)} vertices: {searched - begin:.1f} s, "
            f"{steps.max()} at most, {'those' if same else 'NOT THOSE'} of SciPy"
        )
        print(f"PageRank: {ended - searched:.1f} s, {off:.1e} of the largest off SciPy's")
    if not same or off > 1e-6:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
