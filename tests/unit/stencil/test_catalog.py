from pathlib import Path

import pytest

from outgrid.errors import DefinitionError
from outgrid.stencil import catalog
from outgrid.stencil import expression as ex
from outgrid.stencil.contract import contract
from outgrid.stencil.model import Stencil


@pytest.mark.parametrize(
    ("name", "ndim", "radius", "flops"),
    [
        ("heat5", 2, 1, 7),
        ("heat7", 3, 1, 9),
        ("box27", 3, 1, 35),
        ("wave", 3, 4, 33),
        ("wave:2", 2, 1, 9),
        ("wave:4", 3, 2, 19),
        ("wave:6", 3, 3, 26),
        ("wave:8", 2, 4, 25),
        ("shallow_water", 2, 1, 27),
    ],
)
def test_entries(name: str, ndim: int, radius: int, flops: int) -> None:
    stencil = catalog.lookup(name).trace(ndim)
    assert stencil.radius == (radius,) * ndim
    assert stencil.flops == flops


def test_every_entry_traces_documents_itself_and_round_trips() -> None:
    for definition in catalog.CATALOG.values():
        assert definition.summary
        for ndim in (2, 3) if definition.ndim is None else (definition.ndim,):
            stencil = definition.trace(ndim)
            assert Stencil.from_dict(stencil.to_dict()) == stencil


@pytest.mark.parametrize(
    ("name", "operations"), [("heat5", 5), ("heat7", 7), ("wave:2", 8), ("box27", 29)]
)
def test_fusing_leaves_few_operations(name: str, operations: int) -> None:
    definition = catalog.lookup(name)
    tree = contract(definition.trace(definition.ndim or 3).assignments[0].expression)
    count = sum(isinstance(node, ex.Operation) and node.name != "neg" for node in ex.nodes(tree))
    assert count == operations


def test_the_factor_of_shallow_water_is_computed_once() -> None:
    tree = catalog.lookup("shallow_water").trace().assignments[0].expression
    factors = [
        node for node in ex.nodes(tree) if isinstance(node, ex.Operation) and ex.is_uniform(node)
    ]
    assert factors[-1].name == "div"
    assert set(ex.parameters(factors[-1])) == {"g", "dt", "dx"}


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(DefinitionError, match="'wafe:4'; did you mean 'wave:4'"):
        catalog.lookup("wafe:4")
    with pytest.raises(DefinitionError, match="'zzz'; known: heat5, "):
        catalog.resolve("zzz")


SOURCE = """
import outgrid as og

@og.stencil
def diffuse(u, *, k):
    return u + k * scaled(u)

def scaled(u):
    return 0.5 * og.laplacian(u)

def plain(u):
    return u[0, 1]

limit = 3
"""


def test_load_runs_a_users_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    assert catalog.resolve(f"{path}:diffuse").trace(3).radius == (1, 1, 1)
    assert catalog.load(f"{path}:plain").trace().name == "plain"
    with pytest.raises(DefinitionError, match="no stencil 'difuse'; did you mean 'diffuse'"):
        catalog.load(f"{path}:difuse")
    with pytest.raises(DefinitionError, match="no stencil 'limit'; known: diffuse"):
        catalog.load(f"{path}:limit")


def test_load_says_what_is_wrong_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("1 / 0\n")
    with pytest.raises(DefinitionError, match=r"broken\.py fails with ZeroDivisionError"):
        catalog.load(f"{path}:f")
    with pytest.raises(DefinitionError, match=r"the file .*absent\.py does not exist"):
        catalog.load(f"{tmp_path}/absent.py:f")
    with pytest.raises(DefinitionError, match=r'form "path\.py:function"'):
        catalog.load("broken.py")
