import importlib.util
import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from outgrid.units import parse_bytes
from scene import DEFAULT_SCENE, GRAVITY


def program():
    """`__main__.py`, under a name of its own."""
    spec = importlib.util.spec_from_file_location(
        "demonstration", Path(__file__).parents[1] / "__main__.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


main = program().main


def test_the_default_grid_is_ten_times_its_memory():
    assert 3 * DEFAULT_SCENE.field_bytes >= 10 * parse_bytes(DEFAULT_SCENE.memory)


def test_the_time_step_is_within_the_stable_one():
    dt, dx = DEFAULT_SCENE.step_seconds(400.0), DEFAULT_SCENE.region.cell_metres
    assert 0.8 < dt / (dx / np.sqrt(2 * GRAVITY * 400.0)) < 1


def test_the_largest_eigenvalue_is_within_the_bound_that_sets_the_time_step():
    generator = np.random.default_rng(1)
    h = generator.uniform(0, 400, (6, 7))
    operator = np.zeros((h.size, h.size))
    index = np.arange(h.size).reshape(h.shape)
    for a, b in [(np.s_[:, 1:], np.s_[:, :-1]), (np.s_[1:], np.s_[:-1])]:
        for i, j, face in zip(
            index[a].ravel(), index[b].ravel(), (h[a] + h[b]).ravel() / 2, strict=True
        ):
            operator[[i, j], [i, j]] += face
            operator[[i, j], [j, i]] -= face
    assert np.linalg.eigvalsh(operator).max() <= 8 * h.max()


def test_the_demonstration_runs_small_and_again(tmp_path, capsys):
    out = tmp_path / "demo"
    arguments = ["--columns", "256", "--steps", "20", "--out", str(out)]
    assert main([*arguments, "--memory", "256MiB", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["record"]["measured"]["updates"] == 190 * 254 * 20
    assert found["plain_glups"] > 0
    job = tomllib.loads((out / "tsunami.toml").read_text())
    assert job["problem"]["shape"] == [192, 256]
    surface, depth = np.load(out / "run/eta.npy"), np.load(out / "h.npy")
    assert np.isfinite(surface).all()
    assert 1.5 < surface.max() < 4
    assert (
        np.abs(surface[depth == 0] - np.load(out / "run/snapshot.0.npy")[0][depth == 0]).max() == 0
    )
    for picture in ("wave.png", "wave.gif"):
        with Image.open(out / picture) as image:
            assert image.width > 600
    assert main([*arguments, "--steps", "4", "--memory", "256MiB"]) == 0
    text = capsys.readouterr().out
    for words in ("GLUP/s", "of the ideal", "peak", "plain sweep", "wave.png", "wave.gif"):
        assert words in text


def test_what_it_takes_is_prepared_and_not_run(tmp_path):
    out = tmp_path / "demo"
    assert main(["--columns", "256", "--prepare", "--out", str(out)]) == 0
    names = {path.name for path in out.iterdir()}
    assert names == {"h.npy", "tsunami.toml", "reference.toml"}


def test_a_folder_with_something_else_is_left_alone(tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("years of work")
    assert main(["--out", str(tmp_path)]) == 2
    assert "something else" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("option", ["--columns", "--steps"])
def test_a_demonstration_of_nothing_is_refused(tmp_path, capsys, option):
    assert main([option, "0", "--out", str(tmp_path / "demo")]) == 2
    assert option.strip("-") in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()
