"""What is measured of a kernel is what plans look for."""

import pytest
from msgspec.structs import replace

import outgrid as og
from outgrid import pipeline
from outgrid.build import compiler
from outgrid.codegen import version
from outgrid.codegen.masks import mask_fields
from outgrid.config import RunOptions
from outgrid.execute import calibrate as module
from outgrid.execute import kernels
from outgrid.execute.calibrate import calibrate, calibration_path, keep, known
from outgrid.execute.kernels import load_kernel
from outgrid.machine import describe_machine
from outgrid.plan.calibration import Calibration, Sample
from outgrid.plan.planner import plan
from outgrid.plan.tiling import band_rows, choose_tile, tile_levels
from outgrid.stencil.problem import Problem


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEVELS", {2: (8, 16), 3: (2, 4)})
    monkeypatch.setattr(module, "MOST_PLANES", {2: 64, 3: 32})


def measured(problem, room_bytes=8 << 20):
    kernel = load_kernel(problem)
    options = RunOptions.of(memory="1GiB")
    return calibrate(problem, options, describe_machine(), kernel, room_bytes)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("name", "shape"), [("heat7", (512, 24, 64)), ("heat5", (4096, 256)), ("wave:8", (512, 24, 64))]
)
def test_every_plan_finds_the_rate_of_its_tile(name, shape, tmp_path):
    names = ["u", "c"] if name == "wave:8" else ["u"]
    problem = Problem(name, shape, "float32", 40, initial=dict.fromkeys(names, 0.1))
    calibration = measured(problem)
    assert all(sample.updates_per_second > 0 for sample in calibration.samples)
    assert calibration.border_seconds >= 0
    rates = {sample.updates_per_second for sample in calibration.samples}
    for depth in (1, 40):
        options = RunOptions.of(memory="1GiB", tier="direct", depth=depth)
        chosen = plan(problem, options, describe_machine(), 80 << 20, calibration)
        sample = calibration.best(depth, chosen.schedule.slab_planes)
        assert (chosen.tile.planes, chosen.tile.group) == (sample.planes, sample.group)
        expected = calibration.rate(sample, depth, chosen.schedule.slab_planes)
        assert chosen.prediction.updates_per_second == pytest.approx(expected)
        assert expected <= 1.5 * max(rates)  # if all of it were passes, a third less of these
        if depth == 1:
            assert chosen.prediction.updates_per_second in rates
    path = tmp_path / "kept" / "calibration.json"
    keep(calibration, path)
    assert known(path) == calibration


def test_a_search_measures_neighbours_of_the_best_tiles_alone(monkeypatch):
    tiles = []

    def rate(chosen, window, kernel):
        tiles.append(chosen.tile)
        return 1e9 / (1 + abs(chosen.tile.rows - 16) / 100 + (chosen.tile.band > 0) / 10)

    monkeypatch.setattr(module, "_rate", rate)
    calibration = measured(Problem("heat7", (512, 24, 64), "float32", 40, initial={"u": 0.1}))
    assert len(tiles) < 200  # of some 300 combinations, several times each
    for name in ("fetch", "stream"):
        assert {getattr(sample, name) for sample in calibration.samples} == {False, True}, name


def test_tiles_are_measured_as_plans_have_them(monkeypatch):
    monkeypatch.setattr(module, "_rate", lambda chosen, window, kernel: 1e9 + chosen.tile.rows)
    round_y = {"y": "periodic"}
    problem = Problem("heat7", (512, 40, 64), "float32", 40, {}, round_y, {"u": 1.0})
    options = RunOptions.of(memory="1GiB", threads=2)
    machine = replace(describe_machine(), l2_bytes=65_000)
    assert [band_rows(problem, machine, planes) for planes in (4, 2)] == [14, 24]
    rates = calibrate(problem, options, machine, load_kernel(problem), 8 << 20)
    assert max(sample.levels for sample in rates.samples) == 10  # of 20 rows, for two threads
    assert any(sample.band for sample in rates.samples)
    assert all(sample.band < 2 * sample.levels for sample in rates.samples)
    tile = choose_tile(problem, machine, options, 2, 40, rates)
    assert rates.of(tile_levels(tile, problem), tile) == rates.best(40)


