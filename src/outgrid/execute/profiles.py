"""Profiles as the tables that a kernel reads."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from outgrid.stencil.problem import Problem

MARGIN = 128  # cells, more than a block of vectors


class Profiles(msgspec.Struct, frozen=True):
    """The profiles of a problem, in the order of its stencil, and their addresses.

    Each goes on with its last number for some vectors: rows are computed in whole ones.
    """

    values: tuple[NDArray[np.generic], ...] = ()
    addresses: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, problem: Problem) -> Profiles:
        """Rounded to the dtype of the problem.

        Where the first planes or rows come round again, so does a profile along them.
        """
        # Before the first one too, amid a ring of ranks or of blocks; x is never cut.
        turns = [3 if problem.edges.periodic(axis) else 1 for axis in range(problem.ndim - 1)] + [1]
        values = tuple(
            np.pad(
                np.tile(problem.profile_values(profile.name), turns[profile.axis]),
                (0, MARGIN),
                mode="edge",
            )
            for profile in problem.stencil.profiles
        )
        return cls(values, np.array([value.ctypes.data for value in values], dtype=np.int64))

    @property
    def address(self) -> int | None:
        """Where the addresses stand; None where there are no profiles."""
        return None if self.addresses is None else self.addresses.ctypes.data


NO_PROFILES = Profiles()
