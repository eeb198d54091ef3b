"""The headers of kernels as text, and Python's mirror of the structures in them."""

import ctypes
import re
from importlib.resources import files

import pytest

from outgrid.build.compiler import build, find_compiler
from outgrid.codegen.headers import included
from outgrid.codegen.slab import structure
from outgrid.testing.device import BEFORE

FOLDER = files("outgrid.codegen") / "templates"


def test_headers_become_one_text_in_which_each_stands_once_and_after_what_it_needs():
    names = ("kernel", "functions", "random", "regions", "vector")
    text = included(*(f"cpu/{name}.hpp" for name in names))
    assert '#include "' not in text
    assert "#pragma once" not in text
    for header in (FOLDER / "cpu").iterdir():
        first = header.read_text().splitlines()[0]
        assert text.count(f"{first}\n") == 1, header
    words = ["struct Slab", "V load(", "struct Call", "void level(", "void by_level(", "advance("]
    places = [text.index(word) for word in words]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("header", "before", "counts"),
    [
        ("cpu/slab.hpp", "using Real = float;", {}),
        (
            "cuda/slab.hpp",
            f"{BEFORE} using Real = double; constexpr int kRings = 5;",
            {"kRings": 5},
        ),
    ],
)
def test_the_mirror_of_a_structure_has_its_members_where_a_compiler_puts_them(
    header, before, counts
):
    mirror = structure(header, **counts)
    names = [name for name, *_ in mirror._fields_]
    body = re.search(r"struct Slab \{(.*?)\n\};", (FOLDER / header).read_text(), re.DOTALL)[1]
    assert len(names) == len(re.findall(r"\w+(?:\[\w+\])?(?=[,;])", re.sub("//.*", "", body)))
    offsets = ", ".join(f"offsetof(Slab, {name})" for name in names)
    ends = f'extern "C" const long places[] = {{{offsets}, sizeof(Slab)}};'
    source = f"#include <cstddef>\n{before}\n{included(header)}\n{ends}\n"
    library = build(source, find_compiler()).handle
    found = list((ctypes.c_long * (len(names) + 1)).in_dll(library, "places"))
    assert found == [*(getattr(mirror, name).offset for name in names), ctypes.sizeof(mirror)]


def test_a_member_that_is_not_there_cannot_be_set():
    slab = structure("cpu/slab.hpp")
    assert slab(rows=3).rows == 3
    with pytest.raises(AttributeError, match="lines"):
        slab(lines=3)
