"""The example that clusters digits through a matrix larger than its memory."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "spectral_clustering.py"


def test_digits_are_told_apart_without_labels(tmp_path):
    options = ["--copies", "1", "--memory", "10MiB", "--folder", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), *options], capture_output=True, text=True, check=True
    )
    assert "1.2 times its memory" in done.stdout
    assert float(done.stdout.split()[-1]) > 0.8
    assert not list(tmp_path.iterdir())
