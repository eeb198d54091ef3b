"""Kernels for a device, on machines without one: they compile, and their bytes are the same."""

import ctypes
import ctypes.util
import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outgrid as og
from outgrid import pipeline
from outgrid.build.compiler import find_compiler
from outgrid.codegen.cuda import generate_cuda
from outgrid.config import RunOptions
from outgrid.device import open_device
from outgrid.device.cuda import CUDA_OPTIONS
from outgrid.errors import DeviceError, ExecutionError
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


@og.stencil(ndim=3)
def exchanged(u, v, c, *, k, plane, row, column):
    """Two fields that read each other, a coefficient beside, profiles; planes above and below."""
    c, k = c * column.along("x"), k * plane.along("z") * row.along("y")
    lifted = u + k * c * (v[0, 1, -2] - v + u[2, 0, 0] - u[-1, 0, 0])
    return {"u": lifted, "v": v + k * (c[1, 0, 0] * u[0, -2, 0] - u[0, 0, 1])}


@og.stencil(ndim=3)
def leaning(u, *, k):
    """The value of a column beside: what it adds is the same for both neighbours."""
    return u + k * ((u[1, -1, -1] - u[-1, 0, -1]) - (u[1, -1, 1] - u[-1, 0, 1])) * u[0, 1, 0]


RULES_ON_CHIP = {"exchanged": exchanged, "leaning": leaning}
PROFILES = {"plane": "1 - z / nz / 3", "row": "1 - y / ny / 4", "column": "1 - x / nx / 2"}
LAUNCHED = {"outgrid_levels", "outgrid_levels_whole", "outgrid_borders"}


@pytest.fixture
def launched(monkeypatch):
    """Names of the kernels that slow devices carry out, in runs that put levels together."""
    names = set()
    launch = SlowDevice.launch

    def note(self, name, *given):
        names.add(name)
        return launch(self, name, *given)

    monkeypatch.setattr(SlowDevice, "launch", note)
    monkeypatch.setattr("outgrid.execute.device.LEAST_PLANES", 1)
    stand_in(monkeypatch.setattr)
    return names


def on_chip(name, dtype, shape, steps=10):
    rule = RULES_ON_CHIP.get(name) or resolve(name)
    values = {"k": 0.1} | (PROFILES if name == "exchanged" else {})
    values = values if name in RULES_ON_CHIP else {}
    named = (field.name for field in rule.trace(3).fields)
    initial = dict.fromkeys(named, "sin(x + 2*y + 3*z) * exp(-3 * z / nz)")
    return Problem(rule, shape, dtype, steps, values, "dirichlet", initial)


@pytest.mark.parametrize(
    ("name", "dtype", "shape"),
    [
        ("heat7", "float64", (30, 60, 110)),  # two tiles each way
        ("heat7", "float32", (14, 70, 40)),
        ("box27", "float64", (14, 30, 50)),
        ("leaning", "float32", (12, 20, 40)),
        ("exchanged", "float32", (26, 33, 80)),
    ],
)
def test_levels_in_one_launch_give_the_bytes_of_a_processor(name, dtype, shape, launched, tmp_path):
    problem = on_chip(name, dtype, shape)
    wanted = fields(problem, tmp_path / "cpu", tier="memory", scheme="plain")
    for place, options in {
        "resident": {"tier": "memory"},
        "thin": {"depth": 4, "slab_planes": 2},  # thinner than what lies between slabs
        "thick": {"depth": 7, "slab_planes": 9, "tier": "swap"},
        "whole": {"depth": 10, "slab_planes": 11},
    }.items():
        assert fields(problem, tmp_path / place, device="gpu", **options) == wanted, place
    assert launched >= LAUNCHED


