"""The example that clusters digits through a matrix larger than its memory."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import eigsh

import outgrid as og

EXAMPLE = Path(__file__).parents[3] / "examples" / "spectral_clustering.py"


def test_digits_are_told_apart_without_labels(tmp_path):
    options = ["--copies", "1", "--memory", "10MiB", "--folder", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), *options], capture_output=True, text=True, check=True
    )
    assert "1.2 times its memory" in done.stdout
    told = dict(re.findall(r"(accuracy|purity|information) (\d\.\d+)", done.stdout))
    assert all(float(told[name]) > 0.8 for name in ("accuracy", "purity", "information"))
    assert not list(tmp_path.iterdir())


def test_eigenvectors_and_groups_stand_beside_those_found_in_memory(tmp_path):
    # Here, not above: every worker imports all modules, and this takes more than a second.
    from sklearn.cluster import SpectralClustering
    from sklearn.metrics import normalized_mutual_info_score

    example = runpy.run_path(str(EXAMPLE))
    points, labels = example["pictures"](1)
    path = tmp_path / "similarity.npy"
    example["write_similarity"](points, path, example["WIDTH"])
    begin = np.ones(len(points), np.float32)
    _, vectors = eigsh(og.matrix(path, memory="10MiB"), k=10, which="LA", tol=1e-4, v0=begin)
    whole, count = np.load(path).astype(float), len(points)
    _, exact = eigh(whole, subset_by_index=(count - 10, count - 1))
    shared = np.linalg.svd(exact.T @ vectors, compute_uv=False)
    assert shared.min() > 0.999  # the same space
    squares = (points**2).sum(1)
    distance = squares[:, None] + squares - 2 * points @ points.T
    similarity = np.exp(-np.maximum(distance, 0) / (2 * example["WIDTH"] ** 2))
    theirs = SpectralClustering(10, affinity="precomputed", random_state=0).fit_predict(similarity)
    ours = example["cluster"](vectors)
    told, wanted = (normalized_mutual_info_score(labels, found) for found in (ours, theirs))
    assert told > wanted - 0.02  # scikit-learn scales the eigenvectors in another way
