"""Handwritten digits, found without a label: spectral clustering of a matrix beyond memory.

The 1797 pictures of scikit-learn's digits are repeated with noise; how alike any two of them are is
a dense matrix that grows with the square of their number. It is written to a file strip by strip
and handed to an eigensolver of SciPy as a linear operator that streams it. The leading eigenvectors
of the normalised matrix then separate the digits, and k-means on them finds ten groups. The labels
serve only to judge these.

    python spectral_clustering.py --copies 8 --memory 256MiB --folder /nvme

Method: Ng, Jordan and Weiss, "On Spectral Clustering: Analysis and an Algorithm" (2001).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse.linalg import eigsh
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix

import outgrid as og
from outgrid.units import format_bytes, parse_bytes

DIGITS = 10
NOISE = 1.0  # of pixels whose values go from 0 to 16
WIDTH = 8.0  # of the similarity exp(-distance^2 / (2 width^2)), below the distance of most digits
STRIP_BYTES = 32 << 20


def pictures(copies: int) -> tuple[np.ndarray, np.ndarray]:
    """All digits, `copies` times with noise: float32 of shape (n, 64), and their labels."""
    digits = load_digits()
    random = np.random.default_rng(0)
    repeated = np.tile(digits.data, (copies, 1)).astype(np.float32)
    repeated[len(digits.data) :] += NOISE * random.standard_normal(
        repeated[len(digits.data) :].shape, np.float32
    )
    return repeated, np.tile(digits.target, copies)


def write_similarity(points: np.ndarray, path: Path, width: float) -> None:
    """The normalised similarity D^-1/2 S D^-1/2 of all pairs, strip by strip, in two passes."""
    count = len(points)
    step = max(1, STRIP_BYTES // (4 * count))
    squares = (points**2).sum(1)

    def strips():
        for start in range(0, count, step):
            part = slice(start, min(start + step, count))
            distance = squares[part, None] + squares[None, :] - 2 * points[part] @ points.T
            yield part, np.exp(np.maximum(distance, 0) / np.float32(-2 * width * width))

    degrees = np.concatenate([strip.sum(1) for _, strip in strips()])
    scale = 1 / np.sqrt(degrees)
    matrix = np.lib.format.open_memmap(path, "w+", np.float32, (count, count))
    for part, strip in strips():
        matrix[part] = scale[part, None] * strip * scale[None, :]
    matrix.flush()


def cluster(vectors: np.ndarray) -> np.ndarray:
    """Ten groups of rows of unit length."""
    rows = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return KMeans(DIGITS, n_init=10, random_state=0).fit_predict(rows)


def accuracy(found: np.ndarray, labels: np.ndarray) -> float:
    """The share of pictures in the right group, each digit naming one group, so that it is
    largest."""
    counts = contingency_matrix(labels, found)
    return counts[linear_sum_assignment(-counts)].sum() / len(labels)


def purity(found: np.ndarray, labels: np.ndarray) -> float:
    """The share of pictures in a group that is named by the digit which most of it shows."""
    return contingency_matrix(labels, found).max(axis=0).sum() / len(labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--copies", type=int, default=4)
    parser.add_argument("--memory", default="64MiB", help="of the matrix in memory at most")
    parser.add_argument("--folder", type=Path, help="where the matrix is written for a while")
    parser.add_argument("--width", type=float, default=WIDTH)
    arguments = parser.parse_args()
    points, labels = pictures(arguments.copies)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = Path(folder) / "similarity.npy"
        write_similarity(points, path, arguments.width)
        matrix = og.matrix(path, memory=arguments.memory)
        count = len(points)
        begin = time.perf_counter()
        _, vectors = eigsh(matrix, k=DIGITS, which="LA", tol=1e-4, v0=np.ones(count, np.float32))
        seconds = time.perf_counter() - begin
    over = 4 * count**2 / parse_bytes(arguments.memory)
    print(
        f"{count} pictures, a matrix of {format_bytes(4 * count**2)}: {over:.1f} times its memory"
    )
    print(f"eigenvectors in {seconds:.1f} s")
    found = cluster(vectors)
    print(
        f"beside the labels: accuracy {accuracy(found, labels):.3f}, "
        f"purity {purity(found, labels):.3f}, "
        f"mutual information {normalized_mutual_info_score(labels, found):.3f}"
    )


if __name__ == "__main__":
    main()
