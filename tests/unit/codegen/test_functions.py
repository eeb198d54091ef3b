"""Elementary functions: how exact they are, and that all compilers and devices agree."""

import ctypes
import re
import shutil

import mpmath
import numpy as np
import pytest

from outgrid.build import compiler as compiling
from outgrid.build.compiler import Compiler, build, find_compiler
from outgrid.codegen.headers import included
from outgrid.codegen.spelling import CELLS
from outgrid.testing.device import BEFORE

RANDOM = np.random.default_rng(3)
DTYPES = ("float32", "float64")
OPERANDS = {"exp": 1, "log": 1, "sin": 1, "cos": 1, "tanh": 1, "pow": 2}
WORST = {"exp": 0.92, "log": 0.9, "sin": 0.85, "cos": 0.85, "tanh": 2.4, "pow": 1}  # last place
LOOP = """
extern "C" void NAME_each(const Real* a, const Real* b, Real* to, long n) {
  for (long i = 0; i < n; i += kLanes) store(to + i, NAME_of(GIVEN));
  (void)b;
}
"""
LOADS = """
static Real load(const Real* a) { return *a; }
static void store(Real* to, Real a) { *to = a; }
"""


def source_of(dtype, *parts):
    loops = "".join(
        LOOP.replace("NAME", name).replace(
            "GIVEN", ", ".join(["load(a + i)", "load(b + i)"][:count])
        )
        for name, count in OPERANDS.items()
    )
    return "\n".join([f"using Real = {CELLS[dtype]};", *parts, loops])


def vectors(dtype):
    return source_of(dtype, included("cpu/functions.hpp"))


def evaluate(library, name, *values):
    """The function of all values, in vectors or one by one."""
    size = (len(values[0]) + 15) // 16 * 16
    arrays = [np.resize(each, size) for each in (*values, *values)[:2]]
    arrays.append(np.empty_like(arrays[0]))
    pointers = (ctypes.c_void_p(each.ctypes.data) for each in arrays)
    library.handle[f"{name}_each"](*pointers, ctypes.c_long(size))
    return arrays[-1][: len(values[0])]


@pytest.fixture(scope="module", params=DTYPES)
def compiled(request):
    dtype = request.param
    return dtype, build(vectors(dtype), find_compiler())


def arguments(name, dtype):
    """Where each function is used, where it ends, and all sizes of numbers."""
    limits = np.finfo(dtype)
    if name == "pow":
        bases, exponents = (0.1, 1e-3, 1e-30, 0.7, 0.99), (3, 12, 4, 80, 4000)
        bases = [np.exp(RANDOM.uniform(np.log(low), -np.log(low), 9999)) for low in bases]
        exponents = [RANDOM.uniform(-most, most, 9999) for most in exponents]
        return tuple(np.concatenate(each).astype(dtype) for each in (bases, exponents))
    top = np.log(float(limits.max))
    ranges = {
        "exp": [(-1, 1), (-top * 1.05, top * 1.01)],
        "log": [(0.4, 2.5), (0, float(limits.tiny)), (0, float(limits.max))],
        "sin": [(-1, 1), (-30, 30), (-4096, 4096), (-(2.0**20), 2.0**20)],
        "cos": [(-1, 1), (-30, 30), (-4096, 4096), (-(2.0**20), 2.0**20)],
        "tanh": [(-1e-3, 1e-3), (-1, 1), (-25, 25)],
    }
    parts = [RANDOM.uniform(low, high, 20000) for low, high in ranges[name]]
    sizes = 2.0 ** RANDOM.uniform(limits.minexp - limits.nmant, limits.maxexp, 20000)
    signs = 1 if name == "log" else RANDOM.choice((-1.0, 1.0), 20000)
    return (np.concatenate([*parts, sizes * signs]).astype(dtype),)


@pytest.mark.parametrize("name", sorted(OPERANDS))
def test_functions_are_exact_to_the_last_place(compiled, name):
    dtype, library = compiled
    values = arguments(name, dtype)
    found = evaluate(library, name, *values)
    with np.errstate(all="ignore"):
        function = np.power if name == "pow" else getattr(np, name)
        exact = function(*(each.astype(np.longdouble) for each in values))
        rounded = exact.astype(dtype)
        ends = ~np.isfinite(rounded)
        np.testing.assert_array_equal(found[ends], rounded[ends])
        unit = np.spacing(np.abs(rounded[~ends])).astype(np.longdouble)
        allowed = WORST[name] + (0.1 * np.abs(np.log(exact[~ends])) if name == "pow" else 0)
        assert np.all(np.abs(found[~ends] - exact[~ends]) / unit < allowed)


def test_angles_next_to_multiples_of_a_quarter_turn(compiled):
    """What is left of them begins 60 bits further down than they do; so of the largest ones."""
    dtype, library = compiled
    number = np.dtype(dtype).type
    mpmath.mp.prec = 1500
    multiples = [*range(1, 200), *(3**k for k in range(5, 640, 7)), 5319372648326541]
    near = [number(float(n * mpmath.pi / 2)) for n in multiples if n < 1e30 or dtype == "float64"]
    values = np.array([each for each in near if np.isfinite(each)])
    values = np.concatenate([values, np.nextafter(values, number(0)), -values]).astype(dtype)
    values = np.append(values, number(float.fromhex("0x1.921fb54442d18p+1")))
    if dtype == "float64":  # the double nearest to a multiple of a quarter turn (Ng, 1992)
        values = np.append(values, 6381956970095103 * 2.0**797)
    for name in ("sin", "cos"):
        found = evaluate(library, name, values)
        for value, result in zip(values, found, strict=True):
            exact = getattr(mpmath, name)(mpmath.mpf(float(value)))
            unit = float(np.spacing(np.abs(number(float(exact)))))
            assert abs(float((mpmath.mpf(float(result)) - exact) / unit)) < WORST[name], value


