import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from outgrid.cli import main
from outgrid.probe.profile import known_machine
from outgrid_bench.peers import by_yask, compare
from outgrid_bench.peers.by_yask import Solution
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


SCRIPT = """#!/bin/sh
echo "$@" >> given
echo "Version: 4.05.04"
echo "  Num outer threads:       $(cat threads)"
echo "  stencil-description:    {kernel}"
echo "  element-size:           {real_bytes}B"
case "$*" in *-no-pre_auto_tune*) ;; *)
    echo " auto-tuner: block-size:             t=6 * x=12 * y=24 * z=24"
    echo " auto-tuner: micro-block-size:       t=6 * x=8 * y=4 * z=24" ;;
esac
case "$*" in
    *"-auto_tune_targets mb,b"*) echo "  mid-throughput (num-points/sec): 2.5G" ;;
    *) echo "  mid-throughput (num-points/sec): 800M" ;;
esac
exit {code}
"""


WAVE = by_yask.SOLUTIONS["wave:8"]


def built(
    folder: Path, solution: Solution = WAVE, code: int = 0, threads: int | None = None, **said: int
) -> Path:
    """A folder as YASK leaves it, with a program that says what YASK would, or what is ``said``."""
    (folder / "bin").mkdir(parents=True)
    (folder / "build").mkdir()
    name = f"yask_kernel.{solution.name}.avx512"
    (folder / "bin" / f"{name}.exe").touch()
    kernel = f"{solution.name} radius {said.get('radius', solution.radius)}"
    real_bytes = said.get("real_bytes", solution.real_bytes)
    script = folder / "bin" / "yask.sh"
    script.write_text(SCRIPT.format(code=code, kernel=kernel, real_bytes=real_bytes))
    script.chmod(0o755)
    report = folder / "build" / f"{name}.make-report.txt"
    report.write_text("YK_CXX=g++\nYK_CXXVER=g++ 12.2.0 Copyright (C) 2022\n")
    (folder / "threads").write_text(str(threads or known_machine(folder).cores))
    return folder


@pytest.fixture
def ours(monkeypatch):
    """Rates of ours, which is not run."""
    monkeypatch.setattr(by_yask, "_ours", lambda problem, place, threads: 2.0)
    monkeypatch.setattr(by_yask, "_streamed", lambda workload, place: (1.5, "a limit"))


def small(name: str = "wave:8") -> Workload:
    return by_yask.cube_workload(name, 192 << 20, 0.04, extent=24, steps=6)


def test_yask_is_run_where_it_was_built_in_turns_with_ours(tmp_path, monkeypatch, ours):
    folder = built(tmp_path / "yask")
    monkeypatch.setenv(by_yask.VARIABLE, str(folder))
    memory, fastest, other, streamed = by_yask.measure_yask(None, tmp_path, quiet, small())
    assert (memory.glups, memory.shape) == (2.0, (24, 24, 24))
    assert (fastest.glups, fastest.ours_over) == (2.5, 0.8)
    assert fastest.note.startswith("fastest: YASK 4.05.04 built by g++ 12.2.0, tuner of blocks")
    assert "found x=12 y=24 z=24 by x=8 y=4 z=24" in fastest.note
    assert (other.glups, other.ours_over) == (0.8, 2.5)
    assert "found" not in other.note
    assert (streamed.mode, streamed.glups, streamed.memory_limit_bytes) == (
        "outofcore",
        1.5,
        192 << 20,
    )
    assert streamed.shape[1:] == (24, 24)
    assert streamed.note == "0.60 of yask in memory; a limit"
    given = (folder / "given").read_text()
    assert len(given.splitlines()) == by_yask.ROUNDS * len(WAVE.ways(24, 2))
    assert all(part in given for part in ("-arch avx512", "-g 24", "-trial_steps 6"))


@pytest.mark.parametrize("name", by_yask.SOLUTIONS)
def test_each_stencil_runs_the_kernel_of_its_name_on_the_same_cells(name, tmp_path, ours):
    solution, workload = by_yask.SOLUTIONS[name], small(name)
    folder = built(tmp_path / "yask", solution)
    memory, fastest, *_ = by_yask.measure_yask(folder, tmp_path, quiet, workload)
    assert fastest.glups == 2.5
    assert np.dtype(memory.dtype).itemsize == solution.real_bytes
    assert workload.case.stencil.radius[-1] == solution.radius
    assert f"-stencil {solution.name} " in (folder / "given").read_text()


def test_yask_has_a_block_for_each_thread():
    for options in WAVE.ways(extent=514, threads=4).values():
        given = dict(zip(options[::2], options[1::2], strict=False))
        assert (given["-bx"], given["-by"], given["-bz"]) == ("129", "514", "514")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"code": 3}, "exit code 3"),
        ({"radius": 8}, "it is another kernel: build it by `make stencil=iso3dfd radius=4"),
        ({"real_bytes": 8}, "it is another kernel: build it by `make stencil=iso3dfd radius=4"),
        ({"threads": 999}, "it did not run with"),
    ],
)
def test_a_yask_that_cannot_run_says_why(changes, said, tmp_path, ours):
    folder = built(tmp_path / "yask", **changes)
    row = by_yask.measure_yask(folder, tmp_path, quiet, small())[1]
    assert (row.glups, row.ours_over) == (None, None)
    assert said in row.note


def test_a_yask_that_takes_too_long_is_ended(tmp_path, monkeypatch, ours):
    folder = built(tmp_path / "yask")
    (folder / "bin" / "yask.sh").write_text("#!/bin/sh\nsleep 60 | cat\n")
    monkeypatch.setattr(by_yask, "SECONDS", 0.2)
    row = by_yask.measure_yask(folder, tmp_path, quiet, small())[1]
    assert "stopped after 0 s" in row.note


def test_our_wave_has_a_rate_where_there_is_no_yask(tmp_path, monkeypatch, capsys, ours):
    monkeypatch.delenv(by_yask.VARIABLE, raising=False)
    assert main(["bench", "peers", "--only", "wave:8", "--quick"]) == 0
    assert WAVE.built_by in capsys.readouterr().out
    assert main(["bench", "peers", "--only", "wave:8", "--yask", str(tmp_path)]) == 0
    assert "holds no kernel" in capsys.readouterr().out
    assert main(["bench", "peers", "--only", "heat7", "--quick", "--yask", str(tmp_path)]) == 0
    assert by_yask.SOLUTIONS["heat7"].built_by in capsys.readouterr().out
    assert main(["bench", "peers", "--only", "wave:8", "--python", "python"]) == 2
    assert main(["bench", "peers", "--only", "heat7:float32", "--yask", str(tmp_path)]) == 2


def test_our_wave_is_measured_in_memory_and_out_of_core(tmp_path):
    memory, *_, streamed = by_yask.measure_yask(tmp_path, tmp_path, quiet, small())
    assert memory.glups > 0
    assert streamed.glups > 0
    assert list(tmp_path.iterdir()) == []
