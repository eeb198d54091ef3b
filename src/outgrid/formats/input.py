"""What is said of a file that values are read from: where it is, what in it, and how to read it."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from outgrid.errors import DefinitionError, UsageError
from outgrid.formats.objects import is_url
from outgrid.formats.registry import Format, format_of, suffixes
from outgrid.numbers import is_real
from outgrid.units import suggest

__all__ = ["InputFile", "check_numbers", "one_of"]


@dataclass(frozen=True, slots=True)
class InputFile:
    """An array in a file: the initial values of a field, of any size.

    `path` is the file, or "FILE:NAME" or "FILE/NAME" where it holds several arrays, such as
    "model.h5:/rock/vp" or "model.zarr/vp"; `name` may be given apart. Its suffix says the format.

    `index` picks one array of a file that has more axes than the grid, such as (0,) for its first
    time. `transpose` lists for each axis of the grid the axis of the file that it is, as NumPy's
    does. `interp` = "linear" brings values of another shape onto the grid: the first cells of both
    lie on each other along each axis, and so do the last ones. `missing` stands where the file
    says that it has no value. With `coordinates` False those of the file are not compared with
    those of the grid.

    `shape`, `dtype` and `offset` (bytes before the first number) are for files that do not say
    them. `order` is "F" where the first index runs fastest in the file.

    Raises DefinitionError for a suffix that no format has, and for what does not go together.
    """

    path: str
    name: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    offset: int = 0
    order: Literal["C", "F"] = "C"
    index: tuple[int, ...] = ()
    transpose: tuple[int, ...] = ()
    interp: Literal["", "linear"] = ""
    missing: float | None = None
    coordinates: bool = True

    def __post_init__(self) -> None:
        text = os.fspath(self.path)
        path, name = _parts(text)
        if not path:
            known = ", ".join(suffixes())
            raise DefinitionError(
                f"the file {text} ends in {Path(text).suffix!r}; supported are {known}"
            )
        if name and self.name and name != self.name:
            raise DefinitionError(
                f"the file {text} names {name!r} in it, and name is {self.name!r}; give one"
            )
        if "\0" in text:
            raise DefinitionError(f"the file {text!r}: no path has the character NUL")
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "name", self.name or name)
        for key in ("shape", "index", "transpose"):
            object.__setattr__(self, key, tuple(getattr(self, key)))
        for key, known in (("order", ("C", "F")), ("interp", ("", "linear"))):
            if getattr(self, key) not in known:
                raise DefinitionError(
                    f"{key} = {getattr(self, key)!r} of {path}; it is {known[-1]!r} or left out"
                )
        if self.name and not self.format.named:
            raise DefinitionError(
                f"{path} holds one array, which has no name; leave {self.name!r} out"
            )
        bare = [key for key in ("shape", "dtype", "offset") if getattr(self, key)]
        if bare and not self.format.bare:
            raise DefinitionError(f"{path} has a header with {' and '.join(bare)}; leave that out")
        if self.format.bare and not (self.shape and self.dtype):
            raise DefinitionError(
                f"{path} has no header; give shape and dtype, as in "
                f'InputFile("{path}", shape=(64, 64, 64), dtype="float32")'
            )
        if sorted(self.transpose) != list(range(len(self.transpose))):
            raise DefinitionError(
                f"transpose = {self.transpose} of {path} must be a permutation of the axes, "
                "such as (2, 1, 0)"
            )

    @staticmethod
    def named_by(text: str) -> bool:
        """Whether a text is the name of a file that can be read, and no formula."""
        return bool(_parts(text)[0])

    @property
    def file(self) -> Path:
        """The file, or the folder that stands for one."""
        return Path(self.path)

    @property
    def format(self) -> Format:
        """What reads it."""
        return format_of(self.path)

    def within(self, base: Path) -> "InputFile":
        """The same with a path that is relative to `base`."""
        return self if is_url(self.path) else replace(self, path=str(base / self.path))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form: the path, and what is not as it is by itself."""
        said = {member.name: getattr(self, member.name) for member in fields(self)}
        kept = {member.name for member in fields(self) if said[member.name] != member.default}
        return {
            key: [*value] if isinstance(value, tuple) else value
            for key, value in said.items()
            if key in kept
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "InputFile":
        """The inverse of `to_dict`. Raises DefinitionError."""
        try:
            return cls(**data)
        except (TypeError, ValueError) as error:
            raise DefinitionError(
                f"{dict(data)!r} does not describe a file of values: {error}"
            ) from error

    def __str__(self) -> str:
        """What it is called in messages."""
        return f"{self.path}:{self.name}" if self.name else self.path


def check_numbers(file: InputFile, dtype: np.dtype[Any]) -> None:
    """Raise UsageError where a file holds what no field can begin with."""
    if not (dtype.kind in "biu" or is_real(dtype)):
        raise UsageError(f"{file} holds {dtype}; fields are plain numbers")


def one_of(file: InputFile, names: Sequence[str], fields: Sequence[str] | None = None) -> str:
    """The array that a file is named with, among the `names` in it; else the only one of `fields`.

    Raises UsageError where it is not there, or where there are several.
    """
    wanted, fields = file.name.strip("/"), names if fields is None else fields
    there = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    if wanted in names:
        return wanted
    if wanted:
        raise UsageError(f"{file.path} has no {wanted!r}{suggest(wanted, names)}")
    if len(fields) == 1:
        return fields[0]
    if not names:
        raise UsageError(f"{file.path} contains no array")
    raise UsageError(
        f"{file.path} contains several arrays, {there}; name one, as in "
        f"{file.path}:{(*fields, *names)[0]}"
    )


def _parts(text: str) -> tuple[str, str]:
    """The file that a text names and the name in it; nothing where no format has its suffix."""
    one_of = "|".join(re.escape(suffix) for suffix in sorted(suffixes(), key=len, reverse=True))
    whole = re.fullmatch(rf".*(?:{one_of})/?", text, re.IGNORECASE | re.DOTALL)
    if whole:
        return text.rstrip("/"), ""
    match = re.fullmatch(rf"(.*?(?:{one_of}))[:/](.+)", text, re.IGNORECASE | re.DOTALL)
    return (match[1], match[2]) if match else ("", "")
