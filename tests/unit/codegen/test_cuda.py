"""Kernels for a device, on machines without one: they compile, and their bytes are the same."""

import ctypes
import ctypes.util
import importlib.util
from pathlib import Path

import numpy as np
import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.build.compiler import find_compiler
from outgrid.codegen.cuda import generate_cuda
from outgrid.config import RunOptions
from outgrid.device import open_device
from outgrid.device.cuda import CUDA_OPTIONS
from outgrid.errors import DeviceError
from outgrid.execute.device import DeviceWindow, Launches
from outgrid.stencil.catalog import CATALOG, resolve
from outgrid.stencil.definition import Definition
from outgrid.stencil.problem import Problem
from outgrid.testing.device import SlowDevice, stand_in


@og.stencil(ndim=2)
def staggered(e, hx, hy, c, *, k, row, column):
    k = k * row.along("y") * column.along("x")
    return [
        {"hx": hx - k * (e[1, 0] - e), "hy": hy + k * (e[0, 1] - e)},
        {"e": e + k * c * (hy - hy[0, -1] - hx + hx[-1, 0])},
    ]


@og.stencil(ndim=3)
def unequal(u, v, w, c, *, k):
    """Three stages of unequal reach, one of second order in time, conditions, the step."""
    lifted = og.where((v[2, 0, 0] > v[-1, 0, 0]) & (c < 0.5), v[0, 2, 1] * c[0, -1, 0], k)
    return [
        {"u": u + k * lifted},
        {"v": v + k * (u[0, 0, 3] - u[1, -3, 0]), "w": 2 * w - w.previous + k * u[0, 1, 0]},
        {"c": c + k * og.minimum(w[0, -1, 0] - c[0, 0, 1], og.sqrt(og.step + k))},
    ]


EXAMPLES = Path(__file__).parents[3] / "examples"
MAKERS = ("elastic", "smoothing")  # functions that return stencils

RULES = {"staggered": staggered, "unequal": unequal}
FACES = {
    "heat7": {"z": "periodic"},
    "wave:4": {"z-": "neumann", "z+": "mirror", "y": "periodic", "x-": "mirror"},
    "box27": {"y": "neumann", "x": "periodic"},
    "heat5": {"y": "mirror", "x": "neumann"},
    "staggered": {"y-": 1.0, "x": "neumann", "fields": {"e": {"y": "mirror"}}},
    "unequal": {"z": "mirror", "y-": "neumann", "x-": "odd", "fields": {"v": {"z-": "zero"}}},
}
VALUES = {
    "staggered": {"k": 0.3, "row": "1 - y / ny / 2", "column": "x / nx"},
    "unequal": {"k": 0.1},
}


def problem_of(name, dtype, faces="dirichlet", **points):
    rule = RULES.get(name) or resolve(name)
    shape = (18, 70) if name in ("heat5", "staggered") else (14, 15, 35)
    place = "sin(7*x + 3*y)" if len(shape) == 2 else "sin(7*x + 3*y + z*z)"
    named = enumerate(field.name for field in rule.trace(len(shape)).fields)
    initial = {name: f"exp({place} / {number + 2})" for number, name in named}
    return Problem(rule, shape, dtype, 6, VALUES.get(name, {}), faces, initial, **points)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FACES)
def test_a_device_gives_the_bytes_of_a_processor(name, dtype, monkeypatch, tmp_path):
    problem = problem_of(name, dtype, FACES[name])
    wanted = fields(problem, tmp_path / "cpu", tier="memory", scheme="plain")
    begin = Problem.from_dict(problem.to_dict() | {"steps": 0})
    assert wanted != fields(begin, tmp_path / "begin")
    stand_in(monkeypatch.setattr)
    for place, options in {
        "resident": {"tier": "memory", "depth": 3},
        "streamed": {"depth": 3, "slab_planes": 2},
    }.items():
        assert fields(problem, tmp_path / place, device="gpu", **options) == wanted


def fields(problem, out, **options):
    """The bytes of the fields after all steps."""
    result = og.run(problem, memory="1GiB", out=out, **{"tier": "direct"} | options)
    return {name: np.asarray(result[name]).tobytes() for name in result.record.fields}


class Hasty(SlowDevice):
    """Lets copies one way begin at once."""

    disobeyed = "upload"

    def __init__(self, *given):
        super().__init__(*given)
        copy = getattr(self, self.disobeyed)
        setattr(self, self.disobeyed, lambda parts, after: copy(parts, ()))


class HastyDown(Hasty):
    disobeyed = "download"


@pytest.mark.parametrize("hasty", [Hasty, HastyDown])
def test_a_copy_that_does_not_wait_is_noticed(hasty, monkeypatch, tmp_path):
    # Three steps per sweep: results leave another ring than the one that is read into, whose slots
    # are free as soon as launches were made, of which many are under way.
    problem = problem_of("heat7", "float32")
    monkeypatch.setattr(Launches.__init__, "__defaults__", (9,))

    def found(seed, kind=None):
        stand_in(monkeypatch.setattr, seed, kind=kind)
        out = tmp_path / f"{seed} {kind}"
        options = {"tier": "swap", "depth": 3, "slab_planes": 1, "watch": False}
        return fields(problem, out, device="gpu", **options)

    wanted = fields(problem, tmp_path / "cpu")
    assert all(found(seed) == wanted for seed in range(4))
    assert any(found(seed, hasty) != wanted for seed in range(12))


