import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from outgrid.cli import main
from outgrid.errors import UsageError
from outgrid.execute import calibrate
from outgrid.machine import describe_machine
from outgrid.parts import row_groups
from outgrid_bench import ceiling, hand, mask, rows, workloads
from outgrid_bench.ceiling import around, ceiling_box, footprint_lines
from outgrid_bench.hand import HandLoop
from outgrid_bench.measure import OutOfCore, in_memory, out_of_core
from outgrid_bench.workloads import CASES, choose, recorded, workload

ROW_KEYS = {
    *("stencil", "dtype", "mode", "factor", "glups", "gflops", "over_plain", "over_ceiling"),
    *("wait_share", "io_over_ideal", "identical"),
}


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grids and times so small that figures mean nothing and a row takes a second."""
    monkeypatch.setattr(workloads, "REFERENCE_BYTES", {2: 1 << 17, 3: 1 << 17})
    monkeypatch.setattr(calibrate, "MOST_PLANES", {2: 16, 3: 16})
    monkeypatch.setattr(calibrate, "LEVELS", {2: (8,), 3: (2,)})
    monkeypatch.setattr(ceiling, "SECONDS", 1e-4)
    monkeypatch.setattr(hand, "PEAK_ROUNDS", 1000)
    monkeypatch.setattr(hand, "FLAGS", ("-Og", *hand.FLAGS[1:]))
    monkeypatch.setattr(rows, "CACHE_LEVELS", (1,))


def bench(path: Path, *arguments: str) -> int:
    common = ("--memory", "96MiB", "--scratch", str(path), "--json", str(path / "figures.json"))
    return main(["bench", "core", *common, *arguments])


@pytest.mark.usefixtures("brief")
def test_rows_hold_every_mode_and_ratio(tmp_path, capsys):
    plane = ("--plane", "64x64", "--steps", "4")
    assert bench(tmp_path, "--factor", "0.05", *plane) == 0
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert all(row.keys() >= ROW_KEYS for row in figures)
    modes = {row["mode"]: row for row in figures}
    expected = {"bandwidth", "peak", "ceiling-l1", "plain", "hand", "blocked", "tiled", "outofcore"}
    assert modes.keys() == expected
    assert {row["stencil"] for row in figures} == {"fma", "copy", "scale", "heat7"}
    assert all(row["machine"] and row["ended"] for row in figures)
    assert modes["plain"]["over_plain"] == 1
    best = max(modes[mode]["glups"] for mode in ("plain", "blocked", "hand"))
    assert modes["tiled"]["over_best"] == pytest.approx(modes["tiled"]["glups"] / best)
    assert modes["ceiling-l1"]["over_ceiling"] == 1
    streamed = modes["outofcore"]
    assert streamed["identical"] is modes["tiled"]["identical"] is True
    assert streamed["factor"] == 0.05
    beside = sum(streamed["plain_beside"]) / 2
    fastest = max(beside, sum(streamed["best_beside"]) / 2)
    assert streamed["over_best"] == pytest.approx(streamed["glups"] / fastest)
    assert streamed["over_plain"] == pytest.approx(streamed["glups"] / beside)
    assert streamed["gflops"] == pytest.approx(9 * streamed["glups"])
    peak = next(r["gflops"] for r in figures if (r["mode"], r["dtype"]) == ("peak", "float64"))
    assert streamed["over_peak"] == pytest.approx(streamed["gflops"] / peak)
    assert "heat7" in capsys.readouterr().out
    assert [entry.name for entry in tmp_path.iterdir()] == ["figures.json"]


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("best", ["blocked", "hand"])
def test_the_fastest_sweep_of_one_step_is_measured_beside_rows(best, tmp_path, monkeypatch):
    one = workload(choose("heat7"), "96MiB", 0.05, (64, 64), 4)
    case = rows._CaseRows([one], tmp_path, lambda text: None, rows.Kept(None, rows.KEY, False))
    asked = []
    monkeypatch.setattr(case, "_one_step_rate", lambda mode: asked.append(mode) or 2.0)
    monkeypatch.setattr(case, "_tiled_rate", lambda *_: (3.0, None))
    case.samples = {"plain": [1.0], "blocked": [1.1], "hand": [1.05], best: [4.0, 5.0]}
    assert case._beside(one)["best"] == 2.0
    assert asked == ["plain", best]


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("mode", ["plain", "blocked", "hand"])
def test_a_sweep_of_one_step_has_a_rate(mode, tmp_path):
    one = workload(choose("heat7"), "96MiB", 0.05, (64, 64), 4)
    case = rows._CaseRows([one], tmp_path, lambda text: None, rows.Kept(None, rows.KEY, False))
    assert case._one_step_rate(mode) > 0


@pytest.mark.usefixtures("brief")
def test_a_wrong_answer_is_reported(tmp_path, monkeypatch, capsys):
    def spoiled(*arguments: object) -> OutOfCore:
        done = out_of_core(*arguments)
        values = np.load(done.result, mmap_mode="r+")
        values[-3, 10, 10] += 1e-9
        values.flush()
        return done

    monkeypatch.setattr(rows, "out_of_core", spoiled)
    plane = ("--plane", "64x64", "--steps", "4")
    assert bench(tmp_path, "--only", "heat7", "--factor", "0.05", *plane) == 1
    (row,) = (
        row
        for row in json.loads((tmp_path / "figures.json").read_text())
        if row["mode"] == "outofcore"
    )
    assert row["identical"] is False
    assert "DIFFERS" in capsys.readouterr().out


@pytest.mark.usefixtures("brief")
def test_a_coefficient_field_and_two_levels_are_measured(tmp_path):
    posed = workload(choose("wave:8"), "96MiB", 0.2, (32, 32), 3)
    assert posed.planes * 3 * 32 * 32 * 4 == pytest.approx(0.2 * (96 << 20), rel=0.01)
    done = rows.measure_rows([posed], tmp_path, lambda text: None)
    assert rows.answers_agree(done)
    assert [row.mode for row in done].count("outofcore") == 1


BY_HAND = [(name, written) for name, loops in hand.HAND_WRITTEN.items() for written in loops]


@pytest.fixture
def hastily(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops by hand that are compiled fast."""
    monkeypatch.setattr(hand, "FLAGS", ("-Og", *hand.FLAGS[1:]))


