import json

import numpy as np
import pytest
from PIL import Image

import outgrid as og
from outgrid.cli import main
from outgrid.errors import UsageError
from outgrid.record import Measured, RankPart, Record, combine_ranks, write_record
from outgrid.report.ranks import draw_ranks, rank_seconds


def measured(**changes) -> Measured:
    every = {
        "seconds": 100.0,
        "compute_seconds": 70.0,
        "get_seconds": 10.0,
        "put_seconds": 5.0,
        "exchange_seconds": 8.0,
        "agree_seconds": 4.0,
        "engine": "threads",
        "memory_limit_bytes": 1 << 30,
    }
    numbers = {
        name: kind(0) for name, kind in Measured.__annotations__.items() if kind in (int, float)
    }
    return Measured(**{**numbers, **every, **changes})


def rank(number: int, **changes) -> RankPart:
    low, high = 8 * number, 8 * number + 8
    return RankPart(
        rank=number,
        low=low,
        high=high,
        low_row=0,
        high_row=1,
        host="here",
        measured=measured(**changes),
        planned={},
    )


def test_seconds_of_a_rank_add_up_to_its_time():
    found = rank_seconds(measured())
    assert list(found) == ["compute", "get", "put", "exchange", "agree", "other"]
    assert found["other"] == pytest.approx(3.0)
    assert sum(found.values()) == pytest.approx(100.0)
    assert rank_seconds(measured(compute_seconds=99.0))["other"] == 0.0


def colours(path) -> set[tuple[int, ...]]:
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    kinds, counts = np.unique(pixels, axis=0, return_counts=True)
    return {tuple(kind.tolist()) for kind in kinds[counts > 1000]}


def test_a_bar_shows_what_took_time_and_nothing_else(tmp_path):
    draw_ranks([rank(number) for number in range(4)], tmp_path / "all.png")
    idle = {f"{name}_seconds": 0.0 for name in ("get", "put", "exchange", "agree")}
    busy = [rank(number, compute_seconds=100.0, **idle) for number in range(4)]
    draw_ranks(busy, tmp_path / "busy.png")
    assert len(colours(tmp_path / "busy.png")) < len(colours(tmp_path / "all.png"))
    with pytest.raises(UsageError, match="mpiexec"):
        draw_ranks([], tmp_path / "none.png")


def test_the_report_of_a_run_of_ranks_has_their_bars(tmp_path, capsys):
    ranks = tuple(rank(number) for number in range(2))
    problem = og.Problem("heat7", (16, 8, 8), "float64", 4, initial={"u": "x"})
    record = Record(
        version="0.1.0",
        started="2026-11-21T10:00:00+00:00",
        problem=problem.to_dict(),
        planned=og.plan(problem, memory="256MiB").to_dict(),
        machine={},
        measured=combine_ranks([each.measured for each in ranks]),
        ranks=ranks,
    )
    write_record(record, tmp_path)
    assert main(["report", str(tmp_path), "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert str(tmp_path / "report" / "ranks.png") in written
    assert (tmp_path / "report" / "ranks.png").stat().st_size > 5000
