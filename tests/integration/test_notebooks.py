"""What a notebook shows of problems, stencils, plans, results and records: HTML without scripts."""

from xml.etree import ElementTree

import pytest

import outgrid as og
from outgrid.stencil.catalog import CATALOG
from outgrid.stencil.formula import equations

STREAMED = {"memory": "200MiB", "tier": "direct", "depth": 3, "threads": 1}


@og.stencil
def wave(u, c, *, dt):
    return 2 * u - u.previous + dt**2 * c**2 * og.laplacian(u)


@og.stencil
def limited(u, v, *, k):
    """Two stages' worth of operators."""
    slope = og.where((u[0, 1] > 0) & (v < 1), og.sqrt(og.absolute(u)), -u / (1 + v))
    return {"u": u + k * slope, "v": v - k * (u[0, 1] - u[0, -1]) + og.maximum(u, -2.0)}


def heat():
    given = {"parameters": {"k": 0.1}, "initial": {"u": "x + y * z"}}
    return og.Problem("heat7", (40, 16, 33), steps=12, **given)


def parsed(html):
    """The tree of the HTML, which is well-formed XML."""
    return ElementTree.fromstring(html)


def words(html):
    return "".join(parsed(html).itertext())


def shown(value):
    html = value._repr_html_()
    assert "<script" not in html
    return words(html)


def test_everything_that_a_notebook_shows_is_well_formed(tmp_path):
    result = og.run(heat(), out=tmp_path / "run", progress=False, **STREAMED)
    assert "40 x 16 x 33 float64" in shown(heat())
    assert "x + y * z" in shown(heat())
    assert "stencil heat7" in shown(heat())
    plan = shown(og.plan(heat(), **STREAMED))
    for word in ("bound by", "of the limit are free", "u, ring 0"):
        assert word in plan
    assert str(tmp_path / "run") in shown(result)
    assert "GLUP/s" in shown(result.record)
    assert "u.npy" in shown(result.record)
    for value in (heat(), result.record):  # what is printed elsewhere is as short
        assert all(
            line.split(maxsplit=1)[-1] in shown(value) for line in str(value).splitlines()[1:]
        )


def test_an_update_rule_is_shown_as_mathematics():
    told = shown(wave)
    for word in ("stencil wave", "u (two levels)", "c", "1 x 1 x 1", "dimensions"):
        assert word in told
    (drawn,) = equations(wave.trace(2))
    text = words(drawn)
    assert text.startswith("uy,xn+1=")
    assert "uy,xn\u22121" in text  # one level back
    assert "cy,x" in text
    first, second = (words(each) for each in equations(limited.trace()))
    assert "if" in first
    assert "\u2227" in first
    assert "max(" in second
    assert "un+1" not in second  # both are of the same stage


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_every_stencil_of_the_catalogue_is_shown(name):
    found = CATALOG[name]
    assert "operations" in shown(found)


def test_what_binds_less_tightly_is_in_parentheses():
    @og.stencil
    def rule(u, *, k):
        return k * (u[0, 1] - (u - u[0, -1])) - (-u) ** 3

    (drawn,) = equations(rule.trace(2))
    text = words(drawn)
    assert "(uy,x+1n\u2212(uy,xn\u2212uy,x\u22121n))" in text


def test_a_long_rule_is_told_in_words():
    @og.stencil
    def long(u):
        for _ in range(12):
            u = u * u[0, 1] + u
        return u

    (drawn,) = equations(long.trace(2))
    assert "operations" in words(drawn)
    assert len(drawn) < 2000
