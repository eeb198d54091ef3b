import os
import shlex
import shutil
import stat
import subprocess
import sys
from msgspec.structs import replace
from pathlib import Path

import pytest

from outgrid.build import kept
from outgrid.build.compiler import (
    Compiler,
    build,
    check_loadable,
    find_compiler,
    load,
    warm_up,
)
from outgrid.build.kept import cache_folder
from outgrid.errors import BuildError, UsageError
from outgrid.machine import describe_machine

SOURCE = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture(scope="module")
def compiler():
    return find_compiler()


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_source_becomes_a_library_that_is_found_again(tmp_path, compiler):
    first, words = build(SOURCE, compiler, tmp_path), (*compiler.command, *compiler.flags)
    assert first.handle.answer() == 42
    assert not first.cached
    assert first.source_path.read_text() == SOURCE
    again = build(SOURCE, compiler, tmp_path)
    assert again.cached
    assert again.path == first.path
    assert first.compiler == again.compiler == f"{compiler.version}, {shlex.join(words)}"
    assert first.note == again.note == ""
    assert {path.suffix for path in (tmp_path / "kernels").iterdir()} == {".cpp", ".so"}


def test_another_source_compiler_version_or_flag_is_another_entry(tmp_path, compiler, monkeypatch):
    paths = {build(SOURCE, compiler, tmp_path).path}
    paths.add(build(SOURCE + "\n", compiler, tmp_path).path)
    paths.add(build(SOURCE, replace(compiler, version="0"), tmp_path).path)
    monkeypatch.setattr("outgrid.build.compiler.FLAGS", ("-shared", "-fPIC"))
    paths.add(build(SOURCE, compiler, tmp_path).path)
    assert len(paths) == 4


def test_another_processor_is_another_entry(tmp_path, compiler, monkeypatch):
    first = build(SOURCE, compiler, tmp_path)
    monkeypatch.setattr("outgrid.build.compiler._processor", lambda: "flags : other")
    assert build(SOURCE, compiler, tmp_path).path != first.path


def test_a_refused_source_is_shown_with_the_compilers_words(tmp_path, compiler):
    with pytest.raises(BuildError, match="no_such_name") as caught:
        build("int wrong = no_such_name;\n", compiler, tmp_path)
    error = caught.value
    assert error.source_path.read_text() == "int wrong = no_such_name;\n"
    assert str(error.source_path) in str(error)
    assert str(error.source_path) in error.command
    assert "exit code 1" in str(error)
    assert [path.suffix for path in (tmp_path / "kernels").iterdir()] == [".cpp"]


def test_a_compiler_that_fails_is_quoted(tmp_path, monkeypatch):
    failing = 'case "$1" in --version) echo fake 1.0;; *) echo "out of luck" >&2; exit 3;; esac'
    monkeypatch.setenv("CXX", str(script(tmp_path / "cxx", failing)))
    compiler = find_compiler()
    assert compiler == Compiler((str(tmp_path / "cxx"),), "fake 1.0")
    with pytest.raises(BuildError, match="out of luck") as caught:
        build(SOURCE, compiler, tmp_path)
    assert "exit code 3" in str(caught.value)
    assert caught.value.command[0] == str(tmp_path / "cxx")


def test_a_compiler_that_is_killed_is_told_apart(tmp_path, monkeypatch):
    failing = 'case "$1" in --version) echo fake 1.0;; *) kill -9 $$;; esac'
    monkeypatch.setenv("CXX", str(script(tmp_path / "cxx", failing)))
    with pytest.raises(BuildError, match="signal 9"):
        build(SOURCE, find_compiler(), tmp_path)


def test_a_compiler_that_is_no_command_is_refused(monkeypatch):
    monkeypatch.setenv("CXX", 'g++ "-O1')
    with pytest.raises(UsageError, match=r"\$CXX names, 'g\+\+ \"-O1', is not a command: No clos"):
        find_compiler()
    with pytest.raises(UsageError, match="not a command"):
        describe_machine()


@pytest.mark.parametrize("wanted", ["no-such-compiler -O1", "/bin/false", ""])
def test_no_compiler_says_what_to_install(wanted, tmp_path, monkeypatch):
    monkeypatch.setattr("outgrid.build.compiler._by_pip", lambda: [])
    monkeypatch.setenv("CXX", wanted)
    monkeypatch.setenv("PATH", str(tmp_path))
    ways = r"apt-get install g\+\+.*outgrid\[compiler\].*\$CXX"
    with pytest.raises(BuildError, match=ways) as caught:
        find_compiler()
    assert (wanted or "g++, clang++") in str(caught.value)