@og.stencil
def flowing(u):
    q = og.temporary(u[1, 0, 0] - u, name="q")
    return u + 0.1 * (q - q[-1, 0, 0])


@og.stencil
def far(u):
    return 0.5 * u + 0.25 * (u[0, -300, 0] + u[0, 300, 0])


@pytest.mark.parametrize(
    "problem",
    [
        Problem(flowing, (64, 24, 64), "float32", 4, initial={"u": 0.1}),
        Problem(flowing, (64, 24, 64), "float32", 4, initial={"u": 0.1}).recomputing(["q"]),
        Problem(far, (60, 1500, 70), "float32", 4, initial={"u": 0.1}),
    ],
    ids=["a temporary", "one computed again", "rows far away"],
)
def test_whatever_runs_is_measured(problem, monkeypatch):
    monkeypatch.setattr(module, "_rate", lambda chosen, window, kernel: 1e9)
    assert measured(problem, 64 << 20).best(4)


class Slow:
    """A clock by which updates take long, more so in diamonds of many levels."""

    def __init__(self, updates_per_second):
        self.now, self.rate = 0.0, updates_per_second

    def __call__(self):
        return self.now

    def measure(self, chosen, window, kernel):
        rate = self.rate / (1 + chosen.tile.rows / 1000)
        self.now += chosen.work.updates / rate
        return rate


@pytest.mark.parametrize("updates_per_second", [3e5, 1e6, 3e6, 1e8])
@pytest.mark.parametrize(
    ("effort", "seconds"), [("measure", module.BUDGET_SECONDS), ("patient", module.PATIENT_SECONDS)]
)
def test_a_calibration_ends_in_time(effort, seconds, updates_per_second, monkeypatch):
    clock = Slow(updates_per_second)
    monkeypatch.setattr(module, "_rate", clock.measure)
    problem = Problem("heat7", (512, 160, 64), "float32", 40, initial={"u": 0.1})
    options, machine = RunOptions.of(memory="1GiB", effort=effort), describe_machine()
    rates = calibrate(problem, options, machine, load_kernel(problem), 8 << 20, clock=clock)
    assert rates.best(1).levels == 1
    assert clock.now <= seconds * 1.05
    if updates_per_second >= 1e6:
        assert rates.best(40, 8).border_seconds is not None
        assert rates.border_seconds is not None
    assert plan(problem, options, machine, 80 << 20, rates).depth > 0


def test_neighbours_are_measured_where_tiles_take_long(monkeypatch):
    """By a clock that goes on as where memory is slow: bands are best, of any levels."""

    def rate(chosen, window, kernel):
        found = 1e8 * (1 + (chosen.tile.band > 0) / 10) * (1 + (chosen.tile.planes == 8) / 10)
        clock.now += chosen.work.updates / found
        return found

    clock = Slow(0)
    monkeypatch.setattr(module, "_rate", rate)
    problem = Problem("heat7", (512, 512, 1024), "float32", 40, initial={"u": 0.1})
    options, machine = RunOptions.of(memory="4GiB"), describe_machine()
    rates = calibrate(problem, options, machine, load_kernel(problem), 1 << 30, clock=clock)
    best = max(rates.samples, key=lambda sample: sample.updates_per_second)
    assert best.band > 0
    assert best.planes == 8
    assert {sample.fetch for sample in rates.samples if sample.band} == {False, True}
    assert len({(s.levels, s.columns) for s in rates.samples}) > 6


def test_a_plan_generates_no_kernel_to_find_its_rates(monkeypatch):
    def generate(*given):
        raise AssertionError("planning generates a kernel")

    monkeypatch.setattr(kernels, "_source", generate)
    problem = Problem("heat7", (32, 32, 32), "float64", 4, initial={"u": 0.0})
    assert pipeline.plan(problem, RunOptions.of(memory="1GiB")).depth > 0


