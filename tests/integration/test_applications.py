"""Applications against answers from elsewhere, in memory and through a small window."""

import importlib.util
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csc_matrix, eye, linalg

import outgrid as og
from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.errors import DefinitionError
from outgrid.execute.kernel import Kernel
from outgrid.runs.state import RunFolder

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def beside_each_other(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(EXAMPLES)])


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_both_ways(problem, folder, **options):
    """The result in memory, after a run through a small window has given the same bytes."""
    given = {"memory": "512MiB", "threads": 1}
    folder.mkdir(exist_ok=True)
    whole = pipeline.run(problem, RunOptions.of(out=folder / "memory", tier="memory", **given))
    given |= {"out": folder / "disk", "tier": "direct"} | options
    plan = pipeline.plan(problem, RunOptions.of(**given))
    fields = sum(ring.index == 0 for ring in plan.schedule.rings) * problem.field_bytes
    assert plan.sweeps > 1
    assert plan.depth > 1
    assert plan.memory.window_bytes * 4 < fields
    streamed = pipeline.run(problem, RunOptions.of(**given))
    for name in whole.record.fields:
        assert streamed[name].tobytes() == whole[name].tobytes()
    if problem.receivers:
        assert streamed.traces.tobytes() == whole.traces.tobytes()
    return whole


@pytest.mark.parametrize("size", ["XS", "S"])
def test_himeno_has_the_residual_that_the_reference_code_prints(size, tmp_path):
    himeno = example("himeno")
    result = run_both_ways(himeno.problem(size), tmp_path, depth=2, slab_planes=1)
    # Added up in single precision, as there; but products and sums are fused here.
    residual = himeno.squared_in_turn(result["residual"])
    assert residual == pytest.approx(himeno.PRINTED[size], rel=1e-4)
    assert residual == pytest.approx(himeno.squared(result["residual"]), rel=3e-3)


def test_a_cavity_rings_at_the_frequency_of_the_scheme(tmp_path):
    cavity = example("maxwell_cavity")
    result = run_both_ways(cavity.problem(), tmp_path, depth=4, slab_planes=3)
    np.testing.assert_allclose(result.traces[:, 0], cavity.exact(), atol=1e-12)


def test_a_new_stencil_takes_few_lines_and_loses_no_sound(tmp_path):
    duct = example("staggered")
    text = (EXAMPLES / "staggered.py").read_text().split('"""')[2].partition("if __name__")[0]
    assert sum(1 for line in text.splitlines() if line.strip()) < 25
    problem, hum = duct.problem(), np.sin(0.2 * np.arange(300))
    faces = {field.name: problem.edges.rule(field.name, 1) for field in problem.stencil.fields}
    assert faces["p"] == ("neumann", "neumann")
    assert faces["u"] == ("zero", "odd-mirror")
    assert problem.edges.periodic(0)
    result = pipeline.run(problem, RunOptions.of(memory="256MiB", out=tmp_path / "duct"))
    assert result["p"].sum() == pytest.approx(hum.sum(), rel=1e-12)
    assert abs(result["p"]).max() > 0.1


@pytest.mark.parametrize(
    ("written", "instead", "words"),
    [
        ("(p[0, 1] - p)", "(p[0, 0, 1] - p)", "p[0, 0, 1] has 3 offsets"),
        ("(p[0, 1] - p)", "(p.next - p)", "the function returns the next value of 'p'"),
        ("s * (u - u[0, -1]", "s * ((u if u else 0.0) - u[0, -1]", "cannot branch"),
    ],
)
def test_a_mistake_in_it_is_told_with_file_and_line(written, instead, words, tmp_path):
    text = (EXAMPLES / "staggered.py").read_text()
    assert text.count(written) == 1
    path = tmp_path / "duct.py"
    path.write_text(text.replace(written, instead) + "problem()\n")
    line = text[: text.index(written)].count("\n") + 1
    with pytest.raises(DefinitionError) as caught:
        runpy.run_path(str(path))
    assert str(caught.value).startswith(f"{path}:{line}: stencil 'duct': ")
    assert words in str(caught.value)


def test_a_box_rings_as_its_mode_does(tmp_path):
    box = example("maxwell_box")
    shape = (120, 13, 17)
    result = run_both_ways(box.problem(shape, 60), tmp_path, depth=3, slab_planes=4)
    np.testing.assert_allclose(result.traces, box.exact(shape, 60), atol=1e-12)


