"""The part of kernels that is the same for every stencil: C++ headers, as text."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

__all__ = ["included"]

INCLUDE = re.compile(r'#include "(.+)"\n')


def included(*names: str) -> str:
    """Headers, and those that they include, one after the other and each once.

    So a kernel is one source that needs no folder of headers to be compiled or looked at.
    """
    texts: dict[str, str] = {}
    for name in names:
        _collect(name, texts)
    return "\n".join(texts.values())


def _collect(name: str, texts: dict[str, str]) -> None:
    """Put what a header includes before it."""
    if name in texts:
        return
    text = _text(name)
    for needed in INCLUDE.findall(text):
        _collect(needed, texts)
    texts[name] = INCLUDE.sub("", text).replace("#pragma once\n", "")


@cache
def _text(name: str) -> str:
    return (files("outgrid.codegen") / "templates" / name).read_text()
