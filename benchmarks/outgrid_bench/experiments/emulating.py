"""Folders of an experiment on emulated disks."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from outgrid_bench.emulation import Asked, emulated
from outgrid_bench.experiments.outcome import Settings

__all__ = ["on_disks"]


@contextmanager
def on_disks(settings: Settings, asked: Sequence[Asked]) -> Generator[Settings]:
    """``settings`` with a folder on each disk that is asked for; as they are where none is.

    Files of the disks lie in the first folder. Raises as `emulated`.
    """
    if not asked:
        yield settings
        return
    labels = tuple(one.label for one in asked for _ in range(one.count))
    settings.say(f"emulated disks: {', '.join(labels)}")
    with emulated(asked, settings.folders[0]) as folders:
        yield replace(settings, folders=tuple(folders), labels=labels, emulate=())
