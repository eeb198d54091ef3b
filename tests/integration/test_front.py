"""What scripts do with problems and results."""

import numpy as np
import pytest

import outgrid as og
from outgrid.storage import DirectStore
from outgrid.testing.reference import run_reference

SHAPE = (24, 8, 16)


def problem(**changes):
    given = {
        "stencil": "wave:2",
        "shape": SHAPE,
        "steps": 6,
        "initial": {"u": lambda z, y, x: 1 + 0.01 * x * z, "c": lambda x: 0.1 + 0.001 * x},
    }
    return og.Problem(**(given | changes))


def options(out, **others):
    return {"memory": "256MiB", "tier": "direct", "depth": 2, "slab_planes": 2, "out": out} | others


def test_a_result_is_a_mapping_of_its_fields(tmp_path):
    result = og.run(problem(), **options(tmp_path / "run"))
    assert list(result) == [*result.keys()] == ["u", "u.previous"]
    assert len(result) == 2
    assert "u" in result
    assert "c" not in result
    assert result.get("c") is None
    for name, values in result.items():
        assert values.shape == SHAPE
        assert (values == np.load(result.path(name))).all()
    assert [values.shape for values in result.values()] == [SHAPE] * 2
    with pytest.raises(og.UsageError, match=r"has no field 'u\.prev'; did you mean 'u\.previous'"):
        result["u.prev"]


def test_a_function_gives_the_bytes_of_the_formula_also_after_a_failure(tmp_path, monkeypatch):
    formulas = problem(initial={"u": "1 + 0.01 * x * z", "c": "0.1 + 0.001 * x"})
    wanted = og.run(formulas, **options(tmp_path / "formulas"))
    put, calls = DirectStore.put, iter(range(10**9))

    def faulty(self, *arguments):
        if next(calls) == 20:
            return self._transfers.fail(og.StoreError("on purpose", path=self.path, errno=5))
        return put(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(DirectStore, "put", faulty)
        with pytest.raises(og.StoreError, match="on purpose"):
            og.run(problem(), **options(tmp_path / "run"))
    found = og.resume(tmp_path / "run", memory="256MiB", tier="direct")
    assert found.record.problem["initial"]["u"]["function"].startswith("the function <lambda>")
    for name in wanted:
        assert found[name].tobytes() == wanted[name].tobytes()


def test_a_function_that_fails_ends_the_run_and_leaves_nothing(tmp_path):
    def sudden(z, y, x):
        if z.max() > 10:
            raise ValueError("no planes there")
        return x

    with pytest.raises(og.DefinitionError, match=r"sudden.*ValueError.*11.*no planes there"):
        og.run(problem(initial={"u": sudden, "c": 0.1}), **options(tmp_path / "run"))
    assert not list(tmp_path.rglob("*.npy"))


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 3},
        {"shape": (9, 40)},
        {"dtype": "float32"},
        {"boundary": "periodic"},
        {"boundary": {"kind": "sponge", "width": 4}},
        {"parameters": {"k": 0.2}},
        {"initial": {"u": "y"}},
        {"sources": [{"field": "u", "position": [5, 6], "values": 1.0}]},
        {"stencil": "heat7", "shape": (9, 10, 11)},
    ],
)
def test_a_problem_with_replaced_arguments_is_the_one_made_of_them(changes):
    given = {
        "stencil": "heat5",
        "shape": (20, 30),
        "steps": 4,
        "parameters": {"k": 0.1},
        "boundary": {"kind": "sponge", "width": 3},
        "initial": {"u": "x + ny"},
        "dtype": "float64",
        "sources": (),
    }
    first = og.Problem(**given)
    found, wanted = first.replace(**changes), og.Problem(**(given | changes))
    assert found == wanted
    assert found.digest == wanted.digest
    assert found.stencil == wanted.stencil
    assert found.profiles.keys() == wanted.profiles.keys()
    assert first == og.Problem(**given)
    assert found.replace(**{name: given[name] for name in changes} | {"shape": (20, 30)}) == first


def test_what_stays_of_a_problem_is_checked_with_what_is_replaced():
    array = np.arange(48.0).reshape(6, 8) / 10
    first = og.Problem("heat5", (6, 8), "float32", 2, initial={"u": array})
    assert (run_reference(first.replace(steps=0))["u"] == array.astype("float32")).all()
    for changes, words in (
        ({"shape": (8, 6)}, r"shape \(6, 8\), the problem has \(8, 6\)"),
        ({"step": 3}, "no argument 'step'; did you mean 'steps'"),
        ({"steps": -1}, "not -1"),
    ):
        with pytest.raises(og.DefinitionError, match=words):
            first.replace(**changes)
    again = first.replace(dtype="float64")
    assert again == og.Problem("heat5", (6, 8), steps=2, initial={"u": array})
    made = og.Problem("wave:2", (6, 8), initial={"u": 1.0, "c": 0.1})
    assert made.replace(initial={"u": 2.0, "c": 0.1}).initial["u.previous"] == 2.0


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (np.float32, "float32"),
        ("f4", "float32"),
        (np.dtype("single"), "float32"),
        (float, "float64"),
        (np.float64, "float64"),
        ("double", "float64"),
    ],
)
def test_a_dtype_is_written_as_numpy_takes_it(written, name):
    problem = og.Problem("heat5", (6, 8), written, initial={"u": 0})
    assert problem.dtype == name
    kept = og.Problem("wave:2", (6, 8), dtypes={"c": written}, initial={"u": 0, "c": 0})
    assert kept.dtype_of("c") == name
