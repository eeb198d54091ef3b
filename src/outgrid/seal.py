"""What binds the bytes of a run's files to the run, to a name in it, and to a step.

The checksum that is kept of a row is its XXH3, combined (exclusive or) with the key of a seal. A
row of another run, of another field or of another step then does not agree with its checksum,
however whole it is: an older file that was copied back, or a manifest beside later files, is
noticed at the first row that is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec
import xxhash

__all__ = ["UNSEALED", "Seal"]

MOST_STEPS = 1 << 18  # that are tried to name the step that a file is of


class Seal(msgspec.Struct, frozen=True):
    """The values of ``name`` after ``step`` steps of ``run``; no run means a key of 0."""

    run: str = ""
    name: str = ""
    step: int = 0

    @property
    def key(self) -> int:
        """64 bits that differ from those of other seals: XXH3 of run, name and step."""
        return _key(self.run, self.name, self.step) if self.run else 0

    def sealed_as(self, key: int) -> str:
        """What a file has been sealed as instead, in words, by the key that it agrees with."""
        wanted = f"{self.name!r} after {self.step} steps of run {self.run[:8]}"
        for step in _near(self.step):
            if _key(self.run, self.name, step) == key:
                return f"they are of step {step} of this run, and {wanted} is needed"
        return f"they are of another run, field or time, and {wanted} is needed"


UNSEALED = Seal()


def _near(step: int) -> Iterable[int]:
    """Steps, those next to ``step`` first."""
    for distance in range(1, MOST_STEPS):
        if step >= distance:
            yield step - distance
        yield step + distance


@lru_cache(maxsize=256)
def _key(run: str, name: str, step: int) -> int:
    return xxhash.xxh3_64_intdigest(f"{run}\0{name}\0{step}".encode()) or 1
