import os
from pathlib import Path

import pytest

from outgrid.probe.disk import disk_of, moves_lines
from outgrid.probe.profile import known_machine


def described(sysfs, place, mask):
    """A disk nvme0n1 in a folder like /sys, with a partition on which a place is."""
    number = os.stat(place).st_dev
    partition = sysfs / "devices/nvme0n1/nvme0n1p1"
    partition.mkdir(parents=True)
    (partition / "partition").write_text("1\n")
    (sysfs / "dev/block").mkdir(parents=True)
    (sysfs / f"dev/block/{os.major(number)}:{os.minor(number)}").symlink_to(partition)
    queue = sysfs / "block/nvme0n1/queue"
    queue.mkdir(parents=True)
    if mask is not None:
        (queue / "dma_alignment").write_text(f"{mask}\n")


@pytest.mark.parametrize(
    ("mask", "lines"),
    [(3, True), (63, True), (64, False), (511, False), ("", False), (None, False)],
)
def test_a_disk_says_where_transfers_may_begin_in_memory(mask, lines, tmp_path):
    described(tmp_path / "sys", tmp_path, mask)
    assert disk_of(tmp_path / "not there yet", tmp_path / "sys") == "nvme0n1"
    assert moves_lines(tmp_path / "not there yet", tmp_path / "sys") is lines


def test_what_is_on_no_disk_takes_sectors(tmp_path):
    (tmp_path / "sys").mkdir()
    assert disk_of(tmp_path, tmp_path / "sys") is None
    assert not moves_lines(tmp_path, tmp_path / "sys")


@pytest.mark.parametrize("lines", [False, True])
def test_a_machine_has_it_from_the_disk_of_its_scratch_folder(lines, tmp_path, monkeypatch):
    asked: list[Path] = []

    def told(place):
        asked.append(place)
        return lines

    monkeypatch.setattr("outgrid.probe.profile.moves_lines", told)
    assert known_machine(tmp_path).lines is lines
    assert known_machine(None).lines is lines
    assert asked == [tmp_path, Path()]
