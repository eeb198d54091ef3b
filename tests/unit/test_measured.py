"""The README's figures are those of the committed records."""

import json
import runpy
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


# They begin with arrays of NumPy, which are held, or make several runs.
IN_MEMORY = {"coherence", "diffusivity", "drude_sphere", "inversion", "life", "rtm", "temperature"}


def test_every_application_runs_beyond_memory_with_the_bytes_of_memory(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    found = runpy.run_path(str(ROOT / "tools" / "applications.py"))
    programs = {
        path.stem
        for path in (ROOT / "examples").glob("*.py")
        # Those without arguments of their own show files, on a grid of one size.
        if "from command import" in (text := path.read_text()) and "arguments(__doc__)" not in text
    }
    assert programs - IN_MEMORY == {case.name for case in found["CASES"]} - {found["DEMO"]}
    assert programs >= IN_MEMORY
    rows = json.loads((ROOT / "benchmarks" / "records" / "applications.json").read_text())["rows"]
    assert {row["name"] for row in rows} <= {case.name for case in found["CASES"]}
    for row in rows:
        assert row["identical"], row["name"]
        assert not row["failure"], row["name"]
        assert row["peak_bytes"] <= row["limit_bytes"] <= row["state_bytes"] / 4, row["name"]
