"""A compiler that would change bytes is refused, wherever it was told to."""

import platform
import shlex
import shutil
from pathlib import Path

import pytest

from outgrid.build.arithmetic import check_arithmetic
from outgrid.build.compiler import build, find_compiler
from outgrid.errors import BuildError

SOURCE = 'extern "C" double same(double a, double b) { return (a + b) - a; }'


def compiler_of(command: str, monkeypatch):
    words = shlex.split(command)
    if shutil.which(words[0]) is None:
        pytest.skip(f"there is no {words[0]}")
    monkeypatch.setenv("CXX", command)
    return find_compiler()


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("g++ -ffast-math", "reordered, merged and removed"),
        ("g++ -Ofast", "reordered, merged and removed"),
        ("g++ -funsafe-math-optimizations", "reordered, merged and removed"),
        ("g++ -fassociative-math", "sums and products to be reordered"),
        ("g++ -freciprocal-math", "divisions and functions by approximations"),
        ("g++ -ffinite-math-only", "NaN and infinity do not occur"),
        ("g++ -fno-signed-zeros", "-0 for 0"),
        ("g++ -fsingle-precision-constant", "constants to single precision"),
        ("clang++ -ffast-math", "reordered, merged and removed"),
        ("clang++ -Ofast", "reordered, merged and removed"),
        ("clang++ -ffp-model=fast", "reordered, merged and removed"),
        ("clang++ -funsafe-math-optimizations", "reordered, merged and removed"),
        ("clang++ -freciprocal-math", "divisions and functions by approximations"),
        ("clang++ -fapprox-func", "divisions and functions by approximations"),
        ("clang++ -ffinite-math-only", "NaN and infinity do not occur"),
        ("clang++ -fno-honor-nans", "NaN and infinity do not occur"),
        ("clang++ -fno-signed-zeros", "-0 for 0"),
        ("clang++ -fdenormal-fp-math=preserve-sign", "denormal numbers for 0"),
    ],
)
def test_a_flag_that_changes_bytes_is_named_with_what_it_does(
    command, reason, monkeypatch, tmp_path
):
    compiler, flag = compiler_of(command, monkeypatch), command.split()[1]
    with pytest.raises(BuildError) as caught:
        build(SOURCE, compiler, tmp_path)
    assert str(caught.value).startswith(f"{command} would change results: {flag} ")
    assert reason in str(caught.value)
    assert "take it out of $CXX" in str(caught.value)
    assert not list(tmp_path.rglob("*.so"))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="flags of x86_64")
@pytest.mark.parametrize("command", ["g++ -mrecip", "g++ -mfpmath=387", "clang++ -mrecip"])
def test_so_is_one_of_the_processor(command, monkeypatch):
    compiler = compiler_of(command, monkeypatch)
    with pytest.raises(BuildError, match=f"{command.split()[1]} "):
        check_arithmetic(compiler.command, compiler.flags)


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("way", ["a file of options", "a wrapper", "contraction by a wrapper"])
def test_so_is_one_that_the_command_does_not_name(way, compiler, tmp_path, monkeypatch):
    if way == "a file of options":
        (tmp_path / "options").write_text("-ffast-math")
        command = f"{compiler} @{tmp_path / 'options'}"
    else:
        flag = "-ffp-contract=fast" if "contraction" in way else "-ffast-math"
        command = str(tmp_path / "wrapper")
        Path(command).write_text(f'#!/bin/sh\nexec {compiler} "$@" {flag}\n')
        Path(command).chmod(0o755)
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    found = compiler_of(command, monkeypatch)
    with pytest.raises(BuildError, match="a file of options, a wrapper or a default") as caught:
        build(SOURCE, found, tmp_path)
    assert ("-ffp-contract=fast" if "contraction" in way else "-ffast-math") in str(caught.value)


@pytest.mark.parametrize(
    "command",
    [
        "g++",
        "clang++",
        "g++ -O1 -g -fno-trapping-math -frounding-math",
        "g++ -ffp-contract=fast",  # what comes later counts, and that is ours
        "clang++ -ffp-contract=fast",
        "g++ -ffast-math -fno-fast-math",
        "clang++ -ffast-math -fno-fast-math",
    ],
)
def test_what_changes_no_byte_is_taken(command, monkeypatch):
    compiler = compiler_of(command, monkeypatch)
    check_arithmetic(compiler.command, compiler.flags)


def test_a_compiler_that_does_not_say_how_it_computes_is_refused(tmp_path, monkeypatch):
    command = tmp_path / "mute"
    command.write_text('#!/bin/sh\ncase "$*" in *-dM*) exit 5;; esac\nexec g++ "$@"\n')
    command.chmod(0o755)
    compiler = compiler_of(str(command), monkeypatch)
    with pytest.raises(BuildError, match="does not say how it computes, .* failed with exit code 5"):
        build(SOURCE, compiler, tmp_path)
    assert not list(tmp_path.rglob("*.so"))
