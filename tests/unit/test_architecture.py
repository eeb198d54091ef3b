"""The map, the doors and the glossary name what is there, all of it, and nothing else."""

import ast
import importlib
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "outgrid"
ARCHITECTURE = ROOT / "docs" / "design" / "architecture.md"
IGNORED = {"__init__.py", "__pycache__", "_core.pyi", "py.typed"}


def rows(path: Path, title: str) -> list[str]:
    """The first cells of the tables below a heading, without those of their heads."""
    text = path.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
    tables = re.findall(r"^\|.*\n\|-.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [line.split("|")[1].strip() for table in tables for line in table.splitlines()]


def quoted(cells: list[str]) -> list[str]:
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


MAP = quoted(rows(ROOT / "CONTRIBUTING.md", "The map"))
DOORS = quoted(rows(ARCHITECTURE, "Doors"))
WORDS = [
    w for cell in rows(ROOT / "docs" / "reference" / "words.md", "Words") for w in cell.split(", ")
]


def rooms() -> set[str]:
    return {
        f"{path.name}/" if path.is_dir() else path.name
        for path in PACKAGE.iterdir()
        if path.name not in IGNORED and path.suffix != ".so"
    }


def test_the_map_has_every_room_once():
    assert sorted(name for name in MAP if (PACKAGE / name).exists()) == sorted(rooms())


@pytest.mark.parametrize("name", MAP)
def test_a_place_of_the_map_exists(name):
    assert (PACKAGE / name).exists() or (ROOT / name).exists()


def test_the_map_has_the_order_of_the_layers():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract, *_ = settings["tool"]["importlinter"]["contracts"]
    layers = [set(re.findall(r"\w+", layer)) for layer in contract["layers"]]
    level = {room: number for number, layer in enumerate(layers) for room in layer}
    order = [level[name.removesuffix("/").removesuffix(".py")] for name in MAP if name in rooms()]
    assert order == sorted(order)


def test_every_word_of_the_glossary_is_there_once_and_in_the_code():
    code = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    assert len(WORDS) == len(set(WORDS))
    missing = [word for word in WORDS if not re.search(rf"(\b|_){word}", code, re.IGNORECASE)]
    assert missing == []


def imported(path: Path) -> set[str]:
    """The modules of the package that a file imports."""
    tree = ast.walk(ast.parse(path.read_text()))
    froms = [node.module for node in tree if isinstance(node, ast.ImportFrom) and node.module]
    plain = [
        alias.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import)
        for alias in node.names
    ]
    return {name for name in (*froms, *plain) if name.split(".")[0] == "outgrid"}


@pytest.mark.parametrize("door", DOORS)
def test_a_door_exists(door):
    importlib.import_module(door)


def test_measurements_and_examples_use_the_doors_alone():
    inside = tuple(f"{door}." for door in DOORS if door != "outgrid")
    files = [*(ROOT / "benchmarks" / "outgrid_bench").rglob("*.py"), *ROOT.glob("examples/**/*.py")]
    others = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in files
        for name in imported(path)
        if name not in DOORS and not name.startswith(inside)
    }
    assert others == set()


@pytest.mark.parametrize("name", sorted(set(quoted(ARCHITECTURE.read_text().splitlines()))))
def test_a_file_that_the_architecture_names_exists(name):
    if re.fullmatch(r"[\w./-]+(/|\.py|\.md|\.toml)", name):
        assert (PACKAGE / name).exists() or (ROOT / name).exists()