def path(name="heat7", shape=(32, 48, 64), dtype="float64", memory="1GiB", room=1 << 29, **given):
    """Where rates of a problem are kept, on this machine or one with other ``machine`` values."""
    machine = replace(describe_machine(), **given.pop("machine", {}))
    options = RunOptions.of(memory=memory, **{n: given.pop(n, None) for n in ("threads", "tier")})
    initial = given.pop("initial", {"u": 0.0})
    return calibration_path(
        Problem(name, shape, dtype, 4, initial=initial, **given), options, machine, room
    )


def test_rates_are_those_of_a_kernel_its_processor_and_the_length_of_rows(monkeypatch):
    same = path()
    assert path(shape=(64, 48, 64)) == same
    assert path(parameters={"k": 0.05}) == same
    assert path(memory="2GiB", room=1 << 30) == same
    others = [
        path(shape=(32, 48, 65)),
        path(dtype="float32"),
        path(boundary="periodic"),
        path("box27"),
        path(threads=describe_machine().cores + 1),
        path(machine={"cpu": "another"}),
        path(machine={"l2_bytes": 1}),
        path(machine={"l3_bytes": 1}),
    ]
    monkeypatch.setattr(module, "processor", lambda: ("x86_64 flags : avx2", "model\t: 3"))
    others.append(path())
    monkeypatch.setattr(module, "generator_version", lambda: "another")
    assert len({same, *others, path()}) == 2 + len(others)


@og.stencil(ndim=3)
def driven(u, a, b, c, d, e, f, g):
    """Eight arrays, whose planes begin at lines where the grid stays in memory."""
    return u + 0.1 * og.laplacian(u) + (a + b + c + d + e + f + g)


def test_rates_of_many_arrays_are_those_of_where_their_planes_begin():
    given = {"shape": (64, 256, 256), "initial": dict.fromkeys("uabcdefg", 0.0)}
    memory = path(driven, **given, memory="2GiB")
    files = path(driven, **given, memory="256MiB")  # the fields take as much
    assert memory != files
    assert path(driven, **given, memory="256MiB", tier="memory") == memory
    assert path(driven, **given, memory="2GiB", tier="direct") == files
    assert path(driven, **given, memory="256MiB", machine={"lines": True}) == memory
    assert path(machine={"lines": True}) == path()


@pytest.mark.usefixtures("few")
def test_kernels_are_measured_where_the_planes_of_a_run_begin(monkeypatch):
    begun = []
    real = module.Window

    def window(chosen, touch):
        begun.append(chosen.layout.pitch_bytes % 1024)
        return real(chosen, touch)

    monkeypatch.setattr(module, "Window", window)
    names = "uabcdefg"
    asked = Problem(driven, (64, 128, 128), "float32", 8, initial=dict.fromkeys(names, 0.0))
    kernel = load_kernel(asked)
    for tier in ("memory", "direct"):
        options = RunOptions.of(memory="1GiB", tier=tier)
        assert calibrate(asked, options, describe_machine(), kernel, 64 << 20) is not None
    assert {*begun[:1], *begun[-1:]} == {512 + 64, 512}


def test_rates_are_those_of_what_a_compiler_makes(monkeypatch):
    found = {path()}
    for words in ("g++ -O2", "g++ -O3", "g++ -march=x86-64-v3"):
        monkeypatch.setenv("CXX", words)
        found.add(path())
    monkeypatch.setattr(compiler, "_version", lambda command, path: "g++ 99")
    found.add(path())
    monkeypatch.setenv("CXX", "no-such-compiler")
    found.add(path())
    assert len(found) == 6


def test_rates_are_those_of_a_window_in_caches_or_beyond(monkeypatch):
    caches = {"l2_bytes": 1 << 20, "l3_bytes": 8 << 20, "cores": 2}
    large = path(shape=(2048, 256, 256), machine=caches)
    assert path(shape=(4096, 256, 256), room=600 << 20, machine=caches) == large
    narrow = path(shape=(2048, 256, 256), room=36 << 20, machine=caches)
    assert narrow != large
    assert narrow == path(shape=(24, 256, 256), machine=caches)


