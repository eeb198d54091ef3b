"""Elementary functions: how exact they are, and that all compilers and devices agree."""

import ctypes
import shutil

import mpmath
import numpy as np
import pytest

from outgrid.build import compiler as compiling
from outgrid.build.compiler import Compiler, build, find_compiler
from outgrid.codegen.cuda import numbers
from outgrid.codegen.functions import ELEMENTARY, LN2, PI, elementary
from outgrid.codegen.vector import CELLS, prelude
from outgrid.testing.device import BEFORE

RANDOM = np.random.default_rng(3)
DTYPES = ("float32", "float64")
WORST = {"exp": 0.9, "log": 0.9, "sin": 0.85, "cos": 0.85, "tanh": 2.4}  # in the last place
EACH = """
extern "C" void NAME_each(const REAL* a, REAL* b, long n) {
  for (long i = 0; i < n; ++i) b[i] = NAME_of(a[i]);
}
"""
VECTORS = """
extern "C" void NAME_each(const REAL* a, REAL* b, long n) {
  for (long i = 0; i < n; i += kLanes) store(b + i, NAME_of(load(a + i)));
}
"""


def source_of(dtype, loop, before):
    loops = "".join(loop.replace("NAME", name) for name in sorted(ELEMENTARY))
    return before + elementary(dtype) + loops.replace("REAL", CELLS[dtype])


def evaluate(library, name, values):
    """The function of all values, in vectors or one by one."""
    given = np.resize(values, (len(values) + 15) // 16 * 16)
    found = np.empty_like(given)
    pointers = (ctypes.c_void_p(each.ctypes.data) for each in (given, found))
    library.handle[f"{name}_each"](*pointers, ctypes.c_long(len(given)))
    return found[: len(values)]


@pytest.fixture(scope="module", params=DTYPES)
def compiled(request):
    dtype = request.param
    return dtype, build(source_of(dtype, VECTORS, prelude(dtype)), find_compiler())


def arguments(name, dtype):
    """Where each function is used, where it ends, and all sizes of numbers."""
    limits = np.finfo(dtype)
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
    return np.concatenate([*parts, sizes * signs]).astype(dtype)


@pytest.mark.parametrize("name", sorted(ELEMENTARY))
def test_functions_are_exact_to_the_last_place(compiled, name):
    dtype, library = compiled
    values = arguments(name, dtype)
    found = evaluate(library, name, values)
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(values.astype(np.longdouble))
        rounded = exact.astype(dtype)
        ends = ~np.isfinite(rounded)
        np.testing.assert_array_equal(found[ends], rounded[ends])
        unit = np.spacing(np.abs(rounded[~ends])).astype(np.longdouble)
        assert np.max(np.abs(found[~ends] - exact[~ends]) / unit) < WORST[name]


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
    source = source_of(dtype, VECTORS, prelude(dtype))
    native = build(source, find_compiler())
    kept = tuple(each for each in compiling.FLAGS if each != "-march=native")
    monkeypatch.setattr(compiling, "FLAGS", (*kept, flag))
    monkeypatch.setattr(compiling, "GCC_FLAGS", ())
    other = build(source, Compiler((command,), flag))
    assert_alike(native, other, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_text_for_devices_gives_the_same_bytes(dtype):
    native = build(source_of(dtype, VECTORS, prelude(dtype)), find_compiler())
    device = build(source_of(dtype, EACH, BEFORE + numbers(dtype)), find_compiler())
    assert_alike(native, device, dtype)


def assert_alike(one, other, dtype):
    for name in ELEMENTARY:
        values = arguments(name, dtype)
        both = (evaluate(library, name, values) for library in (one, other))
        first, second = both
        assert first.tobytes() == second.tobytes(), name


def test_constants_are_those_of_a_library():
    mpmath.mp.prec = 1400
    assert abs(mpmath.mpf(PI.numerator) / PI.denominator - mpmath.pi) < mpmath.mpf(2) ** -1380
    assert abs(mpmath.mpf(LN2.numerator) / LN2.denominator - mpmath.ln2) < mpmath.mpf(2) ** -1380