def test_every_case_has_a_loop_by_hand():
    assert hand.HAND_WRITTEN.keys() == {case.name for case in CASES}


@pytest.mark.usefixtures("hastily")
@pytest.mark.parametrize(
    ("name", "written"), BY_HAND, ids=[f"{name} {written.mode}" for name, written in BY_HAND]
)
def test_the_loop_by_hand_computes_the_same(name, written, tmp_path):
    case = choose(name)
    more = 2 * case.layer
    plane = (28 + more, 48 + more) if case.stencil.ndim == 3 else (90,)
    problem = workload(case, "96MiB", 1, plane, 4).problem(0, 22 + more)
    loop = HandLoop(problem, case.stencil, tmp_path, written)
    _, values = loop.run()
    _, expected = in_memory(problem, "plain", tmp_path)
    _, start = in_memory(problem.replace(steps=2), "plain", tmp_path)
    bound = 4 * rows.ROUNDING[case.dtype]
    assert rows.largest_difference(values, expected) < bound
    assert rows.largest_difference(values, start) > 1000 * bound
    del values
    loop.release()


@pytest.mark.usefixtures("hastily")
@pytest.mark.parametrize("name", ["box27", "heat7"])
@pytest.mark.parametrize("shape", [(9, 6, 254), (8, 4, 257), (7, 3, 600), (4, 3, 64)])
def test_planes_at_once_by_hand_leave_no_plane_or_column_out(shape, name, tmp_path):
    case = choose(name)
    (written,) = hand.HAND_WRITTEN[name]
    problem = workload(case, "96MiB", 1, shape[1:], 2).problem(0, shape[0])
    loop = HandLoop(problem, case.stencil, tmp_path, written)
    _, values = loop.run()
    _, expected = in_memory(problem, "plain", tmp_path)
    assert rows.largest_difference(values, expected) < 2 * rows.ROUNDING[case.dtype]
    del values
    loop.release()