def test_light_is_scattered_by_a_metal_sphere_as_mie_says(tmp_path):
    light = example("drude_sphere")
    errors = []
    for radius in (5, 10):
        ways = {"memory": "2GiB", "out": tmp_path / str(radius)}
        result = og.run(light.problem(radius), **ways)
        errors.append(light.error(light.measured(result, radius), light.exact(radius)))
    assert errors[1] < 0.06
    assert errors[1] < 0.6 * errors[0]
    few = light.problem(5).replace(steps=40)
    whole = og.run(few, memory="1GiB", out=tmp_path / "whole")
    streamed = {"memory": "1GiB", "tier": "direct", "depth": 2, "slab_planes": 3}
    found = og.run(few, out=tmp_path / "streamed", **streamed)
    assert found.traces.tobytes() == whole.traces.tobytes()
    assert np.any(found.traces)


def test_sound_arrives_with_the_right_strength_and_does_not_come_back(tmp_path):
    sound = example("acoustic")
    shape, steps = (110, 38, 44), 190
    result = run_both_ways(sound.problem(shape, steps), tmp_path, depth=2, slab_planes=5)
    wanted = sound.exact(shape, steps)
    error = abs(result.traces - wanted) / wanted.max(axis=0)
    assert error.max() < 0.007
    quiet = wanted < 1e-3 * wanted.max(axis=0)
    quiet[: steps // 2] = False
    assert quiet.any(axis=0).all()
    assert error[quiet].max() < 1e-3


def test_elastic_waves_are_those_of_a_point_force(tmp_path):
    elastic = example("elastic")
    problem, steps = elastic.problem((90, 54, 54), 90, layer=5), 90
    result = run_both_ways(problem, tmp_path, depth=2, slab_planes=4)
    wanted = elastic.exact(steps)
    assert (abs(result.traces - wanted).max(axis=0) < 0.015 * abs(wanted).max(axis=0)).all()


@pytest.mark.parametrize("order", [2, 4])
def test_elastic_waves_converge_in_the_order_of_the_scheme(order, tmp_path):
    elastic = example("elastic")
    errors = []
    for finer in (1, 2):
        # The error of the time step is of second order: it shrinks with the square of the cells.
        courant = elastic.COURANT / (finer if order == 4 else 1)
        steps, offsets = int(44 * finer / courant), ((8 * finer, 10 * finer),)
        cells = 2 * (28 * finer + elastic.LAYER + 2)  # nothing is back from the sponges yet
        given = (steps, offsets, order, courant, elastic.WIDTH * finer)
        problem = elastic.problem((cells, cells), *given)
        options = RunOptions.of(memory="512MiB", out=tmp_path / str(finer))
        wanted = elastic.exact(steps, offsets, *given[3:])
        traces = pipeline.run(problem, options).traces
        errors.append(abs(traces - wanted).max(axis=0) / abs(wanted).max(axis=0))
    assert (np.log2(errors[0] / errors[1]) > order - 0.2).all()


def test_elastic_waves_do_not_come_back_from_matched_layers(tmp_path):
    elastic = example("elastic")
    options = {"memory": "512MiB", "out": tmp_path}
    assert elastic.returned(**options) < -68
    assert elastic.returned(between="sponges", **options | {"out": tmp_path / "sponges"}) > -25
    steps, offsets = 60, ((9, 9),)
    problem = elastic.problem((90, 50), steps, offsets, layer=8, between="matched")
    result = run_both_ways(problem, tmp_path, depth=2, slab_planes=5)
    wanted = elastic.exact(steps, offsets)
    assert (abs(result.traces - wanted).max(axis=0) < 0.03 * abs(wanted).max(axis=0)).all()


def test_soil_creeps_on_real_terrain_as_its_cosine_modes_do(tmp_path):
    hillslope = example("hillslope")
    land = hillslope.terrain()
    result = run_both_ways(hillslope.problem(land), tmp_path, depth=10, slab_planes=4)
    np.testing.assert_allclose(result["h"], hillslope.exact(land), rtol=1e-12)
    assert result["h"].mean() == pytest.approx(land.mean(), rel=1e-12)


def test_a_picture_is_smoothed_as_by_scipy(tmp_path):
    mask = example("image_mask")
    pixels = mask.portrait()
    result = run_both_ways(mask.problem(pixels, 5, 4), tmp_path, depth=2, slab_planes=4)
    np.testing.assert_allclose(result["u"], mask.peer(pixels, 5, 4), rtol=1e-13)


@pytest.mark.parametrize("kind", ["tif", "zarr"])
def test_a_picture_is_read_and_written_in_pieces(kind, tmp_path, monkeypatch):
    mask = example("image_mask")
    monkeypatch.setattr(mask, "TILE", 64)
    monkeypatch.setattr(mask, "ROWS", 50)
    pixels, path, raw = mask.portrait()[:170, :150], tmp_path / f"p.{kind}", tmp_path / "p.npy"
    mask.write(pixels, path)
    assert mask.read(path, raw) == (170, 150)
    np.testing.assert_array_equal(np.load(raw), np.rint(pixels))


def test_a_small_wave_grows_by_the_linear_theory_of_reaction_and_diffusion(tmp_path):
    model = example("gray_scott")
    errors = []
    for dt in (1.0, 0.5):
        problem = model.wave(dt=dt, rows=160)
        result = run_both_ways(problem, tmp_path / str(dt), depth=4, slab_planes=2)
        found = model.amplitudes(result)
        np.testing.assert_allclose(found, model.exact(dt=dt), rtol=1e-7)
        errors.append(abs(found - model.exact(dt=dt, discrete=False)).max())
    assert 0.8 < np.log2(errors[0] / errors[1]) < 1.3


def test_a_mixture_keeps_its_mass_loses_energy_and_grows_waves_as_theory_says(tmp_path):
    model = example("cahn_hilliard")
    parted = run_both_ways(model.mixture(240, 40, 60), tmp_path / "parted", depth=4, slab_planes=2)
    mass, energy = parted.reductions["mass"], parted.reductions["energy"]
    size = np.abs(parted["c"]).sum()
    np.testing.assert_allclose(mass, mass[0], atol=1e-12 * size)
    assert (np.diff(energy) < 0).all()
    problem = model.wave()
    options = RunOptions.of(memory="512MiB", out=tmp_path / "wave", tier="memory", threads=1)
    found = model.amplitude(pipeline.run(problem, options))
    assert found > 1.1
    np.testing.assert_allclose(found, model.exact(), rtol=1e-6)


def test_a_channel_carries_what_flows_in_as_the_exact_solution_says(tmp_path):
    channel = example("channel")
    errors = []
    for finer in (1, 2):
        options = RunOptions.of(
            memory="512MiB", out=tmp_path / str(finer), tier="memory", threads=1
        )
        result = pipeline.run(channel.problem(finer), options)
        errors.append(channel.difference(result, finer))
    assert errors[1] < 0.02
    assert 1.9 < np.log2(errors[0] / errors[1]) < 2.1


def test_conjugate_gradients_come_to_the_answer_of_a_direct_solver(tmp_path):
    model = example("poisson")
    posed = model.problem(16)
    given = {"memory": "512MiB", "threads": 1}
    whole = pipeline.run(posed, RunOptions.of(out=tmp_path / "memory", tier="memory", **given))
    given |= {"tier": "direct", "slab_planes": 2, "out": tmp_path / "disk"}
    streamed = pipeline.run(posed, RunOptions.of(**given))
    assert streamed["p"].tobytes() == whole["p"].tobytes()
    assert whole.record.steps < posed.steps
    free, charge = model.inside(posed.shape)
    number = np.where(free, np.cumsum(free).reshape(free.shape) - 1, -1)
    own, near = [], []
    for axis in range(3):
        for side in (-1, 1):
            beside = np.roll(number, side, axis)
            both = free & (beside >= 0)
            own.append(number[both])
            near.append(beside[both])
    own, near, count = np.concatenate(own), np.concatenate(near), free.sum()
    matrix = csc_matrix((-np.ones(len(own)), (own, near)), (count, count))
    wanted = linalg.spsolve(matrix + 6 * eye(count, format="csc"), charge[free])
    assert np.abs(whole["p"][free] - wanted).max() < 1e-8 * np.abs(wanted).max()
    assert not whole["p"][~free].any()
    assert model.lacks(whole) < 1e-9


@pytest.mark.parametrize("shape", ["plane", "dome"])
def test_water_sloshes_in_a_basin_as_lamb_and_thacker_say(shape, tmp_path):
    basin = example("basin")
    ways = {"depth": 4, "slab_planes": 2}
    coarse = run_both_ways(basin.problem(64, shape=shape), tmp_path / "64", **ways)
    ways = {"memory": "512MiB", "tier": "memory", "threads": 1}  # another grid, the same arithmetic
    fine = og.run(basin.problem(128, shape=shape), out=tmp_path / "128", **ways)
    errors = [basin.error(result, 1, shape) for result in (coarse, fine)]
    assert errors[1] < 0.015
    assert np.log2(errors[0] / errors[1]) > 1.8


def test_a_dam_breaks_as_stoker_says_and_loses_no_water(tmp_path):
    dam = example("dam_break")
    errors = []
    for cells in (64, 128):
        problem = dam.problem(cells, rows=120)
        result = run_both_ways(problem, tmp_path / str(cells), depth=4, slab_planes=4)
        errors.append(abs(result["h"][7] - dam.exact(cells)).mean())
        assert result["h"].mean() == pytest.approx((dam.DEEP + dam.SHALLOW) / 2, rel=1e-13)
    assert errors[1] < 0.011
    assert np.log2(errors[0] / errors[1]) > 0.7
    problem = dam.problem(60, 60, 0.15, dam.round_dam(60))
    found = pipeline.run(problem, RunOptions.of(memory="512MiB", out=tmp_path / "round"))["h"]
    np.testing.assert_allclose(found, np.transpose(found), rtol=1e-13)


def test_edges_stay_as_they_do_in_itk(tmp_path):
    filters = example("perona_malik")
    y, x = np.indices((30, 24))
    values = np.random.default_rng(1).normal(0, 8, (96, 30, 24)) + 100 * (np.hypot(y, x) < 18)
    result = run_both_ways(filters.problem(values), tmp_path, depth=2, slab_planes=1)
    assert result["u"].mean() == pytest.approx(values.mean(), rel=1e-13)
    assert values.min() < result["u"].min()
    assert result["u"].max() < values.max()
    np.testing.assert_allclose(result["u"], filters.peer(values), atol=1e-11)


def test_a_lid_drives_a_cavity_as_published(tmp_path):
    cavity = example("lid_cavity")
    errors = []
    for size in (16, 32):
        options = RunOptions.of(memory="512MiB", out=tmp_path / str(size), threads=1)
        result = pipeline.run(cavity.problem(size, width=2), options)
        errors.append(abs(cavity.extrema(result) - cavity.EXTREMA))
    assert max(cavity.from_table(result)) < 0.01
    assert (np.log2(errors[0] / errors[1]) > 2).all()
    run_both_ways(cavity.problem(94, width=2, steps=10), tmp_path, depth=2, slab_planes=1)


def beltrami(size, viscosity=0.05, reynolds=24):
    """A flow along its own curl, of Arnold, Beltrami and Childress, and what is left at its end.

    It is all over a periodic cube, keeps its shape and fades by exp(-viscosity k**2 t), with the
    pressure -speed**2 / 2: an exact solution, in which the pressure holds what the flow carries.
    """
    cavity, k = example("lid_cavity"), 2 * np.pi / size
    steps, speed = round(0.5 / (viscosity * k * k)), reynolds * viscosity / size
    z, y, x = k * np.indices((size, size, size))
    flow = speed * np.array([
        np.sin(y) + np.cos(x), np.sin(x) + np.cos(z), np.sin(z) + np.cos(y)
    ])  # fmt: skip
    rising = speed * k * np.array([
        [0 * z, np.cos(y), -np.sin(x)],
        [-np.sin(z), 0 * z, np.cos(x)],
        [np.cos(z), -np.sin(y), 0 * z],
    ])  # fmt: skip
    rest = 3 * (3 * speed**2 - (flow**2).sum(axis=0)) / 2 - 1.5 * (flow**2).sum(axis=0)
    initial = {"kind": 0.0}
    for name, e, weight in zip(cavity.NAMES, cavity.VELOCITIES, cavity.WEIGHTS, strict=True):
        along = np.tensordot(e, flow, 1)
        strain = np.einsum("a,b,abzyx->zyx", e, e, rising)
        late = 3 * (3 * viscosity - 0.5) * strain  # as it is behind a collision
        initial[name] = weight * (rest + 3 * along + 4.5 * along**2 - late)
    even, odd = 3 * viscosity + 0.5, cavity.MAGIC / (3 * viscosity) + 0.5
    problem = og.Problem(
        cavity.lattice, flow.shape[1:], "float64", steps,
        {"even": 1 / even, "odd": 1 / odd, "lid": 0.0},
        dict.fromkeys("zyx", "periodic"), initial,
    )  # fmt: skip
    return problem, flow / speed * np.exp(-viscosity * k * k * steps), speed


def test_vortices_in_three_dimensions_fade_as_the_exact_solution_with_second_order(tmp_path):
    cavity, errors = example("lid_cavity"), []
    for size in (12, 24):
        problem, wanted, speed = beltrami(size)
        options = RunOptions.of(memory="512MiB", out=tmp_path / str(size), threads=1)
        found = cavity.velocity(pipeline.run(problem, options), ..., speed=speed)
        errors.append(abs(found - wanted).max() / abs(wanted).max())
    assert errors[1] < 0.01
    assert np.log2(errors[0] / errors[1]) > 1.8


STRIPS = {  # what is run, steps per sweep, rows of a strip, and the advance that is its last one
    "elastic": (
        lambda: example("elastic").problem((14, 30, 26), 5, ((3, 2, 1),), layer=4), 2, 7, 40
    ),
    "elastic, matched": (
        lambda: example("elastic").problem(
            (12, 27, 12), 4, ((1, 2, 1),), layer=3, between="matched"
        ), 2, 9, 30,
    ),
    "cube": (lambda: example("lid_cavity").problem(12, steps=4), 2, 6, 40),
    "round a circle": (lambda: example("lid_cavity").problem(8, width=25, steps=3), 2, 8, 30),
}  # fmt: skip
IN_STRIPS = {"memory": "512MiB", "threads": 1, "tier": "direct", "slab_planes": 2}
KILLED = """
import sys
sys.path.insert(0, sys.argv[1])
import test_applications
test_applications.killed(*sys.argv[2:])
"""


def killed(name, out):
    """Begin a run in a process that kills itself within."""
    make, depth, rows, last = STRIPS[name]
    advance, count = Kernel.advance, []

    def killing(self, *given):
        count.append(1)
        if len(count) == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return advance(self, *given)

    Kernel.advance = killing
    given = IN_STRIPS | {"out": out, "depth": depth, "strip_rows": rows, "commit_every": 1e-6}
    pipeline.run(make(), RunOptions.of(**given))


@pytest.mark.parametrize("name", STRIPS)
def test_many_fields_pass_in_strips_also_after_kill_9(name, tmp_path):
    make, depth, rows, _ = STRIPS[name]
    problem, out = make(), tmp_path / "killed"
    in_memory = RunOptions.of(memory="512MiB", threads=1, out=tmp_path / "memory", tier="memory")
    wanted = pipeline.run(problem, in_memory)
    strips = IN_STRIPS | {"depth": depth, "strip_rows": rows}
    plan = pipeline.plan(problem, RunOptions.of(**strips, commit_every=1e-6))
    assert plan.schedule.strips.count(depth) > 2
    assert plan.schedule.commit_planes  # also within a sweep
    whole = pipeline.run(problem, RunOptions.of(out=tmp_path / "whole", **strips))
    command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), name, str(out)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert RunFolder.of_manifest(out)[1].steps_done < problem.steps
    for result in (whole, pipeline.resume(out, RunOptions.of(**strips))):
        for field in wanted.record.fields:
            assert result[field].tobytes() == wanted[field].tobytes(), field
        assert not problem.receivers or result.traces.tobytes() == wanted.traces.tobytes()


