"""A matrix in files as a linear operator of SciPy, for its solvers and eigensolvers.

SciPy is imported here alone, when a matrix is asked for: it takes more memory than a small run may
use.
"""

from __future__ import annotations

from typing import Any

from outgrid.errors import UsageError
from outgrid.matrix.product import StreamedMatrix

__all__ = ["linear_operator"]


def linear_operator(matrix: StreamedMatrix) -> Any:
    """A scipy.sparse.linalg.LinearOperator. Raises UsageError where SciPy is not installed."""
    try:
        from scipy.sparse import linalg  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise UsageError(
            "a matrix needs SciPy; install it with: pip install 'outgrid[matrix]'"
        ) from error
    make: Any = linalg.LinearOperator  # SciPy's own types are incomplete
    return make(
        matrix.shape,
        dtype=matrix.dtype,
        matvec=matrix.matmat,
        rmatvec=matrix.rmatmat,
        matmat=matrix.matmat,
        rmatmat=matrix.rmatmat,
    )
