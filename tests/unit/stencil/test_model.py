import json
from typing import Any

import pytest
from msgspec.structs import replace

from outgrid.errors import DefinitionError
from outgrid.stencil.catalog import lookup
from outgrid.stencil.expression import Access, Constant, Parameter, operation
from outgrid.stencil.model import Assignment, Field, Stage, Stencil

HEAT = lookup("heat5").trace()
WAVE = lookup("wave:2").trace(2)


def one_stage(expression: Any, **changes: Any) -> Stencil:
    parts: dict[str, Any] = {
        "name": "test",
        "ndim": 2,
        "fields": (Field("u", True),),
        "parameters": (),
        "stages": (Stage((Assignment("u", expression),)),),
    }
    return Stencil(**{**parts, **changes})


def test_digest_is_stable_and_sees_every_change() -> None:
    # Pinned: a digest names compiled kernels and unfinished runs, so it must not drift unnoticed.
    assert HEAT.digest == ("0f5ebecf11c1cd80a84e7cc44629583fe4197d048678394883d1ed2bca561333")
    others = [
        replace(HEAT, name="other"),
        replace(HEAT, defaults=()),
        replace(HEAT, defaults=(("k", 0.25),)),
        lookup("heat7").trace(),
        WAVE,
    ]
    assert len({HEAT.digest, *(other.digest for other in others)}) == 6


def test_json_form_round_trips() -> None:
    text = json.dumps(WAVE.to_dict())
    assert Stencil.from_dict(json.loads(text)) == WAVE


def test_reach_of_an_unread_level_is_none() -> None:
    assert HEAT.reach("u", -1) is None
    assert WAVE.reach("u", -1) == ((0, 0), (0, 0))
    assert WAVE.reach("c") == ((0, 0), (0, 0))


U = Access("u", 0, (0, 0))


@pytest.mark.parametrize(
    ("build", "parts"),
    [
        (lambda: one_stage(U, ndim=4), ["4 dimensions"]),
        (lambda: one_stage(U, name="a b"), ["'a b'", "identifier"]),
        (lambda: one_stage(U, name="u\n#include"), [r"'u\n#include'", "identifier"]),
        (lambda: one_stage(U, parameters=('";abort();//',)), ["abort", "identifier"]),
        (lambda: one_stage(U, fields=()), ["0 fields"]),
        (lambda: one_stage(U, fields=(Field("u", True), Field("u", True))), ["2", "'u'"]),
        (lambda: one_stage(U, parameters=("u",)), ["2", "'u'"]),
        (lambda: one_stage(U, defaults=(("k", 1.0),)), ["'k'", "not one of its parameters"]),
        (lambda: one_stage(U, stages=()), ["updates no field"]),
        (lambda: one_stage(U, stages=(Stage(()),)), ["without assignments"]),
        (lambda: one_stage(Access("v", 0, (0, 0))), ["'v'", "known: u"]),
        (lambda: one_stage(Access("u", 1, (0, 0))), ["level 1"]),
        (lambda: one_stage(Access("u", 0, (0,))), ["u[0]", "1", "2 dimensions"]),
        (lambda: one_stage(Parameter("k")), ["'k'", "there is none"]),
        (lambda: one_stage(Access("u", -1, (0, 0))), ["2 time levels", "levels=1"]),
        (lambda: one_stage(U, fields=(Field("u", False),)), ["'u'", "evolving=False"]),
        (lambda: HEAT.field("w"), ["'w'", "heat5"]),
        (lambda: Stencil.from_dict({"nane": "x"}), ["'nane'", "'name'"]),
        (lambda: Stencil.from_dict({"name": "x"}), ["lacks", "'ndim'"]),
        (lambda: Stencil.from_dict({**HEAT.to_dict(), "fields": [1]}), ["cannot be read"]),
    ],
)
def test_parts_that_do_not_fit_are_refused(build: Any, parts: list[str]) -> None:
    with pytest.raises(DefinitionError) as caught:
        build()
    for part in parts:
        assert part in str(caught.value)


def test_radius_is_the_largest_distance_of_all_fields_and_levels() -> None:
    tree = operation("add", Access("u", 0, (-3, 1)), Access("u", -1, (1, 2)))
    stencil = one_stage(tree, fields=(Field("u", True, 2),))
    assert stencil.radius == (3, 2)
    assert one_stage(Constant(1.0)).radius == (0, 0)