def test_an_inversion_comes_closer_to_the_model(tmp_path):
    """In two iterations with one shot the misfit falls to a half, and the model's error falls."""
    model, shape = example("inversion"), (32, 36)
    every, given = model.shots, {"memory": "512MiB", "threads": 1}
    model.shots = lambda one, count=3: every(one, 3)[1:2]
    truth, start = model.truth(shape), model.start(shape)
    observed = model.record(truth, tmp_path, **given)
    found, values = model.invert(observed, start, tmp_path, 2, **given)
    assert min(values) < values[0] / 2
    assert np.abs(found - truth).mean() < np.abs(start - truth).mean()


def test_migration_shows_layers_where_they_are(tmp_path):
    rtm, given = example("rtm"), {"memory": "512MiB", "threads": 1}
    model = rtm.truth((72, 80))
    observed = rtm.record(model, tmp_path, 2, **given)
    image = rtm.migrate(observed, rtm.smooth(model), tmp_path, **given)
    tops = rtm.tops(model.shape)
    assert np.abs(np.array(rtm.picked(image)) - tops).max() <= 2


def test_a_diffusivity_is_recovered_from_receivers(tmp_path):
    """On so small a grid two fifths of the part are in both after few iterations; none at first."""
    flow, given, shape = example("diffusivity"), {"memory": "512MiB", "threads": 1}, (16, 18)
    observed = flow.record(flow.truth(shape), tmp_path, 40, **given)
    found, values = flow.recover(observed, tmp_path, shape, 6, **given)
    assert min(values) < values[0] / 20
    assert flow.overlap(found, flow.truth(shape)) > 0.4


