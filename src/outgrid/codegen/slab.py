"""The structures that kernels take: Python's side of what headers describe."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from typing import Any

from outgrid.codegen.headers import included

__all__ = ["structure"]

POINTER = re.compile(r"[\w ]+\*[\w* ]*?(\w+)(?:\[(\w+)\])?")


@cache
def structure(header: str, **counts: int) -> type[ctypes.Structure]:
    """Mirror of the ``struct Slab`` of a header.

    Its members are pointers, arrays of pointers whose extents are among ``counts``, int64_t, and
    arrays of these.
    """
    body = re.search(r"struct Slab \{(.*?)\n\};", included(header), re.DOTALL)
    if body is None:
        raise ValueError(f"{header} has no struct Slab")
    fields: list[tuple[str, Any]] = []
    for declared in re.sub(r"//.*", "", body[1]).split(";"):
        text = " ".join(declared.split())
        if pointer := POINTER.fullmatch(text):
            name, count = pointer.groups()
            fields.append((name, ctypes.c_void_p * counts[count] if count else ctypes.c_void_p))
        elif text:
            kind, names = text.split(" ", 1)
            if kind != "int64_t":
                raise ValueError(f"{header}: {text!r} is neither a pointer nor an int64_t")
            for name in names.split(", "):
                name, _, count = name.rstrip("]").partition("[")
                fields.append((name, ctypes.c_int64 * int(count) if count else ctypes.c_int64))
    # Without a dictionary of its own no instance takes a name that is not a member's.
    return type("Slab", (ctypes.Structure,), {"_fields_": fields, "__slots__": ()})
