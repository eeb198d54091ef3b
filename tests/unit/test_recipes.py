"""The recipes of packages need what pyproject.toml needs, in the same versions."""

import re
import tomllib
from pathlib import Path

import outgrid

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONDA_NAMES = {"matplotlib-base": "matplotlib", "python-xxhash": "xxhash"}


def needed(listed):
    return dict(re.fullmatch(r"([\w-]+)>=([\d.]+)", text).groups() for text in listed)


def test_conda():
    recipe = (PACKAGING / "conda" / "recipe.yaml").read_text()
    run = recipe.partition("  run:\n")[2].partition("\n\n")[0]
    found = dict(re.findall(r"- ([\w-]+) >=([\d.]+)", run))
    found = {CONDA_NAMES.get(name, name): version for name, version in found.items()}
    assert found == needed(PROJECT["project"]["dependencies"])
    host = recipe.partition("  host:\n")[2].partition("  run:\n")[0]
    assert dict(re.findall(r"- ([\w-]+) >=([\d.]+)", host)) == needed(
        PROJECT["build-system"]["requires"]
    )
    assert f'version: "{outgrid.__version__}"' in recipe
    assert "cxx-compiler" in run


def test_spack():
    recipe = (PACKAGING / "spack" / "outgrid" / "package.py").read_text()
    python = re.findall(r'depends_on\("py-([\w-]+)@([\d.]+):", type=(.*?)\)\n', recipe)
    run = {name: version for name, version, kind in python if "run" in kind}
    build = {name: version for name, version, kind in python if kind == '"build"'}
    assert run == needed(PROJECT["project"]["dependencies"])
    assert build == needed(PROJECT["build-system"]["requires"])
    assert f'"python@{PROJECT["project"]["requires-python"][2:]}:"' in recipe


def test_the_wheels_of_both_ways_are_the_same():
    built = PROJECT["tool"]["cibuildwheel"]
    program = (ROOT / "tools" / "wheel" / "build.py").read_text()
    assert all(f'"{processor}"' in program for processor in built["archs"])
    assert [f"3.{each[3:5]}" for each in built["build"]] == ["3.11", "3.12"]
    assert PROJECT["tool"]["scikit-build"]["wheel"]["py-api"] == "cp312"
    assert built["manylinux-x86_64-image"] == "manylinux_2_28"
    assert 'GLIBC = "2.28"' in program
