"""Of the forms that a run may take each is planned once."""

import pytest

import outgrid as og
from outgrid import pipeline, planning
from outgrid.config import RunOptions
from outgrid.stencil.problem import Problem
from outgrid.testing.machine import MACHINE


def heat(u, *, k):
    return u + k * og.laplacian(u)


def fluxes(u, *, k):
    return u + sum(og.backward(og.temporary(k * og.forward(u, a)), a) for a in "zyx")


@pytest.mark.parametrize(
    ("function", "shape", "forms"),
    [
        (heat, (512, 512, 512), [(False, 0)]),
        (heat, (64, 1024, 2048), [(False, 0), (True, 0)]),
        (fluxes, (512, 512, 512), [(False, 0), (False, 3)]),
        (fluxes, (64, 1024, 2048), [(False, 0), (True, 0), (True, 3)]),
    ],
)
def test_each_form_is_planned_once(function, shape, forms, monkeypatch, tmp_path):
    made, choose = [], planning.choose

    def counted(problem, *given, **named):
        made.append((problem.transposed, len(problem.stencil.recomputed)))
        return choose(problem, *given, **named)

    monkeypatch.setenv("OUTGRID_CACHE", str(tmp_path))
    monkeypatch.setattr(planning, "choose", counted)
    problem = Problem(
        og.stencil(function), shape, steps=64, parameters={"k": 0.1}, initial={"u": 0}
    )
    plan = pipeline.plan(problem, RunOptions.of(memory="192MiB", tier="direct"), MACHINE)
    assert made == forms
    assert (plan.transposed, len(plan.recomputed)) in forms
