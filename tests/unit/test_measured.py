"""The README's figures are those of the committed records."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_of_the_readme_is_drawn_from_the_records():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "measured.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
