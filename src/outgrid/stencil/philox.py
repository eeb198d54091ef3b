"""Random numbers by counter: what a cell and a step get depends on nothing else.

Philox4x32-10 of J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, Parallel random numbers: as
easy as 1, 2, 3, SC11 (2011), doi:10.1145/2063384.2063405. The counter is the cell's indices x, y
and z and the step, the key is the seed.
"""

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import DefinitionError

__all__ = ["BEFORE", "SEED_BITS", "checked_seed", "halves_of", "philox", "uniform"]

SEED_BITS = 48
"""Bits of a seed: the halves of it are whole numbers that single precision holds."""

BEFORE = 2**32 - 1
"""The step that initial values count as."""

_ROUNDS = 10
_WORD = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = 0x9E3779B9, 0xBB67AE85

Words = NDArray[np.uint64] | np.uint64


def philox(counter: tuple[Words, ...], key: tuple[int, int]) -> tuple[Words, ...]:
    """Four words of 32 bits of a counter of four and a key of two, as uint64."""
    a, b, c, d = counter
    keys = tuple(zip(key, _WEYL, strict=True))
    for turn in range(_ROUNDS):
        k, j = (np.uint64((word + turn * weyl) & 0xFFFFFFFF) for word, weyl in keys)
        first, second = _MULTIPLIERS[0] * a, _MULTIPLIERS[1] * c
        a, b = (second >> _HALF) ^ b ^ k, second & _WORD
        c, d = (first >> _HALF) ^ d ^ j, first & _WORD
    return a, b, c, d


def uniform(low: Any, high: Any, step: Any, z: Any, y: Any, x: Any) -> Any:
    """Numbers in [0, 1), in the precision of `x`: of 53 bits, or in float32 the first 24 of them.

    The seed is `low` + 2^24 `high`; all are arrays or numbers of whole numbers that broadcast.
    """
    dtype = np.result_type(x)
    seed = int(low) + (int(high) << SEED_BITS // 2)
    counter = tuple(np.asarray(part).astype(np.uint64) for part in (x, y, z, step))
    first, second, _, _ = philox(counter, (seed & 0xFFFFFFFF, seed >> 32))
    if dtype == np.float32:
        return (first >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)
    whole = first << np.uint64(21) | second >> np.uint64(11)
    return whole.astype(np.float64) * 2.0**-53


def halves_of(seed: int) -> tuple[float, float]:
    """A seed as `uniform` takes it: what is left of 2^24, and how often that goes."""
    return float(seed % 2 ** (SEED_BITS // 2)), float(seed >> SEED_BITS // 2)


def checked_seed(seed: object) -> int:
    """The seed, a whole number. Raises DefinitionError."""
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise DefinitionError(f"the seed of random numbers must be a whole number, not {seed!r}")
    if not 0 <= int(seed) < 2**SEED_BITS:
        raise DefinitionError(
            f"the seed of random numbers must be within 0 to {2**SEED_BITS - 1}, not {seed}"
        )
    return int(seed)
