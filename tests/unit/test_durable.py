import errno
import os
import signal
import sys

import pytest

from outgrid import durable
from outgrid.durable import partials, replace_file
from outgrid.errors import StoreError
from outgrid.formats.sink import Filing


@pytest.mark.parametrize("kind", ["file", "link", "dangling link", "FIFO", "directory"])
def test_what_lies_at_a_name_that_ends_in_new_is_not_touched(kind, tmp_path):
    path, other = tmp_path / "manifest.json", tmp_path / "manifest.json.new"
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    path.write_bytes(b"old")
    match kind:
        case "file":
            other.write_bytes(b"precious too")
        case "link":
            other.symlink_to(precious)
        case "dangling link":
            other.symlink_to(tmp_path / "nowhere")
        case "FIFO":
            os.mkfifo(other)
        case "directory":
            other.mkdir()
    before = os.lstat(other)
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.lstat(other) == before
    assert precious.read_bytes() == b"precious"
    assert kind != "file" or other.read_bytes() == b"precious too"
    assert sorted(tmp_path.iterdir()) == sorted([path, other, precious])


def test_what_a_process_that_was_cut_off_left_goes_with_the_next_one(tmp_path):
    path = tmp_path / "record.json"
    mine = tmp_path / "record.json.0123456789abcdef.new"
    mine.write_bytes(b"half of it")
    others = [tmp_path / f"{stem}.new" for stem in ("record.json", "record.json.1", "a.json.0" * 2)]
    linked = tmp_path / "record.json.fedcba9876543210.new"
    linked.symlink_to(mine)
    for other in others:
        other.write_bytes(b"another's")
    assert partials(path) == [mine]
    replace_file(path, b"whole")
    assert sorted(tmp_path.iterdir()) == sorted([path, linked, *others])
    assert partials(tmp_path / "nowhere" / "u") == []


def test_a_file_that_could_not_be_replaced_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "manifest.json"
    path.mkdir()
    with pytest.raises(StoreError, match="cannot replace the file"):
        replace_file(path, b"new")
    assert [*tmp_path.iterdir()] == [path]


def content(path):
    """What is under a name: the bytes of a file, or those of all files in a folder."""
    if path.is_dir():
        return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*.*")}
    return path.read_bytes()


def made(path, text, folder):
    if folder:
        (path / "u").mkdir(parents=True)
        for name in ("zarr.json", "u/c.0", "u/c.1"):
            (path / name).write_text(text)
    else:
        path.write_text(text)
    return content(path)


def killed_before(number, act):
    """Do something in a process that is killed before its change number `number`, if it has so
    many; whether it was."""
    child = os.fork()
    if not child:
        left = number

        def change(event, _):
            nonlocal left
            if event in ("os.rename", "os.remove", "os.rmdir", "open", "outgrid.test"):
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sync, exchange = os.fsync, durable._exchange
        os.fsync = lambda file: (sys.audit("outgrid.test"), sync(file))
        durable._exchange = lambda *names: (sys.audit("outgrid.test"), exchange(*names))
        sys.addaudithook(change)
        act()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_whatever_moment_a_file_or_folder_is_replaced_in_one_is_there(before, after, tmp_path):
    number, killed, seen = 0, True, set()
    while killed:
        path = tmp_path / f"{number}.zarr"
        old = made(path, "old", before)
        filing = Filing(path, overwrite=True)
        new = made(filing.partial, "new", after)
        killed = killed_before(number, filing.place)
        found = content(path)
        assert found in (old, new)
        seen.add(found == new and killed)
        Filing(path, overwrite=True)  # the next one removes what is left beside it
        assert content(path) == found
        assert not filing.partial.exists()
        number += 1
    assert content(path) == new
    assert number > 4
    assert seen >= {False}
    assert True in seen


def test_all_that_is_new_is_durable_before_it_has_its_name(tmp_path, monkeypatch):
    path = tmp_path / "u.zarr"
    made(path, "old", True)
    filing = Filing(path, overwrite=True)
    made(filing.partial, "new", True)
    done, sync, exchange = [], os.fsync, durable._exchange
    monkeypatch.setattr(
        durable.os, "fsync", lambda f: (done.append(os.readlink(f"/proc/self/fd/{f}")), sync(f))
    )
    monkeypatch.setattr(
        durable, "_exchange", lambda *names: (done.append("exchange"), exchange(*names))
    )
    filing.place()
    at = done.index("exchange")
    new = os.fspath(filing.partial)
    wanted = {new, *(f"{new}/{name}" for name in ("zarr.json", "u", "u/c.0", "u/c.1"))}
    assert set(done[:at]) == wanted
    assert done[at + 1] == os.fspath(tmp_path)


def test_a_file_system_that_cannot_exchange_names_is_told(tmp_path, monkeypatch):
    made(tmp_path / "u.zarr", "old", True)
    filing = Filing(tmp_path / "u.zarr", overwrite=True)
    made(filing.partial, "new", True)
    monkeypatch.setattr(durable.ctypes, "get_errno", lambda: errno.EINVAL)
    monkeypatch.setattr(durable, "RENAME_EXCHANGE", 1 << 20)  # no flag that is known
    with pytest.raises(StoreError, match="remove it first"):
        filing.place()
    assert content(tmp_path / "u.zarr")["zarr.json"] == b"old"