def test_rates_are_those_of_a_problem_with_its_regions():
    initial = {"p": 1.0, "c": 0.1, "slope": 0.0, "bend": 0.0}

    def layered(width, planes=300):
        layers = {"kind": "matched", "width": width, "courant": 0.4, "frequency": 0.02}
        shape = (planes, 200, 200)
        return path("acoustic_pml:2", shape, "float32", boundary=layers, initial=initial)

    assert len({layered(20), layered(60), layered(21)}) == 3
    assert layered(20, 301) == layered(20)


def test_the_version_of_the_generator_follows_its_text(tmp_path, monkeypatch):
    monkeypatch.setattr(version, "ROOM", tmp_path)
    seen = set()
    for text in ("a", "b"):
        (tmp_path / "kernel.py").write_text(text)
        seen.add(version.generator_version.__wrapped__())
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "slab.hpp").write_text("")
    seen.add(version.generator_version.__wrapped__())
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "kernel.pyc").write_text("")
    seen.add(version.generator_version.__wrapped__())
    assert len(seen) == 3


def test_modules_that_shape_kernels_are_a_part_of_the_generator(tmp_path, monkeypatch):
    package = version.ROOM.parent
    monkeypatch.setattr(version, "ROOM", tmp_path / "codegen")
    seen = {version.generator_version.__wrapped__()}
    for name in version.BESIDE:
        assert (package / name).is_file()
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
        seen.add(version.generator_version.__wrapped__())
    assert len(seen) == 1 + len(version.BESIDE)


def test_too_little_room_measures_nothing():
    problem = Problem("heat7", (512, 64, 64), "float64", 8, initial={"u": 0.0})
    assert measured(problem, room_bytes=1 << 18) is None


DAMAGE = {
    "nothing": lambda text: b"",
    "half": lambda text: text[: len(text) // 2],
    "zeros": lambda text: bytes(len(text)),
    "no text": lambda text: text.replace(b"samples", b"s\xffmples"),
    "another form": lambda text: b'{"samples": 3}',
    "depth": lambda text: b'{"samples":' + b"[" * 100_000,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_calibration_that_is_not_whole_is_none(damage, tmp_path):
    path, calibration = tmp_path / "kept" / "c.json", Calibration((Sample(8, 2, 1e9),), 1e-12)
    keep(calibration, path)
    assert known(path) == calibration
    path.write_bytes(damage(path.read_bytes()))
    assert known(path) is None
    assert known(tmp_path / "other.json") is None
    assert known(path / "below.json") is None


def test_masks_are_zero_where_rates_are_measured_as_they_are_nearly_everywhere(monkeypatch):
    monkeypatch.setattr("outgrid.codegen.masks.LEAST_PARTS", 1)

    def walls(u, kind, c):
        return {"u": og.where(kind == 1, 0.0, og.where(kind == 2, 1.0, c * u))}

    def unused(u, kind, c):
        return {"u": c * kind * u}

    assert mask_fields(og.stencil(walls).trace(2), "float64") == {"kind"}
    assert mask_fields(og.stencil(unused).trace(2), "float64") == set()


def test_rates_are_those_of_cells_in_and_outside_of_regions(monkeypatch):
    parts = []

    def rate(chosen, window, kernel):
        parts.append((chosen.schedule.planes, kernel.absence.parts))
        return 1e9

    monkeypatch.setattr(module, "_rate", rate)
    layers = {"kind": "matched", "width": 10, "courant": 0.4, "frequency": 0.02}
    initial = {"p": 1.0, "c": 0.1, "slope": 0.0, "bend": 0.0}
    problem = Problem("acoustic_pml:2", (900, 60, 96), "float32", 40, {}, layers, initial)
    assert measured(problem) is not None
    for planes, (along_z, along_y, along_x) in parts:
        assert planes < 900
        assert along_z == 2  # the layer at the last planes is not here
        assert along_y > 2
        assert along_x > 2