@settings(max_examples=max(3, settings.default.max_examples // 10))
@given(draw=st.data())
def test_random_slabs_of_levels_in_one_launch(draw, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    name = draw.draw(st.sampled_from(["heat7", "exchanged"]))
    extents = [draw.draw(st.integers(5, most)) for most in (40, 70, 70)]
    problem = on_chip(name, "float32", tuple(extents), draw.draw(st.integers(3, 14)))
    wanted = fields(problem, folder / "cpu", tier="memory", scheme="plain")
    options = {
        "tier": draw.draw(st.sampled_from(["memory", "swap", "direct"])),
        "depth": draw.draw(st.integers(3, 9)),
        "slab_planes": draw.draw(st.integers(1, min(12, extents[0]))),
    }
    if options["tier"] == "memory":
        del options["slab_planes"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("outgrid.execute.device.LEAST_PLANES", draw.draw(st.integers(1, 4)))
        # Each tile is cut along z, too, where there are many processors.
        patch.setattr(SlowDevice, "processors", draw.draw(st.sampled_from([1, 7, 100])))
        stand_in(patch.setattr, draw.draw(st.integers(0, 99)))
        assert fields(problem, folder / "gpu", device="gpu", **options) == wanted


def test_a_device_of_less_shared_memory_makes_level_by_level(launched, monkeypatch, tmp_path):
    monkeypatch.setattr(SlowDevice, "shared_bytes", 24 << 10)
    problem = on_chip("heat7", "float64", (12, 20, 40), 4)
    wanted = fields(problem, tmp_path / "cpu", tier="memory", scheme="plain")
    assert fields(problem, tmp_path / "gpu", device="gpu", tier="memory") == wanted
    assert not launched & LAUNCHED


@pytest.mark.parametrize(("name", "kib"), [("box27", 99), ("heat7", 64)])
def test_a_device_of_less_shared_memory_has_smaller_tiles(
    name, kib, launched, monkeypatch, tmp_path
):
    monkeypatch.setattr(SlowDevice, "shared_bytes", kib << 10)
    problem = on_chip(name, "float64", (14, 30, 50))
    wanted = fields(problem, tmp_path / "cpu", tier="memory", scheme="plain")
    assert fields(problem, tmp_path / "gpu", device="gpu", tier="memory") == wanted
    assert launched & LAUNCHED


def test_parameters_that_change_come_one_level_after_the_other(launched, tmp_path):
    rule = resolve("heat7")
    changing = {"k": [0.1] * 4 + [0.05] * 5}
    initial = {"u": "sin(x + 2*y + 3*z)"}
    problem = Problem(rule, (12, 20, 40), "float64", 9, changing, "dirichlet", initial)
    wanted = fields(problem, tmp_path / "cpu", tier="memory", scheme="plain")
    assert fields(problem, tmp_path / "gpu", device="gpu", tier="memory", depth=9) == wanted
    assert {"outgrid_levels_whole", "outgrid_update_0"} <= launched


def test_a_value_that_becomes_infinite_in_levels_together_is_found(launched, tmp_path):
    @og.stencil(ndim=3)
    def squared(u):
        return u * u[0, 0, 1]

    def said(device):
        problem = Problem(squared, (20, 6, 40), "float64", 12, initial={"u": "3.5 + z / 19"})
        with pytest.raises(ExecutionError) as error:
            og.run(problem, memory="1GiB", out=tmp_path / device, tier="memory", device=device)
        return str(error.value).partition(";")[0]

    assert said("gpu") == said("cpu")


@pytest.mark.parametrize("share", [0.5, 0.0])
def test_fields_in_memory_are_copied_from_where_they_are_or_through_parts(
    share, monkeypatch, tmp_path
):
    problem = problem_of("wave:4", "float32")
    wanted = fields(problem, tmp_path / "cpu", tier="memory")
    opened = stand_in(monkeypatch.setattr)
    monkeypatch.setattr("outgrid.execute.device.PINNED_SHARE", share)
    pinned = []
    pin = SlowDevice.pin
    monkeypatch.setattr(SlowDevice, "pin", lambda self, *at: pinned.append(at) or pin(self, *at))
    options = {"tier": "swap", "depth": 2, "slab_planes": 2}
    assert fields(problem, tmp_path / "gpu", device="gpu", **options) == wanted
    assert bool(pinned) == (share > 0)
    assert all(not device.pinned for device in opened)


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
    monkeypatch.setattr(Launches.__init__, "__defaults__", (None, 9))

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


OTHER_ORDERS = {"wave:2", "wave:4", "wave:6", *(f"acoustic_pml:{order}" for order in (2, 4, 6))}


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_kernels_of_the_catalog_compile(architecture, dtype):
    library = nvrtc()
    # Other orders of what is there twice differ in how often the same is written.
    skipped = OTHER_ORDERS if architecture == "sm_90" else ()
    named = [rule for name, rule in CATALOG.items() if name not in skipped]
    rules = {id(rule): rule for rule in (*named, *RULES.values(), *RULES_ON_CHIP.values())}
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
