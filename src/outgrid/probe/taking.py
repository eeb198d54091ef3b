"""What others take of the processors from whoever computes: a count that all cores make."""

from __future__ import annotations

import hashlib
import threading
import time
from typing import Self

BLOCK_BYTES = 256 << 10  # that a core keeps near, and digests in some hundred microseconds


class Computing:
    """``cores`` threads that digest a block each, again and again, outside of the interpreter.

    ``counts`` has how often each of them did.
    """

    def __init__(self, cores: int) -> None:
        self._ended = threading.Event()
        self.counts = [0] * cores
        self._threads = [
            threading.Thread(target=self._compute, args=(number,), daemon=True)
            for number in range(cores)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    @property
    def now(self) -> tuple[float, int]:
        """The time, and how many blocks all of them have digested."""
        return time.perf_counter(), sum(self.counts)

    def rate_since(self, before: tuple[float, int]) -> float:
        """Blocks per second since then."""
        seconds, blocks = (now - then for now, then in zip(self.now, before, strict=True))
        return blocks / seconds

    def _compute(self, number: int) -> None:
        block = bytes(BLOCK_BYTES)
        while not self._ended.is_set():
            hashlib.blake2b(block).digest()
            self.counts[number] += 1
