"""Initial values given as a function of the cell's indices, such as `lambda z, y, x: x * y`.

It is called with arrays of indices, block by block, so that the field need not fit in memory.
"""

import hashlib
import inspect
from collections.abc import Callable
from types import CodeType
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from outgrid.errors import DefinitionError
from outgrid.formats.arrays import FILL
from outgrid.stencil.symbol import AXES

__all__ = ["InitialFunction"]


class InitialFunction(msgspec.Struct, frozen=True):
    """A function that gives the initial values of a field from the indices of its cells.

    Arguments that are named z, y or x get the indices along that axis, in any order; else there is
    one for each axis, the slowest first. Indices are float64 arrays that broadcast to a block, such
    as (1, 1, nx) for x in 3-D, and so must be what is returned. Raises DefinitionError where the
    arguments do not fit the number of dimensions.
    """

    function: Callable[..., Any]
    ndim: int

    def __post_init__(self) -> None:
        axes = AXES[-self.ndim :]
        names = self._named
        if names is None:
            try:
                inspect.signature(self.function).bind(*axes)
            except (TypeError, ValueError):
                wanted = f"lambda {', '.join(axes)}: ..."
                raise DefinitionError(
                    f"{self} does not take {self.ndim} arguments; write {wanted}"
                ) from None
        elif absent := [name for name in names if name not in axes]:
            raise DefinitionError(
                f"{self} takes {', '.join(absent)}, which a grid of {self.ndim} dimensions does not"
                f" have; its axes are {', '.join(axes)}"
            )

    def __str__(self) -> str:
        """What it is called in messages, with the place where it stands."""
        code = getattr(self.function, "__code__", None)
        name = getattr(self.function, "__name__", type(self.function).__name__)
        place = f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
        return f"the function {name}{place}"

    @property
    def digest(self) -> str:
        """sha256 in hex of what the function is made of: its code and what it has closed over."""
        digest = hashlib.sha256()
        function: Any = self.function
        code = getattr(function, "__code__", None)
        if code is None:
            digest.update(repr(function).encode())
        else:
            _update(digest, code)
            kept = [cell.cell_contents for cell in function.__closure__ or ()]
            for value in (*kept, function.__defaults__, function.__kwdefaults__):
                whole = value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()
                digest.update(whole)
        return digest.hexdigest()

    def plane(self, origin: tuple[int, ...], extents: tuple[int, ...]) -> NDArray[Any]:
        """The values in a block of cells of one plane, of shape `extents[1:]`.

        Raises DefinitionError, naming the block, where the function fails or returns anything else.
        """
        along = {
            axis: np.arange(first, first + extent, dtype=np.float64).reshape(
                tuple(extent if other == n else 1 for other in range(self.ndim))
            )
            for n, (axis, first, extent) in enumerate(
                zip(AXES[-self.ndim :], origin, extents, strict=True)
            )
        }
        names = self._named
        ranges = zip(origin, extents, strict=True)
        cells = ", ".join(f"{first}..{first + extent - 1}" for first, extent in ranges)
        where = f"for the cells ({cells})"
        try:
            if names is None:
                made = self.function(*along.values())
            else:
                made = self.function(**{name: along[name] for name in names})
            values = np.asarray(made)
        except Exception as error:
            raise DefinitionError(f"{self}: {type(error).__name__} {where}: {error}") from error
        if made is None:
            raise DefinitionError(f"{self} returns nothing; return the values {where}")
        if np.ma.is_masked(made):
            raise DefinitionError(f"{self} returns masked values {where}; {FILL}")
        if values.dtype.kind not in "fiub":
            kind = "complex" if values.dtype.kind == "c" else str(values.dtype)
            raise DefinitionError(f"{self} returns {kind} values {where}; real numbers are needed")
        if not _fits(values.shape, extents):
            shapes = ", ".join(
                f"{axis} of shape {coordinates.shape}" for axis, coordinates in along.items()
            )
            raise DefinitionError(
                f"{self} returns values of shape {values.shape} {where}, which do not broadcast to"
                f" {extents}; it is called block by block, here with {shapes}"
            )
        return np.broadcast_to(values, extents)[0]

    @property
    def _named(self) -> tuple[str, ...] | None:
        """The axes that its arguments are named after; None where they have other names."""
        try:
            names = tuple(inspect.signature(self.function).parameters)
        except (TypeError, ValueError):  # some functions of C do not tell
            return None
        return names if names and set(names) <= set(AXES) else None


def _fits(shape: tuple[int, ...], extents: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, extents) == extents
    except ValueError:
        return False


def digest_of(code: CodeType) -> bytes:
    """sha256 of the code of a function, in whatever lines it stands."""
    digest = hashlib.sha256()
    _update(digest, code)
    return digest.digest()


def _update(digest: Any, code: CodeType) -> None:
    digest.update(code.co_code)
    digest.update(repr((code.co_names, code.co_varnames, code.co_freevars)).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _update(digest, constant)
        elif isinstance(constant, frozenset):  # whose order is another in each process
            digest.update(repr(sorted(map(repr, constant))).encode())  # pyright: ignore[reportUnknownArgumentType]
        else:
            digest.update(repr(constant).encode())
