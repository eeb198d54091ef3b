"""Files of different times and runs that were put together: a resume gives the same bytes, or none.

A backup that was restored in part does that: an older manifest beside later fields, samples of
another run, a snapshot that is missing.
"""

import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.definition import stencil
from outgrid.errors import Error
from outgrid.record import RECORD_NAME
from outgrid.runs import ledger
from outgrid.runs.lock import LOCK_NAME
from outgrid.runs.manifest import read_manifest
from outgrid.runs.places import OWNER_NAME
from outgrid.runs.reading import PROGRESS_NAME, STATUS_NAME
from outgrid.runs.verify import verify
from outgrid.stencil.laplacian import laplacian
from outgrid.stencil.points import Receiver
from outgrid.stencil.problem import Problem
from outgrid.stencil.reduction import max_over, sum_over
from outgrid.stencil.snapshot import Snapshot
from outgrid.testing.threads import in_threads

STEPS = 12
CHANCES = 40  # pairs that are tried, of some hundreds


@stencil
def swinging(u, c):
    """A wave through a medium, of which the extremes are followed."""
    return {"u": 2 * u - u.previous + c * laplacian(u), "peak": max_over(u), "sum": sum_over(u * u)}


def problem(seed: int) -> Problem:
    values = np.random.default_rng(seed).random((26, 9, 12))
    return Problem(
        swinging,
        values.shape,
        "float64",
        STEPS,
        initial={"u": values, "c": 0.1},
        receivers=[Receiver("u", (5, 4, 3)), Receiver("u", (20, 2, 7.5))],
        snapshots=[Snapshot("u", every=2, y=3), Snapshot("u", every=5)],
    )


def options(out: Path, **others) -> RunOptions:
    given = {"memory": "256MiB", "tier": "direct", "depth": 3, "slab_planes": 2, "threads": 1}
    return RunOptions.of(out=out, **(given | {"commit_every": 0} | others))


def copies(where: Path, seed: int, monkeypatch, **given) -> list[Path]:
    """What is on the disk after each commit of a run, and its results at last."""
    write, found, out = ledger.write_manifest, list[Path](), where / "run"
    where.mkdir()

    def keep(_out, manifest):
        write(_out, manifest)
        if manifest.steps_done >= 0:
            found.append(where / f"{len(found)}")
            shutil.copytree(out, found[-1])

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "write_manifest", keep)
        pipeline.run(problem(seed), options(out, **given))
    return [*found, out]


def results(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.glob("*.npy"))}


def names(out: Path) -> list[Path]:
    """The files that a resume trusts: not what says how far a run is, which comes with time."""
    found = sorted(path.relative_to(out) for path in out.rglob("*") if path.is_file())
    others = (LOCK_NAME, OWNER_NAME, RECORD_NAME, STATUS_NAME, PROGRESS_NAME)
    return [path for path in found if path.name not in others]


def resumed(out: Path, **given) -> dict[str, bytes] | None:
    """What a resume leaves; None where it refuses."""
    try:
        pipeline.resume(out, options(out, **given))
    except Error:
        return None
    return results(out)


def spoilt(copy: Path, path: Path, other: Path | None) -> None:
    """Let a file be that of another time or run; none where there is no other."""
    (copy / path).unlink(missing_ok=True)
    if other is not None and (other / path).exists():
        shutil.copyfile(other / path, copy / path)


@pytest.mark.parametrize("given", [{}, {"strip_rows": 4}, {"tier": "memory"}], ids=str)
def test_files_of_other_times_and_runs_are_refused_or_make_no_difference(
    given, tmp_path, monkeypatch
):
    mine = copies(tmp_path / "mine", 1, monkeypatch, **given)
    others = copies(tmp_path / "other", 2, monkeypatch, **given)
    answer, times = results(mine[-1]), mine[:-1]
    assert len(times) > 3
    assert {"receivers.npy", "reductions.npy", "snapshot.1.npy", "u.npy"} <= {*answer}
    # The results beside are no part of what is mixed, so they cannot make up for what is refused.
    cases = [
        (at, path, other)
        for at, time in enumerate(times)
        for path in names(time)
        for other in (None, *times[:at], *times[at + 1 :], *others)
    ]
    random.Random(3).shuffle(cases)
    refused = 0
    for at, path, other in cases[:CHANCES]:
        copy = tmp_path / "copy"
        shutil.copytree(times[at], copy)
        spoilt(copy, path, other)
        left = resumed(copy, **given)
        assert left in (None, answer), f"{path} of {other} in {times[at]}"
        refused += left is None
        shutil.rmtree(copy)
    assert 0 < refused < CHANCES


