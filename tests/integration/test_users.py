"""Files of another user, and a home that nothing can be kept in: said in words, and left alone."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

OTHER = 65534  # nobody
JOB = """
[problem]
stencil = "heat5"
shape = [30, 40]
steps = {steps}
parameters = {{k = 0.1}}
initial = {{u = "sin(x + y)"}}
[run]
memory = "256MiB"
tier = "direct"
depth = 1
"""
PROGRAM = """
import contextlib, io, json, sys
from outgrid.cli import main
said = []
for arguments in json.loads(sys.argv[1]):
    words = io.StringIO()
    with contextlib.redirect_stderr(words), contextlib.redirect_stdout(io.StringIO()):
        code = main(arguments)
    said.append((code, words.getvalue()))
print(json.dumps(said))
"""


@pytest.fixture
def place(tmp_path) -> Iterator[Path]:
    """A folder that all may look into, and the other user writes to ``mine`` in it."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become another user, by setpriv")
    folder = Path("/tmp") / f"outgrid-users-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        (folder / "mine").mkdir()
        os.chown(folder / "mine", OTHER, OTHER)
        yield folder
    finally:
        shutil.rmtree(folder)


def outgrid(
    user: int, folder: Path, cache: str, *commands: tuple[str, ...]
) -> list[tuple[int, str]]:
    """Exit codes and messages of commands of a user, one after the other, in ``folder``."""
    environment = {
        k: v for k, v in os.environ.items() if k not in ("XDG_CACHE_HOME", "OUTGRID_CACHE")
    }
    environment |= {"HOME": str(folder)} | ({"OUTGRID_CACHE": str(folder / cache)} if cache else {})
    became = []
    if user:
        # The interpreter may lie where only root can read.
        reads = "-all,+dac_read_search"
        became = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        became += [f"--inh-caps={reads}", f"--ambient-caps={reads}"]
    done = subprocess.run(
        [*became, sys.executable, "-c", PROGRAM, json.dumps(commands)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if became and "setpriv: " in done.stderr:
        pytest.skip(f"nobody else can be become here: {done.stderr}")
    assert (done.returncode, done.stderr) == (0, "")
    return [(code, said) for code, said in json.loads(done.stdout)]


def listed(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Content and owner of all files."""
    return {
        str(path): (path.read_bytes(), path.stat().st_uid)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_another_users_runs_are_read_and_not_touched(place):
    (place / "job.toml").write_text(JOB.format(steps=40))
    run = ("run", "job.toml", "--quiet", "--out")
    ends = outgrid(0, place, "cache", (*run, "whole"), (*run, "cut", "--stop-after", "1ms"))
    assert [code for code, _ in ends] == [0, 75], ends
    before = listed(place)
    refused = {
        ("resume", "cut"): "cut/run.lock",
        ("clean", "cut", "--delete"): "cut/run.lock",
        (*run, "cut"): "cut",
        (*run, "whole"): "whole",
        (*run, "beside"): "beside",
        (*run, "mine/run", "--set", "scratch=cut/scratch"): "cut/scratch",
        ("report", "whole"): "whole/report",
    }
    for (command, named), (code, said) in zip(
        refused.items(), outgrid(OTHER, place, "mine/cache", *refused), strict=True
    ):
        assert code in (2, 3, 4), (command, code, said)
        assert said.startswith("outgrid: "), (command, said)
        assert named in said, (command, said)
    shutil.rmtree(place / "mine/cache", ignore_errors=True)
    assert listed(place) == before
    ends = outgrid(
        OTHER, place, "mine/cache", ("show", "whole"), ("verify", "whole"), (*run, "mine/run")
    )
    assert [code for code, _ in ends] == [0, 0, 0], ends
    found, wanted = (place / each / "u.npy" for each in ("mine/run", "whole"))
    assert found.read_bytes() == wanted.read_bytes()
    assert found.stat().st_uid == OTHER


def test_a_home_that_nothing_can_be_kept_in_is_named_with_the_way_out(place):
    (place / "job.toml").write_text(JOB.format(steps=3))
    out = ("--out", "mine/run")
    commands = (("plan", "job.toml", *out), ("run", "job.toml", "--quiet", *out))
    ends = outgrid(OTHER, place, "", *commands)
    assert [code for code, _ in ends] == [3, 4], ends
    for _, said in ends:
        assert f"{place}/.cache/outgrid" in said
        assert "$OUTGRID_CACHE" in said
    assert {path.name for path in place.rglob("*")} == {"job.toml", "mine"}


def test_kernels_of_another_user_are_not_loaded(place):
    (place / "job.toml").write_text(JOB.format(steps=3))
    run = ("run", "job.toml", "--quiet", "--out")
    assert outgrid(OTHER, place, "mine/cache", (*run, "mine/run")) == [(0, "")]
    ((code, said),) = outgrid(0, place, "mine/cache", (*run, "run"))
    assert code == 2, said
    assert f"{place}/mine/cache/kernels belongs to nobody" in said
    assert not (place / "run").exists()