@pytest.mark.usefixtures("hastily")
@pytest.mark.parametrize("written", hand.HAND_WRITTEN["lbm19"], ids=lambda written: written.mode)
def test_walls_send_back_what_the_lattice_by_hand_sends_them(written, tmp_path):
    case = choose("lbm19")
    walls = "(z == 0) + (y == 0) + (y == ny - 1) + (x == 0) + (x == nx - 1)"
    values = {"kind": f"where({walls} > 0, 1, 2 * (z == nz - 1))"}
    posed = workload(case, "96MiB", 1, (12, 24), 6).problem(0, 10)
    problem = posed.replace(initial={**posed.initial, **values})
    loop = HandLoop(problem, case.stencil, tmp_path, written)
    _, result = loop.run()
    _, expected = in_memory(problem, "plain", tmp_path)
    _, without = in_memory(posed, "plain", tmp_path)
    bound = 6 * rows.ROUNDING[case.dtype]
    assert rows.largest_difference(result, expected) < bound
    assert rows.largest_difference(without, expected) > 1000 * bound
    del result
    loop.release()


@pytest.mark.usefixtures("brief")
def test_large_planes_are_set_beside_as_large_ones_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(workloads, "REFERENCE_EXTENT", 32)
    shapes = []

    def noted(problem, kind, *others):
        shapes.append((kind, problem.shape[1:]))
        return in_memory(problem, kind, *others)

    monkeypatch.setattr(rows, "in_memory", noted)
    one = workload(choose("heat7"), "96MiB", 0.05, (48, 64), 4)
    row = rows.measure_rows([one], tmp_path, lambda text: None)[-1]
    assert set(shapes) == {
        *(("plain", (32, 32)), ("blocked", (32, 32)), ("tiled", (32, 32))),
        *(("tiled", (48, 64)), ("blocked", (48, 64))),  # the last are compared with
    }
    assert row.resident_beside != row.tiled_beside
    assert row.over_resident == pytest.approx(2 * row.glups / sum(row.resident_beside))


@pytest.mark.usefixtures("brief")
def test_an_interrupted_record_goes_on_after_its_last_row(tmp_path, monkeypatch):
    arguments = ("--only", "heat7", "--plane", "64x64", "--steps", "4")
    assert bench(tmp_path, *arguments, "--factor", "0.05") == 0
    target = tmp_path / "figures.json"
    first = json.loads(target.read_text())

    def interrupted(*_: object) -> OutOfCore:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(rows, "out_of_core", interrupted)
        assert bench(tmp_path, *arguments, "--factor", "0.07", "--resume") == 130
    assert json.loads(target.read_text()) == first
    both = ("--factor", "0.05", "--factor", "0.07", "--resume")
    assert bench(tmp_path, *arguments, *both) == 0
    record = json.loads(target.read_text())
    assert record[:-1] == first
    row = record[-1]
    assert row["factor"] == 0.07
    for mode in ("plain", "tiled", "resident"):
        beside = row[f"{mode}_beside"]
        assert len(beside) == 2
        assert row[f"over_{mode}"] == pytest.approx(2 * row["glups"] / sum(beside))
    assert row["resident_beside"] == row["tiled_beside"]  # the planes are those of the reference
    assert bench(tmp_path, *arguments, *both) == 0
    assert json.loads(target.read_text()) == record


