"""The README's figures are those of the committed records."""

import importlib
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


def row(mode, glups, **others):
    key = {
        "stencil": "heat7",
        "dtype": "float64",
        "machine": "2 cores of ours, Linux",
        "ended": "2026",
    }
    streamed = {"wait_share": 0.1, "over_resident": 0.9, "over_tiled": 0.8, "factor": 8}
    limits = {"memory_limit_bytes": 1 << 29, "shape": [64, 64, 64]}
    return {**key, **streamed, **limits, "mode": mode, "glups": glups, **others}


def over_beside(tmp_path, monkeypatch, rates, **streamed):
    """The cell "over it, beside" of a record of one row out of core; what is below the table."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    measured = importlib.import_module("measured")
    monkeypatch.setattr(measured, "RECORDS", tmp_path)
    rows = [row(mode, glups) for mode, glups in rates.items()]
    rows.append(row("outofcore", 4.0, **streamed))
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    _, _, line, *below = measured.machines_table().splitlines()
    return line.split("|")[7].strip(), "\n".join(below)


def test_a_rate_is_set_over_what_was_measured_beside_it(tmp_path, monkeypatch):
    def found(**rates):
        beside = {"over_plain": 3.0, "plain_beside": [1.2, 1.3]}
        return over_beside(tmp_path, monkeypatch, {"tiled": 5.0, **rates}, **beside)

    assert found(plain=2.0, hand=1.0) == ("3.00", "")
    assert found(plain=2.0, hand=2.5) == ("", "")  # nobody measured the loop beside the row


def test_a_ratio_to_a_sweep_that_is_newer_than_the_row_is_left_out(tmp_path, monkeypatch):
    def found(**rates):
        streamed = {"over_plain": 3.0, "over_best": 1.75, "plain_beside": [], "ended": ""}
        newer = {"plain": 2.0, "tiled": 5.0, **rates}
        return over_beside(tmp_path, monkeypatch, newer, **streamed)[0]

    assert found(hand=1.0) == "1.75"
    assert found(hand=2.5) == ""


def test_a_ratio_is_as_recorded_and_marked_where_others_disturbed_it(tmp_path, monkeypatch):
    def found(*beside):
        streamed = {"over_plain": 3.0, "over_best": 1.75, "plain_beside": beside}
        rates = {"plain": 2.0, "hand": 2.5, "tiled": 5.0}
        return over_beside(tmp_path, monkeypatch, rates, **streamed)

    assert found(1.0, 1.19) == ("1.75", "")
    ratio, below = found(1.25, 1.0)
    assert ratio == "1.75 \\*"
    assert "differ by more than 20 %" in below


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
