import json
from pathlib import Path

import pytest

from outgrid.build.compiler import Compiler
from outgrid.cli import main
from outgrid.cli import probe as verb
from outgrid.machine import describe_machine
from outgrid.probe.profile import MEASURED, Key, Profile


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that were measured, each with one and the same result."""
    folders: list[Path] = []

    def measure(scratch: Path) -> Profile:
        folders.append(scratch)
        return Profile(
            key=Key.of(describe_machine(), scratch),
            rates={name: 2 << 30 if name.endswith("_bytes") else 4e9 for name in MEASURED},
            working_sets=((131072, 9e9),),
            samples={"read": (4e9,)},
            engine="threads",
            direct=True,
            request_bytes=2 << 20,
            queue_depth=16,
            seconds=1.0,
            load=0.4,
            started="2026-01-01T00:00:00+00:00",
        )

    monkeypatch.setenv("OUTGRID_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(verb, "measure_machine", measure)
    return folders


def test_a_machine_is_measured_once_until_asked_again(measured, tmp_path, capsys):
    arguments = ["probe", "--scratch", str(tmp_path / "later"), "--json"]
    assert main(arguments) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["measured"]
    assert first["read_bandwidth"] == 4e9
    assert first["assumed"]["read_bandwidth"] == describe_machine().read_bandwidth
    assert first["profile"]["engine"] == "threads"
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == first
    assert captured.err == f"{tmp_path / 'later'} does not exist; measuring {tmp_path} instead\n"
    assert measured == [tmp_path]
    assert main([*arguments, "--again"]) == 0
    assert measured == [tmp_path, tmp_path]
    capsys.readouterr()
    assert main(["probe", "--scratch", str(tmp_path), "--json"]) == 0
    assert capsys.readouterr().err == ""


def test_rates_stand_beside_what_was_assumed(measured, tmp_path, capsys):
    assert main(["probe", "--scratch", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "4 GB/s" in text
    assert "(-62 %)" in text  # 1.5 GB/s assumed
    assert "128 KiB" in text
    assert "16 of 2.00 MiB" in text
    assert "busy" not in text


def test_a_busy_machine_is_said(measured, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(verb, "BUSY_LOAD", 0)
    assert main(["probe", "--scratch", str(tmp_path)]) == 0
    assert "other programs were running" in capsys.readouterr().out


def test_a_compiler_that_makes_its_library_first_is_prepared(measured, tmp_path, monkeypatch):
    prepared = []
    zig = Compiler(("python", "-m", "ziglang", "c++"), "clang version 22")
    monkeypatch.setattr(verb, "warm_up", prepared.append)
    for compiler in (zig, Compiler(("/opt/zig", "c++"), "clang"), Compiler(("g++",), "g++ 14")):
        monkeypatch.setattr(verb, "find_compiler", lambda compiler=compiler: compiler)
        assert main(["probe", "--scratch", str(tmp_path), "--json"]) == 0
    assert [compiler.command[0] for compiler in prepared] == ["python", "/opt/zig"]
