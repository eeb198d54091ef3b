"""Planes of many arrays, which begin at sectors or at lines of memory."""

import numpy as np
import pytest

import outgrid as og

SHAPE = (24, 64, 128)  # parts of planes with 32 rows, 16 KiB, lie apart from each other
DRIVES = tuple("abcdefg")


@og.stencil(ndim=3)
def driven(u, a, b, c, d, e, f, g):
    return u + 0.1 * og.laplacian(u) + 0.01 * (a + b + c + d + e + f + g)


def problem():
    choose = np.random.default_rng(4)
    initial = {name: choose.random(SHAPE, np.float32) for name in ("u", *DRIVES)}
    return og.Problem(driven, SHAPE, "float32", 12, initial=initial)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    out = tmp_path_factory.mktemp("plain") / "run"
    return np.array(og.run(problem(), memory="1GiB", out=out, scheme="plain")["u"]).tobytes()


@pytest.mark.parametrize("lines", [False, True])
@pytest.mark.parametrize("ways", [{"depth": 6, "slab_planes": 3}, {"depth": 4, "strip_rows": 32}])
def test_where_planes_begin_changes_no_byte(ways, lines, plain, tmp_path, monkeypatch):
    monkeypatch.setattr("outgrid.probe.profile.moves_lines", lambda _: lines)
    given = {"memory": "1GiB", "out": tmp_path / "run", "tier": "direct"} | ways
    between = og.plan(problem(), **given).layout.pitch_bytes % 1024
    assert between == (512 + 64 if lines else 512)
    assert np.array(og.run(problem(), **given)["u"]).tobytes() == plain


def test_so_it_is_in_memory(plain, tmp_path):
    given = {"memory": "1GiB", "out": tmp_path / "run", "depth": 6}
    assert og.plan(problem(), **given).layout.pitch_bytes % 1024 == 512 + 64
    assert np.array(og.run(problem(), **given)["u"]).tobytes() == plain