@pytest.mark.usefixtures("brief")
def test_a_record_is_gone_on_with_where_it_lacks_a_loop_by_hand(tmp_path):
    arguments = ("--only", "heat7", "--plane", "64x64", "--steps", "4", "--factor", "0.05")
    assert bench(tmp_path, *arguments) == 0
    target = tmp_path / "figures.json"
    lacking = [row for row in json.loads(target.read_text()) if row["mode"] != "hand"]
    target.write_text(json.dumps(lacking))
    assert bench(tmp_path, *arguments, "--resume") == 0
    *before, row = json.loads(target.read_text())
    assert before == lacking
    assert row["mode"] == "hand"
    assert len(row["plain_beside"]) == rows.ROUNDS
    plain = np.median(row["plain_beside"])
    assert row["over_plain"] == pytest.approx(row["glups"] / plain)
    blocked = next(row["glups"] for row in lacking if row["mode"] == "blocked")
    assert row["over_best"] == pytest.approx(row["glups"] / max(plain, blocked, row["glups"]))


def test_a_record_of_another_machine_is_not_gone_on_with(tmp_path, capsys):
    row = dict.fromkeys(rows.KEY, "") | {"machine": "64 cores of Another, Linux 1, g++"}
    (tmp_path / "figures.json").write_text(json.dumps([row]))
    assert bench(tmp_path, "--resume") == 2
    assert "rows of 64 cores of Another, and this machine has" in capsys.readouterr().err


def test_a_record_holds_the_grids_of_every_case():
    posed = recorded()
    assert {workload.case for workload in posed} == set(CASES)
    planes = {(w.case.spelling, w.plane) for w in posed}
    for plane in ((512, 512), (1024, 1024)):
        assert {("heat7:float64", plane), ("wave:8:float32", plane)} <= planes
    first = {one.case: one for one in reversed(posed)}  # its references serve all of the case
    for case, one in first.items():
        if case.stencil.ndim == 3 and case.cell_bytes <= 3 * case.item_bytes:
            assert one.reference_shape == (512, 512, 512)
        assert math.prod(one.reference_shape) * case.cell_bytes <= 4 << 30
    assert {w.factor for w in recorded((16.0,))} == {16.0}


def test_a_record_takes_no_grid_of_ones_own(tmp_path, capsys):
    assert main(["bench", "core", "--all", "--memory", "1GiB"]) == 2
    assert "leave out --memory" in capsys.readouterr().err


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.spelling)
def test_usual_workloads_have_room_to_be_compared(case):
    for factor in (1, 4, 8, 16):
        posed = workload(case, factor=factor)
        first, last, start, end = posed.part(0.4)
        assert first <= start < end <= last
        assert first == 0 or start - first == posed.reach
        assert last == posed.planes or last - end == posed.reach
        assert posed.problem().shape[0] > 2 * case.stencil.radius[0]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.spelling)
def test_ceilings_fit_their_cache_with_more_than_a_layer_inside(case):
    # Twenty arrays with what is read around them do not fit the smallest.
    for nbytes in (48 << 10, 1 << 20, 1 << 24)[case.cell_bytes > 16 * case.item_bytes :]:
        kept, _ = around(case)
        *lines, columns = ceiling_box(kept, nbytes)
        rows = lines[1] if len(lines) == 2 else 1
        touched = footprint_lines(case.stencil, lines[0], rows, kept.regions)
        assert touched * columns * case.item_bytes <= nbytes
        assert columns > 4 * case.stencil.radius[-1]
        assert lines[0] >= 4


@pytest.fixture
def repeated(monkeypatch):
    """What ceilings are measured of: tiles, fields that are +0 and absence; nothing is updated."""
    seen = []

    def repeat(kernel, chosen, window, steps, planes, rows):
        fields = {
            ring.field: window.slots(ring.field, ring.index) for ring in chosen.schedule.rings
        }
        zero = {name for name, slots in fields.items() if not any(slot.any() for slot in slots)}
        seen.append((chosen.tile, zero, kernel.absence, planes, rows))

    monkeypatch.setattr(ceiling, "SECONDS", 1e-5)
    monkeypatch.setattr(ceiling, "load_kernel", lambda problem: SimpleNamespace(library=None))
    monkeypatch.setattr(ceiling.Kernel, "repeat", repeat)
    return seen


