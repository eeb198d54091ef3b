import ast
import importlib.metadata
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import outgrid


def test_version_is_the_installed_one():
    assert outgrid.__version__ == importlib.metadata.version("outgrid")


def test_what_is_public_is_listed_and_nothing_else_is():
    assert dir(outgrid) == sorted(outgrid.__all__)
    seen = {name for name in dir(outgrid) if inspect.ismodule(getattr(outgrid, name))}
    assert seen == {"remote"}
    with pytest.raises(AttributeError, match="no attribute 'laplacain'"):
        outgrid.laplacain  # noqa: B018


def test_the_reference_has_every_public_name():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "python.md").read_text()
    told = re.findall(r":: outgrid\.(\w+)$", page, re.MULTILINE)
    plain = page.partition("Functions of a value")[2].partition("## ")[0]
    told += re.findall(r"`(\w+)`", plain)
    assert sorted([*told, "__version__", "remote"]) == sorted(outgrid.__all__)


def test_type_checkers_see_the_names_that_are_found_when_used():
    tree = ast.parse(Path(outgrid.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    told = {
        alias.asname or alias.name: (f"{each.module}", alias.name)
        for each in block.body
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
    }
    assert told.keys() | {"__version__"} == set(outgrid.__all__)
    for name, (module, there) in told.items():
        if name != "remote":
            home = importlib.import_module(module)
            assert getattr(outgrid, name) is getattr(home, there)


def test_public_classes_and_functions_say_what_they_are():
    silent = [
        name
        for name in outgrid.__all__
        if callable(getattr(outgrid, name)) and not inspect.getdoc(getattr(outgrid, name))
    ]
    assert silent == []


@pytest.mark.parametrize("name", ["plan", "matrix", "stencil"])
def test_a_function_named_like_a_room_stays_one(name):
    program = (
        "import outgrid as og, outgrid.plan.model, outgrid.matrix.product, outgrid.stencil.model;"
        f"assert callable(og.{name}); from outgrid import {name}; assert callable({name})"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


SLOW = ("concurrent", "matplotlib", "mpi4py", "psutil", "rich", "scipy", "xxhash")


@pytest.mark.parametrize(
    ("program", "absent"),
    [
        ("import outgrid", ("numpy", *SLOW)),
        ("from outgrid.cli import main; main(['--version'])", ("numpy", *SLOW)),
        ("from outgrid.cli import main; main(['--help'])", ("numpy", *SLOW)),
        (
            "import outgrid as og\n"
            "heat = og.stencil(lambda u: u + og.laplacian(u))\n"
            "og.Problem('heat5', shape=(9, 9), initial={'u': 0})",
            ("outgrid.execute", "outgrid.probe", "outgrid.comm", *SLOW),
        ),
        (
            "import outgrid as og\n"
            "og.plan(og.Problem('heat5', shape=(9, 9), steps=1, initial={'u': 0})).explain()",
            ("matplotlib", "mpi4py", "psutil", "rich", "scipy"),
        ),
    ],
)
def test_a_module_is_loaded_when_it_is_used(program, absent):
    told = f"""
import atexit, sys
@atexit.register
def tell():
    print([name for name in {absent} if name in sys.modules])
{program}
"""
    done = subprocess.run([sys.executable, "-c", told], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"