def test_ends_and_signs_are_those_of_the_standard(compiled):
    dtype, library = compiled
    values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, 1.0], dtype)
    wanted = {
        "exp": [1, 1, np.inf, 0, np.nan, None, None],
        "log": [-np.inf, -np.inf, np.inf, np.nan, np.nan, np.nan, 0],
        "sin": [0, -0.0, np.nan, np.nan, np.nan, None, None],
        "cos": [1, 1, np.nan, np.nan, np.nan, None, None],
        "tanh": [0, -0.0, 1, -1, np.nan, None, None],
    }
    for name, ends in wanted.items():
        found = evaluate(library, name, values)
        for value, end in zip(found, ends, strict=True):
            if end is not None:
                np.testing.assert_equal(float(value), float(end), name)
    least = np.array([np.finfo(dtype).smallest_subnormal], dtype)
    for name in ("sin", "tanh"):
        assert evaluate(library, name, least) == least


def test_powers_end_like_those_of_the_library(compiled):
    dtype, library = compiled
    ends = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, np.inf, -np.inf, np.nan, 1e30]
    bases, exponents = (np.ravel(each).astype(dtype) for each in np.meshgrid(ends, ends))
    with np.errstate(all="ignore"):
        wanted = np.power(bases, exponents)
    found = evaluate(library, "pow", bases, exponents)
    np.testing.assert_allclose(found, wanted, rtol=2 * np.finfo(dtype).eps)
    signed = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[signed]), np.signbit(wanted[signed]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("command", "flag"),
    [
        ("g++", "-march=x86-64"),
        ("g++", "-march=x86-64-v3"),
        ("clang++", "-march=native"),
        ("clang++", "-march=x86-64"),
    ],
)
def test_compilers_and_processors_agree_to_the_bit(command, flag, dtype, monkeypatch):
    if shutil.which(command) is None:
        pytest.skip(f"there is no {command}")
    source = vectors(dtype)
    native = build(source, find_compiler())
    kept = tuple(each for each in compiling.FLAGS if each != "-march=native")
    monkeypatch.setattr(compiling, "FLAGS", (*kept, flag))
    monkeypatch.setattr(compiling, "GCC_FLAGS", ())
    other = build(source, Compiler((command,), flag))
    assert_alike(native, other, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_text_for_devices_gives_the_same_bytes(dtype):
    native = build(vectors(dtype), find_compiler())
    device = build(
        source_of(dtype, BEFORE, included("cuda/numbers.hpp", "elementary.hpp"), LOADS),
        find_compiler(),
    )
    assert_alike(native, device, dtype)


def assert_alike(one, other, dtype):
    for name in OPERANDS:
        values = arguments(name, dtype)
        first, second = (evaluate(library, name, *values) for library in (one, other))
        assert first.tobytes() == second.tobytes(), name


def split(value, dtype, count):
    """Numbers of the type that add up to ``value``, each the nearest to what is left."""
    mantissa, parts = (24 if dtype == "float32" else 53), []
    for _ in range(count):
        with mpmath.workprec(mantissa):
            parts.append(+value)
        value -= parts[-1]
    return [float(part) for part in parts]


def test_constants_are_those_of_a_library():
    mpmath.mp.prec = 1500
    text = included("elementary.hpp")
    ln2, half_pi = mpmath.log(2), mpmath.pi / 2
    for column, dtype in enumerate(("float64", "float32")):
        wanted = dict(zip(("kLn2", "kLn2Low"), split(ln2, dtype, 2), strict=True))
        wanted |= {f"kQuarter{n}": part for n, part in enumerate(split(half_pi, dtype, 3))}
        wanted["kPerLn2"], wanted["kPerQuarter"] = split(1 / ln2, dtype, 1) + split(
            1 / half_pi, dtype, 1
        )
        for name, value in wanted.items():
            found = re.search(rf"\b{name} = Real\(kDouble \? (\S+) : (\S+)\);", text)
            assert float.fromhex(found[1 + column]) == value, (name, dtype)
        root_half = re.search(r"kRootHalf = Integer\(kDouble \? (\S+) : (\S+)\);", text)
        bits = np.array(int(root_half[1 + column], 16), "i8" if dtype == "float64" else "i4")
        below, above = (float((bits + n).view(dtype)) for n in range(2))
        assert below < mpmath.sqrt(0.5) < above
    for n, part in enumerate(split(half_pi, "float64", 2)):
        found = re.search(rf"kDouble{n} = (0x[^,;]+)", text)
        assert float.fromhex(found[1]) == part
    words = re.search(r"per_quarter\[\] = \{(.*?)\};", text, re.DOTALL)[1]
    found = [int(word, 0) for word in re.findall(r"\w+", words)]
    turns = 1 / half_pi
    assert found == [int(turns * mpmath.mpf(2) ** (64 * n)) % 2**64 for n in range(21)]
