import json
import shutil
from pathlib import Path

import pytest

from outgrid.cli import main
from outgrid_bench.peers import compare
from outgrid_bench.peers.compare import PEERS, Peer, all_agree, measure_peers, peer_workload
from outgrid_bench.tables import peer_table
from outgrid_bench.workloads import Workload, choose

WRONG = """
import json, sys, numpy as np
problem = json.load(open(sys.argv[1]))
values = np.load(problem["start"])
values[5, 5, 5] += 1e-6
np.save(problem["answer"], values)
print(json.dumps({"seconds": 0.5, "version": "wrong 1.0"}))
"""


def tiny(dtype: str = "float64") -> Workload:
    return Workload(choose(f"heat7:{dtype}"), 96 << 20, 0.04, (48, 64), 3)


def quiet(text: str) -> None:
    """Say nothing."""


def among(monkeypatch: pytest.MonkeyPatch, *peers: Peer) -> None:
    monkeypatch.setattr(compare, "PEERS", peers)


def test_a_missing_peer_says_how_to_install_it(tmp_path, monkeypatch):
    absent = Peer("absent", "by_numba.py", ("no_such_module",), "no-such-package", False)
    among(monkeypatch, absent)
    row = measure_peers(tiny(), None, tmp_path, quiet, 30)[-1]
    assert row.glups is None
    assert row.agrees is None
    assert "pip install no-such-package" in row.note
    assert "no-such-package" in peer_table([row])


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_c_over_mapped_files_agrees_with_both_of_ours(dtype, tmp_path, monkeypatch):
    among(monkeypatch, *(peer for peer in PEERS if peer.name == "c + mmap"))
    rows = measure_peers(tiny(dtype), None, tmp_path, quiet, 60)
    assert [(row.peer, row.mode) for row in rows] == [
        ("outgrid", "memory"),
        ("outgrid", "outofcore"),
        ("c + mmap", "outofcore"),
    ]
    assert all_agree(rows)
    assert rows[2].agrees
    assert rows[2].ours_over == pytest.approx(rows[1].glups / rows[2].glups)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_answer_differs(tmp_path, monkeypatch):
    script = tmp_path / "wrong.py"
    script.write_text(WRONG)
    among(monkeypatch, Peer("wrong", str(script), ("numpy",), "numpy", False))
    row = measure_peers(tiny(), None, tmp_path, quiet, 30)[-1]
    assert row.agrees is False
    assert not all_agree([row])


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("import time; time.sleep(60)", "stopped after 1 s"),
        ("raise ValueError('no such grid')", "exit code 1: ValueError: no such grid"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ended by signal 9"),
    ],
)
def test_a_peer_that_ends_early_is_a_row(text, note, tmp_path, monkeypatch):
    script = tmp_path / "early.py"
    script.write_text(text)
    among(monkeypatch, Peer("early", str(script), ("numpy",), "numpy", True))
    row = measure_peers(tiny(), None, tmp_path, quiet, 1)[-1]
    assert note in row.note
    assert row.glups is None


@pytest.mark.peer
@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_peers_that_are_installed_agree(peer, tmp_path, monkeypatch):
    for module in peer.modules:
        pytest.importorskip(module)
    among(monkeypatch, peer)
    row = measure_peers(tiny(), None, tmp_path, quiet, 120, swap=True)[-1]
    if row.glups is None:  # it does not fit so small a limit, or has no swap to go to
        assert row.note
        pytest.skip(row.note)
    assert row.agrees, row.note


def test_usual_grids_fit_a_small_machine():
    for quick in (True, False):
        posed = peer_workload(None, None, "float64", quick)
        assert posed.problem().field_bytes <= 2 << 30
        assert posed.factor > 1


def test_rows_are_written_as_json(tmp_path, monkeypatch, capsys):
    among(monkeypatch)
    monkeypatch.setattr("outgrid_bench.cli.peers.peer_workload", lambda *given: tiny())
    path = tmp_path / "peers.json"
    assert main(["bench", "peers", "--scratch", str(tmp_path), "--json", str(path)]) == 0
    assert [row["peer"] for row in json.loads(Path(path).read_text())] == ["outgrid", "outgrid"]
    assert "agrees" in capsys.readouterr().out
    assert main(["bench", "peers", "--only", "heat5"]) == 2
