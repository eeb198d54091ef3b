import argparse
import json

import numpy as np
import pytest

import outgrid as og
from outgrid.errors import ExecutionError
from outgrid_bench import formats
from outgrid_bench.cli.formats import run_formats

pytest.importorskip("zarr")
pytest.importorskip("h5py")


def test_costs_and_rates_stand_beside_their_references(tmp_path, capsys):
    target = tmp_path / "formats.json"
    given = argparse.Namespace(scratch=tmp_path, json=target, tiny=True, memory="384MiB", only=None)
    assert run_formats(given) == 0
    text = capsys.readouterr().out
    for words in (
        "as Zarr too",
        "left in heat.h5",
        "tif is read",
        "export to vtkhdf",
        "of its own",
        "noise: zstd-1, bare",
        "wave: export",
    ):
        assert words in text
    figures = json.loads(target.read_text())
    assert figures["group_share"] == figures["group_seconds"] / figures["run_seconds"]
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


def test_values_that_differ_are_an_error(tmp_path):
    problem = og.Problem("heat5", (8, 9), steps=1, initial={"u": "x"})
    result = og.run(problem, memory="256MiB", out=tmp_path / "run")
    wrong = np.array(result["u"])
    wrong[7, 8] += 1
    with pytest.raises(ExecutionError, match="does not hold the values"):
        formats._check(wrong, result, tmp_path)
