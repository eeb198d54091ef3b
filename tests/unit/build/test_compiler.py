import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from outgrid.build.compiler import Compiler, build, cache_folder, find_compiler
from outgrid.errors import BuildError

SOURCE = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture(scope="module")
def compiler():
    return find_compiler()


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_source_becomes_a_library_that_is_found_again(tmp_path, compiler):
    first = build(SOURCE, compiler, tmp_path)
    assert first.handle.answer() == 42
    assert not first.cached
    assert first.source_path.read_text() == SOURCE
    again = build(SOURCE, compiler, tmp_path)
    assert again.cached
    assert again.path == first.path
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


@pytest.mark.parametrize("wanted", ["no-such-compiler -O1", "/bin/false", ""])
def test_no_compiler_says_what_to_install(wanted, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", wanted)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=r"apt-get install g\+\+\) or name it in \$CXX") as caught:
        find_compiler()
    assert (wanted or "g++ or clang++") in str(caught.value)


def test_words_of_the_compiler_command_are_kept_apart(monkeypatch):
    monkeypatch.setenv("CXX", "g++ -fno-plt")
    assert find_compiler().command == ("g++", "-fno-plt")


def test_a_level_of_optimisation_in_the_command_stands(monkeypatch):
    monkeypatch.setenv("CXX", "g++ -O1")
    assert "-O3" not in find_compiler().flags
    monkeypatch.setenv("CXX", "g++ -fno-plt")
    assert "-O3" in find_compiler().flags


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


def test_what_a_crash_left_of_a_library_is_compiled_anew(tmp_path, compiler):
    path = build(SOURCE, compiler, tmp_path / "other").path
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / path.name).write_bytes(path.read_bytes()[:100])
    found = build(SOURCE, compiler, tmp_path)
    assert not found.cached
    assert found.handle.answer() == 42


def test_a_cache_that_cannot_be_written_is_named_with_the_way_out(tmp_path, compiler):
    (tmp_path / "kernels").write_text("in the way")
    with pytest.raises(BuildError, match="OUTGRID_CACHE") as caught:
        build(SOURCE, compiler, tmp_path)
    assert str(tmp_path / "kernels") in str(caught.value)
