"""Random numbers by cell and step, and indices: the same for any tiling, rank, tier and device."""

import numpy as np
import pytest

import outgrid as og
from outgrid.errors import DefinitionError, Stopped
from outgrid.stencil.philox import philox
from outgrid.testing.device import stand_in
from outgrid.testing.reference import run_reference

SHAPE = (26, 19)
SEED = 20261124001  # of more than 32 bits


@og.stencil
def stirred(u, *, member):
    """A walk by chance, twice, and a slope of indices."""
    kick = og.random(SEED) - og.random(member)
    return u / 2 + u[0, 1] / 4 + kick + og.where(og.index("y") < 5, og.index("x") / 64, 0)


def problem(dtype: str = "float64", **changes):
    given = {"initial": {"u": "random(3)"}, "boundary": {"x": "periodic", "y": "neumann"}}
    return og.Problem(stirred, SHAPE, dtype, 9, {"member": 4}, **(given | changes))


def words(*numbers):
    return tuple(np.uint64(number) for number in numbers)


def test_the_words_are_those_of_its_authors():
    """Known answers that come with Random123, for Philox4x32 of 10 rounds."""
    zeros, ones = (
        philox(words(0, 0, 0, 0), (0, 0)),
        philox(words(*[2**32 - 1] * 4), (2**32 - 1,) * 2),
    )
    pi = philox(
        words(0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
    )  # fmt: skip
    assert [int(word) for word in zeros] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert [int(word) for word in ones] == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert [int(word) for word in pi] == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


@og.stencil
def drawn(u):
    """Random numbers alone."""
    return og.random(SEED) + 0 * u


@pytest.mark.parametrize(("dtype", "bits"), [("float64", 53), ("float32", 24)])
def test_a_number_is_the_first_bits_of_cell_step_and_seed(dtype, bits, tmp_path):
    there = og.Problem(drawn, (3, 5, 7), dtype, 3, initial={"u": 0}, boundary="neumann")
    found = np.array(og.run(there, memory="1GiB", out=tmp_path / "run")["u"])
    key = (SEED & 0xFFFFFFFF, SEED >> 32)
    for z, y, x in ((0, 0, 0), (2, 1, 6), (1, 4, 3)):
        first, second, *_ = (int(word) for word in philox(words(x, y, z, 2), key))
        whole = (first << 32 | second) >> (64 - bits)
        assert found[z, y, x] == whole / 2**bits


def test_numbers_are_evenly_spread_and_do_not_depend_on_each_other():
    many = og.Problem(drawn, (400, 500), steps=2, initial={"u": "random(1)"}, boundary="neumann")
    begun = run_reference(many.replace(steps=0))["u"].ravel()
    ended = run_reference(many)["u"].ravel()
    for numbers in (begun, ended):
        counts, _ = np.histogram(numbers, 20, (0, 1))
        expected = numbers.size / 20  # chi squared of 19 degrees of freedom: above 52 once in 1e4
        assert ((counts - expected) ** 2 / expected).sum() < 52
        beside = np.corrcoef(numbers[:-1], numbers[1:])[0, 1]
        assert abs(beside) < 5 / np.sqrt(numbers.size)
    assert abs(np.corrcoef(begun, ended)[0, 1]) < 5 / np.sqrt(begun.size)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    out = tmp_path_factory.mktemp("plain") / "run"
    result = og.run(problem(), memory="1GiB", out=out, scheme="plain", tier="memory")
    return np.array(result["u"]).tobytes()


def test_they_are_those_of_the_reference(plain):
    found = np.frombuffer(plain).reshape(SHAPE)
    assert np.abs(found - run_reference(problem())["u"]).max() < 1e-14


@pytest.mark.parametrize(
    "how",
    [
        {"tier": "direct", "depth": 4, "slab_planes": 3},
        {"tier": "mmap", "depth": 3, "threads": 1},
        {"tier": "direct", "scheme": "overlapped", "block": (7, SHAPE[1]), "depth": 3},
    ],
    ids=str,
)
def test_every_way_to_run_it_leaves_the_same_bytes(how, plain, tmp_path):
    found = og.run(problem(), memory="1GiB", out=tmp_path / "run", **how)
    assert np.array(found["u"]).tobytes() == plain


def test_a_run_that_is_cut_off_goes_on_to_the_same_bytes(plain, tmp_path):
    how = {"memory": "1GiB", "tier": "direct", "depth": 2, "slab_planes": 2, "commit_every": 1e-6}
    with pytest.raises(Stopped):
        og.run(problem(), out=tmp_path / "run", stop_after=1e-3, **how)
    assert np.array(og.resume(tmp_path / "run")["u"]).tobytes() == plain


def test_a_device_makes_the_same_bytes(plain, monkeypatch, tmp_path):
    stand_in(monkeypatch.setattr)
    found = og.run(problem(), memory="1GiB", out=tmp_path / "run", device="gpu")
    assert np.array(found["u"]).tobytes() == plain


def test_another_member_of_an_ensemble_takes_no_other_kernel():
    assert problem().stencil == problem().replace(parameters={"member": 5}).stencil


def test_a_gradient_goes_through_them(tmp_path):
    """The kick is added: the derivative of the sum by the first values is the same without it."""

    @og.stencil
    def still(u, *, member):
        return u / 2 + u[0, 1] / 4 + member

    last = og.Cotangents(final={"u": np.random.default_rng(1).random(SHAPE)})
    around = {"boundary": {"x": "periodic"}}
    calm = og.Problem(still, SHAPE, steps=9, parameters={"member": 4}, initial={"u": 0}, **around)
    found, wanted = (
        og.gradient(one, last, wrt=["u"], out=tmp_path / name, memory="1GiB")["u"]
        for one, name in ((problem(**around), "stirred"), (calm, "calm"))
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-13)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (lambda u: u + og.random(-1), "within 0 to 281474976710655, not -1"),
        (lambda u: u + og.random(0.5), "must be a whole number, not 0.5"),
        (lambda u: u + og.index("z"), r"index\('z'\): the axes are y, x"),
        (
            lambda u: u + (u * og.random(1))[0, 1],
            "read at an offset.*store them in a temporary",
        ),
        (lambda index_x: index_x + og.index("x"), "'index_x'"),
    ],
)
def test_what_is_no_place_or_seed_is_refused(rule, words):
    with pytest.raises(DefinitionError, match=words):
        og.stencil(rule).trace(2)


def test_seeds_in_formulas_are_checked():
    for formula, said in (("random(x)", "'x'"), ("random(0.5)", "0.5"), ("random()", "1 argument")):
        with pytest.raises(DefinitionError, match=said):
            problem(initial={"u": formula})


def test_float32_does_not_count_far_enough():
    with pytest.raises(DefinitionError, match=r"indices up to 16777216.*float64"):
        og.Problem(drawn, (4, 2**24 + 1), "float32", 1, initial={"u": 0}, boundary="neumann")
