"""What an objective is, as a digest: its code, and the values that this reads."""

from __future__ import annotations

import dataclasses
import dis
import hashlib
import json
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import CodeType, MethodType, ModuleType, SimpleNamespace
from typing import Any, cast

import msgspec
import msgspec.structs
import numpy as np

from outgrid.errors import Error
from outgrid.result import Result
from outgrid.reversal.objective import Objective, array_of
from outgrid.stencil.function import digest_of
from outgrid.stencil.problem import Problem

__all__ = ["identity"]

INSTALLED = ("site-packages", "dist-packages")
"""Folders of packages, of which functions and classes count by their names."""

PYTHON, OWN = Path(sysconfig.get_path("stdlib")), Path(__file__).parents[1]
"""Folders of Python and of this package, which do so too."""


def identity(problem: Problem, objective: Objective, asked: Sequence[Any]) -> str:
    """Of what files of gradients are: a digest of a problem, of its objective and of what is asked.

    A function counts by its code, its defaults, its attributes, what it has closed over and the
    global names that it reads; of these functions and objects count in the same way, functions and
    classes of Python and of installed packages by their names, and modules too. A name that the
    code assigns to or only appends to does not count.
    """
    sha256 = hashlib.sha256(json.dumps([problem.digest, *asked]).encode())
    _Noted(sha256.update).take(objective)
    return sha256.hexdigest()


class _Noted:
    """What was noted of values, each once: they may contain each other."""

    def __init__(self, note: Callable[[bytes], object]) -> None:
        self.note = note
        self.met: dict[int, tuple[int, Any]] = {}  # values are held, so that no id comes twice

    def take(self, value: Any) -> None:
        """Note the type of a value, and what it is made of."""
        self.note(f"({type(value).__qualname__}".encode())
        if id(value) in self.met:
            self.note(str(self.met[id(value)][0]).encode())
        elif isinstance(value, str | bytes | int | float | complex | np.generic | Path | None):
            self._take_plain(value)
        elif _is_array(value):
            self._take_array(value)
        else:
            self.met[id(value)] = len(self.met), value
            for part in _parts(value):
                if isinstance(part, bytes):
                    self.note(part)
                else:
                    self.take(part)
        self.note(b")")

    def _take_plain(self, value: Any) -> None:
        """Note a value of one word; of a file of values what is in it."""
        self.note(repr(value).encode())
        if isinstance(value, Path) or (isinstance(value, str) and value.endswith(".npy")):
            with suppress(Error, OSError):  # which is no such file, or not there
                self._take_array(array_of(value))

    def _take_array(self, value: Any) -> None:
        """Note an array, plane by plane."""
        array = value.detach().cpu() if hasattr(value, "detach") else value  # of PyTorch
        array = array.to_numpy() if hasattr(array, "iloc") else array  # a table, not of planes
        self.note(f"{tuple(array.shape)} {array.dtype}".encode())
        planes = (array[n] for n in range(array.shape[0])) if len(array.shape) > 1 else (array,)
        for plane in planes:
            self.note(np.ascontiguousarray(plane).tobytes())


def _is_array(value: Any) -> bool:
    kind = cast("type[Any]", type(value))
    return hasattr(kind, "__array__") and hasattr(kind, "shape")


def _parts(value: Any) -> Iterator[Any]:
    """What a value is made of: other values, or bytes."""
    if isinstance(value, Problem):
        yield value.digest
    elif isinstance(value, Result):
        yield str(value.out)
    elif isinstance(value, ModuleType):
        yield value.__name__
    elif isinstance(value, partial):
        yield from (value.args, value.keywords)
        yield value.func  # pyright: ignore[reportUnknownMemberType]
    elif isinstance(value, MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, Mapping):
        for name in value:  # pyright: ignore[reportUnknownVariableType]
            yield from (name, value[name])
    elif isinstance(value, Set):
        yield from sorted(map(repr, value))  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(value, Sequence):
        yield from value  # pyright: ignore[reportUnknownVariableType]
    elif hasattr(value, "__code__"):
        yield from _parts_of_function(value)
    elif isinstance(value, type):
        yield from _parts_of_class(cast("type[Any]", value))
    elif hasattr(value, "__wrapped__"):  # by a cache, or by a compiler
        yield value.__wrapped__
    else:
        yield from _parts_of_object(value)


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"


def _parts_of_function(function: Any) -> Iterator[Any]:
    if _is_installed(function):
        yield _name(function)
        return
    yield digest_of(function.__code__)
    yield from (function.__defaults__, function.__kwdefaults__, function.__dict__)
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # of a name that has no value yet
            yield cell.cell_contents
    values = function.__globals__
    for name in sorted(_read(function.__code__)):
        if name in values:  # which those of Python are not
            yield from (name, values[name])


def _parts_of_class(kind: type[Any]) -> Iterator[Any]:
    yield _name(kind)
    if not _is_installed(kind):
        yield kind.__bases__
        for name, member in vars(kind).items():
            of = getattr(member, "fget", getattr(member, "__func__", member))
            if not name.startswith("__") or hasattr(of, "__code__"):
                yield from (name, of)


def _parts_of_object(value: Any) -> Iterator[Any]:
    """Of an object of a package, the name alone: what it holds may change by itself."""
    kind = cast("type[Any]", type(value))
    yield _name(value)
    if isinstance(value, msgspec.Struct):
        yield from msgspec.structs.astuple(value)
    elif dataclasses.is_dataclass(value):
        yield from (getattr(value, field.name) for field in dataclasses.fields(value))
    if isinstance(value, SimpleNamespace):
        yield vars(value)
    elif not _is_installed(kind):
        yield kind
        yield getattr(value, "__dict__", {})


def _is_installed(value: Any) -> bool:
    """Whether a function or a class is of Python or of a package."""
    module = getattr(value, "__module__", None) or ""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return module in sys.stdlib_module_names and not hasattr(value, "__code__")
    path = Path(file)
    here = any(path.is_relative_to(folder) for folder in (PYTHON, OWN))
    return here or any(folder in INSTALLED for folder in path.parts)


def _read(code: CodeType) -> set[str]:
    """The global names that a function reads, but for those that it assigns to or appends to."""
    names, written = set[str](), set[str]()
    steps = [*dis.get_instructions(code)]
    for step, then in zip(steps, [*steps[1:], None], strict=True):
        if step.opname.startswith("STORE_GLOBAL"):
            written.add(step.argval)
        elif step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and (
            then is None or not then.opname.startswith("LOAD_") or then.argval != "append"
        ):
            names.add(step.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _read(constant)
    return names - written
