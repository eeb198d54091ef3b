"""Gradients beside other programs: what is missing is said, and what differs."""

import sys
from dataclasses import replace
from pathlib import Path

from outgrid_bench.peers import gradients
from outgrid_bench.peers.compare import all_agree

TOLD = """
import json, sys, numpy as np
problem = json.load(open(sys.argv[1]))
np.save(problem["answer"], np.load(problem["model"]))
print(json.dumps({"seconds": 2.0, "forward_seconds": 1.0, "value": 0.0, "version": "1.2"}))
"""


def test_gradients_of_others_are_compared_and_missing_ones_are_named(tmp_path, monkeypatch):
    (tmp_path / "other.py").write_text(TOLD)
    peer = replace(gradients.PEERS[0], modules=("numpy",), script=str(tmp_path / "other.py"))
    missing = replace(gradients.PEERS[1], modules=("no_such_module",))
    monkeypatch.setattr(gradients, "PEERS", (peer, missing))
    monkeypatch.setattr(gradients, "FOLDER", Path("/"))
    monkeypatch.setattr(gradients, "ROUNDS", 1)
    said = []
    ours, other, absent = gradients.measure_gradients(None, tmp_path, said.append, 40, 20)
    assert ours.note.endswith("times its own run forward")
    assert (other.seconds, other.agrees) == (2.0, False)
    assert other.note == "1.2, 2.0 times its own run forward"
    assert absent.note == f"not installed; {sys.executable} -m pip install no_such_module"
    assert absent.seconds is None
    assert absent.agrees is None
    assert not all_agree([ours, other, absent])
    assert said == ["round 0 of 1", "round 1 of 1"]
    assert [path.name for path in tmp_path.iterdir()] == ["other.py"]