def test_masks_are_zero_in_cache_as_between_walls(repeated):
    ceiling.ceiling(choose("lbm19"), describe_machine(), 1)
    assert {name for _, zero, *_ in repeated for name in zero} == {"kind"}


def test_rows_in_cache_are_updated_in_each_group_of_planes(repeated):
    case = choose("elastic")
    ceiling.ceiling(case, describe_machine(), 1)
    form, _ = around(case)
    groups = row_groups(form.stencil, form.dtype, form.edges, form.dtypes)
    assert len(groups) > 1
    assert {tile.group for tile, *_ in repeated} == {*groups}


def test_layers_of_planes_and_rows_are_no_part_of_what_is_in_cache(repeated):
    ceiling.ceiling(choose("acoustic"), describe_machine(), 1)
    *_, absence, planes, rows = repeated[0]
    assert absence.tables
    problem, _ = around(choose("acoustic"), (len(planes), len(rows), 64))
    assert problem.regions.keys() == workloads.MEMORIES.keys()
    for name in ("slope_z", "bend_z", "slope_y", "bend_y"):
        axis, box = (0, planes) if name.endswith("z") else (1, rows)
        reach = problem.stencil.radius[axis]
        near = range(box.start - reach, box.stop + reach)
        assert not any({*near} & {*part[axis]} for part in problem.regions[name])


def test_the_footprint_of_a_star_has_no_corners():
    cube, star = (choose(name).stencil for name in ("box27", "wave:8"))
    assert footprint_lines(cube, 4, 3) == 2 * 6 * 5
    # Two rings of u with arms of four rows on each side, one ring of c.
    assert footprint_lines(star, 4, 3) == 2 * (4 * 3 + 8 * 3 + 8 * 4) + 4 * 3


@pytest.mark.parametrize(("rule", "radius"), [(mask.mask3, 1), (mask.mask15, 7)])
def test_a_mask_has_weights_that_differ_and_sum_to_one(rule, radius):
    weights = mask.weights(radius)
    assert len(set(weights.values())) == len(weights) == (2 * radius + 1) ** 2
    assert sum(weights.values()) == pytest.approx(1)
    assert rule.trace(2).radius == (radius, radius)


def test_mistakes_name_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'heat7"):
        choose("heat77:float64")
    with pytest.raises(UsageError, match="ROWSxCOLUMNS"):
        workload(choose("heat7"), plane=(64,))
    with pytest.raises(UsageError, match="128MiB"):
        workload(choose("heat7"), "32MiB")


@pytest.mark.parametrize("arguments", [["--plane", "64*64"], ["--factor", "0"]])
def test_wrong_usage_ends_with_2(arguments, tmp_path, capsys):
    assert bench(tmp_path, *arguments) == 2
    assert "outgrid: " in capsys.readouterr().err


@pytest.mark.usefixtures("brief")
def test_a_row_along_another_axis_stands_beside_the_other(tmp_path, capsys):
    plane = ("--factor", "0.05", "--plane", "64x64", "--steps", "4")
    plane = ("--memory", "160MiB", *plane)
    assert bench(tmp_path, *plane) == 0
    assert bench(tmp_path, *plane, "--stream-axis", "x", "--resume") == 0
    figures = json.loads((tmp_path / "figures.json").read_text())
    rows_beyond = [row for row in figures if row["mode"] == "outofcore"]
    assert [row["axis"] for row in rows_beyond] == ["", "x"]
    assert all(row["identical"] for row in rows_beyond)
    assert "outofcore along x" in capsys.readouterr().out