def ranks(act, out: Path, count: int):
    """The same call of all ranks, which are threads."""
    given = RunOptions.of(memory="256MiB", threads=1, depth=3, slab_planes=2, out=out)
    what = out if act is pipeline.resume else problem(1)
    return in_threads(lambda comm: act(what, given, comm=comm), count, random.Random(count))[0]


def test_so_are_those_of_ranks(tmp_path, cut_off):
    early, late, out = (tmp_path / name for name in ("early", "late", "run"))
    pipeline.run(problem(1), options(tmp_path / "whole"))
    answer, values = results(tmp_path / "whole"), np.load(tmp_path / "whole/u.npy")
    cut_off(34, lambda: ranks(pipeline.run, out, 2))
    shutil.copytree(out, early)
    cut_off(26, lambda: ranks(pipeline.resume, out, 2))
    shutil.move(out, late)
    done = [read_manifest(each).steps_done for each in early.glob("rank.?")]
    then = [read_manifest(each).steps_done for each in late.glob("rank.?")]
    assert 0 < min(done) < min(then)
    nothing = Path("nothing")
    cases = [(path, count, other) for path in names(late) for count in (2, 1) for other in (0, 1)]
    random.Random(4).shuffle(cases)
    refused = 0
    for path, count, other in [(nothing, 2, 0), (nothing, 1, 0), *cases[:24]]:
        shutil.copytree(late, out)
        spoilt(out, path, early if other else None)
        try:
            found = ranks(pipeline.resume, out, count)
        except Error:
            assert path != nothing
            refused += 1
        else:
            assert np.asarray(found["u"]).tobytes() == values.tobytes(), path
            for name in ("receivers.npy", "reductions.npy", "snapshot.0.npy", "snapshot.1.npy"):
                assert (out / name).read_bytes() == answer[name], (path, count, other)
            assert not verify(out).errors
        shutil.rmtree(out)
    assert 0 < refused < 24


def test_every_file_that_matters_is_named(tmp_path, monkeypatch):
    mine = copies(tmp_path / "mine", 1, monkeypatch)
    later = copies(tmp_path / "other", 2, monkeypatch)
    at = len(mine) // 2
    assert resumed(mine[at]) == results(mine[-1])
    parity = read_manifest(mine[at - 1]).parity
    for path in names(mine[at - 1]):
        if path.name.endswith(f".{1 - parity}.npy") or path.name.endswith(".xxh3"):
            continue  # what is written over, and what is read with the file that it belongs to
        if path.name == "c.npy":
            continue  # which has the same bytes in both
        copy = tmp_path / "copy"
        shutil.copytree(mine[at - 1], copy)
        spoilt(copy, path, later[at - 1])
        if path.name == "manifest.json":
            spoilt(copy, Path(OWNER_NAME), later[at - 1])
        with pytest.raises(Error, match=re.escape(str(copy))):
            pipeline.resume(copy, options(copy))
        shutil.rmtree(copy)


def test_an_older_state_beside_a_manifest_is_told_by_its_step(tmp_path, monkeypatch):
    times = copies(tmp_path / "mine", 1, monkeypatch)
    old, new = times[1], times[-2]
    shutil.copyfile(old / "manifest.json", new / "manifest.json")
    words = r"belong to another state: they are of step \d+ of this run, and 'u.*' after"
    told = [str(error) for error in verify(new).errors]
    assert any(re.search(words, error) for error in told), told
    with pytest.raises(Error, match=r"samples\.npy"):
        pipeline.resume(new, options(new))