def test_an_initial_temperature_is_recovered_from_receivers(tmp_path):
    body, given, shape = example("temperature"), {"memory": "512MiB", "threads": 1}, (24, 20)
    initial = body.truth(shape)
    observed = body.record(initial, tmp_path, 6, **given)
    found, values = body.recover(observed, tmp_path, shape, 12, **given)
    assert min(values) < values[0] / 1000
    assert np.abs(found - initial).mean() < initial.mean() / 4


def test_a_game_of_life_settles_as_it_is_known_to(tmp_path):
    life = example("life")
    result = og.run(life.problem(), memory="512MiB", out=tmp_path / "life.run")
    settled, cells = life.SETTLED["r-pentomino"]
    living = result.reductions["living"]
    assert (living[settled:] == cells).all()
    assert living[settled - 1] != cells
    assert result["alive"].dtype == np.uint8
    assert int(result["alive"].sum()) == cells


def test_life_streamed_is_life_in_memory(tmp_path):
    life = example("life")
    run_both_ways(life.problem("acorn", 700, 9), tmp_path, depth=3, slab_planes=4)


def test_a_cloud_that_is_carried_round_comes_back_to_the_fourth_order(tmp_path):
    carried = example("advection")
    errors = []
    for size in (24, 48):
        problem = carried.problem(size)
        result = og.run(problem, memory="512MiB", out=tmp_path / str(size))
        errors.append(carried.error(result))
        plan = og.plan(problem, memory="512MiB", tier="direct", depth=2, out=tmp_path / "r")
        assert plan.volume.fill_bytes == problem.field_bytes  # of temporaries nothing is moved
    assert 3.8 < np.log2(errors[0] / errors[1]) < 4.2


@pytest.mark.parametrize("across", [(2, 1), (2, -1), (0, 2)])
def test_a_wave_in_tilted_layers_goes_as_fast_as_its_direction_says(across, tmp_path):
    tilted = example("tilted")
    result = og.run(tilted.problem(across), memory="512MiB", out=tmp_path / "run")
    exact, _ = tilted.velocity(tilted.direction(across))
    assert tilted.measured(result, across) == pytest.approx(exact, rel=1e-4)


def test_a_colour_picture_flows_along_its_structures_as_by_scipy(tmp_path):
    coherence = example("coherence")
    problem = coherence.problem(40, 4)
    result = og.run(problem, memory="512MiB", out=tmp_path / "run")
    wanted = coherence.by_scipy(coherence.picture(40), 4)
    assert np.abs(wanted - coherence.picture(40)).max() > 10
    np.testing.assert_allclose(coherence.filtered(result), wanted, atol=1e-3)
    streamed = {"memory": "512MiB", "tier": "direct", "depth": 2, "slab_planes": 4}
    found = og.run(problem, out=tmp_path / "streamed", **streamed)
    assert coherence.filtered(found).tobytes() == coherence.filtered(result).tobytes()
