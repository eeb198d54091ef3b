"""Flash wears: what a run takes of it is told, by plan and record."""

import json
import os

import pytest

from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.errors import UsageError
from outgrid.lines import format_wear
from outgrid.probe import wear
from outgrid.report.summary import summarise
from outgrid.stencil.problem import Problem
from outgrid.units import parse_endurance

SMART = {"nvme_smart_health_information_log": {"percentage_used": 3, "data_units_written": 40_000}}


def problem(steps=8):
    return Problem("heat5", (64, 64), "float64", steps, {"k": 0.1}, initial={"u": 1.0})


def options(folder, **given):
    return RunOptions.of(memory="200MiB", out=folder / "run", threads=1, **given)


def test_endurance_is_written_as_makers_write_it():
    assert parse_endurance("600TBW") == parse_endurance("600 TB") == 600 * 10**12
    assert parse_endurance("1.2pbw") == 12 * 10**14
    for wrong in ("0TBW", "many", "-1TBW", "600", 600):
        with pytest.raises(UsageError):
            parse_endurance(wrong)
    assert format_wear(6e12, 600 * 10**12) == ", 1 % of 600 TBW: 100 such runs wear it out"
    assert format_wear(3e10, 600 * 10**12) == ", 0.005 % of 600 TBW: 20,000 such runs wear it out"
    assert format_wear(6e12, 0) == ""


@pytest.mark.parametrize(
    ("given", "levels"),
    [
        ({"tier": "direct", "depth": 2}, 1 + 4),
        ({"tier": "swap", "depth": 2}, 1 + 4 + 1),
        ({"tier": "direct", "depth": 4, "scratch": ["a", "b"]}, 1 + 2 + 1),
        ({"tier": "mmap", "in_place": True, "scheme": "plain"}, 1 + 1 + 8),
        ({"tier": "mmap", "in_place": True, "depth": 4}, 1 + 1 + 4),
    ],
)
def test_a_plan_counts_all_that_goes_to_flash(given, levels, tmp_path):
    chosen = pipeline.plan(problem(), options(tmp_path, **given, endurance="1GB"))
    assert chosen.flash_written_bytes == levels * problem().field_bytes
    assert format_wear(chosen.flash_written_bytes, 10**9) in chosen.explain()
    assert ("at most" in chosen.explain()) == (given["tier"] != "direct")


def test_a_record_says_what_the_run_has_worn(tmp_path):
    record = pipeline.run(problem(), options(tmp_path, tier="direct", endurance="1GB")).record
    measured = record.measured
    written = measured.written_bytes + measured.fill_written_bytes
    assert record.flash_written_bytes == written == record.planned["flash_written_terabytes"] * 1e12
    assert format_wear(written, 10**9) in summarise(record)
    assert measured.system_written_bytes >= 0


def test_a_device_that_tells_its_wear_is_asked(tmp_path, monkeypatch):
    number = os.stat(tmp_path).st_dev
    disk = tmp_path / "devices/nvme0n1/nvme0n1p1"
    disk.mkdir(parents=True)
    (disk / "partition").write_text("1")
    (tmp_path / "dev/block").mkdir(parents=True)
    link = tmp_path / f"dev/block/{os.major(number)}:{os.minor(number)}"
    link.symlink_to(disk)
    tool = tmp_path / "smartctl"
    tool.write_text(f"#!/bin/sh\n[ $3 = /dev/nvme0n1 ] && echo '{json.dumps(SMART)}'\nexit 4\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    wear.device_endurance.cache_clear()
    assert wear.device_endurance(tmp_path / "run", tmp_path) == 40_000 * 512_000 * 100 // 3
    tool.write_text("#!/bin/sh\necho nothing\n")
    wear.device_endurance.cache_clear()
    assert wear.device_endurance(tmp_path / "run", tmp_path) == 0
    wear.device_endurance.cache_clear()
