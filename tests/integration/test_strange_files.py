"""What lies where a file should be: each verb works or says so, and never waits or follows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from outgrid.cli import main
from outgrid.errors import StoreError
from outgrid.regular import given, own, read_given, read_own, stored


@pytest.mark.parametrize(
    ("state", "stride"), [("unfinished", 3), ("unfinished", 1), ("finished", 1)]
)
def test_every_verb_ends_with_words_whatever_lies_where_a_file_should_be(state, stride, tmp_path):
    script = Path(__file__).parent / "strange_files.py"
    done = subprocess.run(
        [sys.executable, script, tmp_path, state, str(stride)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    trials = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(trials) > 100 / stride
    for trial in trials:
        assert trial["code"] in (0, 1, 2, 3, 4), trial
        assert "Traceback" not in trial["said"], trial
        assert trial["code"] == 0 or trial["said"], trial
        assert trial["kept"], trial


JOB = """
[problem]
stencil = "heat5"
shape = [24, 32]
steps = 4
parameters = {k = 0.2}
initial = {u = "x"}
snapshots = [{field = "u", every = 2}]
[run]
memory = "256MiB"
tier = "direct"
depth = 2
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "job.toml", "--scratch", "circle"],
        ["run", "job.toml", "--out", "circle/job.run"],
        ["run", "job.toml", "--erase", "circle"],
        ["serve", "circle"],
    ],
)
def test_links_that_go_in_a_circle_are_refused_with_words(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("circle").symlink_to("circle")
    Path("job.toml").write_text(JOB)
    assert main(arguments) in (2, 3, 4)
    assert "circle" in capsys.readouterr().err


def test_a_former_run_with_a_link_that_goes_in_a_circle_is_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text(JOB)
    assert main(["run", "job.toml", "--stop-after", "0.000001", "--quiet"]) == 75
    left = Path("job.run/snapshot.0.npy.new")
    left.unlink()
    left.symlink_to(left.name)
    assert main(["run", "job.toml", "--overwrite", "--quiet"]) == 0
    assert not left.is_symlink()


OPENERS = {"given": given, "own": own, "stored": stored}


@pytest.mark.parametrize("name", OPENERS)
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR, os.O_WRONLY | os.O_CREAT])
def test_only_regular_files_are_opened(name, flags, tmp_path):
    os.mkfifo(tmp_path / "FIFO")
    (tmp_path / "directory").mkdir()
    (tmp_path / "to FIFO").symlink_to(tmp_path / "FIFO")
    (tmp_path / "device").symlink_to("/dev/zero")
    for each in tmp_path.iterdir():
        with pytest.raises(StoreError, match="only regular files are opened"):
            OPENERS[name](each, flags)


def test_links_lead_to_files_of_users_and_to_none_of_a_run(tmp_path):
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"content")
    link.symlink_to(file)
    assert read_given(link) == read_own(file) == b"content"
    with pytest.raises(StoreError, match="it is a link"):
        read_own(link)
    with pytest.raises(StoreError, match="it is a link"):
        own(link, os.O_WRONLY | os.O_TRUNC)
    assert file.read_bytes() == b"content"
    file.unlink()
    with pytest.raises(StoreError, match=r"is a link to .*file, which does not exist"):
        read_given(link)
    with pytest.raises(FileNotFoundError):
        read_own(file)


def test_what_is_read_blocks_as_other_files_do_and_is_bounded(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(bytes(100))
    with open(file, "rb", opener=own) as opened:
        assert os.get_blocking(opened.fileno())
    assert len(read_own(file, 100)) == 100
    with pytest.raises(StoreError, match="more than 99 bytes"):
        read_own(file, 99)