def test_a_device_that_is_too_small_says_so(monkeypatch):
    problem = problem_of("heat7", "float64")
    stand_in(monkeypatch.setattr)
    plan = pipeline.plan(problem, RunOptions.of(memory="1GiB", tier="memory", device="gpu"))
    device = SlowDevice(generate_cuda(problem.stencil, "float64"), find_compiler(), 0, 40_000)
    with pytest.raises(DeviceError, match="do not fit the 40000"):
        DeviceWindow(plan, device)
    assert device.allocations == 0


def test_what_is_missing_is_named(monkeypatch):
    with pytest.raises(DeviceError, match="pip install cupy-cuda12x"):
        open_device("gpu", "")
    with pytest.raises(DeviceError, match="must be one of gpu"):
        open_device("tpu", "")


def nvrtc():
    """The run-time compiler of CUDA, from its wheel or the system."""
    found = importlib.util.find_spec("nvidia")
    folders = [Path(path) for path in found.submodule_search_locations] if found else []
    paths = [str(path) for folder in folders for path in folder.rglob("libnvrtc.so.*")]
    system = ctypes.util.find_library("nvrtc")
    for path in [*paths, *([system] if system else [])]:
        return ctypes.CDLL(path)
    pytest.skip("libnvrtc is not installed (pip install nvidia-cuda-nvrtc)")


def compiled_for(library, source, architecture):
    """PTX of ``source``. Fails with the compiler's words."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    text = source.encode()
    assert library.nvrtcCreateProgram(ctypes.byref(program), text, b"k.cu", 0, None, None) == 0
    options = [o.encode() for o in (*CUDA_OPTIONS, f"--gpu-architecture={architecture}")]
    status = library.nvrtcCompileProgram(
        program, len(options), (ctypes.c_char_p * len(options))(*options)
    )
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    assert status == 0, log.value.decode()
    library.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    library.nvrtcGetPTX(program, ptx)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return ptx.value.decode()


def checked(library, source, architecture):
    """Compile for real, and look for instructions that round otherwise than a processor."""
    ptx = compiled_for(library, source, architecture)
    assert ".entry outgrid_update_0" in ptx
    assert f".target {architecture}" in ptx
    for inexact in (".ftz", ".approx", ".full"):
        assert inexact not in ptx


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_kernels_of_the_catalog_compile(architecture, dtype):
    library = nvrtc()
    rules = {id(rule): rule for rule in (*CATALOG.values(), *RULES.values())}
    for rule in rules.values():
        source = generate_cuda(
            rule.trace(3 if rule.name.startswith(("wave", "acoustic")) else None), dtype
        )
        checked(library, source, architecture)


def rules_of_examples():
    """The stencils of the examples that a device runs, by name: those without reductions."""
    found = {}
    for path in sorted(EXAMPLES.glob("*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        makers = [getattr(module, name) for name in MAKERS if hasattr(module, name)]
        given = [each for each in vars(module).values() if isinstance(each, Definition)]
        for rule in [*given, *(make(7 if make.__name__ == "smoothing" else 4) for make in makers)]:
            found[rule.name] = rule.trace(rule.ndim or 2)
    return {name: rule for name, rule in found.items() if not rule.reductions}


@pytest.mark.parametrize(("architecture", "dtype"), [("sm_80", "float64"), ("sm_90", "float32")])
def test_all_kernels_of_the_examples_compile(architecture, dtype, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    library, found = nvrtc(), rules_of_examples()
    assert len(found) >= 10
    for rule in found.values():
        ptx = compiled_for(library, generate_cuda(rule, dtype), architecture)
        assert f".target {architecture}" in ptx


@pytest.mark.parametrize("name", FACES)
def test_kernels_with_images_compile(name):
    problem = problem_of(name, "float32", FACES[name])
    checked(nvrtc(), generate_cuda(problem.stencil, "float32", problem.edges), "sm_90")


@pytest.mark.parametrize("stored", ["float16", "bfloat16", "uint8", "int32"])
def test_kernels_of_shorter_types_compile(stored):
    computed = "float64" if stored == "int32" else "float32"
    problem = Problem(
        "heat7", (9, 9, 9), computed, 2, initial={"u": 1.0}, dtypes={"u": stored},
        sources=[{"field": "u", "position": (4, 4, 4), "values": 1.0}],
    )  # fmt: skip
    given = problem.stencil, computed, problem.edges, problem.dtypes
    ptx = compiled_for(nvrtc(), generate_cuda(*given), "sm_80")
    assert ".entry outgrid_update_0" in ptx