def test_the_compiler_of_the_package_ziglang_is_the_last_that_is_looked_for(tmp_path, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    fake = tmp_path / "fake"
    fake.write_text("#!/bin/sh\necho clang version 22")
    fake.chmod(0o755)
    monkeypatch.setattr("outgrid.build.compiler._by_pip", lambda: [[str(fake)]])
    assert find_compiler().command != (str(fake),)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_compiler().command == (str(fake),)


def test_a_compiler_is_prepared_by_an_empty_kernel(compiler):
    warm_up(compiler)
    with pytest.raises(BuildError, match="did not compile"):
        warm_up(replace(compiler, command=(*compiler.command, "-no-such-flag")))


def test_words_of_the_compiler_command_are_kept_apart(monkeypatch):
    monkeypatch.setenv("CXX", "g++ -fno-plt")
    assert find_compiler().command == ("g++", "-fno-plt")


def test_a_level_of_optimisation_in_the_command_stands(monkeypatch):
    monkeypatch.setenv("CXX", "g++ -O1")
    assert "-O3" not in find_compiler().flags
    monkeypatch.setenv("CXX", "g++ -fno-plt")
    assert "-O3" in find_compiler().flags


@pytest.mark.parametrize("word", ["-march=x86-64-v2", "-mcpu=generic"])
def test_a_processor_in_the_command_stands(word, monkeypatch):
    monkeypatch.setenv("CXX", f"g++ {word}")
    assert "-march=native" not in find_compiler().flags
    monkeypatch.setenv("CXX", "g++ -mtune=generic")
    assert "-march=native" in find_compiler().flags


def test_the_cache_has_its_place(monkeypatch):
    monkeypatch.setenv("OUTGRID_CACHE", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert cache_folder() == Path("/a")
    monkeypatch.delenv("OUTGRID_CACHE")
    assert cache_folder() == Path("/b/outgrid")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache/outgrid"


def test_two_processes_may_build_the_same_source_at_once(tmp_path):
    program = (
        "import sys; from pathlib import Path\n"
        "from outgrid.build.compiler import build, find_compiler\n"
        f"source = {SOURCE!r}\n"
        "compiler = find_compiler()\n"
        "sys.stdin.read()\n"
        f"assert build(source, compiler, Path({str(tmp_path)!r})).handle.answer() == 42\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, env=os.environ)
        for _ in range(3)
    ]
    for process in processes:
        process.stdin.close()
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert {path.suffix for path in (tmp_path / "kernels").iterdir()} == {".cpp", ".so"}


def half(whole: bytes) -> bytes:
    return whole[: len(whole) // 2]


def page_of_zeros(whole: bytes) -> bytes:
    return whole[:4096] + bytes(4096) + whole[8192:]


DAMAGE = {
    "nothing of it": lambda whole: b"",
    "its beginning": lambda whole: whole[:100],
    "half of it": half,
    "zeros": lambda whole: bytes(len(whole)),
    "a page of zeros": page_of_zeros,
    "all but the last byte": lambda whole: whole[:-1],
    "a flipped bit": lambda whole: whole[:5000] + bytes([whole[5000] ^ 4]) + whole[5001:],
}
PROGRAM = """
import sys
from pathlib import Path
from outgrid.build.compiler import build, find_compiler
for folder in sys.argv[1:]:
    found = build({source!r}, find_compiler(), Path(folder))
    print(found.handle.answer(), found.cached, found.note)
"""


def built_elsewhere(*folders: Path) -> list[str]:
    """What is built in these folders by another process, which may well crash."""
    command = [sys.executable, "-c", PROGRAM.format(source=SOURCE), *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout.splitlines()


def test_what_a_crash_left_of_a_library_is_compiled_anew_with_a_note(tmp_path, compiler):
    folders = []
    for number, damage in enumerate(DAMAGE.values()):
        folders.append(tmp_path / str(number))
        shutil.copytree(build(SOURCE, compiler, tmp_path / "whole").path.parents[1], folders[-1])
        (path,) = folders[-1].rglob("*.so")
        path.write_bytes(damage(path.read_bytes()))
    for folder, said in zip(folders, built_elsewhere(*folders), strict=True):
        (path,) = folder.rglob("*.so")
        again = "was damaged, and the kernel was compiled again"
        assert said == f"42 False {path} {again}"
    assert built_elsewhere(*folders) == ["42 True "] * len(folders)


def test_the_cache_is_for_the_user_alone(tmp_path, compiler):
    path = build(SOURCE, compiler, tmp_path / "made" / "cache").path
    for place in (tmp_path / "made", tmp_path / "made/cache", path.parent):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("who", ["group", "all"])
@pytest.mark.parametrize("what", ["folder", "file"])
def test_what_others_may_write_is_not_loaded(who, what, tmp_path, compiler):
    path = build(SOURCE, compiler, tmp_path).path
    place = path if what == "file" else path.parent
    place.chmod(place.stat().st_mode | {"group": stat.S_IWGRP, "all": stat.S_IWOTH}[who])
    with pytest.raises(UsageError, match="may be written by others") as caught:
        build(SOURCE, compiler, tmp_path)
    assert f"chmod go-w {place}" in str(caught.value)
    place.chmod(0o700)
    assert build(SOURCE, compiler, tmp_path).cached


@pytest.mark.parametrize("what", ["folder", "file"])
def test_what_belongs_to_others_is_not_loaded(what, tmp_path, compiler, monkeypatch):
    path = build(SOURCE, compiler, tmp_path).path
    place, real = path if what == "file" else path.parent, os.stat_result

    def of_another(found: os.stat_result) -> os.stat_result:
        theirs = found.st_ino == place.stat().st_ino
        return real([12345 if theirs and i == 4 else n for i, n in enumerate(found)])

    check = kept.check_trusted
    monkeypatch.setattr(kept, "check_trusted", lambda path, found: check(path, of_another(found)))
    with pytest.raises(UsageError, match="belongs to uid 12345, and this process to") as caught:
        build(SOURCE, compiler, tmp_path)
    assert str(place) in str(caught.value)
    assert "$OUTGRID_CACHE" in str(caught.value)


def test_a_pipe_in_the_place_of_a_library_is_refused(tmp_path, compiler):
    path = build(SOURCE, compiler, tmp_path).path
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(UsageError, match="it is a FIFO, and only regular files are opened"):
        build(SOURCE, compiler, tmp_path)


def without_a_compiler(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.delenv("CXX", raising=False)


def test_without_a_compiler_the_last_library_for_this_processor_serves(
    tmp_path, compiler, monkeypatch
):
    first = build(SOURCE, replace(compiler, version="1"), tmp_path).path
    last = build(SOURCE, replace(compiler, version="2"), tmp_path).path
    build(SOURCE + "\n", replace(compiler, version="3"), tmp_path)
    os.utime(first, (1, 1))
    without_a_compiler(tmp_path, monkeypatch)
    check_loadable(SOURCE, tmp_path)
    found = load(SOURCE, tmp_path)
    assert (found.path, found.cached, found.handle.answer()) == (last, True, 42)
    assert found.note.startswith(f"no C++ compiler was found: the kernel is the one in {last}, by ")
    assert found.compiler == str(replace(compiler, version="2"))
    damaged = last.read_bytes()[:-1]
    last.unlink()  # a loaded library that is written over ends the process at its exit
    last.write_bytes(damaged)
    assert load(SOURCE, tmp_path).path == first


def test_without_a_compiler_no_other_library_is_loaded(tmp_path, compiler, monkeypatch):
    build(SOURCE, compiler, tmp_path)
    without_a_compiler(tmp_path, monkeypatch)
    for ask in (load, check_loadable):
        with pytest.raises(BuildError, match=r"apt-get install g\+\+.* kept not at all"):
            ask(SOURCE + "\n", tmp_path)
    monkeypatch.setattr("outgrid.build.compiler._processor", lambda: "flags : other")
    for ask in (load, check_loadable):
        with pytest.raises(BuildError, match="kept only for other processors"):
            ask(SOURCE, tmp_path)


def test_a_compiler_at_hand_is_preferred_to_what_another_made(tmp_path, compiler):
    build(SOURCE, replace(compiler, version="0"), tmp_path)
    found = load(SOURCE, tmp_path)
    assert (found.cached, found.note, found.compiler) == (False, "", str(find_compiler()))


def test_a_cache_that_cannot_be_written_is_named_with_the_way_out(tmp_path, compiler):
    (tmp_path / "kernels").write_text("in the way")
    with pytest.raises(BuildError, match="OUTGRID_CACHE") as caught:
        build(SOURCE, compiler, tmp_path)
    assert str(tmp_path / "kernels") in str(caught.value)
